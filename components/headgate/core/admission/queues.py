"""The rules of ClusterQueues, Cohorts and ResourceFlavors (`pkg/webhooks` of Kueue 0.19)."""
# Over 400 lines: the tables of rules of kinds that have much in common.

from typing import Final

from headgate.core.admission.names import label_key, label_value
from headgate.core.admission.rules import (
    UPDATE,
    AdmissionOperation,
    AdmissionRule,
    AdmissionTarget,
    Default,
    Each,
    ErrorType,
    FieldChange,
)
from headgate.core.api.names import FINALIZER

GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"
NEGATIVE: Final = "must be greater than or equal to 0"
IMMUTABLE: Final = "field is immutable"
IN_GROUP_MAX: Final = 512
IN_QUEUE_MAX: Final = 256
CONCURRENT_FLAVORS_MAX: Final = 16

_GROUPS: Final = "object.?spec.?resourceGroups.orValue([])"
_GROUP: Final = Each("group", _GROUPS)
_NAME: Final = Each("covered", "group.?coveredResources.orValue([])")
_FLAVOR: Final = Each("flavor", "group.?flavors.orValue([])")
_RESOURCE: Final = Each("resource", "flavor.?resources.orValue([])")
_QUOTA: Final = "spec.resourceGroups[].flavors[].resources[]"
_QUOTAS: Final = (_GROUP, _FLAVOR, _RESOURCE)
_FLAVOR_NAMES: Final = f"{_GROUPS}.exists(g, g.?flavors.orValue([]).exists(f, f.name == %s))"
_SORTED_FLAVORS: Final = f"{_GROUPS}.map(g, g.?flavors.orValue([]).map(f, '\"' + f.name + '\"').join(', ')).join(', ')"
_POLICY: Final = "object.?spec.?concurrentAdmissionPolicy.hasValue()"
_CONCURRENT: Final = ("ConcurrentAdmission",)
_CONSTRAINTS: Final = "object.?spec.?concurrentAdmissionPolicy.?migration.?constraints"
_MODE: Final = "object.?spec.?concurrentAdmissionPolicy.?migration.?mode.orValue('')"


def _quantity(of: str) -> str:
    return f"quantity(string({of}))"


def _non_negative(name: str) -> AdmissionRule:
    return AdmissionRule(
        name=f"{name}-negative",
        field=f"{_QUOTA}.{name}",
        each=_QUOTAS,
        holds=f"!has(resource.{name}) || !{_quantity(f'resource.{name}')}.isLessThan(quantity('0'))",
        value=f"string(resource.{name})",
        detail=NEGATIVE,
    )


def _needs_parent(name: str, parent: str, word: str) -> AdmissionRule:
    return AdmissionRule(
        name=f"{name}-without-{word}",
        field=f"{_QUOTA}.{name}",
        each=_QUOTAS,
        holds=f"!has(resource.{name}) || object.?spec.?{parent}.orValue('') != ''",
        value=f"string(resource.{name})",
        detail=f"must be nil when {word} is empty",
    )


# Large: a table of rules.
def _resource_groups(parent: str, word: str) -> tuple[AdmissionRule, ...]:
    """What ClusterQueues and Cohorts have in common: names once each, in order, and no negative amounts."""
    return (
        *label_key(
            AdmissionRule(
                name="resource-name",
                field="spec.resourceGroups[].coveredResources[]",
                each=(_GROUP, _NAME),
                holds="",
                value="covered",
            ),
            "covered",
        ),
        AdmissionRule(
            name="resource-twice",
            field="spec.resourceGroups[].coveredResources[]",
            each=(_GROUP, _NAME),
            holds=f"!{_GROUPS}.exists(j, g, g.?coveredResources.orValue([]).exists(k, r, "
            "r == covered && (j < group_i || j == group_i && k < covered_i)))",
            error=ErrorType.DUPLICATE,
            value="covered",
        ),
        AdmissionRule(
            name="resource-order",
            field=f"{_QUOTA}.name",
            each=_QUOTAS,
            holds="resource_i >= size(group.coveredResources) || resource.name == group.coveredResources[resource_i]",
            value="resource.name",
            detail="must match the name in coveredResources",
        ),
        _non_negative("nominalQuota"),
        _needs_parent("borrowingLimit", parent, word),
        _non_negative("borrowingLimit"),
        _non_negative("lendingLimit"),
        _needs_parent("lendingLimit", parent, word),
        AdmissionRule(
            name="flavor-twice",
            field="spec.resourceGroups[].flavors[].name",
            each=(_GROUP, _FLAVOR),
            holds=f"!{_GROUPS}.exists(j, g, g.?flavors.orValue([]).exists(k, f, "
            "f.name == flavor.name && (j < group_i || j == group_i && k < flavor_i)))",
            error=ErrorType.DUPLICATE,
            value="flavor.name",
        ),
    )


