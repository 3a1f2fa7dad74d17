"""Flavor assignment in a few words: the assigner of a cell's ClusterQueue, and what it answers."""

from typing import Any

from tests.support.cells import Cell, cluster_queue

from headgate.core.flavors import Assigner, Assignment, PodSetResult
from headgate.core.flavors.catalog import Catalog
from headgate.core.flavors.placing import Placer
from headgate.core.kubernetes.effective_requests import pod_requests
from headgate.core.quota.tree import Ledger
from headgate.core.state.tables import FlavorResource, Workload
from headgate.core.workload.pod_requests import PodSetRequests
from headgate.events.configuration import Configuration
from headgate.events.ids import Uid, UnixMs, WorkloadKey
from headgate.events.objects import PodSet, WorkloadSpec

Held = dict[str, dict[FlavorResource, int]]
"""What is used: ClusterQueue -> flavor-resource -> amount."""


def assigner(cell: Cell, *pod_sets: PodSet, held: Held | None = None, queue: str = "cq", **more: Any) -> Assigner:
    """The assigner of pod sets in a ClusterQueue; more of its arguments by name."""
    catalog = Catalog(cell.state)
    view = catalog.queue(queue)
    assert view is not None
    requests = [
        PodSetRequests(each.name, each.count, each.template.spec, pod_requests(each.template.spec)) for each in pod_sets
    ]
    configuration = more.pop("configuration", Configuration())
    topologies = catalog.topologies()
    if topologies is not None:
        spec = WorkloadSpec(queue_name=queue, pod_sets=pod_sets)
        workload = Workload(key=WorkloadKey("team-a/w"), uid=Uid("u"), created_ms=UnixMs(0), spec=spec)
        more["placer"] = Placer(topologies, view, workload, requests)
    ledger = Ledger(catalog.forest.tree_of(queue), held or {})
    return Assigner(view, ledger, pod_sets, requests, configuration=configuration, **more)


def assign(cell: Cell, *pod_sets: PodSet, held: Held | None = None, **more: Any) -> Assignment:
    """Its answer with all pods."""
    return assigner(cell, *pod_sets, held=held, **more).assign()


def flavors(result: PodSetResult) -> dict[str, str]:
    """Resource -> flavor."""
    return {resource: choice.flavor for resource, choice in result.flavors.items()}


def two_flavors(**spec: Any) -> Cell:
    """Flavors one and two with 4 gpu each, in a cohort that lends 4 more of each."""
    quota = {"one": {"gpu": 4}, "two": {"gpu": 4}}
    return Cell(cluster_queue("cq", quota, cohort_name="co", **spec), cluster_queue("other", quota, cohort_name="co"))
