"""
The audit: whether a log satisfies the invariants of the design.

`Audit` is fed a log entry by entry and judges it with checks of its own. It shares only the fold with the processes,
and where the fold has to stop at a defect it continues with all checks that need no state, so that one run reports
everything. A finding names the check, the position and the object. The checks:

| check          | what must hold                                                                            |
|----------------|-------------------------------------------------------------------------------------------|
| readable       | every entry decodes and is on its producer's subject; no event is unknown                 |
| refused        | no entry was published by any client but the six processes                                |
| gaps           | positions follow on each other from 1, each producer's commits are numbered without a gap |
| chain          | commits and snapshots name the hash of the whole log, commits that of their producer too  |
| epochs         | a producer's epoch never falls, and a new term begins with `leader.elected`               |
| times          | a producer's times never go back                                                          |
| order          | causes and `decided_at` lie before the commit, cycles are numbered from 1                 |
| authority      | each event is written by the process whose event it is                                    |
| lifecycle      | every event can follow on the stage of its workload                                       |
| folds          | no event has to be set aside because it cannot be folded                                  |
| quota          | no reservation exceeds the quota that its cycle saw, in its queue or any cohort above     |
| preemption     | each victim is preempted for a pending workload whose verdict names it                    |
| admitted-twice | nothing reserves quota or is admitted again without a release between                     |
| durable        | every effect has its decision earlier in the log, in another commit                       |
| ended          | no workload is recorded as succeeded or failed whose Job has not ended                    |
| divergence     | no process has found that folding again gives another state                               |
| clock          | no commit's time is far from when the broker stored it and those that it was decided on   |
| stream         | the stream is the one that the log was founded on, and fit to keep a log                  |
| snapshots      | each can be read, is of this log, and has the hashes that are recorded in the log         |
| leases         | none is of an older term, or of a later position, than the log                            |
| cluster        | the cluster's record of the cell is of this log, and not ahead of it                      |
| feed           | it has every event of the log once, in order, and nothing else                            |
| forgotten      | at the end, each pending workload is queued or waits for what can still come true         |
"""
# Over 400 lines: all checks of the table above run in one pass over the log and use what the others have recorded.

from array import array
from collections.abc import Iterable

import msgspec

from headgate.core import fold
from headgate.core.api.job_kinds import shown_name, title
from headgate.core.audit.invariants import forgotten
from headgate.core.audit.quotas import QuotaAudit, took_effect
from headgate.core.fold.quarantine import EventFailedError, EventPart, Failure, Treatments
from headgate.core.log.attestation import Attestations
from headgate.core.log.authority import overstepped
from headgate.core.log.log_time import CLOCK_SKEW_MS_MAX
from headgate.core.log.refusal import CommitFilter
from headgate.core.machine.commits import election_of
from headgate.core.state.lifecycle import IllegalTransitionError
from headgate.core.state.tables import HOLDS_QUOTA, Stage
from headgate.core.workload.owners import job_of
from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import Producer, tag_of
from headgate.events.commit import (
    Commit,
    LoggedCommit,
    Position,
    UnreadableCommitError,
    commit_id,
    decode_entry,
)
from headgate.events.families import names_workload
from headgate.events.ids import Epoch, PodKey, Seq, Uid, UnixMs, WorkloadKey
from headgate.events.registry import Event
from headgate.events.subjects import parse_log_subject, subject_key

CHECKS = (
    "readable",
    "refused",
    "gaps",
    "chain",
    "epochs",
    "times",
    "order",
    "authority",
    "lifecycle",
    "folds",
    "quota",
    "preemption",
    "admitted-twice",
    "durable",
    "ended",
    "divergence",
    "clock",
    "stream",
    "snapshots",
    "leases",
    "cluster",
    "feed",
    "forgotten",
)
"""Those from stream to feed concern data beside the log: `headgate.core.audit.stores`."""


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A violation: which check, where in the log, which object, and a description."""

    check: str
    position: Position
    text: str
    about: str = ""


class AuditReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The result of an audit.

    `folded_to` is the last position that the state checks (lifecycle, quota, forgotten, ...) cover; it lies before
    `last` when the fold had to stop. `overtaken` counts events that came too late and correctly changed nothing.
    `looked_at` names what was compared with the log: nothing where there is only a file.
    """

    first: int
    last: int
    commits: int
    events: int
    folded_to: int
    overtaken: int
    reservations: int
    findings: tuple[AuditFinding, ...] = ()
    looked_at: tuple[str, ...] = ()