def _fair_sharing() -> tuple[AdmissionRule, ...]:
    weight = _quantity("object.spec.fairSharing.weight")
    has = "object.?spec.?fairSharing.?weight.hasValue()"
    shown = "string(object.spec.fairSharing.weight)"
    return (
        AdmissionRule(
            name="weight-negative",
            field="spec.fairSharing",
            when=has,
            holds=f"!{weight}.isLessThan(quantity('0'))",
            value=shown,
            detail=NEGATIVE,
        ),
        AdmissionRule(
            name="weight-tiny",
            field="spec.fairSharing",
            when=has,
            holds=f"!{weight}.isGreaterThan(quantity('0')) || {weight}.isGreaterThan(quantity('1n'))",
            value=shown,
            detail="When not 0, weight must be > 10e-9",
        ),
    )


# Large: a table of rules.
def _selector() -> tuple[AdmissionRule, ...]:
    selector = "object.?spec.?namespaceSelector"
    expression = Each("expression", f"{selector}.?matchExpressions.orValue([])")
    matched = Each("matched", f"{selector}.?matchLabels.orValue({{}})")
    value = Each("listed", "expression.?values.orValue([])")
    field = "spec.namespaceSelector.matchExpressions[]"
    return (
        *label_key(
            AdmissionRule(
                name="selector-label",
                field="spec.namespaceSelector.matchLabels",
                each=(matched,),
                holds="",
                value="matched_i",
            ),
            "matched_i",
        ),
        *label_value(
            AdmissionRule(
                name="selector-label-value",
                field="spec.namespaceSelector.matchLabels",
                each=(matched,),
                holds="",
                value="matched",
            ),
            "matched",
        ),
        AdmissionRule(
            name="selector-operator",
            field=f"{field}.operator",
            each=(expression,),
            holds="expression.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist']",
            value="expression.operator",
            detail="not a valid selector operator",
        ),
        AdmissionRule(
            name="selector-values-missing",
            field=f"{field}.values",
            each=(expression,),
            holds="!(expression.operator in ['In', 'NotIn']) || size(expression.?values.orValue([])) > 0",
            error=ErrorType.REQUIRED,
            detail="must be specified when `operator` is 'In' or 'NotIn'",
        ),
        AdmissionRule(
            name="selector-values-given",
            field=f"{field}.values",
            each=(expression,),
            holds="!(expression.operator in ['Exists', 'DoesNotExist']) || size(expression.?values.orValue([])) == 0",
            error=ErrorType.FORBIDDEN,
            detail="may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        *label_key(
            AdmissionRule(
                name="selector-key", field=f"{field}.key", each=(expression,), holds="", value="expression.key"
            ),
            "expression.key",
        ),
        *label_value(
            AdmissionRule(
                name="selector-value",
                field=f"{field}.values[]",
                each=(expression, value),
                holds="",
                value="listed",
            ),
            "listed",
        ),
    )


def _totals() -> tuple[AdmissionRule, ...]:
    flavors = f"{_GROUPS}.map(g, size(g.?flavors.orValue([]))).sum()"
    resources = f"{_GROUPS}.map(g, size(g.?coveredResources.orValue([]))).sum()"
    in_group = "group.?flavors.orValue([]).map(f, size(f.?resources.orValue([]))).sum()"
    return (
        AdmissionRule(
            name="flavors-total",
            field="spec.resourceGroups",
            holds=f"{flavors} <= {IN_QUEUE_MAX}",
            value=flavors,
            detail_cel=f"'total number of flavors across all resourceGroups must be ≤ {IN_QUEUE_MAX}, got ' + "
            f"string({flavors})",
        ),
        AdmissionRule(
            name="resources-total",
            field="spec.resourceGroups",
            holds=f"{resources} <= {IN_QUEUE_MAX}",
            value=resources,
            detail_cel="'total number of covered resources across all resourceGroups must be "
            f"≤ {IN_QUEUE_MAX}, got ' + string({resources})",
        ),
        AdmissionRule(
            name="combinations",
            field="spec.resourceGroups[]",
            each=(_GROUP,),
            holds=f"{in_group} <= {IN_GROUP_MAX}",
            value=in_group,
            detail_cel="'number of flavor-resource combinations in a resourceGroup must be "
            f"≤ {IN_GROUP_MAX}, got ' + string({in_group})",
        ),
    )


