"""
The bridge's work for pods that are queued themselves: the facts about them as jobs, and the Workloads of pod groups.

The log has a fact of each managed pod. From those this class derives `job.observed` of each plain pod and each pod
group (`headgate.core.workload.pod_jobs`), and appends it when it differs from the state; it does so only once all pods
of the cluster are in the log, so that a group is never judged by a part of its pods.

A Workload takes whole templates, which the log does not have. Of each role of a job without a Workload the JSON of one
pod is kept from its observation until the Workload is created, and read if none was observed since the start. So a
group of a thousand equal pods costs the memory of one.

A group's Workload is owned by all of its pods; owners that it lacks are added. One that is of none of the group's pods
is deleted, and the group gets another one; one that the pods name is left (`prebuilt_workloads`).

The groups of StatefulSets and LeaderWorkerSets are there before their pods (`headgate.core.workload.served`). The
Workload of a group that its set has no longer is deleted.

Level-triggered on the state. Owned by the bridge's machine, and equally pure.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from headgate.core.api.owner_references import of_pod
from headgate.core.jobs.pods import GroupPods, RolePods
from headgate.core.jobs.registry import integration_of
from headgate.core.kubernetes.pod_paths import pod_path
from headgate.core.machine.api_results import is_success
from headgate.core.machine.contract import JSON_PATCH, Call, Command, Completed, deletion_of
from headgate.core.state.attribution import about
from headgate.core.state.tables import PodRecord, Stage, State, Workload
from headgate.core.status.workload_status import workload_path
from headgate.core.workload import owners, pod_groups, pod_jobs, served
from headgate.core.workload.pod_actions import workload_of_pods
from headgate.core.workload.pod_groups import Members, managed
from headgate.events import facts
from headgate.events.configuration import Configuration
from headgate.events.families import NamesWorkload
from headgate.events.ids import JobKey, Uid, UnixMs, split_key
from headgate.machines.informer_bridge.foreign_pods import is_foreign

CALLS_MAX: Final = 256
"""The maximum number of concurrent calls about pod groups, of each kind."""


class _Whole(msgspec.Struct, frozen=True):
    metadata: "_WholeMeta"


class _WholeMeta(msgspec.Struct, frozen=True):
    uid: str = ""


class PodJobs:
    """See the module docstring. The bridge's machine passes on what concerns pods, and the configuration in effect."""

    def __init__(self, state: State, configuration: Configuration) -> None:
        self._state = state
        self._configuration = configuration
        self._pods = pod_jobs.JobPods(state)
        self._sets = served.SetGroups(state)
        self._dirty: OrderedDict[JobKey, None] = OrderedDict.fromkeys(self._pods.jobs())
        self._dirty.update((key, None) for key in state.jobs if pod_jobs.is_of_pods(key))
        self._dirty.update((group, None) for key in self._sets.sets() for group in self._sets.of(key))
        self._samples: dict[JobKey, dict[str, bytes]] = {}
        """By job and role the JSON of a pod, while the job has no Workload."""
        self._reading: dict[str, tuple[JobKey, str, str]] = {}
        """GETs of pods under way: job, role and the pod's uid."""
        self._until: dict[JobKey, UnixMs] = {}
        """Jobs with a pod that is being deleted and still counts as active, and until when."""
        self._unowned: OrderedDict[JobKey, None] = OrderedDict.fromkeys(filter(pod_jobs.is_group, self._pods.jobs()))
        """Groups whose Workload may lack an owner, or be of none of their pods, or of no group that their set has."""
        made = (each.key for each in state.workloads.values() if served.set_of_workload(each) is not None)
        self._unowned.update((pod_jobs.group_of(key), None) for key in made)
        self._asked: dict[JobKey, tuple[str, tuple[str, ...]]] = {}
        """By group the Workload and the owners that were last asked for; no owners: its deletion."""
        self._calls: dict[str, JobKey] = {}
        self._found: list[JobKey] = []
        """Jobs whose pods were read since this was last emptied."""

    # --- observations ----------------------------------------------------------------------------------------------

    def relevant(self, fact: facts.PodObserved, raw: bytes) -> facts.PodObserved | None:
        """
        The fact about a managed pod as the log gets it; None when it is irrelevant.

        That is a pod that has ended and that nothing waits for, and, where such pods are not queued, one that does not
        use a node.
        """
        pod = fact.spec
        if not pod_jobs.is_run(self._configuration, {fact.pod: PodRecord(pod=pod)}):
            plain = msgspec.structs.replace(pod, managed=None, phase="Pending")
            is_used = not pod_groups.has_ended(pod) and (pod.spec.node_name or not is_foreign(plain))
            return msgspec.structs.replace(fact, spec=plain) if is_used else None
        if pod_groups.has_ended(pod) and not pod_groups.is_held(pod):
            job = pod_jobs.job_of(fact.pod, pod)
            workload = owners.workload_of(self._state, job, pod_jobs.uid_of(job, pod)) if job is not None else None
            if workload is None or workload.stage is Stage.FINISHED:
                return None
        self._keep(fact, raw)
        return fact

    def _keep(self, fact: facts.PodObserved, raw: bytes) -> None:
        """Keep the JSON of a pod as long as a Workload may have to be made from it."""
        job = pod_jobs.job_of(fact.pod, fact.spec)
        if job is not None and self._sets.has(job):
            # Its Workload is made from its set.
            return
        if job is None or not pod_groups.is_active(fact.spec) or pod_groups.has_ended(fact.spec):
            return
        if managed(fact.spec).prebuilt:
            return
        role = managed(fact.spec).role
        if owners.workload_of(self._state, job, pod_jobs.uid_of(job, fact.spec)) is not None:
            self._samples.pop(job, None)
        elif pod_jobs.is_group(job):
            self._samples.setdefault(job, {}).setdefault(role, raw)
        else:
            self._samples[job] = {role: raw}

    # --- from the log ----------------------------------------------------------------------------------------------

    def on_pod(self, event: facts.PodObserved | facts.PodDeleted) -> tuple[JobKey, ...]:
        """Record that a job has another pod, or one less. Returns the jobs that this concerns."""
        concerned = self._pods.see(event.pod)
        for job in concerned:
            self._look_at(job)
        return concerned

    def on_event(
        self, event: facts.JobObserved | facts.JobDeleted | facts.ConfigurationObserved | NamesWorkload
    ) -> None:
        """Record other events after which the job of some pods may be another one."""
        match event:
            case facts.JobObserved() | facts.JobDeleted():
                for group in self._sets.see(event.job):
                    self._look_at(group)
            case facts.ConfigurationObserved():
                for job in [group for each in self._sets.sets() for group in self._sets.see(each)]:
                    # The length of names may have changed.
                    self._look_at(job)
                for job in (*self._pods.jobs(), *filter(pod_jobs.is_of_pods, self._state.jobs)):
                    self._look_at(job)
            case facts.WorkloadDeleted():
                if pod_jobs.is_of_pods(event.job):
                    self._asked.pop(event.job, None)
                    self._look_at(event.job)
            case _:
                workload = self._state.workloads.get(event.workload)
                found = owners.job_key(self._state, workload) if workload is not None else None
                if found is not None and pod_jobs.is_of_pods(found):
                    self._look_at(found)
                    if isinstance(event, facts.WorkloadObserved):
                        self._samples.pop(found, None)

    def _look_at(self, job: JobKey) -> None:
        self._dirty[job] = None
        if pod_jobs.is_group(job):
            self._unowned[job] = None

    # --- facts about jobs ------------------------------------------------------------------------------------------

    def take_facts(self, now_ms: UnixMs, room_for: int) -> Iterator[facts.Fact]:
        """
        The facts about jobs that are due, at most `room_for`.

        Only call it when the state has all that was appended, and all pods that there are.
        """
        for job in [key for key, until_ms in self._until.items() if until_ms <= now_ms]:
            self._dirty[job] = None
        taken = 0
        while self._dirty and taken < room_for:
            job = self._dirty.popitem(last=False)[0]
            with about("Job", job):
                fact = self._fact(job, now_ms)
            if fact is not None:
                taken += 1
                yield fact

    def _fact(self, job: JobKey, now_ms: UnixMs) -> facts.Fact | None:
        members, record = self._pods.of(job), self._state.jobs.get(job)
        self._until.pop(job, None)
        is_left = bool(members) and not pod_jobs.is_run(self._configuration, members)
        workload = self._workload(job, members)
        seen = pod_jobs.observed(job, members, workload, now_ms, self._sets.made(job)) if not is_left else None
        if seen is None:
            self._samples.pop(job, None)
            if record is None:
                return None
            return facts.JobDeleted(job=job, uid=Uid(record.job.uid), gone=not is_left)
        until_ms = pod_groups.holds_until_ms(members)
        if until_ms is not None and seen.active and until_ms < pod_groups.NEVER:
            self._until[job] = until_ms
        matters = integration_of(job).what_matters
        if record is not None and matters(record.job) == matters(seen):
            return None
        return facts.JobObserved(job=job, spec=seen)

    def _workload(self, job: JobKey, members: Members) -> Workload | None:
        return workload_of_pods(self._state, job, members)

    def wake_ms(self) -> UnixMs | None:
        """When a fact is due that is not yet; None when there is none."""
        return min(self._until.values(), default=None)

    def of(self, job: JobKey) -> Members:
        """The pods of a job, in order."""
        return self._pods.of(job)

    def is_there(self, job: JobKey) -> bool:
        """Whether the state has a pod of a job, or a set that has this group."""
        return self._sets.has(job) or bool(self._pods.of(job))

    def is_left_over(self, job: JobKey) -> bool:
        """Whether pods are of a group that their set has no longer: it gets no other Workload."""
        first = next(iter(self._pods.of(job).values()), None)
        return first is not None and managed(first.pod).parent in served.FRAMEWORKS and not self._sets.has(job)

    def groups_of(self, key: JobKey) -> tuple[JobKey, ...]:
        """The groups of a set that are in the state."""
        return tuple(group for group in self._sets.of(key) if group in self._state.jobs)

    # --- templates -------------------------------------------------------------------------------------------------

    def whole(self, job: JobKey) -> bytes:
        """
        What a Workload of a job is made from, as the integration of pods reads it.

        It is b"" when pods have to be read first, and of a group of which no pod is left to run.
        """
        members = self._pods.of(job)
        if not pod_jobs.is_group(job):
            return self._samples.get(job, {}).get("", b"")
        kept = pod_groups.view_of(members, None).kept if members else {}
        if not kept:
            return b""
        roles: list[RolePods] = []
        for role in pod_groups.roles_of(kept):
            raw = self._samples.get(job, {}).get(role.name)
            if raw is None:
                return b""
            roles.append(RolePods(role=role.name, count=role.count, pod=msgspec.Raw(raw)))
        pods = tuple((split_key(key)[1], record.pod.uid) for key, record in kept.items())
        labels, annotations = pod_groups.copied_labels(members) or {}, pod_groups.copied_annotations(members) or {}
        return msgspec.json.encode(GroupPods(roles=tuple(roles), pods=pods, labels=labels, annotations=annotations))

    def ask(self, job: JobKey, calls: list[Command]) -> None:
        """Read a pod of each role that none was observed of since the start."""
        members = self._pods.of(job)
        if pod_jobs.is_group(job):
            kept = pod_groups.view_of(members, None).kept if members else {}
            roles = [(each.name, each.sample) for each in pod_groups.roles_of(kept)]
        else:
            roles = [("", key) for key in members]
        for role, key in roles:
            call_id = f"pod/{key}"
            if role in self._samples.get(job, {}) or call_id in self._reading:
                continue
            self._reading[call_id] = job, role, members[key].pod.uid
            calls.append(Call(id=call_id, method="GET", path=pod_path(key), lane=job))

    def take_found(self) -> Iterable[JobKey]:
        """The jobs whose pods were read since the last call."""
        found, self._found = self._found, []
        return found

    # --- the owners of Workloads -----------------------------------------------------------------------------------

    def settle(self, calls: list[Command]) -> None:
        """Add the owners that Workloads lack, and delete those that are of no pod of their group."""
        while self._unowned and len(self._calls) < CALLS_MAX:
            job = self._unowned.popitem(last=False)[0]
            with about("Job", job):
                self._own(job, calls)

    def _own(self, job: JobKey, calls: list[Command]) -> None:
        members = self._pods.of(job)
        workload = self._workload(job, members)
        if workload is None or workload.deleting:
            return
        if workload.stage is Stage.FINISHED and not pod_jobs.named_by(members):
            # One that its pods name is owned even then, so that it goes with them.
            return
        is_of_set = self._sets.has(job)
        if not members and (is_of_set or not self._is_surplus(job, workload)):
            return
        missing: tuple[str, ...] = ()
        call = Call(id=f"group/{job}", method="DELETE", path=workload_path(workload.key), lane=job)
        if self._is_surplus(job, workload) or (not is_of_set and pod_jobs.misfits(job, members, workload)):
            call = msgspec.structs.replace(call, body=deletion_of(workload.uid))
        else:
            kept = pod_jobs.kept(job, members, workload).kept
            new = {key: each for key, each in kept.items() if each.pod.uid not in workload.group_owners}
            missing = tuple(each.pod.uid for each in new.values())
            if not missing:
                return
            patch = _owning_patch(workload, new)
            call = msgspec.structs.replace(call, method="PATCH", body=patch, content_type=JSON_PATCH)
        asked = workload.uid, missing
        if self._asked.get(job) == asked or call.id in self._calls:
            return
        self._asked[job] = asked
        self._calls[call.id] = job
        calls.append(call)

    def _is_surplus(self, job: JobKey, workload: Workload) -> bool:
        """Whether a Workload is of a group that its set, which is there, has no longer: it was scaled down."""
        made_for = served.set_of_workload(workload)
        record = self._state.jobs.get(made_for[0]) if made_for is not None else None
        is_there = record is not None and made_for is not None and record.job.uid == made_for[1]
        return is_there and not self._sets.has(job)

    # --- outcomes --------------------------------------------------------------------------------------------------

    def on_completed(self, completed: Completed) -> None:
        """A call has ended. What it should have changed is examined again when the watch shows a change."""
        job = self._calls.pop(completed.call_id, None)
        if job is not None:
            self._unowned[job] = None
        reading = self._reading.pop(completed.call_id, None)
        if reading is None or not is_success(completed):
            return
        job, role, uid = reading
        if _uid_in(completed.body) == uid:
            self._samples.setdefault(job, {}).setdefault(role, completed.body)
            self._found.append(job)


def _owning_patch(workload: Workload, pods: Members) -> list[dict[str, Any]]:
    """The JSON patch that adds pods to the owners of a Workload."""
    patch: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": workload.uid}]
    if not workload.group_owners:
        patch.append({"op": "add", "path": "/metadata/ownerReferences", "value": []})
    for key, record in pods.items():
        owner = of_pod(split_key(key)[1], record.pod.uid)
        patch.append({"op": "add", "path": "/metadata/ownerReferences/-", "value": owner})
    return patch


def _uid_in(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Whole).metadata.uid
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
