"""
The scheduler as a process: it reads the log and appends cycles.

A cycle is one commit, whatever its size: its decisions are atomic.
"""

from headgate.events.base import Producer
from headgate.machines.scheduler.decide import Scheduler
from headgate.processes.runtime.process import Process, only_appends

PROCESS = Process(producer=Producer.SCHEDULER, build=only_appends(Scheduler))
