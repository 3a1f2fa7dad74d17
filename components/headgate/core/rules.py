"""
Which rules a process decides by, as a number that its terms carry in the log.

A release in which a machine decides otherwise on the same state raises the number of that process here. Each
`leader.elected` records it, so a reader knows for each term whether the machine at hand is the one that decided:
`headgate replay --verify` decides those terms again, and says how many commits were decided by other rules. Number 0 is
that of logs from before the numbers were recorded.

A process has several tasks, and a release may change one of them. So each check of a replay names the number from which
on its task is done as it is now.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headgate.events.base import Producer

RULES: Final[Mapping[Producer, int]] = MappingProxyType(
    {
        Producer.INFORMER_BRIDGE: 0,
        Producer.QUEUE_MANAGER: 1,
        Producer.SCHEDULER: 0,
        Producer.BINDER: 1,
        Producer.UNGATER: 0,
        Producer.SNAPSHOTTER: 0,
    }
)

CYCLES_SINCE: Final = 0
QUEUE_DECISIONS_SINCE: Final = 1
STATUSES_SINCE: Final = 1
PLACEMENTS_SINCE: Final = 0
JOB_RUNS_SINCE: Final = 0
CREATIONS_SINCE: Final = 0


def decides_alike(producer: Producer, rules: int, since: int) -> bool:
    """Whether a term by these rules has done, as this release does it, what is done so since the rules `since`."""
    return since <= rules <= RULES[producer]
