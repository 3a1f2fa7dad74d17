"""What the benchmarks on a real control plane have in common as commands: their options, one run, the table."""

import argparse
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec
from tests.benchmarks.measure import Report, show

from headgate.testing.control_plane import NoAssetsError

Measured = TypeVar("Measured")


def options_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line, with the options that each of these benchmarks has besides its own."""
    parser.add_argument("--no-profile", dest="sampled", action="store_false", help="do not look where the time goes")
    parser.add_argument("--save", type=Path, help="keep logs, profiles and figures in this folder")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def run(
    measure: Callable[[Path, argparse.Namespace], Awaitable[Measured]],
    report: Callable[[Measured, float], Report],
    options: argparse.Namespace,
) -> None:
    """Measure once and print the report. Ends the process, with one line, where there is no control plane."""
    begun = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="headgate-bench-kube-") as directory:
            measured = anyio.run(
                measure, options.save or Path(directory), options, backend_options={"use_uvloop": True}
            )
    except NoAssetsError as error:
        sys.exit(f"headgate: {error}")
    done = report(measured, time.perf_counter() - begun)
    if options.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(done)) + b"\n")
    else:
        print(show([done]))
