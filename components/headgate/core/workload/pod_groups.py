"""
Pod groups: which pods of a group count, which are too many, and which are missing.

A pod that is queued itself is a job of its own, or one of several of a pod group, which has one Workload. The rules are
those of Kueue's pod integration (pkg/controller/jobs/pod; `kueue.md`, pod groups):

- A pod is active while it can still run, runs, or has succeeded. One that has failed, or is deleted before it got a
  node, is inactive, and stays a member until another pod of its role takes its place.
- A group without a Workload gets one when it has as many active pods as it says, or, with fast admission, one. Each
  role is a pod set.
- Once there is a Workload its pod sets count: of each role as many active pods are kept as the pod set has. More are
  deleted: those without the finalizer first, then gated ones, then the newest. Inactive pods that were replaced lose
  their finalizer, those that have been inactive longest first.

Everything here follows from the pods in the state and the Workload, so that each process finds the same.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from headgate.core.api.managed_pods import ENDED
from headgate.core.api.names import ADMISSION_GATE, MANAGED, POD_GROUP_TOTAL
from headgate.core.state.tables import PodRecord, Workload
from headgate.events.ids import PodKey, UnixMs
from headgate.events.objects import ManagedPod, Pod

Members = Mapping[PodKey, PodRecord]
"""Managed pods, in the order of `in_order`."""

ROLES_MAX: Final = 18
"""How many pod sets a Workload may have."""

LABELS_DIFFER: Final = "constructing workload: pods have different label values"
ANNOTATIONS_DIFFER: Final = "constructing workload: pods have different annotation values"

NEVER: Final = UnixMs(1 << 62)
"""Later than every time."""


def managed(pod: Pod) -> ManagedPod:
    """What a pod shows of its queue. Only for pods that are queued themselves."""
    assert pod.managed is not None
    return pod.managed


def is_gated(pod: Pod) -> bool:
    """Whether a pod waits for the admission of its Workload."""
    return any(gate.name == ADMISSION_GATE for gate in pod.spec.scheduling_gates)


def has_ended(pod: Pod) -> bool:
    """Whether a pod has succeeded or failed."""
    return pod.phase in ENDED


def is_held(pod: Pod) -> bool:
    """Whether a pod has the finalizer by which it stays after its end."""
    return MANAGED in managed(pod).finalizers


def is_active(pod: Pod) -> bool:
    """Whether a pod can still run, runs, or has succeeded (Kueue's isPodRunnableOrSucceeded)."""
    return not (pod.deleting and not managed(pod).has_node) and pod.phase != "Failed"


def runs(pod: Pod) -> bool:
    """Whether a pod may run now: neither gated, nor ended, nor being deleted."""
    return not is_gated(pod) and not has_ended(pod) and not pod.deleting


def in_order(pods: Iterable[tuple[PodKey, PodRecord]]) -> dict[PodKey, PodRecord]:
    """Members in the order of their creation."""
    return dict(sorted(pods, key=lambda item: (item[1].pod.created_ms, item[0])))


class GroupView(NamedTuple):
    """The members of a group by what is to be done with them."""

    kept: Members
    excess: tuple[PodKey, ...]
    replaced: tuple[PodKey, ...]
    absent: int


def view_of(members: Members, workload: Workload | None) -> GroupView:
    """What the members of a group are to its Workload, or without one to the number of pods that they say."""
    active = [key for key, record in members.items() if is_active(record.pod)]
    inactive = [key for key, record in members.items() if not is_active(record.pod)]
    if workload is None:
        return _without_workload(members, active, inactive)
    kept: dict[PodKey, None] = {}
    excess: list[PodKey] = []
    replaced: list[PodKey] = []
    absent = 0
    is_fast = _first(members).fast_admission
    for pod_set in workload.spec.pod_sets:
        of_role = _of_role(members, pod_set.name)
        here, gone = list(filter(of_role, active)), list(filter(of_role, inactive))
        absent += min(pod_set.count, 1) * (not here) if is_fast else max(0, pod_set.count - len(here))
        here.sort(key=lambda key: _active_rank(key, members[key].pod))
        excess += here[pod_set.count :]
        gone.sort(key=lambda key: _inactive_rank(key, members[key].pod))
        done = min(len(gone), max(0, len(gone) + len(here) - pod_set.count))
        replaced += gone[len(gone) - done :]
        kept.update(dict.fromkeys((*here[: pod_set.count], *gone[: len(gone) - done])))
    return GroupView(
        {key: record for key, record in members.items() if key in kept}, tuple(excess), tuple(replaced), absent
    )


def _without_workload(members: Members, active: list[PodKey], inactive: list[PodKey]) -> GroupView:
    total = _first(members).total_count
    excess: list[PodKey] = []
    if total is not None and len(active) > total and _mismatch(members, total) is None:
        active.sort(key=lambda key: _active_rank(key, members[key].pod))
        excess = active[total:]
    kept = {key: record for key, record in members.items() if is_active(record.pod) and key not in excess}
    return GroupView(kept, tuple(excess), tuple(inactive), 0)


def _first(members: Members) -> ManagedPod:
    """The pod by which a group's own settings are read: the oldest."""
    return managed(next(iter(members.values())).pod)


def _of_role(members: Members, role: str) -> Callable[[PodKey], bool]:
    return lambda key: managed(members[key].pod).role == role


def _active_rank(key: PodKey, pod: Pod) -> tuple[Any, ...]:
    """Kueue's sortActivePods: the last ones are deleted if there are too many."""
    return not is_held(pod), is_gated(pod), pod.created_ms, key


def _inactive_rank(key: PodKey, pod: Pod) -> tuple[Any, ...]:
    """Kueue's sortInactivePods: the last ones are given up if there are too many."""
    at_ms = min(managed(pod).failed_ms or NEVER, managed(pod).deletes_ms or NEVER)
    return not is_held(pod), -at_ms, pod.created_ms, key


# --- the Workload of a group ---------------------------------------------------------------------------------------


class Role(msgspec.Struct, frozen=True):
    """A pod set of a group's Workload: its name, a pod from which the template is taken, the number of pods."""

    name: str
    sample: PodKey
    count: int


def roles_of(members: Members) -> tuple[Role, ...]:
    """The pod sets for the active ones of these pods, by name; with fast admission one, of the whole group."""
    active = {key: managed(record.pod) for key, record in members.items() if is_active(record.pod)}
    if not active:
        return ()
    first = next(iter(active))
    if _first(members).fast_admission:
        return (Role(active[first].role, first, _first(members).total_count or 0),)
    samples: dict[str, PodKey] = {}
    counts: dict[str, int] = {}
    for key, pod in active.items():
        samples.setdefault(pod.role, key)
        counts[pod.role] = counts.get(pod.role, 0) + 1
    return tuple(Role(role, samples[role], counts[role]) for role in sorted(samples))


def problem_of(group: str, members: Members) -> str:
    """Why a group cannot get a Workload as it is (Kueue's validatePodGroupMetadata); "" if it can."""
    first = _first(members)
    if first.total_count is None:
        return f"pod group '{group}' has no valid annotation '{POD_GROUP_TOTAL}': it has to be a number above 0"
    active = sum(is_active(record.pod) for record in members.values())
    if active < (1 if first.fast_admission else first.total_count):
        return f"'{group}' group has fewer runnable pods than expected"
    mismatch = _mismatch(members, first.total_count)
    if mismatch is not None:
        return mismatch
    if len(roles_of(view_of(members, None).kept)) > ROLES_MAX:
        return f"pod group can't include more than {ROLES_MAX} roles"
    if copied_labels(members) is None:
        return LABELS_DIFFER
    return ANNOTATIONS_DIFFER if copied_annotations(members) is None else ""


def copied_labels(members: Members) -> dict[str, str] | None:
    """The labels that a new Workload gets from these pods; None where two of them have another value."""
    return _together(managed(each.pod).copied_labels for each in _composed_of(members))


def copied_annotations(members: Members) -> dict[str, str] | None:
    """As `copied_labels`, the annotations."""
    return _together(managed(each.pod).copied_annotations for each in _composed_of(members))


def _composed_of(members: Members) -> Iterable[PodRecord]:
    """The pods that a new Workload gets its labels from: also failed ones, unless there are too many pods."""
    view = view_of(members, None)
    return (view.kept if view.excess else members).values()


def _together(given: Iterable[Mapping[str, str]]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for each in given:
        if any(found.setdefault(key, value) != value for key, value in each.items()):
            return None
    return found


def _mismatch(members: Members, total: int) -> str | None:
    """How the pods of a group contradict each other."""
    names = {key: key.rpartition("/")[2] for key in members}
    first_key = next(iter(members))
    first = managed(members[first_key].pod)
    for key, record in members.items():
        if record.pod.phase == "Failed":
            continue
        other = managed(record.pod)
        if other.queue_name != first.queue_name:
            return (
                f"pods '{names[first_key]}' and '{names[key]}' has different queue names: "
                f"{first.queue_name}!={other.queue_name}"
            )
        if other.total_count is None:
            return f"failed to extract '{POD_GROUP_TOTAL}' annotation from the pod '{names[key]}'"
        if other.total_count != total:
            return (
                f"pods '{names[first_key]}' and '{names[key]}' has different '{POD_GROUP_TOTAL}' "
                f"values: {total}!={other.total_count}"
            )
    return None


# --- what the pods say about their Workload ------------------------------------------------------------------------


class Finish(NamedTuple):
    """How a pod or a group has ended."""

    succeeded: bool
    message: str


def finish_of(members: Members, *, is_group: bool) -> Finish | None:
    """
    The end of a pod or a group; None while it goes on.

    A group ends when as many pods have succeeded as it has, or, if one of them is unretriable, when none is left that
    runs. A serving group never ends.
    """
    first = next(iter(members.values())).pod
    if not is_group:
        return Finish(first.phase == "Succeeded", managed(first).message) if has_ended(first) else None
    pods = [record.pod for record in members.values()]
    total = managed(first).total_count
    if managed(first).serving or total is None:
        return None
    succeeded = sum(pod.phase == "Succeeded" for pod in pods)
    is_given_up = any(managed(pod).unretriable for pod in pods) and all(has_ended(pod) for pod in pods)
    return (
        Finish(succeeded=True, message=f"Pods succeeded: {succeeded}/{total}.")
        if succeeded == total or is_given_up
        else None
    )


def are_ready(members: Members, *, is_group: bool) -> bool:
    """Whether all pods are ready (Kueue's PodsReady)."""
    total = _first(members).total_count if is_group else 1
    return total is not None and len(members) >= total and all(managed(each.pod).ready for each in members.values())


def done_pods(members: Members) -> dict[str, int]:
    """How many pods of each role have succeeded, so that their quota is free; none in a serving group."""
    counts: dict[str, int] = {}
    if _first(members).serving:
        return counts
    for record in members.values():
        if record.pod.phase == "Succeeded":
            role = managed(record.pod).role
            counts[role] = counts.get(role, 0) + 1
    return counts


def holds_until_ms(members: Members) -> UnixMs | None:
    """
    Until when the pods hold the quota of an evicted Workload; None when they hold none.

    That is as long as one runs (Kueue's IsActive). One that is being deleted and stays beyond its grace period, as on a
    lost node, does not count from then on. Kueue adds the grace period to the time at which the deletion is due, which
    has it included.
    """
    until = [_holds_until_ms(record.pod) for record in members.values() if record.pod.phase == "Running"]
    return max(until, default=None)


def _holds_until_ms(pod: Pod) -> UnixMs:
    shown = managed(pod)
    return UnixMs(shown.deletes_ms + shown.grace_s * 1000) if pod.deleting else NEVER
