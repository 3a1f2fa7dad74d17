"""
The handlers of paths that need no facts of the cluster.

Those of admission are made in `process`, with their facts.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from headgate.core.versions.converting import convert_review

Json = dict[str, Any]
Handler = Callable[[Json], Json | Awaitable[Json]]
"""The whole review in, the whole review with its response out."""

HANDLERS: Final[Mapping[str, Handler]] = {"/convert": convert_review}
