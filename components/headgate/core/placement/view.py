"""
The view of a state that placement decides on: the objects of the log, with what is decided and not yet shown by them.

A pod with a node in its placement record is on that node. The node that it is nominated to is that of the record, if
that has one, else that of its object. A pod that has to go for another one is terminating. What is to be written for
placed pods is written already. So the cluster looks as it will once the binder has carried everything out, and nothing
is given away twice.

`PlacementView(state)` derives all of this from the state alone; `on_event` keeps it current, and must make it equal
(`tests/core/placement/test_view.py`). `suppose` adds a decision that is not in the log yet; it holds until the log has
the decision about its pod, or `forget`. Objects that cannot be read are left out, with the reason in `unreadable`.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from headgate.core.kubernetes.merge_patch import merge_patched
from headgate.core.kubernetes.quantities import QuantityError
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.objects.kinds import KINDS, NODES, OTHERS, PODS, PlacementKind
from headgate.core.placement.objects.metadata import read
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.pods import DISRUPTION_TARGET, PREEMPTED, PodConditionObject, PodObject
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.requests import problem_of
from headgate.core.state.manifests import NOT_READABLE, decoded, object_of, raw_object
from headgate.core.state.tables import PlacementRecord, State
from headgate.events import decisions, effects, facts
from headgate.events.ids import PodKey

PlacementFact = facts.ObjectObserved | facts.ObjectDeleted
OfPlacement = decisions.PlacementDecision | effects.PlacementEffect
"""What is decided and done about pods."""

_DOOMED: Final = PodConditionObject(type=DISRUPTION_TARGET, status="True", reason=PREEMPTED)
_SOON: Final = "1970-01-01T00:00:00Z"
"""Stands for the deletion timestamp of a pod whose deletion is decided: only whether there is one is read."""


class PlacementChange(NamedTuple):
    """An object of the cluster is new (`old` None), has changed, or is gone (`new` None), as queues are told of it."""

    kind: PlacementKind
    key: str
    old: Any
    new: Any


Overlay = tuple[str, str, bool]
"""The node, the nominated node, and whether it has to go: of a pod, by its record."""


class PlacementView:
    """The view. `cluster` is what plugins read; `state` is read only."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.cluster = PlacementCluster()
        self.unreadable: dict[tuple[str, str], str] = {}
        """The objects that cannot be read: by resource and name, why."""
        self._bases: dict[str, PodInfo] = {}
        """The pods as their objects are."""
        self._shown: dict[str, tuple[PodInfo, Overlay]] = {}
        """Of the pods in the cluster: as their object is, and what was laid over it."""
        self._supposed: dict[PodKey, PlacementRecord] = {}
        self._writers: dict[tuple[str, str], dict[PodKey, None]] = {}
        """By kind and name of an object: the pods for which it is written."""
        self._written: dict[PodKey, tuple[tuple[str, str], ...]] = {}
        for resource in KINDS:
            for name in state.objects.get(resource, {}):
                self._observe(KINDS[resource], name)
        for key in state.placements:
            self._follow(key)

    def record_of(self, key: PodKey) -> PlacementRecord | None:
        """What is decided about a pod, in the log or supposed."""
        return self._supposed.get(key) or self.state.placements.get(key)

    def record_of_pod(self, key: str, uid: str) -> PlacementRecord | None:
        """The same of one pod: not of another that had its name."""
        record = self.record_of(PodKey(key))
        return record if record is not None and record.uid == uid else None

    def base_of(self, key: str) -> PodInfo | None:
        """A pod as its object is; None if it does not exist or cannot be read."""
        return self._bases.get(key)

    # --- what changes it -------------------------------------------------------------------------------------------

    def on_event(self, event: PlacementFact | OfPlacement) -> list[PlacementChange]:
        """An event has been folded into the state."""
        if isinstance(event, facts.ObjectObserved | facts.ObjectDeleted):
            kind = KINDS.get(event.resource)
            return self._observe(kind, event.name) if kind is not None else []
        pods = [event.pod]
        if isinstance(event, decisions.PodNominated):
            pods.extend(victim.pod for victim in event.victims)
        changes = []
        for key in pods:
            if isinstance(event, decisions.Decision):
                self._supposed.pop(key, None)
            changes += self._follow(key)
        return changes

    def suppose(self, key: PodKey, record: PlacementRecord) -> list[PlacementChange]:
        """A decision about a pod that is not in the log yet."""
        self._supposed[key] = record
        return self._follow(key)

    def supposed_of(self, key: PodKey) -> PlacementRecord | None:
        """What is supposed of a pod."""
        return self._supposed.get(key)

    def take_back(self, key: PodKey, before: PlacementRecord | None) -> list[PlacementChange]:
        """Suppose of a pod what was supposed before (`supposed_of`)."""
        if before is not None:
            return self.suppose(key, before)
        self._supposed.pop(key, None)
        return self._follow(key)

    def forget(self) -> list[PlacementChange]:
        """Drop what is supposed: the log does not have it."""
        supposed, self._supposed = list(self._supposed), {}
        return [change for key in supposed for change in self._follow(key)]

    # --- objects ---------------------------------------------------------------------------------------------------

    def _observe(self, kind: PlacementKind, name: str) -> list[PlacementChange]:
        if kind is PODS:
            self._read_pod(name)
            return self._follow(PodKey(name))
        if kind is NODES:
            return self._show_node(name)
        return self._show(kind, name)

    def manifest_of(self, kind: PlacementKind, name: str) -> Mapping[str, Any] | None:
        """An object as observed; None if it does not exist. Raises msgspec.MsgspecError."""
        return object_of(self.state, kind.plural, name)

    def _show_node(self, name: str) -> list[PlacementChange]:
        info = self.cluster.node(name)
        old = info.node if info is not None else None
        new = self._read(NODES, name)
        if old == new:
            return []
        if new is None:
            self.cluster.remove_node(name)
            return [PlacementChange(NODES, name, old, None)]
        assert isinstance(new, NodeObject)
        try:
            self.cluster.set_node(new)
        except QuantityError as error:
            self.unreadable[NODES.plural, name] = str(error)
            self.cluster.remove_node(name)
            return [PlacementChange(NODES, name, old, None)] if old is not None else []
        return [PlacementChange(NODES, name, old, new)]

    def _show(self, kind: PlacementKind, name: str) -> list[PlacementChange]:
        old = self.cluster.objects(kind.type).get(name)
        new = self._read(kind, name)
        if new is not None and (patches := self._patches_of(kind, name)):
            found, new = new, self._read(kind, name, patches)
            if new is not None and kind.supposed is not None:
                new = kind.supposed(found, new)
        if old == new:
            return []
        self.cluster.put(kind.type, name, new)
        return [PlacementChange(kind, name, old, new)]

    def _read(self, kind: PlacementKind, name: str, patches: Iterable[Mapping[str, Any]] = ()) -> Any:
        self.unreadable.pop((kind.plural, name), None)
        raw = raw_object(self.state, kind.plural, name)
        if raw is None:
            return None
        try:
            return read(reduce(merge_patched, patches, decoded(raw)), kind.type) if patches else kind.read(raw)
        except (*NOT_READABLE, QuantityError) as error:
            self.unreadable[kind.plural, name] = str(error)
            return None

    def _patches_of(self, kind: PlacementKind, name: str) -> list[Mapping[str, Any]]:
        """What is written into an object for placed pods, in the order in which they were placed."""
        writers = self._writers.get((kind.kind, name))
        if not writers:
            return []
        records = [(key, record) for key in writers if (record := self.record_of(key)) is not None]
        records.sort(key=lambda each: (each[0] in self._supposed, each[1].placed_at_ms, each[0]))
        return [
            write.patch
            for _, record in records
            for write in record.writes
            if (write.kind, write.name) == (kind.kind, name)
        ]

    # --- pods ------------------------------------------------------------------------------------------------------

    def _read_pod(self, name: str) -> None:
        self.unreadable.pop((PODS.plural, name), None)
        self._bases.pop(name, None)
        raw = raw_object(self.state, PODS.plural, name)
        if raw is None:
            return
        try:
            pod = PODS.read(raw)
        except NOT_READABLE as error:
            self.unreadable[PODS.plural, name] = str(error)
            return
        try:
            base = self.cluster.shapes.pod_of(pod)
        except QuantityError as error:
            self.unreadable[PODS.plural, name] = problem_of(pod.spec) or str(error)
        else:
            if base.shape.problem and not base.node_name:
                self.unreadable[PODS.plural, name] = base.shape.problem
            else:
                self._bases[name] = base

    def _follow(self, key: PodKey) -> list[PlacementChange]:
        """Show a pod, and what is written for it, as its object and its record now are."""
        base, record = self._bases.get(key), self.record_of(key)
        changes = self._show_pod(key, base, record)
        writes = record.writes if record is not None else ()
        targets = tuple(dict.fromkeys((write.kind, write.name) for write in writes))
        before = self._written.pop(key, ())
        if targets:
            self._written[key] = targets
        for target in before:
            if target not in targets:
                writers = self._writers[target]
                del writers[key]
                if not writers:
                    del self._writers[target]
        for target in targets:
            self._writers.setdefault(target, {})[key] = None
        for kind, name in dict.fromkeys((*before, *targets)):
            if kind in OTHERS:
                changes += self._show(OTHERS[kind], name)
        return changes

    def _show_pod(self, key: str, base: PodInfo | None, record: PlacementRecord | None) -> list[PlacementChange]:
        cluster = self.cluster
        old = cluster.pods.get(key)
        if base is None or base.is_over:
            self._shown.pop(key, None)
            cluster.remove_pod(key)
            return [PlacementChange(PODS, key, old, None)] if old is not None else []
        overlay = _overlay(base, record)
        if self._shown.get(key) == (base, overlay):
            return []
        new = _laid_over(base, overlay)
        self._shown[key] = base, overlay
        cluster.set_pod(new)
        return [PlacementChange(PODS, key, old, new)]


