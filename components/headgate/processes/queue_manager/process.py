"""The queue manager as a process: it reads the log and appends the queue life of workloads."""

from headgate.events.base import Producer
from headgate.machines.queue_manager.decide import QueueManager
from headgate.processes.runtime.process import Process, only_appends

PROCESS = Process(producer=Producer.QUEUE_MANAGER, build=only_appends(QueueManager))
