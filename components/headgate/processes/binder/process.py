"""The binder as a process: it writes statuses and bindings to the API server, and appends what came of it."""

from headgate.events.base import Producer
from headgate.processes.binder.decide import Binder
from headgate.processes.process import Process, makes_calls

PROCESS = Process(producer=Producer.BINDER, build=makes_calls(Binder), kubernetes=True)
