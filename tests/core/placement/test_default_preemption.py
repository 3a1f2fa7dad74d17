"""The laws of preemption, on drawn clusters: who may go, what it is good for, and which node is the best."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.conformance import ROOT

from headgate.core.config.fields import ConfigurationError
from headgate.core.placement import preemption_search
from headgate.core.placement.attempt import attempt
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.configuration.profiles import read_profiles
from headgate.core.placement.framework.candidates import PreemptionDetails
from headgate.core.placement.framework.plugin import PostFiltered
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.framework.status import Code
from headgate.core.placement.objects.metadata import read
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.owners import PodDisruptionBudget
from headgate.core.placement.plugins.default_preemption import DefaultPreemptionArgs, candidates_wanted
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.preemption_arithmetic import SIMULATE, Arithmetic
from headgate.core.placement.preemption_dry_run import dry_run, importance
from headgate.core.placement.scan import NodeOrder

TABLES = ROOT / "placement" / "tables.json"
DEFAULT = read_profiles(None, REGISTRY).by_name["default-scheduler"]


# --- drawn clusters ------------------------------------------------------------------------------------------------

PODS = st.fixed_dictionaries(
    {
        "priority": st.integers(0, 4),
        "cpu": st.integers(0, 6),
        "memory": st.integers(0, 6),
        "app": st.sampled_from(["a", "b", "c"]),
        "started": st.none() | st.integers(0, 3),
        "port": st.integers(0, 4).map(lambda drawn: drawn == 0),
        "away": st.sampled_from(["", "", "", "zone", "kubernetes.io/hostname"]),
        "spread": st.sampled_from(["", "", "", "zone", "kubernetes.io/hostname"]),
    }
)
NODES = st.fixed_dictionaries(
    {
        "cpu": st.integers(1, 8),
        "memory": st.integers(1, 8),
        "pods": st.integers(1, 6),
        "tainted": st.booleans(),
        "on": st.lists(PODS, max_size=6),
        "nominated": st.lists(PODS, max_size=1),
    }
)
BUDGETS = st.lists(
    st.fixed_dictionaries(
        {
            "apps": st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, unique=True),
            "allowed": st.integers(0, 2),
            "disrupted": st.booleans(),
        }
    ),
    max_size=2,
)
CLUSTERS = st.fixed_dictionaries({"nodes": st.lists(NODES, min_size=1, max_size=6), "budgets": BUDGETS, "pod": PODS})


def manifest(name: str, drawn: Any, **spec: Any) -> Any:
    requests = {"cpu": str(drawn["cpu"]), "memory": str(drawn["memory"])}
    ports = [{"hostPort": 80}] if drawn["port"] else []
    selector = {"matchLabels": {"app": drawn["app"]}}
    if drawn["away"]:
        term = {"labelSelector": selector, "topologyKey": drawn["away"]}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if drawn["spread"]:
        constraint = {"maxSkew": 1, "topologyKey": drawn["spread"], "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [{**constraint, "labelSelector": selector}]
    status = {} if drawn["started"] is None else {"startTime": f"2026-01-01T00:00:0{drawn['started']}Z"}
    return {
        "metadata": {"name": name, "namespace": "a", "uid": name, "labels": {"app": drawn["app"]}},
        "spec": {
            "priority": drawn["priority"],
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "resources": {"requests": requests}, "ports": ports}],
            **spec,
        },
        "status": status,
    }


class Drawn:
    """A cluster with one pod to be placed."""

    def __init__(self, drawn: Any) -> None:
        self.cluster = PlacementCluster()
        for number, node in enumerate(drawn["nodes"]):
            name = f"n{number}"
            allocatable = {resource: str(node[resource]) for resource in ("cpu", "memory", "pods")}
            labels = {"zone": f"z{number % 2}", "kubernetes.io/hostname": name}
            taints = [{"key": "k", "effect": "NoSchedule"}] if node["tainted"] else []
            self.cluster.set_node(
                read(
                    {
                        "metadata": {"name": name, "labels": labels},
                        "spec": {"taints": taints},
                        "status": {"allocatable": allocatable},
                    },
                    NodeObject,
                )
            )
            for place, pod in enumerate(node["on"]):
                self.put(manifest(f"e{number}-{place}", pod, nodeName=name))
            for pod in node["nominated"]:
                self.put(manifest(f"w{number}", pod))
                self.cluster.nominate(f"a/w{number}", name)
        for number, budget in enumerate(drawn["budgets"]):
            self.cluster.put(
                PodDisruptionBudget, f"a/b{number}", read(budget_manifest(f"b{number}", budget), PodDisruptionBudget)
            )
        self.pod = self.put(manifest("p", drawn["pod"]))
        self.framework = Framework(DEFAULT, self.cluster)

    def put(self, each: Any) -> PodInfo:
        pod = self.cluster.shapes.read(each)
        self.cluster.set_pod(pod)
        return pod

    def tried(self) -> Any:
        return attempt(self.framework, self.pod, self.cluster.index(NodeOrder).scan(0, 100))


def budget_manifest(name: str, budget: Any) -> Any:
    disrupted = {"e0-0": "2026-01-01T00:00:00Z"} if budget["disrupted"] else {}
    return {
        "metadata": {"name": name, "namespace": "a"},
        "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": budget["apps"]}]}},
        "status": {"disruptionsAllowed": budget["allowed"], "disruptedPods": disrupted},
    }


def preempted(drawn: Any) -> tuple[Drawn, PostFiltered, PreemptionDetails] | None:
    """What preemption came to, where the pod fits nowhere."""
    state = Drawn(drawn)
    made = state.tried()
    if made.post_filtered is None:
        return None
    assert isinstance(made.post_filtered.details, PreemptionDetails)
    return state, made.post_filtered, made.post_filtered.details


# --- laws ----------------------------------------------------------------------------------------------------------


@given(CLUSTERS)
def test_only_pods_of_lower_priority_have_to_go(drawn: Any) -> None:
    """No victim, of no candidate, has the priority of the pod or a higher one."""
    found = preempted(drawn)
    if found is None:
        return
    state, _, details = found
    for candidate in details.candidates.values():
        assert candidate.victims
        assert all(state.cluster.pods[key].priority < state.pod.priority for key in candidate.victims)


@given(CLUSTERS)
def test_without_the_victims_the_pod_fits(drawn: Any) -> None:
    """Once they are gone, the next attempt finds the nominated node feasible."""
    found = preempted(drawn)
    if found is None or not found[1].nominated:
        return
    state, answer, _ = found
    for key in answer.victims:
        state.cluster.remove_pod(key)
    made = state.tried()
    assert answer.nominated in {state.cluster.name_of(row) for row in made.feasible.tolist()}


@given(CLUSTERS)
def test_no_victim_could_stay(drawn: Any) -> None:
    """With any one of the victims back on its node, the pod does not fit there any more."""
    found = preempted(drawn)
    if found is None or not found[1].nominated:
        return
    answer = found[1]
    for spared in answer.victims:
        again = Drawn(drawn)
        for key in answer.victims:
            if key != spared:
                again.cluster.remove_pod(key)
        made = again.tried()
        assert answer.nominated not in {again.cluster.name_of(row) for row in made.feasible.tolist()}


@given(CLUSTERS)
def test_the_best_node_is_the_least_by_the_five_criteria(drawn: Any) -> None:
    """Violations, highest priority, sum of priorities, number of victims, and start, compared as a tuple."""
    found = preempted(drawn)
    if found is None or not found[1].nominated:
        return
    state, answer, details = found

    def criteria(node: str) -> tuple[int, ...]:
        candidate = details.candidates[node]
        victims = [state.cluster.pods[key] for key in candidate.victims]
        first = min(victims, key=importance)
        priorities = sum(pod.priority + 2**31 for pod in victims)
        return (candidate.pdb_violations, first.priority, priorities, len(victims), -importance(first)[1])

    least = min(criteria(node) for node in details.candidates)
    assert list(details.best) == sorted(node for node in details.candidates if criteria(node) == least)
    assert answer.nominated == details.best[0]
    assert answer.victims == details.candidates[details.best[0]].victims


@settings(max_examples=400)
@given(CLUSTERS)
def test_sums_say_what_running_the_filters_says(drawn: Any) -> None:
    """The arithmetic of many nodes at once equals the simulation of each: statuses, victims, violations."""
    state = Drawn(drawn)
    cycle = state.framework.cycle(state.pod)
    state.framework.pre_filter(cycle)
    arithmetic = Arithmetic.of(cycle)
    assert arithmetic is not None
    rows = state.cluster.columns.all_rows()
    verdicts = arithmetic.verdicts(rows)
    runs = [dry_run(cycle, state.cluster.info_of(row)) for row in rows.tolist()]
    fitting = verdicts == 0
    found = arithmetic.found(rows[fitting])
    place = 0
    for run, verdict in zip(runs, verdicts.tolist(), strict=True):
        if verdict:
            assert verdict == SIMULATE or run.status == cycle.statuses.status_of(verdict)
            continue
        assert run.victims == found.victims_of(place)
        assert run.violations == found.violations[place]
        if run.victims:
            assert run.victims[0].priority == found.highest[place]
            assert sum(pod.priority + 2**31 for pod in run.victims) == found.priorities[place]
            assert importance(run.victims[0])[1] == found.started[place]
        assert len(run.victims) == found.counts[place]
        place += 1


@given(CLUSTERS, st.integers(1, 3))
def test_enough_candidates_end_the_search(drawn: Any, wanted: int) -> None:
    """At most so many of each kind, and one without violations unless all nodes were tried; as many as one by one."""
    state = Drawn(drawn)
    cycle = state.framework.cycle(state.pod)
    state.framework.pre_filter(cycle)
    rows = state.cluster.columns.all_rows()
    at_once, single = search_at_once(cycle, rows, wanted), search_one_by_one(cycle, rows, wanted)
    assert at_once.found.rows.tolist() == single.found.rows.tolist()
    assert at_once.hopeless.tolist() == single.hopeless.tolist()
    assert at_once.ids.tolist() == single.ids.tolist()
    assert (at_once.found.violations > 0).sum() <= wanted


def search_at_once(cycle: Any, rows: Any, wanted: int) -> Any:
    arithmetic = Arithmetic.of(cycle)
    assert arithmetic is not None
    return preemption_search._at_once(cycle, arithmetic, rows, wanted)


def search_one_by_one(cycle: Any, rows: Any, wanted: int) -> Any:
    return preemption_search._one_by_one(cycle, rows, wanted)


# --- arguments and eligibility -------------------------------------------------------------------------------------


def recorded_candidates() -> Any:
    return json.loads(TABLES.read_bytes())["preemptionCandidates"]["rows"] if TABLES.exists() else []


@pytest.mark.skipif(not TABLES.exists(), reason="the recordings are not here")
def test_as_many_candidates_are_enough_as_recorded() -> None:
    """Number of nodes, percentage, absolute number, and what the kube-scheduler makes of them."""
    for nodes, percentage, absolute, expected in recorded_candidates():
        arguments = DefaultPreemptionArgs(
            min_candidate_nodes_percentage=percentage, min_candidate_nodes_absolute=absolute
        )
        assert candidates_wanted(arguments, nodes) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        {"minCandidateNodesPercentage": 101},
        {"minCandidateNodesPercentage": -1},
        {"minCandidateNodesAbsolute": -1},
        {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
        {"minCandidateNodes": 1},
    ],
)
def test_arguments_that_the_kube_scheduler_refuses_are_refused(arguments: Any) -> None:
    """The error names the field."""
    profile = {"pluginConfig": [{"name": "DefaultPreemption", "args": arguments}]}
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    with pytest.raises(ConfigurationError, match="minCandidateNodes"):
        read_profiles({**document, "profiles": [profile]}, REGISTRY)


PLAIN: Any = {"cpu": 1, "memory": 0, "started": None, "port": False, "away": "", "spread": ""}
ROOM: Any = {"cpu": 1, "memory": 1, "pods": 5, "tainted": False, "nominated": []}
FULL: Any = {
    "nodes": [{**ROOM, "on": [{**PLAIN, "priority": 0, "app": "a", "started": 0}]}],
    "budgets": [],
    "pod": {**PLAIN, "priority": 1, "app": "b"},
}


def test_a_pod_that_must_not_preempt_does_not() -> None:
    """`preemptionPolicy: Never`; its nomination stays as it is."""
    state = Drawn(FULL)
    state.pod = state.put(manifest("p", FULL["pod"], preemptionPolicy="Never"))
    answer = state.tried().post_filtered
    assert (answer.status.code, answer.nominated) == (Code.UNSCHEDULABLE, None)
    assert "preemption: not eligible due to preemptionPolicy=Never." in answer.status.reasons


def test_a_pod_waits_for_the_victims_that_it_has() -> None:
    """While a pod that the scheduler preempted ends on the nominated node, no other has to go."""
    state = Drawn(FULL)
    ending = manifest("e0-0", FULL["nodes"][0]["on"][0], nodeName="n0")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ending["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    state.put(ending)
    wanted = manifest("p", FULL["pod"])
    wanted["status"]["nominatedNodeName"] = "n0"
    state.pod = state.put(wanted)
    answer = state.tried().post_filtered
    assert "preemption: not eligible due to a terminating pod on the nominated node." in answer.status.reasons


def test_pods_of_lower_priority_lose_their_nomination_to_the_node() -> None:
    """They may no longer fit there, and look for another node."""
    lower = {**PLAIN, "priority": 0, "cpu": 0, "app": "c"}
    state = Drawn({**FULL, "nodes": [{**FULL["nodes"][0], "nominated": [lower]}]})
    answer = state.tried().post_filtered
    assert (answer.nominated, answer.victims, answer.unnominated) == ("n0", ("a/e0-0",), ("a/w0",))
