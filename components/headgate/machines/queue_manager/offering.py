"""
Offering: which workloads the scheduler may take next.

Each active ClusterQueue has up to `OFFER_DEPTH` offered heads, in queue order. The scheduler takes the first of each in
a cycle; several are offered so that no cycle waits for a round trip. The outcome has to equal that of one head per
queue per cycle, so an offer never contradicts queue order: when a workload of higher rank than an offered head becomes
eligible, the whole offer of that ClusterQueue is withdrawn and made anew in the same commit.

Of a sleeping shape only as many workloads are offered as there is quota for (`turns`).

Where workloads are ordered by the usage of their LocalQueues each admission changes the order, so there one head is
offered at a time.
"""

from itertools import islice

from headgate.core.state.pending_queue import Rank
from headgate.events.ids import Uid
from headgate.events.queueing import Head
from headgate.machines.queue_manager.draft import Draft

OFFER_DEPTH = 6
"""
How many heads of a ClusterQueue are offered at most. Topped up when fewer than half are left.

A cycle takes one, and the queue manager's response takes about as long as two cycles, so this is enough. More would be
wasted: a workload that arrives ahead of them has them all withdrawn and offered anew, and six processes fold each.
"""


class Offer:
    """The change to the heads of one ClusterQueue: whether its offer is withdrawn, and the new heads."""

    __slots__ = ("heads", "withdrawn")

    def __init__(self, *, withdrawn: bool, heads: list[Head]) -> None:
        self.withdrawn = withdrawn
        self.heads = heads


def offer(draft: Draft, cluster_queue: str) -> Offer:
    """The offer of an active ClusterQueue now, given the draft's events."""
    depth = 1 if draft.orders_by_usage(cluster_queue) else OFFER_DEPTH
    outstanding = draft.outstanding(cluster_queue)
    ahead = draft.ahead(cluster_queue)
    first = next(ahead, None)
    is_passed = first is not None and bool(outstanding) and first < max(outstanding)
    if is_passed or len(outstanding) > depth:
        others = [] if first is None else [first, *islice(ahead, depth - 1)]
        best = sorted([*outstanding, *others])[:depth]
        return Offer(withdrawn=True, heads=_heads(draft, cluster_queue, best))
    if first is None:
        return Offer(withdrawn=False, heads=[])
    if len(outstanding) * 2 >= depth:
        return Offer(withdrawn=False, heads=[])
    room = depth - len(outstanding)
    return Offer(withdrawn=False, heads=_heads(draft, cluster_queue, [first, *islice(ahead, room - 1)]))


def _heads(draft: Draft, cluster_queue: str, ranks: list[Rank]) -> list[Head]:
    return [
        Head(cluster_queue=cluster_queue, workload=key, uid=Uid(uid), alone=draft.is_asleep(cluster_queue, key))
        for *_, uid, key in ranks
    ]
