"""
The rules of the annotations by which a pod template requests topology (`jobframework/tas_validation.go` of Kueue 0.19).

A kind names its templates, and where they are; the rules are the same for all of them.
"""

from typing import Final

import msgspec

from headgate.core.admission.names import label_key
from headgate.core.admission.rules import BOTH, AdmissionOperation, AdmissionRule, Each, ErrorType

_PREFIX: Final = "kueue.x-k8s.io/podset-"
REQUIRED: Final = f"{_PREFIX}required-topology"
PREFERRED: Final = f"{_PREFIX}preferred-topology"
UNCONSTRAINED: Final = f"{_PREFIX}unconstrained-topology"
SLICE_REQUIRED: Final = f"{_PREFIX}slice-required-topology"
SLICE_SIZE: Final = f"{_PREFIX}slice-size"
LAYERS: Final = f"{_PREFIX}slice-required-topology-constraints"
GROUP: Final = f"{_PREFIX}group-name"
GATES: Final = ("TopologyAwareScheduling",)
MULTI_LAYER: Final = "TASMultiLayerTopology"


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """
    A pod template, or the templates of a list: its metadata as an expression, and its field.

    `count` is the expression of the number of pods, "" where the object does not say; `name` distinguishes templates of
    one kind. `field` is that of the metadata.
    """

    metadata: str
    field: str
    count: str = ""
    name: str = "template"
    each: tuple[Each, ...] = ()


def rules_of(
    template: Template, *, operations: tuple[AdmissionOperation, ...] = BOTH, gates: tuple[str, ...] = GATES
) -> tuple[AdmissionRule, ...]:
    """All rules of one template. Pods request topology whether the gate is on or not."""
    made = (*_kinds(template), *_slices(template), *_group(template), *_layers(template), *_bounds(template))
    return tuple(
        msgspec.structs.replace(
            each, name=f"{template.name}-{each.name}", operations=operations, gates=(*gates, *each.gates)
        )
        for each in made
    )


def annotation(template: Template, key: str) -> str:
    """The value of an annotation of a template; "" where there is none."""
    return f"{template.metadata}.?annotations[?'{key}'].orValue('')"


def has(template: Template, key: str) -> str:
    """Whether a template has an annotation."""
    return f"{template.metadata}.?annotations[?'{key}'].hasValue()"


def _rule(template: Template, name: str, key: str, holds: str, detail: str, **more: object) -> AdmissionRule:
    field = f"{template.field}.annotations" + (f"[{key}]" if key else "")
    base = AdmissionRule(name=name, field=field, each=template.each, holds=holds, detail=detail)
    return msgspec.structs.replace(base, **more)


def _invalid(template: Template, name: str, key: str, holds: str, detail: str, when: str = "") -> AdmissionRule:
    return _rule(template, name, key, holds, detail, when=when or has(template, key), value=annotation(template, key))


def _excluded(template: Template, key: str, by: str) -> AdmissionRule:
    return _rule(
        template,
        f"{key.rpartition('podset-')[2]}-with-{by.rpartition('podset-')[2]}",
        key,
        f"!{has(template, key)} || !{has(template, by)}",
        f"may not be set when '{by}' is specified",
        error=ErrorType.FORBIDDEN,
    )


def _kinds(template: Template) -> tuple[AdmissionRule, ...]:
    """At most one kind of request; its value is a node label."""
    one = " + ".join(f"({has(template, key)} ? 1 : 0)" for key in (REQUIRED, PREFERRED, UNCONSTRAINED))
    names = ", ".join(f'"{key}"' for key in (REQUIRED, PREFERRED, UNCONSTRAINED))
    labels: list[AdmissionRule] = []
    for name, key in (("required", REQUIRED), ("preferred", PREFERRED), ("slice-required", SLICE_REQUIRED)):
        labels += label_key(_invalid(template, name, key, "", ""), annotation(template, key))
    booleans = "['1', 't', 'T', 'TRUE', 'true', 'True', '0', 'f', 'F', 'FALSE', 'false', 'False']"
    return (
        _rule(
            template,
            "one-request",
            "",
            f"{one} <= 1",
            f"must not contain more than one topology annotation: [{names}]",
        ),
        *labels,
        _invalid(
            template,
            "unconstrained",
            UNCONSTRAINED,
            f"{annotation(template, UNCONSTRAINED)} in {booleans}",
            "must be a boolean value",
        ),
    )


_NUMBER: Final = "'^[-+]?[0-9]{1,10}$'"


def _is_number(value: str) -> str:
    return f"({value}.matches({_NUMBER}) && int({value}) >= -2147483648 && int({value}) <= 2147483647)"


def _slices(template: Template) -> tuple[AdmissionRule, ...]:
    size = annotation(template, SLICE_SIZE)
    number = _is_number(size)
    return (
        _invalid(template, "slice-size-number", SLICE_SIZE, number, "must be a numeric value"),
        _invalid(
            template,
            "slice-size-positive",
            SLICE_SIZE,
            f"!{number} || int({size}) >= 1",
            "must be greater than or equal to 1",
        ),
        _rule(
            template,
            "slice-size-missing",
            SLICE_SIZE,
            f"!{has(template, SLICE_REQUIRED)} || {has(template, SLICE_SIZE)}",
            f"must be set when '{SLICE_REQUIRED}' is specified",
            error=ErrorType.REQUIRED,
        ),
        _rule(
            template,
            "slice-size-alone",
            SLICE_SIZE,
            f"{has(template, SLICE_REQUIRED)} || !{has(template, SLICE_SIZE)}",
            f"may not be set when '{SLICE_REQUIRED}' is not specified",
            error=ErrorType.FORBIDDEN,
        ),
    )


