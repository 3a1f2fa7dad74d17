"""
One object for equal specs: the state keeps each distinct WorkloadSpec and pod template once.

Pods share with the last one seen of their workload what they have in common.

Every decoded fact has its own objects, even where a thousand Jobs are alike. The fold passes what it keeps of them
through the `Shared` of its state, which returns the first equal object. The result is the same for every reader: specs
are frozen, and equal means equal in every encoded byte. Objects that no record refers to any more are dropped.

Names of which there are few (ClusterQueues, kinds, scheduling hashes) go through `sys.intern` for the same reason.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from sys import getrefcount, intern
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from headgate.core.state.records import AtRest
from headgate.events.objects import (
    Container,
    Job,
    Labels,
    OwnerReference,
    Pod,
    PodSetRequest,
    PodTemplate,
    WorkloadSpec,
)
from headgate.events.queueing import Needs, QuotaFreed, Wake

name = intern
"""The one object for a name of which there are few."""

SWEEP_MIN: Final = 1024
"""The number of specs from which the table is swept for unused ones."""

UNUSED: Final = 2
"""The reference count of an object that only the table has: the table's own, and that of the counting code."""

SIBLINGS_MAX: Final = 1024
"""The number of workloads whose last pod is remembered, and of combinations of names. Beyond it, all are forgotten."""

Part = TypeVar("Part")

_encoder: Final = msgspec.msgpack.Encoder()


