"""
Descriptions for users: amounts, durations, and what a parked workload waits for.

The explanation (`headgate.core.views.explain`) and the command line use the same wording because both call this module.
Everything is derived from a State and is pure; no program parses it.
"""

from datetime import UTC, datetime
from fractions import Fraction
from typing import NamedTuple, assert_never

from headgate.core.config.feature_gates import DEFAULTS
from headgate.core.fold.objects import ANY as FREED_ANY
from headgate.core.kubernetes.quantities import amount
from headgate.core.queueing.wake_conditions import Unused
from headgate.core.quota.cohorts import root_of
from headgate.core.quota.tree import quotas_of
from headgate.core.state.tables import FlavorResource, Parked, State, Workload
from headgate.events.configuration import Configuration
from headgate.events.ids import Seq, UnixMs
from headgate.events.objects import Admission, ResourceGroup
from headgate.events.queueing import Needs, ObjectChanged, QuotaFreed, TimePassed, Wake

_BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_BYTES = frozenset({"memory", "ephemeral-storage"})


def format_amount(resource: str, value: int) -> str:
    """An amount (milli-units of cpu, whole units of all else) as a readable quantity: 1.5, 4Gi, 12."""
    if resource == "cpu":
        return f"{value / 1000:g}"
    if resource in _BYTES or resource.startswith("hugepages-"):
        for power, suffix in zip(range(6, 0, -1), _BINARY, strict=True):
            unit = 1024**power
            if abs(value) >= unit:
                exact = Fraction(value, unit)
                return f"{exact.numerator}{suffix}" if exact.denominator == 1 else f"{float(exact):.4g}{suffix}"
    return str(value)


def format_span(span_ms: int) -> str:
    """A duration in at most two units: 840ms, 12.3s, 4m05s, 3h20m, 2d4h."""
    if span_ms < 1000:
        return f"{span_ms}ms"
    if span_ms < 60_000:
        return f"{span_ms / 1000:.1f}s"
    seconds = span_ms // 1000
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    if seconds < 86_400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
    return f"{seconds // 86_400}d{seconds % 86_400 // 3600}h"


def format_time(at_ms: UnixMs) -> str:
    """A moment as RFC 3339 in UTC with milliseconds."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03}Z"


def describe_configuration(configuration: Configuration) -> str:
    """What a configuration sets, in Kueue's terms and order; "defaults" when it sets nothing."""
    said: list[str] = []
    if configuration.fair_sharing is not None:
        said.append(f"fairSharing ({', '.join(configuration.fair_sharing.preemption_strategies)})")
    usage = configuration.admission_fair_sharing
    if usage is not None:
        half_life = format_span(usage.usage_half_life_ms)
        said.append(
            f"admissionFairSharing (half-life {half_life}, every {format_span(usage.usage_sampling_interval_ms)})"
        )
    waiting = configuration.wait_for_pods_ready
    if waiting is not None:
        blocks = ", blocks admission" if waiting.block_admission else ""
        said.append(f"waitForPodsReady ({format_span(waiting.timeout_ms)}{blocks})")
    resources = configuration.resources
    if resources.exclude_resource_prefixes:
        said.append(f"excludeResourcePrefixes ({', '.join(resources.exclude_resource_prefixes)})")
    if resources.transformations:
        said.append(f"transformations ({', '.join(each.input for each in resources.transformations)})")
    if resources.quota_check_strategy:
        said.append(f"quotaCheckStrategy {resources.quota_check_strategy}")
    retention = configuration.object_retention_policies
    for name, kept_ms in (
        ("afterFinished", retention.after_finished_ms),
        ("afterDeactivatedByKueue", retention.after_deactivated_by_kueue_ms),
    ):
        if kept_ms is not None:
            said.append(f"{name} {format_span(kept_ms)}")
    said += [
        f"{gate}={str(is_on).lower()}"
        for gate, is_on in sorted(configuration.feature_gates.items())
        if is_on != DEFAULTS.get(gate)
    ]
    if configuration.preemption_waits:
        said.append("preemption waits for quota that comes free by itself")
    return ", ".join(said) or "defaults"


