"""The queue manager as a process: it reads the log and appends the queue life of workloads."""

from headgate.events.base import Producer
from headgate.processes.process import Process, only_appends
from headgate.processes.queue_manager.decide import QueueManager

PROCESS = Process(producer=Producer.QUEUE_MANAGER, build=only_appends(QueueManager))
