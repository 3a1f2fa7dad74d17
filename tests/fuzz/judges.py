"""
What must hold in every run of the fuzzer, as judges: at each commit, and at the end.

They have the log as it is written, and the cluster as it is at that moment. So they can find that a workload was
finished though its owner exists, which no process can.
"""

from tests.simulation.oracle import Oracle

from headgate.cli.deciding_again import checks
from headgate.core import fold
from headgate.core.audit.invariants import forgotten
from headgate.core.audit.log import Audit
from headgate.core.cycle import decide_cycle
from headgate.core.state.tables import HOLDS_QUOTA, Stage, State
from headgate.core.verification.replay import Plan, Replay
from headgate.events import decisions, effects, facts, queueing
from headgate.events.commit import LoggedCommit
from headgate.events.ids import Seq, Uid, split_key
from headgate.testing.cluster import BY_PLURAL
from headgate.testing.fuzz import Ending, Judge, PropertyViolation
from headgate.testing.world.world import World

JOBS = BY_PLURAL["batch", "jobs"]
WORKLOADS = BY_PLURAL["kueue.x-k8s.io", "workloads"]


def is_true(obj: dict, condition: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


class Quota:
    """
    No workload is admitted beyond the quota, checked by the independent oracle.

    A reservation is decided on a position. What facts change behind it (a quota that was lowered, work that was taken
    over) is nothing that it could know; then the audit judges it alone.
    """

    def __init__(self) -> None:
        self._changed_at = Seq(0)

    def commit(self, world: World, state: State, logged: LoggedCommit) -> None:
        for event in logged.commit.events:
            if isinstance(event, _CHANGES_QUOTA):
                self._changed_at = logged.seq
            elif isinstance(event, decisions.QuotaReserved) and logged.commit.decided_at >= self._changed_at:
                self._judge(state, event)

    def _judge(self, state: State, event: decisions.QuotaReserved) -> None:
        workload = state.workloads.get(event.workload)
        if workload is None or workload.uid != event.uid or workload.stage not in HOLDS_QUOTA:
            return
        for pair, amount in state.index.usage_of.get(event.workload, {}).items():
            if amount <= 0:
                continue
            left = Oracle(state, pair).available(f"cq/{event.cluster_queue}")
            if left < 0:
                text = f"{event.workload} overdraws ClusterQueue {event.cluster_queue} by {-left} of {pair}"
                raise PropertyViolation("quota", text, event.workload)

    def end(self, world: World, ending: Ending) -> None:
        """No finding is left at the end."""


_CHANGES_QUOTA = (
    facts.ClusterQueueObserved,
    facts.ClusterQueueDeleted,
    facts.CohortObserved,
    facts.CohortDeleted,
    facts.ConfigurationObserved,
    facts.WorkloadObserved,
)


class Presence:
    """Nothing is done to a workload because something is absent that is there."""

    def commit(self, world: World, state: State, logged: LoggedCommit) -> None:
        for event in logged.commit.events:
            if isinstance(event, queueing.WorkloadFinished) and event.reason == "OwnerNotFound":
                self._judge(world, state, event)

    def _judge(self, world: World, state: State, event: queueing.WorkloadFinished) -> None:
        workload = state.workloads.get(event.workload)
        owner = workload.owner if workload is not None and workload.uid == event.uid else None
        if owner is None:
            return
        for job in world.cluster.objects(JOBS, split_key(event.workload)[0]):
            if job["metadata"]["uid"] == owner.uid and not job["metadata"].get("deletionTimestamp"):
                text = f"{event.workload} is finished as {event.reason}, but its owner {owner.name} is there"
                raise PropertyViolation("absence", text, event.workload)

    def end(self, world: World, ending: Ending) -> None:
        """No finding is left at the end."""


class Release:
    """The quota of an evicted workload of another owner stays charged until the owner reports that it stopped."""

    def __init__(self) -> None:
        self._evicted: set[Uid] = set()

    def commit(self, world: World, state: State, logged: LoggedCommit) -> None:
        for event in logged.commit.events:
            if isinstance(event, queueing.WorkloadEvicted | decisions.WorkloadPreempted | decisions.WorkloadMigrated):
                workload = state.workloads.get(event.workload)
                if workload is None or workload.uid != event.uid or workload.stage is not Stage.EVICTED:
                    continue
                if event.workload in state.index.usage_of:
                    # What waited holds nothing, and so does a parent of variants.
                    self._evicted.add(event.uid)
            elif isinstance(event, queueing.WorkloadReleased) and event.uid in self._evicted:
                self._evicted.discard(event.uid)
                self._judge(world, event)

    def _judge(self, world: World, event: queueing.WorkloadReleased) -> None:
        found = world.cluster.find(WORKLOADS, *split_key(event.workload))
        if found is None or found["metadata"]["uid"] != event.uid:
            return
        owners = found["metadata"].get("ownerReferences") or []
        # Jobs are ours, and so are the parents of variants.
        if any(owner.get("kind") in ("Job", "Workload") for owner in owners) or is_true(found, "Finished"):
            return
        if is_true(found, "QuotaReserved") and is_true(found, "Admitted"):
            text = f"{event.workload} is released while its owner still shows it admitted"
            raise PropertyViolation("release", text, event.workload)

    def end(self, world: World, ending: Ending) -> None:
        """No finding is left at the end."""


class Books:
    """The log is in order: its audit finds nothing; a replay gives the same state and decides the same."""

    def __init__(self) -> None:
        self._log: list[LoggedCommit] = []
        self._audit = Audit("fuzz")

    def commit(self, world: World, state: State, logged: LoggedCommit) -> None:
        self._log.append(logged)
        self._audit.feed(logged)
        if self._audit.findings:
            found = self._audit.findings[0]
            raise PropertyViolation(f"audit {found.check}", f"{found.position} {found.text}", found.about)
        for event in logged.commit.events:
            if isinstance(event, effects.DivergenceFound):
                raise PropertyViolation("divergence", f"{event}")

    def end(self, world: World, ending: Ending) -> None:
        plan = Plan(checks())
        for logged in self._log:
            plan.feed(logged)
        replay = Replay(fold.new_state("fuzz"), plan, decide_cycle)
        for logged in self._log:
            replay.feed(logged)
        for difference in replay.differences:
            raise PropertyViolation("replay", f"{difference}")
        live = fold.encode(world.state)
        if fold.encode(replay.state) != live:
            raise PropertyViolation("replay", "folding the log again gives another state")
        middle = len(self._log) // 2
        state = fold.new_state("fuzz")
        for logged in self._log[:middle]:
            fold.apply(state, logged)
        state = fold.restore("fuzz", fold.encode(state))
        for logged in self._log[middle:]:
            fold.apply(state, logged)
        if fold.encode(state) != live:
            raise PropertyViolation(
                "restart", f"a snapshot of position {middle} and the rest of the log give another state"
            )


class Rest:
    """The run ends without a defect, no workload is lost, and each workload of the log is in the cluster."""

    def commit(self, world: World, state: State, logged: LoggedCommit) -> None:
        for key, why in forgotten(state):
            raise PropertyViolation("forgotten", f"{key}: {why}", key)
        for about, record in state.quarantine.items():
            raise PropertyViolation("quarantine", f"{about}: {record.error} in {record.where}", record.key)

    def end(self, world: World, ending: Ending) -> None:
        state = world.state
        if ending is Ending.NONE:
            raise PropertyViolation("rest", f"it goes on and on; the last position is {state.position}")
        for key, why in forgotten(state, settled=ending is Ending.REST):
            raise PropertyViolation("forgotten at rest", f"{key}: {why}", key)
        for key, workload in state.workloads.items():
            found = world.cluster.find(WORKLOADS, *split_key(key))
            if found is None or found["metadata"]["uid"] != workload.uid:
                raise PropertyViolation("known", f"{key} is in the log and not in the cluster", key)


def judges() -> list[Judge]:
    """All of them, for one run."""
    return [Books(), Quota(), Presence(), Release(), Rest()]
