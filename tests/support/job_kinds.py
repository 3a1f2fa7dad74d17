"""What the tests of every kind of jobs share: objects of it as JSON, admitted pod sets, merge patches."""

import copy
from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.core.jobs.integration import Directives, Integration, LeftBehind, Patch, PodSetState
from headgate.events.objects import Job, PodSet, Toleration

Obj = dict[str, Any]

FLAVOR = {"tier": "spot"}
TOLERATION = Toleration(key="spot", operator="Exists")
MARKS = {"kueue.x-k8s.io/workload": "w"}


def pod_template(cpu: str = "1", **spec: Any) -> Obj:
    """A pod template with one container, a label and an annotation of its author."""
    return {
        "metadata": {"labels": {"mine": "1"}, "annotations": {"note": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}], **spec},
    }


def job_object(kind: str, spec: Obj, status: Obj | None = None, **metadata: Any) -> Obj:
    """An object that names a queue, as the API server has it."""
    labels = {"kueue.x-k8s.io/queue-name": "main", **metadata.pop("labels", {})}
    meta = {"name": "train", "namespace": "team-a", "uid": "j", "resourceVersion": "7", "labels": labels, **metadata}
    return {"kind": kind, "metadata": meta, "spec": spec, "status": status or {}}


def read(integration: Integration, obj: Obj) -> Job:
    """What the log has of an object that names a queue."""
    job = integration.read(msgspec.json.encode(obj))[1]
    assert job is not None
    return job


def given(pod_sets: tuple[PodSet, ...]) -> list[PodSetState]:
    """The pod sets of a Workload as the author of its job gave them."""
    left = LeftBehind((), (), ())
    return [
        PodSetState(
            each.name,
            each.count,
            Directives(
                labels=dict(each.template.metadata.labels),
                annotations=dict(each.template.metadata.annotations),
                node_selector=dict(each.template.spec.node_selector),
                tolerations=list(each.template.spec.tolerations),
                scheduling_gates=[gate.name for gate in each.template.spec.scheduling_gates],
            ),
            left,
        )
        for each in pod_sets
    ]


def admitted(pod_sets: tuple[PodSet, ...]) -> list[PodSetState]:
    """The same, on the flavor, and marked."""
    states = given(pod_sets)
    for each in states:
        each.directives.node_selector.update(FLAVOR)
        each.directives.tolerations.append(TOLERATION)
        each.directives.annotations.update(MARKS)
        each.directives.labels["kueue.x-k8s.io/podset"] = each.name
    return states


def merged(obj: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396) applied."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(obj) if isinstance(obj, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def applied(obj: Obj, *patches: Patch) -> Obj:
    """An object after merge patches."""
    for patch in patches:
        assert patch.form == "merge"
        obj = merged(obj, patch.body)
    return copy.deepcopy(obj)


def started(integration: Integration, obj: Obj) -> Obj:
    """An object that was admitted to the flavor."""
    job = read(integration, obj)
    return applied(obj, *integration.start(job, admitted(job.pod_sets), msgspec.json.encode(obj)))


def stopped(integration: Integration, running: Obj, before: Obj) -> Obj:
    """A running object that was stopped, and restored to the templates that it had before."""
    job = read(integration, running)
    suspended = applied(running, integration.stop(job))
    states = given(read(integration, before).pod_sets)
    return applied(suspended, integration.restore(job, states, msgspec.json.encode(suspended)))
