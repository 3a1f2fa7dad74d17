"""
Processing: entry by entry, each on the quota that those before it have left.

`evaluate` nominates the heads, orders them and decides one after the other, as Kueue's scheduler does in
`processEntry`. An entry that fits is charged. An entry that preempts is charged too, and its victims count as gone for
all entries after it, so that no other entry takes their quota. An entry that would have to preempt and has no
candidates reserves what its ClusterQueue could not be sure to reclaim. Where two heads would preempt the same workload,
the first one does; the other is assigned again as if those victims had left already, and waits with the first if it
fits then ("deferred fit").

Kueue also admits at once a workload that fits only because of victims that have not left yet, and so exceeds the quota
until they have. That is correct where they leave in the same instant (`victims_leave_at_once`: the emulation of Kueue,
as in the recordings); where jobs take time to stop, such a head waits for them.

The cycle is a function of the state and the heads alone: neither their order nor that of any table matters.
"""
# Over 400 lines: it follows Kueue's `processEntry` step by step, so that the two can be compared.

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from headgate.core.config import feature_gates
from headgate.core.cycle.entries import (
    FAILED_AFTER_NOMINATION,
    NO_CANDIDATES,
    NO_FIT,
    PENDING_MIGRATION,
    PENDING_PREEMPTION,
    PREEMPTION_GATED,
    Cycle,
    CycleEntry,
)
from headgate.core.cycle.nominating import Nominator, ways_of
from headgate.core.cycle.occupancy import Occupancy
from headgate.core.cycle.order import in_order
from headgate.core.flavors import WAITING_FOR_QUOTA
from headgate.core.flavors.catalog import Catalog
from headgate.core.flavors.cluster_queue import ClusterQueueFlavors
from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.kubernetes.quantities import add, amount, subtract
from headgate.core.preemption import can_always_reclaim, preempted_message
from headgate.core.preemption.bound import may_preempt
from headgate.core.preemption.what_if import Snapshot
from headgate.core.quota import turnover
from headgate.core.quota.holders import Holder
from headgate.core.quota.tree import Ledger, QuotaNode
from headgate.core.state.attribution import about
from headgate.core.state.tables import DomainUsage, FlavorResource, Stage, State, Workload
from headgate.core.workload import variants
from headgate.core.workload.ordering import priority_of
from headgate.core.workload.pods_ready import WAITING_FOR_PODS_READY, all_ready
from headgate.core.workload.preemption_gates import is_closed
from headgate.events.ids import UnixMs, WorkloadKey
from headgate.events.queueing import Needs, QuotaFreed

WAITING_FOR_PREEMPTED = "WaitingForPreemptedWorkloads"
PENDING_EVALUATION = "PendingEvaluation"
ADMISSION_GATED = "AdmissionGated"

_NO_LONGER_FITS = "Workload no longer fits after processing another workload"
OVERLAPS = "Workload has overlapping preemption targets with another workload"
FITS_LATER = f"{OVERLAPS}, but will fit after these preemptions complete"
_FITS_WITHOUT_VICTIMS = "Workload will fit after the preemptions of other workloads complete"
_GATED = "Workload requires preemption, but it's gated"
_WAITS = ". Unless enough quota is free by {1}, {0} workload(s) will be preempted"
_KEEPS = ". Enough quota will probably be free by {0}; until then its ClusterQueue admits nothing else before it"
_WAITS_FOR_PODS = "waiting for all admitted workloads to be in PodsReady condition"


