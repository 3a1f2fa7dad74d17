"""The quota tree: Kueue's arithmetic, checked against its definitions read naively."""

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.cells import NAMESPACE, Cell, cluster_queue, cohort, pod_set

from headgate.core.flavors.catalog import Catalog
from headgate.core.kubernetes.quantities import UNLIMITED
from headgate.core.quota.cache import Forest
from headgate.core.quota.structural import is_structural
from headgate.core.quota.tree import Ledger, Level, Quota, QuotaNode, QuotaTree
from headgate.events.base import Producer
from headgate.events.decisions import QuotaReserved
from headgate.events.facts import (
    ClusterQueueDeleted,
    CohortDeleted,
    ResourceFlavorDeleted,
    ResourceFlavorObserved,
    WorkloadObserved,
)
from headgate.events.ids import Uid, UnixMs, WorkloadKey
from headgate.events.objects import Admission, PodSetAssignment, ResourceFlavorSpec, WorkloadSpec

FR = ("f", "gpu")
limit = st.none() | st.integers(0, 12)
quota = st.tuples(st.integers(0, 12), limit, limit)


@st.composite
def cells(draw: Any) -> Cell:
    """A tree of up to three levels of cohorts, with ClusterQueues at every level."""
    cohorts = draw(st.integers(1, 4))
    events: list[Any] = []
    for number in range(cohorts):
        parent = f"co{draw(st.integers(0, number - 1))}" if number else ""
        own = [{"f": {"gpu": draw(quota)}}] if draw(st.booleans()) else []
        if number == 0 and own:
            own = [{"f": {"gpu": (draw(st.integers(0, 12)), None, None)}}]
        events.append(cohort(f"co{number}", parent, *own))
    for number in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, cohorts - 1))
        events.append(cluster_queue(f"cq{number}", {"f": {"gpu": draw(quota)}}, cohort_name=f"co{at}"))
    return Cell(*events)


def tree_of(cell: Cell) -> QuotaTree:
    return Forest(cell.state).tree("co0")


class Naive:
    """The definitions of kueue-semantics section 5, word by word, from the specs and the ClusterQueues' usage."""

    def __init__(self, tree: QuotaTree, held: dict[str, int]) -> None:
        self.tree, self.held = tree, held

    def subtree(self, node: QuotaNode) -> int:
        return node.quota(FR).nominal + sum(self.subtree(child) - self.local(child) for child in node.children)

    def local(self, node: QuotaNode) -> int:
        lending = node.quota(FR).lending_limit
        return 0 if lending is None else max(0, self.subtree(node) - lending)

    def usage(self, node: QuotaNode) -> int:
        if not node.is_cohort:
            return self.held.get(node.name, 0)
        return sum(max(0, self.usage(child) - self.local(child)) for child in node.children)

    def available(self, node: QuotaNode) -> int:
        if node.parent is None:
            return self.subtree(node) - self.usage(node)
        above = self.available(node.parent)
        borrowing = node.quota(FR).borrowing_limit
        if borrowing is not None:
            stored = max(0, self.usage(node) - self.local(node))
            above = min(above, self.subtree(node) - self.local(node) - stored + borrowing)
        return max(0, self.local(node) - self.usage(node)) + above

    def potential(self, node: QuotaNode) -> int:
        if node.parent is None:
            return self.subtree(node)
        most = self.local(node) + self.potential(node.parent)
        borrowing = node.quota(FR).borrowing_limit
        return most if borrowing is None else min(most, self.subtree(node) + borrowing)


def held_in(tree: QuotaTree, amounts: list[int]) -> dict[str, int]:
    return dict(zip(tree.cluster_queues, amounts, strict=False))


