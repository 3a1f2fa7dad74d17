"""
Reading the query of a watch: where it begins and what it selects.

What a client can get wrong there is refused here. Writes are read by `bodies`, lists by `list_options`.
"""

from collections.abc import Mapping

from headgate.testing.cluster.api import list_options
from headgate.testing.cluster.api.routing import ResourcePath
from headgate.testing.cluster.api.watch import WatchStart


def watch_start(target: ResourcePath, query: Mapping[str, str]) -> WatchStart:
    """Where a watch starts and what it selects. Raises ApiStatusError 400, 422, or 500 for a version that is none."""
    options = list_options.read(query, watching=True)
    return WatchStart(
        rv=list_options.version(options.rv) if options.rv else 0,
        bookmarks=options.bookmarks,
        initial_events=options.initial_events is True,
        timeout_ms=1000 * options.timeout_s if options.timeout_s else None,
        namespace=target.namespace,
    )
