"""
The integration of AppWrapper (workload.codeflare.dev/v1beta2; Kueue's pkg/controller/jobs/appwrapper).

An AppWrapper contains other objects, its components. Where their pod templates are it declares by paths, or it follows
from the component's kind (the operator's InferPodSets). The templates are never changed: an admission is written beside
them, and the operator merges it when it creates the components.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from headgate.core.api.job_kinds import APP_WRAPPER
from headgate.core.api.names import JOB_COMPLETION_INDEX
from headgate.core.jobs.integration import Json, PodSetState
from headgate.core.jobs.job_set import JOB_INDEX_LABEL, pods_of_one
from headgate.core.jobs.kubeflow_jobs import REPLICA_INDEX_LABEL
from headgate.core.jobs.suspendable import (
    JobStatus,
    PodSetSource,
    Suspendable,
    at,
    condition_at,
    items_at,
    number_at,
)
from headgate.core.kubernetes.numbers import decimal

_TAS: Final = "workload.codeflare.dev.appwrapper/tas-"
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_PATH: Final = re.compile(r"template(\.[^.\[\]]+|\[\d+\])*")


class AppWrapper(Suspendable):
    """The integration of AppWrapper. See the module docstring."""

    kind = APP_WRAPPER

    def sources(self, obj: Json) -> list[PodSetSource]:
        """See `Suspendable`."""
        name = str(at(obj, "metadata", "name") or "").lower()
        return [_source(f"{name}-{number}", each) for number, each in enumerate(_templates(obj))]

    def status(self, obj: Json, sources: Sequence[PodSetSource]) -> JobStatus:
        """See `Suspendable`. One that has failed ends when what it has created is deleted."""

        def is_true(condition: str) -> bool:
            return condition_at(obj, condition, "status", "conditions") is not None

        phase = at(obj, "status", "phase")
        has_failed = phase == "Failed" and not is_true("ResourcesDeployed")
        return JobStatus(
            active=is_true("QuotaReserved"),
            pods_ready=is_true("PodsReady"),
            succeeded=phase == "Succeeded",
            failed=has_failed,
            message="AppWrapper failed" if has_failed else "AppWrapper finished successfully",
        )

    def edit(self, obj: Json, pod_sets: Sequence[PodSetState]) -> None:
        """See `Suspendable`. What the template does not have goes beside it."""
        infos: dict[int, list[Json]] = {}
        for (component, _, template, _), (_, wanted) in zip(_templates(obj), self.paired(obj, pod_sets), strict=True):
            infos.setdefault(component, []).append(_added(template, wanted))
        for component, added in infos.items():
            obj["spec"]["components"][component]["podSetInfos"] = added

    def undo(self, obj: Json, pod_sets: Sequence[PodSetState]) -> None:
        """See `Suspendable`."""
        for component in items_at(obj, "spec", "components"):
            component.pop("podSetInfos", None)

    def is_edited(self, sources: Sequence[PodSetSource], obj: Json) -> bool:
        """See `Suspendable`."""
        return any(component.get("podSetInfos") for component in items_at(obj, "spec", "components"))


_Template = tuple[int, Json, Json, str]
"""The number of a component, one of its pod sets, the template of that, and the template's path in the AppWrapper."""


def _templates(obj: Json) -> Iterator[_Template]:
    """The templates of an AppWrapper, in the order of its pod sets. A path that leads to none is left out."""
    components = items_at(obj, "spec", "components")
    statuses = items_at(obj, "status", "componentStatus")
    for number, component in enumerate(components):
        if len(statuses) == len(components):
            # What the operator has found when it first saw the AppWrapper.
            pod_sets = items_at(statuses[number], "podSets")
        else:
            pod_sets = items_at(component, "podSets") or list(_inferred(component.get("template") or {}))
        for pod_set in pod_sets:
            path = str(pod_set.get("path", ""))
            template = _at_path(component, path)
            if isinstance(template, dict) and isinstance(template.get("spec"), dict):
                yield number, pod_set, template, f"spec.components[{number}].{path}"


