"""
Pods ready: whether the pods of quota holders have started, and the eviction of those whose pods have not.

Kueue's waitForPodsReady. The PodsReady condition of a Job's workload follows from the Job's counters; the fold keeps it
current (`follow`) while the configuration waits for pods, and with Kueue's reasons: WaitForStart until the pods are
ready for the first time, Started, WaitForRecovery when one has failed since, Recovered. That of another workload is
what its integration has written. An admitted workload that is not ready in time is evicted (`deadline`,
`headgate.core.queueing.eviction`), and queues again after a backoff (`requeue_state`) that doubles each time, until the
limit.

One thing differs from Kueue: a Job's workload gets the condition with its first reservation and not while it is
pending, which saves a write; there it has no information.

`all_ready` is what `blockAdmission` waits for. It follows from the holders of quota and their conditions, so it can
come true with a fact about a Job or a Workload, and with each event by which a workload ceases to hold quota.
"""

from hashlib import sha256
from typing import Final, NamedTuple

from headgate.core.kubernetes import conditions
from headgate.core.state.attribution import about
from headgate.core.state.tables import Stage, State, Workload
from headgate.core.workload.owners import job_of
from headgate.core.workload.variants import is_parent, is_variant, parent_key, parent_uid
from headgate.events.configuration import Configuration, RequeuingStrategy
from headgate.events.ids import Uid, UnixMs
from headgate.events.objects import Condition, RequeueState

WAIT_FOR_START: Final = "WaitForStart"
WAIT_FOR_RECOVERY: Final = "WaitForRecovery"
STARTED: Final = "Started"
RECOVERED: Final = "Recovered"
TIMEOUT: Final = "PodsReadyTimeout"
LIMIT_EXCEEDED: Final = "RequeuingLimitExceeded"
WAITING_FOR_PODS_READY: Final = "WaitingForPodsReady"
"""The reason of a workload that fits, but is not admitted before the pods of all others are ready."""

NOT_READY_MESSAGE: Final = "Not all pods are ready or succeeded"
RECOVERY_MESSAGE: Final = "At least one pod has failed, waiting for recovery"
READY_MESSAGE: Final = "All pods reached readiness and the workload is running"

_FORMER_WAIT_FOR_START: Final = "PodsReady"
"""The reason that older versions of Kueue have used for both."""

_JITTER_PARTS: Final = 10_000
"""The wait is lengthened by up to one part in so many, which spreads workloads that were evicted together."""


def condition_of(workload: Workload) -> Condition | None:
    """The PodsReady condition of a workload: the one that is kept here, else the one from others."""
    return conditions.find(workload.conditions, conditions.PODS_READY) or workload.observed_pods_ready


def is_ready(workload: Workload) -> bool:
    """Whether a workload's pods are all ready or have succeeded."""
    condition = condition_of(workload)
    return condition is not None and condition.status == "True"


def all_ready(state: State) -> bool:
    """
    Whether the pods of every workload that holds quota are ready, so that the next may be admitted.

    Always true without blockAdmission in the configuration. A workload under eviction holds quota until its job has
    stopped, and counts like any other. Costs a pass over the holders of quota.
    """
    waiting = state.configuration.wait_for_pods_ready
    if waiting is None or not waiting.block_admission:
        return True
    for holders in state.index.holders.values():
        for key in holders:
            with about("Workload", key):
                if not is_ready(state.workloads[key]):
                    return False
    return True


# --- the condition -------------------------------------------------------------------------------------------------


def follow(state: State, workload: Workload, at_ms: UnixMs) -> None:
    """
    Update a Job's workload's PodsReady condition. Only the fold calls it, after each change it follows from.

    That of a workload under eviction stays: its pods leave on purpose. The pods of an admitted variant are those of its
    parent, and so is its condition.
    """
    if state.configuration.wait_for_pods_ready is None or workload.stage in (Stage.EVICTED, Stage.FINISHED):
        return
    if workload.owner is not None:
        key = parent_key(workload)
        parent = state.workloads.get(key) if key is not None else None
        if parent is not None:
            if parent.uid == parent_uid(workload):
                _mirror(parent, workload)
            return
        _follow_job(state, workload, at_ms)
    if is_parent(workload):
        for member in state.index.owned(workload.uid):
            _mirror(workload, state.workloads[member])


def _mirror(parent: Workload, variant: Workload) -> None:
    """Copy the condition of its parent to an admitted variant, with its times (Kueue's syncPodsReadyCond)."""
    condition = condition_of(parent)
    if condition is not None and variant.stage is Stage.ADMITTED:
        has_one = conditions.find(variant.conditions, conditions.PODS_READY) is not None
        before = variant.conditions if has_one else (*variant.conditions, condition)
        variant.conditions = tuple(condition if each.type == conditions.PODS_READY else each for each in before)


