"""
Topologies for a drawn script: nodes in racks, flavors with a Topology, jobs that request one, and nodes that fail.

`with_topologies` changes a script of `operations.script_of`; what it draws comes from the same seed and from no draw of
the script's own, so that a seed without topologies stays what it is.
"""

import copy
import random
from typing import Any, Final

from msgspec.structs import replace

from headgate.core.config import feature_gates
from headgate.testing.fuzz.fitting import KUEUE, NODES, Manifest
from headgate.testing.fuzz.operations import Operation, Script
from headgate.testing.fuzz.values import NAMESPACES, TOPOLOGIES

REQUESTS: Final[tuple[dict[str, str], ...]] = (
    {"podset-required-topology": "rack"},
    {"podset-required-topology": "kubernetes.io/hostname"},
    {"podset-preferred-topology": "rack"},
    {"podset-preferred-topology": "kubernetes.io/hostname"},
    {"podset-unconstrained-topology": "true"},
    {"podset-required-topology": "block"},
    {
        "podset-required-topology": "rack",
        "podset-slice-required-topology": "kubernetes.io/hostname",
        "podset-slice-size": "2",
    },
)
"""Annotations of pod templates. No level is called `block`."""

GATES: Final = (
    feature_gates.TAS_PROFILE_MIXED,
    feature_gates.TAS_FAILED_NODE_REPLACEMENT,
    feature_gates.TAS_FAIL_FAST,
    feature_gates.TAS_REPLACE_ON_POD_TERMINATION,
    feature_gates.TAS_REPLACE_ON_TAINTS,
    feature_gates.TAS_BALANCED_PLACEMENT,
    feature_gates.TAS_MULTI_LAYER,
    feature_gates.TAS_OVERLAPPING_FLAVORS,
    feature_gates.TAS_RECOMPUTE_IN_CYCLE,
    feature_gates.TAS_RESPECT_AFFINITY_PREFERRED,
    feature_gates.TAS_HOSTNAME_PREFIX_ENCODING,
)
"""Those that change where pods are placed, or what becomes of a failed node."""


def with_topologies(script: Script) -> Script:
    """The script in a cluster with topologies, where nodes fail."""
    rng = random.Random(f"topologies-{script.seed}")  # noqa: S311  (a run has to be repeatable, not secret)
    operations = [_with_topology(operation, rng) for operation in script.operations]
    end_ms = max((operation.at_ms for operation in operations), default=0)
    for _ in range(rng.choice((2, 5, 12))):
        operations += _failure(rng, rng.randint(0, end_ms))
        operations += _foreign_pod(rng, rng.randint(0, end_ms))
    gates = {gate: rng.random() < 0.7 for gate in GATES}
    if not gates[feature_gates.TAS_FAILED_NODE_REPLACEMENT]:
        for gate in (feature_gates.TAS_FAIL_FAST, feature_gates.TAS_REPLACE_ON_POD_TERMINATION):
            gates[gate] = False
    on = {**script.configuration.feature_gates, **gates, feature_gates.TOPOLOGY_AWARE_SCHEDULING: True}
    return replace(
        script,
        operations=(_topology(), *sorted(operations, key=lambda each: each.at_ms)),
        configuration=replace(script.configuration, feature_gates=dict(sorted(on.items()))),
    )


def _topology() -> Operation:
    """One Topology is there from the beginning; all flavors that have one name it."""
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    body = {
        "apiVersion": f"{KUEUE}/v1beta2",
        "kind": "Topology",
        "metadata": {"name": TOPOLOGIES[0]},
        "spec": {"levels": levels},
    }
    return Operation(at_ms=0, actor="admin", method="POST", path=f"/apis/{KUEUE}/v1beta2/topologies", body=body)


def _with_topology(operation: Operation, rng: random.Random) -> Operation:
    body = operation.body
    if operation.method != "POST" or not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        return operation
    body = copy.deepcopy(body)
    match body.get("kind"):
        case "Node":
            labels = _dict_in(body["metadata"], "labels")
            labels["rack"] = rng.choice(("r0", "r1"))
            labels["kubernetes.io/hostname"] = str(body["metadata"].get("name", ""))[:63]
        case "ResourceFlavor" if rng.random() < 0.7 and isinstance(body.get("spec"), dict):
            body["spec"]["topologyName"] = TOPOLOGIES[0]
            if not body["spec"].get("nodeLabels"):
                body["spec"]["nodeLabels"] = {"kubernetes.io/os": "linux"}
        case "Job" if rng.random() < 0.6:
            _request(body, rng)
        case "Pod" if rng.random() < 0.5:
            _dict_in(body, "spec")["nodeName"] = rng.choice(NODES)
        case _:
            return operation
    return replace(operation, body=body)


def _request(job: Manifest, rng: random.Random) -> None:
    template = _dict_in(_dict_in(job, "spec"), "template")
    annotations = _dict_in(_dict_in(template, "metadata"), "annotations")
    annotations |= {f"{KUEUE}/{name}": value for name, value in rng.choice(REQUESTS).items()}


def _dict_in(parent: Manifest, field: str) -> Manifest:
    """The object in a field; one that is drawn as anything else is replaced."""
    found = parent.get(field)
    if not isinstance(found, dict):
        found = parent[field] = {}
    return found


def _failure(rng: random.Random, at_ms: int) -> list[Operation]:
    """A node fails in one of the ways in which nodes do, and may come back."""
    path = f"/api/v1/nodes/{rng.choice(NODES)}"
    back_ms = at_ms + rng.choice((100, 1_000, 5_000))
    taint = {"key": "broken", "effect": rng.choice(("NoSchedule", "NoExecute"))}

    def patch(when_ms: int, body: Any, subresource: str = "") -> Operation:
        return Operation(at_ms=when_ms, actor="nodes", method="PATCH", path=path + subresource, body=body)

    match rng.randrange(4):
        case 0:
            return [Operation(at_ms=at_ms, actor="nodes", method="DELETE", path=path)]
        case 1:
            return [patch(at_ms, _ready("False"), "/status"), patch(back_ms, _ready("True"), "/status")]
        case 2:
            return [patch(at_ms, {"spec": {"taints": [taint]}}), patch(back_ms, {"spec": {"taints": None}})]
        case _:
            on, off = ({"spec": {"unschedulable": value}} for value in (True, None))
            return [patch(at_ms, on), patch(back_ms, off)]


def _foreign_pod(rng: random.Random, at_ms: int) -> list[Operation]:
    """A pod of nobody here, on a node; it runs for a while, or is deleted."""
    path, name = f"/api/v1/namespaces/{rng.choice(NAMESPACES[:2])}/pods", f"foreign-{rng.randrange(6)}"
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": rng.choice(("100m", "1", "0"))}}}
    spec = {"nodeName": rng.choice(NODES), "containers": [container], "terminationGracePeriodSeconds": 0}
    annotations = {"headgate.dev/run-ms": str(rng.choice((50, 1_000, 60_000)))}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec}
    made = Operation(at_ms=at_ms, actor="others", method="POST", path=path, body=body)
    end_ms = at_ms + rng.choice((0, 300, 3_000))
    return [made, Operation(at_ms=end_ms, actor="others", method="DELETE", path=f"{path}/{name}")][: rng.choice((1, 2))]


def _ready(status: str) -> Manifest:
    condition = {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-15T10:00:00Z", "reason": "Drawn"}
    return {"status": {"conditions": [condition]}}
