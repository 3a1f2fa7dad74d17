"""
Profiles whatever Python program of a cell is started with this directory on PYTHONPATH.

Python imports a module of this name at its start. Two variables select the profile, and name the folder that it is
written to when the program ends by itself, as the processes of a cell do on SIGTERM:

- BENCH_PROFILES: every call, by cProfile, to `<process>.prof`; the program is much slower with it.
- BENCH_SAMPLES: the stack 100 times in a second of CPU time, to `<process>.json`; costs less than one percent.
"""

import atexit
import cProfile
import json
import os
import signal
import sys
from types import FrameType

SAMPLE_S = 0.01


def _name() -> str:
    return os.environ.get("HEADGATE_HOLDER", "").rpartition("-")[0] or "cluster"


def _profile(directory: str) -> None:
    profile = cProfile.Profile()

    def write() -> None:
        profile.disable()
        profile.dump_stats(os.path.join(directory, f"{_name()}.prof"))  # noqa: PTH118 - imported before everything

    atexit.register(write)
    profile.enable()


def _sample(directory: str) -> None:
    stacks: dict[tuple[object, ...], int] = {}

    def look(_: int, frame: FrameType | None) -> None:
        codes = []
        while frame is not None:
            codes.append(frame.f_code)
            frame = frame.f_back
        key = tuple(codes)
        stacks[key] = stacks.get(key, 0) + 1

    def write() -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        names = {code: _shown(code) for codes in stacks for code in codes}
        body = [{"frames": [names[code] for code in codes], "count": count} for codes, count in stacks.items()]
        with open(os.path.join(directory, f"{_name()}.json"), "w") as file:  # noqa: PTH118, PTH123 - as above
            file.write(json.dumps(body))

    atexit.register(write)
    signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)


def _shown(code: object) -> str:
    """A function as `<package>/<file>:<name>`."""
    path = code.co_filename  # type: ignore[attr-defined]
    for root in ("/components/", "/site-packages/"):
        path = path.rpartition(root)[2]
    return f"{path}:{code.co_qualname}"  # type: ignore[attr-defined]


if "headgate" in " ".join(sys.orig_argv):
    if "BENCH_PROFILES" in os.environ:
        _profile(os.environ["BENCH_PROFILES"])
    if "BENCH_SAMPLES" in os.environ:
        _sample(os.environ["BENCH_SAMPLES"])
