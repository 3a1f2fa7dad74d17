"""
How the benchmarks measure, and how they show what they found.

Machines are noisy and shared, so everything short is repeated and its median is quoted, and where useful a
figure is given as a ratio to something simpler measured in the same minute. A target that is missed is shown as
missed; nothing fails by it.
"""

import cProfile
import io
import os
import pstats
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

PROFILE_LINES = 15


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. `met` is None where there is no target. `compared` is what it is compared with."""

    what: str
    figure: str
    target: str = ""
    met: bool | None = None
    compared: str = ""


class Report(msgspec.Struct, kw_only=True):
    """What a benchmark found: its lines, and where the time goes, in words."""

    name: str
    rows: list[Row] = []
    notes: list[str] = []
    profile: str = ""
    took_s: float = 0.0


def median_s(act: Callable[[], object], *, repeat: int = 5) -> float:
    """The median duration of an act, in seconds."""
    times = []
    for _ in range(repeat):
        begun = time.perf_counter()
        act()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def percentile(values: list[float], share: float) -> float:
    """The value that so large a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def profiled(act: Callable[[], object], lines: int = PROFILE_LINES) -> str:
    """The functions in which an act spends its own time, most first."""
    profile = cProfile.Profile()
    profile.enable()
    act()
    profile.disable()
    return shown(pstats.Stats(profile), lines)


def shown(stats: pstats.Stats, lines: int = PROFILE_LINES) -> str:
    """The first lines of a profile, by own time."""
    text = io.StringIO()
    stats.stream = text  # type: ignore[attr-defined]
    stats.sort_stats("tottime").print_stats(lines)
    return "\n".join(_shortened(line) for line in text.getvalue().splitlines() if line.strip())


def _shortened(line: str) -> str:
    return line.replace(str(Path.cwd()) + "/", "").replace("components/", "")


def rss_mib(pid: int | None = None) -> float:
    """The resident memory of a process, in MiB."""
    status = Path(f"/proc/{pid or os.getpid()}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def cpu_s(pid: int) -> float:
    """The CPU time that a process has used, user and system, in seconds. Raises OSError when it is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(reports: list[Report]) -> str:
    """The table, then the notes and profiles."""
    rows = [("what", "figure", "target", "", "against")]
    for report in reports:
        for row in report.rows:
            met = {True: "met", False: "MISSED", None: ""}[row.met]
            rows.append((row.what, row.figure, row.target, met, row.compared))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    for report in reports:
        lines += ["", f"{report.name} (took {report.took_s:.1f} s)"]
        lines += [f"  {note}" for note in report.notes]
        if report.profile:
            lines += ["", report.profile]
    return "\n".join(lines)