def evaluate(
    state: State,
    catalog: Catalog,
    heads: Iterable[tuple[Workload, ClusterQueueFlavors]],
    *,
    standing: AbstractSet[WorkloadKey] = frozenset(),
    second_pass: Iterable[tuple[Workload, ClusterQueueFlavors]] = (),
    resumes: Mapping[WorkloadKey, tuple[dict[str, int], ...]] | None = None,
    events_max: int | None = None,
    victims_leave_at_once: bool = False,
) -> Cycle:
    """
    Decide one cycle over these heads, at most one of each ClusterQueue, with its quota tree.

    `standing` are those of them that are not offered but decided in every cycle. `second_pass` are workloads that hold
    quota and need topology domains; they come first. With `events_max` the cycle stops after that number of events; the
    rest is not in it, and of more victims only the first are preempted. The other two are for the emulation of Kueue:
    `resumes` has where each scan over flavors resumes, which Kueue stores beside the workloads; with
    `victims_leave_at_once` a workload that fits without the victims is admitted together with their preemption. Nothing
    is changed but the answer.
    """
    nominator = Nominator(state, catalog, resumes)
    entries: list[CycleEntry] = []
    for workload, queue in second_pass:
        with about("Workload", workload.key):
            entries.append(nominator.nominate_again(workload, queue))
    for workload, queue in heads:
        with about("Workload", workload.key):
            entries.append(nominator.nominate(workload, queue, standing=workload.key in standing))
    nominated = [entry for entry in entries if entry.assignment is not None]
    rejected = [entry for entry in entries if entry.assignment is None]
    process = _Process(state, nominator, events_max, victims_leave_at_once=victims_leave_at_once)
    process.run(nominated)
    rejected.sort(key=lambda entry: entry.key)
    return Cycle(tuple(process.done), tuple(rejected), process.skipped_preemptions)


class _Tree:
    """One quota tree during a cycle: what its entries have charged so far, and their victims."""

    __slots__ = ("_admitted", "_after", "_charges", "has_lent", "has_moved", "snapshot", "victims")

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.victims: dict[WorkloadKey, None] = {}
        """All workloads whose quota counts as free for the rest of the cycle: its entries' targets."""
        self.has_moved = False
        """Whether an entry of this cycle has changed the input of the next cycle."""
        self.has_lent = False
        """Whether a borrowing workload was admitted: the next cycle may preempt it."""
        self._charges: list[tuple[QuotaNode, FlavorResource, int]] = []
        self._admitted: list[CycleEntry] = []
        self._after: Ledger | None = None

    def charge(self, node: QuotaNode, amounts: Mapping[FlavorResource, int]) -> None:
        """Charge a ClusterQueue for the rest of the cycle."""
        for fr, value in amounts.items():
            self._charges.append((node, fr, value))
            self.snapshot.ledger.add(node, fr, value)
            if self._after is not None:
                self._after.add(node, fr, value)

    def leave(self, targets: Iterable[WorkloadKey]) -> None:
        """Count these workloads as gone for the rest of the cycle."""
        for key in targets:
            if key not in self.victims:
                self.victims[key] = None
                _take_out(self._without_victims(), self.snapshot.holder(key))

    def fits(self, node: QuotaNode, usage: Mapping[FlavorResource, int], targets: Iterable[WorkloadKey]) -> bool:
        """Whether an entry fits after all victims so far, and these, have gone."""
        if self.snapshot.ledger.fits(node, usage):
            return True
        after = self._without_victims()
        gone = [self.snapshot.holder(key) for key in dict.fromkeys(targets) if key not in self.victims]
        for holder in gone:
            _take_out(after, holder)
        fits = after.fits(node, usage)
        for holder in gone:
            for fr, value in holder.usage.items():
                after.add(holder.node, fr, value)
        return fits

    def short_of(self, entry: CycleEntry) -> dict[FlavorResource, int]:
        """How much more has to be freed for an entry, beside the victims so far."""
        after, node = self._without_victims(), _node(entry)
        return {fr: value - after.available(node, fr) for fr, value in entry.usage.items()}

    def has_room(self, entry: CycleEntry) -> bool:
        """Whether an entry fits now, with every victim still there and without reservations of waiting entries."""
        if not self.victims or self.snapshot.ledger.fits(_node(entry), entry.usage):
            return True
        today = self.snapshot.catalog.forest.ledger(self.snapshot.tree.name)
        for each in (*self._admitted, entry):
            if each.replaces is not None:
                _take_out(today, self.snapshot.holder(each.replaces.key))
        for each in self._admitted:
            for fr, value in each.usage.items():
                today.add(_node(each), fr, value)
        return today.fits(_node(entry), entry.usage)

    def had_enough(self, node: QuotaNode, needs: Needs) -> bool:
        """Whether all of one of these alternatives was unused at the start of the cycle."""
        before = self.snapshot.catalog.forest.ledger(self.snapshot.tree.name)
        return any(before.fits(node, _amounts(way)) for way in needs)

    def admit(self, entry: CycleEntry) -> None:
        """Count its quota as used from here on, not only as reserved."""
        self._admitted.append(entry)

    def _without_victims(self) -> Ledger:
        """The tree's ledger without the victims, kept beside the snapshot's, which still has them."""
        if self._after is None:
            self._after = self.snapshot.catalog.forest.ledger(self.snapshot.tree.name)
            for node, fr, value in self._charges:
                self._after.add(node, fr, value)
        return self._after


