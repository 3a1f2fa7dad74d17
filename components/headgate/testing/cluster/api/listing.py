"""
Lists: which objects at which version, page by page.

Source: k8s.io/apiserver/pkg/storage/cacher/{cacher,delegator}.go and etcd3/store.go. Called by `Cluster` for every GET
of a collection.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from headgate.testing.cluster import errors
from headgate.testing.cluster.api import list_options
from headgate.testing.cluster.api.list_options import INCONSISTENT, ListOptions
from headgate.testing.cluster.api.representation import ObjectRenderer
from headgate.testing.cluster.api.routing import ResourcePath
from headgate.testing.cluster.api.selectors import predicate
from headgate.testing.cluster.errors import ApiStatusError
from headgate.testing.cluster.storage.store import Key, Store

JsonObject = dict[str, Any]

_EXPIRED: Final = "The resourceVersion for the provided list is too old."
_CONTINUE_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def list_collection(
    store: Store, target: ResourcePath, query: Mapping[str, str], view: ObjectRenderer, now_ms: int
) -> bytes:
    """
    The list that a query selects, encoded.

    Raises ApiStatusError: 400 and 422 for an invalid query, 410 for a version that has expired, 504 for a version from
    the future.
    """
    options = list_options.read(query)
    label_text, field_text = query.get("labelSelector", ""), query.get("fieldSelector", "")
    matches = predicate(target.kind, target.version, label_text, field_text)
    rv, after, limit = _start(store, options, target.namespace)
    try:
        found, count = store.table(target.kind).as_of(rv, target.namespace, after)
    except ApiStatusError:
        if options.token:
            raise errors.expired(_CONTINUE_EXPIRED, token=list_options.token_now(options.token)) from None
        raise errors.expired(_EXPIRED) from None
    if matches is not None:
        found = (entry for entry in found if matches(entry.obj))
    page = list(islice(found, limit + 1)) if limit else list(found)
    list_meta: JsonObject = {}
    if limit and len(page) > limit:
        page.pop()
        list_meta["continue"] = list_options.token_after(rv, page[-1].key, target.namespace)
        if matches is None:
            list_meta["remainingItemCount"] = count - limit
    return view.many(page, str(rv), now_ms, list_meta)


def _start(store: Store, options: ListOptions, namespace: str) -> tuple[int, Key | None, int]:
    """The version to list at, the key to continue behind, and the limit that counts."""
    limit = max(0, options.limit)
    if options.token:
        rv, after = list_options.continuation(options.token, namespace)
        if options.rv not in {"", "0"}:
            raise errors.bad_request("specifying resource version is not allowed when using continue")
        return store.rv if rv == INCONSISTENT else rv, after, limit
    wanted = list_options.list_version(options.rv) if options.rv else 0
    if wanted > store.rv:
        raise errors.too_large(wanted, store.rv)
    if options.rv and not wanted:
        # From memory, which takes no notice of the limit.
        return store.rv, None, 0
    exact = options.match == "Exact" or (wanted and limit and not options.match)
    return wanted if exact else store.rv, None, limit