def _policies() -> tuple[AdmissionRule, ...]:
    """Preemption and fungibility; the definitions of the kinds refuse these, too."""
    return (
        AdmissionRule(
            name="preemption-borrow-without-reclaim",
            field="spec.preemption",
            holds="!(object.?spec.?preemption.?reclaimWithinCohort.orValue('') == 'Never' && "
            "has(object.spec.preemption.borrowWithinCohort) && "
            "object.spec.preemption.borrowWithinCohort.?policy.orValue('') != 'Never')",
            detail="reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        ),
        AdmissionRule(
            name="fungibility-preference",
            field="spec.flavorFungibility.preference",
            when="object.?spec.?flavorFungibility.?preference.hasValue()",
            holds="object.spec.flavorFungibility.?whenCanBorrow.orValue('') == 'TryNextFlavor' && "
            "object.spec.flavorFungibility.?whenCanPreempt.orValue('') == 'TryNextFlavor'",
            value="object.spec.flavorFungibility.preference",
            detail_cel="'preference \"' + object.spec.flavorFungibility.preference + "
            "'\" requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor'",
        ),
    )


# Large: a table of rules.
def _concurrent() -> tuple[AdmissionRule, ...]:
    constraints = "spec.concurrentAdmissionPolicy.migration.constraints"
    last = f"{_CONSTRAINTS}.?lastAcceptableFlavorName"
    return (
        AdmissionRule(
            name="concurrent-one-group",
            field="spec.resourceGroups",
            when=_POLICY,
            holds=f"size({_GROUPS}) == 1",
            value=f"size({_GROUPS})",
            detail="must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined",
            gates=_CONCURRENT,
        ),
        AdmissionRule(
            name="concurrent-flavors",
            field="spec.resourceGroups[0].flavors",
            when=f"{_POLICY} && size({_GROUPS}) == 1",
            holds=f"size(object.spec.resourceGroups[0].?flavors.orValue([])) <= {CONCURRENT_FLAVORS_MAX}",
            value="size(object.spec.resourceGroups[0].?flavors.orValue([]))",
            detail=f"cannot have more than {CONCURRENT_FLAVORS_MAX} resource flavors in the ResourceGroup when "
            "ConcurrentAdmissionPolicy is defined",
            gates=_CONCURRENT,
        ),
        AdmissionRule(
            name="concurrent-mode",
            field=constraints,
            when=f"{_POLICY} && {_CONSTRAINTS}.hasValue()",
            holds=f"{_MODE} in ['', 'TryPreferredFlavors']",
            error=ErrorType.FORBIDDEN,
            detail_cel=f"'may only be set when migration.mode is \"TryPreferredFlavors\" (got \"' + {_MODE} + '\")'",
            gates=_CONCURRENT,
        ),
        AdmissionRule(
            name="concurrent-last-flavor",
            field=f"{constraints}.lastAcceptableFlavorName",
            when=f"{_POLICY} && {last}.hasValue() && {_MODE} in ['', 'TryPreferredFlavors']",
            holds=_FLAVOR_NAMES % f"{last}.orValue('')",
            value=f"{last}.orValue('')",
            detail_cel="'must be one of the flavors defined in the ClusterQueue: [' + "
            f"{_GROUPS}.map(g, g.?flavors.orValue([]).map(f, f.name).join(' ')).join(' ') + ']'",
            gates=_CONCURRENT,
        ),
        AdmissionRule(
            name="concurrent-fifo",
            field="spec.queueingStrategy",
            when=_POLICY,
            holds="object.?spec.?queueingStrategy.orValue('') != 'StrictFIFO'",
            value="object.spec.queueingStrategy",
            detail="StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined",
            gates=_CONCURRENT,
        ),
        AdmissionRule(
            name="concurrent-immutable",
            field="spec.concurrentAdmissionPolicy",
            holds="object.?spec.?concurrentAdmissionPolicy.orValue({}) == "
            "oldObject.?spec.?concurrentAdmissionPolicy.orValue({})",
            value="object.?spec.?concurrentAdmissionPolicy.orValue({})",
            detail=IMMUTABLE,
            operations=UPDATE,
        ),
    )


def _on_flavors() -> tuple[AdmissionRule, ...]:
    check = Each("check", "object.?spec.?admissionChecksStrategy.?admissionChecks.orValue([])")
    flavor = Each("on", "check.?onFlavors.orValue([])")
    old_groups = "oldObject.?spec.?resourceGroups.orValue([])"
    old_checks = "oldObject.?spec.?admissionChecksStrategy.?admissionChecks.orValue([])"
    names = "%s.map(g, g.?flavors.orValue([]).map(f, f.name).join('/')).join('/')"
    is_as_before = (
        f"{names % _GROUPS} == {names % old_groups} && {old_checks}.exists(c, c.name == check.name && "
        "c.?onFlavors.orValue([]).all(f, f in check.onFlavors) && "
        "check.onFlavors.all(f, f in c.?onFlavors.orValue([])))"
    )

    def rule(name: str, operation: AdmissionOperation, gates: tuple[str, ...], exempt: str) -> AdmissionRule:
        return AdmissionRule(
            name=name,
            field="spec.admissionChecksStrategy.admissionChecks[].onFlavors[]",
            each=(check, flavor),
            when=f"!({exempt})" if exempt else "",
            holds=_FLAVOR_NAMES % "on",
            error=ErrorType.NOT_SUPPORTED,
            value="on",
            detail_cel=f"'supported values: ' + {_SORTED_FLAVORS}",
            operations=(operation,),
            gates=gates,
        )

    gate = "RejectUpdatesToCQWithInvalidOnFlavors"
    return (
        rule("on-flavors", AdmissionOperation.CREATE, (), ""),
        rule("on-flavors-strictly", AdmissionOperation.UPDATE, (gate,), ""),
        rule("on-flavors-changed", AdmissionOperation.UPDATE, (f"!{gate}",), is_as_before),
    )


def _in_use(name: str) -> Default:
    """The finalizer that keeps an object in use from being deleted."""
    return Default(
        name=name,
        when=f"!('{FINALIZER}' in object.metadata.?finalizers.orValue([]))",
        changes=(FieldChange(path=("metadata", "finalizers"), value=f"'{FINALIZER}'", appends=True),),
    )


CLUSTER_QUEUE: Final = AdmissionTarget(
    group=GROUP,
    version=VERSION,
    kind="ClusterQueue",
    plural="clusterqueues",
    defaults=(_in_use("finalizer"),),
    rules=(
        *_resource_groups("cohortName", "cohort"),
        AdmissionRule(
            name="lendingLimit-above-quota",
            field=f"{_QUOTA}.lendingLimit",
            each=_QUOTAS,
            when="has(resource.lendingLimit)",
            holds=f"!{_quantity('resource.lendingLimit')}.isGreaterThan({_quantity('resource.nominalQuota')})",
            value="string(resource.lendingLimit)",
            detail="must be less than or equal to the nominalQuota",
        ),
        *_selector(),
        *_policies(),
        *_fair_sharing(),
        *_totals(),
        *_concurrent(),
        *_on_flavors(),
    ),
)

COHORT: Final = AdmissionTarget(
    group=GROUP,
    version=VERSION,
    kind="Cohort",
    plural="cohorts",
    rules=(*_fair_sharing(), *_resource_groups("parentName", "parent")),
)

_NODE_LABEL: Final = Each("labelled", "object.?spec.?nodeLabels.orValue({})")
_TAINT: Final = Each("taint", "object.?spec.?nodeTaints.orValue([])")
_TOLERATION: Final = Each("toleration", "object.?spec.?tolerations.orValue([])")

RESOURCE_FLAVOR: Final = AdmissionTarget(
    group=GROUP,
    version=VERSION,
    kind="ResourceFlavor",
    plural="resourceflavors",
    defaults=(_in_use("finalizer"),),
    rules=(
        *label_key(
            AdmissionRule(
                name="node-label", field="spec.nodeLabels", each=(_NODE_LABEL,), holds="", value="labelled_i"
            ),
            "labelled_i",
        ),
        *label_value(
            AdmissionRule(
                name="node-label-value", field="spec.nodeLabels", each=(_NODE_LABEL,), holds="", value="labelled"
            ),
            "labelled",
        ),
        *label_key(
            AdmissionRule(name="taint-key", field="spec.nodeTaints[].key", each=(_TAINT,), holds="", value="taint.key"),
            "taint.key",
        ),
        *label_value(
            AdmissionRule(
                name="taint-value",
                field="spec.nodeTaints[].value",
                each=(_TAINT,),
                holds="",
                value="taint.?value.orValue('')",
            ),
            "taint.?value.orValue('')",
        ),
        AdmissionRule(
            name="taint-twice",
            field="spec.nodeTaints[]",
            each=(_TAINT,),
            holds="!object.spec.nodeTaints.exists(j, t, j < taint_i && t.key == taint.key && t.effect == taint.effect)",
            error=ErrorType.DUPLICATE,
            value="taint",
            detail="taints must be unique by key and effect pair",
        ),
        *label_key(
            AdmissionRule(
                name="toleration-key",
                field="spec.tolerations[].key",
                each=(_TOLERATION,),
                when="toleration.?key.orValue('') != ''",
                holds="",
                value="toleration.key",
            ),
            "toleration.key",
        ),
    ),
)
