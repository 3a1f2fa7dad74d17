"""Small worlds for the laws of preemption: cohorts, ClusterQueues with policies, workloads that hold quota."""

import random
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import strategies as st
from tests.support.cells import NAMESPACE, Cell, cluster_queue, cohort, pod_set
from tests.support.logs import START_MS

from headgate.core.flavors.catalog import Catalog
from headgate.core.flavors.cluster_queue import ClusterQueueFlavors
from headgate.core.kubernetes.quantities import canonical
from headgate.core.preemption import Target, find_targets
from headgate.core.preemption.what_if import Snapshot
from headgate.core.state.tables import FlavorResource, State, Workload
from headgate.events.base import EventBase, Producer
from headgate.events.configuration import Configuration, FairSharingConfiguration
from headgate.events.decisions import QuotaReserved
from headgate.events.facts import ConfigurationObserved, WorkloadObserved
from headgate.events.ids import Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Admission,
    BorrowWithinCohort,
    FairSharing,
    PodSetAssignment,
    Preemption,
    WorkloadSpec,
)

RESOURCES = ("cpu", "gpu")
INCOMING = WorkloadKey(f"{NAMESPACE}/incoming")


class Holding(msgspec.Struct, frozen=True):
    """A workload that holds quota."""

    name: str
    queue: str
    usage: dict[str, int]
    priority: int
    created_s: int
    reserved_s: int


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a search. `requests` are those of a workload at `queue`."""

    events: tuple[EventBase, ...]
    holdings: tuple[Holding, ...]
    queue: str
    priority: int
    created_s: int
    requests: dict[str, int]
    configuration: Configuration = Configuration()


class Asked:
    """A world as a state, and the answer of the search."""

    def __init__(self, world: World, order: random.Random | None = None) -> None:
        events, holdings = list(world.events), sorted(world.holdings, key=lambda each: each.reserved_s)
        if order is not None:
            order.shuffle(events)
        self.world = world
        self.cell = Cell(*events)
        log = self.cell.log
        facts = [_observed(each.name, each.queue, each.usage, each.priority, each.created_s) for each in holdings]
        facts.append(_observed("incoming", world.queue, world.requests, world.priority, world.created_s))
        if order is not None:
            order.shuffle(facts)
        log.append(Producer.INFORMER_BRIDGE, ConfigurationObserved(configuration=world.configuration), *facts)
        for second in sorted({each.reserved_s for each in holdings}):
            log.now_ms = UnixMs(START_MS + 1000 * second)
            reserved = [_reserved(each) for each in holdings if each.reserved_s == second]
            if order is not None:
                order.shuffle(reserved)
            log.append(Producer.SCHEDULER, *reserved, decided_at=log.state.position)
        self.state: State = log.state
        self.snapshot = Snapshot(self.state, Catalog(self.state), self.state.index.trees[world.queue])
        self.requests: dict[FlavorResource, int] = {("f", name): value for name, value in world.requests.items()}
        ledger, node = self.snapshot.ledger, self.snapshot.node(world.queue)
        self.contested = frozenset(
            fr for fr, value in self.requests.items() if value > max(0, ledger.available(node, fr))
        )
        self.before = self.usage()
        self.targets: tuple[Target, ...] = ()
        if self.contested:
            self.targets = find_targets(self.snapshot, self.queue, self.incoming, self.requests, self.contested)

    def again(self, cpu: int) -> list[WorkloadKey]:
        """The answer for so many milli-CPUs as the state is now, with the catalog that was kept."""
        self.snapshot = Snapshot(self.state, self.snapshot.catalog, self.snapshot.tree.name)
        fr = ("f", "cpu")
        found = find_targets(self.snapshot, self.queue, self.incoming, {fr: cpu}, {fr})
        return [target.workload for target in found]

    @property
    def queue(self) -> ClusterQueueFlavors:
        """The ClusterQueue of the incoming workload."""
        queue = self.snapshot.catalog.queue(self.world.queue)
        assert queue is not None
        return queue

    @property
    def incoming(self) -> Workload:
        """The workload that others may have to go for."""
        return self.state.workloads[INCOMING]

    def usage(self) -> dict[FlavorResource, list[int]]:
        """What every node uses, of all there is."""
        return {("f", name): list(self.snapshot.ledger.column(("f", name))) for name in RESOURCES}

    def fits_without(self, keys: list[WorkloadKey], *, borrowing: bool) -> bool:
        """Whether the request fits when these are gone; without borrowing, in the ClusterQueue's own quota."""
        node = self.snapshot.node(self.world.queue)
        with self.snapshot.without(keys):
            ledger = self.snapshot.ledger
            own = not any(ledger.borrows_with(node, fr, value) for fr, value in self.requests.items())
            return ledger.fits(node, self.requests) and (borrowing or own)


