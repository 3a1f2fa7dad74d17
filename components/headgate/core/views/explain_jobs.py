"""The events of a workload's job and pods in its history; `headgate.core.views.explain` calls it event by event."""

from headgate.core.api.job_kinds import shown_name, title
from headgate.core.state.tables import State
from headgate.core.views.explain_pods import PodLife, PodNotes, PodVerdict
from headgate.core.views.lookup import HistorySubject
from headgate.core.views.timeline import EventPlace, Notes
from headgate.events import facts
from headgate.events.ids import PodKey, split_key


class JobNotes:
    """Records the events of the job and the pods of one workload. `state` is folded by its owner before each event."""

    def __init__(self, state: State, target: HistorySubject, notes: Notes) -> None:
        self._state = state
        self._target = target
        self._notes = notes
        self._pods = PodNotes(notes)

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

    def on_pod(self, at: EventPlace, event: PodLife) -> None:
        """An event about a pod; pods of other workloads are ignored."""
        if self._is_ours(event.pod) or self._pods.knows(event.pod):
            self._pods.on_pod(at, event)

    def on_placement(self, at: EventPlace, event: PodVerdict) -> None:
        """What was decided about a pod beside its node, or done about a victim; other workloads' pods are ignored."""
        if self._is_ours(event.pod):
            self._pods.on_placement(at, event)

    def _is_ours(self, pod: PodKey) -> bool:
        record = self._state.pods.get(pod)
        if record is None:
            return False
        namespace, name = split_key(self._target.workload)
        if record.pod.workload and record.pod.workload in (name, self._target.workload):
            return split_key(pod)[0] == namespace
        job = self._state.jobs.get(self._target.job)
        return job is not None and record.pod.owner is not None and record.pod.owner.uid == job.job.uid
