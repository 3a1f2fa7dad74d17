"""
What the API server fills in and refuses for Jobs.

Defaults, the generated selector with the labels that match it, and what an update may change: counts always, where the
pods may go and what they ask for only while the Job is suspended and none of its pods runs. The status of a Job moves
one way; its rules are here too, because other controllers than the Job controller write it (`managedBy`). Sources:
k8s.io/kubernetes/pkg/registry/batch/job/strategy.go, pkg/apis/batch/v1/defaults.go, pkg/apis/batch/validation.
"""
# Over 400 lines: one function for each group of rules of the API server on Jobs.

from typing import Any, Final

from headgate.testing.cluster.api.selectors import label_requirements, matches_labels
from headgate.testing.cluster.errors import FieldError, invalid_value, not_supported, required, too_long
from headgate.testing.cluster.storage.metadata import is_subdomain, label_errors, name_errors, qualified_name_errors
from headgate.testing.cluster.validation.rules_podspec import pod_spec_errors, selector_errors, with_container_defaults

JsonObject = dict[str, Any]

UID_LABEL: Final = "batch.kubernetes.io/controller-uid"
NAME_LABEL: Final = "batch.kubernetes.io/job-name"
_LEGACY_UID_LABEL: Final = "controller-uid"
_LEGACY_NAME_LABEL: Final = "job-name"
_INDEXED_MAX: Final = 100_000
_HIGH_COMPLETIONS_MAX: Final = 10_000
_MANAGED_BY_MAX: Final = 63
_IMMUTABLE: Final = "field is immutable"
_NOT_NEGATIVE: Final = "must be greater than or equal to 0"


# --- defaults


