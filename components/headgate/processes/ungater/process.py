"""The ungater as a process: it reads the log, resumes and suspends jobs, and appends what came of it."""

from headgate.events.base import Producer
from headgate.processes.process import Process, makes_calls
from headgate.processes.ungater.decide import Ungater

PROCESS = Process(producer=Producer.UNGATER, build=makes_calls(Ungater), kubernetes=True)
