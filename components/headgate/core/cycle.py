"""
The cycle: which of the offered heads are admitted, and what becomes of the others.

`decide_cycle` is a function of the state alone. The scheduler's machine calls it and appends what comes back as one
commit; `headgate replay --verify` calls it on the state at a recorded cycle's `decided_at` and compares. It is Kueue's
classical cycle (`kueue-semantics` section 3):

    heads      the first offered workload of each active ClusterQueue
    nominate   each against the quota at the start of the cycle: rejected outright, or an assignment of flavors
    order      less borrowing first, then higher priority, earlier in the queue, lower uid
    process    one by one: what still fits is charged and its quota reserved; what does not is skipped, with its reason

Kueue breaks exact ties at random; here the uid, and after it the key, breaks them.

Preemption has its place in `_process`: an entry in mode PREEMPT has no targets as long as the oracle of
`headgate.core.flavors` knows of nobody to preempt.

**A retry at once ends.** A head that is skipped with scope "immediate" is decided again in the next cycle, so there
must not be a state on which that goes on for ever. There are two such verdicts. "Flavors left to try" is given only
while the scan moves on: its place, the flavor indexes of all pod sets read as one number, must be beyond the place that
it went on from (`_scan_moves_on`), and there are finitely many. "No longer fits" is given only when another entry of
the same cycle charged the quota: that one was admitted, was set aside, or its scan moved on. Everything else is set
aside until something changes.

A head that blocks a StrictFIFO ClusterQueue is decided anew only when something has changed, where Kueue decides it in
every cycle. What it claims is claimed in every cycle all the same (`_blocked_heads`), so that nobody borrows for good
what it waits for; and whoever is skipped for such a claim alone is set aside too.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from headgate.core.amounts import UNLIMITED, add, canonical, subtract
from headgate.core.catalog import Catalog, Queue
from headgate.core.checks import checks_for
from headgate.core.conditions import rfc3339
from headgate.core.flavors import (
    WAITING_FOR_QUOTA,
    Assigner,
    Assignment,
    Mode,
    NobodyToPreempt,
    may_be_reduced,
    reduced,
    spare_pods,
)
from headgate.core.quota import Ledger
from headgate.core.requests import PodSetRequests, pod_set_requests, why_invalid
from headgate.core.selectors import matches_labels
from headgate.core.state import FlavorResource, Stage, State, Workload
from headgate.events.base import Producer
from headgate.events.decisions import CycleDecided, QuotaReserved, WorkloadAdmitted, WorkloadSkipped
from headgate.events.ids import WorkloadKey, split_key
from headgate.events.objects import Admission, CheckState, PodSet, PodSetAssignment, PodSetRequest
from headgate.events.queueing import Head, Needs
from headgate.events.registry import Event

HEADS_MAX = 512
"""How many heads one cycle decides at most; the others wait for the next. Bounds the size of a cycle's commit."""

ADMISSIONS_MAX = 512
"""How many reserved workloads one cycle admits at most after their checks."""

NAMESPACE_MISMATCH = "NamespaceMismatch"
NO_FIT = "NoFit"
NO_CANDIDATES = "PreemptionNoCandidates"
FAILED_AFTER_NOMINATION = "FailedAfterNomination"

ANY_CHANGE = "*"
"""In `WorkloadSkipped.short`: no freed quota can help, only a change of a spec (as in `State.freed`)."""

Scope = Literal["immediate", "workload", "shape", "queue"]

_NO_LONGER_FITS = "Workload no longer fits after processing another workload"


class _Entry(msgspec.Struct):
    """A head on its way through a cycle."""

    workload: Workload
    queue: Queue
    requests: tuple[PodSetRequests, ...]
    blocked: bool = False
    """It is not offered: it blocks its StrictFIFO ClusterQueue, and only keeps its place against the others."""
    ledger: Ledger | None = None
    assignment: Assignment | None = None
    short: tuple[str, ...] = ()
    needs: Needs = ()
    contested: bool = False
    """Whether another head of this cycle has charged the same quota before."""
    status: Literal["notNominated", "skipped"] = "notNominated"
    requeue_reason: str = ""
    reason: str = ""
    message: str = ""

    @property
    def rank(self) -> tuple[int, int, int, str, str]:
        """The order of processing; unique, since keys are."""
        workload = self.workload
        borrowing = self.assignment.borrowing if self.assignment is not None else 0
        return (borrowing, -workload.priority, workload.queued_at_ms, workload.uid, workload.key)


