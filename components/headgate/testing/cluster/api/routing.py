"""From a URL path to what it names: a kind, a version, a namespace, an object, a subresource."""

from typing import Final

import msgspec

from headgate.testing.cluster.errors import ApiStatusError, PageNotFoundError, not_found, unknown_path
from headgate.testing.cluster.kinds import BY_PLURAL, KINDS, Kind

_TYPED: Final = frozenset(kind.group for kind in KINDS if not kind.custom)


class ResourcePath(msgspec.Struct, frozen=True, kw_only=True):
    """What a path names. Empty `namespace`: cluster-scoped, or all namespaces. Empty `name`: the collection."""

    kind: Kind
    version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> ResourcePath:
    """The target of `/api/v1/…` or `/apis/<group>/<version>/…`. Raises ApiStatusError 404 if nothing is there."""
    steps = path.strip("/").split("/")
    if len(steps) >= 3 and steps[0] == "api":
        group, version, rest = "", steps[1], steps[2:]
    elif len(steps) >= 4 and steps[0] == "apis":
        group, version, rest = steps[1], steps[2], steps[3:]
    else:
        raise unknown_path()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and ((group, rest[2]) in BY_PLURAL or group):
        namespace, rest = rest[1], rest[2:]
    kind = BY_PLURAL.get((group, rest[0]))
    if kind is None or version not in kind.versions or len(rest) > 3:
        raise nothing_at(group)
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if (namespace and not kind.namespaced) or (name and kind.namespaced and not namespace):
        raise nothing_at(group)
    if subresource and subresource not in kind.subresources:
        raise not_found(kind, name) if kind.custom else unknown_path()
    return ResourcePath(kind=kind, version=version, namespace=namespace, name=name, subresource=subresource)


def nothing_at(group: str) -> ApiStatusError:
    """The 404 of a path that is not served: Kubernetes' own groups answer with a Status, other paths with a page."""
    return unknown_path() if group in _TYPED else PageNotFoundError()


def names_object(path: str) -> bool:
    """Whether a path names one object, which can be read and not watched."""
    try:
        return bool(parse_path(path).name)
    except ApiStatusError:
        return False


def object_path(kind: Kind, namespace: str, name: str = "", subresource: str = "", *, version: str = "") -> str:
    """The path of an object, or of a collection when `name` is empty."""
    version = version or kind.version
    parts = ["/apis", kind.group, version] if kind.group else ["/api", version]
    if kind.namespaced and namespace:
        parts += ["namespaces", namespace]
    parts.append(kind.plural)
    parts += [part for part in (name, subresource) if part]
    return "/".join(parts)
