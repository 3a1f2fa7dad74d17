"""
Kueue's visibility API (`visibility.kueue.x-k8s.io`, v1beta2 and v1beta1): pending workloads with positions. Read-only.

    GET /apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/<name>/pendingworkloads?offset=&limit=
    GET /apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/<ns>/localqueues/<name>/pendingworkloads?offset=&limit=
    GET /apis, /apis/<group>, /apis/<group>/<version>    discovery for kubectl and clients

Bodies and errors have the form of Kueue's aggregated API server, so that its clients work here too; positions count
from 0. It is served on the read side, for callers with a token, and by `headgate.web.aggregated` behind an APIService,
for `kubectl get --raw` and all other clients of the API server. `/pending` also returns the reason why each workload
waits and its wake condition. The functions are pure; `headgate.web.routes` binds them to paths.
"""

from collections.abc import Mapping
from typing import Any, Final

from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.state.tables import State, Workload, local_queue_of
from headgate.core.views.visibility import line_of
from headgate.events.ids import LocalQueueKey, split_key

GROUP: Final = "visibility.kueue.x-k8s.io"
VERSIONS: Final = ("v1beta2", "v1beta1")
"""The served versions, the preferred one first. Their objects are alike."""

LIMIT: Final = 1_000
LIMIT_MAX: Final = 100_000
_INT64_MAX: Final = 2**63 - 1

JsonObject = dict[str, Any]


class StatusError(Exception):
    """An answer that is not 200: its body is a `v1` Status with `code`."""

    def __init__(self, code: int, reason: str, message: str, details: JsonObject | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details

    def status(self) -> JsonObject:
        """The Status."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            **({"details": self.details} if self.details is not None else {}),
            "code": self.code,
        }


def page_of(query: Mapping[str, str]) -> tuple[int, int]:
    """Offset and limit of a request, bounded as Kueue bounds them. Raises StatusError."""
    limit, offset = _number(query, "limit", LIMIT), _number(query, "offset", 0)
    return max(offset, 0), min(max(limit, 0), LIMIT_MAX)


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = _INT64_MAX + 1
    if not -_INT64_MAX <= value <= _INT64_MAX:
        raise StatusError(400, "BadRequest", f"{name}={text}: write a whole number, e.g. {name}=100")
    return value


def of_cluster_queue(state: State, name: str, version: str, offset: int, limit: int) -> JsonObject:
    """The PendingWorkloadsSummary of a ClusterQueue. Raises StatusError when there is none of that name."""
    if name not in state.cluster_queues:
        raise _not_found("clusterqueue", name)
    places: dict[LocalQueueKey, int] = {}
    items: list[JsonObject] = []
    for position, workload in enumerate(line_of(state, name)[: offset + limit]):
        local_queue = local_queue_of(workload)
        place = places.get(local_queue, 0)
        places[local_queue] = place + 1
        if position >= offset:
            items.append(_pending(workload, position, place))
    return _summary(version, items)


def of_local_queue(state: State, namespace: str, name: str, version: str, offset: int, limit: int) -> JsonObject:
    """The PendingWorkloadsSummary of a LocalQueue. Raises StatusError when there is none of that name."""
    key = LocalQueueKey(f"{namespace}/{name}")
    record = state.local_queues.get(key)
    if record is None:
        raise _not_found("localqueue", name)
    line = enumerate(line_of(state, record.spec.cluster_queue))
    mine = [(position, workload) for position, workload in line if local_queue_of(workload) == key]
    shown = enumerate(mine[offset : offset + limit], offset)
    return _summary(version, [_pending(workload, position, place) for place, (position, workload) in shown])


def group_list() -> JsonObject:
    """`/apis`."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]}


def group() -> JsonObject:
    """`/apis/<group>`."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group()}


def resource_list(version: str) -> JsonObject:
    """`/apis/<group>/<version>`. Raises StatusError for a version that is not served."""
    require_version(version)
    resources = []
    for plural, is_namespaced in (("clusterqueues", False), ("localqueues", True)):
        single = plural.removesuffix("s")
        about = {"namespaced": is_namespaced, "kind": "PendingWorkloadsSummary"}
        resources.append({"name": plural, "singularName": single, **about, "verbs": []})
        resources.append({"name": f"{plural}/pendingworkloads", "singularName": "", **about, "verbs": ["get"]})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{version}",
        "resources": resources,
    }


def require_version(version: str) -> None:
    """Raises StatusError for a version that is not served."""
    if version not in VERSIONS:
        raise StatusError(404, "NotFound", "the server could not find the requested resource", {})


def _group() -> JsonObject:
    versions = [{"groupVersion": f"{GROUP}/{version}", "version": version} for version in VERSIONS]
    return {"name": GROUP, "versions": versions, "preferredVersion": versions[0]}


def _summary(version: str, items: list[JsonObject]) -> JsonObject:
    return {
        "kind": "PendingWorkloadsSummary",
        "apiVersion": f"{GROUP}/{version}",
        "metadata": {},
        "items": items,
    }


def _pending(workload: Workload, position: int, place: int) -> JsonObject:
    namespace, name = split_key(workload.key)
    metadata: JsonObject = {
        "name": name,
        "namespace": namespace,
        "creationTimestamp": rfc3339(workload.created_ms),
    }
    if workload.owner is not None:
        owner = workload.owner
        metadata["ownerReferences"] = [
            {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        ]
    return {
        "metadata": metadata,
        "priority": workload.priority,
        "localQueueName": workload.spec.queue_name,
        "positionInClusterQueue": position,
        "positionInLocalQueue": place,
    }


def _not_found(resource: str, name: str) -> StatusError:
    details = {"name": name, "group": GROUP, "kind": resource}
    return StatusError(404, "NotFound", f'{resource}.{GROUP} "{name}" not found', details)
