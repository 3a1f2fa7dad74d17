"""
The rules evaluated: what an object is changed to before it is stored, and what is wrong with it.

`defaulted` and `problems` are pure functions of the object, the settings and a few facts. A rule that cannot be
evaluated counts as not holding, as in an admission policy with the failure policy Fail. The wording of problems is that
of Kubernetes' field errors.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from headgate.core.admission.jobs import ANCESTOR, POD_SETS
from headgate.core.admission.layers import topology_layers
from headgate.core.admission.rules import (
    AdmissionOperation,
    AdmissionRule,
    AdmissionTarget,
    Default,
    Each,
    ErrorType,
    FieldChange,
    Params,
)
from headgate.core.admission.settings import AdmissionSettings
from headgate.core.kubernetes.cel import compiled
from headgate.core.kubernetes.cel_values import CelError
from headgate.core.kubernetes.pod_roles import role_hash
from headgate.core.kubernetes.selectors import matches_labels

Json = dict[str, Any]


class Facts(Protocol):
    """What admission knows of the cluster."""

    def default_of(self, kind: Params, namespace: str) -> Json | None:
        """The object called `default` of a kind; None when there is none."""
        ...

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace."""
        ...


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a field. `value` is the bad value as JSON, "" where it is not shown."""

    field: str
    error: ErrorType
    value: str = ""
    detail: str = ""
    rule: str = ""

    @property
    def body(self) -> str:
        """Without the field."""
        return self.error + (f": {self.value}" if self.value else "") + (f": {self.detail}" if self.detail else "")

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


class AdmissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """
    What is to be admitted: an object that is created, or with `old` one that is updated.

    `ancestor_is_managed` None means that nobody has looked: then every owner of such a kind counts as managed.
    `pod_sets` are those of a TrainJob, by its runtime; None likewise: then there are none to check. With `asks`
    NotLookedUpError is raised where either matters, so that only what matters is looked up.
    """

    object: Json
    old: Json | None = None
    namespace: str = ""
    ancestor_is_managed: bool | None = None
    pod_sets: tuple[Json, ...] | None = None
    asks: bool = False

    @property
    def operation(self) -> AdmissionOperation:
        """Which of the two."""
        return AdmissionOperation.CREATE if self.old is None else AdmissionOperation.UPDATE


class NotLookedUpError(Exception):
    """Raised where a rule depends on a variable that has to be looked up (`AdmissionRequest.asks`)."""

    def __init__(self, variable: str) -> None:
        super().__init__(variable)
        self.variable = variable


DEFAULT_NAME: Final = "default"
"""The name of the objects that rules read (`Params`)."""

Function = Callable[[Any, Any], Iterator[tuple[str, ErrorType, Any, str]]]
FUNCTIONS: Final[Mapping[str, Function]] = {"topology_layers": topology_layers}
"""What CEL cannot say, by name: from the value and a second one to places within the field, errors, values, details."""

COMPUTED: Final[Mapping[str, Callable[[Any], Any]]] = {"role_hash": role_hash}
"""Values that CEL cannot compute, by name."""


class _Lazy(dict[str, Any]):
    """The variables of a kind, evaluated when they are read."""

    def __init__(
        self,
        target: AdmissionTarget,
        settings: AdmissionSettings,
        scope: Mapping[str, Any],
        admitted: AdmissionRequest,
    ) -> None:
        looked_up = {ANCESTOR: admitted.ancestor_is_managed, POD_SETS: admitted.pod_sets}
        super().__init__({name: value for name, value in looked_up.items() if value is not None})
        self._asked_for = frozenset(looked_up) - frozenset(self) if admitted.asks else frozenset()
        self._scope = scope
        self._texts = {each.name: settings.text_of(each) for each in target.variables}

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def __getitem__(self, name: str) -> Any:
        if not super().__contains__(name):
            if name in self._asked_for:
                raise NotLookedUpError(name)
            self[name] = compiled(self._texts[name])(self._scope)
        return super().__getitem__(name)


def _scope(target: AdmissionTarget, settings: AdmissionSettings, admitted: AdmissionRequest) -> Json:
    scope: Json = {"object": admitted.object, "oldObject": admitted.old}
    scope["variables"] = _Lazy(target, settings, scope, admitted)
    return scope


def _is_in_scope(target: AdmissionTarget, settings: AdmissionSettings, scope: Mapping[str, Any]) -> bool:
    """Whether an object is looked at. One of which this cannot be told is."""
    condition = settings.scope_of(target)
    try:
        return not condition or bool(compiled(condition)(scope))
    except CelError:
        return True


def _applies(
    part: AdmissionRule | Default, settings: AdmissionSettings, admitted: AdmissionRequest, facts: Facts
) -> bool:
    """Whether a rule or default is for this operation, under these settings, and with these facts."""
    return (
        admitted.operation in part.operations
        and all(settings.is_on(gate) for gate in part.gates)
        and (part.params is Params.NONE or facts.default_of(part.params, admitted.namespace) is not None)
    )


# --- defaults ---------------------------------------------------------------------------------------------------------


class Defaulted(msgspec.Struct, frozen=True):
    """The object after defaulting, and the JSON patch that leads to it."""

    object: Json
    patch: list[Json]


def defaulted(
    target: AdmissionTarget, settings: AdmissionSettings, admitted: AdmissionRequest, facts: Facts
) -> Defaulted:
    """Apply the defaults of a kind, one after the other. Raises CelError when one cannot be evaluated."""
    found = copy.deepcopy(admitted.object)
    patch: list[Json] = []
    if not _is_in_scope(target, settings, _scope(target, settings, admitted)):
        return Defaulted(found, patch)
    for default in target.defaults:
        if not _applies(default, settings, admitted, facts):
            continue
        if default.selects_namespace and not _is_selected(settings, facts, admitted.namespace):
            continue
        scope = _scope(target, settings, msgspec.structs.replace(admitted, object=found))
        if compiled(default.when)(scope):
            for change in default.changes:
                patch += _change(change, found, scope)
    return Defaulted(found, patch)


def _is_selected(settings: AdmissionSettings, facts: Facts, namespace: str) -> bool:
    return settings.namespaces is None or matches_labels(settings.namespaces, facts.namespace_labels(namespace))


def _change(change: FieldChange, found: Json, scope: Mapping[str, Any]) -> list[Json]:
    """Make a change in an object, and the operations of a JSON patch that make it."""
    if "[]" not in change.path:
        applies = not change.when or compiled(change.when)(scope)
        return _set(change, change.path, found, scope) if applies else []
    at = change.path.index("[]")
    items = found
    for key in change.path[:at]:
        items = items.get(key) or {}
    operations = []
    for index, item in enumerate(items):
        inner = {**scope, "item": item}
        if not change.when or compiled(change.when)(inner):
            path: tuple[str | int, ...] = (*change.path[:at], index, *change.path[at + 1 :])
            operations += _set(change, path, found, inner)
    return operations


def _set(change: FieldChange, path: tuple[str | int, ...], found: Json, scope: Mapping[str, Any]) -> list[Json]:
    operations: list[Json] = []
    *parents, last = path
    holder: Any = found
    for depth, key in enumerate(parents):
        if isinstance(key, str) and key not in holder:
            if not change.value:
                return []
            holder[key] = {}
            operations.append({"op": "add", "path": pointer(path[: depth + 1]), "value": {}})
        holder = holder[key]
    if not change.value:
        if last in holder:
            del holder[last]
            operations.append({"op": "remove", "path": pointer(path)})
        return operations
    value = compiled(change.value)(scope)
    if change.computed:
        value = COMPUTED[change.computed](value)
    if change.appends and holder.get(last):
        holder[last] = [*holder[last], value]
        return [*operations, {"op": "add", "path": f"{pointer(path)}/-", "value": value}]
    holder[last] = [value] if change.appends else value
    return [*operations, {"op": "add", "path": pointer(path), "value": holder[last]}]


def pointer(path: tuple[str | int, ...]) -> str:
    """A JSON pointer."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)


