"""
The fold of LocalQueue usage: what admitted workloads hold, and the records of admission fair sharing.

Called by the other folds only. `Index.admitted_usage` is kept whether or not admission fair sharing is on, records
(`Tables.local_queue_usage`) only while it is. Every change also updates `Index.local_queue_usage`, the order of
LocalQueues.

An existing LocalQueue with admitted workloads has a record, a deleted one has none.

Times are `State.now_ms`, which never goes back: no usage is ever recorded for a negative time.
"""

from headgate.core.kubernetes.quantities import QuantityError
from headgate.core.quota.admission_fair_sharing import (
    Consumed,
    compute_usage,
    decayed,
    of_amount,
    of_quantities,
    orders_by_usage,
    plus,
    settings,
)
from headgate.core.state.tables import FlavorResource, State, UsageRecord, Workload
from headgate.events.commit import Commit
from headgate.events.facts import LocalQueueObserved
from headgate.events.ids import LocalQueueKey, Seq, WorkloadKey, split_key
from headgate.events.queueing import LocalQueuesSampled


def count(state: State, workload: Workload, charged: dict[FlavorResource, int]) -> None:
    """An admitted workload holds this from now on, on behalf of its LocalQueue."""
    queue = _queue_of(workload)
    state.index.admitted_in[workload.key] = queue, charged
    state.index.admitted_count[queue] = state.index.admitted_count.get(queue, 0) + 1
    used = state.index.admitted_usage.setdefault(queue, {})
    for (_, resource), value in charged.items():
        _add(used, resource, value)
    _remember(state, queue)


def uncount(state: State, key: WorkloadKey) -> None:
    """A workload holds nothing any more. Nothing changes for one that was never admitted."""
    counted = state.index.admitted_in.pop(key, None)
    if counted is None:
        return
    queue, charged = counted
    used = state.index.admitted_usage[queue]
    for (_, resource), value in charged.items():
        _add(used, resource, -value)
    # Counted by number: workloads without requests hold nothing, but are admitted all the same.
    state.index.admitted_count[queue] -= 1
    if not state.index.admitted_count[queue]:
        del state.index.admitted_count[queue], state.index.admitted_usage[queue]


def recount(state: State, workload: Workload) -> None:
    """An admitted workload may be in another LocalQueue now: move what it holds to that one."""
    counted = state.index.admitted_in.get(workload.key)
    if counted is not None and counted[0] != _queue_of(workload):
        uncount(state, workload.key)
        count(state, workload, counted[1])


def _add(used: dict[str, int], resource: str, value: int) -> None:
    total = used.get(resource, 0) + value
    if total:
        used[resource] = total
    else:
        used.pop(resource, None)


def penalise(state: State, workload: Workload, penalty: dict[str, str]) -> None:
    """Charge a reservation its entry penalty; one record per workload, so that a repeated one counts once."""
    if not penalty:
        return
    queue = _queue_of(workload)
    _record_of(state, queue).penalties[workload.key] = of_quantities(penalty)
    _reorder(state, queue)


def settle(state: State, workload: Workload) -> None:
    """A workload was admitted: its LocalQueue's usage is updated to now, and its penalty becomes a part of it."""
    if settings(state.configuration) is None or not orders_by_usage(state, workload.cluster_queue):
        return
    queue = _queue_of(workload)
    record = _record_of(state, queue)
    _decay(state, queue, record)
    record.consumed = plus(record.consumed, record.penalties.pop(workload.key, {}))
    _reorder(state, queue)


def drop(state: State, workload: Workload) -> None:
    """Drop a penalty that will never be settled: its workload is gone, finished, or in another LocalQueue."""
    if not state.local_queue_usage:
        return
    queue = _queue_of(workload)
    record = state.local_queue_usage.get(queue)
    if record is not None and record.penalties.pop(workload.key, None) is not None:
        _reorder(state, queue)


def sampled(state: State, event: LocalQueuesSampled, commit: Commit, seq: Seq) -> None:
    """Update LocalQueues' usage to now. Records that have decayed to nothing are dropped."""
    for queue in event.queues:
        record = state.local_queue_usage.get(queue)
        if record is None:
            state.overtaken += 1
            continue
        _decay(state, queue, record)
        if not record.consumed and not record.penalties and queue not in state.index.admitted_usage:
            del state.local_queue_usage[queue]
        _reorder(state, queue)


def seed(state: State, event: LocalQueueObserved, *, is_new: bool) -> None:
    """
    A LocalQueue exists. One that is new continues from the usage in its status.

    What was charged to it before it was observed is added, as in Kueue.
    """
    if is_new and settings(state.configuration) is not None and event.consumed:
        try:
            consumed = of_quantities(event.consumed)
        except QuantityError:
            consumed = {}
        record = _record_of(state, event.queue)
        record.consumed = plus(record.consumed, consumed)
    if event.queue in state.index.admitted_usage:
        _remember(state, event.queue)
    _reorder(state, event.queue)


def forget(state: State, queue: LocalQueueKey) -> None:
    """A LocalQueue is gone, and its usage record with it."""
    state.local_queue_usage.pop(queue, None)
    _reorder(state, queue)


def reconfigure(state: State) -> None:
    """The configuration has changed, or the state was restored: rebuild the records and their order."""
    if settings(state.configuration) is None:
        state.local_queue_usage.clear()
    else:
        for queue in state.index.admitted_usage:
            _remember(state, queue)
    reindex(state)


def reindex(state: State) -> None:
    """Rebuild the order of LocalQueues from the tables."""
    state.index.local_queue_usage.clear()
    for queue in (*state.local_queues, *state.local_queue_usage):
        _reorder(state, queue)


def _queue_of(workload: Workload) -> LocalQueueKey:
    return LocalQueueKey(f"{split_key(workload.key)[0]}/{workload.spec.queue_name}")


def _remember(state: State, queue: LocalQueueKey) -> None:
    """Record the current usage for an existing LocalQueue. That of a deleted one is dropped."""
    if settings(state.configuration) is not None and queue in state.local_queues:
        _record_of(state, queue)


def _record_of(state: State, queue: LocalQueueKey) -> UsageRecord:
    record = state.local_queue_usage.get(queue)
    if record is None:
        record = state.local_queue_usage[queue] = UsageRecord(last_update_ms=state.now_ms)
    return record


def _decay(state: State, queue: LocalQueueKey, record: UsageRecord) -> None:
    fair = settings(state.configuration)
    if fair is None:
        return
    elapsed_ms, record.last_update_ms = state.now_ms - record.last_update_ms, state.now_ms
    used: Consumed = {
        resource: of_amount(resource, value) for resource, value in state.index.admitted_usage.get(queue, {}).items()
    }
    if fair.usage_half_life_ms <= 0:
        record.consumed = {}
    else:
        record.consumed = decayed(record.consumed, used, elapsed_ms, fair.usage_half_life_ms)


def _reorder(state: State, queue: LocalQueueKey) -> None:
    usage = compute_usage(state, queue)
    if usage:
        state.index.local_queue_usage[queue] = usage
    else:
        state.index.local_queue_usage.pop(queue, None)
