"""
What is to be done with pods that are queued themselves.

Such a pod is started by removing its gate, and stopped by deleting it; it cannot be started again. Its finalizer keeps
it visible until its group has seen its end. `due` derives from the state what each pod of a job needs now:

- ungate: its Workload is admitted. One patch removes the gate and adds what the admission injects.
- stop: its Workload is not admitted, or is being deleted, or is not the one that it names. The pod gets the condition
  `TerminationTarget` with the reason, and is deleted.
- remove: its group has more pods than its Workload. The finalizer is removed, and the pod is deleted.
- finalize: nothing waits for its end any more. The finalizer is removed.
"""

from typing import Any, Final, Literal, NamedTuple

import msgspec

from headgate.core.api.names import ADMISSION_GATE, MANAGED, ROLE_HASH
from headgate.core.jobs.integration import Directives
from headgate.core.jobs.marks import TOPOLOGY_GATE
from headgate.core.kubernetes import conditions
from headgate.core.state.tables import PodRecord, Stage, State, Workload
from headgate.core.workload import owners, pod_groups, pod_jobs, prebuilt
from headgate.core.workload.injection import InjectionError, Templates, is_assigned
from headgate.core.workload.matching import are_pods_in_sync, is_to_run
from headgate.core.workload.pod_groups import Members, managed
from headgate.core.workload.stops import NO_MATCHING_WORKLOAD, NOT_ADMITTED, WORKLOAD_DELETED
from headgate.events.ids import JobKey, PodKey, UnixMs, split_key

TERMINATION_TARGET: Final = "TerminationTarget"

Json = dict[str, Any]


class PodStep(NamedTuple):
    """What a pod needs, and of a stop the reason and message of its condition."""

    what: Literal["ungate", "stop", "remove", "finalize"]
    reason: str = ""
    message: str = ""


class Stop(NamedTuple):
    """Why pods are stopped: Kueue's stop reason, and the message that it gives with it."""

    reason: str
    message: str


MISSING: Final = Stop(NO_MATCHING_WORKLOAD, "missing workload")
"""Why pods are stopped that cannot have the Workload that they name."""


def workload_of_pods(state: State, job: JobKey, members: Members) -> Workload | None:
    """The Workload of the job that these pods belong to."""
    if pod_jobs.is_group(job):
        return owners.workload_of(state, job, pod_jobs.group_uid(job))
    first = next(iter(members.values()), None)
    return owners.workload_of(state, job, pod_jobs.uid_of(job, first.pod)) if first is not None else None


def due(state: State, job: JobKey, members: Members) -> dict[PodKey, PodStep]:
    """What each pod of a job needs."""
    if not members:
        return {}
    workload, record = workload_of_pods(state, job, members), state.jobs.get(job)
    if workload is not None and workload.stage is Stage.FINISHED:
        is_lost = record is not None and prebuilt.is_out_of_sync(record.job, workload)
        return _out_of_sync(job, members, workload) if is_lost else _finalized(members, members)
    if workload is not None and workload.deleting:
        return _deleted(members, is_served=record is not None and record.job.made_for != "")
    view = pod_jobs.kept(job, members, workload)
    found = _finalized(members, _given_up(job, members, workload))
    if workload is None or _is_owned_by(view.kept, workload):
        found |= _finalized(members, view.replaced)
        found.update((key, PodStep("remove")) for key in view.excess if _is_left(members[key]))
    if workload is None:
        is_refused = record is not None and prebuilt.is_refused(state, job, record)
        return found | (_stopped(members) if is_refused else {})
    if is_to_run(workload):
        if pod_jobs.named_by(members) and not _is_in_sync(state, job, view.kept, workload):
            # It is about to be finished.
            return found
        gated = (key for key, record in view.kept.items() if _waits(record))
        return found | {key: PodStep("ungate") for key in gated if key not in found}
    stop = stop_of(workload)
    running = (key for key, record in view.kept.items() if pod_groups.runs(record.pod))
    return found | {key: PodStep("stop", *stop) for key in running if key not in found}


def _is_in_sync(state: State, job: JobKey, pods: Members, workload: Workload) -> bool:
    """Whether these pods may start by the Workload that they name: their job may not have all of them yet."""
    record = state.jobs.get(job)
    return record is not None and are_pods_in_sync(job, record.job, pod_jobs.compared(job, pods), workload)


def _out_of_sync(job: JobKey, members: Members, workload: Workload) -> dict[PodKey, PodStep]:
    """
    Pods whose prebuilt Workload is out of sync with them: none runs, and those of a group are given up.

    A plain pod waits with its finalizer, as in Kueue. A group's leave once all own the Workload, which stays for the
    others.
    """
    if not pod_jobs.is_group(job):
        return _finalized(members, _given_up(job, members, None)) | _stopped(members)
    return _finalized(members, members) | _stopped(members) if _is_owned_by(members, workload) else {}


def _stopped(members: Members) -> dict[PodKey, PodStep]:
    """The pods that run without the Workload that they name."""
    return {key: PodStep("stop", *MISSING) for key, record in members.items() if pod_groups.runs(record.pod)}


def stop_of(workload: Workload) -> Stop:
    """Why the pods of a Workload that is not admitted have to stop."""
    if workload.deleting:
        return Stop(WORKLOAD_DELETED, "Workload is deleted")
    evicted = conditions.find(workload.conditions, conditions.EVICTED)
    if evicted is not None and evicted.status == "True":
        return Stop(f"WorkloadEvictedDueTo{evicted.reason}", evicted.message)
    return Stop(NOT_ADMITTED, "Not admitted by cluster queue")