# --- problems ---------------------------------------------------------------------------------------------------------


def denial(found: Sequence[Problem]) -> tuple[str, list[Json]]:
    """The problems as one message, each once, as Kubernetes joins errors; and as the causes of a Status."""
    texts = list(dict.fromkeys(map(str, found)))
    message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return message, [{"reason": each.error.reason, "message": each.body, "field": each.field} for each in found]


def problems(
    target: AdmissionTarget, settings: AdmissionSettings, admitted: AdmissionRequest, facts: Facts
) -> list[Problem]:
    """What is wrong with an object, in the order of the rules."""
    return list(_found(target, settings, admitted, facts, warnings=False))


def warnings(
    target: AdmissionTarget, settings: AdmissionSettings, admitted: AdmissionRequest, facts: Facts
) -> list[str]:
    """What the client is warned of, though the object is admitted."""
    return [f"{each.field}: {each.detail}" for each in _found(target, settings, admitted, facts, warnings=True)]


def _found(
    target: AdmissionTarget, settings: AdmissionSettings, admitted: AdmissionRequest, facts: Facts, *, warnings: bool
) -> Iterator[Problem]:
    scope = _scope(target, settings, admitted)
    if not _is_in_scope(target, settings, scope):
        return
    for rule in target.rules:
        if rule.is_warning is warnings and _applies(rule, settings, admitted, facts):
            yield from _violations(rule, rule.each, scope, ())


def _violations(
    rule: AdmissionRule, loops: tuple[Each, ...], scope: Mapping[str, Any], places: tuple[str, ...]
) -> Iterator[Problem]:
    """What violates a rule, in each turn of its loops; `places` are the indexes so far."""
    try:
        if not loops:
            yield from _checked(rule, scope, places)
            return
        each, *inner = loops
        items = compiled(each.of)(scope)
        pairs = list(items.items()) if isinstance(items, dict) else list(enumerate(items))
        for index, item in pairs:
            turn = {**scope, each.variable: item, each.index: index}
            shown = compiled(each.key)(turn) if each.key else index
            yield from _violations(rule, tuple(inner), turn, (*places, str(shown)))
    except CelError as error:
        yield Problem(
            field=_field(rule.field, places),
            error=ErrorType.INVALID,
            detail=f"it cannot be checked: {error}",
            rule=rule.name,
        )


def _checked(rule: AdmissionRule, scope: Mapping[str, Any], places: tuple[str, ...]) -> Iterator[Problem]:
    if rule.when and not compiled(rule.when)(scope):
        return
    field = _field(rule.field, places)
    if rule.not_in_cel:
        found, second = compiled(rule.holds)(scope), compiled(rule.value)(scope)
        for place, error, value, detail in FUNCTIONS[rule.not_in_cel](found, second):
            said = detail + rule.detail
            yield Problem(field=field + place, error=error, value=_shown(value), detail=said, rule=rule.name)
        return
    if compiled(rule.holds)(scope):
        return
    yield Problem(
        field=field,
        error=rule.error,
        value=_shown(compiled(rule.value)(scope)) if rule.value else "",
        detail=compiled(rule.detail_cel)(scope) if rule.detail_cel else rule.detail,
        rule=rule.name,
    )


def _field(field: str, places: tuple[str, ...]) -> str:
    for place in places:
        field = field.replace("[]", f"[{place}]", 1)
    return field


def _shown(value: Any) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()