def _source(name: str, found: _Template) -> PodSetSource:
    _, pod_set, template, path = found
    annotations = pod_set.get("annotations") or {}
    return PodSetSource(
        name=name,
        count=number_at(pod_set, 1, "replicas"),
        # It may be a whole Pod.
        template={"metadata": _labelled(template.get("metadata") or {}), "spec": template["spec"]},
        at=path,
        pod_index_label=annotations.get(_TAS + "pod-index-label"),
        sub_group_index_label=annotations.get(_TAS + "sub-group-index-label"),
        sub_group_count=decimal(str(annotations.get(_TAS + "sub-group-count", "")), bits=32),
    )


def _labelled(metadata: Json) -> Json:
    return {field: metadata[field] for field in ("labels", "annotations") if metadata.get(field)}


def _added(template: Json, wanted: PodSetState) -> Json:
    """What an admission adds to a template."""
    metadata, spec, directives = template.get("metadata") or {}, template["spec"], wanted.directives
    tolerations = [msgspec.to_builtins(each) for each in directives.tolerations]
    gates = [{"name": name} for name in directives.scheduling_gates]
    added = {
        "labels": _missing(metadata.get("labels"), directives.labels),
        "annotations": _missing(metadata.get("annotations"), directives.annotations),
        "nodeSelector": _missing(spec.get("nodeSelector"), directives.node_selector),
        "tolerations": [each for each in tolerations if each not in (spec.get("tolerations") or ())],
        "schedulingGates": [each for each in gates if each not in (spec.get("schedulingGates") or ())],
    }
    return {field: value for field, value in added.items() if value}


def _missing(have: Json | None, want: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in want.items() if key not in (have or {})}


def _at_path(component: Json, path: str) -> Any:
    """What is at a path such as `template.spec.replicatedJobs[0].template`; None where nothing is."""
    if _PATH.fullmatch(path) is None:
        return None
    steps = [name or int(number) for name, number in _STEP.findall(path)]
    return at(component.get("template"), *steps)


# --- where known kinds have their templates --------------------------------------------------------------------------

_REPLICATED: Final = {("apps/v1", "Deployment"), ("apps/v1", "StatefulSet")}
_RAY: Final = {("ray.io/v1", "RayCluster"): "spec", ("ray.io/v1", "RayJob"): "spec.rayClusterSpec"}


def _inferred(component: Json) -> Iterator[Json]:
    """The pod sets of a component that declares none."""
    kind = str(component.get("apiVersion", "")), str(component.get("kind", ""))
    if kind == ("v1", "Pod"):
        yield {"path": "template"}
    elif kind in _REPLICATED:
        yield {"path": "template.spec.template", "replicas": number_at(component, 1, "spec", "replicas")}
    elif kind == ("batch/v1", "Job"):
        labels = {_TAS + "pod-index-label": JOB_COMPLETION_INDEX}
        yield {"path": "template.spec.template", "replicas": pods_of_one(component), "annotations": labels}
    elif kind == ("jobset.x-k8s.io/v1alpha2", "JobSet"):
        yield from _of_job_set(component)
    elif kind == ("kubeflow.org/v1", "PyTorchJob"):
        for replica_type in ("Master", "Worker"):
            replicas = at(component, "spec", "pytorchReplicaSpecs", replica_type)
            path = f"template.spec.pytorchReplicaSpecs.{replica_type}.template"
            labels = {_TAS + "pod-index-label": REPLICA_INDEX_LABEL}
            yield {"path": path, "replicas": number_at(replicas, 1, "replicas"), "annotations": labels}
    elif kind in _RAY:
        yield {"path": f"template.{_RAY[kind]}.headGroupSpec.template"}
        groups = items_at(component, *_RAY[kind].split("."), "workerGroupSpecs")
        for number, group in enumerate(groups):
            path = f"template.{_RAY[kind]}.workerGroupSpecs[{number}].template"
            yield {"path": path, "replicas": number_at(group, 1, "replicas")}


def _of_job_set(component: Json) -> Iterator[Json]:
    for number, each in enumerate(items_at(component, "spec", "replicatedJobs")):
        replicas = number_at(each, 1, "replicas")
        yield {
            "path": f"template.spec.replicatedJobs[{number}].template.spec.template",
            "replicas": replicas * pods_of_one(each.get("template") or {}),
            "annotations": {
                _TAS + "pod-index-label": JOB_COMPLETION_INDEX,
                _TAS + "sub-group-index-label": JOB_INDEX_LABEL,
                _TAS + "sub-group-count": str(replicas),
            },
        }