def _amounts(way: Mapping[str, str]) -> dict[FlavorResource, int]:
    """One of the alternatives of `Needs`."""
    named = ((name.partition("/"), quantity) for name, quantity in way.items())
    return {(flavor, resource): amount(resource, quantity) for (flavor, _, resource), quantity in named}


def _take_out(ledger: Ledger, holder: Holder) -> None:
    for fr, value in holder.usage.items():
        ledger.remove(holder.node, fr, value)


class _Process:
    """The processing of one cycle's nominated entries, and its results so far."""

    def __init__(
        self, state: State, nominator: Nominator, events_max: int | None, *, victims_leave_at_once: bool
    ) -> None:
        self._state = state
        self._victims_leave_at_once = victims_leave_at_once
        self._configuration = state.configuration
        self._nominator = nominator
        self._left = events_max
        self._trees: dict[str, _Tree] = {}
        self._occupancy = Occupancy(state, nominator.topologies)
        self._has_admitted = False
        self.done: list[CycleEntry] = []
        self.skipped_preemptions: dict[str, int] = {}

    def _on(self, gate: str) -> bool:
        return feature_gates.enabled(self._configuration, gate)

    def _tree(self, entry: CycleEntry) -> _Tree:
        snapshot = self._nominator.snapshot(entry.queue.name)
        tree = self._trees.get(snapshot.tree.name)
        if tree is None:
            tree = self._trees[snapshot.tree.name] = _Tree(snapshot)
        return tree

    def _ledger(self, cluster_queue: str) -> Ledger:
        return self._nominator.snapshot(cluster_queue).ledger

    def run(self, entries: Sequence[CycleEntry]) -> None:
        """Decide all entries, or as many as the bound on events allows."""
        for entry in in_order(entries, self._configuration, self._ledger):
            if self._left is not None and self._left <= 0:
                break
            with about("Workload", entry.key):
                self._decide(entry)
            self.done.append(entry)
            if self._left is not None:
                self._left -= len(entry.preempts) + (2 if entry.status == "assumed" else not entry.standing)
        for entry in self.done:
            entry.outdated = entry.requeue_reason == NO_CANDIDATES and self._tree(entry).has_lent

    # Large: one case for each of Kueue's steps.
    def _decide(self, entry: CycleEntry) -> None:
        """Decide one entry: Kueue's steps in Kueue's order."""
        tree = self._tree(entry)
        if variants.more_favorable_admitted(self._state, entry.workload) is not None:
            self._skip(entry, tree, PENDING_EVALUATION, variants.MORE_FAVORABLE_ADMITTED)
            return
        self._refresh(entry, tree)
        match entry.mode:
            case "NoFit" | "Preempt" | "DeferredFit" if self._fails_fast(entry):
                entry.status, entry.message = "evicted", no_replacement_message(entry.workload)
            case "NoFit":
                assert entry.assignment is not None
                entry.requeue_reason, entry.reason = NO_FIT, entry.assignment.no_fit_reason
            case "DeferredFit":
                self._defer(entry, tree, FITS_LATER)
            case "Preempt" if not _all_targets(entry):
                self._claim(entry, tree)
            case "Preempt" if self._is_gated(entry.workload):
                entry.status, entry.requeue_reason = "preemptionGated", PREEMPTION_GATED
                entry.reason, entry.message, entry.last_tried = ADMISSION_GATED, _GATED, ()
            case "Fit" if entry.standing and self._is_behind(entry, tree):
                entry.waits_on = True
                self._charge(entry, tree, entry.usage)
            case _ if _overlaps(entry, tree):
                self._skip(entry, tree, WAITING_FOR_QUOTA, OVERLAPS)
                self._count_skipped(entry)
            case _ if not (self._fits_quota(entry, tree) and self._fits_places(entry)):
                self._skip(entry, tree, WAITING_FOR_QUOTA, _NO_LONGER_FITS)
                if entry.mode == "Preempt":
                    self._count_skipped(entry)
            case "Fit" if not (self._victims_leave_at_once or self._has_room(entry, tree)):
                self._defer(entry, tree, _FITS_WITHOUT_VICTIMS)
            case _:
                self._take(entry, tree)

    # --- reassignment ------------------------------------------------------------------------------------------------

    def _refresh(self, entry: CycleEntry, tree: _Tree) -> None:
        """
        Assign again where another entry has changed what it counts on (updateAssignmentIfNeeded).

        If it counts on a victim of another, as if all victims so far had left; if its quota fits but its topology
        domains are taken, on what is left.
        """
        if _overlaps(entry, tree) and self._on(feature_gates.RECOMPUTE_UPON_OVERLAP):
            with tree.snapshot.without(tree.victims), self._occupancy.without_victims(tree.victims):
                self._nominator.recompute(entry)
            if entry.mode == "Fit":
                entry.mode = "DeferredFit"
        elif (
            entry.occupies
            and self._on(feature_gates.TAS_RECOMPUTE_IN_CYCLE)
            and self._fits_quota(entry, tree)
            and not self._fits_places(entry)
        ):
            self._nominator.recompute(entry)

    def _fits_quota(self, entry: CycleEntry, tree: _Tree) -> bool:
        return tree.fits(_node(entry), entry.usage, _all_targets(entry))

    def _fits_places(self, entry: CycleEntry) -> bool:
        return self._occupancy.fits(entry.occupies, _all_targets(entry))

    def _has_room(self, entry: CycleEntry, tree: _Tree) -> bool:
        """Whether an entry fits now, with every victim still there and without reservations of waiting entries."""
        replaced = () if entry.replaces is None else (entry.replaces.key,)
        return tree.has_room(entry) and self._occupancy.has_room(entry.occupies, replaced)

    def _fails_fast(self, entry: CycleEntry) -> bool:
        """Whether a workload is evicted when there is no replacement for its lost node."""
        return (
            entry.second_pass
            and entry.placer is not None
            and entry.placer.replacement is not None
            and self._on(feature_gates.TAS_FAIL_FAST)
        )

    # --- outcomes ----------------------------------------------------------------------------------------------------

    def _defer(self, entry: CycleEntry, tree: _Tree, message: str) -> None:
        """Let it wait for the victims of others, with its quota reserved."""
        entry.mode, entry.message, entry.last_tried = "DeferredFit", message, ()
        entry.requeue_reason, entry.reason = PENDING_PREEMPTION, WAITING_FOR_PREEMPTED
        self._charge(entry, tree, entry.usage, entry.occupies)

    def _skip(self, entry: CycleEntry, tree: _Tree, reason: str, message: str) -> None:
        if self._waits_on(entry, tree):
            return
        entry.status, entry.requeue_reason = "skipped", FAILED_AFTER_NOMINATION
        entry.reason, entry.message = reason, message
        entry.contested = tree.has_moved
        entry.short = _needed(entry) if self._configuration.preemption_waits else ()
        if (
            not entry.standing
            and self._would_preempt(entry)
            and self._comes_within(entry, tree, turnover.RECLAIM_MS_MAX)
        ):
            # A workload that took what is left would be preempted for it in one of the next cycles.
            left = {fr: max(0, tree.snapshot.ledger.available(_node(entry), fr)) for fr in entry.usage}
            self._charge(entry, tree, {fr: min(value, left[fr]) for fr, value in entry.usage.items() if left[fr]})
        if not self._on(feature_gates.PRESERVE_SCAN_PROGRESS):
            entry.last_tried = ()

    def _waits_on(self, entry: CycleEntry, tree: _Tree) -> bool:
        """
        Let a head that lost to others of this cycle wait on, with its quota reserved, if its wait is not over.

        Otherwise workloads behind it could pass it, and its next wait would start from the beginning. Not where other
        flavors have enough for it still: it is decided again at once.
        """
        before = entry.workload.verdict
        if before is None or before.until_ms <= self._state.now_ms or not self._may_wait(entry):
            return False
        if any(tree.snapshot.ledger.fits(_node(entry), way) for way in ways_of(entry)):
            return False
        entry.waits_on, entry.until_ms = entry.standing, before.until_ms
        self._charge(entry, tree, entry.usage)
        entry.requeue_reason, entry.reason = NO_CANDIDATES, WAITING_FOR_QUOTA
        entry.message, entry.short, entry.last_tried = before.message, _needed(entry), ()
        return True

    def _is_behind(self, entry: CycleEntry, tree: _Tree) -> bool:
        """
        Whether a workload that comes before a standing head sleeps in its ClusterQueue, and there is enough for it now.

        The queue manager wakes it, or the standing head: whoever is next.
        """
        pending = self._state.index.pending.get(entry.queue.name)
        sleep = self._state.sleeps.get(entry.queue.name)
        if not self._would_preempt(entry) or pending is None or sleep is None:
            return False
        asleep = (sleep.shapes[shape] for shape in pending.asleep_before(entry.key))
        wakes = (wake for parked in asleep if parked is not None for wake in parked.wake)
        return any(isinstance(wake, QuotaFreed) and tree.had_enough(_node(entry), wake.needs) for wake in wakes)

    def _count_skipped(self, entry: CycleEntry) -> None:
        name = entry.queue.name
        self.skipped_preemptions[name] = self.skipped_preemptions.get(name, 0) + 1

    def _is_gated(self, workload: Workload) -> bool:
        return (self._on(feature_gates.CONCURRENT_ADMISSION) or self._on(feature_gates.ORCHESTRATED_PREEMPTION)) and (
            is_closed(workload)
        )

    def _claim(self, entry: CycleEntry, tree: _Tree) -> None:
        """
        Reserve capacity without preemption candidates, so that the rest of this cycle cannot use it.

        Not where the ClusterQueue can reclaim all that it lends (reserveCapacityForUnreclaimablePreempt). Where enough
        quota will probably be freed soon, no other workload passes it and all of it is reserved for a while: a workload
        that took a part of it would be preempted for it.
        """
        entry.requeue_reason, entry.reason = NO_CANDIDATES, WAITING_FOR_QUOTA
        if self._would_preempt(entry) and (until_ms := self._until_ms(entry, tree, turnover.RECLAIM_MS_MAX)):
            entry.until_ms, entry.last_tried = until_ms, ()
            self._charge(entry, tree, entry.usage, entry.occupies)
            entry.message += _KEEPS.format(rfc3339(until_ms))
            return
        preemptor = self._on(feature_gates.PRIORITIZE_PREEMPTOR_WORKLOADS) and entry.is_preemptor
        if preemptor or not can_always_reclaim(entry.queue):
            self._charge(entry, tree, _to_reserve(entry, tree.snapshot.ledger), entry.occupies)

    def _take(self, entry: CycleEntry, tree: _Tree) -> None:
        """Give an entry its quota, or evict its victims."""
        if entry.mode == "Preempt" and self._waits(entry, tree):
            return
        targets = _all_targets(entry)
        tree.leave(targets)
        self._occupancy.leave(targets)
        if entry.mode == "Preempt":
            self._charge(entry, tree, entry.usage, entry.occupies)
            self._preempt(entry, tree)
            return
        may_admit = entry.second_pass or self._may_admit()
        self._charge(entry, tree, entry.usage, entry.occupies, runs=may_admit)
        if not may_admit:
            entry.requeue_reason, entry.reason = FAILED_AFTER_NOMINATION, WAITING_FOR_PODS_READY
            entry.message, entry.short, entry.last_tried = _WAITS_FOR_PODS, (), ()
            return
        worse = variants.less_favorable_admitted(self._state, entry.workload)
        if worse is not None:
            self._migrate(entry, tree, worse)
            return
        entry.status = "assumed"
        tree.admit(entry)
        tree.has_moved = self._has_admitted = True
        tree.has_lent = tree.has_lent or entry.borrowing > 0

    def _waits(self, entry: CycleEntry, tree: _Tree) -> bool:
        """
        Let it wait, with its quota reserved, where finishing workloads will probably free enough quota soon.

        A head with a higher priority than all its targets waits no longer than evicting them takes; one that reclaims
        what its ClusterQueue has lent, up to `RECLAIM_MS_MAX`. No head waits twice before it preempts.
        """
        if not self._may_wait(entry) or not self._stay(entry):
            return False
        until_ms = self._until_ms(entry, tree, self._patience_ms(entry))
        if not until_ms:
            return False
        entry.until_ms, entry.last_tried = until_ms, ()
        self._charge(entry, tree, entry.usage, entry.occupies)
        entry.requeue_reason, entry.reason = PENDING_PREEMPTION, WAITING_FOR_QUOTA
        entry.message += _WAITS.format(len(entry.targets), rfc3339(until_ms))
        return True

    def _may_wait(self, entry: CycleEntry) -> bool:
        """Not what holds quota: a workload without topology domains is tried again after its backoff."""
        if entry.second_pass or entry.replaces is not None:
            return False
        return self._configuration.preemption_waits and not self._victims_leave_at_once

    def _would_preempt(self, entry: CycleEntry) -> bool:
        """Whether it waits for quota whose next user it could preempt in a later cycle."""
        return self._may_wait(entry) and may_preempt(self._state, entry.queue.name)

    def _comes_within(self, entry: CycleEntry, tree: _Tree, ms: int) -> bool:
        """Whether finishing workloads will probably free enough quota for it in this time."""
        short = tree.short_of(entry)
        if entry.assignment is not None and entry.assignment.demands and all(value <= 0 for value in short.values()):
            # It has quota and lacks topology domains: as much has to leave those as it requests.
            short = dict(entry.usage)
        expected_ms = turnover.expected_ms(self._state, tree.snapshot.tree.name, short)
        return expected_ms is not None and expected_ms <= ms

    def _until_ms(self, entry: CycleEntry, tree: _Tree, patience_ms: int) -> UnixMs:
        """Until when enough quota will probably be free for it, with this patience; 0 where it does not wait."""
        before, now_ms = entry.workload.verdict, self._state.now_ms
        if before is not None and before.until_ms:
            return before.until_ms if before.until_ms > now_ms else UnixMs(0)
        return UnixMs(now_ms + patience_ms) if self._comes_within(entry, tree, patience_ms) else UnixMs(0)

    def _stay(self, entry: CycleEntry) -> bool:
        """Whether none of its targets has been evicted yet."""
        workloads = self._state.workloads
        return all(workloads[target.workload].stage is not Stage.EVICTED for target in entry.targets)

    def _patience_ms(self, entry: CycleEntry) -> int:
        priority = priority_of(entry.workload, self._configuration)
        targets = [self._state.workloads[target.workload] for target in entry.targets]
        if any(priority_of(target, self._configuration) >= priority for target in targets):
            return turnover.RECLAIM_MS_MAX
        return max(turnover.eviction_ms(self._state, target.cluster_queue) for target in targets)

    def _may_admit(self) -> bool:
        """With blockAdmission one at a time, when the pods of all before it are ready (waitForPodsReadyIfNeeded)."""
        waiting = self._configuration.wait_for_pods_ready
        if waiting is None or not waiting.block_admission:
            return True
        return not self._has_admitted and all_ready(self._state)

    def _preempt(self, entry: CycleEntry, tree: _Tree) -> None:
        """Preempt its targets. Already evicted targets count, without a new event."""
        workloads, at = self._state.workloads, _node(entry)
        left = [target for target in entry.targets if workloads[target.workload].stage is not Stage.EVICTED]
        entry.goes_on = self._left is not None and len(left) > self._left
        entry.preempts = tuple(
            (target, preempted_message(entry.workload, target.reason, at, tree.snapshot.node(target.cluster_queue)))
            for target in left[: self._left]
        )
        entry.reason, entry.last_tried = WAITING_FOR_PREEMPTED, ()
        if entry.targets:
            entry.requeue_reason = PENDING_PREEMPTION
            entry.message += f". Pending the preemption of {len(entry.targets)} workload(s)"
        if entry.preempts:
            tree.has_moved = True

    def _migrate(self, entry: CycleEntry, tree: _Tree, victim: Workload) -> None:
        """Evict a variant in a less favorable flavor for this one."""
        if not variants.may_migrate(entry.queue.spec, entry.workload):
            entry.reason, entry.message = PENDING_EVALUATION, variants.BELOW_LAST_ACCEPTABLE
            return
        entry.migrates = victim
        entry.requeue_reason, entry.reason, entry.last_tried = PENDING_MIGRATION, WAITING_FOR_PREEMPTED, ()
        entry.message += variants.PENDING_MIGRATION
        if victim.stage is not Stage.EVICTED:
            tree.has_moved = True

    def _charge(
        self,
        entry: CycleEntry,
        tree: _Tree,
        amounts: dict[FlavorResource, int],
        occupies: Sequence[DomainUsage] = (),
        *,
        runs: bool = False,
    ) -> None:
        """Charge an entry's ClusterQueue, and occupy its topology domains; `runs`: it is admitted and does not wait."""
        tree.charge(_node(entry), amounts)
        self._occupancy.add(occupies, runs=runs)
        entry.claims = entry.claims or bool(amounts) or bool(occupies)
        if (amounts or occupies) and not entry.standing and not (entry.until_ms and self._may_wait(entry)):
            tree.has_moved = True


