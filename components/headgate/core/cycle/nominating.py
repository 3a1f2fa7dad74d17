"""
Nomination: each head alone, against the quota at the start of the cycle.

A head is rejected outright, by Kueue's checks in Kueue's order, or it gets an assignment of flavors and, where that
requires preemption, its targets (`kueue-semantics` sections 3 and 4). Nothing is charged here. The same search is
repeated, within the flavors of the first nomination, for a head whose victims another head of the cycle has taken
(`Nominator.recompute`).
"""

from collections.abc import Mapping, Sequence

from headgate.core.config import feature_gates
from headgate.core.cycle.entries import NAMESPACE_MISMATCH, CycleEntry, label_of
from headgate.core.flavors import Assigner, Assignment, Mode, allowed_flavors, may_be_reduced, reduced, spare_pods
from headgate.core.flavors.catalog import Catalog
from headgate.core.flavors.cluster_queue import ClusterQueueFlavors
from headgate.core.flavors.placing import Placer, admitted_assignment, placements_of
from headgate.core.fold.nodes import place_in
from headgate.core.kubernetes.quantities import canonical
from headgate.core.kubernetes.selectors import matches_labels
from headgate.core.preemption import SnapshotOracle, Target
from headgate.core.preemption.what_if import Snapshot
from headgate.core.state.tables import FlavorResource, State, Workload
from headgate.core.workload import slices
from headgate.core.workload.pod_requests import PodSetRequests, namespace_missing, pod_set_requests, why_invalid
from headgate.events.base import Producer
from headgate.events.ids import WorkloadKey, split_key
from headgate.events.objects import PodSet
from headgate.events.queueing import Needs

ANY_CHANGE = "*"
"""In `WorkloadSkipped.short`: no freed quota can help, only a change of a spec (as in `State.freed`)."""

Flavors = dict[str, dict[str, str]]