def _is_owned_by(pods: Members, workload: Workload) -> bool:
    """
    Whether a group's Workload names these pods as its owners; others may leave only then, as in Kueue.

    Otherwise the last of its owners could go before the pods that replace them own it, and Kubernetes would collect it.
    """
    return all(record.pod.uid in workload.group_owners for record in pods.values())


def _waits(record: PodRecord) -> bool:
    return pod_groups.is_gated(record.pod) and not record.pod.deleting and not pod_groups.has_ended(record.pod)


def _is_left(record: PodRecord) -> bool:
    return not record.pod.deleting or pod_groups.is_held(record.pod)


def _finalized(members: Members, keys: Members | tuple[PodKey, ...]) -> dict[PodKey, PodStep]:
    return {key: PodStep("finalize") for key in keys if pod_groups.is_held(members[key].pod)}


def _deleted(members: Members, *, is_served: bool) -> dict[PodKey, PodStep]:
    """
    A Workload that is being deleted takes its pods with it, also those that have ended.

    Those of a set that wait behind their gate stay: the set would only make them again.
    """
    leaving = tuple(key for key, record in members.items() if record.pod.deleting)
    stop = Stop(WORKLOAD_DELETED, "Workload is deleted")
    there = {key: record.pod for key, record in members.items() if not record.pod.deleting}
    stopped = (key for key, pod in there.items() if not (is_served and pod_groups.is_gated(pod)))
    staying = {key: PodStep("stop", *stop) for key in stopped}
    return staying | _finalized(members, leaving)


def _given_up(job: JobKey, members: Members, workload: Workload | None) -> tuple[PodKey, ...]:
    """The pods whose end nothing waits for: a plain pod that is deleted; without a Workload, all that have ended."""
    if pod_jobs.is_group(job):
        if workload is not None:
            return ()
        is_over = pod_groups.finish_of(members, is_group=True) is not None
        return tuple(key for key, record in members.items() if is_over or record.pod.deleting)
    (key, record), *_ = members.items()
    is_over = record.pod.deleting or (workload is None and pod_groups.has_ended(record.pod))
    return (key,) if is_over else ()


# --- patches -------------------------------------------------------------------------------------------------------


def ungating_patch(state: State, record: PodRecord, workload: Workload, templates: Templates) -> Json:
    """
    The merge patch that lets a pod run on the flavors of its admitted Workload, which has these templates.

    Raises InjectionError.
    """
    pod, shown = record.pod, managed(record.pod)
    name = shown.role if shown.group else workload.spec.pod_sets[0].name
    found = templates.get(name)
    if found is None:
        raise InjectionError(f"the Workload {workload.key} has no pod set {name}")
    directives, _ = found
    annotations = directives.annotations | ({ROLE_HASH: shown.role} if shown.group else {})
    spec: Json = {"schedulingGates": _gates(state, record, workload, name)}
    selector = {key: value for key, value in directives.node_selector.items() if key not in pod.spec.node_selector}
    if selector:
        spec["nodeSelector"] = selector
    if any(each not in pod.spec.tolerations for each in directives.tolerations):
        spec["tolerations"] = _tolerations(record, directives)
    return {
        "metadata": {"uid": pod.uid, "labels": directives.labels, "annotations": annotations},
        "spec": spec,
    }


def _gates(state: State, record: PodRecord, workload: Workload, pod_set: str) -> list[Json] | None:
    """The gates that stay. That of the topology stays where the admission has domains for the pods."""
    assignments = workload.admission.pod_set_assignments if workload.admission is not None else ()
    stays = any(each.name == pod_set and is_assigned(state.configuration, each) for each in assignments)
    gates = [each.name for each in record.pod.spec.scheduling_gates]
    left = [name for name in gates if name != ADMISSION_GATE and (stays or name != TOPOLOGY_GATE)]
    # A gate cannot be added to a pod: one whose admission did not add it gets no domain.
    return [{"name": name} for name in left] or None


def _tolerations(record: PodRecord, directives: Directives) -> list[Any]:
    own = record.pod.spec.tolerations
    return [msgspec.to_builtins(each) for each in (*own, *(each for each in directives.tolerations if each not in own))]


def stopping_status(key: PodKey, record: PodRecord, due: PodStep, now_ms: UnixMs) -> Json:
    """The server-side apply of the status of a pod that is stopped, by which its owner knows that it did not fail."""
    namespace, name = split_key(key)
    condition = {
        "type": TERMINATION_TARGET,
        "status": "True",
        "reason": due.reason,
        "message": conditions.truncated(due.message),
        "lastTransitionTime": conditions.rfc3339(now_ms),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": record.pod.uid},
        "status": {"conditions": [condition]},
    }


def finalizing_patch(record: PodRecord) -> list[Json]:
    """The JSON patch that removes the finalizer of a pod, if it is the same and has the finalizers of the log."""
    before = list(managed(record.pod).finalizers)
    after = [each for each in before if each != MANAGED]
    change: Json = {"op": "replace", "path": "/metadata/finalizers", "value": after}
    return [
        {"op": "test", "path": "/metadata/uid", "value": record.pod.uid},
        {"op": "test", "path": "/metadata/finalizers", "value": before},
        change if after else {"op": "remove", "path": "/metadata/finalizers"},
    ]