@given(cells(), st.lists(st.integers(0, 15), min_size=4, max_size=4))
def test_every_number_is_what_its_definition_says(cell: Cell, amounts: list[int]) -> None:
    """Subtree and local quota, usage, available and potentially available, at every node of any tree."""
    tree = tree_of(cell)
    held = held_in(tree, amounts)
    ledger = Ledger(tree, {name: {FR: value} for name, value in held.items()})
    naive = Naive(tree, held)
    for node in tree.nodes:
        assert tree.limits(FR).subtree[node.index] == naive.subtree(node)
        assert tree.limits(FR).local[node.index] == naive.local(node)
        assert tree.potential_available(node, FR) == naive.potential(node)
        assert ledger.usage(node, FR) == naive.usage(node)
        assert ledger.available(node, FR) == naive.available(node)


steps = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=8)


@given(cells(), steps)
def test_charging_step_by_step_equals_charging_at_once(cell: Cell, charges: list[tuple[int, int]]) -> None:
    """A ledger that was charged has the usage of one that is made with that usage held."""
    tree = tree_of(cell)
    names = list(tree.cluster_queues)
    held: dict[str, int] = {}
    ledger = Ledger(tree, {})
    for at, value in charges:
        name = names[at % len(names)]
        ledger.add(tree.cluster_queues[name], FR, value)
        held[name] = held.get(name, 0) + value
    fresh = Ledger(tree, {name: {FR: value} for name, value in held.items()})
    assert [ledger.usage(node, FR) for node in tree.nodes] == [fresh.usage(node, FR) for node in tree.nodes]


@given(cells(), steps, st.randoms(use_true_random=False))
def test_what_is_charged_and_taken_back_leaves_nothing(cell: Cell, charges: list[tuple[int, int]], order: Any) -> None:
    """Charges can be taken back in any order; the usage of every node returns to what it was."""
    tree = tree_of(cell)
    names = list(tree.cluster_queues)
    ledger = Ledger(tree, {})
    for at, value in charges:
        ledger.add(tree.cluster_queues[names[at % len(names)]], FR, value)
    order.shuffle(charges)
    for at, value in charges:
        ledger.remove(tree.cluster_queues[names[at % len(names)]], FR, value)
    assert [ledger.usage(node, FR) for node in tree.nodes] == [0] * len(tree.nodes)


@given(cells(), steps)
def test_charging_only_what_fits_never_exceeds_any_quota(cell: Cell, charges: list[tuple[int, int]]) -> None:
    """No ClusterQueue uses more than is potentially available, no cohort more than its subtree has and may borrow."""
    tree = tree_of(cell)
    names = list(tree.cluster_queues)
    ledger = Ledger(tree, {})
    for at, value in charges:
        node = tree.cluster_queues[names[at % len(names)]]
        if ledger.fits(node, {FR: value}):
            ledger.add(node, FR, value)
    root = tree.nodes[-1]
    assert ledger.usage(root, FR) <= tree.limits(FR).subtree[root.index]
    for node in tree.nodes:
        if not node.is_cohort:
            assert ledger.usage(node, FR) <= tree.potential_available(node, FR)
        borrowing = node.quota(FR).borrowing_limit
        if borrowing is not None and node.parent is not None:
            limits = tree.limits(FR)
            stored = max(0, ledger.usage(node, FR) - limits.local[node.index])
            assert stored <= limits.subtree[node.index] - limits.local[node.index] + borrowing


def test_the_borrowing_level_is_the_height_of_the_lowest_subtree_that_fits() -> None:
    """0 at home, then cohort by cohort; only below the root others may be made to give back."""
    cell = Cell(
        cohort("root"),
        cohort("mid", "root"),
        cluster_queue("a", {"f": {"gpu": 2}}, cohort_name="mid"),
        cluster_queue("b", {"f": {"gpu": 3}}, cohort_name="mid"),
        cluster_queue("c", {"f": {"gpu": 10}}, cohort_name="root"),
    )
    tree = Forest(cell.state).tree("root")
    ledger, node = Ledger(tree, {}), tree.cluster_queues["a"]
    levels = [ledger.borrowing_level(node, FR, value) for value in (2, 5, 15, 16)]
    assert levels == [Level(0, True), Level(1, True), Level(2, False), Level(2, False)]


