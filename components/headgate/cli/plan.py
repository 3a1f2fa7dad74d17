"""
`headgate plan`: a dry run of manifests, without a cluster.

The cell's own queue manager and scheduler run over a log in memory (`headgate.core.plan`), so the plan predicts the
behavior of this cell. With `--scenarios` recorded scenarios of Kueue run instead, with Kueue's own timing and wake
policy (`headgate.testing.reference`); their outcomes are printed, one JSON document per line, in the recordings'
schema.
"""

import enum
import importlib
import time
from typing import Annotated, Final

import msgspec
import typer

from headgate.cli import options
from headgate.cli.output import FAILED, OK, WRONG_USAGE, CliError, Output, emit, say
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.facts import ConfigurationObserved
from headgate.events.ids import UnixMs

app = typer.Typer(add_completion=False)

CYCLES_MAX: Final = 10_000
"""The default maximum number of cycles of a plan."""


class PlanScope(enum.StrEnum):
    """What a plan shows."""

    ALL = "all"
    NEW = "new"


_FOR_EVER_MS: Final = 100 * 365 * 86_400_000

_EPILOG = """\b
Examples:
  headgate plan -f queues.yaml -f jobs/          who would be admitted, preempted, left waiting
  kubectl get cq,lq,cohorts,rf,kwl,ns -A -o yaml | headgate plan -f - -f new-job.yaml --only new
  headgate plan -f all.yaml --config kueue.yaml -o json
  headgate plan --scenarios recorded.jsonl.gz    one outcome a line

\b
Exit codes:
  0  everything (that is shown) is admitted
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
    only: Annotated[
        PlanScope, typer.Option("--only", help="`new`: only what the objects without a uid are and change.")
    ] = PlanScope.ALL,
    output: options.OutputOption = Output.TABLE,
    scenarios: Annotated[
        str | None, typer.Option("--scenarios", metavar="FILE|-", help="Run scenarios of a .jsonl or .jsonl.gz file.")
    ] = None,
) -> None:
    """Tell what would happen to manifests: who is admitted where, who is preempted, who waits for what."""
    if bool(filename) == bool(scenarios):
        raise CliError("name what to plan: either -f FILE, a directory or -, or --scenarios FILE")
    if scenarios:
        if config is not None:
            raise CliError("--config is for -f: each scenario brings its own configuration")
        raise typer.Exit(run_scenarios(scenarios))
    raise typer.Exit(plan_manifests(filename or [], namespace, cycles, config, output, only))


# --- manifests -----------------------------------------------------------------------------------------------------


def plan_manifests(
    names: list[str], namespace: str, cycles: int, config: str | None, output: Output, only: "PlanScope"
) -> int:
    """Plan the content of these files, and print it; the exit code. Raises CliError and SettingsError."""
    from headgate.cli.manifests import read_manifests
    from headgate.cli.plan_changes import changes, split
    from headgate.cli.plan_inputs import PlanInputs, read_inputs
    from headgate.cli.plan_report import PlanReport, print_report, report_of
    from headgate.core.plan.dry_run import DryRun, MakeMachine
    from headgate.machines.queue_manager.decide import QueueManager
    from headgate.machines.scheduler.decide import Scheduler
    from headgate.processes.runtime.configuration_files import KUEUES_DEFAULTS, load_configuration

    configuration = KUEUES_DEFAULTS
    if config is not None:
        configuration = load_configuration(config)
        if configuration.wait_for_pods_ready is not None:
            say("waitForPodsReady: a plan starts no pods, and takes those of admitted workloads for ready")
    configuration = _with_ready_pods(configuration)
    now_ms = UnixMs(int(time.time()) * 1000)
    configured = ConfigurationObserved(configuration=configuration)
    machines: dict[Producer, MakeMachine] = {Producer.QUEUE_MANAGER: QueueManager, Producer.SCHEDULER: Scheduler}

    def planned(inputs: PlanInputs) -> PlanReport:
        dry_run = DryRun(inputs.facts, configured, now_ms, machines)
        return report_of(dry_run, dry_run.run(cycles))

    manifests = read_manifests(names)
    there, every = split(manifests) if only is PlanScope.NEW else ([], manifests)
    inputs = read_inputs(every, namespace, now_ms, configuration)
    for mistake in inputs.mistakes:
        say(f"headgate: {mistake}")
    if inputs.mistakes:
        return WRONG_USAGE
    for note in inputs.notes:
        say(note)
    report = planned(inputs)
    if only is PlanScope.NEW:
        report = changes(planned(read_inputs(there, namespace, now_ms, configuration)), report)
    emit(report, output, lambda: print_report(report))
    return OK if report.all_admitted else FAILED


def _with_ready_pods(configuration: Configuration) -> Configuration:
    """In a plan no pod is started, so no workload waits for pods and none is late; the order of queues is unchanged."""
    waits = configuration.wait_for_pods_ready
    if waits is None:
        return configuration
    patient = msgspec.structs.replace(waits, block_admission=False, timeout_ms=_FOR_EVER_MS, recovery_timeout_ms=None)
    return msgspec.structs.replace(configuration, wait_for_pods_ready=patient)


# --- scenarios -----------------------------------------------------------------------------------------------------


def run_scenarios(name: str) -> int:
    """
    Run every scenario of a file and print each outcome; the exit code.

    The emulation of Kueue lives with the tests' world, which the command line must not import: like a plug-in, it is
    loaded by name.
    """
    command = importlib.import_module("headgate.testing.reference.command")
    code: int = command.run_scenarios(name)
    return code
