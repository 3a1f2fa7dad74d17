"""A plugin that raises, or answers against the contract, costs its pod one attempt, is named, and stops nobody else."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.support.placement import Json, attempted, cluster_of, framework_of, node, pod, tell

from headgate.core.config.fields import ConfigurationError
from headgate.core.placement.attempt import PlacementAttempt
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.events import ALL, EventHint, EventResource, Hint
from headgate.core.placement.framework.plugin import PreFiltered, PreScored, Reads
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.framework.status import SUCCESS, Code, PluginStatus
from headgate.core.placement.pods import PodShape
from headgate.core.placement.queue import Queue
from headgate.core.placement.queue_entry import Place, QueueLimits
from headgate.core.placement.queue_events import ASSIGNED_POD_GONE
from headgate.core.placement.queue_hints import queue_profile
from headgate.events.ids import UnixMs

BOOM = ValueError("boom")


class Odd:
    """A plugin that fails for pods labelled `odd` at some of its methods, by raising or by what it answers there."""

    name = "Odd"
    filter_reads = Reads.NODE
    score_reads = Reads.NODE

    def __init__(self, **faults: Any) -> None:
        self.reads = faults.pop("reads", Reads.NODE)
        self.filter_reads = self.score_reads = self.reads
        for method, fault in faults.items():
            setattr(self, method, self._failing(fault, getattr(type(self), f"_{method}", None)))

    def _failing(self, fault: Any, otherwise: Callable[..., Any] | None) -> Callable[..., Any]:
        def method(first: Any = None, *rest: Any) -> Any:
            pod = getattr(first, "pod", first)
            if "odd" not in getattr(pod, "labels", {"odd": ""}):
                return otherwise(self, first, *rest) if otherwise is not None else SUCCESS
            if isinstance(fault, BaseException):
                raise fault
            return fault(first, *rest) if callable(fault) else fault

        return method

    def _pre_filter(self, cycle: Any) -> PreFiltered:
        return PreFiltered()

    def _pre_score(self, cycle: Any, rows: Any) -> PreScored:
        return PreScored()

    def _filter_columns(self, cycle: Any, columns: Any, rows: Any) -> Any:
        return np.zeros(len(rows), dtype=np.int64)

    def _score_columns(self, cycle: Any, columns: Any, rows: Any) -> Any:
        return np.zeros(len(rows), dtype=np.int64)

    def _normalize(self, cycle: Any, rows: Any, scores: Any) -> Any:
        return scores

    def _score(self, cycle: Any, node: Any) -> int:
        return 1

    def _filter_key(self, shape: Any) -> None:
        return None

    _score_key = _filter_key


def passing(*_: Any) -> PluginStatus:
    return SUCCESS


def odd_and_even(*others: Any, nodes: int = 12, plugins: Json | None = None) -> Framework:
    """Two pods on a cluster on which both fit, one of them odd."""
    pods = [pod("odd", labels={"odd": "yes"}, cpu="1", spec={"priority": 5}), pod("even", cpu="1")]
    return framework_of(
        cluster_of(*(node(f"n{each:02}") for each in range(nodes)), *pods),
        *others,
        **({"plugins": plugins} if plugins else {}),
    )


def failure(point: str, error: str, name: str = "Odd") -> str:
    return f'running {point} plugin "{name}": {error}'


def too_few(*_: Any) -> Any:
    return np.zeros(3, dtype=np.int64)


def listed(*_: Any) -> PluginStatus:
    return PluginStatus(Code.UNSCHEDULABLE, ["a"])  # type: ignore[arg-type]


def one(*_: Any) -> int:
    return 1


ATTEMPTS: dict[str, tuple[Odd, str, str]] = {
    "pre_filter raises": (Odd(pre_filter=BOOM), "PreFilter", "ValueError: boom"),
    "pre_filter answers nothing": (Odd(pre_filter=lambda *_: None), "PreFilter", "TypeError: it answers NoneType"),
    "filter raises": (Odd(filter=BOOM), "Filter", "ValueError: boom"),
    "filter of the cluster raises": (Odd(filter=BOOM, reads=Reads.CLUSTER), "Filter", "ValueError: boom"),
    "filter answers nothing": (Odd(filter=lambda *_: None), "Filter", "AttributeError: 'NoneType'"),
    "filter answers a list of reasons": (Odd(filter=listed), "Filter", "TypeError: "),
    "filter_key raises": (Odd(filter=passing, filter_key=BOOM), "filter_key", "ValueError: boom"),
    "filter_key has no hash": (Odd(filter=passing, filter_key=lambda *_: []), "filter_key", "TypeError: "),
    "filter_columns raises": (Odd(filter=passing, filter_columns=BOOM), "Filter", "ValueError: boom"),
    "filter_columns is short": (
        Odd(filter=passing, filter_columns=too_few),
        "Filter",
        "ValueError: it answers an array",
    ),
    "filter_columns answers floats": (
        Odd(filter=passing, filter_columns=lambda *_: np.zeros(12)),
        "Filter",
        "TypeError: it answers ndarray of float64 instead of an array of integers",
    ),
    "filter_columns answers no ids": (
        Odd(filter=passing, filter_columns=lambda *_: np.full(12, 77)),
        "Filter",
        "IndexError: list index out of range",
    ),
    "pre_score raises": (Odd(score=one, pre_score=BOOM), "PreScore", "ValueError: boom"),
    "score raises": (Odd(score=BOOM), "Score", "ValueError: boom"),
    "score answers text": (Odd(score=lambda *_: "1"), "Score", "TypeError: it answers str instead of int"),
    "score is too large": (Odd(score=lambda *_: 2**70), "Score", f"OverflowError: {2**70} has more than 64 bits"),
    "score_key raises": (Odd(score=one, score_key=BOOM), "score_key", "ValueError: boom"),
    "score_columns raises": (Odd(score=one, score_columns=BOOM), "Score", "ValueError: boom"),
    "normalize raises": (Odd(score=one, normalize=BOOM), "NormalizeScore", "ValueError: boom"),
    "normalize answers a list": (
        Odd(score=one, normalize=lambda *_: [1] * 12),
        "NormalizeScore",
        "TypeError: it answers",
    ),
}


def is_rejected_by_error(made: PlacementAttempt, text: str) -> bool:
    """Whether an attempt failed by the error of a plugin, which its status names."""
    told = (made.node, made.reason, made.status.code, made.status.plugin, made.rejectors)
    return told == ("", "SchedulerError", Code.ERROR, "Odd", ()) and made.message.startswith(text)


@pytest.mark.parametrize("case", ATTEMPTS)
def test_an_attempt_fails_by_the_plugin_and_the_next_pod_is_placed(case: str) -> None:
    """Again and again, also when answers are kept; the error names plugin, extension point, exception and message."""
    plugin, point, error = ATTEMPTS[case]
    framework = odd_and_even(plugin)
    for _ in range(4):
        made = attempted(framework, "ns/odd")
        assert is_rejected_by_error(made, failure(point, error)), made.message
        assert attempted(framework, "ns/even").node == "n00"


@pytest.mark.parametrize("method", ["filter", "pre_filter", "score"])
def test_what_stops_a_process_passes_through(method: str) -> None:
    """Without memory no answer is right, and an interruption is no answer."""
    for fault in (MemoryError(), KeyboardInterrupt()):
        framework = odd_and_even(Odd(**{method: fault}))
        with pytest.raises(type(fault)):
            attempted(framework, "ns/odd")


def test_what_only_a_few_nodes_make_fail_is_an_error_too() -> None:
    """With up to eight nodes each is asked by itself."""
    framework = odd_and_even(Odd(filter=BOOM), nodes=3)
    assert is_rejected_by_error(attempted(framework, "ns/odd"), failure("Filter", "ValueError: boom"))


def test_a_plugin_that_recovers_places_the_pod() -> None:
    """A failure leaves nothing behind in what is kept."""
    plugin = Odd(filter=BOOM, score=BOOM)
    framework = odd_and_even(plugin)
    for _ in range(3):
        assert attempted(framework, "ns/odd").node == ""
    plugin.filter = passing  # type: ignore[attr-defined]
    assert attempted(framework, "ns/odd").message == failure("Score", "ValueError: boom")
    plugin.score = lambda *_: 1  # type: ignore[attr-defined]
    assert attempted(framework, "ns/odd").node == "n00"


# --- hypotheses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raising", ["add_pod", "remove_pod"])
def test_a_hypothesis_that_fails_is_an_error_of_the_pod(raising: str) -> None:
    """With a pod nominated to a node, and without one of the pods that preemption would end."""
    hypotheses = {"add_pod": lambda *_: None, "remove_pod": lambda *_: None, raising: BOOM}
    reads = Reads.CLUSTER
    framework = odd_and_even(
        Odd(filter=passing, pre_filter=lambda *_: PreFiltered(), reads=reads, **hypotheses), nodes=1
    )
    cluster = framework.cluster
    if raising == "add_pod":
        tell(cluster, pod("nominated", cpu="1", spec={"priority": 9}))
        cluster.nominate("ns/nominated", "n00")
        text = failure("PreFilterExtensions.AddPod", "ValueError: boom")
        assert is_rejected_by_error(attempted(framework, "ns/odd"), text)
        return
    tell(cluster, pod("lower", on="n00", cpu="4"))
    made = attempted(framework, "ns/odd")
    # As in the kube-scheduler, a post-filter that fails leaves a pod that does not fit what it is.
    assert (made.node, made.reason, made.rejectors) == ("", "Unschedulable", ("NodeResourcesFit",))
    assert made.message.endswith(f"preemption: {failure('PreFilterExtensions.RemovePod', 'ValueError: boom')}")


def test_a_post_filter_that_fails_is_named_in_the_message_of_the_pod() -> None:
    """The pod still waits for what its filters miss."""
    plugins = {"postFilter": {"enabled": [{"name": "Odd"}], "disabled": [{"name": "*"}]}}
    framework = odd_and_even(Odd(post_filter=BOOM), nodes=1, plugins=plugins)
    tell(framework.cluster, pod("other", on="n00", cpu="4", spec={"priority": 9}))
    made = attempted(framework, "ns/odd")
    assert made.message == f"0/1 nodes are available: 1 Insufficient cpu. {failure('PostFilter', 'ValueError: boom')}"
    assert made.post_filtered is not None
    assert (made.post_filtered.status.code, made.post_filtered.status.plugin) == (Code.ERROR, "Odd")


# --- binding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [BOOM, lambda *_: None])
@pytest.mark.parametrize(
    ("method", "point"), [("reserve", "Reserve"), ("permit", "Permit"), ("pre_bind", "PreBind"), ("bind", "Bind")]
)
def test_a_point_after_the_choice_of_the_node_answers_an_error(method: str, point: str, fault: Any) -> None:
    """The pod is not bound; what the point answers names the plugin."""
    sets: Json = {"bind": {"enabled": [{"name": "Odd"}], "disabled": [{"name": "*"}]}} if method == "bind" else {}
    framework = odd_and_even(Odd(**{method: fault}), plugins=sets)
    made = attempted(framework, "ns/odd")
    chosen = framework.cluster.node(made.node)
    assert chosen is not None
    answer = getattr(framework.binding, method)(made.cycle, chosen)
    status: PluginStatus = getattr(answer, "status", answer)
    kinds = {"reserve": "Reserved", "permit": "Permitted", "pre_bind": "PreBound", "bind": "PluginStatus"}
    why = "ValueError: boom" if fault is BOOM else f"TypeError: it answers NoneType instead of {kinds[method]}"
    assert (status.code, status.plugin, status.message) == (Code.ERROR, "Odd", failure(point, why))


def test_the_others_learn_of_a_binding_when_a_plugin_fails_at_it() -> None:
    """PostBind changes nothing any more, so all plugins are told, and the failure is returned."""
    told: list[str] = []

    class Last(Odd):
        name = "Last"

        def post_bind(self, cycle: Any, node: Any) -> None:
            told.append(node.name)

    framework = odd_and_even(Odd(post_bind=BOOM), Last())
    made = attempted(framework, "ns/odd")
    chosen = framework.cluster.node(made.node)
    assert chosen is not None
    failures = framework.binding.post_bind(made.cycle, chosen)
    assert [each.message for each in failures] == [failure("PostBind", "ValueError: boom")]
    assert told == [made.node]


# --- the queue -----------------------------------------------------------------------------------------------------


def queue_with(plugin: Odd, plugins: Json | None = None) -> Queue:
    """A queue of two pods, one of them odd, at time 0."""
    framework = odd_and_even(plugin, plugins=plugins)
    queue = Queue(framework.cluster, {"default-scheduler": queue_profile(framework)}, QueueLimits())
    for each in ("even", "odd"):
        manifest: Json = pod(each, labels={"odd": "yes"} if each == "odd" else {})
        manifest["spec"]["schedulerName"] = "default-scheduler"
        tell(framework.cluster, manifest)
        queue.add(framework.cluster.pods[f"ns/{each}"], UnixMs(0))
    return queue


def test_a_pre_enqueue_plugin_that_fails_gates_its_pod() -> None:
    """Until something happens that the plugin has registered for; the status of the pod says why."""
    plugin = Odd(pre_enqueue=BOOM, events=(EventHint(EventResource.POD, ALL),))
    queue = queue_with(plugin)
    odd = queue.get("ns/odd")
    assert odd is not None
    assert (odd.place, odd.gated_by, odd.gate.message) == (
        Place.GATED,
        "Odd",
        failure("PreEnqueue", "ValueError: boom"),
    )
    assert queue.plugin_failures()["Odd", "PreEnqueue"] == odd.gate
    popped = queue.pop()
    assert popped is not None
    assert popped.queued.pod.key == "ns/even"
    assert queue.pop() is None
    plugin.pre_enqueue = passing  # type: ignore[attr-defined]
    queue.notify(ASSIGNED_POD_GONE, odd.pod, None, UnixMs(60_000))
    assert (odd.place, odd.gated_by, odd.gate) == (Place.ACTIVE, "", SUCCESS)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (BOOM, "ValueError: boom"),
        (lambda *_: (1.5,), "TypeError: it answers float instead of int | str"),
        (lambda *_: ("text",), "TypeError: '<' not supported between instances of 'str' and 'int'"),
    ],
)
def test_a_pod_without_a_place_in_the_order_waits_as_after_an_error(fault: Any, why: str) -> None:
    """The others are taken in order; it is asked for its place again when it has waited for long enough."""

    class Sort(Odd):
        def __init__(self, fault: Any) -> None:
            super().__init__(sort_key=fault)

        def _sort_key(self, pod: Any, queued_ms: int) -> tuple[int, ...]:
            return (queued_ms,)

    plugin = Sort(fault)
    sort = {"queueSort": {"enabled": [{"name": "Odd"}], "disabled": [{"name": "*"}]}}
    queue = queue_with(plugin, plugins=sort)
    cluster = queue._cluster
    tell(cluster, pod("third", spec={"schedulerName": "default-scheduler"}))
    queue.add(cluster.pods["ns/third"], UnixMs(1))
    odd = queue.get("ns/odd")
    assert odd is not None
    assert (odd.place, odd.is_by_error) == (Place.UNSCHEDULABLE, True)
    assert queue.plugin_failures()["Odd", "QueueSort"].message.startswith(failure("QueueSort", why)[:-1])
    assert queue.flush_unschedulable(UnixMs(400_000)) == []
    assert sorted(str(queue.pop().queued.pod.key) for _ in range(2)) == ["ns/even", "ns/third"]  # type: ignore[union-attr]
    plugin.sort_key = lambda pod, queued_ms: (queued_ms,)  # type: ignore[attr-defined]
    moves = queue.flush_unschedulable(UnixMs(800_000))
    assert [(each.pod, each.after) for each in moves] == [("ns/odd", Place.ACTIVE)]


def number_of(shape: PodShape) -> int:
    return shape.number


@pytest.mark.parametrize("key", [None, number_of, lambda shape: [shape], lambda shape: shape.absent])
def test_a_hint_that_fails_tries_its_pod_again(key: Any) -> None:
    """As in the kube-scheduler; pods of other plugins wait on."""

    def hint(waiting: Any, old: Any, new: Any, cluster: PlacementCluster) -> Hint:
        raise BOOM

    queue = queue_with(Odd(filter=passing, events=(EventHint(EventResource.POD, ALL, hint, key=key),)))
    rejected = {}
    for _ in range(2):
        popped = queue.pop()
        assert popped is not None
        rejected[popped.queued.pod.name] = popped.queued
        queue.failed(popped.queued, ("Odd" if popped.queued.pod.name == "odd" else "NodePorts",), (), UnixMs(0))
    assert queue.hints(ASSIGNED_POD_GONE, rejected["even"].pod, None)["ns/odd"] == {"Odd": Hint.QUEUE}
    moves = queue.notify(ASSIGNED_POD_GONE, rejected["even"].pod, None, UnixMs(60_000))
    assert [(each.pod, each.after) for each in moves] == [("ns/odd", Place.ACTIVE)]
    told = queue.plugin_failures()["Odd", "QueueingHint"]
    assert (told.code, told.plugin) == (Code.ERROR, "Odd")
    assert told.message.startswith('running QueueingHint plugin "Odd": ')
    assert rejected["even"].place == Place.UNSCHEDULABLE


# --- indexes -------------------------------------------------------------------------------------------------------


class Fragile:
    """An index that counts pods and fails for pods of the label `odd`, once."""

    is_broken = True

    def __init__(self, cluster: PlacementCluster) -> None:
        self.pods = 0

    def node_set(self, node: Any, old: Any) -> None:
        self.pods += len(node.pods) if old is None else 0

    def node_removed(self, node: Any) -> None:
        self.pods -= len(node.pods)

    def pod_added(self, pod: Any, node: Any) -> None:
        if "odd" in pod.labels:
            raise BOOM
        self.pods += 1

    def pod_removed(self, pod: Any, node: Any) -> None:
        self.pods -= 1

    def object_put(self, kind: type, key: str) -> None:
        """Without effect."""


class OnTop(Fragile):
    """An index that is made of another."""

    def __init__(self, cluster: PlacementCluster) -> None:
        super().__init__(cluster)
        self.below = cluster.index(Fragile)

    def pod_added(self, pod: Any, node: Any) -> None:
        self.pods += 1


def test_an_index_that_fails_at_a_change_is_made_anew() -> None:
    """The cluster and the other indexes have the change; what was made of the index is made anew with it."""
    cluster = cluster_of(node("a"), pod("one", on="a"))
    upper, lower = cluster.index(OnTop), cluster.index(Fragile)
    tell(cluster, pod("two", on="a", labels={"odd": "yes"}))
    assert cluster.index_failures == {"Fragile": "ValueError: boom"}
    assert sorted(cluster.columns.infos[0].pods) == ["ns/one", "ns/two"]  # type: ignore[union-attr]
    assert cluster.index(Fragile) is not lower
    assert cluster.index(OnTop) is not upper
    assert cluster.index(OnTop).below is cluster.index(Fragile)
    assert (cluster.index(Fragile).pods, cluster.index(OnTop).pods) == (2, 2)


# --- before any pod ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plugin", "why"),
    [
        (Odd(events=BOOM), "ValueError: boom"),
        (Odd(events=(1,)), "TypeError: it answers int instead of EventHint"),
        (Odd(filter=passing, reads="NODE"), "TypeError: it answers str instead of Reads"),
        (type("Other", (), {"name": "Odd", "filter": passing})(), "it lacks a member of FilterPlugin"),
    ],
)
def test_a_plugin_that_contradicts_the_contract_is_refused_with_the_configuration(plugin: Any, why: str) -> None:
    """One error that names it, before any pod is tried."""
    with pytest.raises(ConfigurationError, match=f"plugin 'Odd' cannot be used: {why}"):
        odd_and_even(plugin)
