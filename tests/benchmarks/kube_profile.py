"""
Where the time goes, in words: of our processes from samples of their stacks, of the API server from its own profile.

Samples are what `profiling/sitecustomize.py` writes: JSON, stacks (innermost function first) and how often each was
seen.
"""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

LINES: Final = 14

PARTS: Final = (
    ("garbage collection", "runtime.gcBgMarkWorker|runtime.gcAssistAlloc|runtime.bgsweep|runtime.bgscavenge"),
    ("allocating, its share of garbage collection included", "runtime.mallocgc"),
    ("field management (managedFields)", "managedfields|fieldmanager"),
    ("validation by schema", "apiextensions-apiserver/pkg/apiserver/validation|kube-openapi/pkg/validation"),
    ("validation by CEL", "apiserver/schema/cel"),
    (
        "telling watchers (watch cache, encoding of events)",
        r"cacheWatcher|cacher.\(\*Cacher\)|watch_cache|handlers.\(\*WatchServer",
    ),
    ("reading back from etcd's watch", r"etcd3.\(\*watchChan"),
    ("encoding and decoding JSON", "encoding/json|serializer/json|json-iterator|sigs.k8s.io/json"),
    ("TLS and HTTP", r"crypto/tls|net/http.\(\*conn\).(readRequest|close)|net/http2"),
    ("requests, from filters to storage", "handlers/finisher.finishRequest"),
    ("openapi of the definitions", "kube-openapi/pkg/handler|openapi/controller|openapiv3"),
)
"""Parts of the API server that overlap: functions on the stack, as regular expressions of `go tool pprof -focus`."""


class Stack(msgspec.Struct, frozen=True):
    """A stack, innermost first, each "<file>:<function>", and how often it was seen."""

    frames: tuple[str, ...]
    count: int


def of_samples(folder: Path) -> str:
    """Each process: its functions by own time, and ours by time with what they call."""
    parts = []
    for file in sorted(folder.glob("*.json")):
        stacks = msgspec.json.decode(file.read_bytes(), type=list[Stack])
        total = sum(stack.count for stack in stacks)
        if not total:
            continue
        own: Counter[str] = Counter()
        inside: Counter[str] = Counter()
        for stack in stacks:
            own[stack.frames[0]] += stack.count
            for frame in set(stack.frames):
                if frame.startswith("headgate/"):
                    inside[frame] += stack.count
        parts.append(
            f"--- {file.stem}: {total / 100:.1f} s; by own time on the left, ours with what they call on the right"
        )
        left, right = own.most_common(LINES), inside.most_common(LINES + 10)[: LINES + 10]
        for index in range(max(len(left), len(right))):
            cells = [
                f"{100 * count / total:5.1f} % {frame}" if frame else ""
                for frame, count in (
                    left[index] if index < len(left) else ("", 0),
                    right[index] if index < len(right) else ("", 0),
                )
            ]
            parts.append(f"  {cells[0]:72} {cells[1]}".rstrip())
    return "\n".join(parts)


def of_api_server(file: Path) -> str:
    """The parts of an API server's CPU profile. Needs Go; without it, where the profile is."""
    go = shutil.which("go")
    if go is None:
        return f"--- the API server's profile is in {file}; Go, which reads it, is not there"
    lines = ["--- the API server, shares of its CPU time (they overlap)"]
    whole = _seconds(go, file, "")
    for name, functions in PARTS:
        part = _seconds(go, file, functions)
        lines.append(f"  {100 * part / whole if whole else 0:5.1f} % {name}")
    return "\n".join(lines)


def _seconds(go: str, file: Path, focus: str) -> float:
    """The seconds of a profile's samples that have such a function on their stack."""
    command = [go, "tool", "pprof", "-top", "-nodecount=1000000", "-nodefraction=0", "-unit=s"]
    command += [f"-focus={focus}"] if focus else []
    done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)
    found = re.search(r"Showing nodes accounting for ([0-9.]+)s", done.stdout)
    return float(found[1]) if found else 0.0
