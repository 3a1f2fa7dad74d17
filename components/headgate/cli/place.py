"""`headgate place`: where pods of manifests would go, decided on the state at any position of the log."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import msgspec
import typer

from headgate.cli import options
from headgate.cli.folding import state_at
from headgate.cli.manifests import Manifest, read_manifests
from headgate.cli.output import FAILED, OK, CliError, Output, console, emit, print_table, say
from headgate.cli.source import open_source, parse_at
from headgate.core.plan.pods import stored_pod
from headgate.core.plan.reading import PlanInputError
from headgate.core.state.tables import State
from headgate.core.views.placement_answer import PlacementAnswer
from headgate.events.ids import PodKey

if TYPE_CHECKING:
    from headgate.adapters.extenders import ExtenderClient
    from headgate.core.placement.deciding import PlacementDecider
    from headgate.core.placement.pods import PodInfo

app = typer.Typer(add_completion=False)

_EPILOG = """\b
Examples:
  headgate place -f pod.yaml                     which node it would get now, and by which scores
  headgate place -f deployment.yaml --at 812     a pod of its template, at position 812
  headgate place -f pods.yaml --at -5m -o json   one after another, as they were placed five minutes ago
  headgate place -f pod.yaml -f new-node.yaml    with one more node
  headgate place -f pod.yaml --kube-scheduler-config other.yaml
  headgate place -f pod.yaml --ask-extenders     with what the extenders of the configuration answer now

\b
Exit codes:
  0  each pod would get a node
  1  a pod would get none
  2  bad input: nothing was decided

