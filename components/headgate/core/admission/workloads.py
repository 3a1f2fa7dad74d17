"""
The rules of Workloads (`pkg/webhooks/workload_webhook.go` of Kueue 0.19), of spec and status.

Those that the definition of the kind has as rules of its own are not repeated here.
"""
# Over 400 lines: the tables of rules of kinds that have much in common.

from typing import Final

from headgate.core.admission.gated_by import gated_by
from headgate.core.admission.names import label_key, label_value
from headgate.core.admission.queues import GROUP, IMMUTABLE, NEGATIVE, VERSION
from headgate.core.admission.rules import (
    ANNOTATIONS,
    BOTH,
    UPDATE,
    AdmissionRule,
    AdmissionTarget,
    Default,
    Each,
    ErrorType,
    FieldChange,
    Variable,
)
from headgate.core.api.names import ELASTIC_JOB, PRIORITY_BOOST, REPLACEMENT_FOR

ELASTIC_GATE: Final = "ElasticJobsViaWorkloadSlices"
RESERVED: Final = "%s.?status.?conditions.orValue([]).exists(c, c.type == 'QuotaReserved' && c.status == 'True')"

_POD_SETS: Final = "object.?spec.?podSets.orValue([])"
_POD_SET: Final = Each("podSet", _POD_SETS)
_TEMPLATE: Final = "spec.podSets[].template"
_ASSIGNMENT: Final = Each("assignment", "object.?status.?admission.?podSetAssignments.orValue([])")
_CHECK: Final = Each("check", "object.?status.?admissionChecks.orValue([])")
_UPDATE: Final = Each("change", "check.?podSetUpdates.orValue([])")
_RECLAIMABLE: Final = "object.?status.?reclaimablePods.orValue([])"
_WAS_RECLAIMABLE: Final = "oldObject.?status.?reclaimablePods.orValue([])"
_NAMES: Final = f"{_POD_SETS}.map(p, '\"' + p.name + '\"').join(', ')"
_GATE: Final = "variables.elastic"
_SLICES: Final = (ELASTIC_GATE,)

VARIABLES: Final = (
    Variable("reserved", RESERVED % "object"),
    Variable("wasReserved", f"oldObject != null && {RESERVED % 'oldObject'}"),
    Variable("elastic", f"{ANNOTATIONS}[?'{ELASTIC_JOB}'].orValue('') == 'true'", ELASTIC_GATE),
    Variable("minCounts", f"size({_POD_SETS}.filter(p, has(p.minCount)))"),
)


def _metadata() -> tuple[AdmissionRule, ...]:
    """The labels and annotations of pod templates."""
    gates = ("WorkloadValidationForPodSetMetadata",)
    labelled = Each("labelled", "podSet.template.?metadata.?labels.orValue({})")
    annotated = Each("annotated", "podSet.template.?metadata.?annotations.orValue({})")
    place = f"{_TEMPLATE}.metadata"
    return (
        *label_key(
            AdmissionRule(
                name="pod-label",
                field=f"{place}.labels",
                each=(_POD_SET, labelled),
                holds="",
                value="labelled_i",
                gates=gates,
            ),
            "labelled_i",
        ),
        *label_value(
            AdmissionRule(
                name="pod-label-value",
                field=f"{place}.labels",
                each=(_POD_SET, labelled),
                holds="",
                value="labelled",
                gates=gates,
            ),
            "labelled",
        ),
        *label_key(
            AdmissionRule(
                name="pod-annotation",
                field=f"{place}.annotations",
                each=(_POD_SET, annotated),
                holds="",
                value="annotated_i",
                gates=gates,
            ),
            "annotated_i.lowerAscii()",
        ),
    )


def _resources() -> tuple[AdmissionRule, ...]:
    """Resource lists of containers and pods: no `pods`, and nothing negative."""
    rules = []
    for containers in ("initContainers", "containers", ""):
        for amounts in ("requests", "limits"):
            container = Each("container", f"podSet.template.?spec.?{containers}.orValue([])") if containers else None
            holder = "container" if container else "podSet.template.?spec"
            amount = Each("amount", f"{holder}.?resources.?{amounts}.orValue({{}})")
            each = (_POD_SET, *((container,) if container else ()), amount)
            inner = f".{containers}[]" if containers else ""
            field = f"{_TEMPLATE}.spec{inner}.resources.{amounts}[]"
            of = containers or "pod"
            rules += [
                AdmissionRule(
                    name=f"{of}-{amounts}-pods",
                    field=field,
                    each=each,
                    holds="amount_i != 'pods'",
                    value="'pods'",
                    detail="the key is reserved for internal kueue use",
                ),
                AdmissionRule(
                    name=f"{of}-{amounts}-negative",
                    field=field,
                    each=each,
                    holds="!quantity(string(amount)).isLessThan(quantity('0'))",
                    value="string(amount)",
                    detail=NEGATIVE,
                    gates=("WorkloadValidateResourcesAreNonNegative",),
                ),
            ]
    return tuple(rules)


