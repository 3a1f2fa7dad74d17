"""Kept answers are those that would be given anew: an old framework decides as a new one, whatever has happened."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.placement import (
    Json,
    attempted,
    cluster_of,
    clusters,
    framework_of,
    node,
    nodes,
    pod,
    pods,
    shown,
    tell,
)

from headgate.core.placement.cluster import JOURNAL_LEN_MAX, RowJournal
from headgate.core.placement.objects.devices import DeviceClass, DeviceClassSpec
from headgate.core.placement.objects.metadata import MetadataObject

_names = st.sampled_from([f"n{number:02}" for number in range(14)])


@st.composite
def _changes(draw: st.DrawFn) -> tuple[str, object]:
    kind = draw(st.sampled_from(["node", "remove node", "pod", "remove pod", "nominate"]))
    name = draw(_names)
    match kind:
        case "node":
            return kind, draw(nodes(name))
        case "pod":
            return kind, draw(pods(draw(st.sampled_from(["e0", "e1", "x0", "x1"])), on=name))
        case "remove pod":
            return kind, draw(st.sampled_from(["ns/e0", "ns/e1", "ns/x0"]))
        case _:
            return kind, name


@given(
    manifests=clusters(), waiting=st.lists(pods("p"), min_size=1, max_size=3), changes=st.lists(_changes(), max_size=6)
)
@settings(max_examples=150)
def test_an_old_framework_decides_as_a_new_one(
    manifests: list[Json], waiting: list[Json], changes: list[tuple[str, object]]
) -> None:
    """Each pod is tried twice before the changes, so that its answers are kept, and after each of them."""
    cluster = cluster_of(*manifests, pods_nominated())
    for number, manifest in enumerate(waiting):
        manifest["metadata"]["name"] = f"p{number}"
        tell(cluster, manifest)
    old = framework_of(cluster)
    keys = [f"ns/p{number}" for number in range(len(waiting))]
    for key in keys * 2:
        attempted(old, key)
    for kind, what in changes:
        match kind:
            case "node" | "pod":
                assert isinstance(what, dict)
                tell(cluster, what)
            case "remove node":
                cluster.remove_node(str(what))
            case "remove pod":
                cluster.remove_pod(str(what))
            case _:
                cluster.nominate("ns/nominated", str(what))
        for key in keys:
            assert shown(attempted(old, key)) == shown(attempted(framework_of(cluster), key))


def pods_nominated() -> Json:
    """A pod that waits and can be nominated."""
    return pod("nominated", cpu="2", spec={"priority": 5})


@given(manifests=clusters(), waiting=pods("p"), percentage=st.sampled_from([1, 30, 100]))
@settings(max_examples=30)
def test_an_attempt_changes_nothing(manifests: list[Json], waiting: Json, percentage: int) -> None:
    """Tried again, a pod gets the same answer."""
    cluster = cluster_of(*manifests, waiting)
    framework = framework_of(cluster)
    first = shown(attempted(framework, "ns/p", percentage=percentage))
    assert [shown(attempted(framework, "ns/p", percentage=percentage)) for _ in range(3)] == [first] * 3


def test_a_journal_that_is_too_long_says_so() -> None:
    """Who has not read for too long is told to look at everything; the others are told what has changed."""
    journal = RowJournal()
    journal.add(7)
    start = journal.end
    for _ in range(JOURNAL_LEN_MAX):
        journal.add(1)
    assert journal.since(start) is None or journal.since(start) == [1] * JOURNAL_LEN_MAX
    journal.add(2)
    assert journal.since(0) is None
    assert journal.since(journal.end) == []
    assert journal.since(journal.end - 1) == [2]


def test_answers_are_void_once_an_object_that_they_depend_on_has_changed() -> None:
    """A device class that provides an extended resource: it is no longer the node's own resource that is short."""
    wanted: Json = {"example.com/gpu": "1"}
    cluster = cluster_of(node("a"), node("b"), pod("p", **wanted))
    framework = framework_of(cluster)
    assert [attempted(framework, "ns/p").node for _ in range(3)] == ["", "", ""]
    gpu = DeviceClass(
        metadata=MetadataObject(name="gpu"), spec=DeviceClassSpec(extended_resource_name="example.com/gpu")
    )
    cluster.put(DeviceClass, "gpu", gpu)
    assert [status.plugin for status, _ in attempted(framework, "ns/p").verdicts.counts()] == ["DynamicResources"]
    cluster.put(DeviceClass, "gpu", None)
    assert [status.plugin for status, _ in attempted(framework, "ns/p").verdicts.counts()] == ["NodeResourcesFit"]
