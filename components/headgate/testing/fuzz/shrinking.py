"""
A failing script made small: operations are left out, and faults switched off, while it still fails in the same way.

The same way means the same promise, or the same exception raised at the same place. What is left is short enough to be
read, and to become a test.
"""

import traceback
from collections.abc import Callable
from typing import Final

import msgspec

from headgate.testing.fuzz.operations import Operation, Script
from headgate.testing.fuzz.playing import PropertyViolation
from headgate.testing.world.world import NO_FAULTS

TRIES_MAX: Final = 300
"""Plays at most so many scripts: a small failure soon is worth more than the smallest later."""
STEPS_MAX: Final = 600_000
"""The same of the steps of processes that the plays take, if each takes as many as the failure: two minutes or so."""


def tries_for(steps: int) -> int:
    """How many scripts to play at most to make a failure small that took so many steps."""
    return max(1, min(TRIES_MAX, STEPS_MAX // max(1, steps)))


def signature(error: BaseException) -> str:
    """What makes two failures the same."""
    if isinstance(error, PropertyViolation):
        return error.check
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/headgate/" in frame.filename]
    where = f"{frames[-1].filename.rpartition('/headgate/')[2]}:{frames[-1].name}" if frames else ""
    return f"{type(error).__name__} at {where}"


def shrink(script: Script, fails: Callable[[Script], bool], tries_max: int = TRIES_MAX) -> Script:
    """
    The smallest script found that still fails. `fails` plays one.

    Operations are left out in blocks that are halved when none can be spared, down to single ones.
    """
    left = tries_max

    def still_fails(candidate: Script) -> bool:
        nonlocal left
        left -= 1
        return fails(candidate)

    calm = msgspec.structs.replace(script, faults=NO_FAULTS)
    if script.faults != NO_FAULTS and still_fails(calm):
        script = calm
    block = max(1, len(script.operations) // 2)
    while left > 0:
        before, start = len(script.operations), 0
        while start < len(script.operations) and left > 0:
            fewer: tuple[Operation, ...] = script.operations[:start] + script.operations[start + block :]
            candidate = msgspec.structs.replace(script, operations=fewer)
            if still_fails(candidate):
                script = candidate
            else:
                start += block
        if block == 1 and len(script.operations) == before:
            return script
        block = max(1, block // 2)
    return script


def told(script: Script) -> str:
    """A script as lines: actor, operation, object, time."""
    lines = [f"faults: {script.faults}", f"rules: {script.rules}", f"configuration: {script.configuration}"]
    lines.append(f"owners of foreign workloads: {script.owners}")
    for each in script.operations:
        body = "" if each.body is None else msgspec.json.encode(each.body).decode()
        query = f" {each.query}" if each.query else ""
        shown = body if len(body) < 1500 else f"{body[:1500]}… ({len(body)} characters)"
        lines.append(f"at {each.at_ms} ms {each.actor} {each.method} {each.path}{query} {shown}")
    return "\n".join(lines)
