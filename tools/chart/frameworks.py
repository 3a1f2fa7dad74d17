"""
The rights about kinds of jobs, which a cell needs for the frameworks that it enables only.

A rule of a ClusterRole whose resources are kinds of jobs is guarded by the chart's value `frameworks`; without a list
every kind keeps its rights, as in the Kustomize base.
"""

from typing import Any, Final

from headgate.core.api.job_kinds import JOB_KINDS, OF_TRAIN_JOBS, TRAIN_JOB
from tools.chart.manifests import Object
from tools.chart.templating import If, Items

_OF_APPS: Final = {
    ("apps", "deployments"): ("deployment",),
    ("apps", "replicasets"): ("deployment",),
    ("apps", "statefulsets"): ("statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"),
}
_RUNTIMES: Final = {(TRAIN_JOB.group, plural): (TRAIN_JOB.framework,) for plural in OF_TRAIN_JOBS}


def frameworks_of() -> dict[tuple[str, str], tuple[str, ...]]:
    """The frameworks that need rights about a resource, by its group and plural; none for what every cell needs."""
    named = {(each.group, each.plural): (each.framework,) for each in JOB_KINDS if each.optional and not each.of_pods}
    return {**named, **_OF_APPS, **_RUNTIMES}


def guarded_rules(document: Object) -> Object:
    """A ClusterRole with the rights about kinds of jobs guarded; any other object as it is."""
    if document["kind"] != "ClusterRole":
        return document
    return {**document, "rules": [_guarded(each) for each in document["rules"]]}


def _guarded(rule: Object) -> Any:
    known = frameworks_of()
    needs = {
        resource: {framework for group in rule["apiGroups"] for framework in known.get((group, _plain(resource)), ())}
        for resource in rule.get("resources", ())
    }
    if not any(needs.values()) or not all(needs.values()):
        return rule
    every = sorted(set().union(*needs.values()))
    if len(needs) == 1:
        return Items(_runs(*every), [rule])
    resources = [Items(_runs(*sorted(needs[each])), [each]) for each in rule["resources"]]
    return Items(_runs(*every), [{**rule, "resources": resources}])


def _plain(resource: str) -> str:
    return resource.partition("/")[0]


def _runs(*frameworks: str) -> If:
    return If(f'(include "headgate.runs" (list $ {" ".join(f"{chr(34)}{each}{chr(34)}" for each in frameworks)}))')