class Nominator:
    """
    Nominates the heads of one cycle. Has one snapshot per cohort tree, created on first use.

    An offered head tries flavors from where its scan stopped until it stops again, and continues in the next cycle. A
    standing head tries all at once: on an unchanged state it gets its previous verdict. So does, in a StrictFIFO queue,
    an offered head whose resumed scan has ended without success: flavors that were tried in earlier cycles may be free
    by now. Kueue requeues such a head and restarts its scan in the next cycle; so does a caller that follows that
    rhythm itself, and sets with `resumes` where each scan resumes.
    """

    def __init__(
        self,
        state: State,
        catalog: Catalog,
        resumes: Mapping[WorkloadKey, tuple[dict[str, int], ...]] | None = None,
    ) -> None:
        self._state = state
        self._catalog = catalog
        self._resumes = resumes
        self._snapshots: dict[str, Snapshot] = {}
        self.topologies = catalog.topologies()
        """The topologies, with what this cycle's entries occupy; None when there are none."""

    def snapshot(self, cluster_queue: str) -> Snapshot:
        """The snapshot of a ClusterQueue's tree, with the charges of this cycle."""
        tree = self._state.index.trees[cluster_queue]
        snapshot = self._snapshots.get(tree)
        if snapshot is None:
            snapshot = self._snapshots[tree] = Snapshot(self._state, self._catalog, tree, self.topologies)
        return snapshot

    def nominate(self, workload: Workload, queue: ClusterQueueFlavors, *, standing: bool = False) -> CycleEntry:
        """A head with its assignment and targets; without an assignment when it is rejected, with the reason."""
        limits = self._catalog.limits(split_key(workload.key)[0])
        configuration = self._state.configuration
        requests = pod_set_requests(workload, limits, self._catalog.runtime_classes(), configuration)
        entry = CycleEntry(workload, queue, requests, standing=standing)
        entry.is_preemptor = workload.preemptor
        if not self._rejected(entry):
            if standing:
                self._scan_all(entry)
                return entry
            entry.resumed_from = self._resume_from(workload)
            self._assign(entry, entry.resumed_from, None)
            if self._resumes is None and _begins_anew(entry):
                self._scan_all(entry)
        return entry

    def _requests(self, workload: Workload) -> tuple[PodSetRequests, ...]:
        limits = self._catalog.limits(split_key(workload.key)[0])
        return pod_set_requests(workload, limits, self._catalog.runtime_classes(), self._state.configuration)

    def nominate_again(self, workload: Workload, queue: ClusterQueueFlavors) -> CycleEntry:
        """A workload that holds quota, with the topology domains that it lacks (second pass)."""
        entry = CycleEntry(workload, queue, self._requests(workload), second_pass=True)
        if not self._rejected(entry):
            self._place(entry)
        return entry

    def _place(self, entry: CycleEntry) -> None:
        """Topology domains for the flavors that a workload holds, and the preemption targets for them."""
        entry.placer = placer = self._placer(entry, None)
        assignment = admitted_assignment(entry.workload)
        entry.assignment, entry.targets = assignment, ()
        if placer is not None:
            entry.assignment = placer.place(assignment)
            if placer.replacement is None:
                oracle = SnapshotOracle(self.snapshot(entry.queue.name), entry.queue, entry.workload)
                entry.assignment, entry.targets = _with_targets(oracle, entry.assignment)
            entry.assignment = self._reserving(entry, None)
        entry.mode, entry.message, entry.reason = label_of(entry.assignment.mode), entry.assignment.message, ""

    def _scan_all(self, entry: CycleEntry) -> None:
        """Scan the flavors from the first on, past every position where a scan stops without success."""
        entry.scans_all, entry.resumed_from = True, ()
        self._assign(entry, entry.resumed_from, None)
        while _may_go_on(entry) and scan_moves_on(entry.resumed_from, entry.last_tried):
            entry.resumed_from = entry.last_tried
            self._assign(entry, entry.resumed_from, None)

    def recompute(self, entry: CycleEntry) -> None:
        """Assign again on the snapshot as it is now, from the first flavor on, within the flavors of the nomination."""
        if entry.second_pass:
            self._place(entry)
        else:
            self._assign(entry, (), entry.flavors)

    def _resume_from(self, workload: Workload) -> tuple[dict[str, int], ...]:
        return resume_from(self._state, workload) if self._resumes is None else self._resumes[workload.key]

    def _rejected(self, entry: CycleEntry) -> bool:
        """Whether a head is rejected without checking quota, and why: Kueue's checks in Kueue's order."""
        workload, name = entry.workload, entry.queue.name
        namespace = split_key(workload.key)[0]
        if _has_failed_checks(workload):
            entry.reason, entry.message = "PendingEvaluation", "The workload has failed admission checks"
            return True
        if not entry.queue.active.active:
            entry.reason, entry.message = "Suspended", f"ClusterQueue {name} is inactive"
            return True
        entry.reason = "Misconfigured"
        record = self._state.namespaces.get(namespace)
        if record is None:
            entry.message = namespace_missing(namespace)
        elif not matches_labels(entry.queue.spec.namespace_selector, record.labels):
            entry.message = "workload namespace doesn't match ClusterQueue selector"
            entry.requeue_reason = NAMESPACE_MISMATCH
        else:
            entry.message = why_invalid(entry.requests)
        return bool(entry.message)

    def _assign(self, entry: CycleEntry, last_tried: tuple[dict[str, int], ...], only: Flavors | None) -> None:
        """Flavors for all pods, or for fewer where allowed, and the preemption targets for them (getAssignments)."""
        workload, queue = entry.workload, entry.queue
        snapshot, pod_sets = self.snapshot(queue.name), workload.spec.pod_sets
        configuration = snapshot.configuration
        replaced = slices.replaced_by(self._state, workload)
        entry.placer = self._placer(entry, replaced)
        oracle = SnapshotOracle(snapshot, queue, workload)
        assigner = Assigner(
            queue,
            snapshot.ledger,
            pod_sets,
            entry.requests,
            configuration=configuration,
            oracle=oracle,
            last_tried=last_tried,
            only=only,
            replaced=slices.usage_by_pod_set(replaced, configuration) if replaced is not None else {},
            allowed=allowed_flavors(workload, configuration),
            placer=entry.placer,
        )
        assignment, targets = _with_targets(oracle, assigner.assign())
        if not _is_acceptable(assignment, targets) and _may_be_reduced(snapshot, pod_sets):
            found: dict[tuple[int, ...], tuple[Target, ...]] = {}

            def accept(counts: list[int]) -> Assignment | None:
                fewer, victims = _with_targets(oracle, assigner.assign(counts))
                found[tuple(each.count for each in fewer.pod_sets)] = victims
                return fewer if _is_acceptable(fewer, victims) else None

            fewer = reduced(pod_sets, [each.count for each in entry.requests], accept)
            if fewer is not None:
                assignment, targets = fewer, found[tuple(each.count for each in fewer.pod_sets)]
        entry.assigner = assigner
        entry.assignment, entry.targets, entry.mode = assignment, targets, label_of(assignment.mode)
        entry.replaces = replaced if _is_acceptable(assignment, targets) else None
        entry.assignment = assignment = self._reserving(entry, entry.replaces)
        entry.message, entry.reason = assignment.message, ""
        entry.last_tried = _left_to_try(assignment)
        if assignment.mode is not Mode.FIT:
            entry.short = _short(assigner, assignment)

    def _placer(self, entry: CycleEntry, replaced: Workload | None) -> Placer | None:
        """What places the pods of a workload; None where no pods are placed."""
        if self.topologies is None or entry.queue.gates is None:
            return None
        earlier = placements_of(replaced) if replaced is not None and entry.queue.gates.elastic else None
        return Placer(self.topologies, entry.queue, entry.workload, entry.requests, earlier=earlier)

    def _reserving(self, entry: CycleEntry, replaced: Workload | None) -> Assignment:
        """Its assignment, with the topology domains that it will have when its targets have gone."""
        assignment, placer = entry.assignment, entry.placer
        assert assignment is not None
        if assignment.mode is not Mode.PREEMPT or placer is None:
            return assignment
        leaving = [target.workload for target in entry.targets]
        if replaced is not None:
            leaving.append(replaced.key)
        if not leaving:
            return placer.reserve(assignment, None)
        snapshot = self.snapshot(entry.queue.name)
        return placer.reserve(assignment, [each for key in leaving for each in snapshot.occupied(key)])


