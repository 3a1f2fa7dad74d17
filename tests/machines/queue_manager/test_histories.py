"""
Random histories: facts, cycles, jobs and the passing of time in any order, with decisions that overtake each other.

A history is a number. At each rest the invariants are checked: no workload is lost, offers are in queue order, a new
queue manager has nothing to add, the state restored from its bytes is the same.
"""

import random

import pytest
from tests.support.queueing import SCHEDULER, UNGATER, QueueCell

from headgate.core import fold
from headgate.core.audit.invariants import forgotten
from headgate.core.fold.transitions import rank_of
from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.machine.contract import Append, Settled
from headgate.core.quota.activeness import cluster_queue_active
from headgate.core.state.tables import Stage
from headgate.events import facts
from headgate.events.base import EventBase
from headgate.events.commit import Commit
from headgate.events.decisions import CycleDecided
from headgate.events.effects import JobStarted, JobStopped
from headgate.events.ids import JobKey, LocalQueueKey, Seq, WorkloadKey
from headgate.events.objects import CheckState, CohortSpec, Condition, LimitRangeItem
from headgate.events.queueing import Needs
from headgate.machines.queue_manager import decide
from headgate.machines.queue_manager.decide import QueueManager
from headgate.machines.queue_manager.offering import OFFER_DEPTH

QUEUES = ("cq0", "cq1", "cq2")
LOCAL_QUEUES = ("lq0", "lq1", "lq2")
STOPS = ("None", "None", "None", "Hold", "HoldAndDrain")


