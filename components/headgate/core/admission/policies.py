"""
The rules as admission policies: the API server evaluates them itself, and no webhook is called.

For each kind there is a ValidatingAdmissionPolicy with its rules and a MutatingAdmissionPolicy for each of its
defaults, with their bindings. Settings are rendered into them: a gate that is off leaves out its rules, so the policies
are rendered again when the Configuration changes (`headgate crds install --admission policy`). Messages are those of
the webhook, without the indexes in lists.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from headgate.core.admission.queues import GROUP, VERSION
from headgate.core.admission.rules import (
    AdmissionOperation,
    AdmissionRule,
    AdmissionTarget,
    Default,
    Each,
    FieldChange,
    Params,
)
from headgate.core.admission.settings import AdmissionSettings
from headgate.core.admission.webhooks import not_by_headgate, rule_of, user_namespaces
from headgate.events.objects import LabelSelector

Json = dict[str, Any]

API_VERSION: Final = "admissionregistration.k8s.io/v1"
PARAM_KINDS: Final = {Params.LOCAL_QUEUE: "LocalQueue", Params.PRIORITY_CLASS: "WorkloadPriorityClass"}
SUFFIXES: Final = {Params.NONE: "", Params.LOCAL_QUEUE: "-in-default-queue", Params.PRIORITY_CLASS: "-in-default-class"}


def policies(
    targets: Sequence[AdmissionTarget], settings: AdmissionSettings, *, namespace: str, labels: dict[str, str]
) -> list[Json]:
    """All policies and bindings under these settings; `namespace` is Headgate's."""
    made: list[Json] = []
    for target in targets:
        if not settings.covers(target):
            continue
        for policy, binding in (*_validating(target, settings, namespace), *_mutating(target, settings, namespace)):
            made += [policy, binding]
    for each in made:
        each["metadata"]["labels"] = labels
    return made


def _policy(kind: str, name: str, spec: Json, params: Params) -> Json:
    if params is not Params.NONE:
        spec["paramKind"] = {"apiVersion": f"{GROUP}/{VERSION}", "kind": PARAM_KINDS[params]}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _binding(kind: str, name: str, params: Params, more: Json) -> Json:
    spec: Json = {"policyName": name, **more}
    if params is not Params.NONE:
        # Without the object the policy does not apply. A namespaced one is looked up where the request is.
        spec["paramRef"] = {"name": "default", "parameterNotFoundAction": "Allow"}
    return {"apiVersion": API_VERSION, "kind": f"{kind}Binding", "metadata": {"name": name}, "spec": spec}


def _match(
    target: AdmissionTarget,
    settings: AdmissionSettings,
    operations: Sequence[AdmissionOperation],
    namespace: str,
    *,
    defaulting: bool,
) -> Json:
    constraints: Json = {"resourceRules": [rule_of(target, operations, defaulting=defaulting)]}
    if target.group != GROUP:
        constraints["namespaceSelector"] = user_namespaces(namespace)
    conditions = [not_by_headgate(namespace)]
    if scope := settings.scope_of(target):
        conditions.append({"name": "in-scope", "expression": scope})
    return {"failurePolicy": "Fail", "matchConstraints": constraints, "matchConditions": conditions}


def _variables(target: AdmissionTarget, settings: AdmissionSettings, texts: Sequence[str]) -> list[Json]:
    """The variables that the texts use, and those that these use, in order."""
    needed: set[str] = set()
    found = " ".join(texts)
    for each in reversed(target.variables):
        if re.search(rf"\bvariables\.{each.name}\b", found):
            needed.add(each.name)
            found += " " + each.expression
    return [
        {"name": each.name, "expression": settings.text_of(each)} for each in target.variables if each.name in needed
    ]


# --- validation -------------------------------------------------------------------------------------------------------


def _validating(target: AdmissionTarget, settings: AdmissionSettings, namespace: str) -> Iterator[tuple[Json, Json]]:
    """A policy for the rules without parameters, and one for those of each parameter; warnings apart."""
    kind = "ValidatingAdmissionPolicy"
    in_cel = [each for each in target.rules if not (each.not_in_cel or each.looks_up)]
    usable = [each for each in in_cel if all(map(settings.is_on, each.gates))]
    for params in Params:
        for is_warning in (False, True):
            rules = [each for each in usable if each.params is params and each.is_warning is is_warning]
            if not rules:
                continue
            name = f"headgate-validate-{target.plural}{SUFFIXES[params]}{'-warnings' if is_warning else ''}"
            operations = tuple(op for op in AdmissionOperation if any(op in each.operations for each in rules))
            spec = _match(target, settings, operations, namespace, defaulting=False)
            spec["validations"] = [_validation(each, operations) for each in rules]
            texts = [text for each in spec["validations"] for text in each.values()]
            if variables := _variables(target, settings, texts):
                spec["variables"] = variables
            actions = {"validationActions": ["Warn" if is_warning else "Deny"]}
            yield _policy(kind, name, spec, params), _binding(kind, name, params, actions)