def test_a_charge_of_less_than_nothing_stays_with_its_cluster_queue() -> None:
    """
    A head that waits where more is used than may be borrowed claims less than nothing; its cohort has no more for that.

    `addUsage` (pkg/cache/scheduler/resource_node.go) charges a parent only for what exceeds the local quota left.
    """
    cell = Cell(
        cluster_queue("a", {"f": {"gpu": 3}}, cohort_name="named"),
        cluster_queue("b", {"f": {"gpu": 9}}, cohort_name="named"),
    )
    tree = Forest(cell.state).tree("named")
    ledger, node = Ledger(tree, {"a": {FR: 8}}), tree.cluster_queues["a"]
    ledger.add(node, FR, -4)
    assert (ledger.usage(node, FR), ledger.usage(tree.cohorts["named"], FR)) == (4, 8)


def test_a_lone_cluster_queue_never_borrows() -> None:
    """Without a cohort the level is 0 and there is none to reclaim from."""
    cell = Cell(cluster_queue("a", {"f": {"gpu": 2}}))
    tree = Forest(cell.state).tree_of("a")
    assert Ledger(tree, {}).borrowing_level(tree.cluster_queues["a"], FR, 9) == Level(0, False)


def test_a_cohort_that_is_only_named_is_a_node_without_quota() -> None:
    """It shares what its members have."""
    cell = Cell(
        cluster_queue("a", {"f": {"gpu": 2}}, cohort_name="named"),
        cluster_queue("b", {"f": {"gpu": (3, None, 1)}}, cohort_name="named"),
    )
    tree = Forest(cell.state).tree("named")
    assert tree.cohorts["named"].quota(FR) == Quota(0)
    assert [tree.potential_available(node, FR) for node in tree.cluster_queues.values()] == [3, 5]


def test_an_unlimited_quota_stays_unlimited_when_it_is_lent() -> None:
    """Sums saturate: a huge quota next to another is not less than it was alone."""
    cell = Cell(
        cluster_queue("a", {"f": {"cpu": "9e18"}}, cohort_name="co"),
        cluster_queue("b", {"f": {"cpu": 3}}, cohort_name="co"),
    )
    tree = Forest(cell.state).tree("co")
    node = tree.cluster_queues["b"]
    ledger = Ledger(tree, {})
    before = ledger.available(node, ("f", "cpu"))
    ledger.add(node, ("f", "cpu"), 10**12)
    assert ledger.available(node, ("f", "cpu")) == before == 2**63 - 1


def test_a_cycle_of_cohorts_is_seen_and_has_no_tree() -> None:
    """Such a tree has no root; every ClusterQueue below it is not active."""
    cell = Cell(cohort("x", "y"), cohort("y", "x"), cluster_queue("a", {"f": {"gpu": 1}}, cohort_name="x"))
    assert Forest(cell.state).has_cycle(cell.state.index.trees["a"])


# --- what is kept --------------------------------------------------------------------------------------------------


def shown(tree: QuotaTree) -> list[tuple[Any, ...]]:
    """A tree as plain values."""
    return [
        (node.name, node.parent.name if node.parent else "", node.height, node.weight, dict(node.quotas), node.active)
        for node in tree.nodes
    ]