def no_replacement_message(workload: Workload) -> str:
    """Kueue's message of an eviction because of lost nodes without replacement."""
    nodes = ",".join(workload.unhealthy_nodes)
    return f"Workload was evicted as there was no replacement for unhealthy node(s): {nodes}"


def _overlaps(entry: CycleEntry, tree: _Tree) -> bool:
    """Whether it counts on the eviction of a workload that is evicted for another."""
    return any(target in tree.victims for target in _all_targets(entry))


def _node(entry: CycleEntry) -> QuotaNode:
    node = entry.queue.node
    assert node is not None, f"ClusterQueue {entry.queue.name} has no quota tree"
    return node


def _all_targets(entry: CycleEntry) -> tuple[WorkloadKey, ...]:
    """All workloads whose quota its assignment counts on, including the slice that it replaces."""
    targets = tuple(target.workload for target in entry.targets)
    return targets if entry.replaces is None else (entry.replaces.key, *targets)


def _needed(entry: CycleEntry) -> tuple[str, ...]:
    """What has to be free for an entry that fitted; empty where its scan over flavors continues."""
    if entry.assigner is None or entry.assigner.resumed:
        return ()
    return tuple(sorted(f"{flavor}/{resource}" for flavor, resource in entry.usage))


def _to_reserve(entry: CycleEntry, ledger: Ledger) -> dict[FlavorResource, int]:
    """
    What a waiting head reserves: up to its ClusterQueue's quota, or to its borrowing limit if it borrows.

    (quotaResourcesToReserve. Negative where more is used than allowed.)
    """
    node = _node(entry)
    reserved: dict[FlavorResource, int] = {}
    for fr, value in entry.usage.items():
        quota, used = node.quota(fr), ledger.usage(node, fr)
        if not entry.borrowing:
            reserved[fr] = max(0, min(value, subtract(quota.nominal, used)))
        elif quota.borrowing_limit is None:
            reserved[fr] = value
        else:
            reserved[fr] = min(value, subtract(add(quota.nominal, quota.borrowing_limit), used))
    return reserved
