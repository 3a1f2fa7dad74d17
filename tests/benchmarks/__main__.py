"""`python -m tests.benchmarks [--only NAME]... [--profile] [--json]`."""

import argparse
import importlib
import sys
import time

import msgspec
from tests.benchmarks.measure import Report, show

NAMES = (
    "fold",
    "replay",
    "start",
    "cycle",
    "drain",
    "preemption",
    "placement",
    "spreading",
    "ungating",
    "latency",
    "throughput",
    "memory",
)
MODULES = {
    "fold": "folding",
    "replay": "replaying",
    "start": "starting",
    "cycle": "deciding",
    "drain": "drain",
    "preemption": "preempting",
    "placement": "placing",
    "spreading": "spreading",
    "ungating": "ungating",
    "latency": "latency",
    "throughput": "throughput",
    "memory": "memory",
}


def main() -> None:
    """Run the named benchmarks, one after the other, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measure; judge nothing.")
    parser.add_argument("--only", action="append", choices=NAMES, help="only this one (may be repeated)")
    parser.add_argument("--profile", action="store_true", help="and list where each spends its time")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    reports: list[Report] = []
    for name in options.only or NAMES:
        print(f"{name} ...", end=" ", flush=True, file=sys.stderr)
        begun = time.perf_counter()
        report: Report = importlib.import_module(f"tests.benchmarks.{MODULES[name]}").run(profile=options.profile)
        report.took_s = time.perf_counter() - begun
        print(f"{report.took_s:.1f} s", file=sys.stderr)
        reports.append(report)
    if options.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(reports)) + b"\n")
    else:
        print(show(reports))


if __name__ == "__main__":
    main()