# Large: a table of rules.
def _slices() -> tuple[AdmissionRule, ...]:
    """The sizes of topology slices."""
    gates = ("TASValidateWorkloadSliceSize",)
    request = "podSet.?topologyRequest"
    required, size = f"{request}.?podSetSliceRequiredTopology", f"{request}.?podSetSliceSize"
    field = "spec.podSets[].topologyRequest"
    layer = Each("layer", f"{request}.?podsetSliceRequiredTopologyConstraints.orValue([])")
    return (
        AdmissionRule(
            name="slice-size-missing",
            field=f"{field}.podSetSliceSize",
            each=(_POD_SET,),
            holds=f"!{required}.hasValue() || {size}.hasValue()",
            error=ErrorType.REQUIRED,
            detail="must be set when podSetSliceRequiredTopology is specified",
            gates=gates,
        ),
        AdmissionRule(
            name="slice-size",
            field=f"{field}.podSetSliceSize",
            each=(_POD_SET,),
            holds=f"!{required}.hasValue() || {size}.orValue(1) > 0",
            value=f"{size}.orValue(0)",
            detail="must be greater than 0",
            gates=gates,
        ),
        AdmissionRule(
            name="slice-size-alone",
            field=f"{field}.podSetSliceSize",
            each=(_POD_SET,),
            holds=f"{required}.hasValue() || !{size}.hasValue()",
            error=ErrorType.FORBIDDEN,
            detail="may not be set when podSetSliceRequiredTopology is not specified",
            gates=gates,
        ),
        AdmissionRule(
            name="slice-layer-size",
            field=f"{field}.podsetSliceRequiredTopologyConstraints[].size",
            each=(_POD_SET, layer),
            holds="layer.?size.orValue(0) > 0",
            value="layer.?size.orValue(0)",
            detail="must be greater than 0",
            gates=gates,
        ),
        AdmissionRule(
            name="sub-groups-negative",
            field=f"{field}.subGroupCount",
            each=(_POD_SET,),
            holds=f"{request}.?subGroupCount.orValue(0) >= 0",
            is_warning=True,
            value=f"{request}.?subGroupCount.orValue(0)",
            detail_cel=f"'negative value ' + string({request}.?subGroupCount.orValue(0)) + "
            "' is deprecated and will be rejected in a future release'",
        ),
    )


def _counts() -> tuple[AdmissionRule, ...]:
    return (
        AdmissionRule(
            name="one-min-count",
            field="spec.podSets",
            holds="variables.minCounts <= 1",
            value="variables.minCounts",
            detail="at most one podSet can use minCount",
        ),
        AdmissionRule(
            name="min-count-elastic",
            field="spec.podSets",
            holds=f"variables.minCounts == 0 || !{_GATE}",
            value="variables.minCounts",
            detail="partial admission and elastic job cannot be used together",
            gates=_SLICES,
        ),
    )


# Large: a table of rules.
def _admission() -> tuple[AdmissionRule, ...]:
    """What is admitted."""
    used = Each("used", "assignment.?resourceUsage.orValue({})")
    in_units = (
        "used_i == 'cpu' ? int(quantity(string(used)).asApproximateFloat() * 1000.0 + 0.5) : "
        "int(quantity(string(used)).asApproximateFloat())"
    )
    return (
        AdmissionRule(
            name="admission-missing",
            field="status.admission",
            when="variables.reserved && !object.?status.?admission.hasValue()",
            holds="variables.wasReserved && !oldObject.?status.?admission.hasValue()",
            error=ErrorType.REQUIRED,
            detail="must be set while the QuotaReserved condition is true",
        ),
        AdmissionRule(
            name="assignment-name",
            field="status.admission.podSetAssignments[].name",
            each=(_ASSIGNMENT,),
            when="variables.reserved",
            holds=f"{_POD_SETS}.exists(p, p.name == assignment.name)",
            error=ErrorType.NOT_FOUND,
            value="assignment.name",
        ),
        AdmissionRule(
            name="assignment-usage",
            field="status.admission.podSetAssignments[].resourceUsage[]",
            each=(_ASSIGNMENT, used),
            when="variables.reserved && assignment.?count.orValue(0) > 0",
            holds=f"({in_units}) % assignment.count == 0",
            value="string(used)",
            detail_cel="'is not a multiple of ' + string(assignment.count)",
        ),
        AdmissionRule(
            name="admission-immutable",
            field="status.admission",
            when="object.?status.?admission.hasValue() && oldObject.?status.?admission.hasValue()",
            holds="object.status.admission.?clusterQueue == oldObject.status.admission.?clusterQueue && "
            f"size({_ASSIGNMENT.of}) == size(oldObject.status.admission.?podSetAssignments.orValue([])) && "
            f"{_ASSIGNMENT.of}.all(i, a, a.name == oldObject.status.admission.podSetAssignments[i].name && "
            "['flavors', 'resourceUsage', 'count'].all(k, "
            "a[?k] == oldObject.status.admission.podSetAssignments[i][?k]))",
            value="object.status.admission",
            detail=IMMUTABLE,
            operations=UPDATE,
        ),
    )


