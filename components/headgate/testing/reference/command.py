"""
`headgate plan --scenarios`: recorded scenarios in, their outcomes out, one JSON document a line.

Scenarios of Kueue and of the kube-scheduler may be mixed: each line is told by its fields.
"""

import gzip
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headgate.cli.output import BROKEN, OK, WRONG_USAGE, CliError, say
from headgate.core.plan.reading import PlanInputError
from headgate.testing.reference.outcome import outcome_of
from headgate.testing.reference.placement.running import outcome_of as placement_outcome_of
from headgate.testing.reference.placement.scenario import is_placement, read_placement_scenario
from headgate.testing.reference.rhythm import ReferencePlan
from headgate.testing.reference.scenario import read_scenario
from headgate.testing.reference.stopping import run


def run_scenarios(name: str) -> int:
    """
    Run every scenario of a file and print each outcome when it is there; the exit code.

    A line that cannot be run is one line on standard error, and the others are run all the same. Raises CliError when
    the file cannot be read.
    """
    code = OK
    with _opened(name) as lines:
        for number, line in _numbered(name, lines):
            if not line.strip():
                continue
            failed = _run_line(number, line)
            code = max(code, failed)
    return code


def _run_line(number: int, line: bytes) -> int:
    """Run one line; the exit code that it is worth."""
    scenario_name = ""
    try:
        record = msgspec.json.decode(line)
        outcome: object
        if is_placement(record):
            placement = read_placement_scenario(record)
            scenario_name = placement.name
            outcome = placement_outcome_of(placement)
        else:
            scenario = read_scenario(record)
            scenario_name = scenario.name
            rhythm = ReferencePlan(scenario.facts, scenario.configuration, scenario.now_ms)
            stop = run(rhythm, scenario.cycles_max)
            outcome = outcome_of(scenario.name, rhythm, stop)
    except PlanInputError as error:
        say(f"headgate: line {number}: {error}")
        return WRONG_USAGE
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        say(f"headgate: line {number}: this is not JSON: {error}")
        return WRONG_USAGE
    except Exception as error:  # noqa: BLE001 - the other scenarios are to run all the same
        traceback.print_exception(error)
        say(f"headgate: line {number}: scenario {scenario_name}: {type(error).__name__}: {error}: this is a bug")
        return BROKEN
    sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
    sys.stdout.flush()
    return OK


@contextmanager
def _opened(name: str) -> Iterator[Iterable[bytes]]:
    """The lines of a file or of standard input, unzipped when they are zipped."""
    try:
        # Standard input is opened again, so that closing this leaves the interpreter's own alone.
        source = os.fdopen(os.dup(sys.stdin.fileno()), "rb") if name == "-" else Path(name).open("rb")  # noqa: SIM115
    except OSError as error:
        raise CliError(f"--scenarios {name}: cannot be read: {error.strerror or error}") from error
    with source:
        yield gzip.GzipFile(fileobj=source) if source.peek(2)[:2] == b"\x1f\x8b" else source


def _numbered(name: str, lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines with their numbers. Raises CliError when the file breaks off."""
    try:
        yield from enumerate(lines, 1)
    except (OSError, EOFError) as error:
        raise CliError(f"--scenarios {name}: cannot be read to its end: {error}") from error