def decide_cycle(
    state: State, catalog: Catalog | None = None, reserved: Iterable[WorkloadKey] | None = None
) -> tuple[Event, ...]:
    """
    The events of the next cycle; none when there is nothing to decide.

    `catalog` may be one that was kept, for as long as no spec has changed. `reserved` may narrow the workloads to look
    at for admission after their checks; those left out must not be ready. Neither changes the answer.
    """
    if not state.synced:
        return ()
    ready = _ready(state, state.index.reserved if reserved is None else reserved)
    entries = _nominate(state, catalog if catalog is not None else Catalog(state))
    if not entries and not ready:
        return ()
    nominated = sorted((entry for entry in entries if entry.assignment is not None), key=lambda entry: entry.rank)
    rejected = sorted((entry for entry in entries if entry.assignment is None), key=lambda entry: entry.rank)
    events = _process(state, nominated)
    events.extend(_skipped(state, entry) for entry in rejected)
    events.extend(_admitted(state.workloads[key]) for key in ready)
    heads = tuple(
        Head(cluster_queue=entry.queue.name, workload=entry.workload.key, uid=entry.workload.uid)
        for entry in (*nominated, *rejected)
        if not entry.blocked
    )
    return (CycleDecided(cycle=state.cycle + 1, decided_at=state.position, heads=heads), *events)


# --- heads and nomination ------------------------------------------------------------------------------------------


def _heads(state: State, catalog: Catalog) -> list[tuple[Workload, Queue]]:
    """The first offered workload of each active ClusterQueue; of too many, those that were offered first."""
    heads: list[tuple[Workload, Queue]] = []
    for name, offered in state.index.offered.items():
        if not offered:
            continue
        queue = catalog.queue(name)
        if queue is not None and queue.active.active:
            heads.append((state.workloads[next(iter(offered))], queue))
    heads.sort(key=lambda head: (head[0].offered_no, head[0].key))
    return heads[:HEADS_MAX]


def _nominate(state: State, catalog: Catalog) -> list[_Entry]:
    """Every head, and of those that block their ClusterQueue the ones that stand in the way of a head that fits."""
    ledgers: dict[str, Ledger] = {}
    heads = [_entry(state, catalog, ledgers, workload, queue) for workload, queue in _heads(state, catalog)]
    fitting = {
        entry.ledger.tree.name
        for entry in heads
        if entry.ledger is not None and entry.assignment is not None and entry.assignment.mode is Mode.FIT
    }
    taken = {entry.queue.name for entry in heads}
    blocked = [
        _entry(state, catalog, ledgers, workload, queue, blocked=True)
        for workload, queue in _blocked_heads(state, catalog, fitting)
        if queue.name not in taken
    ]
    return [*heads, *(entry for entry in blocked if entry.assignment is not None)]


def _entry(
    state: State,
    catalog: Catalog,
    ledgers: dict[str, Ledger],
    workload: Workload,
    queue: Queue,
    *,
    blocked: bool = False,
) -> _Entry:
    limits = catalog.limits(split_key(workload.key)[0])
    entry = _Entry(workload, queue, pod_set_requests(workload, limits, catalog.runtime_classes()), blocked)
    if not _rejected(state, entry, catalog):
        tree = catalog.forest.tree_of(queue.name)
        ledger = ledgers.get(tree.name)
        if ledger is None:
            ledger = ledgers[tree.name] = Ledger(tree, state.index.usage)
        entry.ledger = ledger
        _assign(state, entry, ledger)
    return entry


def _blocked_heads(state: State, catalog: Catalog, trees: set[str]) -> Iterable[tuple[Workload, Queue]]:
    """
    The heads that block StrictFIFO ClusterQueues of these trees and may have a claim on quota.

    Kueue decides them anew in every cycle, and each time they hold their claim against borrowers. Here a verdict stands
    until something changes; the claim has to be held all the same. Those are left out whose verdict
    leaves no claim and came of a scan over all flavors, as it does when it names what was short.
    """
    for name, sleep in state.sleeps.items():
        workload = state.workloads.get(sleep.blocked_by)
        tree = state.index.trees.get(name, "")
        if workload is None or workload.verdict is None or tree not in trees:
            continue
        if workload.stage not in (Stage.QUEUED, Stage.SKIPPED):
            continue
        queue = catalog.queue(name)
        if queue is None or not queue.active.active:
            continue
        verdict = workload.verdict
        certain = verdict.requeue_reason not in _CLAIMS and verdict.short
        if not certain or _freed_since(state, tree, verdict.decided_at):
            yield workload, queue


