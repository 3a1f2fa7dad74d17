"""
Families: what a parent workload and its variants require of each other (KEP-8691, gate ConcurrentAdmission).

`headgate.core.workload.variants` defines them. This module computes what Kueue's variant controller computes for one
family:

- which variants are to be created or deleted, and which to be switched on or off (carried out by the informer bridge);
- that the parent is admitted with the first admitted variant, and evicted when none is any more; that an evicted
  variant keeps its quota until its parent's job has stopped; and whose preemption gate opens next (appended by the
  queue manager).

Pure and level-triggered: everything follows from the state, and there are no events when nothing has to change.
"""

from collections.abc import Sequence

import msgspec

from headgate.core.kubernetes import conditions
from headgate.core.state.tables import HOLDS_QUOTA, PENDING, Stage, State, Workload
from headgate.core.workload import variants
from headgate.core.workload.preemption_gates import OPEN
from headgate.events.ids import LocalQueueKey, UnixMs, split_key
from headgate.events.objects import ClusterQueueSpec
from headgate.events.queueing import PreemptionGateOpened, QueueEvent, WorkloadEvicted, WorkloadFollowed

VARIANT_EVICTED = "VariantEvicted"
NO_VARIANT = "ConcurrentAdmission"
"""The reason of a parent's eviction: with its variant, or because no variant of it is admitted any more."""

GATE_INTERVAL_MS = 5 * 60 * 1000
"""How long a family waits for the preemptions of one variant before the gate of the next is opened."""


class Family(msgspec.Struct, frozen=True):
    """A parent, its variants from best to worst flavor, and those whose flavor the ClusterQueue no longer has."""

    parent: Workload
    spec: ClusterQueueSpec
    members: tuple[Workload, ...]
    stale: tuple[Workload, ...]

    def missing(self) -> tuple[str, ...]:
        """The flavors for which there is no variant."""
        has = {variants.flavor_of(each) for each in self.members}
        return tuple(flavor for flavor in variants.flavor_order(self.spec) if flavor not in has)

    def place(self, member: Workload) -> int:
        """The rank of a variant's flavor: 0 is best."""
        return variants.flavor_order(self.spec).index(variants.flavor_of(member))

    def admitted(self) -> Workload | None:
        """The best variant that is admitted, evicted or not; None when there is none."""
        return next((each for each in self.members if _is_admitted(each)), None)


def spec_for(state: State, workload: Workload) -> ClusterQueueSpec | None:
    """The spec of a workload's ClusterQueue, if that tries every flavor at once."""
    queue = state.local_queues.get(LocalQueueKey(f"{split_key(workload.key)[0]}/{workload.spec.queue_name}"))
    record = state.cluster_queues.get(queue.spec.cluster_queue) if queue is not None else None
    if record is None or not variants.is_on(state.configuration, record.spec):
        return None
    return record.spec


def never_queues(state: State, workload: Workload) -> bool:
    """Whether a workload's variants queue in its place."""
    return not variants.is_variant(workload) and spec_for(state, workload) is not None


def family_of(state: State, parent: Workload) -> Family | None:
    """The family of a workload that is marked as a parent; None when it has none."""
    spec = spec_for(state, parent)
    if spec is None or not variants.is_parent(parent):
        return None
    order = variants.flavor_order(spec)
    children = [state.workloads[key] for key in state.index.owned(parent.uid)]
    members = [each for each in children if variants.flavor_of(each) in order]
    members.sort(key=lambda each: (order.index(variants.flavor_of(each)), each.key))
    stale = sorted((each for each in children if variants.flavor_of(each) not in order), key=lambda each: each.key)
    return Family(parent, spec, tuple(members), tuple(stale))


def relatives(state: State, workload: Workload) -> list[Workload]:
    """The parent of a variant, or the variants of a parent."""
    key = variants.parent_key(workload)
    if key is not None:
        parent = state.workloads.get(key)
        return [parent] if parent is not None and parent.uid == variants.parent_uid(workload) else []
    if not variants.is_parent(workload):
        return []
    return [state.workloads[key] for key in state.index.owned(workload.uid)]


# --- switching variants on and off ---------------------------------------------------------------------------------


def switches(family: Family) -> list[tuple[Workload, bool]]:
    """The variants whose `spec.active` is to change, and to what."""
    members = [each for each in family.members if each.stage is not Stage.FINISHED]
    wanted = {each.key: _should_be_active(family, each) for each in members}
    return [(each, wanted[each.key]) for each in members if wanted[each.key] is not each.spec.active]


def _should_be_active(family: Family, member: Workload) -> bool:
    if not family.parent.spec.active:
        return False
    admitted = family.admitted()
    if admitted is None:
        return True
    if member.key == admitted.key:
        return member.spec.active
    if family.place(member) > family.place(admitted):
        return False
    return variants.may_migrate(family.spec, member)


