"""A sequence of attempts on a cluster, decided again one by one by the engine: what it would have done each time."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from headgate.core.placement.attempt import attempt
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.configuration.profiles import DEFAULT_NAME, read_profiles
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.objects.kinds import KINDS
from headgate.core.placement.objects.metadata import read
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.placement.scan import NodeOrder

Json = dict[str, Any]

ALL: Final = 100


class Decided(msgspec.Struct, frozen=True):
    """What the engine says of an attempt: the nodes that are equally good, and the totals if several are feasible."""

    best: frozenset[str]
    totals: Mapping[str, int]


class Sequence:
    """A cluster as it was before the first attempt: its objects, none of the pods on a node."""

    def __init__(self, objects: Mapping[str, Iterable[Json]]) -> None:
        self._cluster = PlacementCluster()
        for plural, manifests in objects.items():
            for manifest in manifests:
                self._put(plural, manifest)
        profile = read_profiles(None, REGISTRY).by_name[DEFAULT_NAME]
        self._framework = Framework(profile, self._cluster)

    def _put(self, plural: str, manifest: Json) -> None:
        if plural == "nodes":
            self._cluster.set_node(read(manifest, KINDS[plural].type))
        elif plural == "pods":
            spec = {key: value for key, value in manifest["spec"].items() if key != "nodeName"}
            self._cluster.set_pod(self._cluster.shapes.read({"metadata": manifest["metadata"], "spec": spec}))
        else:
            made: Any = read(manifest, KINDS[plural].type)
            self._cluster.put(KINDS[plural].type, made.metadata.key, made)

    def decide(self, pod: str) -> Decided:
        """What an attempt at a pod would be decided like now."""
        made = attempt(self._framework, self._cluster.pods[pod], self._cluster.index(NodeOrder).scan(0, ALL))
        name_of = self._cluster.name_of
        totals: dict[str, int] = {}
        if made.scored is not None:
            rows, scores = made.scored.rows.tolist(), made.scored.total.tolist()
            totals = {name_of(row): total for row, total in zip(rows, scores, strict=True)}
        return Decided(frozenset(name_of(row) for row in made.best.tolist()), totals)

    def place(self, pod: str, node: str) -> None:
        """The pod is on a node from now on."""
        info = self._cluster.pods[pod]
        spec = msgspec.structs.replace(info.object.spec, node_name=node)
        self._cluster.set_pod(self._cluster.shapes.pod_of(msgspec.structs.replace(info.object, spec=spec)))
