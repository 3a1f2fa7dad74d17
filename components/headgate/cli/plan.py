"""
`headgate plan`: what would happen to these manifests, without a cluster.

The same core that decides in the scheduler process runs over a log in memory (`headgate.core.plan`), in Kueue's own
rhythm. With `--scenarios` it runs recorded scenarios instead and prints their outcomes, one JSON document a line, in
the schema of Kueue's recordings.
"""

import gzip
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from headgate.cli import options
from headgate.cli.output import BROKEN, FAILED, OK, WRONG_USAGE, CliError, Output, emit, say
from headgate.core.plan.outcome import outcome_of
from headgate.core.plan.reading import PlanInputError, read_scenario
from headgate.core.plan.rhythm import Rhythm
from headgate.core.plan.stopping import run
from headgate.events.configuration import Configuration
from headgate.events.facts import ConfigurationObserved
from headgate.events.ids import UnixMs

app = typer.Typer(add_completion=False)

CYCLES_MAX: Final = 10_000
"""How many cycles a plan runs at most when nobody says."""

_FOR_EVER_MS: Final = 100 * 365 * 86_400_000

_EPILOG = """\b
Examples:
  headgate plan -f queues.yaml -f jobs/          who would be admitted, preempted, left waiting
  kubectl get cq,lq,cohorts,rf,wl,ns -A -o yaml | headgate plan -f - -f new-job.yaml
  headgate plan -f all.yaml --config kueue.yaml -o json
  headgate plan --scenarios recorded.jsonl.gz    one outcome a line

\b
Exit codes:
  0  everything is admitted
  1  somebody waits (or waits for an admission check)
  2  bad input: nothing was planned (--scenarios: some lines were not, the others are written)

Admitted workloads never finish in a plan, and no pod is started: quota alone is asked.
"""


@app.command(epilog=_EPILOG)
def plan(
    filename: Annotated[
        list[str] | None, typer.Option("-f", "--filename", metavar="FILE|DIR|-", help="Manifests: YAML or JSON.")
    ] = None,
    namespace: options.Namespace = "default",
    cycles: Annotated[
        int, typer.Option("--cycles", min=1, metavar="N", help="Run this many scheduling cycles at most.")
    ] = CYCLES_MAX,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="Kueue's Configuration (config.kueue.x-k8s.io).")
    ] = None,
    output: options.OutputOption = Output.TABLE,
    scenarios: Annotated[
        str | None, typer.Option("--scenarios", metavar="FILE|-", help="Run scenarios of a .jsonl or .jsonl.gz file.")
    ] = None,
) -> None:
    """Tell what would happen to manifests: who is admitted where, who is preempted, who waits for what."""
    if bool(filename) == bool(scenarios):
        raise CliError("say what to plan: either -f FILE, a directory or -, or --scenarios FILE")
    if scenarios:
        if config is not None:
            raise CliError("--config is for -f: each scenario brings its own configuration")
        raise typer.Exit(run_scenarios(scenarios))
    raise typer.Exit(plan_manifests(filename or [], namespace, cycles, config, output))


# --- manifests -----------------------------------------------------------------------------------------------------


def plan_manifests(names: list[str], namespace: str, cycles: int, config: str | None, output: Output) -> int:
    """Plan what these files hold, and print it; the exit code. Raises CliError and SettingsError."""
    from headgate.cli.manifests import read_manifests
    from headgate.cli.plan_inputs import read_inputs
    from headgate.cli.plan_report import print_report, report_of

    configuration = Configuration()
    if config is not None:
        from headgate.processes.configuring import load_configuration

        configuration = _with_ready_pods(load_configuration(config))
    now_ms = UnixMs(int(time.time()) * 1000)
    inputs = read_inputs(read_manifests(names), namespace, now_ms, configuration)
    for mistake in inputs.mistakes:
        say(f"headgate: {mistake}")
    if inputs.mistakes:
        return WRONG_USAGE
    for note in inputs.notes:
        say(note)
    configured = ConfigurationObserved(configuration=configuration)
    rhythm = Rhythm(inputs.facts, configured, now_ms, notes_queues=False)
    report = report_of(rhythm, run(rhythm, cycles))
    emit(report, output, lambda: print_report(report))
    return OK if report.all_admitted else FAILED


def _with_ready_pods(configuration: Configuration) -> Configuration:
    """In a plan no pod is started, so nobody waits for pods and none is late; the order of queues stays as it is."""
    waits = configuration.wait_for_pods_ready
    if waits is None:
        return configuration
    say("waitForPodsReady: a plan starts no pods, and takes those of admitted workloads for ready")
    patient = msgspec.structs.replace(waits, block_admission=False, timeout_ms=_FOR_EVER_MS, recovery_timeout_ms=None)
    return msgspec.structs.replace(configuration, wait_for_pods_ready=patient)


# --- scenarios -----------------------------------------------------------------------------------------------------


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
        scenario = read_scenario(msgspec.json.decode(line))
        scenario_name = scenario.name
        rhythm = Rhythm(scenario.facts, scenario.configuration, scenario.now_ms)
        stop = run(rhythm, scenario.cycles_max)
        outcome = msgspec.json.encode(outcome_of(scenario.name, rhythm, stop))
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
    sys.stdout.write(outcome.decode() + "\n")
    sys.stdout.flush()
    return OK


@contextmanager
def _opened(name: str) -> Iterator[Iterable[bytes]]:
    """The lines of a file or of standard input, unzipped when they are zipped."""
    try:
        # Standard input is opened anew, so that closing this leaves the interpreter's own alone.
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
