"""
Which rules a process decides by, as a number that its terms carry in the log.

A release in which a machine decides differently on the same state raises the number of that process here. Each
`leader.elected` records the number and the version of Headgate. `headgate replay --verify` decides again what was
decided by the rules of the current version: a difference there is a divergence, whichever version it was. It does not
compare what was decided by other rules, which is a deliberate change, and reports those rules and versions. Number 0 is
that of logs from before the numbers were recorded.

A process has several tasks, and a release may change one of them. So each check of a replay names the number since
which its task is unchanged.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headgate.events.base import Producer

RULES: Final[Mapping[Producer, int]] = MappingProxyType(
    {
        Producer.INFORMER_BRIDGE: 0,
        Producer.QUEUE_MANAGER: 3,
        Producer.SCHEDULER: 4,
        Producer.BINDER: 2,
        Producer.UNGATER: 0,
        Producer.SNAPSHOTTER: 2,
    }
)

SNAPSHOTS_SINCE: Final = 2
"""Before, states left out what a configuration does not set, or has copied, so their hashes differed."""
CYCLES_SINCE: Final = 0
WAITING_CYCLES_SINCE: Final = 2
"""As above, for cells in which heads wait before they preempt (`Configuration.preemption_waits`)."""
QUEUE_DECISIONS_SINCE: Final = 3
STATUSES_SINCE: Final = 1
PLACEMENTS_SINCE: Final = 3
"""Before, the binder has placed pods, on the first node that they fit on; beside them, until its rules 2."""
PLACEMENT_PARTS_SINCE: Final = 4
"""Before, decisions on pods did not have how many nodes were looked at, nor verdicts what is written to help."""
BINDINGS_SINCE: Final = 0
JOB_RUNS_SINCE: Final = 0
CREATIONS_SINCE: Final = 0
REQUESTS_SINCE: Final = 0
POD_DOMAINS_SINCE: Final = 0


def decides_alike(producer: Producer, rules: int, since: int) -> bool:
    """Whether a term by these rules did, in the same way as this release, what is unchanged since the rules `since`."""
    return since <= rules <= RULES[producer]
