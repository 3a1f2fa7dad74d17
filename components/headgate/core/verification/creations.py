"""
Creations: each Workload that the informer bridge has created belongs to a Job in the log that could have one.

Each variant that it has created, deleted or switched is one that its family lacked, had too many, or had to switch.
Facts cannot be decided again: they record what the API server has shown. What the bridge itself does follows from them.
"""

from collections.abc import Iterator

from headgate.core.api.job_kinds import title
from headgate.core.log.rules_version import CREATIONS_SINCE, decides_alike
from headgate.core.state.tables import State
from headgate.core.verification.check import NOTHING, ReplayDifference, opens_term
from headgate.core.verification.marks import JustifiedEffects
from headgate.core.workload import concurrent_admission, variants
from headgate.core.workload.job_workload import workload_key
from headgate.events import effects, facts
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, Position, encode_event
from headgate.events.families import names_workload
from headgate.events.ids import JobKey, Seq, WorkloadKey
from headgate.events.registry import Event

_CREATIONS = (effects.WorkloadCreated, effects.WorkloadCreateRejected)


class CreationCheck:
    """Justifies the recorded creations of Workloads and variants by the bridge. See the module docstring."""

    def __init__(self) -> None:
        self.counts = {"creations": 0}
        self.passed_over = 0
        self._has_begun = self._knows = False
        self._marks = JustifiedEffects()
        self._shown: dict[tuple[JobKey, WorkloadKey, str], Seq] = {}
        """For Jobs with a recorded creation: which Workload each may have, and since when."""
        self._whole: dict[tuple[JobKey, WorkloadKey, str], Seq] = {}
        """The same without a problem that keeps the Workload from being made."""
        self._made: dict[JobKey, None] = {}
        self._families: dict[WorkloadKey, None] = {}
        """Parents whose families occur in the log."""

    def plan(self, logged: LoggedCommit) -> None:
        """See `Check`."""
        for event in logged.commit.events:
            if isinstance(event, _CREATIONS):
                self._made[event.job] = None
            elif isinstance(event, effects.VariantChanged):
                self._marks.expect(event.parent, _changed(event))
                self._families[event.parent] = None

    def look(self, state: State, logged: LoggedCommit) -> None:
        """See `Check`."""
        election = opens_term(logged, Producer.INFORMER_BRIDGE)
        if election is not None:
            self._has_begun = True
            self._knows = decides_alike(Producer.INFORMER_BRIDGE, election.rules, CREATIONS_SINCE)
        has_changed: dict[WorkloadKey, None] = {}
        for event in logged.commit.events:
            if isinstance(event, facts.JobObserved):
                if event.job in self._made:
                    # The reason remains valid: a refused creation is retried, and a Workload that a user has deleted is
                    # created again.
                    name = workload_key(state.configuration, event.job, event.spec)
                    self._shown.setdefault((event.job, name, event.spec.uid), logged.seq)
                    if not event.spec.problem:
                        self._whole.setdefault((event.job, name, event.spec.uid), logged.seq)
            elif self._families:
                has_changed.update(dict.fromkeys(self._families_of(state, event)))
        for parent in has_changed:
            self._allow_changes(state, parent)

    def compare(self, state: State, logged: LoggedCommit) -> Iterator[ReplayDifference]:  # noqa: ARG002 (see Check)
        """See `Check`."""
        if not self._has_begun or logged.commit.producer is not Producer.INFORMER_BRIDGE:
            return
        passed_over = False
        for index, event in enumerate(logged.commit.events):
            decided_at = logged.commit.decided_at
            if isinstance(event, _CREATIONS):
                reasons = self._whole if isinstance(event, effects.WorkloadCreated) else self._shown
                shown = reasons.get((event.job, event.workload, event.job_uid))
                is_justified = shown is not None and shown <= decided_at
                what = f"the Workload of {title(event.job)}"
            elif isinstance(event, effects.VariantChanged):
                is_justified = self._marks.use(event.parent, _changed(event), decided_at, keep=True)
                what = f"a variant of Workload {event.parent}"
            else:
                continue
            if not self._knows:
                passed_over = True
                continue
            self.counts["creations"] += 1
            if not is_justified:
                yield ReplayDifference(
                    what=f"{what}, for which there was no reason up to {decided_at}",
                    position=Position(logged.seq, index),
                    recorded=encode_event(event).decode(),
                    replayed=NOTHING,
                )
        self.passed_over += passed_over

    def _families_of(self, state: State, event: Event) -> Iterator[WorkloadKey]:
        match event:
            case facts.ClusterQueueObserved() | facts.LocalQueueObserved() | facts.ConfigurationObserved():
                yield from self._families
            case _:
                workload = state.workloads.get(event.workload) if names_workload(event) else None
                if workload is not None:
                    yield variants.parent_key(workload) or workload.key

    def _allow_changes(self, state: State, key: WorkloadKey) -> None:
        parent = state.workloads.get(key)
        family = concurrent_admission.family_of(state, parent) if parent is not None else None
        if parent is None or family is None:
            return
        for flavor in family.missing():
            made = variants.variant_key(state.configuration, parent, flavor)
            self._marks.allow(key, (made, "created"), state.position)
        for stale in family.stale:
            self._marks.allow(key, (stale.key, "deleted"), state.position)
        for member, active in concurrent_admission.switches(family):
            self._marks.allow(key, (member.key, "activated" if active else "deactivated"), state.position)


def _changed(event: effects.VariantChanged) -> tuple[str, str]:
    return (event.variant, event.change)