def _group(template: Template) -> tuple[AdmissionRule, ...]:
    return (
        _invalid(
            template,
            "group-name",
            GROUP,
            f"!{annotation(template, GROUP)}.matches('^[0-9]+$')",
            "must not be a number",
        ),
        _excluded(template, GROUP, SLICE_SIZE),
        _excluded(template, GROUP, SLICE_REQUIRED),
        _rule(
            template,
            "group-alone",
            GROUP,
            f"!{has(template, GROUP)} || {has(template, PREFERRED)} || {has(template, REQUIRED)}",
            f"may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified",
            error=ErrorType.FORBIDDEN,
        ),
    )


def _layers(template: Template) -> tuple[AdmissionRule, ...]:
    """The layers are JSON in an annotation, which CEL cannot read."""
    when_on = tuple(
        msgspec.structs.replace(each, gates=(MULTI_LAYER,))
        for each in (
            _excluded(template, LAYERS, SLICE_REQUIRED),
            _excluded(template, LAYERS, SLICE_SIZE),
            msgspec.structs.replace(
                _excluded(template, LAYERS, GROUP),
                field=f"{template.field}.annotations[{GROUP}]",
                detail=f"may not be set when '{LAYERS}' is specified",
            ),
        )
    )
    return (
        _rule(
            template,
            "layers-off",
            LAYERS,
            f"!{has(template, LAYERS)}",
            f"the {MULTI_LAYER} feature gate must be enabled to use this annotation",
            error=ErrorType.FORBIDDEN,
            gates=(f"!{MULTI_LAYER}",),
        ),
        *when_on,
        AdmissionRule(
            name="layers",
            field=f"{template.field}.annotations[{LAYERS}]",
            each=template.each,
            when=has(template, LAYERS),
            holds=annotation(template, LAYERS),
            value=template.count or "0",
            gates=(MULTI_LAYER,),
            not_in_cel="topology_layers",
        ),
    )


def _bounds(template: Template) -> tuple[AdmissionRule, ...]:
    """A slice has at most as many pods as there are."""
    if not template.count:
        return ()
    size = annotation(template, SLICE_SIZE)
    bound = _invalid(
        template, "slice-size-bound", SLICE_SIZE, f"!{_is_number(size)} || int({size}) <= {template.count}", ""
    )
    return (
        msgspec.structs.replace(
            bound, detail_cel=f"'must not be greater than pod set count ' + string({template.count})"
        ),
    )


# Large: a table of rules, and the expressions that they have in common.
def pod_set_groups(
    loops: tuple[Each, ...], field: str, *, of: str, count: str, with_one: str = ""
) -> tuple[AdmissionRule, ...]:
    """
    Pod sets that share their domains are two, one of them has one pod, and they request the same.

    `of` are the annotations of an item of the last loop and `count` its pods, as expressions of its variable;
    `with_one` are the annotations of a further pod set of one pod.
    """
    item = loops[-1].variable

    def of_other(expression: str) -> str:
        return expression.replace(f"{item}.", "other.")

    same = f"{of_other(of)}[?'{GROUP}'] == {of}[?'{GROUP}']"
    is_map = loops[-1].of.endswith("orValue({})")
    others = f"{loops[-1].of}.{'transformList(k, other, ' if is_map else 'map(other, '}"
    one = f" + (({with_one}[?'{GROUP}'] == {of}[?'{GROUP}']) ? 1 : 0)" if with_one else ""
    members = f"({others}{same} ? 1 : 0).sum(){one})"
    large = f"{others}{same} && {of_other(count)} != 1 ? 1 : 0).sum()"
    requests = " && ".join(f"{of_other(of)}[?'{key}'] == {of}[?'{key}']" for key in (REQUIRED, PREFERRED))
    with_head = " && ".join(f"{with_one}[?'{key}'] == {of}[?'{key}']" for key in (REQUIRED, PREFERRED))
    alike = f"{others}!({same}) || ({requests}) ? 0 : 1).sum() == 0" + (
        f" && (!({with_one}[?'{GROUP}'] == {of}[?'{GROUP}']) || ({with_head}))" if with_one else ""
    )
    grouped = f"{of}[?'{GROUP}'].hasValue()"
    base = AdmissionRule(
        name="pod-set-group", field=f"{field}[{GROUP}]", each=loops, when=grouped, holds="", gates=GATES
    )
    return (
        msgspec.structs.replace(
            base,
            name="group-of-two",
            holds=f"{members} == 2",
            value=f"{of}[?'{GROUP}'].orValue('')",
            detail_cel=f"'can only define groups of exactly 2 pod sets, got: ' + string({members}) + ' pod set(s)'",
        ),
        msgspec.structs.replace(
            base,
            name="group-with-leader",
            holds=f"{members} != 2 || {large} <= 1",
            value=f"{of}[?'{GROUP}'].orValue('')",
            detail="can only define groups where at least one pod set has only 1 replica",
        ),
        msgspec.structs.replace(
            base,
            name="group-alike",
            field=field,
            holds=f"{members} != 2 || ({alike})",
            detail=f"must specify '{REQUIRED}' or '{PREFERRED}' topology consistent with the group's other pod set",
        ),
    )