class History:
    """One random history. The queue manager's and the scheduler's commits may land later than they were decided."""

    def __init__(self, number: int, *, crashes: bool) -> None:
        self.random = random.Random(number)
        self.cell = QueueCell(crashes=crashes)
        self.names = 0
        self.strategy = {name: self.random.choice(("StrictFIFO", "BestEffortFIFO")) for name in QUEUES}
        self.cell.flavor()
        for name in QUEUES:
            self.cell.cluster_queue(name, strategy=self.strategy[name], cohort=self.random.choice(("", "all")))
        for number, name in enumerate(LOCAL_QUEUES):
            self.cell.local_queue(name, QUEUES[number])
        self.cell.sync()
        self.managing: Commit | None = None
        self.cycling: tuple[list[EventBase], Seq] | None = None

    def step(self) -> None:
        steps = (
            (self.submit, 8),
            (self.restart, 1),
            (self.change, 3),
            (self.delete, 2),
            (self.finish, 3),
            (self.cycle, 10),
            (self.land_cycle, 10),
            (self.manage, 8),
            (self.land, 8),
            (self.local_queue, 2),
            (self.cluster_queue, 2),
            (self.flavor, 1),
            (self.cohort, 1),
            (self.limits, 1),
            (self.namespace, 1),
            (self.time, 3),
            (self.check, 3),
            (self.job, 4),
        )
        self.random.choices([step for step, _ in steps], [weight for _, weight in steps])[0]()

    def some(self, *stages: Stage) -> WorkloadKey | None:
        keys = sorted(key for key, each in self.cell.state.workloads.items() if not stages or each.stage in stages)
        return self.random.choice(keys) if keys else None

    def shape(self) -> dict[str, object]:
        return {
            "cpu": self.random.choice(("1", "2", "3")),
            "priority": self.random.choice((None, 0, 0, 0, 5)),
            "queue": self.random.choice((*LOCAL_QUEUES, *LOCAL_QUEUES, "nowhere")),
            "created_s": float(self.random.randrange(5)),
            "maximum_execution_time_seconds": self.random.choice((None, None, 30)),
        }

    def submit(self) -> None:
        for _ in range(self.random.choice((1, 1, 3, 25))):
            self.names += 1
            name = f"w{self.names}"
            if self.random.random() < 0.5:
                self.cell.job(name, suspended=True)
                self.cell.submit(name, job=name, **self.shape())
            else:
                self.cell.submit(name, **self.shape())

    def change(self) -> None:
        key = self.some()
        if key is not None:
            gate = {"kueue.x-k8s.io/admission-gated-by": "x"} if self.random.random() < 0.2 else {}
            self.again(key, annotations=gate, active=self.random.random() < 0.8, **self.shape())

    def again(self, key: WorkloadKey, **more: object) -> None:
        workload = self.cell[key]
        more.setdefault("created_s", 0)
        job = workload.owner.name if workload.owner is not None else ""
        self.cell.submit(key.partition("/")[2], job=job, **more)

    def delete(self) -> None:
        key = self.some()
        if key is not None:
            self.cell.delete(key)

    def finish(self) -> None:
        key = self.some(Stage.ADMITTED, Stage.ADMITTED, Stage.QUEUED, Stage.EVICTED)
        if key is not None:
            self.again(key, finished=Condition(type="Finished", status="True", reason="Succeeded"), queue="lq0")

    def cycle(self) -> None:
        """Decide on the first head of each ClusterQueue; the commit lands later."""
        if self.cycling is not None:
            return
        cell, decisions = self.cell, list[EventBase]()
        for name in QUEUES:
            key = next(iter(cell.state.index.offered.get(name, ())), None)
            if key is not None and cluster_queue_active(cell.state, name).active:
                decisions.extend(self.decision(key, self.strategy[name]))
        for key in cell.state.index.reserved:
            if self.random.random() < 0.5:
                decisions.append(cell.admitted(key))
        if decisions:
            self.cycling = decisions, cell.state.position

    def decision(self, key: WorkloadKey, strategy: str) -> list[EventBase]:
        draw = self.random.random()
        if draw < 0.35:
            return self.cell.reserved(key, checks=self.random.choice(((), ("budget",))))
        if draw < 0.45:
            return [self.cell.skipped(key, "immediate", requeue_reason="FailedAfterNomination")]
        if draw < 0.55:
            return [self.cell.skipped(key, "workload", requeue_reason="NamespaceMismatch", reason="Misconfigured")]
        if draw < 0.6:
            return [self.cell.skipped(key, "workload", short=())]
        short = self.random.choice((("default/cpu",), ("default/gpu",), ("*",), ()))
        scope = "queue" if strategy == "StrictFIFO" else "shape"
        return [self.cell.skipped(key, scope, short=short, needs=self.needs(short))]

    def needs(self, short: tuple[str, ...]) -> Needs:
        """Now little, now much, in one way or in two; sometimes of what the ClusterQueue has no quota of."""
        if short == ("*",) or self.random.random() < 0.3:
            return ()
        resources = self.random.choice((("cpu",), ("cpu",), ("gpu",), ("cpu", "gpu")))
        return tuple({f"default/{resource}": str(self.random.randrange(1, 7))} for resource in resources)

    def land_cycle(self) -> None:
        if self.cycling is not None:
            (decisions, at), self.cycling = self.cycling, None
            self.cell.cycle += 1
            self.cell.put(SCHEDULER, CycleDecided(cycle=self.cell.cycle, decided_at=at), *decisions, decided_at=at)

    def manage(self) -> None:
        """Let the queue manager decide; its commit lands later."""
        if self.managing is None:
            self.managing = self.cell.decide()

    def restart(self) -> None:
        """A crash, at rest or with an append on its way that lands all the same."""
        self.cell.restart()

    def land(self) -> None:
        if self.managing is not None:
            append, self.managing = self.managing, None
            self.cell.land(append)

    def local_queue(self) -> None:
        name = self.random.choice(LOCAL_QUEUES)
        if self.random.random() < 0.2:
            self.cell.see(facts.LocalQueueDeleted(queue=LocalQueueKey(f"team/{name}")))
        else:
            self.cell.local_queue(name, self.random.choice(QUEUES), stop=self.random.choice(STOPS))

    def cluster_queue(self) -> None:
        name = self.random.choice(QUEUES)
        if self.random.random() < 0.2:
            self.cell.see(facts.ClusterQueueDeleted(name=name))
        else:
            self.strategy[name] = self.random.choice(("StrictFIFO", "BestEffortFIFO"))
            stop, cohort = self.random.choice(STOPS), self.random.choice(("", "all", "own"))
            self.cell.cluster_queue(name, strategy=self.strategy[name], stop=stop, cohort=cohort)

    def flavor(self) -> None:
        if self.random.random() < 0.4:
            self.cell.see(facts.ResourceFlavorDeleted(name="default"))
        else:
            self.cell.flavor()

    def cohort(self) -> None:
        parent = self.random.choice(("", "root"))
        self.cell.see(facts.CohortObserved(name="all", spec=CohortSpec(parent_name=parent)))

    def limits(self) -> None:
        if self.random.random() < 0.5:
            self.cell.see(facts.LimitRangeDeleted(limit_range="team/l"))
        else:
            item = LimitRangeItem(type="Container", default={"memory": self.random.choice(("1Gi", "2Gi"))})
            self.cell.see(facts.LimitRangeObserved(limit_range="team/l", limits=(item,)))

    def namespace(self) -> None:
        self.cell.see(facts.NamespaceObserved(name="team", labels={"v": str(self.random.randrange(9))}))

    def time(self) -> None:
        self.cell.pass_s(self.random.choice((0.5, 5, 40)))

    def check(self) -> None:
        key = self.some(Stage.RESERVED)
        if key is not None:
            state, after = self.random.choice(("Ready", "Retry", "Retry", "Rejected")), self.random.choice((None, 20))
            at = rfc3339(self.cell.now_ms)
            it = CheckState(name="budget", state=state, requeue_after_seconds=after, last_transition_time=at)
            queue, cpu = self.cell[key].spec.queue_name, "1"
            self.again(key, generation=self.cell.generations[key], checks=(it,), queue=queue, cpu=cpu)

    def job(self) -> None:
        """A job's controller or the ungater does something with it."""
        key = self.some(Stage.ADMITTED, Stage.EVICTED)
        owner = self.cell[key].owner if key is not None else None
        record = self.cell.state.jobs.get(JobKey(f"batch/Job/team/{owner.name}")) if owner is not None else None
        if key is None or owner is None or record is None:
            return
        job, uid, workload = JobKey(f"batch/Job/team/{owner.name}"), record.job.uid, self.cell[key]
        if workload.stage is Stage.EVICTED:
            self.cell.put(UNGATER, JobStopped(job=job, job_uid=uid, workload=key, reason="evicted"))  # type: ignore[arg-type]
            self.cell.job(owner.name, suspended=True)
        elif record.job.suspended:
            self.cell.put(UNGATER, JobStarted(job=job, job_uid=uid, workload=key, workload_uid=workload.uid))  # type: ignore[arg-type]
            self.cell.job(owner.name, active=1)
        elif self.random.random() < 0.3:
            self.cell.see(facts.JobDeleted(job=job, uid=uid))  # type: ignore[arg-type]
        else:
            self.cell.job(owner.name, finished=self.random.choice(("Complete", "Failed")))

    def rest(self) -> None:
        """Every decision is appended, and then the queue manager's remaining events."""
        self.land_cycle()
        self.land()
        self.cell.settle()
        self.check_promises()

    def check_promises(self) -> None:
        state = self.cell.state
        assert forgotten(state, settled=True) == []
        for command in QueueManager(state).decide(Settled(self.cell.now_ms)):
            assert not isinstance(command, Append), f"a new queue manager would say {command.events}"
        restored = fold.restore(state.cell, fold.encode(state))
        assert fold.encode(restored) == fold.encode(state)
        for command in QueueManager(restored).decide(Settled(self.cell.now_ms)):
            assert not isinstance(command, Append), f"on the restored state it would say {command.events}"
        assert fold.encode(self.cell.log.refold()) == fold.encode(state)
        offered = [key for keys in state.index.offered.values() for key in keys]
        assert list(state.index.offers.items()) == sorted((state.workloads[key].offered_no, key) for key in offered)
        for name in {*state.index.pending, *state.index.offered}:
            self.check_offers(name)

    def check_offers(self, name: str) -> None:
        state = self.cell.state
        offered = [rank_of(state, state.workloads[key]) for key in state.index.offered.get(name, ())]
        ahead = list(state.index.pending[name].ranks_ahead()) if name in state.index.pending else []
        if not cluster_queue_active(state, name).active:
            assert (offered, ahead) == ([], [])
            return
        assert offered == sorted(offered)
        assert not offered or not ahead or max(offered) < min(ahead)
        assert len(offered) <= OFFER_DEPTH + OFFER_DEPTH // 2
        assert len(offered) * 2 >= OFFER_DEPTH or not ahead


@pytest.mark.parametrize("crashes", [False, True], ids=["steady", "crashing"])
@pytest.mark.parametrize("number", range(40))
def test_every_history_keeps_the_promises(number: int, crashes: bool) -> None:
    """At each rest, with one queue manager or a new one for each decision."""
    history = History(number, crashes=crashes)
    for _ in range(12):
        for _ in range(history.random.randrange(1, 14)):
            history.step()
        history.rest()


@pytest.mark.parametrize("number", range(12))
def test_small_commits_keep_the_promises_too(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound of a few events a commit, the rest follows in the next."""
    monkeypatch.setattr(decide, "EVENTS_PER_COMMIT_MAX", 2)
    monkeypatch.setattr(decide, "HEADS_PER_COMMIT_MAX", 3)
    history = History(number, crashes=number % 2 == 0)
    for _ in range(6):
        for _ in range(history.random.randrange(1, 10)):
            history.step()
        history.rest()
