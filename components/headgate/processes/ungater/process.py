"""The ungater as a process: it reads the log, resumes and suspends jobs, and appends the outcomes."""

from headgate.events.base import Producer
from headgate.machines.ungater.decide import Ungater
from headgate.processes.runtime.process import Process, makes_calls

PROCESS = Process(producer=Producer.UNGATER, build=makes_calls(Ungater), kubernetes=True)
