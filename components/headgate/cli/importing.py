"""
`headgate import`: pods and jobs that run without a queue become admitted Workloads (Kueue's cmd/importer).

The check reads everything, asks `headgate.core.importing` what each object becomes, and lets the API server check every
write without keeping it. Only when nothing is refused, and with `--dry-run=false`, is anything written: of each object
first its Workload, then the Workload's admission, and last the object's own labels. So whenever it is interrupted, what
is labelled is admitted, and the next run continues.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
import msgspec
import typer
import yaml

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import KubernetesError
from headgate.adapters.kubernetes.retry import RateLimiter
from headgate.adapters.yaml_text import check_depth
from headgate.cli import completion, options
from headgate.cli.cluster import access_of, open_cluster
from headgate.cli.import_writes import check_writes, write_import
from headgate.cli.imported_state import objects_of, state_of
from headgate.cli.output import FAILED, OK, CliError, Output, emit, print_table, say
from headgate.core.api.job_kinds import POD, JobKind, known
from headgate.core.importing.checking import Importable, Importer, Refused, Skipped, Verdict
from headgate.core.importing.rules import Rules, WrongRulesError, checked_labels, read_rules, rules_for_label
from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.kubernetes.quantities import canonical
from headgate.core.state.tables import FlavorResource, State
from headgate.core.views.descriptions import nominal_quotas
from headgate.events.configuration import Configuration
from headgate.events.ids import UnixMs
from headgate.processes.runtime.configuration_files import load_configuration

app = typer.Typer(add_completion=False)

T = TypeVar("T")

_EPILOG = """\b
Examples:
  headgate import -n team-a --queuelabel team --queuemapping vision=main,speech=main
  headgate import -n team-a -n team-b --queuemapping-file rules.yaml --dry-run=false
  headgate import -n team-a --queuemapping-file rules.yaml --integration pod    every pod for itself, as Kueue does

\b
A mapping file is a list of rules; the first that matches counts:
  - match: {labels: {app: train}, priorityClassName: high}
    toLocalQueue: main
  - match: {labels: {app: web}}
    skip: true

\b
Exit codes:
  0  everything can be imported (--dry-run), or is
  1  something is refused, and nothing was imported; or the API server failed meanwhile: run it again
  2  wrong usage

Import before Headgate's processes and rules of admission are installed. No pod is restarted.
"""

_INTEGRATIONS = ("batch/job", "pod")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the table shows of one object."""

    object: str
    result: str
    queue: str = ""
    cluster_queue: str = ""
    workload: str = ""
    flavors: dict[str, str] = {}
    why: str = ""


