"""What both searches share: the query, removing candidates until the workload fits, restoring unnecessary ones."""

from collections.abc import Iterator, Mapping, Sequence

from headgate.core.flavors.cluster_queue import ClusterQueueFlavors
from headgate.core.preemption.policy import NEVER, Preemptor
from headgate.core.preemption.what_if import Snapshot
from headgate.core.quota.holders import Holder, Size
from headgate.core.quota.tree import QuotaNode
from headgate.core.state.tables import FlavorResource, Workload
from headgate.core.topology.demands import PodSetDemand
from headgate.events.ids import WorkloadKey

Found = list[tuple[Holder, str]]
"""Those to preempt, each with its reason, in the order of Kueue's answer."""


class Search:
    """One query: which workloads to preempt for these requests of an incoming workload at a ClusterQueue."""

    __slots__ = (
        "_asked",
        "_demands",
        "_levels",
        "_vacated",
        "contested",
        "found",
        "ledger",
        "node",
        "preemptor",
        "queue",
        "requests",
        "snapshot",
    )

    def __init__(
        self,
        snapshot: Snapshot,
        queue: ClusterQueueFlavors,
        incoming: Workload,
        requests: Mapping[FlavorResource, int],
        contested: frozenset[FlavorResource],
        demands: Sequence[PodSetDemand] = (),
    ) -> None:
        assert queue.node is not None, f"ClusterQueue {queue.name} has no quota tree"
        self.snapshot = snapshot
        self.ledger = snapshot.ledger
        self.queue = queue
        self.node = queue.node
        self.requests = requests
        self.contested = contested
        self.preemptor = Preemptor(incoming, snapshot.configuration)
        self.found: Found = []
        self._asked = list(requests.items())
        self._demands = demands if snapshot.topologies is not None else ()
        self._vacated: dict[WorkloadKey, Holder] = {}
        """Those whose domains are free: of the removed candidates, as they were when the pods were placed last."""
        limits = self.ledger.tree.limits
        self._levels = [(self.ledger.column(fr), limits(fr).subtree) for fr in sorted(contested)]

    def fits(self, *, borrowing: bool) -> bool:
        """Whether the workload fits now; without borrowing, within its ClusterQueue's own quota."""
        ledger, node = self.ledger, self.node
        for i, (fr, value) in enumerate(self._asked):
            if not borrowing and ledger.borrows_with(node, fr, value):
                lacks = True
            else:
                lacks = value > max(0, ledger.available(node, fr))
            if lacks:
                if i:  # Check first next time what lacked now: it is the likeliest to lack again.
                    self._asked.insert(0, self._asked.pop(i))
                return False
        return not self._demands or self._can_place()

    def _can_place(self) -> bool:
        """Whether the pods of the workload find their topology domains."""
        assert self.snapshot.topologies is not None
        is_removed = self.snapshot.is_removed
        self._vacate({holder.key: holder for holder, _ in self.found if is_removed(holder.key)})
        return self.snapshot.topologies.can_place(self._demands)

    def _vacate(self, holders: dict[WorkloadKey, Holder]) -> None:
        """
        Free the domains of these workloads, and of no others.

        Only when pods are to be placed: most removals of a search are undone before, or are for quota alone.
        """
        for key, holder in self._vacated.items():
            if key not in holders:
                self.snapshot.occupy(holder)
        for key, holder in holders.items():
            if key not in self._vacated:
                self.snapshot.vacate(holder)
        self._vacated = holders

    def charge(self) -> None:
        """Count the incoming workload's usage as if it ran."""
        for fr, value in self.requests.items():
            self.ledger.add(self.node, fr, value)

    def uncharge(self) -> None:
        """Undo `charge`."""
        for fr, value in self.requests.items():
            self.ledger.remove(self.node, fr, value)

    def fits_when_charged(self) -> bool:
        """Whether the workload, whose usage is counted, would fit if it were not counted yet."""
        self.uncharge()
        fits = self.fits(borrowing=True)
        self.charge()
        return fits

    def preempt(self, holder: Holder, reason: str) -> None:
        """Remove a candidate."""
        self.snapshot.take_out(holder)
        self.found.append((holder, reason))

    def fill_back(self, *, borrowing: bool) -> None:
        """
        Restore those without whose removal it fits as well, from the last but one to the first.

        The last one stays removed: with it the workload fitted. The place of a restored one is taken by the last of the
        list, as in Kueue; so the order of the answer is Kueue's, too. When one was necessary, all of that size in its
        ClusterQueue are: the free quota never grows during the pass. That does not hold where pods are placed, since
        which domains it occupies is another matter than its size.
        """
        found = self.found
        needed: set[tuple[int, Size]] = set()
        for i in range(len(found) - 2, -1, -1):
            holder = found[i][0]
            if (holder.node.index, holder.size) in needed:
                continue
            self.snapshot.put_back(holder)
            if self.fits(borrowing=borrowing):
                found[i] = found[-1]
                found.pop()
            else:
                self.snapshot.take_out(holder)
                if not self._demands:
                    needed.add((holder.node.index, holder.size))

    def put_back(self) -> Found:
        """Restore the snapshot; returns what was found."""
        found, self.found = self.found, []
        for holder, _ in found:
            self.snapshot.put_back(holder)
        self._vacate({})
        return found

    def candidates(self, node: QuotaNode, policy: str) -> Iterator[Holder]:
        """The candidates of a ClusterQueue that a policy allows the incoming workload to preempt, in their order."""
        if policy == NEVER:
            return iter(())
        candidates = self.snapshot.candidates(node.name, self.contested)
        return self.preemptor.among(candidates, policy, by_priority=self.snapshot.by_priority)

    def within_quota(self, node: QuotaNode) -> bool:
        """Whether a node uses no more than its (a cohort: its subtree's) quota of anything contested."""
        at = node.index
        for used, quota in self._levels:  # noqa: SIM110  (asked of every ClusterQueue of a tree)
            if used[at] > quota[at]:
                return False
        return True

    def within_nominal(self) -> bool:
        """Whether the preemptor's ClusterQueue uses no more than its own quota of anything contested."""
        return not any(self.ledger.borrows_with(self.node, fr, 0) for fr in self.contested)

    def below_nominal(self) -> bool:
        """Whether it uses less than its own quota of everything contested."""
        return all(self.node.quota(fr).nominal > self.ledger.usage(self.node, fr) for fr in self.contested)