_CLAIMS = (NO_CANDIDATES, FAILED_AFTER_NOMINATION)
"""The verdicts on workloads that would fit if others did not use, or did not claim, the quota."""


def _freed_since(state: State, tree: str, position: int) -> bool:
    """Whether quota of a tree was freed or raised after a position."""
    return any(seq > position for seq in state.freed.get(tree, {}).values())


def _rejected(state: State, entry: _Entry, catalog: Catalog) -> bool:
    """Whether a head is turned away without looking at quota, and why: Kueue's checks in Kueue's order."""
    workload = entry.workload
    namespace = split_key(workload.key)[0]
    if any(check.state in ("Retry", "Rejected") for check in workload.checks):
        entry.reason, entry.message = "PendingEvaluation", "The workload has failed admission checks"
        return True
    entry.reason = "Misconfigured"
    record = state.namespaces.get(namespace)
    if record is None:
        entry.message = f'could not obtain workload namespace: namespaces "{namespace}" not found'
    elif not matches_labels(entry.queue.spec.namespace_selector, record.labels):
        entry.message = "workload namespace doesn't match ClusterQueue selector"
        entry.requeue_reason = NAMESPACE_MISMATCH
    else:
        entry.message = why_invalid(entry.requests, catalog.limits(namespace))
    return bool(entry.message)


def _assign(state: State, entry: _Entry, ledger: Ledger) -> None:
    """Assign flavors with all pods, or with fewer where that is allowed and all do not fit."""
    workload = entry.workload
    pod_sets = workload.spec.pod_sets
    assigner = Assigner(
        entry.queue,
        ledger,
        pod_sets,
        entry.requests,
        last_tried=_resume_from(state, workload),
        oracle=NobodyToPreempt(ledger),
    )
    full = assigner.assign()
    entry.assignment = full
    if full.mode is not Mode.FIT and may_be_reduced(pod_sets):

        def accept(counts: list[int]) -> Assignment | None:
            fewer = assigner.assign(counts)
            return fewer if fewer.mode is Mode.FIT else None

        entry.assignment = reduced(pod_sets, [each.count for each in entry.requests], accept) or full
    entry.short = _short(assigner)
    if entry.assignment.mode is not Mode.FIT and not entry.blocked and entry.short != (ANY_CHANGE,):
        entry.needs = _needs(assigner, pod_sets, [each.count for each in entry.requests])


def _needs(assigner: Assigner, pod_sets: Sequence[PodSet], counts: Sequence[int]) -> Needs:
    """
    What must be available at once before an assignment can fit, with the fewest pods that are allowed.

    Nothing when no quota that could be freed is enough: then there is nothing to wait for, and freed quota may at most
    change the reason that is given.
    """
    fewest = [count - spare for count, spare in zip(counts, spare_pods(pod_sets, counts), strict=True)]
    ways = assigner.ways(fewest)
    if not all(ways):
        return ()
    return tuple(
        {f"{flavor}/{resource}": canonical(resource, value) for (flavor, resource), value in sorted(way.items())}
        for way in ways
    )


def _short(assigner: Assigner) -> tuple[str, ...]:
    """What has to be freed for another verdict; nothing named (anything may help) when a scan began in the middle."""
    if assigner.resumed:
        return ()
    return tuple(sorted(f"{flavor}/{resource}" for flavor, resource in assigner.short)) or (ANY_CHANGE,)


def _resume_from(state: State, workload: Workload) -> tuple[dict[str, int], ...]:
    """
    Where the scan over flavors goes on: after the flavor it stopped at in the last cycle.

    An older scan is begun anew once quota of the tree has been freed since.
    """
    verdict = workload.verdict
    if verdict is None or not workload.last_tried_flavors:
        return ()
    scheduler = state.producers.get(Producer.SCHEDULER)
    if scheduler is not None and scheduler.last_seq == verdict.at:
        return workload.last_tried_flavors
    if _freed_since(state, state.index.trees.get(workload.cluster_queue, ""), verdict.decided_at):
        return ()
    return workload.last_tried_flavors


