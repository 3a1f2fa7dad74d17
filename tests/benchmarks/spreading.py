"""
What a pod costs that is to be spread, or to be near to or away from others.

That is the whole attempt by the default profile, looking at all nodes, and telling the cluster where the pod is.
Nothing of it waits, so processor time is measured, which other work on the machine hardly changes.

Nodes of 64 cores in 10 zones, with 4 pods of one of 200 other applications on each, which spread over hosts by
anti-affinity. Pods of 100 applications are placed in turn, so that counts of many of them are kept; those with zonal
anti-affinity are one application per pod and zone.
"""

import time
from collections.abc import Callable
from typing import Any

from tests.benchmarks.measure import Report, Row, profiled

from headgate.core.placement.attempt import attempt
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.configuration.profiles import read_profiles
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.objects.metadata import read
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.placement.scan import NodeOrder

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
ZONES = 10
APPLICATIONS = 100
OTHERS = 200
OTHERS_PER_NODE = 4
WARM_UP = 200
PODS = 1_000
NODES = (5_000, 15_000)
PER_S_MIN = {5_000: 1_000}

Json = dict[str, Any]


def _spread(key: str, action: str) -> Callable[[Json], Json]:
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action}
    return lambda selector: {"topologySpreadConstraints": [{**constraint, "labelSelector": selector}]}


def _affinity(kind: str, key: str) -> Callable[[Json], Json]:
    def spec(selector: Json) -> Json:
        term = {"topologyKey": key, "labelSelector": selector}
        return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}

    return spec


def _preferred(selector: Json) -> Json:
    term = {"topologyKey": HOSTNAME, "labelSelector": selector}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


KINDS: dict[str, Callable[[Json], Json]] = {
    "without any": lambda _: {},
    "spread over hosts": _spread(HOSTNAME, "DoNotSchedule"),
    "spread over zones": _spread(ZONE, "DoNotSchedule"),
    "rather spread over hosts": _spread(HOSTNAME, "ScheduleAnyway"),
    "rather spread over zones": _spread(ZONE, "ScheduleAnyway"),
    "affinity by zone": _affinity("podAffinity", ZONE),
    "affinity by host": _affinity("podAffinity", HOSTNAME),
    "anti-affinity by host": _affinity("podAntiAffinity", HOSTNAME),
    "anti-affinity by zone": _affinity("podAntiAffinity", ZONE),
    "rather away by host": _preferred,
}


def cluster_of(count: int) -> PlacementCluster:
    """The nodes with the pods of other applications."""
    cluster = PlacementCluster()
    for number in range(count):
        labels = {HOSTNAME: f"n{number:05}", ZONE: f"z{number % ZONES}"}
        status = {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}}
        cluster.set_node(read({"metadata": {"name": f"n{number:05}", "labels": labels}, "status": status}, NodeObject))
        for place in range(OTHERS_PER_NODE):
            other = f"other-{(number + place * OTHERS // OTHERS_PER_NODE) % OTHERS}"
            spec = _affinity("podAntiAffinity", HOSTNAME)({"matchLabels": {"app": other}})
            cluster.set_pod(cluster.shapes.read(manifest(f"{other}-{number}", other, spec, f"n{number:05}")))
    return cluster


def manifest(name: str, application: str, spec: Json, node: str = "") -> Json:
    """A pod of an application."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": {"app": application}}
    return {"metadata": metadata, "spec": {"containers": containers, "nodeName": node, **spec}}


class Placing:
    """Places pods of one kind, one after the other."""

    def __init__(self, cluster: PlacementCluster, kind: str) -> None:
        self._cluster = cluster
        self._kind = kind
        self._framework = Framework(read_profiles(None, REGISTRY).by_name["default-scheduler"], cluster)
        self._placed = 0

    def place(self, count: int) -> float:
        """Place so many more pods, and return how many per second of processor time."""
        pending = [self._manifest(self._placed + number) for number in range(count)]
        self._placed += count
        cluster, order = self._cluster, self._cluster.index(NodeOrder)
        pods = [cluster.shapes.read(each) for each in pending]
        begun = time.process_time()
        for pod, each in zip(pods, pending, strict=True):
            made = attempt(self._framework, pod, order.scan(0, 100))
            assert made.node, f"{pod.key} was not placed: {made.message}"
            each["spec"]["nodeName"] = made.node
            cluster.set_pod(cluster.shapes.read(each))
        return count / (time.process_time() - begun)

    def _manifest(self, number: int) -> Json:
        applications = APPLICATIONS if self._kind != "anti-affinity by zone" else (WARM_UP + PODS) // ZONES + 1
        application = f"{self._kind.replace(' ', '-')}-{number % applications}"
        return manifest(
            f"{application}-{number}", application, KINDS[self._kind]({"matchLabels": {"app": application}})
        )


def run(*, profile: bool = False) -> Report:
    """Measure each kind of pod in turn."""
    report = Report(name="Spread and affinity")
    for count in NODES:
        cluster = cluster_of(count)
        for kind in KINDS:
            placing = Placing(cluster, kind)
            placing.place(WARM_UP)
            per_s = placing.place(PODS)
            least = PER_S_MIN.get(count)
            report.rows.append(
                Row(
                    what=f"pods {kind}, {count:,} nodes",
                    figure=f"{per_s:,.0f}/s CPU",
                    target=f">= {least:,}/s" if least else "",
                    met=per_s >= least if least else None,
                )
            )
            if profile and count == NODES[0]:
                report.profile += f"\n{kind}\n" + profiled(lambda placing=placing: placing.place(PODS))  # type: ignore[misc]
    return report