def _with_targets(oracle: SnapshotOracle, assignment: Assignment) -> tuple[Assignment, tuple[Target, ...]]:
    if assignment.mode is not Mode.PREEMPT:
        return assignment, ()
    return assignment, oracle.targets(assignment.usage, assignment.contested, assignment.demands)


def _has_failed_checks(workload: Workload) -> bool:
    """Whether an admission check is Retry or Rejected since the last eviction."""
    seen = (*workload.checks, *(check for check in workload.observed_checks if check not in workload.stale_checks))
    return any(check.state in ("Retry", "Rejected") for check in seen)


def _is_acceptable(assignment: Assignment, targets: tuple[Target, ...]) -> bool:
    """Whether it fits, now or after its victims have left."""
    return assignment.mode is Mode.FIT or (assignment.mode is Mode.PREEMPT and bool(targets))


def _may_be_reduced(snapshot: Snapshot, pod_sets: Sequence[PodSet]) -> bool:
    return may_be_reduced(pod_sets) and feature_gates.enabled(snapshot.configuration, feature_gates.PARTIAL_ADMISSION)


def _left_to_try(assignment: Assignment) -> tuple[dict[str, int], ...]:
    """Where a scan stopped before the last flavor; empty when it reached the end everywhere."""
    last_tried = assignment.last_tried
    return () if all(index == -1 for each in last_tried for index in each.values()) else last_tried


def needs_of(entry: CycleEntry) -> Needs:
    """
    What must be available at once before an assignment can fit, with the fewest pods that are allowed.

    Empty when no quota that could be freed is enough: then there is nothing to wait for, and freed quota may at most
    change the reason.
    """
    if entry.assigner is None or not entry.short or entry.short == (ANY_CHANGE,):
        return ()
    ways = ways_of(entry)
    if not all(ways):
        return ()
    return tuple(
        {f"{flavor}/{resource}": canonical(resource, value) for (flavor, resource), value in sorted(way.items())}
        for way in ways
    )