class Totals(NamedTuple):
    """What a cohort tree holds of one flavor-resource, and the sum of the nominal quotas of its members."""

    used: int
    nominal: int


def nominal_quotas(groups: tuple[ResourceGroup, ...]) -> dict[FlavorResource, int]:
    """The nominal quota of every flavor-resource of some resource groups, in manifest order."""
    return {flavor_resource: quota.nominal for flavor_resource, quota in quotas_of(groups).items()}


def tree_totals(state: State, tree: str) -> dict[FlavorResource, Totals]:
    """Usage and nominal quota of a cohort tree, by flavor-resource."""
    totals: dict[FlavorResource, Totals] = {}

    def add(flavor_resource: FlavorResource, used: int, nominal: int) -> None:
        old = totals.get(flavor_resource, Totals(0, 0))
        totals[flavor_resource] = Totals(old.used + used, old.nominal + nominal)

    for name, its_tree in state.index.trees.items():
        if its_tree == tree:
            for flavor_resource, nominal in nominal_quotas(state.cluster_queues[name].spec.resource_groups).items():
                add(flavor_resource, 0, nominal)
            for flavor_resource, used in state.index.usage.get(name, {}).items():
                add(flavor_resource, used, 0)
    for name, cohort in state.cohorts.items():
        if root_of(name, state.cohorts) == tree:
            for flavor_resource, nominal in nominal_quotas(cohort.spec.resource_groups).items():
                add(flavor_resource, 0, nominal)
    return totals


def describe_tree(tree: str) -> str:
    """The display name of a cohort tree."""
    kind, _, name = tree.partition("/")
    return f"ClusterQueue {name}" if kind == "ClusterQueue" and name else f"cohort {tree}"


SPEC_CHANGE = "a change of the ClusterQueue, its cohort, flavors or checks"
"""The description of `*` among the flavor-resources: a workload waits for a change that no freed quota can replace."""


def describe_short(short: tuple[str, ...]) -> str:
    """What was missing according to a verdict, as the end of a sentence; "" when the verdict has none."""
    if FREED_ANY in short:
        return f", and only {SPEC_CHANGE} can help"
    return f", short of {', '.join(short)}" if short else ""


WAYS_TOLD_MAX = 4
"""How many of the alternatives to admit a workload are listed; with more, only their number is shown."""


def describe_wake(wake: Wake, state: State, cluster_queue: str = "") -> str:
    """
    What a wake condition waits for, with current amounts where they are informative.

    `cluster_queue` is the queue of the parked workload: what is available there, in this state, is included.
    """
    match wake:
        case QuotaFreed():
            where, room = describe_tree(wake.tree), _room(wake.flavor_resources)
            if wake.needs:
                quota = f"unused quota in {where}: {describe_needs(wake.needs, state, cluster_queue)}"
                return f"{quota}, and {room}" if room else quota
            if FREED_ANY in wake.flavor_resources:
                return SPEC_CHANGE
            if not wake.flavor_resources:
                return f"quota to be freed or raised in {where}"
            totals = tree_totals(state, wake.tree)
            parts = [_in_use(flavor_resource, totals) for flavor_resource in wake.flavor_resources]
            return f"quota of {', '.join(parts)} to be freed or raised in {where}"
        case ObjectChanged():
            return f"{wake.kind} {wake.name} to be created or to change"
        case TimePassed():
            return f"the time {format_time(wake.at_ms)}"
        case _:
            assert_never(wake)


def describe_needs(needs: Needs, state: State, cluster_queue: str = "") -> str:
    """What has to be unused at once, and how much of it is: "16 cpu of on-demand (8 available), or 16 cpu of spot"."""
    unused = Unused(state)
    told = [_way(way, unused, cluster_queue) for way in needs[:WAYS_TOLD_MAX]]
    left = len(needs) - len(told)
    return ", or ".join([*told, *([f"{left} more ways" if left > 1 else "one more way"] if left else [])])


