"""
Profiles whatever Python program is started with this directory on PYTHONPATH and BENCH_PROFILES set.

Python imports a module of this name at its start. The profile is written to `$BENCH_PROFILES/<process>.prof` when the
program ends by itself, as the processes of a cell do on SIGTERM.
"""

import atexit
import cProfile
import os
import sys


def _start(directory: str) -> None:
    profile = cProfile.Profile()

    def write() -> None:
        profile.disable()
        name = os.environ.get("HEADGATE_HOLDER", "").removesuffix("-0") or "cluster"
        profile.dump_stats(os.path.join(directory, f"{name}.prof"))  # noqa: PTH118 - imported before everything

    atexit.register(write)
    profile.enable()


if "BENCH_PROFILES" in os.environ and "headgate" in " ".join(sys.orig_argv):
    _start(os.environ["BENCH_PROFILES"])
