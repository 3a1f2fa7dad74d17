"""
Values drawn from a schema: such as it allows, such as it just allows, and such as it does not foresee.

Called by `objects` for whole objects and for the parts that it changes in fitting ones. The schema is the one tree that
the CustomResourceDefinitions are rendered from and that the simulated API server checks by
(`adapters.kubernetes.crds.schema.SchemaNode`), so a field that is added there is drawn here.

Names come from small pools (`NAMES`), so that what is drawn refers to what there is more often than not.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate.adapters.kubernetes.crds.schema import SchemaNode

NAMESPACES: Final = ("team-a", "team-b", "team-c")
FLAVORS: Final = ("on-demand", "spot")
CLUSTER_QUEUES: Final = ("cq-a", "cq-b", "cq-c")
LOCAL_QUEUES: Final = ("main", "side")
COHORTS: Final = ("all", "left")
CHECKS: Final = ("gate", "gate-2")
CLASSES: Final = ("low", "high")
TOPOLOGIES: Final = ("racks",)
RUNTIMES: Final = ("sandboxed",)
POD_SETS: Final = ("main", "driver", "workers")
RESOURCES: Final = ("cpu", "memory", "example.com/gpu", "pods")
ABSENT: Final = "nothing-of-this-name"

NAMES: Final[Mapping[str, Sequence[str]]] = {
    "clusterQueue": (*CLUSTER_QUEUES, ABSENT),
    "queueName": (*LOCAL_QUEUES, ABSENT, ""),
    "cohortName": (*COHORTS, ""),
    "parentName": (*COHORTS, ""),
    "topologyName": (*TOPOLOGIES, ABSENT),
    "priorityClassName": (*CLASSES, ABSENT, ""),
    "runtimeClassName": (*RUNTIMES, ABSENT),
    "schedulerName": ("headgate", "default-scheduler"),
    "restartPolicy": ("Never", "OnFailure", "Always", "Sometimes"),
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Equal", "Near"),
    "effect": ("NoSchedule", "PreferNoSchedule", "NoExecute", "Maybe"),
    "completionMode": ("NonIndexed", "Indexed"),
    "key": ("flavor", "kubernetes.io/hostname", "a/b", ""),
    "coveredResources": RESOURCES,
    "flavors": FLAVORS,
    "controllerName": ("tests/gate", "kueue.x-k8s.io/provisioning-request"),
    "type": ("Active", "Admitted", "QuotaReserved", "Finished", "Evicted", "PodsReady", "Requeued", "Container", "Pod"),
    "lastAcceptableFlavorName": FLAVORS,
    "name": (*POD_SETS, *FLAVORS, *RESOURCES, *CHECKS),
    "managedBy": ("kubernetes.io/job-controller", "kueue.x-k8s.io/multikueue", "elsewhere/other"),
}
"""Fitting values of strings, by the name of their field (or of the list)."""

QUANTITIES: Final = ("1", "2", "3", "500m", "1Gi", "64Mi", "10", "1e1", "1500m")
EDGE_QUANTITIES: Final = ("0", "0.1m", "1n", "0Ki", "9223372036854775807", "-1", "-500m", "1E", "1e3", ".5", "+1")
HOSTILE_QUANTITIES: Final = (
    "1e400",
    "-1e400",
    "9e999999999",
    "1e9223372036854775807",
    "1e1.5",
    "",
    "NaN",
    "1 Gi",
    7,
    0.5,
)
STRINGS: Final = ("a", "main", "x" * 63)
HOSTILE_STRINGS: Final = (
    "",
    " ",
    "Größe",
    "\u202e反\u0000",
    "😀" * 20,
    "../../etc",
    "a/b/c",
    "x" * 300,
    "x" * 40_000,
    "%2e%2e",
    "null",
    "-",
    "A_b.C",
    '{"$uid": 1}',
)
TIMES: Final = ("2023-11-14T22:13:20Z", "2023-11-14T22:14:00Z", "2023-11-14T23:00:00Z")
EDGE_TIMES: Final = ("1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2023-11-14T22:13:20.999999999+14:00")
HOSTILE_TIMES: Final = ("", "yesterday", "0000-00-00T00:00:00Z", "2023-13-01T00:00:00Z")
EDGE_INTEGERS: Final = (0, 1, 2, 3, 100, 2**31 - 1)
HOSTILE_INTEGERS: Final = (-1, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**64, "1", 1.5, None)
WRONG: Final[tuple[Any, ...]] = (None, "", [], {}, 0, -1, True, "text", [None], {"a": None}, [[]])
DEPTH_MAX: Final = 9


class Values:
    """
    Draws values. `edge` and `hostile` are how likely one scalar, list or field is of either sort.

    A hostile value may violate the schema; the API server then refuses the object, as it should.
    """

    def __init__(self, rng: random.Random, *, edge: float = 0.1, hostile: float = 0.01) -> None:
        self.rng = rng
        self._edge = edge
        self._hostile = hostile

    def draw(self, node: SchemaNode, name: str = "", depth: int = 0) -> Any:
        """A value of a field of this schema and name."""
        rng = self.rng
        if rng.random() < self._hostile / 4:
            return rng.choice(WRONG)
        match node.type:
            case "object":
                return self._object(node, depth)
            case "list":
                return self._list(node, name, depth)
            case "map":
                return self._map(node, name, depth)
            case "any":
                return rng.choice(({}, [], "any", {"a": {"b": [1]}}, 1))
            case "boolean":
                return rng.random() < 0.5
            case "integer" | "number":
                return self._integer(node)
            case "quantity":
                return self._of(QUANTITIES, EDGE_QUANTITIES, HOSTILE_QUANTITIES)
            case "intorstring":
                return rng.choice((0, 1, "50%", "100%", "-1%", "x"))
            case _:
                return self._string(node, name)

    def _of(self, usual: Sequence[Any], edge: Sequence[Any], hostile: Sequence[Any]) -> Any:
        drawn = self.rng.random()
        if drawn < self._hostile:
            return self.rng.choice(hostile)
        return self.rng.choice(edge if drawn < self._hostile + self._edge else usual)

    def _object(self, node: SchemaNode, depth: int) -> dict[str, Any]:
        rng, value = self.rng, {}
        # The deeper, the fewer optional fields: or an object of a Pod's schema never ends.
        presence = 0.0 if depth >= DEPTH_MAX else rng.choice((0.1, 0.3, 0.6, 1.0)) / (1 + depth / 2)
        for field, child in node.fields.items():
            is_required = field in node.required
            if (is_required and rng.random() >= self._hostile) or rng.random() < presence:
                value[field] = self.draw(child, field, depth + 1)
        if rng.random() < self._hostile:
            value[rng.choice(HOSTILE_STRINGS)] = rng.choice(WRONG)
        return value

    def _list(self, node: SchemaNode, name: str, depth: int) -> list[Any]:
        rng, item = self.rng, node.item
        assert item is not None
        least, most = node.min_items or 0, node.max_items or 4
        count = self._of((max(least, 1), max(least, min(most, 2))), (least, min(most, 9)), (0, most + 1, least - 1))
        values = [self.draw(item, name, depth + 1) for _ in range(max(0, min(count, 70)))]
        if (node.list_keys or node.set) and rng.random() >= self._hostile:
            return _distinct(values, node.list_keys)
        return values

    def _map(self, node: SchemaNode, name: str, depth: int) -> dict[str, Any]:
        assert node.item is not None
        keys: Sequence[str] = RESOURCES if node.item.type == "quantity" else ("flavor", "a", "example.com/b")
        if name == "flavors":
            keys = RESOURCES
        count = self._of((1, 2), (0, len(keys)), (0,))
        drawn = [self._of(keys, keys, HOSTILE_STRINGS) for _ in range(count)]
        value_name = "flavors" if name == "flavors" else ""
        return {key: self.draw(node.item, value_name, depth + 1) for key in drawn}

    def _integer(self, node: SchemaNode) -> Any:
        least = node.min if node.min is not None else 0
        most = node.max if node.max is not None else 2**31 - 1
        return self._of(
            (max(least, 1), max(least, 2), max(least, 3)), (least, most, *EDGE_INTEGERS), (least - 1, *HOSTILE_INTEGERS)
        )

    def _string(self, node: SchemaNode, name: str) -> Any:
        if node.format == "date-time" or name.endswith(("Time", "Timestamp", "requeueAt", "lastUpdate")):
            return self._of(TIMES, EDGE_TIMES, HOSTILE_TIMES)
        if node.enum:
            return self._of(node.enum, node.enum, HOSTILE_STRINGS)
        usual = NAMES.get(name, STRINGS)
        longest = ("x" * min(node.max_len, 5000),) if node.max_len else STRINGS
        return self._of(usual, (*longest, ABSENT), HOSTILE_STRINGS)


def _distinct(values: list[Any], keys: Sequence[str]) -> list[Any]:
    """The first of those that agree in their keys: a list map or set with two of them is refused."""
    found: dict[str, Any] = {}
    for value in values:
        key = repr([value.get(each) for each in keys] if keys and isinstance(value, dict) else value)
        found.setdefault(key, value)
    return list(found.values())
