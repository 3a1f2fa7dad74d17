"""
What a kube-scheduler has decided, attempt by attempt, from its log at level 10.

An attempt begins with `Attempting to schedule pod`; until the next one begins, all scores that are written are of it,
and a line that says so when the pod fits nowhere. A pod that fits on one node only is not scored.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

LEVEL: Final = 10

_ATTEMPT: Final = re.compile(r'"Attempting to schedule pod".* pod="([^"]+)"')
_FINAL: Final = re.compile(r'"Calculated node\'s final score for pod".* pod="([^"]+)" node="([^"]+)" score=(-?\d+)')
_NO_FIT: Final = re.compile(r'"Unable to schedule pod; no fit; waiting".* pod="([^"]+)"')


class ReferenceAttempt(msgspec.Struct):
    """One attempt: the total scores of the feasible nodes, if there were several; `fits` whether there was any."""

    pod: str
    totals: dict[str, int] = {}
    fits: bool = True


def attempts(log_file: Path) -> Iterator[ReferenceAttempt]:
    """The attempts of a log, in order."""
    current: ReferenceAttempt | None = None
    with log_file.open(errors="replace") as lines:
        for line in lines:
            if begun := _ATTEMPT.search(line):
                if current is not None:
                    yield current
                current = ReferenceAttempt(begun[1], {})
            elif current is not None and (final := _FINAL.search(line)) and final[1] == current.pod:
                current.totals[final[2]] = int(final[3])
            elif current is not None and (refused := _NO_FIT.search(line)) and refused[1] == current.pod:
                current.fits = False
    if current is not None:
        yield current