Nothing is created. Pods are placed in the order of the manifests, each beside those before it. Extenders are called
with --ask-extenders only, to filter, to score and to preempt, never to bind; else the plugins decide without them.
"""


_VERBS = ("filterVerb", "prioritizeVerb", "preemptVerb")
_OFF = "no pods are placed at position {}, and the log has no nodes there: name a position with a configuration"


@app.command(epilog=_EPILOG)
def place(
    filename: Annotated[list[str], typer.Option("-f", "--filename", metavar="FILE|DIR|-", help="Manifests of pods.")],
    at: options.At = None,
    namespace: options.Namespace = "default",
    configuration: Annotated[
        str | None,
        typer.Option(
            "--kube-scheduler-config", metavar="FILE", help="Another KubeSchedulerConfiguration than the log's."
        ),
    ] = None,
    ask_extenders: Annotated[
        bool,
        typer.Option(
            "--ask-extenders",
            help="Call the extenders, from here; over TLS as in the file of --kube-scheduler-config.",
        ),
    ] = False,
    output: options.OutputOption = Output.TABLE,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
    log: options.LogFile = None,
) -> None:
    """Tell where pods would go: the nodes that refuse them and why, the best nodes and their scores, the victims."""
    manifests = read_manifests(filename)
    document = _document(configuration)
    where = options.SourceOptions(data=data, cell=cell, nats=nats, log=log)
    state = anyio.run(_state, where, at)
    if document is not None:
        if not state.scheduler_configuration:
            raise CliError(f"{_OFF.format(state.position)}: --kube-scheduler-config can only take its place")
        state.scheduler_configuration = document
    answers = anyio.run(_asking if ask_extenders else _without_asking, state, manifests, namespace, configuration)
    emit(answers, output, lambda: _show(answers))
    raise typer.Exit(OK if all(each.node for each in answers) else FAILED)


def _document(path: str | None) -> dict[str, Any] | None:
    """The configuration of a file. Raises SettingsError."""
    from headgate.processes.runtime.configuration_files import load_scheduler_document

    return None if path is None else load_scheduler_document(path)


async def _asking(
    state: State, manifests: list[Manifest], namespace: str, configuration: str | None
) -> list[PlacementAnswer]:
    """Place pods by what extenders answer now. A file of the configuration says how they are reached over TLS."""
    from headgate.adapters.extenders import ExtenderClient
    from headgate.core.placement.configuration.profiles import read_extenders
    from headgate.processes.runtime.configuration_files import load_extenders

    document = state.scheduler_configuration
    client = ExtenderClient(load_extenders(configuration) if configuration is not None else read_extenders(document))
    try:
        return await placed(state, manifests, namespace, client)
    finally:
        await client.aclose()


async def _without_asking(
    state: State,
    manifests: list[Manifest],
    namespace: str,
    configuration: str | None,  # noqa: ARG001 (as `_asking`)
) -> list[PlacementAnswer]:
    """
    Place pods by the plugins alone, and say which extenders would have been asked.

    The resources that they have NodeResourcesFit ignore stay ignored.
    """
    from headgate.core.placement.configuration.profiles import read_extenders
    from headgate.core.placement.extenders.requests import is_interested
    from headgate.core.placement.objects.kinds import PODS

    document = state.scheduler_configuration
    left = [{key: each[key] for key in each if key not in _VERBS} for each in document.get("extenders") or ()]
    state.scheduler_configuration = {**document, "extenders": left} if left else document
    answers = await placed(state, manifests, namespace)
    specs = [PODS.read(state.objects[PODS.plural][each.pod]).spec for each in answers] if left else []
    passed = [
        each.url_prefix
        for each in read_extenders(document)
        if any((each.filter_verb, each.prioritize_verb, each.preempt_verb))
        and any(is_interested(each, spec) for spec in specs)
    ]
    if passed:
        say(f"not asked, and they may decide otherwise: extenders {', '.join(passed)}; --ask-extenders asks them")
    return answers


async def _state(where: options.SourceOptions, at: str | None) -> State:
    until = parse_at(at)
    async with open_source(where) as source:
        return await state_at(source, until)


async def placed(
    state: State, manifests: list[Manifest], namespace: str, client: "ExtenderClient | None" = None
) -> list[PlacementAnswer]:
    """
    Place the pods of manifests one after another; other objects that placement reads are there from the beginning.

    Extenders are asked through `client`, and nobody without one. The state becomes the one with the objects. Raises
    CliError with all mistakes.
    """
    from headgate.core.placement.deciding import PlacementDecider
    from headgate.core.views.placement_answer import answer
    from headgate.processes.runtime.extensions import load_placement_plugins

    if not state.scheduler_configuration:
        raise CliError(f"{_OFF.format(state.position)} (`headgate up --kube-scheduler-config FILE`)")
    keys = _supposed(state, manifests, namespace)
    decider = PlacementDecider(state, load_placement_plugins())
    answers = []
    for origin, key in keys:
        problem = decider.view.unreadable.get(("pods", key))
        if problem is not None:
            raise CliError(f"{origin}: Pod {key}: {problem}: correct it")
        pod = decider.view.cluster.pods[key]
        if decider.framework_of(pod) is None:
            known = ", ".join(decider.frameworks)
            raise CliError(
                f"{origin}: Pod {key}, field spec.schedulerName: there is no profile {pod.spec.scheduler_name!r}: "
                f"name one of {known}"
            )
        if client is not None:
            await _consult(decider, pod, client)
        answers.append(answer(decider, pod))
        if answers[-1].reason != "SchedulingGated":
            decider.decide(pod, 0)
    return answers


async def _consult(decider: "PlacementDecider", pod: "PodInfo", client: "ExtenderClient") -> None:
    """Have extenders answer, until the attempt to place a pod lacks nothing."""
    from headgate.core.machine.contract import AskExtender
    from headgate.core.placement.extenders.answers import read_answer

    if not decider.frameworks[pod.spec.scheduler_name].pre_enqueue(pod).is_success:
        return
    key = PodKey(pod.key)
    answers = decider.view.state.extender_answers.setdefault(key, {})
    while asks := decider.attempted(pod, 0).asks:
        for ask in asks:
            call = AskExtender(id=ask.request, pod=key, extender=ask.extender, path=ask.path, body=ask.body)
            completed = await client.ask(call)
            answers[ask.request] = read_answer(ask, completed.status, completed.body)


def _supposed(state: State, manifests: list[Manifest], namespace: str) -> list[tuple[str, str]]:
    """Put the objects into the state; the pods among them, each with its origin and key. Raises CliError."""
    pods: list[tuple[str, str]] = []
    mistakes: list[str] = []
    for manifest in manifests:
        try:
            key = _suppose(state, manifest, namespace)
        except (PlanInputError, msgspec.ValidationError) as error:
            mistakes.append(f"{manifest.origin}: {_words(manifest, error)}")
        else:
            pods += [(manifest.origin, key)] if key else []
    if mistakes:
        raise CliError("; ".join(mistakes))
    if not pods:
        raise CliError("there is no pod in the manifests: give Pods, or kinds with a pod template such as Jobs")
    return pods


def _suppose(state: State, manifest: Manifest, namespace: str) -> str:
    """Put one object into the state; its key if it is a pod, else "". Raises PlanInputError and ValidationError."""
    from headgate.core.placement.objects.kinds import KINDS, PODS
    from headgate.core.state.manifests import encoded

    group = manifest.api_version.rpartition("/")[0]
    pod = stored_pod(state, group, manifest.body, namespace)
    if pod is not None:
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        there = state.objects.setdefault(PODS.plural, {})
        if key in there:
            raise PlanInputError(f"Pod {key}, field metadata.name: it is there already: ask `headgate explain {key}`")
        there[key] = encoded(PODS.reduced(pod))
        return key
    kind = next((each for each in KINDS.values() if (each.group, each.kind) == (group, manifest.kind)), None)
    if kind is None:
        say(f"{manifest.origin}: {manifest.kind} {manifest.name} has no bearing on placement: it is left out")
        return ""
    metadata = dict(manifest.body["metadata"])
    metadata["namespace"] = (manifest.namespace or namespace) if kind.namespaced else ""
    key = f"{metadata['namespace']}/{manifest.name}" if kind.namespaced else manifest.name
    state.objects.setdefault(kind.plural, {})[key] = encoded(kind.reduced({**manifest.body, "metadata": metadata}))
    return ""


def _words(manifest: Manifest, error: Exception) -> str:
    """A mistake, with the object and the field."""
    if isinstance(error, PlanInputError):
        return str(error)
    why, _, at = str(error).partition(" - at `$.")
    return f"{manifest.kind} {manifest.name}, field {at.rstrip('`') or '(unknown)'}: {why}: correct it"


# --- for people ----------------------------------------------------------------------------------------------------


def _show(answers: list[PlacementAnswer]) -> None:
    for index, each in enumerate(answers):
        if index:
            console().print()
        show_answer(each)


def show_answer(answer: PlacementAnswer) -> None:
    """Print where a pod would go."""
    from rich.markup import escape

    out = console()
    for line in _head(answer):
        out.print(escape(line))
    for said in answer.extenders:
        out.print(escape(f"  extender {said.extender}, asked to {said.verb}: {said.answer}"))
    for ignored in answer.ignored:
        out.print(escape(f"  passed over: {ignored}"))
    if answer.binder:
        out.print(escape(f"  extender {answer.binder} binds the pod"))
    for each in answer.refused:
        nodes = f"{each.nodes} node{'s' if each.nodes != 1 else ''}" if each.nodes else "the pod"
        out.print(escape(f"  {each.plugin} refuses {nodes}: {each.reason}"))
    if any(each.scores for each in answer.best):
        plugins = [score.plugin for score in answer.best[0].scores]
        out.print("\nThe best nodes, with the scores of each plugin: raw, normalized, weighted:")
        rows = ([each.node, str(each.total), *_scores(each.scores)] for each in answer.best)
        print_table(["NODE", "TOTAL", *plugins], rows, right=("TOTAL",))


def _scores(scores: Any) -> Iterator[str]:
    for score in scores:
        yield f"{score.raw} {score.normalized} {score.weighted}"


def _head(answer: PlacementAnswer) -> Iterator[str]:
    looked = f"{answer.feasible} of {answer.looked} nodes fit" if answer.looked else f"{answer.nodes} nodes"
    where = f"at position {answer.position}, profile {answer.profile}: {looked}"
    if answer.node:
        equals = f", the first by name of {answer.equals} equally good ones" if answer.equals > 1 else ""
        yield f"Pod {answer.pod} would get node {answer.node}{equals} ({where})"
        return
    yield f"Pod {answer.pod} would get no node ({where})"
    yield f"  {answer.reason}: {answer.message}"
    if answer.nominated:
        victims = ", ".join(f"{each.pod} (priority {each.priority})" for each in answer.victims) or "nobody"
        yield f"  it would be nominated to node {answer.nominated}, and {victims} would have to go"
