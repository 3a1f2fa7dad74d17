"""Topology requests and assignments of another Kueue are kept to the letter: read, logged, folded, written back."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.support.logs import TestLog

from headgate.core import fold
from headgate.core.api.conversion import to_v1beta2
from headgate.core.reading.decoding import read
from headgate.core.status.workload_status import forces, status_patch, workload_status
from headgate.events.base import Producer
from headgate.events.commit import encode_event
from headgate.events.facts import WorkloadObserved
from headgate.events.ids import WorkloadKey

Json = dict[str, Any]

W = WorkloadKey("team-a/w")
SINCE = "2026-01-15T10:00:00Z"

names = st.text("abc.-/0123456789", min_size=1, max_size=12)
affixes = st.text("abc-", max_size=4)
counts = st.integers(1, 2**31 - 1)


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """An object in which each of these fields may be missing."""
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def slices(draw: st.DrawFn, levels: int) -> Json:
    """An entry of `topologyAssignment.slices`, by the schema: each level and the counts universal or individual."""
    domains = draw(st.integers(1, 4))
    individual = st.lists(affixes, min_size=domains, max_size=domains).flatmap(
        lambda roots: optional(prefix=affixes, suffix=affixes).map(
            lambda found: {"individual": {"roots": roots} | found}
        )
    )
    per_level = st.one_of(st.builds(lambda value: {"universal": value}, names | st.just("")), individual)
    per_domain = st.lists(counts, min_size=domains, max_size=domains)
    return {
        "domainCount": domains,
        "valuesPerLevel": draw(st.lists(per_level, min_size=levels, max_size=levels)),
        "podCounts": draw(
            st.one_of(
                st.builds(lambda count: {"universal": count}, counts),
                st.builds(lambda each: {"individual": each}, per_domain),
            )
        ),
    }


@st.composite
def assignments(draw: st.DrawFn) -> Json:
    """A `topologyAssignment` of v1beta2."""
    levels = draw(st.lists(names, min_size=1, max_size=3))
    return {"levels": levels, "slices": draw(st.lists(slices(len(levels)), max_size=3))}


@st.composite
def domains(draw: st.DrawFn) -> Json:
    """A `topologyAssignment` of v1beta1."""
    levels = draw(st.lists(names, min_size=1, max_size=3))
    values = st.lists(names, min_size=len(levels), max_size=len(levels))
    each = st.builds(lambda values, count: {"values": values, "count": count}, values, counts)
    return {"levels": levels, "domains": draw(st.lists(each, max_size=4))}


requests = optional(
    required=names,
    preferred=names,
    unconstrained=st.booleans(),
    podIndexLabel=names,
    subGroupIndexLabel=names,
    subGroupCount=st.integers(0, 9),
    podSetGroupName=names,
    podSetSliceRequiredTopology=names,
    podSetSliceSize=st.integers(1, 9),
    podsetSliceRequiredTopologyConstraints=st.lists(
        st.fixed_dictionaries({"topology": names, "size": st.integers(1, 9)}), min_size=1, max_size=3
    ),
)


def admitted(assignment: Json, request: Json | None = None, version: str = "v1beta2") -> Json:
    """A Workload that another Kueue has admitted."""
    pod_set: Json = {"name": "main", "count": 2, "template": {"spec": {"containers": []}}}
    placed = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}, "count": 2, **assignment}
    reasons = {"QuotaReserved": "QuotaReserved", "Admitted": "Admitted"}
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "metadata": {
            "name": "w",
            "namespace": "team-a",
            "uid": "u",
            "creationTimestamp": SINCE,
            "resourceVersion": "7",
        },
        "spec": {
            "queueName": "main",
            "podSets": [pod_set | ({"topologyRequest": request} if request is not None else {})],
        },
        "status": {
            "admission": {"clusterQueue": "cq", "podSetAssignments": [placed]},
            "conditions": [
                {"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": SINCE}
                for kind, reason in reasons.items()
            ],
        },
    }


def taken_over(manifest: Json) -> TestLog:
    """A log in which a Workload was seen for the first time."""
    log = TestLog()
    fact = read("workloads", msgspec.json.encode(manifest)).fact
    assert isinstance(fact, WorkloadObserved)
    log.append(Producer.INFORMER_BRIDGE, fact)
    assert msgspec.json.decode(encode_event(fact), type=WorkloadObserved) == fact
    return log


def written(log: TestLog) -> Json:
    """What of a Workload's pod set assignment the next write of its status holds, from a state that was restored."""
    state = fold.restore("main", fold.encode(log.state))
    assert fold.encode(log.refold()) == fold.encode(state)
    workload = state.workloads[W]
    status = workload_status(state, workload)
    assert forces(status)
    body = msgspec.json.decode(msgspec.json.encode(status_patch(workload, status)))
    (assignment,) = body["status"]["admission"]["podSetAssignments"]
    return dict(assignment)


@given(
    optional(topologyAssignment=assignments(), delayedTopologyRequest=st.sampled_from(["Pending", "Ready"])), requests
)
def test_what_another_kueue_has_assigned_is_written_back_to_the_letter(assignment: Json, request: Json) -> None:
    """A forced apply that left a field out would remove it from the object."""
    manifest = admitted(assignment, request)
    log = taken_over(manifest)
    assert written(log) == manifest["status"]["admission"]["podSetAssignments"][0]
    (pod_set,) = msgspec.json.decode(msgspec.json.encode(log.state.workloads[W].spec))["podSets"]
    assert pod_set["topologyRequest"] == request


def expanded(assignment: Json) -> list[tuple[list[str], int]]:
    """The domains of a compressed assignment with their pods, one by one."""
    found = []
    for each in assignment["slices"]:
        for index in range(each["domainCount"]):
            values = []
            for level in each["valuesPerLevel"]:
                own = level.get("individual")
                values.append(
                    level["universal"]
                    if own is None
                    else f"{own.get('prefix', '')}{own['roots'][index]}{own.get('suffix', '')}"
                )
            counts = each["podCounts"]
            found.append((values, counts["universal"] if "universal" in counts else counts["individual"][index]))
    return found


@given(domains())
def test_domains_of_v1beta1_are_kept_as_slices_of_v1beta2(assignment: Json) -> None:
    """The same domains with the same pods in the same order."""
    log = taken_over(to_v1beta2(admitted({"topologyAssignment": assignment}, version="v1beta1")))
    kept = written(log)["topologyAssignment"]
    assert kept["levels"] == assignment["levels"]
    assert expanded(kept) == [(each["values"], each["count"]) for each in assignment["domains"]]


@given(domains())
def test_an_object_that_shows_domains_is_read_as_one_with_slices(assignment: Json) -> None:
    """An API server whose definitions convert nothing serves as v1beta2 what was written as v1beta1."""
    shown = admitted({"topologyAssignment": assignment})
    assert written(taken_over(shown)) == written(taken_over(to_v1beta2(shown)))
