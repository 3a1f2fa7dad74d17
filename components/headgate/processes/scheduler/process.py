"""
The scheduler as a process: it reads the log and appends cycles.

A cycle is one commit, whatever its size: its decisions are atomic.
"""

from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.machines.scheduler.decide import Scheduler
from headgate.processes.runtime.process import Process, only_appends


def heads_stream(state: State) -> bool:
    """Whether a ClusterQueue has more heads on offer than one cycle decides, and nothing in it waits for quota."""
    return any(len(offered) > 1 and name not in state.sleeps for name, offered in state.index.offered.items())


PROCESS = Process(producer=Producer.SCHEDULER, build=only_appends(Scheduler, hurries=heads_stream))