# --- processing ----------------------------------------------------------------------------------------------------


def _process(state: State, entries: list[_Entry]) -> list[Event]:
    """Decide entry by entry, each on what those before it have left, and charge what each takes or claims."""
    events: list[Event] = []
    decided_on: set[str] = set()
    for entry in entries:
        assert entry.ledger is not None
        tree, taken = entry.ledger.tree.name, _claim(entry)
        _charge(entry, taken or {})
        if entry.blocked:
            continue
        entry.contested = tree in decided_on
        events.extend(_decide(state, entry, fits=taken is not None))
        if taken:
            decided_on.add(tree)
    return events


def _decide(state: State, entry: _Entry, *, fits: bool) -> list[Event]:
    """The events of one head. `fits` tells whether an assignment that did fit at first still does."""
    assignment = entry.assignment
    assert assignment is not None
    match assignment.mode:
        case Mode.FIT if fits:
            return _reserved(state, entry, assignment)
        case Mode.FIT:
            entry.status, entry.requeue_reason = "skipped", FAILED_AFTER_NOMINATION
            entry.reason, entry.message, entry.short = WAITING_FOR_QUOTA, _NO_LONGER_FITS, ()
        case Mode.PREEMPT:
            entry.requeue_reason = NO_CANDIDATES
            entry.reason, entry.message = WAITING_FOR_QUOTA, assignment.message
        case Mode.NO_FIT:
            entry.requeue_reason = NO_FIT
            entry.reason, entry.message = assignment.no_fit_reason, assignment.message
    return [_skipped(state, entry)]


def _claim(entry: _Entry) -> dict[FlavorResource, int] | None:
    """
    What an entry takes from those after it; None when it did fit, and no longer does.

    A workload that waits for others to leave keeps the rest of this cycle from borrowing the quota that it waits for,
    where its ClusterQueue may not reclaim from everybody: what is lent now would be hard to get back.
    """
    assignment, ledger, node = entry.assignment, entry.ledger, entry.queue.node
    assert assignment is not None
    assert ledger is not None
    assert node is not None
    if assignment.mode is Mode.FIT:
        return assignment.usage if ledger.fits(node, assignment.usage) else None
    if assignment.mode is Mode.NO_FIT or entry.queue.spec.preemption.reclaim_within_cohort == "Any":
        return {}
    claim: dict[FlavorResource, int] = {}
    for fr, value in assignment.usage.items():
        quota = node.quota(fr)
        most = quota.nominal
        if assignment.borrowing:
            most = UNLIMITED if quota.borrowing_limit is None else add(quota.nominal, quota.borrowing_limit)
        claim[fr] = max(0, min(value, subtract(most, ledger.usage(node, fr))))
    return claim


def _charge(entry: _Entry, amounts: dict[FlavorResource, int]) -> None:
    ledger, node = entry.ledger, entry.queue.node
    assert ledger is not None
    assert node is not None
    for fr, value in amounts.items():
        ledger.add(node, fr, value)


def _reserved(state: State, entry: _Entry, assignment: Assignment) -> list[Event]:
    workload, queue = entry.workload, entry.queue
    checks = _checks(state, workload, queue, {flavor for flavor, _ in assignment.usage})
    reserved = QuotaReserved(
        workload=workload.key,
        uid=workload.uid,
        cluster_queue=queue.name,
        admission=_admission(queue.name, assignment),
        message=f"Quota reserved in ClusterQueue {queue.name}",
        checks=checks,
    )
    if all(check.state == "Ready" for check in checks):
        return [reserved, _admitted(workload, queue.name)]
    return [reserved]


def _admission(cluster_queue: str, assignment: Assignment) -> Admission:
    return Admission(
        cluster_queue=cluster_queue,
        pod_set_assignments=tuple(
            PodSetAssignment(
                name=pod_set.name,
                count=pod_set.count,
                flavors={resource: choice.flavor for resource, choice in sorted(pod_set.flavors.items())},
                resource_usage={
                    resource: canonical(resource, pod_set.requests[resource]) for resource in sorted(pod_set.flavors)
                },
            )
            for pod_set in assignment.pod_sets
        ),
    )