# --- the audit -----------------------------------------------------------------------------------------------------


class _Term(msgspec.Struct):
    """The data of a producer's term, from its commits."""

    epoch: Epoch = Epoch(0)
    number: int = 0
    hash: str = ""
    seq: Seq = Seq(0)
    time_ms: UnixMs = UnixMs(0)
    rules: int = 0


class Audit:
    """Audits one log. Feed it every entry in order, then call `report`; it can be called in between."""

    # Large: the fields of the audit, one line each.
    def __init__(
        self, cell: str = "main", hash_at: Iterable[Seq] = (), treatments: Treatments = fold.NO_TREATMENTS
    ) -> None:
        self.state = fold.new_state(cell)
        self.failed: EventFailedError | None = None
        """
        The event at which the fold had to stop.

        Audit again with `treatments` so that the fold can continue past it.
        """
        self._treatments = treatments
        self.findings: list[AuditFinding] = []
        self.folds = True
        """Whether the log could be folded up to here."""
        self.last = 0
        """The position of the last entry."""
        self.announced: dict[Seq, tuple[str, str]] = {}
        """By position, state hash and log hash of the snapshots that are recorded in the log."""
        self.state_hashes: dict[Seq, str] = dict.fromkeys(hash_at, "")
        """The state hashes at the requested positions; "" where the log was not folded."""
        self._first = 0
        self._stored_ms = array("Q")
        """When the broker has stored each entry, from the first on."""
        self._commits = 0
        self._events = 0
        self._reservations = 0
        self._cycle = 0
        self._terms: dict[Producer, _Term] = {}
        self._gate = CommitFilter(cell)
        self._attestations = Attestations()
        self._quota = QuotaAudit(self.state)
        self._reserved: dict[Uid, Position] = {}
        self._admitted: dict[Uid, Position] = {}
        self._ever_admitted: dict[Uid, Seq] = {}
        self._placed: dict[Uid, tuple[str, Seq]] = {}
        self._doomed: dict[Uid, tuple[PodKey, Seq]] = {}
        self._asked_for: dict[tuple[Uid, str, str], Seq] = {}
        """By uid of a pod, kind and name of an object: writes that are to help the pod."""
        """The pods that have to go: for which pod, and where that was decided."""
        self._uids: dict[PodKey, Uid] = {}
        """Those of the pods in both."""
        self._known_workloads: dict[Uid, Seq] = {}
        self._known_jobs: dict[Uid, Seq] = {}

    def feed_entry(self, seq: int, subject: str, payload: bytes, stored_ms: int = 0) -> LoggedCommit | None:
        """Check one entry of the stream; returns its commit, None when there is none."""
        logged, at = decode_entry(seq, subject, payload, stored_ms), Position(Seq(seq))
        try:
            refused = self._gate.objection(logged)
        except UnreadableCommitError as error:
            self._sequence(seq)
            self._attestations.extend(logged.seq, logged.hash)
            self._find("readable", at, f"the entry on {subject} cannot be read: {error.why}")
            self._stop_folding()
            return None
        if refused:
            self._sequence(seq)
            self._attestations.extend(logged.seq, logged.hash)
            self._find("refused", at, f"no process of this cell appended it: {refused}")
            if self.folds:
                self._fold(logged)
            return None
        _, producer = parse_log_subject(subject)
        if producer is not logged.commit.producer:
            text = f"{logged.commit.producer.value} wrote it on the subject of {producer.value}"
            self._find("readable", at, text)
        self.feed(logged)
        return logged

    def feed(self, logged: LoggedCommit) -> None:
        """Check one commit."""
        commit = logged.commit
        self._sequence(logged.seq)
        self._commits += 1
        self._events += len(commit.events)
        self._envelope(logged)
        before = self._quota.usage_before(commit) if self.folds else {}
        stages = self._stages(commit) if self.folds else {}
        for index, event in enumerate(commit.events):
            self._authority(Position(logged.seq, index), commit, event)
            self._durable(Position(logged.seq, index), event)
        if self.folds:
            self._quota.keep(logged)
            self._fold(logged)
        if self.folds:
            if logged.seq in self.state_hashes:
                self.state_hashes[logged.seq] = fold.state_hash(self.state)
            self._admissions(logged, stages)
            self._preemptions(logged)
            self._ends(logged)
            for each in self._quota.judge(logged, before, stages):
                self._find("quota", each.at, each.text, each.workload)
            self._keep_raises(logged)

    def report(self, beside: Iterable[AuditFinding] = (), looked_at: tuple[str, ...] = ()) -> AuditReport:
        """
        The findings so far; the end of what was fed counts as the end of the log.

        `beside` are findings about data beside the log; `looked_at` names that data.
        """
        lost: list[AuditFinding] = [*beside]
        identity = self.state.identity
        if identity is not None and identity.cell != self.state.cell:
            text = f"the log was founded for the cell {identity.cell}, and is read as that of {self.state.cell}"
            lost.append(AuditFinding(check="stream", position=Position(identity.founded_at), text=text))
        if self.folds:
            at = Position(self.state.position)
            lost += (
                AuditFinding(check="forgotten", position=at, text=f"{workload} is forgotten: {why}", about=workload)
                for workload, why in forgotten(self.state)
            )
        return AuditReport(
            first=self._first,
            last=self.last,
            commits=self._commits,
            events=self._events,
            folded_to=self.state.position,
            overtaken=self.state.overtaken,
            reservations=self._reservations,
            findings=(*self.findings, *lost),
            looked_at=looked_at,
        )

    def _find(self, check: str, position: Position, text: str, about: str = "") -> None:
        assert check in CHECKS
        self.findings.append(AuditFinding(check=check, position=position, text=text, about=about))

    def log_hash_at(self, position: Seq) -> str:
        """The hash of the log up to a position; "" where it is unknown."""
        return self._attestations.hash_at(position)

    def _stop_folding(self) -> None:
        self.folds = False

    # --- envelopes -------------------------------------------------------------------------------------------------

    def _sequence(self, seq: int) -> None:
        if not self._first:
            self._first = seq
            if seq != 1:
                self._find("gaps", Position(Seq(seq)), f"the log begins at {seq}: what came before is not there")
        elif seq != self.last + 1:
            self._stored_ms.extend([0] * max(seq - self.last - 1, 0))
            missing = f"positions {self.last + 1} to {seq - 1} are missing"
            text = missing if seq > self.last else f"position {seq} comes after position {self.last}"
            self._find("gaps", Position(Seq(seq)), text)
        self.last = seq

    def _envelope(self, logged: LoggedCommit) -> None:
        commit, at = logged.commit, Position(logged.seq)
        term = self._term_of(commit.producer)
        name = commit.producer.value
        if commit.number != term.number + 1:
            self._find("gaps", at, f"{name}: commit {commit.number} follows on commit {term.number}")
        elif commit.prev != term.hash:
            text = f"{name}: it names {commit.prev or 'no hash'} as the commit before, which has {term.hash or 'none'}"
            self._find("chain", at, text)
        if commit.id != commit_id(commit.producer, commit.epoch, commit.number):
            self._find("chain", at, f"{name}: its id {commit.id} is not that of epoch {commit.epoch}, {commit.number}")
        if commit.epoch < term.epoch:
            self._find("epochs", at, f"{name}: epoch {commit.epoch} wrote after epoch {term.epoch} had begun")
        election = election_of(commit)
        if election is not None:
            term.rules = election.rules
        elif commit.epoch > term.epoch:
            self._find("epochs", at, f"{name}: epoch {commit.epoch} does not begin with leader.elected")
        if commit.time_ms < term.time_ms:
            text = f"{name}: time goes back by {term.time_ms - commit.time_ms} ms since position {term.seq}"
            self._find("times", at, text)
        if commit.decided_at >= logged.seq or (commit.cause is not None and commit.cause.seq >= logged.seq):
            self._find("order", at, f"{name}: it names a position that is not before it as its ground")
        self._clock(logged)
        if differs := self._attestations.objection(commit):
            self._find("chain", at, f"{name}: {differs}")
        self._attestations.extend(logged.seq, logged.hash)
        term.epoch, term.number, term.hash = max(term.epoch, commit.epoch), commit.number, logged.hash
        term.seq, term.time_ms = logged.seq, max(term.time_ms, commit.time_ms)

    def _clock(self, logged: LoggedCommit) -> None:
        """
        No commit has a time well after the broker stored it, nor well before the broker stored what it follows from.

        It may be stored long after it was made: it waits while the broker is unavailable. The fold follows neither
        clock further than CLOCK_SKEW_MS_MAX; this check reports that one of them was wrong.
        """
        stored_ms, time_ms, at = logged.stored_ms, logged.commit.time_ms, Position(logged.seq)
        before_ms = self._stored_ms[-1] if self._stored_ms else 0
        if logged.seq == self._first + len(self._stored_ms):
            self._stored_ms.append(max(stored_ms, 0))
        if not stored_ms:
            return
        name = logged.commit.producer.value
        if before_ms > stored_ms + CLOCK_SKEW_MS_MAX:
            text = f"the broker stored it {before_ms - stored_ms} ms before the entry that it follows on"
            self._find("clock", at, f"{text}. Set the broker's clock, or find out who has changed the stream")
        if time_ms > stored_ms + CLOCK_SKEW_MS_MAX:
            text = f"{name}: its time is {time_ms - stored_ms} ms after the broker's, who stored it"
            self._find("clock", at, f"{text}. Set the clock of whichever is wrong")
        ground = max(logged.commit.decided_at, self._term_of(logged.commit.producer).seq)
        ground_ms = self._stored_ms[ground - self._first] if 0 <= ground - self._first < len(self._stored_ms) else 0
        if ground_ms > time_ms + CLOCK_SKEW_MS_MAX and ground < logged.seq:
            text = f"{name}: its time is {ground_ms - time_ms} ms before the broker stored position {ground}"
            self._find("clock", at, f"{text}, which it follows from. Set the clock of whichever is wrong")

    def _term_of(self, producer: Producer) -> "_Term":
        return self._terms.setdefault(producer, _Term())

    def _authority(self, at: Position, commit: Commit, event: Event) -> None:
        author = overstepped(commit.producer, event, self._term_of(commit.producer).rules)
        if author is not None:
            self._find("authority", at, f"{commit.producer.value} wrote {tag_of(event)}, which is for {author.value}")
        if type(event) is decisions.CycleDecided:
            if event.cycle != self._cycle + 1 or event.decided_at != commit.decided_at or at.index:
                text = f"cycle {event.cycle} after cycle {self._cycle}, decided at {event.decided_at}, event {at.index}"
                self._find("order", at, text)
            self._cycle = event.cycle

    # --- effects follow decisions ------------------------------------------------------------------------------------

    # Large: one case for each event type that is a decision, or an effect that has to follow on one.
    def _durable(self, at: Position, event: Event) -> None:
        match event:
            case facts.WorkloadObserved():
                self._known_workloads.setdefault(event.uid, at.seq)
                if event.taken_over is not None and event.taken_over.admission is not None:
                    self._ever_admitted.setdefault(event.uid, at.seq)
            case facts.JobObserved():
                self._known_jobs.setdefault(Uid(event.spec.uid), at.seq)
            case facts.PodDeleted():
                self._placed.pop(event.uid, None)
            case decisions.WorkloadAdmitted() | queueing.WorkloadFollowed():
                self._ever_admitted[event.uid] = at.seq
            case facts.ObjectDeleted(resource="pods"):
                uid = self._uids.pop(PodKey(event.name), Uid(""))
                self._placed.pop(uid, None)
                self._doomed.pop(uid, None)
                if self._asked_for:
                    self._asked_for = {key: seq for key, seq in self._asked_for.items() if key[0] != uid}
            case decisions.PodPlaced():
                self._placed[event.uid] = (event.node, at.seq)
                self._uids[event.pod] = event.uid
            case decisions.PodWithdrawn():
                self._placed.pop(event.uid, None)
            case decisions.PodNominated():
                for victim in event.victims:
                    self._doomed[victim.uid] = (event.pod, at.seq)
                    self._uids[victim.pod] = victim.uid
            case effects.PodPreempted() | effects.PodPreemptionRejected():
                by, decided = self._doomed.get(event.uid, (PodKey(""), at.seq))
                if by != event.by or decided >= at.seq:
                    text = f"{event.pod} was to go for {event.by}, which was not decided before"
                    self._find("durable", at, text, event.pod)
            case decisions.PodUnschedulable() if event.writes:
                self._uids[event.pod] = event.uid
                self._asked_for |= {(event.uid, write.kind, write.name): at.seq for write in event.writes}
            case effects.PodWriteRejected():
                written = f"{event.kind} {event.name} was written for pod {event.pod}"
                self._after(at, event, self._asked_for.pop((event.uid, event.kind, event.name), None), written)
            case effects.PodBound() | effects.PodBindRejected():
                self._bound(at, event)
            case effects.JobStarted() | effects.JobStartRejected():
                since = self._ever_admitted.get(event.workload_uid)
                if since is None or since >= at.seq:
                    text = f"{title(event.job)} was resumed for {event.workload}, which was not admitted before"
                    self._find("durable", at, text, shown_name(event.job))
            case effects.StatusApplied() | effects.StatusRejected():
                self._after(at, event, self._known_workloads.get(event.uid), f"Workload {event.workload} was written")
            case effects.WorkloadCreated() | effects.WorkloadCreateRejected():
                made = f"a Workload was made for {title(event.job)}"
                self._after(at, event, self._known_jobs.get(event.job_uid), made)
            case effects.VariantChanged():
                changed = f"variant {event.variant} was {event.change}"
                self._after(at, event, self._known_workloads.get(event.parent_uid), changed)
            case effects.JobStopped() | effects.JobStopRejected():
                stopped = f"{title(event.job)} was suspended"
                self._after(at, event, self._known_jobs.get(event.job_uid), stopped)
            case effects.SnapshotTaken():
                self._snapshot(at, event)
            case effects.DivergenceFound():
                text = f"folding up to {event.position} again gave {event.refolded_hash}, not {event.live_hash}"
                self._find("divergence", at, text)
            case _:
                pass

    def _after(self, at: Position, event: Event, since: Seq | None, what: str) -> None:
        if since is None or since >= at.seq:
            self._find("durable", at, f"{what} before the log knew of it", subject_key(event))

    def _bound(self, at: Position, event: effects.PodBound | effects.PodBindRejected) -> None:
        placed = self._placed.get(event.uid)
        verb = "was bound" if isinstance(event, effects.PodBound) else "was to be bound"
        if placed is None:
            # The pod may be deleted since, and its placement with it; only an existing pod must have one.
            pod = self.state.pods.get(event.pod)
            if pod is None or pod.pod.uid != event.uid:
                return
            self._find("durable", at, f"{event.pod} {verb} to {event.node} without a placement before", event.pod)
        elif placed[0] != event.node or placed[1] >= at.seq:
            text = f"{event.pod} {verb} to {event.node}; its placement is {placed[0]} at position {placed[1]}"
            self._find("durable", at, text, event.pod)

    def _snapshot(self, at: Position, event: effects.SnapshotTaken) -> None:
        self.announced[event.position] = (event.state_hash, event.log_hash)
        there = self._attestations.hash_at(event.position)
        text = f"snapshot {event.name} was taken of a log with the hash {event.log_hash} up to {event.position}"
        if event.position >= at.seq:
            self._find("chain", at, f"{text}; this one has no such position before it")
        elif there not in ("", event.log_hash):
            self._find("chain", at, f"{text}; this one has {there}")

    # --- checks with state -------------------------------------------------------------------------------------------

    def _fold(self, logged: LoggedCommit) -> None:
        try:
            fold.apply(self.state, logged, self._treatments)
        except EventFailedError as error:
            self.failed = error
            self._set_aside(error.at, error.named)
            self._stop_folding()
        except fold.BrokenLogError as error:
            if not any(finding.position.seq == logged.seq for finding in self.findings):
                self._find("chain", Position(logged.seq), error.why)
            self._stop_folding()
        for at, failure in self._treatments.all_of(logged.seq):
            self._set_aside(at, failure)

    def _set_aside(self, at: EventPart, failure: Failure) -> None:
        check = "lifecycle" if failure.error.startswith(IllegalTransitionError.__name__) else "folds"
        text = f"{failure.object.kind} {failure.object.key} is set aside: {failure.error} in {failure.where}"
        self._find(check, Position(at.seq, at.nth), text, failure.object.key)

    def _stages(self, commit: Commit) -> dict[WorkloadKey, tuple[Uid, Stage]]:
        """The stages, before a commit, of the workloads in it."""
        found: dict[WorkloadKey, tuple[Uid, Stage]] = {}
        for event in commit.events:
            workload = self.state.workloads.get(event.workload) if names_workload(event) else None
            if workload is not None:
                found[workload.key] = (workload.uid, workload.stage)
        return found

    def _admissions(self, logged: LoggedCommit, stages: dict[WorkloadKey, tuple[Uid, Stage]]) -> None:
        """Count reservations and admissions independently of the lifecycle table."""
        for index, event in enumerate(logged.commit.events):
            at = Position(logged.seq, index)
            match event:
                case decisions.QuotaReserved() if took_effect(event, stages):
                    self._reservations += 1
                    self._once(at, event, self._reserved, "reserved quota")
                case decisions.WorkloadAdmitted() if self._holds(event.workload, event.uid):
                    self._once(at, event, self._admitted, "was admitted")
                case (
                    queueing.WorkloadReleased()
                    | queueing.WorkloadHeld()
                    | queueing.WorkloadFinished()
                    | decisions.WorkloadReplaced()
                    | facts.WorkloadDeleted()
                ):
                    self._reserved.pop(event.uid, None)
                    self._admitted.pop(event.uid, None)
                case _:
                    pass

    def _ends(self, logged: LoggedCommit) -> None:
        """Facts only ever bring the end of a Job nearer, so a claimed end can be checked afterwards."""
        for index, event in enumerate(logged.commit.events):
            if type(event) is not queueing.WorkloadFinished or event.reason not in ("Succeeded", "Failed"):
                continue
            workload = self.state.workloads.get(event.workload)
            if workload is None or workload.uid != event.uid or workload.observed_finished is not None:
                continue
            record = job_of(self.state, workload)
            if record is not None and record.job.finished is None:
                text = f"{event.workload} is said to have {event.reason.lower()}, and its Job has not ended"
                self._find("ended", Position(logged.seq, index), text, event.workload)

    def _preemptions(self, logged: LoggedCommit) -> None:
        """Every preemption is justified by a verdict of its own cycle that names the victim."""
        preempted = [event for event in logged.commit.events if type(event) is decisions.WorkloadPreempted]
        if not preempted:
            return
        named = {
            (event.uid, target)
            for event in logged.commit.events
            if type(event) is decisions.WorkloadSkipped
            for target in event.targets
        }
        for index, event in enumerate(logged.commit.events):
            if type(event) is not decisions.WorkloadPreempted or (event.preemptor_uid, event.workload) in named:
                continue
            preemptor = self.state.workloads.get(event.preemptor)
            verdict = preemptor.verdict if preemptor is not None and preemptor.uid == event.preemptor_uid else None
            if verdict is not None and event.workload in verdict.targets:
                continue  # A standing head whose verdict did not change.
            text = f"{event.workload} was preempted for {event.preemptor}, and no verdict on that one names it"
            self._find("preemption", Position(logged.seq, index), text, event.workload)

    def _holds(self, key: WorkloadKey, uid: Uid) -> bool:
        workload = self.state.workloads.get(key)
        return workload is not None and workload.uid == uid and workload.stage in HOLDS_QUOTA - {Stage.EVICTED}

    def _once(
        self,
        at: Position,
        event: decisions.QuotaReserved | decisions.WorkloadAdmitted,
        seen: dict[Uid, Position],
        what: str,
    ) -> None:
        earlier = seen.setdefault(event.uid, at)
        if earlier is not at:
            text = f"{event.workload} {what} at {earlier} and again, without a release between"
            self._find("admitted-twice", at, text, event.workload)

    def _keep_raises(self, logged: LoggedCommit) -> None:
        """Record where facts may have raised usage: work taken over, pods that are, or count, no longer done."""
        for event in logged.commit.events:
            if type(event) is facts.ConfigurationObserved:
                for cluster_queue in self.state.cluster_queues:
                    self._quota.raised(cluster_queue, logged.seq)
            if type(event) is not facts.WorkloadObserved:
                continue
            workload = self.state.workloads.get(event.workload)
            if workload is not None and workload.stage in HOLDS_QUOTA:
                self._quota.raised(workload.cluster_queue, logged.seq)
                self._reserved.setdefault(event.uid, Position(logged.seq))


def audit(entries: Iterable[LoggedCommit], cell: str = "main") -> AuditReport:
    """The report on a log that is completely available, from its first commit."""
    judge = Audit(cell)
    for logged in entries:
        judge.feed(logged)
    return judge.report()