# Large: one parameter for each option.
@app.command("import", epilog=_EPILOG)
def import_(
    namespace: Annotated[
        list[str],
        typer.Option("-n", "--namespace", metavar="NS", help="Namespaces.", autocompletion=completion.namespaces),
    ],
    queue_label: Annotated[
        str, typer.Option("--queuelabel", metavar="LABEL", help="The label that tells the LocalQueue.")
    ] = "",
    queue_mapping: Annotated[
        list[str] | None,
        typer.Option("--queuemapping", metavar="VALUE=QUEUE[,...]", help="The LocalQueue of each of its values."),
    ] = None,
    mapping_file: Annotated[
        Path | None, typer.Option("--queuemapping-file", metavar="FILE", help="Rules instead of a label.")
    ] = None,
    add_labels: Annotated[
        list[str] | None,
        typer.Option("--add-labels", metavar="KEY=VALUE[,...]", help="Further labels of objects and Workloads."),
    ] = None,
    integration: Annotated[
        list[str] | None,
        typer.Option("--integration", metavar="NAME", help="What is imported: batch/job and pod, if left out."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude-resource-prefixes", metavar="PREFIX[,...]", help="Resources that do not count."),
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="Kueue's Configuration (config.kueue.x-k8s.io).")
    ] = None,
    dry_run: Annotated[str, typer.Option("--dry-run", metavar="true|false", help="Check, and write nothing.")] = "true",
    qps: Annotated[float, typer.Option("--qps", min=0.1, help="Requests a second.")] = 50.0,
    burst: Annotated[int, typer.Option("--burst", min=1, help="Requests at once.")] = 50,
    workers: Annotated[int, typer.Option("-c", "--concurrent-workers", min=1, help="Objects at a time.")] = 8,
    output: options.OutputOption = Output.TABLE,
    kubeconfig: options.ClusterKubeconfig = None,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """Make admitted Workloads of pods and jobs that run without a queue."""
    if dry_run not in ("true", "false"):
        raise CliError(f"--dry-run={dry_run}: write true or false")
    rules = _rules(queue_label, queue_mapping, mapping_file)
    labels = _checked(lambda: checked_labels(_pairs("--add-labels", add_labels)))
    kinds = tuple(_kind(each) for each in _listed(integration) or _INTEGRATIONS)
    configuration = _configuration(config, _listed(exclude))

    async def act() -> tuple[State, list[Verdict]]:
        async with open_cluster(access_of(kubeconfig, data, cell)) as objects:
            client = KubeClient(objects.client.transport, RateLimiter(qps=qps, burst=burst))
            state = await state_of(client, _listed(namespace), configuration)
            importer = Importer(state, rules, kinds, labels, rfc3339(UnixMs(int(time.time()) * 1000)))
            verdicts: list[Verdict] = []
            async for kind, raw in objects_of(client, _listed(namespace), kinds):
                verdicts.append(importer.check(kind, raw))
            verdicts = await _each(verdicts, workers, lambda each: check_writes(client, each))
            if dry_run == "false" and not any(isinstance(each, Refused) for each in verdicts):
                verdicts = await _each(verdicts, workers, lambda each: write_import(client, each))
            return state, verdicts

    state, verdicts = anyio.run(act)
    _report(state, verdicts, output, dry_run=dry_run == "true")


async def _each(verdicts: list[Verdict], workers: int, act: Callable[[Importable], Any]) -> list[Verdict]:
    """
    Do something with everything that is importable, several at a time; what became of each, in order.

    Raises the first KubernetesError, after what was under way; nothing else is begun then.
    """
    after = list(verdicts)
    limiter = anyio.CapacityLimiter(workers)
    errors: list[KubernetesError] = []

    async def one(index: int, each: Importable) -> None:
        async with limiter:
            if errors:
                return
            try:
                after[index] = await act(each)
            except KubernetesError as error:
                errors.append(error)

    async with anyio.create_task_group() as tasks:
        for index, each in enumerate(verdicts):
            if isinstance(each, Importable):
                tasks.start_soon(one, index, each)
    if errors:
        raise errors[0]
    return after


# --- options ---------------------------------------------------------------------------------------------------------


def _rules(label: str, mapping: list[str] | None, file: Path | None) -> Rules:
    if bool(label or mapping) == bool(file):
        raise CliError("tell where objects belong: --queuelabel and --queuemapping, or --queuemapping-file")
    if file is None:
        if not (label and mapping):
            raise CliError("--queuelabel and --queuemapping go together")
        return _checked(lambda: rules_for_label(label, _pairs("--queuemapping", mapping)))
    try:
        text = file.read_text()
        check_depth(text)
        return read_rules(yaml.safe_load(text))
    except OSError as error:
        raise CliError(f"--queuemapping-file {file}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, WrongRulesError) as error:
        raise CliError(f"--queuemapping-file {file}: {error}") from error


def _checked(read: Callable[[], T]) -> T:
    try:
        return read()
    except WrongRulesError as error:
        raise CliError(str(error)) from error


def _listed(given: list[str] | None) -> list[str]:
    return [part for each in given or () for part in each.split(",") if part]


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in _listed(given):
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise CliError(f"{option} {each}: write KEY=VALUE")
        found[key] = value
    return found


def _kind(framework: str) -> JobKind:
    if framework == POD.framework:
        return POD
    found = next((each for each in known() if each.framework == framework and not each.of_pods), None)
    if found is None:
        names = ", ".join(dict.fromkeys(each.framework for each in known()))
        raise CliError(f"--integration {framework}: there is no such integration; there are {names}")
    return found


def _configuration(file: str | None, excluded: list[str]) -> Configuration:
    found = load_configuration(file) if file is not None else Configuration()
    resources = found.resources
    prefixes = (*resources.exclude_resource_prefixes, *excluded)
    return msgspec.structs.replace(
        found, resources=msgspec.structs.replace(resources, exclude_resource_prefixes=prefixes)
    )


# --- the report ------------------------------------------------------------------------------------------------------


def _report(state: State, verdicts: list[Verdict], output: Output, *, dry_run: bool) -> None:
    """Print what became of each object, and end with the exit code."""
    refused = [each for each in verdicts if isinstance(each, Refused)]
    done = "would be imported" if dry_run or refused else "imported"
    shown = [_outcome(each, done) for each in verdicts]
    emit(shown, output, lambda: _table(shown))
    importable = [each for each in verdicts if isinstance(each, Importable)]
    if output is Output.TABLE:
        for line in _quota(state, importable):
            say(line)
    skipped = len(verdicts) - len(importable) - len(refused)
    say(f"{len(importable)} {done}, {skipped} skipped, {len(refused)} refused")
    if refused:
        raise CliError(
            f"{len(refused)} objects are refused: nothing was imported" if dry_run else _partly(refused), FAILED
        )
    if dry_run and importable:
        say("nothing was written: use --dry-run=false to import")
    raise typer.Exit(OK)


def _partly(refused: list[Refused]) -> str:
    return f"{len(refused)} objects are refused; see above, correct them, and run this again"


def _outcome(each: Verdict, done: str) -> Outcome:
    match each:
        case Refused():
            return Outcome(object=each.object, result="refused", why=each.why)
        case Skipped():
            return Outcome(object=each.object, result="skipped", why=each.why)
        case Importable():
            return Outcome(
                object=each.object,
                result=done,
                queue=each.queue,
                cluster_queue=each.cluster_queue,
                workload=each.workload["metadata"]["name"],
                flavors={resource: flavor for flavor, resource in each.usage},
            )


def _table(shown: list[Outcome]) -> None:
    rows = []
    for each in shown:
        flavors = ", ".join(f"{resource}:{flavor}" for resource, flavor in sorted(each.flavors.items()))
        rows.append((each.object, each.result, each.queue, each.cluster_queue, flavors, each.workload or each.why))
    print_table(("OBJECT", "RESULT", "LOCALQUEUE", "CLUSTERQUEUE", "FLAVORS", "WORKLOAD OR REASON"), rows)


def _quota(state: State, importable: list[Importable]) -> Iterator[str]:
    """A line for each nominal quota that is exceeded by what is imported."""
    added: dict[str, Counter[FlavorResource]] = {}
    for each in importable:
        if not each.is_admitted:
            added.setdefault(each.cluster_queue, Counter()).update(each.usage)
    for queue, usage in sorted(added.items()):
        before, nominal = (
            state.index.usage.get(queue, {}),
            nominal_quotas(state.cluster_queues[queue].spec.resource_groups),
        )
        for (flavor, resource), value in sorted(usage.items()):
            used, quota = before.get((flavor, resource), 0) + value, nominal.get((flavor, resource), 0)
            if used > quota:
                shown = f"{canonical(resource, used)} of {resource} in flavor {flavor}"
                yield f"ClusterQueue {queue}: {shown} exceed its nominal quota {canonical(resource, quota)}"