# Large: a table of rules.
def _admission_checks() -> tuple[AdmissionRule, ...]:
    place = "status.admissionChecks[].podSetUpdates[]"
    each = (_CHECK, _UPDATE)
    toleration = Each("toleration", "change.?tolerations.orValue([])")
    parts = []
    for name in ("nodeSelector", "labels"):
        labelled = Each("labelled", f"change.?{name}.orValue({{}})")
        key = AdmissionRule(
            name=f"update-{name}", field=f"{place}.{name}", each=(*each, labelled), holds="", value="labelled_i"
        )
        value = AdmissionRule(
            name=f"update-{name}-value", field=f"{place}.{name}", each=(*each, labelled), holds="", value="labelled"
        )
        parts += [*label_key(key, "labelled_i"), *label_value(value, "labelled")]
    return (
        AdmissionRule(
            name="update-name",
            field=f"{place}.name",
            each=each,
            holds=f"{_POD_SETS}.exists(p, p.name == change.name)",
            error=ErrorType.NOT_SUPPORTED,
            value="change.name",
            detail_cel=f"'supported values: ' + {_NAMES}",
        ),
        *label_key(
            AdmissionRule(
                name="update-toleration",
                field=f"{place}.tolerations[].key",
                each=(*each, toleration),
                when="toleration.?key.orValue('') != ''",
                holds="",
                value="toleration.key",
            ),
            "toleration.key",
        ),
        *parts,
        AdmissionRule(
            name="updates-immutable",
            field="status.admissionChecks[].podSetUpdates",
            each=(Each("was", "oldObject.?status.?admissionChecks.orValue([])"),),
            holds=f"was.state != 'Ready' || {_CHECK.of}.all(c, c.name != was.name || c.state != 'Ready' || "
            "c.?podSetUpdates.orValue([]) == was.?podSetUpdates.orValue([]))",
            value="was.?podSetUpdates.orValue([])",
            detail=IMMUTABLE,
            operations=UPDATE,
        ),
    )


# Large: a table of rules.
def _reclaimable() -> tuple[AdmissionRule, ...]:
    each = Each("done", _RECLAIMABLE, "done.name")
    was = Each("was", _WAS_RECLAIMABLE, "was.name")
    counted = f"{_POD_SETS}.filter(p, p.name == %s)"
    is_scaled_down = (
        "variables.elastic && object.?status.?admission.?podSetAssignments.orValue([]).exists(a, a.name == %s && "
        f"has(a.count) && a.count > {_POD_SETS}.filter(p, p.name == a.name).map(p, p.count).sum())"
    )
    both = f"variables.reserved && variables.wasReserved && {_WAS_RECLAIMABLE} != {_RECLAIMABLE}"
    return (
        AdmissionRule(
            name="reclaimable-name",
            field="status.reclaimablePods[].name",
            each=(each,),
            holds=f"{_POD_SETS}.exists(p, p.name == done.name)",
            error=ErrorType.NOT_SUPPORTED,
            value="done.name",
            detail_cel=f"'supported values: ' + {_NAMES}",
        ),
        AdmissionRule(
            name="reclaimable-count",
            field="status.reclaimablePods[].count",
            each=(each,),
            holds=f"{counted % 'done.name'}.all(p, done.count <= p.count) || variables.elastic && oldObject != null && "
            f"{_WAS_RECLAIMABLE}.exists(o, o.name == done.name && o.count == done.count)",
            value="done.count",
            detail_cel=f"'should be less or equal to ' + {counted % 'done.name'}.map(p, string(p.count)).join('')",
        ),
        AdmissionRule(
            name="reclaimable-decreased",
            field="status.reclaimablePods[].count",
            each=(each,),
            when=both,
            holds=f"{_WAS_RECLAIMABLE}.all(o, o.name != done.name || o.count <= done.count) || "
            f"({is_scaled_down % 'done.name'})",
            value="done.count",
            detail_cel="'cannot be less than ' + "
            f"{_WAS_RECLAIMABLE}.filter(o, o.name == done.name).map(o, string(o.count)).join('')",
            operations=UPDATE,
        ),
        AdmissionRule(
            name="reclaimable-removed",
            field="status.reclaimablePods[]",
            each=(was,),
            when=both,
            holds=f"{_RECLAIMABLE}.exists(r, r.name == was.name) || ({is_scaled_down % 'was.name'})",
            error=ErrorType.REQUIRED,
            detail="cannot be removed",
            operations=UPDATE,
        ),
    )


