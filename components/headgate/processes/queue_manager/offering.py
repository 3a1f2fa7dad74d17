"""
Offering: which workloads the scheduler may take next.

Each active ClusterQueue has up to `OFFER_DEPTH` heads on offer, in queue order. The scheduler takes the first of each
in a cycle; several are offered so that no cycle waits for a round trip. The outcome is to be that of one head per
queue per cycle, so an offer never stands against queue order: when somebody of higher rank than a head on offer may
go, the whole offer of that ClusterQueue is taken back and made anew in the same commit.
"""

from itertools import islice

from headgate.core.pending import Rank
from headgate.events.queueing import Head
from headgate.processes.queue_manager.draft import Draft

OFFER_DEPTH = 6
"""
How many heads of a ClusterQueue are on offer at most. Topped up when fewer than half are left.

A cycle takes one, and the queue manager's answer takes about as long as two cycles, so this is enough. More would be in
vain: whoever comes in ahead of them has them all taken back and offered anew, and each is folded by six processes.
"""


class Offer:
    """What is to be said about the heads of one ClusterQueue: whether its offer is taken back, and the new heads."""

    __slots__ = ("heads", "withdrawn")

    def __init__(self, *, withdrawn: bool, heads: list[Head]) -> None:
        self.withdrawn = withdrawn
        self.heads = heads


def offer(draft: Draft, cluster_queue: str) -> Offer:
    """What to offer of an active ClusterQueue now, as it will stand after the draft's events."""
    outstanding = draft.outstanding(cluster_queue)
    ahead = draft.ahead(cluster_queue)
    first = next(ahead, None)
    if first is None:
        return Offer(withdrawn=False, heads=[])
    if outstanding and first < max(outstanding):
        best = sorted([*outstanding, first, *islice(ahead, OFFER_DEPTH - 1)])[:OFFER_DEPTH]
        return Offer(withdrawn=True, heads=_heads(cluster_queue, best))
    if len(outstanding) * 2 >= OFFER_DEPTH:
        return Offer(withdrawn=False, heads=[])
    room = OFFER_DEPTH - len(outstanding)
    return Offer(withdrawn=False, heads=_heads(cluster_queue, [first, *islice(ahead, room - 1)]))


def _heads(cluster_queue: str, ranks: list[Rank]) -> list[Head]:
    return [Head(cluster_queue=cluster_queue, workload=key, uid=uid) for _, _, uid, key in ranks]  # type: ignore[arg-type]
