"""How long a process needs from a snapshot to its first decision, and how much memory it has then."""

import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from tests.benchmarks.driving import run_driver
from tests.benchmarks.lives import CELL, START_MS, crowd, settle_statuses
from tests.benchmarks.measure import Report, Row, median_s, profiled, rss_mib

from headgate.adapters.jetstream import connect
from headgate.adapters.jetstream.blobs import open_blobs
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.core import fold
from headgate.core.machine.contract import Machine, Settled
from headgate.core.state.tables import State
from headgate.events.commit import digest
from headgate.events.ids import UnixMs
from headgate.machines.binder.decide import Binder
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.machines.queue_manager.decide import QueueManager
from headgate.machines.scheduler.decide import Scheduler
from headgate.machines.snapshotter.decide import Snapshotter
from headgate.machines.ungater.decide import Ungater

WORKLOADS = 100_000
TARGET_S = 5.0
MACHINES: tuple[Callable[[State], Machine], ...] = (
    InformerBridge,
    QueueManager,
    Scheduler,
    Binder,
    Ungater,
    Snapshotter,
)


class Start(msgspec.Struct, frozen=True):
    """What a fresh process measured of itself."""

    hash_s: float
    restore_s: float
    machines_s: dict[str, float]
    first_s: dict[str, float]
    before_mib: float
    after_mib: float
    with_machines_mib: float


def start(path: str) -> Start:
    """As a process does: read, check the hash, restore, make the machine, decide once."""
    encoded = Path(path).read_bytes()
    before_mib = rss_mib() - len(encoded) / 2**20
    begun = time.perf_counter()
    digest(encoded)
    hashed = time.perf_counter()
    state = fold.restore(CELL, encoded)
    restored = time.perf_counter()
    del encoded
    gc.freeze()  # as the host does
    after_mib = rss_mib()
    machines, made, first = [], {}, {}
    for make in MACHINES:
        name = make.__name__
        moment = time.perf_counter()
        machine = make(state)
        made[name] = time.perf_counter() - moment
        moment = time.perf_counter()
        machine.decide(Settled(UnixMs(START_MS + 10_000_000)))
        first[name] = time.perf_counter() - moment
        machines.append(machine)
    return Start(hashed - begun, restored - hashed, made, first, before_mib, after_mib, rss_mib())


def run(*, profile: bool = False, workloads: int = WORKLOADS) -> Report:
    """Build a state of many workloads, encode it, and start from it in processes of their own."""
    report = Report(name="start")
    state = fold.new_state(CELL)
    begun = time.perf_counter()
    for logged in crowd(workloads):
        fold.apply(state, logged)
    folded_s = time.perf_counter() - begun
    settle_statuses(state)
    encode_s = median_s(partial(fold.encode, state), repeat=3)
    encoded = fold.encode(state)
    del state
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as directory:
        path = Path(directory) / "snapshot"
        path.write_bytes(encoded)
        starts = sorted((_apart(path) for _ in range(3)), key=lambda each: each.restore_s)
    middle = starts[1]
    slowest = max(middle.machines_s, key=lambda name: middle.machines_s[name] + middle.first_s[name])
    machine_s = middle.machines_s[slowest] + middle.first_s[slowest]
    fetch_s = run_driver(fetching, encoded)
    total_s = fetch_s + middle.hash_s + middle.restore_s + machine_s
    memory = middle.after_mib - middle.before_mib
    report.rows += [
        Row(
            what=f"cold start, {workloads:,} workloads, from a snapshot",
            figure=f"{total_s:.2f} s",
            target=f"<= {TARGET_S:.0f} s",
            met=total_s <= TARGET_S,
            compared=f"{total_s / folded_s:.2f} x folding their events, decoding not counted ({folded_s:.1f} s)",
        ),
        Row(
            what=f"encode the state of {workloads:,} workloads",
            figure=f"{encode_s:.2f} s",
            compared=f"{len(encoded) / 2**20:.0f} MiB, {len(encoded) / workloads:.0f} bytes a workload with its job",
        ),
        Row(
            what=f"memory per {workloads:,} workloads",
            figure=f"{memory:.0f} MiB",
            compared=f"{memory * 2**20 / workloads:,.0f} bytes a workload with its job; with all six machines "
            f"{middle.with_machines_mib - middle.before_mib:.0f} MiB",
        ),
    ]
    report.notes += [
        f"fetching the snapshot from NATS {fetch_s:.2f} s, hashing {middle.hash_s:.2f} s, decoding and indexing "
        f"{middle.restore_s:.2f} s; the slowest machine is {slowest}",
        "making the machine + first decision: "
        + ", ".join(
            f"{name} {middle.machines_s[name]:.2f} + {middle.first_s[name]:.2f} s" for name in middle.machines_s
        ),
    ]
    if profile:
        restored = fold.restore(CELL, encoded)
        report.profile = profiled(lambda: fold.restore(CELL, encoded))
        for make in MACHINES:
            report.profile += "\n" + profiled(lambda make=make: make(restored).decide(Settled(UnixMs(START_MS + 1))), 6)  # type: ignore[misc]
    return report


async def fetching(encoded: bytes) -> float:
    """The median time to get a snapshot back from a broker's object store, in seconds."""
    times = []
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as directory:
        async with EmbeddedServer(directory) as server, connect(server.url, name="bench") as connection:
            blobs = await open_blobs(connection, CELL)
            await blobs.put("state-1", encoded, position=1)
            for _ in range(3):
                begun = time.perf_counter()
                assert len(await blobs.get("state-1")) == len(encoded)
                times.append(time.perf_counter() - begun)
    return sorted(times)[1]


def _apart(path: Path) -> Start:
    """A start in a process of its own, whose memory is its own."""
    command = [sys.executable, "-m", "tests.benchmarks.starting", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, timeout=120)
    return msgspec.json.decode(done.stdout, type=Start)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(start(sys.argv[1])))