def _way(way: dict[str, str], unused: Unused, cluster_queue: str) -> str:
    """What an alternative lacks; all that it needs when none of it is known to be lacking."""
    lacking = {name: quantity for name, quantity in way.items() if unused.lacking(cluster_queue, {name: quantity})}
    return " and ".join(_part(name, quantity, unused, cluster_queue) for name, quantity in (lacking or way).items())


def _part(name: str, quantity: str, unused: Unused, cluster_queue: str) -> str:
    flavor, _, resource = name.partition("/")
    there = unused.of(cluster_queue, name)
    available = "" if there is None else f" ({format_amount(resource, there)} available)"
    return f"{format_amount(resource, amount(resource, quantity))} {resource} of {flavor}{available}"


def _room(flavor_resources: tuple[str, ...]) -> str:
    """The flavors in whose topology there was no room, as keys `<flavor>/*`."""
    flavors = [name.removesuffix("/*") for name in flavor_resources if name.endswith("/*")]
    return f"room for its pods in the topology of {', '.join(flavors)}" if flavors else ""


def _in_use(name: str, totals: dict[FlavorResource, Totals]) -> str:
    flavor, _, resource = name.partition("/")
    total = totals.get((flavor, resource))
    if total is None:
        return name
    return f"{name} ({format_amount(resource, total.used)} of {format_amount(resource, total.nominal)} in use)"


def describe_wakes(parked: Parked, state: State, cluster_queue: str = "") -> str:
    """All that can wake a workload that is parked in a ClusterQueue, as one phrase."""
    told = ", or ".join(describe_wake(wake, state, cluster_queue) for wake in parked.wake)
    return told or "a condition that is not recorded yet"


def sleep_of(state: State, workload: Workload) -> Parked | None:
    """
    Why a QUEUED workload may not be offered: its sleeping shape, or the blocking head before it; None when it may.

    While only the verdict is in the log, and not yet the queue manager's wake conditions, it comes from the verdict.
    """
    sleep = state.sleeps.get(workload.cluster_queue)
    if sleep is None:
        return None
    if workload.shape in sleep.shapes:
        return sleep.shapes[workload.shape] or _UNDECIDED
    queue = state.index.pending.get(workload.cluster_queue)
    if not sleep.blocked_by or queue is None or queue.blocked is None or workload.key not in queue:
        return None
    return (sleep.blocked or _UNDECIDED) if queue.rank_of(workload.key) >= queue.blocked else None


def place_in_line(state: State, workload: Workload) -> tuple[int, int]:
    """
    A queued or offered workload's place in its ClusterQueue (from 1) and how many workloads are in line there.

    Those already offered to the scheduler come first, as they are decided first.
    """
    offered = tuple(state.index.offered.get(workload.cluster_queue, ()))
    queue = state.index.pending.get(workload.cluster_queue)
    waiting = [key for key, _ in queue.in_order()] if queue is not None else []
    line = [*offered, *waiting]
    return (line.index(workload.key) + 1 if workload.key in line else 0), len(line)


_UNDECIDED = Parked(
    reason="NoFit",
    message="the scheduler did not admit it; the queue manager has not recorded yet what would make it admissible",
    wake=(),
    since=Seq(0),
    decided_at=Seq(0),
)


def describe_admission(admission: Admission) -> str:
    """The flavors and amounts of a reservation."""
    said = []
    for assignment in admission.pod_set_assignments:
        what = ", ".join(
            f"{assignment.resource_usage.get(resource, 0)} {resource} of {flavor}"
            for resource, flavor in sorted(assignment.flavors.items())
        )
        said.append(f"{assignment.count} x {assignment.name} ({what or 'nothing charged'})")
    return "; ".join(said) or "nothing charged"
