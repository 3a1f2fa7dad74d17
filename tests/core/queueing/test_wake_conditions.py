"""Needed and available quota: no workload stays asleep that a cycle would admit."""

from typing import Any

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from tests.support.cells import Cell, cluster_queue, cohort, pod_set, reservations, verdicts

from headgate.core.cycle import decide_cycle
from headgate.core.queueing.wake_conditions import Unused
from headgate.events.objects import FlavorFungibility, PodSet, ResourceFlavorSpec, Taint, Toleration

FLAVORS = {
    "one": ResourceFlavorSpec(),
    "two": ResourceFlavorSpec(node_taints=(Taint(key="two", value="", effect="NoSchedule"),)),
    "fast": ResourceFlavorSpec(),
    "slow": ResourceFlavorSpec(),
}


def limits() -> st.SearchStrategy[Any]:
    """A quota, alone or with a borrowing and a lending limit."""
    some = st.none() | st.integers(0, 6).map(str)
    return st.integers(0, 8) | st.tuples(st.integers(0, 8), some, some)


@st.composite
def queues(draw: st.DrawFn) -> Cell:
    """Two ClusterQueues of one tree, each with cpu and memory in two flavors and perhaps gpu in two others."""
    parent = draw(st.sampled_from(("", "root")))
    preempt, borrow = (
        draw(st.sampled_from(("Preempt", "TryNextFlavor"))),
        draw(st.sampled_from(("Borrow", "TryNextFlavor"))),
    )
    events: list[Any] = [cohort("all", parent, {"one": {"cpu": draw(st.integers(0, 4)), "memory": 2}})]
    gpus = draw(st.booleans())
    for name in ("cq", "other"):
        groups = [{flavor: {"cpu": draw(limits()), "memory": draw(limits())} for flavor in ("one", "two")}]
        if gpus:
            groups.append({flavor: {"gpu": draw(limits())} for flavor in ("fast", "slow")})
        strategy = draw(st.sampled_from(("StrictFIFO", "BestEffortFIFO")))
        fungibility = FlavorFungibility(when_can_preempt=preempt, when_can_borrow=borrow)
        events.append(
            cluster_queue(name, *groups, cohort_name="all", queueing_strategy=strategy, flavor_fungibility=fungibility)
        )
    return Cell(*events, flavors={name: spec for name, spec in FLAVORS.items() if gpus or name in ("one", "two")})


@st.composite
def pods(draw: st.DrawFn) -> list[PodSet]:
    """One to three pod sets; one of them may be reduced."""
    sets = []
    reducible = draw(st.integers(0, 3))
    for number in range(draw(st.integers(1, 3))):
        requests = {name: draw(st.integers(0, 3)) for name in ("cpu", "memory")}
        if draw(st.integers(0, 3)) == 0:
            requests["gpu"] = draw(st.integers(0, 2))
        count = draw(st.integers(1, 4))
        fewest = {"min_count": draw(st.integers(1, count))} if number == reducible else {}
        tolerates = TOLERATES if draw(st.booleans()) else {}
        sets.append(pod_set(requests, count, f"set{number}", **fewest, **tolerates))
    return sets


TOLERATES = {"tolerations": (Toleration(key="two", operator="Exists"),)}


def usage(most: int = 8) -> st.SearchStrategy[dict[str, dict[tuple[str, str], int]]]:
    """What the ClusterQueues hold, whatever the limits say: milli-units of cpu, whole units of all else."""
    each = {(flavor, resource): st.integers(0, most) for flavor in ("one", "two") for resource in ("cpu", "memory")}
    each |= {(flavor, "gpu"): st.integers(0, most) for flavor in ("fast", "slow")}

    def amounts(held: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
        return {fr: value * 1000 if fr[1] == "cpu" else value for fr, value in held.items()}

    return st.fixed_dictionaries({name: st.fixed_dictionaries(each).map(amounts) for name in ("cq", "other")})


@settings(max_examples=100)
@given(queues(), pods(), usage(), st.lists(usage(), min_size=1, max_size=4))
def test_a_cycle_admits_nobody_who_would_be_kept_asleep(
    cell: Cell, sets: list[PodSet], before: Any, later: list[Any]
) -> None:
    """Whenever there is not enough of what a verdict needs, the cycle that would be spared would skip it again."""
    cell.submit("cq", "w", *sets)
    cell.state.index.usage.update(before)
    verdict = verdicts(decide_cycle(cell.state)).get("w")
    assume(verdict is not None and verdict.needs)
    assert verdict is not None
    for held in later:
        cell.state.index.usage.update(held)
        enough = Unused(cell.state).enough("cq", verdict.needs)
        admitted = "w" in reservations(decide_cycle(cell.state))
        event(f"enough: {enough}, admitted: {admitted}")
        assert enough or not admitted


@settings(max_examples=60)
@given(queues(), st.integers(1, 6), usage(), usage())
def test_with_one_pod_set_there_is_enough_only_when_a_cycle_admits(
    cell: Cell, cpus: int, before: Any, later: Any
) -> None:
    """No unsuccessful rounds: alone in the cycle, a workload woken because there is enough is admitted."""
    cell.submit("cq", "w", pod_set({"cpu": cpus, "memory": 1}))
    cell.state.index.usage.update(before)
    verdict = verdicts(decide_cycle(cell.state)).get("w")
    assume(verdict is not None and verdict.needs)
    assert verdict is not None
    assert not Unused(cell.state).enough("cq", verdict.needs)
    cell.state.index.usage.update(later)
    assert Unused(cell.state).enough("cq", verdict.needs) == ("w" in reservations(decide_cycle(cell.state)))