def _follow_job(state: State, workload: Workload, at_ms: UnixMs) -> None:
    record = job_of(state, workload)
    if record is None:
        return
    before = conditions.find(workload.conditions, conditions.PODS_READY)
    if before is None and workload.stage not in (Stage.RESERVED, Stage.ADMITTED):
        return
    if workload.stage is not Stage.ADMITTED:
        _set(workload, "False", WAIT_FOR_START, NOT_READY_MESSAGE, at_ms)
    elif record.job.pods_ready:
        again = before is not None and before.reason in (WAIT_FOR_RECOVERY, RECOVERED)
        _set(workload, "True", RECOVERED if again else STARTED, READY_MESSAGE, at_ms)
    elif before is not None and (before.status == "True" or before.reason == WAIT_FOR_RECOVERY):
        _set(workload, "False", WAIT_FOR_RECOVERY, RECOVERY_MESSAGE, at_ms)
    else:
        _set(workload, "False", WAIT_FOR_START, NOT_READY_MESSAGE, at_ms)


def _set(workload: Workload, status: str, reason: str, message: str, at_ms: UnixMs) -> None:
    """Set the condition. As in Kueue it stays as it is while its status and reason do."""
    before = conditions.find(workload.conditions, conditions.PODS_READY)
    if before is not None and (before.status, before.reason) == (status, reason):
        return
    workload.conditions = conditions.put(
        workload.conditions,
        conditions.PODS_READY,
        "True" if status == "True" else "False",
        reason,
        message,
        at_ms,
        workload.generation,
    )


# --- deadlines -------------------------------------------------------------------------------------------------------


class Deadline(NamedTuple):
    """Until when a workload's pods have to be ready, and the cause of its eviction after that."""

    at_ms: UnixMs
    cause: str


def deadline(workload: Workload, configuration: Configuration) -> Deadline | None:
    """Until when an admitted workload's pods have to be ready; None when they are, or without waitForPodsReady."""
    waiting = configuration.wait_for_pods_ready
    if waiting is None or workload.stage is not Stage.ADMITTED or is_variant(workload):
        # The pods are those of a variant's parent.
        return None
    condition = condition_of(workload)
    if condition is None or (
        condition.status != "True" and condition.reason in (WAIT_FOR_START, _FORMER_WAIT_FOR_START)
    ):
        return Deadline(UnixMs(workload.admitted_at_ms + waiting.timeout_ms), WAIT_FOR_START)
    if condition.status == "True" or condition.reason != WAIT_FOR_RECOVERY or waiting.recovery_timeout_ms is None:
        return None
    try:
        since_ms = conditions.parse_rfc3339(condition.last_transition_time)
    except ValueError:
        since_ms = workload.admitted_at_ms
    return Deadline(UnixMs(since_ms + waiting.recovery_timeout_ms), WAIT_FOR_RECOVERY)


def is_limit_reached(workload: Workload, strategy: RequeuingStrategy) -> bool:
    """Whether a workload has reached its limit of requeues for its pods: it is deactivated instead."""
    if strategy.backoff_limit_count is None:
        return False
    return requeued_count(workload) + 1 > strategy.backoff_limit_count


def requeued_count(workload: Workload) -> int:
    """How often a workload has been requeued because its pods were not ready in time."""
    return (workload.requeue_state.count or 0) if workload.requeue_state is not None else 0


def requeue_state(workload: Workload, strategy: RequeuingStrategy, now_ms: UnixMs) -> RequeueState:
    """
    The requeue state after one more eviction because pods were not ready in time: its count and its requeue time.

    A later time from an admission check stays. Fractions of a second are cut off, as the API does.
    """
    count = requeued_count(workload) + 1
    text = conditions.rfc3339(UnixMs(now_ms + backoff_ms(workload.uid, count, strategy)))
    asked = workload.requeue_state.requeue_at if workload.requeue_state is not None else None
    if asked is not None and _is_later(asked, text):
        text = asked
    return RequeueState(count=count, requeue_at=text)


def backoff_ms(uid: Uid, count: int, strategy: RequeuingStrategy) -> int:
    """
    How long a workload waits before it queues again for the `count`th time, in milliseconds.

    base * 2 ** (count - 1), at most the maximum but for the first time, and up to 0.01 % more (Kueue's
    UpdateRequeueState with apimachinery's wait.Backoff). Where Kueue draws the jitter at random, here it follows from
    the uid and the count, so that a replay gives the same.
    """
    base_ms, max_ms = strategy.backoff_base_s * 1000, strategy.backoff_max_s * 1000
    wait_ms = base_ms
    for _ in range(count - 1):
        if max_ms and wait_ms * 2 > max_ms:
            wait_ms = max_ms
            break
        wait_ms *= 2
    drawn = int.from_bytes(sha256(f"{uid}/{count}".encode()).digest()[:4])
    return wait_ms + wait_ms * drawn // (2**32 * _JITTER_PARTS)


def _is_later(text: str, than: str) -> bool:
    try:
        return conditions.parse_rfc3339(text) > conditions.parse_rfc3339(than)
    except ValueError:
        return False