class Shared:
    """The specs that a state keeps, and their common parts, by the digest of their bytes."""

    __slots__ = ("_names", "_parts", "_pods", "_specs", "_sweep_at")

    def __init__(self) -> None:
        self._specs: dict[bytes, WorkloadSpec] = {}
        self._parts: dict[bytes, Any] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._pods: dict[str, Pod] = {}
        """The last pod seen of a workload."""
        self._sweep_at = SWEEP_MIN

    def __len__(self) -> int:
        return len(self._specs)

    def spec(self, spec: WorkloadSpec) -> WorkloadSpec:
        """A Workload's spec as it is kept."""
        key = digest(spec)
        kept = self._specs.get(key)
        if kept is None:
            if len(self._specs) >= self._sweep_at:
                self._sweep()
            pod_sets = tuple(replace(each, template=self._template(each.template)) for each in spec.pod_sets)
            kept = self._specs[key] = replace(spec, queue_name=name(spec.queue_name), pod_sets=pod_sets)
        return kept

    def _template(self, template: PodTemplate) -> PodTemplate:
        """Templates that differ in their requests mostly have everything else in common."""
        spec = template.spec
        return self._part(
            replace(
                template,
                metadata=self._part(template.metadata),
                spec=replace(
                    spec,
                    containers=tuple(self._part(_container(each)) for each in spec.containers),
                    init_containers=tuple(self._part(_container(each)) for each in spec.init_containers),
                    node_selector=self._part(spec.node_selector),
                    tolerations=self._part(spec.tolerations),
                    affinity=self._part(spec.affinity),
                ),
            )
        )

    def _part(self, part: Part) -> Part:
        """Any part of a spec; those of another type have other bytes, or are empty."""
        kept: Part = self._parts.setdefault(digest(part), part)
        return kept if type(kept) is type(part) else part

    def names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Names of which there are few combinations, such as those of flavors and resources."""
        kept = self._names.get(names)
        if kept is None:
            if len(self._names) >= SIBLINGS_MAX:
                self._names.clear()
            kept = tuple(map(name, names))
            self._names[kept] = kept
        return kept

    def needs(self, needs: Needs) -> Needs:
        """What must be available at once: amounts by flavor and resource, of which there are few."""
        return tuple({name(what): name(value) for what, value in way.items()} for way in needs)

    def wake(self, wake: tuple[Wake, ...], decided: Needs | None) -> tuple[Wake, ...]:
        """What a workload waits for: mostly the needs that the verdict on it has, if there is one."""
        if decided is None:
            return wake
        return tuple(
            replace(
                each,
                tree=name(each.tree),
                flavor_resources=self.names(each.flavor_resources),
                needs=decided if each.needs == decided else each.needs,
            )
            if isinstance(each, QuotaFreed)
            else each
            for each in wake
        )

    def pod(self, pod: Pod) -> Pod:
        """A pod of a workload as it is kept. Those of one gang differ in name, uid, indexes and node."""
        if not pod.workload:
            return pod
        if len(self._pods) >= SIBLINGS_MAX:
            self._pods.clear()
        sibling, spec = self._pods.get(pod.workload, pod), pod.spec
        common = sibling.spec
        kept = self._pods[pod.workload] = replace(
            pod,
            spec=replace(
                spec,
                containers=_same(spec.containers, common.containers),
                init_containers=_same(spec.init_containers, common.init_containers),
                overhead=_same(spec.overhead, common.overhead),
                node_selector=_same(spec.node_selector, common.node_selector),
                affinity=_same(spec.affinity, common.affinity),
                tolerations=_same(spec.tolerations, common.tolerations),
                scheduling_gates=_same(spec.scheduling_gates, common.scheduling_gates),
                scheduler_name=name(spec.scheduler_name),
                node_name=name(spec.node_name),
            ),
            workload=name(pod.workload),
            pod_set=name(pod.pod_set),
            slice_name=name(pod.slice_name),
            phase=name(pod.phase),
            owner=_same(pod.owner, sibling.owner),
            indexes={name(label): number for label, number in pod.indexes.items()},
        )
        return kept

    def _sweep(self) -> None:
        """
        Drop what no record keeps, each time that the number of specs has doubled.

        A table with reference counts would need a call for each record that is dropped; and objects with weak
        references are visited by the cyclic collector, which costs more than all of this.
        """
        for table in (self._specs, self._parts):
            for key in [key for key in table if getrefcount(table[key]) <= UNUSED]:
                del table[key]
        self._sweep_at = max(SWEEP_MIN, 2 * len(self._specs))


def _container(container: Container) -> Container:
    """A container with amounts that others have too."""
    resources = container.resources
    return replace(
        container,
        name=name(container.name),
        resources=replace(resources, requests=amounts(resources.requests), limits=amounts(resources.limits)),
    )


def amounts(quantities: dict[str, str | int | float]) -> dict[str, str | int | float]:
    """Amounts by resource as they are kept: there are few different ones."""
    return {
        name(resource): name(quantity) if isinstance(quantity, str) else quantity
        for resource, quantity in quantities.items()
    }


def requests_of(requests: tuple[PodSetRequest, ...]) -> tuple[PodSetRequest, ...]:
    """What pod sets request, as it is kept."""
    return tuple(replace(each, name=name(each.name), resources=amounts(each.resources)) for each in requests)


def _same(part: Part, kept: Part) -> Part:
    """A part of one pod, or that of its sibling, if it is equal in every byte: 1 equals 1.0, but not there."""
    if part is kept:
        return kept
    return kept if part == kept and _encoder.encode(part) == _encoder.encode(kept) else part


def digest(part: object) -> bytes:
    """The same for parts that are equal in every encoded byte."""
    return sha256(_encoder.encode(part)).digest()[:16]


def job_of(job: Job, spec: WorkloadSpec) -> Job:
    """A Job as it is kept: its pod template is that of its Workload."""
    for pod_set in spec.pod_sets:
        if pod_set.template == job.template:
            return replace(job, template=pod_set.template)
    return job


def owner_of(owner: OwnerReference | None, uid: str = "") -> OwnerReference | None:
    """An owner reference as it is kept; `uid` is that of the Job of its name."""
    if owner is None:
        return None
    return OwnerReference(
        api_version=name(owner.api_version),
        kind=name(owner.kind),
        name=owner.name,
        uid=uid if uid == owner.uid else owner.uid,
    )


class FewLabels(Mapping[str, str]):
    """
    One or two labels or annotations, in a third of the memory of a dict.

    Most Workloads have just those that Kueue sets on the Workload of a Job.
    """

    __slots__ = ("_first", "_first_value", "_second", "_second_value")

    def __init__(self, first: str, first_value: str, second: str, second_value: str) -> None:
        self._first, self._first_value = first, first_value
        self._second, self._second_value = second, second_value

    def parts(self) -> tuple[str, str, str, str]:
        """As it was made."""
        return self._first, self._first_value, self._second, self._second_value

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a label."""
        if key == self._first:
            return self._first_value
        return self._second_value if key == self._second else default

    def __getitem__(self, key: str) -> str:
        value: str | None = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        yield self._first
        if self._second != self._first:
            yield self._second

    def __len__(self) -> int:
        return 1 if self._second == self._first else 2


NO_LABELS: Final[Labels] = {}


def labels_of(labels: Labels, owner: OwnerReference | None) -> Labels:
    """Labels or annotations as they are kept. Values that repeat the owner reference share its strings."""
    match len(labels):
        case 0:
            return NO_LABELS
        case 1:
            ((key, value),) = labels.items()
            key, value = name(key), _value(value, owner)
            return FewLabels(key, value, key, value)
        case 2:
            (key, value), (second, second_value) = labels.items()
            return FewLabels(name(key), _value(value, owner), name(second), _value(second_value, owner))
        case _:
            return labels


def _value(value: str, owner: OwnerReference | None) -> str:
    if owner is None:
        return name(value)
    if value == owner.uid:
        return owner.uid
    return owner.name if value == owner.name else name(value)


def plain(value: object) -> object:
    """The built-in form, for an encoder, of a value that is not one of its own types."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    if isinstance(value, AtRest):
        return value.record()
    raise NotImplementedError(f"{type(value).__name__} is no part of a state")