def _observed(name: str, queue: str, usage: Mapping[str, int], priority: int, created_s: int) -> WorkloadObserved:
    requests = {resource: canonical(resource, value) for resource, value in usage.items()}
    spec = WorkloadSpec(queue_name=queue, pod_sets=(pod_set(requests),), priority=priority)
    created_ms = UnixMs(START_MS - 10_000 + 1000 * created_s)
    return WorkloadObserved(
        workload=WorkloadKey(f"{NAMESPACE}/{name}"), uid=Uid(f"uid-{name}"), created_ms=created_ms, spec=spec
    )


def _reserved(holding: Holding) -> QuotaReserved:
    assignment = PodSetAssignment(
        name="main",
        count=1,
        flavors=dict.fromkeys(sorted(holding.usage), "f"),
        resource_usage={resource: canonical(resource, value) for resource, value in sorted(holding.usage.items())},
    )
    return QuotaReserved(
        workload=WorkloadKey(f"{NAMESPACE}/{holding.name}"),
        uid=Uid(f"uid-{holding.name}"),
        cluster_queue=holding.queue,
        admission=Admission(cluster_queue=holding.queue, pod_set_assignments=(assignment,)),
        message="",
    )


# --- worlds --------------------------------------------------------------------------------------------------------

POLICIES = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
STRATEGIES = (
    ("LessThanOrEqualToFinalShare", "LessThanInitialShare"),
    ("LessThanOrEqualToFinalShare",),
    ("LessThanInitialShare",),
)


def worlds(*, fair: bool = False, flat: bool = False, alone: bool = False) -> st.SearchStrategy[World]:
    """
    Any world: `fair` with fair sharing on, `flat` with one cohort, `alone` without preemption within a queue.

    Each is made of one random seed, evenly: drawn piece by piece, most would have nothing to preempt or to gain by it.
    """
    return st.integers(0, 2**32).map(lambda seed: _world(random.Random(seed), fair=fair, flat=flat, alone=alone))


def _world(rng: random.Random, *, fair: bool, flat: bool, alone: bool) -> World:
    cohorts = 1 if flat else rng.randint(1, 4)
    events: list[EventBase] = []
    for number in range(cohorts):
        parent = f"co{rng.randrange(number)}" if number else ""
        limits = (None, None) if number == 0 else (_limit(rng), _limit(rng))
        quotas = {name: (str(rng.randint(0, 3)), *limits) for name in RESOURCES}
        events.append(_with_weight(cohort(f"co{number}", parent, {"f": quotas}), _weight(rng)))
    queues = [f"cq{number}" for number in range(rng.randint(2, 5))]
    for name in queues:
        quotas = {each: (str(rng.randint(0, 5)), _limit(rng), _limit(rng)) for each in RESOURCES}
        borrow = BorrowWithinCohort(
            policy=rng.choice(("Never", "LowerPriority")), max_priority_threshold=rng.choice((None, 0, 1, 2))
        )
        preemption = Preemption(
            within_cluster_queue="Never" if alone else rng.choice(POLICIES),
            reclaim_within_cohort=rng.choice((*POLICIES, "Any", "Any")),
            borrow_within_cohort=rng.choice((None, borrow)),
        )
        at = f"co{rng.randrange(cohorts)}"
        weight = _weight(rng)
        events.append(cluster_queue(name, {"f": quotas}, cohort_name=at, preemption=preemption, fair_sharing=weight))
    holdings = tuple(
        Holding(
            name=f"w{number}",
            queue=rng.choice(queues),
            usage={name: _units(name, rng.randint(0, 3)) for name in RESOURCES},
            priority=rng.randint(0, 3),
            created_s=rng.randint(0, 3),
            reserved_s=rng.randint(1, 3),
        )
        for number in range(rng.randint(2, 14))
    )
    return World(
        events=tuple(events),
        holdings=holdings,
        queue=rng.choice(queues),
        priority=rng.randint(1, 3),
        created_s=rng.randint(0, 3),
        requests={name: _units(name, rng.randint(1, 4)) for name in RESOURCES},
        configuration=Configuration(
            fair_sharing=FairSharingConfiguration(preemption_strategies=rng.choice(STRATEGIES)) if fair else None,
            feature_gates={"FairSharingPreemptWithinNominal": rng.random() < 0.5},
        ),
    )


def _limit(rng: random.Random) -> str | None:
    return rng.choice((None, None, None, str(rng.randint(0, 6))))


def _weight(rng: random.Random) -> FairSharing:
    return FairSharing(weight=rng.choice((None, "0", "500m", "1", "2")))


def _units(resource: str, value: int) -> int:
    return value * 1000 if resource == "cpu" else value


def _with_weight(event: Any, weight: FairSharing) -> EventBase:
    changed: EventBase = msgspec.structs.replace(event, spec=msgspec.structs.replace(event.spec, fair_sharing=weight))
    return changed