def ways_of(entry: CycleEntry) -> list[dict[FlavorResource, int]]:
    """The alternatives of what a head could be charged with the fewest pods that are allowed, for any flavors."""
    if entry.assigner is None:
        return []
    counts = [each.count for each in entry.requests]
    spare = spare_pods(entry.workload.spec.pod_sets, counts)
    return entry.assigner.ways([count - each for count, each in zip(counts, spare, strict=True)])


def _short(assigner: Assigner, assignment: Assignment) -> tuple[str, ...]:
    """What has to be freed for another verdict; empty means that anything may help (a resumed scan)."""
    if assigner.resumed:
        return ()
    short = [*assigner.short]
    if assignment.mode is Mode.PREEMPT:
        # Who leaves one of its flavors may leave domains that its pods need.
        placed = {demand.flavor for demand in assignment.demands}
        short += [fr for fr in assignment.usage if fr[0] in placed]
    places = [place_in(flavor) for flavor in sorted({*assigner.lacking_place, *_placed_in(assignment)})]
    return tuple(sorted({f"{flavor}/{resource}" for flavor, resource in short} | set(places))) or (ANY_CHANGE,)


def _placed_in(assignment: Assignment) -> list[str]:
    return [demand.flavor for demand in assignment.demands]


def _may_go_on(entry: CycleEntry) -> bool:
    """Whether there is a reason to try the remaining flavors: with those tried it neither fits nor preempts."""
    assert entry.assignment is not None
    return not _is_acceptable(entry.assignment, entry.targets)


def _begins_anew(entry: CycleEntry) -> bool:
    """
    Whether a resumed scan has ended without success, in a StrictFIFO queue.

    In a BestEffortFIFO queue Kueue parks such a head, too, until something happens in its tree.
    """
    if not entry.resumed_from or entry.queue.spec.queueing_strategy != "StrictFIFO":
        return False
    return _may_go_on(entry) and not scan_moves_on(entry.resumed_from, entry.last_tried)


def scan_moves_on(before: Sequence[dict[str, int]], after: Sequence[dict[str, int]]) -> bool:
    """
    Whether a scan has flavors left to try, and has advanced beyond the position that it resumed from.

    Positions are compared pod set by pod set, resource by resource: one that was not reached comes before the first
    flavor, one that reached the end (-1) after the last.
    """
    old, new = _place(before), _place(after)
    for key in sorted(old.keys() | new.keys()) if after else ():
        was, now = old.get(key, -1), new.get(key, -1)
        if was != now:
            return now > was
    return False


_END = 1 << 32


def _place(tried: Sequence[dict[str, int]]) -> dict[tuple[int, str], int]:
    return {
        (i, resource): _END if index == -1 else index
        for i, each in enumerate(tried)
        for resource, index in each.items()
    }


def resume_from(state: State, workload: Workload) -> tuple[dict[str, int], ...]:
    """
    Where the scan over flavors of an offered head resumes: after the flavor where it stopped in the last cycle.

    The scan of a parked head restarts, and an older one restarts once quota of the tree has been freed since.
    """
    verdict = workload.verdict
    if verdict is None or verdict.scope != "immediate" or not workload.last_tried_flavors:
        return ()
    if not feature_gates.enabled(state.configuration, feature_gates.PRESERVE_SCAN_PROGRESS):
        return () if _freed_since(state, workload.cluster_queue, verdict.decided_at) else workload.last_tried_flavors
    scheduler = state.producers.get(Producer.SCHEDULER)
    if scheduler is not None and scheduler.last_seq == verdict.at:
        return workload.last_tried_flavors
    if _freed_since(state, workload.cluster_queue, verdict.decided_at):
        return ()
    return workload.last_tried_flavors


def _freed_since(state: State, cluster_queue: str, position: int) -> bool:
    """Whether quota of a tree was freed or raised after a position."""
    tree = state.index.trees.get(cluster_queue, "")
    return any(seq > position for seq in state.freed.get(tree, {}).values())
