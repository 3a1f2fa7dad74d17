"""
`python -m tests.benchmarks.kube [--load tas] [--kueue] [--scale S] [--save DIR] [--json]`: Kueue's scheduler benchmark.

15,000 Workloads in 30 ClusterQueues (`kube_load.py`) on a real API server; a driver, a process of its own, creates them
and ends them when their time is up. Nothing else runs on the control plane: no controllers, no kubelets. With `--load
tas` the pods are placed on 640 nodes (Kueue's configuration "tas", with preemption as there); with `--kueue` Kueue runs
in the place of Headgate, with the limits of its client lifted (`kube_reference.py`). What is printed: the makespan, the
waits of each class, the writes by verb and resource, ours and the driver's apart, the CPU and the peak memory of
every process, and where the time goes (of our processes sampled all along, of the API server for a while in the
middle, if Go is there to read its profile).
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final, get_args

import anyio
import msgspec
from tests.benchmarks import kube_profile
from tests.benchmarks.kube_cell import KubeCell, running, running_kueue
from tests.benchmarks.kube_driver import Seen
from tests.benchmarks.kube_entry import options_of, run
from tests.benchmarks.kube_load import CLASSES, SIZES, LoadName, Preemption, queues, total
from tests.benchmarks.kube_meter import Costs, Requests, load_of_machine
from tests.benchmarks.measure import Report, Row, percentile

from headgate.testing.control_plane import API_SERVER, ETCD, Options

KUEUE_S: Final = 336.0
"""
What Kueue itself took on two such cores, in seconds; and the rest of it.

As its performance suite runs it: its client may make 50 requests a second; makespan and waits come from that.
"""
KUEUE_API_MS: Final = 28.0
KUEUE_OWN_MS: Final = 5.8
KUEUE_WRITES: Final = 4.3
KUEUE_WAITS_S: Final = {"large": 34.0, "medium": 90.0, "small": 193.0}

TARGET_S: Final = 200.0
TARGET_API_MS: Final = 22.0
TARGET_WRITES: Final = 2.0
TARGET_OWN_MS: Final = 4.0

SETTLE_S: Final = 5.0
"""How long after the last end the last statuses may take; their cost counts."""
API_PROFILE_S: Final = 20
DRIVER: Final = "driver"
GROUPS: Final = ("kueue.x-k8s.io", "batch", "", "events.k8s.io")


class Measured(msgspec.Struct, kw_only=True):
    """One run."""

    seen: Seen
    costs: Costs
    api_profile: str
    own_profiles: str


async def measure(folder: Path, options: argparse.Namespace) -> Measured:
    """One run in a folder."""
    plane = Options(controllers=False, kwok=False, nodes=0)
    cells = (
        running_kueue(folder, options=plane, topologies=options.load == "tas")
        if options.kueue
        else running(folder, options=plane, sampled=options.sampled)
    )
    async with cells as cell:
        await cell.create(queues(_preemption(options), options.load))
        await anyio.sleep(SETTLE_S)
        meter = cell.meter()
        await meter.begin()
        profile: list[str] = []
        async with anyio.create_task_group() as tasks:
            if options.sampled:
                tasks.start_soon(_profile_api, cell, folder / "api-server.pprof", options.scale, profile)
            seen = await _drive(cell, folder, options)
            tasks.cancel_scope.cancel()
        await anyio.sleep(SETTLE_S)
        costs = await meter.end()
    costs.cpu_s[DRIVER] = seen.cpu_s
    own = kube_profile.of_samples(folder / "samples") if options.sampled and not options.kueue else ""
    return Measured(seen=seen, costs=costs, api_profile="".join(profile), own_profiles=own)


def _preemption(options: argparse.Namespace) -> Preemption:
    """As the command line has it; by default as in Kueue's configuration of the load."""
    within, reclaim = ("LowerPriority", "Any") if options.load == "tas" else ("Never", "Never")
    return Preemption(
        within_cluster_queue=options.within_cluster_queue or within,
        reclaim_within_cohort=options.reclaim_within_cohort or reclaim,
    )


async def _drive(cell: KubeCell, folder: Path, options: argparse.Namespace) -> Seen:
    token = folder / "driver-token"
    token.write_text(cell.plane.token)
    command = [sys.executable, "-m", "tests.benchmarks.kube_driver"]
    command += ["--server", cell.plane.url, "--ca", str(cell.plane.ca_file), "--token-file", str(token)]
    command += ["--load", options.load, "--scale", str(options.scale)]
    async with await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None) as run:
        assert run.stdout is not None
        said = b"".join([chunk async for chunk in run.stdout])
        if await run.wait() != 0:
            raise SystemExit("the driver failed; see above")
    return msgspec.json.decode(said, type=Seen)


async def _profile_api(cell: KubeCell, file: Path, scale: float, out: list[str]) -> None:
    """Profile the API server in the middle of the run."""
    await anyio.sleep(60.0 * scale)
    raw = await cell.api.get(f"/debug/pprof/profile?seconds={API_PROFILE_S}", timeout_s=API_PROFILE_S + 60)
    await anyio.Path(file).write_bytes(raw)
    out.append(await anyio.to_thread.run_sync(kube_profile.of_api_server, file))


# --- the table -----------------------------------------------------------------------------------------------------


