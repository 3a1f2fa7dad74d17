"""
The handlers of paths that need no facts of the cluster.

Those of admission are made in `process`, with their facts.
"""

from collections.abc import Mapping
from typing import Final

from headgate.core.versions.converting import convert_review
from headgate.processes.webhook.server import Handler

HANDLERS: Final[Mapping[str, Handler]] = {"/convert": convert_review}