def switch_reason(family: Family, member: Workload, *, active: bool) -> str:
    """Why a variant is switched on or off, in Kueue's wording."""
    admitted = family.admitted()
    if not family.parent.spec.active:
        return f'Parent Workload "{family.parent.key}" not active'
    if admitted is None:
        return "no other Variant being admitted"
    if variants.retains_first(family.spec):
        return f'RetainFirstAdmission: another Variant "{admitted.key}" is admitted'
    last = variants.last_acceptable_flavor(family.spec)
    if active and last is not None:
        good_enough = f'being at least lastAcceptableFlavor: "{last}"'
        return f'{good_enough} and higher priority than admitted Variant "{admitted.key}"'
    if active:
        return f'being higher priority than admitted Variant "{admitted.key}"'
    if last is not None and not variants.may_migrate(family.spec, member):
        return f'being below lastAcceptableFlavor: "{last}" and another Variant admitted "{admitted.key}"'
    return f'being lower priority than admitted Variant "{admitted.key}"'


# --- parent and variants -------------------------------------------------------------------------------------------


def steps(state: State, parent: Workload, now_ms: UnixMs) -> tuple[list[QueueEvent], UnixMs | None]:
    """The events that are due for a parent and its variants, and when the next may be due."""
    family = family_of(state, parent)
    if family is None or parent.stage is Stage.FINISHED:
        return [], None
    admitted = family.admitted()
    evicted = [each for each in family.members if each.stage is Stage.EVICTED and each.admission is not None]
    if parent.stage is Stage.ADMITTED:
        if evicted:
            return [_evicted(parent, VARIANT_EVICTED, "Admitted variant was evicted")], None
        if admitted is None and not family.missing():
            # A variant that is missing from the state may be admitted: it is created, or shown, before anything follows
            # from it.
            return [_evicted(parent, NO_VARIANT, "No variant is running")], None
    elif parent.stage in PENDING and parent.spec.active and admitted is not None and not evicted:
        return [_followed(parent, admitted)], None
    variant, again_ms = _gate_to_open(family, now_ms)
    if variant is None:
        return [], again_ms
    return [PreemptionGateOpened(workload=variant.key, uid=variant.uid, gate=variants.GATE)], again_ms


def waits_for_parent(state: State, variant: Workload) -> bool:
    """Whether an evicted variant has to keep its quota: its parent's job still runs on it, or its parent is unknown."""
    if variant.admission is None:
        return False
    if variants.is_variant(variant) and not relatives(state, variant):
        # A variant is deleted with its parent: as long as the variant exists, the parent may exist.
        return True
    return any(each.stage in HOLDS_QUOTA for each in relatives(state, variant) if variants.is_parent(each))


def parent_end(state: State, variant: Workload) -> tuple[str, str] | None:
    """Reason and message of a parent's end, which is that of its variants; None while it has none."""
    for parent in relatives(state, variant):
        finished = conditions.find(parent.conditions, conditions.FINISHED)
        if variants.is_variant(variant) and parent.stage is Stage.FINISHED and finished is not None:
            return finished.reason, finished.message
    return None


def _is_admitted(member: Workload) -> bool:
    return member.stage in HOLDS_QUOTA and conditions.is_true(member.conditions, conditions.ADMITTED)


def _evicted(parent: Workload, reason: str, message: str) -> WorkloadEvicted:
    return WorkloadEvicted(workload=parent.key, uid=parent.uid, reason=reason, message=message)


def _followed(parent: Workload, variant: Workload) -> WorkloadFollowed:
    assert variant.admission is not None, f"{variant.key} is admitted without an admission"
    return WorkloadFollowed(
        workload=parent.key,
        uid=parent.uid,
        cluster_queue=variant.cluster_queue,
        variant=variant.key,
        admission=variant.admission,
    )


def _gate_to_open(family: Family, now_ms: UnixMs) -> tuple[Workload | None, UnixMs | None]:
    """
    The best variant that only its gate keeps from preempting, if no other gate was opened recently.

    None as long as a better one was not evaluated yet: it may fit without preemption.
    """
    waiting = [each for each in family.members if each.stage in PENDING and each.spec.active]
    opened = [at for each in waiting if (at := _opened_ms(each)) is not None]
    candidate = _first_blocked(waiting)
    if candidate is None:
        return None, None
    if opened and now_ms < max(opened) + GATE_INTERVAL_MS:
        return None, UnixMs(max(opened) + GATE_INTERVAL_MS)
    return candidate, UnixMs(now_ms + GATE_INTERVAL_MS)


def _first_blocked(waiting: Sequence[Workload]) -> Workload | None:
    for each in waiting:
        if _opened_ms(each) is not None:
            continue
        if conditions.is_true(each.conditions, conditions.BLOCKED_ON_PREEMPTION_GATES):
            # Not before its wake conditions are recorded: that event would park it again.
            return each if each.stage is Stage.PARKED else None
        if conditions.find(each.conditions, conditions.QUOTA_RESERVED) is None:
            return None
    return None


def _opened_ms(member: Workload) -> UnixMs | None:
    for gate in member.preemption_gates:
        if gate.name == variants.GATE and gate.position == OPEN:
            try:
                return conditions.parse_rfc3339(gate.last_transition_time)
            except ValueError:
                return UnixMs(0)
    return None