def _validation(rule: AdmissionRule, operations: Sequence[AdmissionOperation]) -> Json:
    text = f"!({rule.when}) || ({rule.holds})" if rule.when else rule.holds
    for each in reversed(rule.each):
        text = _loop(each, text)
    if len(rule.operations) < len(operations):
        text = f"request.operation != '{rule.operations[0].value}' || ({text})"
    shown = f"{rule.field}: {rule.error}"
    validation = {"expression": text, "reason": "Forbidden", "message": f"{shown}: {rule.detail}".removesuffix(": ")}
    if rule.detail_cel and not rule.each:
        validation["messageExpression"] = f"{_quoted(shown + ': ')} + ({rule.detail_cel})"
    return validation


def _loop(each: Each, inner: str) -> str:
    needs_index = each.of.endswith("orValue({})") or re.search(rf"\b{each.index}\b", inner)
    variables = f"{each.index}, {each.variable}" if needs_index else each.variable
    return f"{each.of}.all({variables}, {inner})"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


# --- defaults ---------------------------------------------------------------------------------------------------------


def _mutating(target: AdmissionTarget, settings: AdmissionSettings, namespace: str) -> Iterator[tuple[Json, Json]]:
    """A policy for each default, in their order by name: later ones see what earlier ones have set."""
    kind = "MutatingAdmissionPolicy"
    for index, default in enumerate(target.defaults):
        if default.not_in_cel or not all(map(settings.is_on, default.gates)):
            continue
        name = f"headgate-default-{target.plural}-{index}-{default.name}"
        spec = _match(target, settings, default.operations, namespace, defaulting=True)
        expression = f"({default.when}) ? ({_changes(default)}) : []"
        spec["mutations"] = [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]
        spec["reinvocationPolicy"] = "IfNeeded"
        if variables := _variables(target, settings, [expression]):
            spec["variables"] = variables
        more: Json = {}
        if default.selects_namespace and settings.namespaces is not None:
            more["matchResources"] = {"namespaceSelector": _selector(settings.namespaces)}
        yield _policy(kind, name, spec, default.params), _binding(kind, name, default.params, more)


def _changes(default: Default) -> str:
    """The lists of operations of a default: first the parents that are missing, then the changes in them."""
    parts = [*_parents(default.changes), *map(_operations, default.changes)]
    return " + ".join(parts)


def _parents(changes: Sequence[FieldChange]) -> Iterator[str]:
    """The objects on the way to fields that are set, each once, and only if something is set in them."""
    conditions: dict[tuple[str, ...], list[str]] = {}
    for change in changes:
        if change.value and "[]" not in change.path:
            for depth in range(2, len(change.path)):
                conditions.setdefault(change.path[:depth], []).append(change.when)
    for parent, needed in conditions.items():
        is_needed = "" if "" in needed else f" || !({' || '.join(f'({each})' for each in needed)})"
        made = _patch("add", _quoted(_pointer(parent)), "{}")
        yield f"({_has('object', parent)}{is_needed} ? [] : [{made}])"


def _operations(change: FieldChange) -> str:
    if "[]" in change.path:
        return _for_each(change)
    there = _has("object", change.path)
    operation = _one(change, _quoted(_pointer(change.path)), there)
    conditions = [text for text in (change.when, "" if change.value else there) if text]
    return f"({' && '.join(conditions)} ? [{operation}] : [])" if conditions else f"[{operation}]"


def _for_each(change: FieldChange) -> str:
    at = change.path.index("[]")
    before, after = change.path[:at], change.path[at + 1 :]
    items = f"object.{'.?'.join(before)}.orValue([])" if len(before) > 1 else f"object.{before[0]}"
    there = _has("item", after)
    path = f"{_quoted(_pointer(before) + '/')} + string(i) + {_quoted(_pointer(after))}"
    condition = change.when or ("true" if change.value else there)
    return f"{items}.transformList(i, item, {condition}, {_one(change, path, there)})"


def _one(change: FieldChange, path: str, there: str) -> str:
    if not change.value:
        return _patch("remove", path, "")
    if change.appends:
        ended = f"{path} + '/-'"
        return f"({there} ? {_patch('add', ended, change.value)} : {_patch('add', path, f'[{change.value}]')})"
    return _patch("add", path, change.value)


def _patch(operation: str, path: str, value: str) -> str:
    shown = f", value: {value}" if value else ""
    return f"JSONPatch{{op: '{operation}', path: {path}{shown}}}"


def _has(root: str, path: Sequence[str]) -> str:
    steps = "".join(f".?{key}" if key.isidentifier() else f"[?{_quoted(key)}]" for key in path)
    return f"{root}{steps}.hasValue()"


def _pointer(path: Sequence[str]) -> str:
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in path)


def _selector(selector: LabelSelector) -> Json:
    made: Json = {}
    if selector.match_labels:
        made["matchLabels"] = dict(selector.match_labels)
    if selector.match_expressions:
        made["matchExpressions"] = [
            {"key": each.key, "operator": each.operator} | ({"values": list(each.values)} if each.values else {})
            for each in selector.match_expressions
        ]
    return made
