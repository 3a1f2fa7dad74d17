"""
Admission fair sharing: LocalQueues of a ClusterQueue with less recent usage come first (KEP-4136).

A LocalQueue's consumed usage is an exponentially decaying mean: usage of one half-life ago counts half. It is updated
when one of its workloads is admitted and by the queue manager's `local_queues.sampled`, always to the time of that
commit. It does not change in between, so that every process and every replay has the same value. A reservation is
charged an entry penalty at once, about what one sampling interval of the workload would add. The penalty becomes
consumed usage when the workload is admitted.

This module computes; `headgate.core.fold.usage` keeps the records (`Tables.local_queue_usage`). The order is used by
`headgate.core.quota.usage_order` (pending queues), `headgate.core.plan` and the candidate order of preemption. The
cycle reads the penalty of its reservations.

Amounts are exact decimals of base units (cores, bytes) to nine digits, rounded down, as in Kueue. The one irrational
step, a power of 0.5, is computed in decimal and rounded to a double: `math.pow` may differ between machines.
"""

from collections.abc import Iterable, Mapping
from decimal import ROUND_DOWN, Context, Decimal

from headgate.core.config import feature_gates
from headgate.core.config.feature_gates import enabled
from headgate.core.kubernetes.quantities import parse_quantity, parse_weight
from headgate.core.quota.activeness import is_left_alone
from headgate.core.state.attribution import about
from headgate.core.state.tables import State
from headgate.events.configuration import AdmissionFairSharingConfiguration, Configuration
from headgate.events.ids import LocalQueueKey, UnixMs
from headgate.events.objects import ClusterQueueSpec, LocalQueueSpec

USAGE_BASED = "UsageBasedAdmissionFairSharing"

Consumed = dict[str, Decimal]
"""Resource to an exact amount in base units: 0.5 cores, 1024 bytes."""

_HALF = Decimal("0.5")
_NANO = Decimal("1e-9")
_CONTEXT = Context(prec=60, rounding=ROUND_DOWN, Emax=999_999, Emin=-999_999)


def settings(configuration: Configuration) -> AdmissionFairSharingConfiguration | None:
    """The configuration of admission fair sharing; None when it is off."""
    if not enabled(configuration, feature_gates.ADMISSION_FAIR_SHARING):
        return None
    return configuration.admission_fair_sharing


def is_usage_based(configuration: Configuration, spec: ClusterQueueSpec) -> bool:
    """Whether a ClusterQueue of this spec orders its workloads by the usage of their LocalQueues."""
    if spec.admission_scope is None or spec.admission_scope.admission_mode != USAGE_BASED:
        return False
    return settings(configuration) is not None


def orders_by_usage(state: State, cluster_queue: str) -> bool:
    """Whether a ClusterQueue orders its workloads by the usage of their LocalQueues. A deleted one does not."""
    record = state.cluster_queues.get(cluster_queue)
    return record is not None and is_usage_based(state.configuration, record.spec)


def local_queue_usage(state: State, local_queue: LocalQueueKey) -> float:
    """
    The recent usage of a LocalQueue divided by its weight: less comes first. Infinite if the weight is not positive.

    It compares LocalQueues of one ClusterQueue that orders by usage. A deleted one has weight 1.
    """
    return state.index.local_queue_usage.get(local_queue, 0.0)


def compute_usage(state: State, local_queue: LocalQueueKey) -> float:
    """`local_queue_usage` computed from the tables; the fold keeps the result in the index."""
    configuration = settings(state.configuration)
    if configuration is None:
        return 0.0
    queue = state.local_queues.get(local_queue)
    weight = weight_of(queue.spec) if queue is not None else 1.0
    if weight <= 0:
        return float("inf")
    record = state.local_queue_usage.get(local_queue)
    if record is None:
        return 0.0
    total = 0.0
    amounts = plus(record.consumed, *record.penalties.values())
    for resource in sorted(amounts):
        total += configuration.resource_weights.get(resource, 1.0) * float(amounts[resource])
    return total / weight


def weight_of(spec: LocalQueueSpec) -> float:
    """A LocalQueue's weight; 1 by default."""
    if spec.fair_sharing is None or spec.fair_sharing.weight is None:
        return 1.0
    return parse_weight(spec.fair_sharing.weight)