def report(measured: Measured, took_s: float) -> Report:
    """The figures compared with the targets, and with Kueue on such a machine."""
    seen, costs = measured.seen, measured.costs
    count = seen.workloads
    api_ms = 1000 * costs.cpu_s[API_SERVER] / count
    own_ms = 1000 * sum(used for name, used in costs.cpu_s.items() if name not in (API_SERVER, ETCD, DRIVER)) / count
    ours = own_writes(costs, seen)
    writes = sum(ours.values()) / count
    whole = count == total(CLASSES["baseline"])
    rows = [
        Row(
            what=f"makespan, {count} workloads in 30 ClusterQueues",
            figure=f"{seen.makespan_s:.0f} s",
            target=f"<= {TARGET_S:.0f} s" if whole else "",
            met=seen.makespan_s <= TARGET_S if whole else None,
            compared=f"Kueue {KUEUE_S:.0f} s; all were created after {seen.created_s:.0f} s",
        ),
        Row(
            what="CPU of the API server, per workload",
            figure=f"{api_ms:.1f} ms",
            target=f"<= {TARGET_API_MS:.0f} ms",
            met=api_ms <= TARGET_API_MS,
            compared=f"Kueue {KUEUE_API_MS:.0f} ms",
        ),
        Row(
            what="writes of ours, per workload",
            figure=f"{writes:.2f}",
            target=f"<= {TARGET_WRITES:.1f}",
            met=writes <= TARGET_WRITES,
            compared=f"Kueue {KUEUE_WRITES:.1f}; the driver's {sum(seen.requests.values()) / count:.2f} beside them",
        ),
        Row(
            what="CPU of our six processes and NATS (or of Kueue), per workload",
            figure=f"{own_ms:.2f} ms",
            target=f"<= {TARGET_OWN_MS:.1f} ms",
            met=own_ms <= TARGET_OWN_MS,
            compared=f"Kueue {KUEUE_OWN_MS:.1f} ms",
        ),
    ]
    for name in SIZES:
        waits = seen.waits_s[name]
        rows.append(
            Row(
                what=f"time to admission, {name}",
                figure=f"mean {statistics.fmean(waits):.1f} s, p50 {percentile(waits, 0.5):.1f} s, "
                f"p99 {percentile(waits, 0.99):.1f} s",
                compared=f"Kueue's mean {KUEUE_WAITS_S[name]:.0f} s" if whole else "",
            )
        )
    done = Report(name="bench-kube", rows=rows, took_s=took_s)
    done.notes += [f"{each.verb} {each.resource} by us: {n} ({n / count:.2f} a workload)" for each, n in ours.items()]
    done.notes += [f"{what} by the driver: {n} ({n / count:.2f} a workload)" for what, n in seen.requests.items()]
    done.notes += refusals(costs)
    done.notes.append(f"{seen.evictions} evictions of running workloads ({seen.evictions / count:.3f} a workload)")
    done.notes += costs_of_processes(costs, count)
    done.notes.append(load_of_machine())
    done.profile = "\n".join(part for part in (measured.api_profile, measured.own_profiles) if part)
    return done


def own_writes(costs: Costs, seen: Seen) -> dict[Requests, int]:
    """Our writes: what the API server counted, without the driver's."""
    writes: dict[Requests, int] = {}
    for each, count in sorted(costs.writes(*GROUPS).items()):
        sort = msgspec.structs.replace(each, code="")
        writes[sort] = writes.get(sort, 0) + count
    for verb, resource, what in (("POST", "workloads", "create"), ("PATCH", "workloads/status", "finish")):
        sort = Requests(verb=verb, group="kueue.x-k8s.io", resource=resource, code="")
        writes[sort] = writes.get(sort, 0) - seen.requests.get(what, 0)
    return {each: count for each, count in writes.items() if count}


def refusals(costs: Costs) -> list[str]:
    """The writes that were not carried out."""
    return [
        f"{each.verb} {each.resource}: {count} answered {each.code}"
        for each, count in sorted(costs.writes(*GROUPS).items())
        if not each.code.startswith("2")
    ]


def costs_of_processes(costs: Costs, count: int, what: str = "a workload") -> list[str]:
    """A line for each process."""
    lines = []
    for name in (API_SERVER, ETCD, *sorted(set(costs.cpu_s) - {API_SERVER, ETCD, DRIVER}), DRIVER):
        if name not in costs.cpu_s:
            continue
        used = costs.cpu_s[name]
        share = 100 * used / costs.took_s
        peak = f", peak {costs.peak_mib[name]:.0f} MiB" if name in costs.peak_mib else ""
        lines.append(
            f"{used:6.1f} s CPU  {name:24} {1000 * used / count:6.2f} ms {what}, {share:3.0f} % of a core{peak}"
        )
    return lines


def main() -> None:
    """Run once and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.kube", description="Measure; judge nothing.")
    parser.add_argument("--scale", type=float, default=1.0, help="the share of 15,000 workloads (default 1)")
    parser.add_argument("--load", choices=get_args(LoadName), default="baseline", help="Kueue's configuration")
    parser.add_argument("--kueue", action="store_true", help="run Kueue in place of Headgate (built with Go, once)")
    parser.add_argument("--within-cluster-queue", help="preemption.withinClusterQueue of the queues")
    parser.add_argument("--reclaim-within-cohort", help="preemption.reclaimWithinCohort of the queues")
    options = options_of(parser)
    run(measure, report, options)


if __name__ == "__main__":
    main()
