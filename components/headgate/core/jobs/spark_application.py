"""
The integration of SparkApplication (sparkoperator.k8s.io/v1beta2; Kueue's pkg/controller/jobs/sparkapplication).

A SparkApplication has two pod sets: its driver, and its executors. Each role has fields of its own for what Spark's
operator makes of its pod, and a pod template beside them, of which the metadata and the scheduling gates count. An
admission is written into the fields of the roles. A node selector for both roles excludes those of the roles, so it
moves into them; an annotation keeps it, so that it can be restored.

The operator has ended a suspended application when it says so: until then its pods may run, and it is active.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from headgate.core.api.job_kinds import SPARK_APPLICATION
from headgate.core.api.names import KUEUE, WORKLOAD_ANNOTATION
from headgate.core.api.watched_objects import WrongFieldError
from headgate.core.jobs.integration import Json, PodSetState
from headgate.core.jobs.pod_templates import set_field
from headgate.core.jobs.suspendable import JobStatus, PodSetSource, Suspendable, at, items_at, number_at

SHARED_SELECTOR: Final = "headgate.dev/spark-node-selector"
"""The annotation with the node selector of both roles, as JSON, while they have one each."""

_ROLES: Final = {"driver": "spark-kubernetes-driver", "executor": "spark-kubernetes-executor"}
"""The roles in the order of their pod sets, each with the name of its Spark container."""
_MAY_RUN: Final = frozenset(
    {"SUBMITTED", "RUNNING", "INVALIDATING", "SUCCEEDING", "FAILING", "SUSPENDING", "UNKNOWN"},
)
_UNITS: Final = {"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti", "p": "Pi"}
_LOCAL_VOLUME: Final = "spark-local-dir-"


class SparkApplication(Suspendable):
    """The integration of SparkApplication. See the module docstring."""

    kind = SPARK_APPLICATION

    def sources(self, obj: Json) -> list[PodSetSource]:
        """See `Suspendable`. Without a number of executors there is none at first, as in Kueue."""
        return [
            PodSetSource(
                name=role,
                count=1 if role == "driver" else number_at(obj, 0, "spec", "executor", "instances"),
                template=_role(obj, role),
                at=f"spec.{role}",
                seen=_pod(obj, role),
            )
            for role in _ROLES
        ]

    def status(self, obj: Json, sources: Sequence[PodSetSource]) -> JobStatus:
        """See `Suspendable`. The driver runs before its executors do: as many as wanted have to be there, too."""
        state = at(obj, "status", "applicationState", "state") or ""
        executors = (at(obj, "status", "executorState") or {}).values()
        there = sum(each in ("RUNNING", "COMPLETED") for each in executors)
        return JobStatus(
            active=state in _MAY_RUN,
            pods_ready=state == "RUNNING" and there >= sources[1].count,
            succeeded=state == "COMPLETED",
            failed=state in ("FAILED", "SUBMISSION_FAILED"),
            message=str(at(obj, "status", "applicationState", "errorMessage") or ""),
        )

    def edit(self, obj: Json, pod_sets: Sequence[PodSetState]) -> None:
        """See `Suspendable`."""
        shared = at(obj, "spec", "nodeSelector")
        for source, wanted in self.paired(obj, pod_sets):
            _put(source.template, source.name, wanted)
        if shared:
            annotations = obj["metadata"].get("annotations") or {}
            obj["metadata"]["annotations"] = {**annotations, SHARED_SELECTOR: msgspec.json.encode(shared).decode()}
            del obj["spec"]["nodeSelector"]

    def undo(self, obj: Json, pod_sets: Sequence[PodSetState]) -> None:
        """See `Suspendable`."""
        for source, wanted in self.paired(obj, pod_sets):
            _put(source.template, source.name, wanted)
        annotations = at(obj, "metadata", "annotations") or {}
        kept = annotations.pop(SHARED_SELECTOR, None)
        if kept is not None:
            set_field(obj["metadata"], "annotations", annotations)
            for role in _ROLES:
                _role(obj, role).pop("nodeSelector", None)
            obj["spec"]["nodeSelector"] = msgspec.json.decode(kept)

    def is_edited(self, sources: Sequence[PodSetSource], obj: Json) -> bool:
        """See `Suspendable`."""
        return any(WORKLOAD_ANNOTATION in (each.template.get("annotations") or {}) for each in sources)


def _role(obj: Json, role: str) -> Json:
    """The fields of a role, which may be changed. Raises WrongFieldError."""
    found: Any = obj.setdefault("spec", {}).setdefault(role, {})
    if not isinstance(found, dict):
        raise WrongFieldError(f"spec.{role}", "it is no object")
    return found


# --- the pod of a role (what the operator makes of its fields, as far as scheduling depends on it) --------------------


def _pod(obj: Json, role: str) -> Json:
    """The pod template of a role. Of its own template the containers do not count, as in Kueue."""
    fields = _role(obj, role)
    name = _ROLES[role]
    container: Json = {"name": name, **_mounted(fields, obj), "resources": _resources(fields)}
    spec: Json = {"containers": _joined([container], items_at(fields, "sidecars"))}
    given = {
        "initContainers": _joined([], items_at(fields, "initContainers")),
        "volumes": _volumes(fields, obj),
        "priorityClassName": fields.get("priorityClassName"),
        "nodeSelector": fields.get("nodeSelector") or at(obj, "spec", "nodeSelector"),
        "affinity": fields.get("affinity"),
        "tolerations": fields.get("tolerations"),
        "schedulingGates": at(fields, "template", "spec", "schedulingGates"),
    }
    metadata = {field: _both(fields, field) for field in ("labels", "annotations")}
    return {
        "metadata": {field: value for field, value in metadata.items() if value},
        "spec": spec | {field: value for field, value in given.items() if value},
    }


def _both(fields: Json, field: str) -> Json:
    """The labels or annotations of a role's template, and those of the role, which come before."""
    return {**(at(fields, "template", "metadata", field) or {}), **(fields.get(field) or {})}