@given(st.integers(0, 2**32))
def test_a_forest_that_is_told_of_changes_is_the_one_that_would_be_made_anew(seed: int) -> None:
    """Trees and usage, after any changes of ClusterQueues, cohorts, flavors and reservations, evaluated at any time."""
    rng = random.Random(seed)
    cell = Cell(cluster_queue("cq0", {"f": {"gpu": "4"}}, cohort_name="co0"))
    log, catalog = cell.log, Catalog(cell.state)
    for step in range(12):
        event = _any_change(rng, cell, step)
        producer = Producer.SCHEDULER if isinstance(event, QuotaReserved) else Producer.INFORMER_BRIDGE
        log.append(producer, event, decided_at=log.state.position)
        if is_structural(event):
            catalog.change(event)
        anew = Catalog(cell.state)
        for name in sorted(cell.state.cluster_queues):
            if rng.random() < 0.5:
                continue
            tree = cell.state.index.trees[name]
            assert catalog.forest.has_cycle(tree) == anew.forest.has_cycle(tree)
            if anew.forest.has_cycle(tree):
                continue
            kept, fresh = catalog.forest.ledger(tree), anew.forest.ledger(tree)
            assert shown(kept.tree) == shown(fresh.tree)
            assert kept.column(FR) == fresh.column(FR)
            queue = catalog.queue(name)
            assert queue is not None
            assert queue.node is kept.tree.cluster_queues[name]


def _any_change(rng: random.Random, cell: Cell, step: int) -> Any:
    name, at = f"cq{rng.randrange(4)}", f"co{rng.randrange(4)}"
    match rng.randrange(7):
        case 0 | 1:
            quotas = {"f": {"gpu": (rng.randint(0, 5), rng.choice((None, 2)), rng.choice((None, 1)))}}
            return cluster_queue(
                name, quotas, cohort_name=rng.choice((at, "")), stop_policy=rng.choice(("None", "Hold"))
            )
        case 2:
            return ClusterQueueDeleted(name=name)
        case 3:
            return cohort(at, rng.choice(("", f"co{rng.randrange(4)}")), {"f": {"gpu": rng.randint(0, 5)}})
        case 4:
            return CohortDeleted(name=at)
        case 5:
            return rng.choice(
                (ResourceFlavorDeleted(name="f"), ResourceFlavorObserved(name="f", spec=ResourceFlavorSpec()))
            )
        case _:
            key, uid = WorkloadKey(f"{NAMESPACE}/w{step}"), Uid(f"uid{step}")
            name = rng.choice(sorted(cell.state.cluster_queues) or ["cq0"])
            spec = WorkloadSpec(queue_name=name, pod_sets=(pod_set({"gpu": 1}),))
            cell.log.append(
                Producer.INFORMER_BRIDGE, WorkloadObserved(workload=key, uid=uid, created_ms=UnixMs(0), spec=spec)
            )
            usage = PodSetAssignment(
                name="main", count=1, flavors={"gpu": "f"}, resource_usage={"gpu": rng.randint(1, 4)}
            )
            admission = Admission(cluster_queue=name, pod_set_assignments=(usage,))
            return QuotaReserved(workload=key, uid=uid, cluster_queue=name, admission=admission, message="")


def test_an_inactive_cluster_queue_keeps_its_quota_but_adds_no_height() -> None:
    """Its cohort still has what it lends; but it is no reason to call a request borrowed from farther away."""
    cell = Cell(
        cohort("mid", "root"),
        cluster_queue("a", {"f": {"gpu": 2}}, cohort_name="root"),
        cluster_queue("b", {"f": {"gpu": 3}}, cohort_name="mid", stop_policy="Hold"),
    )
    tree = Forest(cell.state).tree("root")
    assert tree.limits(FR).subtree[tree.cohorts["root"].index] == 5
    assert (tree.cohorts["mid"].height, tree.cohorts["root"].height) == (0, 1)


def test_usage_that_saturates_is_summed_up_again() -> None:
    """What was added to an unlimited amount cannot be taken away from it; what is kept does not try."""
    cell = Cell(cluster_queue("a", {"f": {"gpu": UNLIMITED}}, cohort_name="co"))
    forest, index = Forest(cell.state), cell.state.index
    for held in (1, UNLIMITED, 5, UNLIMITED + 3, 2):
        index.usage["a"] = {FR: held}
        index.changes += 1
        index.changed["a"] = index.changes
        assert forest.ledger("co").column(FR) == Ledger(forest.tree("co"), index.usage).column(FR)
