"""
Pods of manifests, as an API server would store them, for questions about pods that are not in the cluster.

`stored_pod` gives the pod of a Pod, or one of the template of a kind that runs pods. What admission fills in follows
from the state: the priority of its class, overhead of its runtime class, the namespace's default limits. Requests that
are left out follow the limits, `matchLabelKeys` become part of the selectors.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from headgate.core.plan.reading import PlanInputError
from headgate.core.state.tables import State

Json = dict[str, Any]

DEFAULT_SCHEDULER: Final = "default-scheduler"
_SYSTEM_CLASSES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
_TEMPLATES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("apps", "Deployment"): ("spec", "template"),
    ("apps", "ReplicaSet"): ("spec", "template"),
    ("apps", "StatefulSet"): ("spec", "template"),
    ("", "ReplicationController"): ("spec", "template"),
    ("batch", "Job"): ("spec", "template"),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
}
"""Where the pod template of a kind is."""


def stored_pod(state: State, group: str, manifest: Mapping[str, Any], namespace: str) -> Json | None:
    """
    The pod of a Pod's manifest, or the next one of a template, in the namespace that it names or else in this one.

    None for a kind without pods. Raises PlanInputError, which names object, field and remedy.
    """
    kind = str(manifest["kind"])
    if (group, kind) == ("", "Pod"):
        return _Completion(state, manifest, manifest, namespace, "").pod()
    path = _TEMPLATES.get((group, kind))
    if path is None:
        return None
    template: Any = manifest
    for field in path:
        template = template.get(field) if isinstance(template, Mapping) else None
    if not isinstance(template, Mapping):
        shown = f"{kind} {manifest['metadata']['name']}"
        raise PlanInputError(f"{shown}, field {'.'.join(path)}: it is missing: give it the pods' metadata and spec")
    return _Completion(state, manifest, template, namespace, f"{'.'.join(path)}.").pod()


class _Completion:
    """One pod that is completed. `prefix` is where the pod is in the manifest, for messages."""

    def __init__(
        self, state: State, manifest: Mapping[str, Any], pod: Mapping[str, Any], namespace: str, prefix: str
    ) -> None:
        self._state = state
        self._prefix = prefix
        own: Mapping[str, Any] = manifest["metadata"]
        self._namespace = str(own.get("namespace") or namespace)
        self._name = str(own["name"])
        self._shown = f"{manifest['kind']} {self._namespace}/{self._name}"
        self._metadata = self._mapping(pod.get("metadata"), "metadata")
        self._spec = dict(self._mapping(pod.get("spec"), "spec"))

    def _mistake(self, field: str, why: str) -> PlanInputError:
        return PlanInputError(f"{self._shown}, field {self._prefix}{field}: {why}")

    def _mapping(self, value: Any, field: str) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self._mistake(field, f"an object is expected, not {type(value).__name__}: correct it")
        return value

    def _list(self, value: Any, field: str) -> list[Mapping[str, Any]]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._mistake(field, f"a list is expected, not {type(value).__name__}: correct it")
        return [self._mapping(each, f"{field}[{index}]") for index, each in enumerate(value)]

    def pod(self) -> Json:
        """The manifest."""
        spec = self._spec
        if not self._list(spec.get("containers"), "spec.containers"):
            raise self._mistake("spec.containers", "a pod needs at least one container: add one")
        if spec.get("nodeName"):
            raise self._mistake("spec.nodeName", f"the pod has node {spec['nodeName']} already: remove the field")
        spec["schedulerName"] = spec.get("schedulerName") or DEFAULT_SCHEDULER
        for group in ("containers", "initContainers"):
            found = self._list(spec.get(group), f"spec.{group}")
            spec[group] = [self._container(each, f"spec.{group}[{index}]") for index, each in enumerate(found)]
        self._set_priority()
        self._set_overhead()
        labels = self._mapping(self._metadata.get("labels"), "metadata.labels")
        spec["affinity"] = self._affinity(labels)
        metadata = {
            **self._metadata,
            "name": self._name,
            "namespace": self._namespace,
            "labels": dict(labels),
            "uid": f"supposed-{self._namespace}-{self._name}",
        }
        return {"metadata": metadata, "spec": spec}

    # --- containers ------------------------------------------------------------------------------------------------

    def _container(self, container: Mapping[str, Any], field: str) -> Json:
        resources = self._mapping(container.get("resources"), f"{field}.resources")
        limits = dict(self._mapping(resources.get("limits"), f"{field}.resources.limits"))
        requests = dict(self._mapping(resources.get("requests"), f"{field}.resources.requests"))
        requests = {**limits, **requests}
        for item in self._state.limit_ranges.get(self._namespace, ()):
            if item.type == "Container":
                limits = {**item.default, **limits}
                requests = {**item.default_request, **requests}
        ports = self._list(container.get("ports"), f"{field}.ports")
        if self._spec.get("hostNetwork"):
            ports = [{**each, "hostPort": each.get("hostPort") or each.get("containerPort", 0)} for each in ports]
        return {**container, "ports": ports, "resources": {**resources, "limits": limits, "requests": requests}}

    # --- classes ---------------------------------------------------------------------------------------------------

    def _set_priority(self) -> None:
        classes = self._state.priority_classes
        name = self._spec.get("priorityClassName")
        if self._spec.get("priority") is not None:
            return
        if not name:
            defaults = [record.value for record in classes.values() if record.global_default]
            self._spec["priority"] = min(defaults, default=0)
        elif name in classes or name in _SYSTEM_CLASSES:
            self._spec["priority"] = classes[name].value if name in classes else _SYSTEM_CLASSES[name]
        else:
            known = ", ".join(sorted(classes)) or "none"
            raise self._mistake(
                "spec.priorityClassName", f"there is no class {name!r}: name one that is there ({known})"
            )

    def _set_overhead(self) -> None:
        name = self._spec.get("runtimeClassName")
        if name and name not in self._state.runtime_classes:
            known = ", ".join(sorted(self._state.runtime_classes)) or "none"
            raise self._mistake(
                "spec.runtimeClassName", f"there is no class {name!r}: name one that is there ({known})"
            )
        if name and self._state.runtime_classes[name]:
            self._spec["overhead"] = dict(self._state.runtime_classes[name])

    # --- affinity --------------------------------------------------------------------------------------------------

    def _affinity(self, labels: Mapping[str, Any]) -> Json:
        """Pod affinity with the keys of labels merged into its selectors."""
        affinity = dict(self._mapping(self._spec.get("affinity"), "spec.affinity"))
        for kind in ("podAffinity", "podAntiAffinity"):
            path = f"spec.affinity.{kind}"
            terms = dict(self._mapping(affinity.get(kind), path))
            for when, of_term in self._term_lists(terms, path):
                terms[when] = [self._with_keys(each, of_term, labels, path) for each in terms[when]]
            if terms:
                affinity[kind] = terms
        return affinity

    def _term_lists(self, terms: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
        for when, of_term in (
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            ("preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm"),
        ):
            if self._list(terms.get(when), f"{path}.{when}"):
                yield when, of_term

    def _with_keys(self, entry: Mapping[str, Any], of_term: str, labels: Mapping[str, Any], path: str) -> Json:
        if of_term:
            term = self._mapping(entry.get(of_term), f"{path}.{of_term}")
            return {**entry, of_term: self._with_keys(term, "", labels, path)}
        selector = dict(self._mapping(entry.get("labelSelector"), f"{path}.labelSelector"))
        added = [
            {"key": key, "operator": operator, "values": [labels[key]]}
            for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
            for key in entry.get(keys) or ()
            if key in labels
        ]
        if not added:
            return dict(entry)
        present = selector.get("matchExpressions") or []
        return {**entry, "labelSelector": {**selector, "matchExpressions": [*present, *added]}}