def _overlay(base: PodInfo, record: PlacementRecord | None) -> Overlay:
    if record is None or record.uid != base.uid:
        return base.node_name, base.nominated_node_name, False
    node = base.node_name or record.node
    nominated = base.nominated_node_name if record.nominated is None else record.nominated
    return node, "" if node else nominated, bool(record.preempted_by)


def _laid_over(base: PodInfo, overlay: Overlay) -> PodInfo:
    """A pod with what is decided about it."""
    node, nominated, is_doomed = overlay
    manifest = base.object
    if node != base.node_name:
        manifest = replace(manifest, spec=replace(manifest.spec, node_name=node))
    if nominated != base.nominated_node_name:
        manifest = replace(manifest, status=replace(manifest.status, nominated_node_name=nominated))
    if is_doomed:
        manifest = _ending(manifest)
    if manifest is base.object:
        return base
    return replace(
        base,
        node_name=node,
        nominated_node_name=nominated,
        is_terminating=base.is_terminating or is_doomed,
        object=manifest,
    )


def _ending(pod: PodObject) -> PodObject:
    conditions = tuple(each for each in pod.status.conditions if each.type != _DOOMED.type)
    return replace(
        pod,
        metadata=replace(pod.metadata, deletion_timestamp=pod.metadata.deletion_timestamp or _SOON),
        status=replace(pod.status, conditions=(*conditions, _DOOMED)),
    )