def job_defaults(obj: JsonObject) -> JsonObject:
    """The Job with the defaults that no schema can say, at its creation and after each update."""
    spec = dict(obj.get("spec") or {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if "backoffLimitPerIndex" not in spec else 2**31 - 1)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    template = spec.get("template") or {}
    filled = with_container_defaults(template.get("spec") or {})
    if filled is not template.get("spec"):
        template = {**template, "spec": filled}
    spec["template"] = template
    metadata = obj["metadata"]
    labels = (template.get("metadata") or {}).get("labels")
    if labels and not metadata.get("labels"):
        metadata = {**metadata, "labels": labels}
    return {**obj, "metadata": metadata, "spec": spec}


def job_on_create(obj: JsonObject) -> JsonObject:
    """A new Job with its defaults, and with the generated selector and the labels that match it."""
    obj = job_defaults(obj)
    spec, metadata = obj["spec"], obj["metadata"]
    if not spec.get("manualSelector"):
        uid, name = metadata["uid"], metadata["name"]
        selector = spec.get("selector") or {}
        spec["selector"] = {**selector, "matchLabels": {UID_LABEL: uid, **(selector.get("matchLabels") or {})}}
        template = spec["template"]
        template_meta = template.get("metadata") or {}
        labels = {
            UID_LABEL: uid,
            NAME_LABEL: name,
            _LEGACY_UID_LABEL: uid,
            _LEGACY_NAME_LABEL: name,
            **(template_meta.get("labels") or {}),
        }
        spec["template"] = {**template, "metadata": {**template_meta, "labels": labels}}
        # A name that makes no label is refused for that reason alone.
        if template_meta.get("labels") or not label_errors({"name": name}, "metadata.name"):
            given = metadata.get("labels")
            labels = given if given and given is not template_meta.get("labels") else labels
            obj = {**obj, "metadata": {**metadata, "labels": labels}}
    return {**obj, "status": {}}


# --- what a Job may say


def job_errors(obj: JsonObject) -> list[FieldError]:
    """What is wrong with a Job, new or changed."""
    spec, name = obj["spec"], obj["metadata"]["name"]
    found = _generated_errors(obj) + _whole_spec_errors(spec)
    completions = spec.get("completions") or 0
    if spec.get("completionMode") == "Indexed" and completions > 0:
        hostname = f"{name}-{completions - 1}"
        if name_errors(hostname, label=True):
            text = f"will not able to create pod with invalid DNS label: {hostname}"
            found.append(invalid_value("metadata.name", name, text))
    return found


def _generated_errors(obj: JsonObject) -> list[FieldError]:
    spec = obj["spec"]
    if spec.get("manualSelector") or not spec.get("selector"):
        return []
    uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
    expected = {_LEGACY_UID_LABEL: uid, _LEGACY_NAME_LABEL: name, UID_LABEL: uid, NAME_LABEL: name}
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    found = [
        invalid_value(f"spec.template.metadata.labels[{key}]", dict(sorted(labels.items())), f"must be '{value}'")
        if key in labels
        else required(f"spec.template.metadata.labels[{key}]", f"must be '{value}'")
        for key, value in expected.items()
        if labels.get(key) != value
    ]
    # One that is not valid is refused for that, without further checks.
    if not selector_errors(spec["selector"], "spec.selector") and not _selects(spec["selector"], expected):
        found.append(invalid_value("spec.selector", _sorted(spec["selector"]), "`selector` not auto-generated"))
    return found


def _selects(selector: JsonObject, labels: JsonObject) -> bool:
    return matches_labels(label_requirements(selector), {"metadata": {"labels": labels}})


def _sorted(selector: JsonObject) -> JsonObject:
    return {**selector, "matchLabels": dict(sorted((selector.get("matchLabels") or {}).items()))}


def _whole_spec_errors(spec: JsonObject) -> list[FieldError]:
    found = _spec_errors(spec)
    selector = spec.get("selector")
    labels = (spec["template"].get("metadata") or {}).get("labels")
    problems = []
    if selector is None:
        found.append(required("spec.selector"))
    else:
        problems = selector_errors(selector, "spec.selector")
        found += problems
    if not problems and (selector is None or not _selects(selector, labels or {})):
        shown = dict(sorted(labels.items())) if labels else None
        text = "`selector` does not match template `labels`"
        found.append(invalid_value("spec.template.metadata.labels", shown, text))
    return found


def _spec_errors(spec: JsonObject) -> list[FieldError]:
    counts = (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    )
    found = [invalid_value(f"spec.{name}", spec[name], _NOT_NEGATIVE) for name in counts if spec.get(name, 0) < 0]
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        found.append(required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    found += _managed_by_errors(spec)
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in ("NonIndexed", "Indexed"):
        found.append(not_supported("spec.completionMode", mode, ("NonIndexed", "Indexed")))
    elif mode == "Indexed":
        found += _indexed_errors(spec)
    else:
        found += [
            invalid_value(f"spec.{name}", spec[name], "requires indexed completion mode")
            for name in ("backoffLimitPerIndex", "maxFailedIndexes")
            if name in spec
        ]
    if spec.get("podFailurePolicy") is not None:
        found += _failure_policy_errors(spec)
    if spec.get("successPolicy") is not None:
        found += _success_policy_errors(spec)
    found += _replacement_errors(spec)
    return found + _template_errors(spec["template"])


def _managed_by_errors(spec: JsonObject) -> list[FieldError]:
    manager = spec.get("managedBy")
    if manager is None:
        return []
    found = []
    domain, slash, path = manager.partition("/")
    if not manager:
        found.append(required("spec.managedBy"))
    elif not slash or not domain or not path:
        text = 'must be a domain-prefixed path (such as "acme.io/foo")'
        found.append(invalid_value("spec.managedBy", manager, text))
    elif not is_subdomain(domain):
        told = name_errors(domain, field="spec.managedBy")
        found += told
    if len(manager) > _MANAGED_BY_MAX:
        found.append(too_long("spec.managedBy", _MANAGED_BY_MAX))
    return found


def _indexed_errors(spec: JsonObject) -> list[FieldError]:
    found = []
    completions, most_failed = spec.get("completions"), spec.get("maxFailedIndexes")
    parallelism = spec.get("parallelism", 0)
    if completions is None:
        found.append(required("spec.completions", "when completion mode is Indexed"))
    if parallelism > _INDEXED_MAX:
        text = f"must be less than or equal to {_INDEXED_MAX} when completion mode is Indexed"
        found.append(invalid_value("spec.parallelism", parallelism, text))
    if completions is not None and most_failed is not None and most_failed > completions:
        found.append(invalid_value("spec.maxFailedIndexes", most_failed, "must be less than or equal to completions"))
    if most_failed is not None and most_failed > _INDEXED_MAX:
        text = f"must be less than or equal to {_INDEXED_MAX}"
        found.append(invalid_value("spec.maxFailedIndexes", most_failed, text))
    if (completions or 0) > _INDEXED_MAX and "backoffLimitPerIndex" in spec:
        if most_failed is None:
            text = f"must be specified when completions is above {_INDEXED_MAX}"
            found.append(required("spec.maxFailedIndexes", text))
        text = (
            f"must be less than or equal to {_HIGH_COMPLETIONS_MAX} when completions are above {_INDEXED_MAX} and "
            "used with backoff limit per index"
        )
        if parallelism > _HIGH_COMPLETIONS_MAX:
            found.append(invalid_value("spec.parallelism", parallelism, text))
        if (most_failed or 0) > _HIGH_COMPLETIONS_MAX:
            found.append(invalid_value("spec.maxFailedIndexes", most_failed, text))
    return found


def _replacement_errors(spec: JsonObject) -> list[FieldError]:
    policy = spec["podReplacementPolicy"]
    supported: tuple[str, ...] = ("Failed", "TerminatingOrFailed")
    if spec.get("podFailurePolicy") is not None:
        supported = ("Failed",)
    return [] if policy in supported else [not_supported("spec.podReplacementPolicy", policy, supported)]


def _failure_policy_errors(spec: JsonObject) -> list[FieldError]:
    template = spec["template"].get("spec") or {}
    field = "spec.podFailurePolicy"
    found = []
    if template.get("restartPolicy") != "Never":
        text = 'only "Never" is supported when podFailurePolicy is specified'
        found.append(
            FieldError(
                reason="FieldValueInvalid",
                field="spec.podFailurePolicy.template.spec.restartPolicy",
                message=f'Invalid value: "{template.get("restartPolicy", "")}": {text}',
            )
        )
    names = [c.get("name") for group in ("containers", "initContainers") for c in template.get(group) or ()]
    actions = ("Count", "FailIndex", "FailJob", "Ignore")
    for index, rule in enumerate(spec["podFailurePolicy"].get("rules") or ()):
        where = f"{field}.rules[{index}]"
        action = rule.get("action", "")
        if not action:
            found.append(required(f"{where}.action", f"valid values: {_listed(actions)}"))
        elif action not in actions:
            found.append(not_supported(f"{where}.action", action, actions))
        elif action == "FailIndex" and "backoffLimitPerIndex" not in spec:
            text = "requires the backoffLimitPerIndex to be set"
            found.append(invalid_value(f"{where}.action", action, text))
        found += _failure_rule_errors(rule, where, names)
    return found


def _listed(values: tuple[str, ...]) -> str:
    return "[" + " ".join(f'"{value}"' for value in values) + "]"


def _failure_rule_errors(rule: JsonObject, where: str, names: list[str]) -> list[FieldError]:
    codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    found: list[FieldError] = []
    if codes is not None:
        found += _exit_code_errors(codes, f"{where}.onExitCodes", names)
    for index, pattern in enumerate(patterns):
        place = f"{where}.onPodConditions[{index}]"
        found += qualified_name_errors(pattern.get("type", ""), f"{place}.type")
        if pattern.get("status", "True") not in ("False", "True", "Unknown"):
            found.append(not_supported(f"{place}.status", pattern["status"], ("False", "True", "Unknown")))
    if codes is not None and patterns:
        text = "specifying both OnExitCodes and OnPodConditions is not supported"
        found.append(FieldError(reason="FieldValueInvalid", field=where, message=f"Invalid value: {text}"))
    if codes is None and not patterns:
        text = "specifying one of OnExitCodes and OnPodConditions is required"
        found.append(FieldError(reason="FieldValueInvalid", field=where, message=f"Invalid value: {text}"))
    return found


def _exit_code_errors(codes: JsonObject, where: str, names: list[str]) -> list[FieldError]:
    found: list[FieldError] = []
    operator, values, container = codes.get("operator", ""), codes.get("values") or [], codes.get("containerName")
    if not operator:
        found.append(required(f"{where}.operator", f"valid values: {_listed(('In', 'NotIn'))}"))
    elif operator not in ("In", "NotIn"):
        found.append(not_supported(f"{where}.operator", operator, ("In", "NotIn")))
    if container is not None and container not in names:
        text = "must be one of the container or initContainer names in the pod template"
        found.append(invalid_value(f"{where}.containerName", container, text))
    if not values:
        found.append(invalid_value(f"{where}.values", values or None, "at least one value is required"))
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            found.append(invalid_value(f"{where}.values[{index}]", 0, "must not be 0 for the In operator"))
        if value in values[:index]:
            message = f"Duplicate value: {value}"
            found.append(FieldError(reason="FieldValueDuplicate", field=f"{where}.values[{index}]", message=message))
    if values != sorted(values):
        found.append(invalid_value(f"{where}.values", values, "must be ordered"))
    return found


def _success_policy_errors(spec: JsonObject) -> list[FieldError]:
    policy, field = spec["successPolicy"], "spec.successPolicy"
    if spec.get("completionMode") != "Indexed":
        return [invalid_value(field, policy, "requires indexed completion mode")]
    if not policy.get("rules"):
        return [required(f"{field}.rules", "at least one rules must be specified when the successPolicy is specified")]
    found = []
    completions = spec.get("completions") or 0
    for index, rule in enumerate(policy["rules"]):
        where, count = f"{field}.rules[{index}]", rule.get("succeededCount")
        if count is None and rule.get("succeededIndexes") is None:
            text = "at least one of succeededCount or succeededIndexes must be specified"
            found.append(required(where, text))
        if count is not None and count < 0:
            found.append(invalid_value(f"{where}.succeededCount", count, _NOT_NEGATIVE))
        if count is not None and count > completions:
            text = f"must be less than or equal to {completions} (the number of specified completions)"
            found.append(invalid_value(f"{where}.succeededCount", count, text))
    return found


def _template_errors(template: JsonObject) -> list[FieldError]:
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    found = label_errors(metadata.get("labels"), "spec.template.labels")
    for key in metadata.get("annotations") or {}:
        found += qualified_name_errors(key.lower(), "spec.template.annotations")
    found += pod_spec_errors(spec, "spec.template.spec")
    if spec.get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        message = f"Forbidden: {text}"
        where = "spec.template.spec.ephemeralContainers"
        found.append(FieldError(reason="FieldValueForbidden", field=where, message=message))
    policy = spec.get("restartPolicy", "Always")
    where, supported = "spec.template.spec.restartPolicy", ("OnFailure", "Never")
    if policy in ("Always", ""):
        found.append(required(where, 'valid values: "OnFailure", "Never"'))
    elif policy not in supported:
        found.append(not_supported(where, policy, supported))
    return found


# --- updates


def job_update_errors(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    """
    What an update may not do to a Job.

    Scheduling directives and resources of the template are open while it is suspended and no pod of it is active.
    """
    new_spec, old_spec = obj["spec"], old["spec"]
    if new_spec is old_spec or new_spec == old_spec:
        return []
    found = job_errors(obj) + _whole_spec_errors(new_spec)
    found += _completions_errors(new_spec, old_spec)
    found += _fixed(new_spec, old_spec, ("selector",))
    found += _template_changes(new_spec, old, old_spec)
    fixed = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
    return found + _fixed(new_spec, old_spec, fixed)


def _fixed(new_spec: JsonObject, old_spec: JsonObject, fields: tuple[str, ...]) -> list[FieldError]:
    return [
        invalid_value(f"spec.{field}", new_spec.get(field), _IMMUTABLE)
        for field in fields
        if new_spec.get(field) != old_spec.get(field)
    ]


def _completions_errors(new_spec: JsonObject, old_spec: JsonObject) -> list[FieldError]:
    new, old = new_spec.get("completions"), old_spec.get("completions")
    if new_spec.get("completionMode") != "Indexed":
        return _fixed(new_spec, old_spec, ("completions",))
    if new == old or new is None or old is None or new == new_spec.get("parallelism"):
        return []
    return [invalid_value("spec.completions", new, "can only be modified in tandem with spec.parallelism")]


def _template_changes(new_spec: JsonObject, old: JsonObject, old_spec: JsonObject) -> list[FieldError]:
    status, suspended = old.get("status") or {}, bool(old_spec.get("suspend"))
    stopped = any(c["type"] == "Suspended" and c["status"] == "True" for c in status.get("conditions") or ())
    open_ = suspended and (not status.get("startTime") or stopped) and not status.get("active")
    new, before = new_spec["template"], old_spec["template"]
    if not open_:
        return [invalid_value("spec.template", new, _IMMUTABLE)] if new != before else []
    if _closed(new) != _closed(before):
        return [invalid_value("spec.template.spec", new.get("spec"), _IMMUTABLE)]
    return []


def _closed(template: JsonObject) -> JsonObject:
    """What of a suspended Job's template is fixed: all but where its pods may go, and what they ask for."""
    open_ = ("nodeSelector", "tolerations", "schedulingGates", "affinity")
    spec = {name: value for name, value in (template.get("spec") or {}).items() if name not in open_}
    affinity = (template.get("spec") or {}).get("affinity") or {}
    rest = {name: value for name, value in affinity.items() if name != "nodeAffinity"}
    for group in ("containers", "initContainers"):
        if group in spec:
            spec[group] = [{name: value for name, value in c.items() if name != "resources"} for c in spec[group]]
    return {**spec, "affinity": rest}


# --- status


def job_status_errors(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    """What an update of the status may not do: contradict itself, or take back what is final."""
    status, before = obj.get("status") or {}, old.get("status") or {}
    if status is before:
        return []
    found = [
        invalid_value(f"status.{name}", status[name], _NOT_NEGATIVE)
        for name in ("active", "succeeded", "failed", "ready", "terminating")
        if status.get(name, 0) < 0
    ]
    complete, failed = is_true(status, "Complete"), is_true(status, "Failed")
    target, met = is_true(status, "FailureTarget"), is_true(status, "SuccessCriteriaMet")
    conditions: list[str] = []
    if complete and failed:
        conditions.append("cannot set Complete=True and Failed=true conditions")
    if complete and target:
        conditions.append("cannot set Complete=True and FailureTarget=true conditions")
    found += [_bare("status.conditions", text) for text in conditions]
    found += _time_errors(status, complete=complete)
    if failed and not target and not is_true(before, "Failed"):
        text = "cannot set Failed=True condition without the FailureTarget=true condition"
        found.append(_bare("status.conditions", text))
    if complete and not met and not is_true(before, "Complete"):
        text = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        found.append(_bare("status.conditions", text))
    if complete or failed:
        found += _finished_errors(status)
    if "ready" in status and status["ready"] > status.get("active", 0):
        found.append(invalid_value("status.ready", status["ready"], "cannot set more ready pods than active"))
    if met and failed:
        found.append(_bare("status.conditions", "cannot set SuccessCriteriaMet=True and Failed=true conditions"))
    if met and target:
        found.append(_bare("status.conditions", "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"))
    return found + _backward_errors(obj, status, before)


def _bare(field: str, text: str) -> FieldError:
    return FieldError(reason="FieldValueInvalid", field=field, message=f"Invalid value: {text}")


def _time_errors(status: JsonObject, *, complete: bool) -> list[FieldError]:
    start, end = status.get("startTime"), status.get("completionTime")
    found = []
    if end is not None and not complete:
        text = "cannot set completionTime when there is no Complete=True condition"
        found.append(invalid_value("status.completionTime", end, text))
    if end is None and complete:
        found.append(required("status.completionTime", "completionTime is required for Complete jobs"))
    if start is not None and end is not None and end < start:
        found.append(invalid_value("status.completionTime", end, "must be equal to or after `startTime`"))
    return found


def _finished_errors(status: JsonObject) -> list[FieldError]:
    found = []
    if status.get("active"):
        found.append(invalid_value("status.active", status["active"], "active>0 is invalid for finished job"))
    if not status.get("startTime"):
        found.append(required("status.startTime", "startTime is required for finished job"))
    uncounted = status.get("uncountedTerminatedPods") or {}
    if uncounted.get("succeeded") or uncounted.get("failed"):
        text = "must be empty for finished job"
        found.append(invalid_value("status.uncountedTerminatedPods", uncounted, text))
    if status.get("terminating"):
        text = "terminating>0 is invalid for finished job"
        found.append(invalid_value("status.terminating", status["terminating"], text))
    return found


def _backward_errors(obj: JsonObject, status: JsonObject, before: JsonObject) -> list[FieldError]:
    found = [
        _bare("status.conditions", f"cannot disable the terminal {kind}=True condition")
        for kind in ("Failed", "Complete", "FailureTarget")
        if is_true(before, kind) and not is_true(status, kind)
    ]
    spec = obj["spec"]
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    found += [
        invalid_value(f"status.{name}", status.get(name, 0), f"cannot decrease the {name} counter")
        for name in ("failed", "succeeded")
        if status.get(name, 0) < before.get(name, 0) and not (elastic and name == "succeeded")
    ]
    if before.get("completionTime") and status.get("completionTime") not in (None, before["completionTime"]):
        found.append(invalid_value("status.completionTime", status["completionTime"], _IMMUTABLE))
    resuming = is_true(before, "Suspended") and not is_true(status, "Suspended")
    start = before.get("startTime")
    if start and status.get("startTime") != start and not spec.get("suspend") and not resuming:
        text = "field is immutable for unsuspended job once set"
        found.append(invalid_value("status.startTime", status.get("startTime"), text))
    if is_true(before, "SuccessCriteriaMet") and not is_true(status, "SuccessCriteriaMet"):
        found.append(_bare("status.conditions", "cannot disable the SuccessCriteriaMet=True condition"))
    return found


def is_true(status: JsonObject, kind: str) -> bool:
    """Whether a Job's status has a condition, with status True."""
    return any(c.get("type") == kind and c.get("status") == "True" for c in status.get("conditions") or ())