def entry_penalty(configuration: Configuration, spec: ClusterQueueSpec, requests: Mapping[str, int]) -> dict[str, str]:
    """
    What a reservation costs a workload's LocalQueue at once; empty when its ClusterQueue does not order by usage.

    `requests` are the workload's total requests as amounts (cpu in milli). The result is written into
    `workload.quota_reserved`: resource to a decimal of base units.
    """
    fair = settings(configuration)
    if fair is None or not is_usage_based(configuration, spec):
        return {}
    share = forgotten(fair.usage_sampling_interval_ms, fair.usage_half_life_ms)
    return {resource: format(scaled(of_amount(resource, value), share), "f") for resource, value in requests.items()}


# --- arithmetic ----------------------------------------------------------------------------------------------------


def forgotten(elapsed_ms: int, half_life_ms: int) -> float:
    """The decayed share of the past after a time: 1 - 0.5^(elapsed/half-life). 0 without a half-life."""
    if half_life_ms <= 0:
        return 0.0
    halvings = _CONTEXT.divide(Decimal(max(0, elapsed_ms)), Decimal(half_life_ms))
    return 1.0 - float(_CONTEXT.power(_HALF, halvings))


def decayed(consumed: Consumed, used: Mapping[str, Decimal], elapsed_ms: int, half_life_ms: int) -> Consumed:
    """Consumed usage after `used` was in use for a time: the mean of both, weighted by the decayed share."""
    share = forgotten(elapsed_ms, half_life_ms)
    old = {resource: scaled(value, 1.0 - share) for resource, value in consumed.items()}
    new = {resource: scaled(value, share) for resource, value in used.items()}
    return plus(old, new)


def scaled(value: Decimal, factor: float) -> Decimal:
    """A fraction of an amount, to nine digits, rounded down."""
    return _CONTEXT.quantize(_CONTEXT.multiply(value, Decimal(repr(factor))), _NANO)


def plus(*amounts: Mapping[str, Decimal]) -> Consumed:
    """The sum by resource, without zeros."""
    total: Consumed = {}
    for each in amounts:
        for resource, value in each.items():
            total[resource] = _CONTEXT.add(total.get(resource, Decimal(0)), value)
    return {resource: value for resource, value in total.items() if value}


def of_amount(resource: str, value: int) -> Decimal:
    """An amount (`headgate.core.kubernetes.quantities`) in base units."""
    return _CONTEXT.divide(Decimal(value), Decimal(1000)) if resource == "cpu" else Decimal(value)


def of_quantities(quantities: Mapping[str, str | int | float]) -> Consumed:
    """Quantities as exact amounts, to nine digits. Raises QuantityError."""
    exact = {resource: parse_quantity(value) for resource, value in quantities.items()}
    return {
        resource: _CONTEXT.quantize(_CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator)), _NANO)
        for resource, value in exact.items()
        if value
    }


# --- when ----------------------------------------------------------------------------------------------------------


def sampled_next_ms(state: State, local_queue: LocalQueueKey) -> UnixMs | None:
    """When a LocalQueue's usage is to be sampled next; None when there is nothing to sample."""
    fair = settings(state.configuration)
    record = state.local_queue_usage.get(local_queue)
    if fair is None or record is None:
        return None
    return UnixMs(record.last_update_ms + max(1, fair.usage_sampling_interval_ms))


def due(state: State, now_ms: UnixMs) -> tuple[tuple[LocalQueueKey, ...], UnixMs | None]:
    """The LocalQueues whose sampling interval is over, ordered by name, and the next sampling time of the others."""
    over: list[LocalQueueKey] = []
    soonest: UnixMs | None = None
    for queue in sorted(state.local_queue_usage):
        if is_left_alone(state, "LocalQueue", queue):
            continue
        with about("LocalQueue", queue):
            at_ms = sampled_next_ms(state, queue)
        if at_ms is None:
            continue
        if at_ms <= now_ms:
            over.append(queue)
        elif soonest is None or at_ms < soonest:
            soonest = at_ms
    return tuple(over), soonest


def shown(consumed: Iterable[tuple[str, Decimal]]) -> dict[str, str]:
    """Consumed amounts as quantities for a status: whole or decimal, without trailing zeros."""
    return {resource: _quantity(value) for resource, value in sorted(consumed)}


def _quantity(value: Decimal) -> str:
    text = format(value, "f")
    if "." not in text:
        return text
    whole, _, digits = text.partition(".")
    digits = digits.rstrip("0")
    if not digits:
        return whole
    for places, suffix in ((3, "m"), (6, "u"), (9, "n")):
        if len(digits) <= places:
            return f"{int(whole + digits.ljust(places, '0'))}{suffix}"
    raise AssertionError(f"{value} has more than nine digits")