def _immutable_pod_sets() -> tuple[AdmissionRule, ...]:
    """While quota is reserved, pod sets stay as they are; elastic jobs may shrink."""

    def rule(name: str, gates: tuple[str, ...], counts: str) -> AdmissionRule:
        same = "['name', 'template', 'minCount', 'topologyRequest'].all(k, podSet[?k] == old[podSet_i][?k])"
        return AdmissionRule(
            name=name,
            field="spec.podSets[]",
            each=(_POD_SET,),
            when="variables.wasReserved && size(variables.oldPodSets) == size(object.spec.podSets)",
            holds=f"{same} && podSet.count {counts} old[podSet_i].count".replace("old[", "variables.oldPodSets["),
            value="podSet",
            detail=IMMUTABLE,
            operations=UPDATE,
            gates=gates,
        )

    return (
        AdmissionRule(
            name="pod-sets-number",
            field="spec.podSets",
            when="variables.wasReserved",
            holds="size(variables.oldPodSets) == size(object.spec.podSets)",
            value="object.spec.podSets",
            detail=IMMUTABLE,
            operations=UPDATE,
        ),
        rule("pod-set-immutable", (f"!{ELASTIC_GATE}",), "=="),
        rule("pod-set-grown", _SLICES, "<="),
    )


def _cluster_name() -> tuple[AdmissionRule, ...]:
    nominated = "oldObject.?status.?nominatedClusterNames.orValue([])"

    def rule(name: str, gates: tuple[str, ...], otherwise: str) -> AdmissionRule:
        return AdmissionRule(
            name=name,
            field="status.clusterName",
            when="!oldObject.?status.?clusterName.hasValue() && object.?status.?clusterName.hasValue()" + otherwise,
            holds=f"object.status.clusterName in {nominated}",
            value="object.status.clusterName",
            detail="when setting clusterName it must be one of the nominatedClusterNames",
            operations=UPDATE,
            gates=gates,
        )

    replaces = f" && !{ANNOTATIONS}[?'{REPLACEMENT_FOR}'].hasValue()"
    return (rule("cluster-name", _SLICES, replaces), rule("cluster-name-strictly", (f"!{ELASTIC_GATE}",), ""))


def _boost() -> tuple[AdmissionRule, ...]:
    value = f"{ANNOTATIONS}[?'{PRIORITY_BOOST}'].orValue('0')"
    base = {"field": f"metadata.annotations[{PRIORITY_BOOST}]", "value": value, "gates": ("PriorityBoost",)}
    return (
        AdmissionRule(
            name="boost-empty",
            holds=f"{value} != ''",
            detail='must be a valid signed integer; use "0" explicitly, empty string is not allowed',
            operations=BOTH,
            **base,  # type: ignore[arg-type]
        ),
        AdmissionRule(
            name="boost",
            holds=f"{value} == '' || {value}.matches('^[-+]?[0-9]{{1,10}}$') && "
            f"int({value}) >= -2147483648 && int({value}) <= 2147483647",
            detail="must be a valid signed integer",
            operations=BOTH,
            **base,  # type: ignore[arg-type]
        ),
    )


WORKLOAD: Final = AdmissionTarget(
    group=GROUP,
    version=VERSION,
    kind="Workload",
    plural="workloads",
    subresources=("status",),
    variables=(*VARIABLES, Variable("oldPodSets", "oldObject.spec.?podSets.orValue([])")),
    defaults=(
        Default(
            name="min-counts",
            when="variables.minCounts > 0",
            changes=(FieldChange(path=("spec", "podSets", "[]", "minCount")),),
            gates=("!PartialAdmission",),
        ),
    ),
    rules=(
        *_metadata(),
        *_resources(),
        *_slices(),
        *_counts(),
        *_admission(),
        *_reclaimable(),
        *_admission_checks(),
        *gated_by(),
        *_boost(),
        *_immutable_pod_sets(),
        *_cluster_name(),
    ),
)