def _joined(first: list[Json], more: list[Json]) -> list[Json]:
    """Containers without those that are there already, by name and image."""
    made = list(first)
    for each in more:
        if not any((each.get("name"), each.get("image")) == (known.get("name"), known.get("image")) for known in made):
            made.append(each)
    return made


def _resources(fields: Json) -> Json:
    """The resources of a role's container; an operator that adds overhead to them tells nobody."""
    requests: Json = {}
    limits: Json = {}
    for into, resource, value in (
        (requests, "cpu", fields.get("coreRequest")),
        (requests, "memory", _memory(fields.get("memory"))),
        (limits, "cpu", fields.get("coreLimit")),
        (limits, "memory", _memory(fields.get("memoryLimit"))),
    ):
        if value is not None:
            into[resource] = value
    gpu = fields.get("gpu") or {}
    if gpu.get("name") and number_at(gpu, 0, "quantity") > 0:
        limits[gpu["name"]] = gpu["quantity"]
    return {field: value for field, value in (("requests", requests), ("limits", limits)) if value}


def _memory(text: str | None) -> str | None:
    """Memory as Java writes it (512m, 2gb) as a quantity; one that has no such unit is one already."""
    if text is None:
        return None
    number = text.lower().removesuffix("b")
    return number[:-1] + _UNITS[number[-1]] if number[-1:] in _UNITS else text


def _mounts(fields: Json, obj: Json) -> list[Json]:
    """The mounts of volumes that the application has; local directories are Spark's own."""
    volumes = {each.get("name") for each in items_at(obj, "spec", "volumes")}
    return [
        each
        for each in items_at(fields, "volumeMounts")
        if each.get("name") in volumes and not str(each.get("name")).startswith(_LOCAL_VOLUME)
    ]


def _mounted(fields: Json, obj: Json) -> Json:
    mounts = _mounts(fields, obj)
    return {"volumeMounts": mounts} if mounts else {}


def _volumes(fields: Json, obj: Json) -> list[Json]:
    used = {each["name"] for each in _mounts(fields, obj)}
    return [each for each in items_at(obj, "spec", "volumes") if each.get("name") in used]


# --- what an admission changes ---------------------------------------------------------------------------------------


def _put(fields: Json, role: str, wanted: PodSetState) -> None:
    """Give a role, in place, the desired state of its pod set. What its template has is not repeated beside it."""
    directives, left = wanted.directives, wanted.left_behind
    for field, may_have, want in (
        ("labels", left.labels, directives.labels),
        ("annotations", left.annotations, directives.annotations),
    ):
        have = fields.get(field) or {}
        removed = {*may_have, *(key for key in have if key.startswith(KUEUE))}
        kept = {key: value for key, value in have.items() if key not in removed}
        set_field(fields, field, kept | _lacking(at(fields, "template", "metadata", field) or {}, have, want))
    set_field(fields, "nodeSelector", dict(directives.node_selector))
    set_field(fields, "tolerations", [msgspec.to_builtins(each) for each in directives.tolerations])
    _set_gates(fields, role, [{"name": name} for name in directives.scheduling_gates])


def _lacking(of_template: Mapping[str, str], have: Mapping[str, str], want: Mapping[str, str]) -> dict[str, str]:
    """What is wanted and not in the template, but for what is in both places."""
    return {key: value for key, value in want.items() if of_template.get(key) != value or have.get(key) == value}


def _set_gates(fields: Json, role: str, gates: list[Json]) -> None:
    """Gates are in the template; one that has nothing else is made for them, and goes with them."""
    empty = {"spec": {"containers": [{"name": _ROLES[role]}]}}
    if gates and not fields.get("template"):
        fields["template"] = empty
    if fields.get("template"):
        spec = fields["template"].setdefault("spec", {})
        set_field(spec, "schedulingGates", gates)
        if not gates and fields["template"] == empty:
            del fields["template"]
