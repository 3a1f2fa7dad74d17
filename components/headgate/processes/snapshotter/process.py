"""
The snapshotter as a process: snapshots and their verification, the feed, the read side.

The caller that starts it adds the read side itself (`headgate.web`) to its HTTP server.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from headgate.adapters.jetstream.feed import open_feed
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.machines.snapshotter.decide import Rules, Snapshotter
from headgate.processes.runtime.host_parts import Parts
from headgate.processes.runtime.process import Given, Process
from headgate.processes.snapshotter.feed import Feeding
from headgate.processes.snapshotter.feed_writer import FeedWriter
from headgate.processes.snapshotter.storing import SnapshotCarrier

LINGER_S: Final = 0.1
"""How much later than a commit the read side may show it: no process depends on the snapshotter."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def _build(given: Given) -> AsyncIterator[Parts]:
    settings = given.settings.snapshots
    rules = Rules(commits=settings.commits, every_ms=settings.every_ms, idle_ms=settings.idle_ms)
    carrier = SnapshotCarrier(
        given.log, given.blobs, given.status, keep=settings.keep, verify=settings.verify, now_ms=_now_ms
    )

    def machine(state: State) -> Snapshotter:
        return Snapshotter(state, rules)

    feeding = None
    if given.settings.feed.enabled:
        feed = await open_feed(given.connection, given.settings.cell, replicas=given.settings.nats.replicas)
        given.warn(feed.warnings)
        writer = FeedWriter(given.connection, feed.name)
        feeding = Feeding(writer, given.log, given.status, batch_max=given.settings.feed.batch_max)
    yield Parts(machine=machine, carrier=carrier, feeder=feeding)


PROCESS = Process(producer=Producer.SNAPSHOTTER, build=_build, linger_s=LINGER_S)