def _checks(state: State, workload: Workload, queue: Queue, flavors: set[str]) -> tuple[CheckState, ...]:
    """
    The admission checks of these flavors, sorted; Pending, or as their controllers have written before.

    What they had written before the last eviction was about the reservation that is gone.
    """
    if queue.spec.admission_checks_strategy is None:
        return ()
    observed = (check for check in workload.observed_checks if check not in workload.stale_checks)
    before = {check.name: check for check in (*observed, *workload.checks)}
    return checks_for(queue.spec, flavors, before, rfc3339(state.now_ms))


# --- verdicts ------------------------------------------------------------------------------------------------------


def _skipped(state: State, entry: _Entry) -> WorkloadSkipped:
    workload, assignment = entry.workload, entry.assignment
    last_tried = assignment.last_tried if assignment is not None else ()
    if all(index == -1 for each in last_tried for index in each.values()):
        last_tried = ()
    return WorkloadSkipped(
        workload=workload.key,
        uid=workload.uid,
        cluster_queue=entry.queue.name,
        status=entry.status,
        requeue_reason=entry.requeue_reason,
        scope=_scope(state, entry, last_tried),
        reason=entry.reason,
        message=_truncated(entry.message),
        short=entry.short if assignment is not None else (ANY_CHANGE,),
        resource_requests=tuple(
            PodSetRequest(
                name=each.name,
                resources={resource: canonical(resource, value) for resource, value in sorted(each.total().items())},
            )
            for each in entry.requests
        ),
        last_tried_flavors=last_tried,
        needs=entry.needs,
    )


MESSAGE_CHARS_MAX = 32 * 1024
"""What the API takes as a condition's message."""


def _truncated(message: str) -> str:
    return message if len(message) <= MESSAGE_CHARS_MAX else message[: MESSAGE_CHARS_MAX - 4] + " ..."


def _scope(state: State, entry: _Entry, last_tried: tuple[dict[str, int], ...]) -> Scope:
    """
    What a verdict sets aside (`kueue-semantics` section 2, Requeue).

    Kueue puts a StrictFIFO head straight back and so tries it again and again while nothing passes it. Here it blocks
    its queue until something changes, except where the very next cycle can decide otherwise: another head took the
    quota of the chosen flavor only, or flavors are left to try.
    """
    if entry.requeue_reason == NAMESPACE_MISMATCH:
        return "workload"
    if entry.requeue_reason == FAILED_AFTER_NOMINATION and entry.contested:
        return "immediate"
    if last_tried and _scan_moves_on(_resume_from(state, entry.workload), last_tried):
        return "immediate"
    if entry.queue.spec.queueing_strategy == "StrictFIFO":
        return "queue"
    return "shape" if entry.assignment is not None else "workload"


def _scan_moves_on(before: tuple[dict[str, int], ...], after: tuple[dict[str, int], ...]) -> bool:
    """
    Whether a scan has come further than where it went on from.

    Places are compared pod set by pod set, resource by resource: one that was not reached comes before the first
    flavor, one that came to the end (-1) after the last.
    """
    old, new = _place(before), _place(after)
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key, -1), new.get(key, -1)
        if was != now:
            return now > was
    return False


_END = 1 << 32


def _place(tried: tuple[dict[str, int], ...]) -> dict[tuple[int, str], int]:
    return {
        (i, resource): _END if index == -1 else index
        for i, each in enumerate(tried)
        for resource, index in each.items()
    }


# --- admission after checks ----------------------------------------------------------------------------------------


def is_ready(state: State, key: WorkloadKey) -> bool:
    """Whether a workload holds quota and has every admission check Ready, so that it may be admitted."""
    workload = state.workloads.get(key)
    return (
        workload is not None
        and workload.stage is Stage.RESERVED
        and all(check.state == "Ready" for check in workload.checks)
    )


def _ready(state: State, keys: Iterable[WorkloadKey]) -> list[WorkloadKey]:
    return sorted(key for key in keys if is_ready(state, key))[:ADMISSIONS_MAX]


def _admitted(workload: Workload, cluster_queue: str = "") -> WorkloadAdmitted:
    return WorkloadAdmitted(
        workload=workload.key,
        uid=workload.uid,
        cluster_queue=cluster_queue or workload.cluster_queue,
        message="The workload is admitted",
    )
