"""The events of a workload's job and pods in its history; `headgate.core.views.explain` calls it event by event."""

from typing import assert_never

from headgate.core.api.job_kinds import shown_name, title
from headgate.core.state.tables import State
from headgate.core.views.lookup import HistorySubject
from headgate.core.views.timeline import EventPlace, Mark, Notes
from headgate.events import decisions, effects, facts
from headgate.events.ids import PodKey, split_key


class JobNotes:
    """Records the events of the job and the pods of one workload. `state` is folded by its owner before each event."""

    def __init__(self, state: State, target: HistorySubject, notes: Notes) -> None:
        self._state = state
        self._target = target
        self._notes = notes
        self._placed: dict[PodKey, Mark] = {}

    def on_job(self, at: EventPlace, event: facts.JobObserved, was: object) -> None:
        """The workload's job was observed; `was` is its previous form, None the first time."""
        job = event.spec
        said: list[str] = []
        if was is None:
            held = "suspended" if job.suspended else "running"
            self._notes.add(
                at,
                event,
                f"{title(event.job)} appeared, {held}, for queue {job.queue_name}",
                about=shown_name(event.job),
            )
            return
        for name in ("suspended", "finished", "active", "ready", "succeeded", "failed", "deleting", "parallelism"):
            value = getattr(job, name)
            if value != getattr(was, name):
                said.append(f"{name} {'yes' if value is True else 'no' if value is False else value}")
        tells = job.finished is not None or any(each.startswith("suspended") for each in said)
        text = f"{title(event.job)}: {', '.join(said) or 'its template changed'}"
        self._notes.add(at, event, text, about=shown_name(event.job), message=job.message, detail=not tells)

    def on_pod(
        self,
        at: EventPlace,
        event: facts.PodObserved | facts.PodDeleted | decisions.PodPlaced | effects.PodBound | effects.PodBindRejected,
    ) -> None:
        """An event about a pod; pods of other workloads are ignored."""
        if not self._is_ours(event.pod) and event.pod not in self._placed:
            return
        match event:
            case facts.PodObserved():
                bound = f" on {event.spec.spec.node_name}" if event.spec.spec.node_name else ""
                self._placed.setdefault(event.pod, Mark(at.position, at.time_ms, "a node with room"))
                self._notes.add(at, event, f"pod is {event.spec.phase}{bound}", about=event.pod, detail=True)
            case facts.PodDeleted():
                self._placed.pop(event.pod, None)
                self._notes.add(at, event, "pod is deleted or finished", about=event.pod, detail=True)
            case decisions.PodPlaced():
                waited = self._placed.get(event.pod)
                self._notes.add(
                    at, event, f"pod was given node {event.node}", about=event.pod, waited=waited, detail=True
                )
                self._placed[event.pod] = Mark(at.position, at.time_ms, "the API server to bind it")
            case effects.PodBound():
                waited = self._placed.get(event.pod)
                self._notes.add(at, event, f"pod was bound to node {event.node}", about=event.pod, waited=waited)
            case effects.PodBindRejected():
                text = f"the API server refused node {event.node} ({event.code})"
                self._notes.add(at, event, text, about=event.pod, reason=event.reason, message=event.message)
            case _:
                assert_never(event)

    def _is_ours(self, pod: PodKey) -> bool:
        record = self._state.pods.get(pod)
        if record is None:
            return False
        namespace, name = split_key(self._target.workload)
        if record.pod.workload and record.pod.workload in (name, self._target.workload):
            return split_key(pod)[0] == namespace
        job = self._state.jobs.get(self._target.job)
        return job is not None and record.pod.owner is not None and record.pod.owner.uid == job.job.uid
