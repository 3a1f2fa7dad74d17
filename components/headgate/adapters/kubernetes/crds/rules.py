"""
The CEL rules of Kueue's kinds, by their place in the schema.

Rules and messages are those of Kueue 0.19.2's CustomResourceDefinitions; the rules of whole Workloads are equivalent
but worded differently. Further refusals of Kueue's webhooks (negative quotas, a flavor in two resource groups) are
rules of admission (`headgate.core.admission`), because Kueue's definitions do not have them either. The simulated API
server evaluates the same rules (`headgate.testing.cluster.validation.cel`), as far as they use CEL.
"""

from typing import Final

from headgate.adapters.kubernetes.crds.schema import Rule, Rules, RuleScope


def _holds(whose: str, condition: str) -> str:
    return (
        f"(has({whose}.status) && has({whose}.status.conditions) && "
        f"{whose}.status.conditions.exists(c, c.type == '{condition}' && c.status == 'True'))"
    )


_RESERVED: Final = _holds("self", "QuotaReserved")
_WAS_RESERVED: Final = _holds("oldSelf", "QuotaReserved")
_HAD_AND_HAS_CLASS: Final = "has(oldSelf.spec.priorityClassRef) && has(self.spec.priorityClassRef)"
_FORMER_SOURCE: Final = "has(oldSelf.spec.priorityClassSource) && has(self.spec.priorityClassSource)"
_FORMER_NAME: Final = "has(oldSelf.spec.priorityClassName) && has(self.spec.priorityClassName)"
_IMMUTABLE: Final = Rule(rule="self == oldSelf", message="field is immutable")


def _unchanged(field: str) -> str:
    return f"(has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field}))"


def _seconds(whose: str) -> str:
    field = f"{whose}.spec.maximumExecutionTimeSeconds"
    return f"(has({field}) ? {field} : 0)"


# The cheapest operand that can decide a rule comes first: `||` stops there, and a search through the conditions in each
# of the rules would cost the API server a quarter of every write to an admitted Workload.
_WORKLOAD: Final = (
    Rule(
        rule="!has(self.status) || !has(self.status.admission) || "
        f"size(self.spec.podSets) == size(self.status.admission.podSetAssignments) || !{_RESERVED}",
        message="podSetAssignments must have the same number of podSets as the spec",
    ),
    Rule(
        rule=f"has(oldSelf.spec.priorityClassRef) == has(self.spec.priorityClassRef) || !{_WAS_RESERVED}",
        message="priorityClassRef is immutable while workload quota reserved",
        reach=RuleScope.CURRENT,
    ),
    *(
        Rule(
            rule=f"!({_HAD_AND_HAS_CLASS}) || "
            f"oldSelf.spec.priorityClassRef.{field} == self.spec.priorityClassRef.{field} || !{_WAS_RESERVED}",
            message=f"priorityClassRef.{field} is immutable while workload quota reserved",
            reach=RuleScope.CURRENT,
        )
        for field in ("group", "kind")
    ),
    Rule(
        rule=f"!({_HAD_AND_HAS_CLASS}) || oldSelf.spec.priorityClassRef.name == self.spec.priorityClassRef.name || "
        "self.spec.priorityClassRef.group != 'scheduling.k8s.io' || "
        f"self.spec.priorityClassRef.kind != 'PriorityClass' || !{_WAS_RESERVED}",
        message="priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
        reach=RuleScope.CURRENT,
    ),
    Rule(
        rule=f"!({_FORMER_SOURCE}) || oldSelf.spec.priorityClassSource == self.spec.priorityClassSource || "
        f"!{_WAS_RESERVED}",
        message="priorityClassSource is immutable while workload quota reserved",
        reach=RuleScope.FORMER,
    ),
    Rule(
        rule=f"!({_FORMER_SOURCE} && {_FORMER_NAME}) || "
        "oldSelf.spec.priorityClassName == self.spec.priorityClassName || "
        f"self.spec.priorityClassSource == 'kueue.x-k8s.io/workloadpriorityclass' || !{_WAS_RESERVED}",
        message="priorityClassName is immutable while workload quota reserved and priorityClassSource is not equal to "
        "kueue.x-k8s.io/workloadpriorityclass",
        reach=RuleScope.FORMER,
    ),
    Rule(
        rule=f"{_unchanged('spec.queueName')} || !({_WAS_RESERVED} && {_RESERVED})",
        message="queueName is immutable while workload quota reserved",
    ),
    Rule(
        rule=f"{_seconds('oldSelf')} == {_seconds('self')} || "
        f"!({_holds('oldSelf', 'Admitted')} && {_holds('self', 'Admitted')})",
        message="maximumExecutionTimeSeconds is immutable while workload quota reserved",
    ),
)

KUEUE_RULES: Final[Rules] = {
    "Taints": (
        Rule(
            rule="self.all(x, x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
            message="supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
        ),
    ),
    "Tolerations": (
        Rule(
            rule="self.all(x, !has(x.key) ? x.operator == 'Exists' : true)",
            message="operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
        ),
        Rule(
            rule="self.all(x, has(x.tolerationSeconds) ? x.effect == 'NoExecute' : true)",
            message="effect must be 'NoExecute' when 'tolerationSeconds' is set",
        ),
        Rule(
            rule="self.all(x, !has(x.operator) || x.operator in ['Equal', 'Exists'])",
            message="supported toleration values: 'Equal'(default), 'Exists'",
        ),
        Rule(
            rule="self.all(x, has(x.operator) && x.operator == 'Exists' ? !has(x.value) : true)",
            message="a value must be empty when 'operator' is 'Exists'",
        ),
        Rule(
            rule="self.all(x, !has(x.effect) || x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
            message="supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
        ),
    ),
    "ResourceGroup": (
        Rule(
            rule="self.flavors.all(x, size(x.resources) == size(self.coveredResources))",
            message="flavors must have the same number of resources as the coveredResources",
        ),
    ),
    "AdmissionCheck.spec.controllerName": (_IMMUTABLE,),
    "ClusterQueue.spec": tuple(
        Rule(
            rule=f"!has(self.{field}) && has(self.resourceGroups) ? "
            "self.resourceGroups.all(rg, rg.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit)))) : true",
            message="borrowingLimit must be nil when cohort is empty",
            reach=reach,
        )
        for field, reach in (("cohortName", RuleScope.CURRENT), ("cohort", RuleScope.FORMER))
    ),
    "ClusterQueue.spec.flavorFungibility": (
        Rule(
            rule="!has(self.preference) || "
            "(self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
            message="preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
        ),
    ),
    "ClusterQueue.spec.preemption": (
        Rule(
            rule="!(self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort) && "
            "self.borrowWithinCohort.policy != 'Never')",
            message="reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        ),
    ),
    "LocalQueue.spec.clusterQueue": (_IMMUTABLE,),
    "MultiKueueCluster.spec.clusterSource": (
        Rule(
            rule="has(self.kubeConfig) != has(self.clusterProfileRef)",
            message="exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
        ),
    ),
    "MultiKueueConfig.spec.clusters": (
        Rule(
            rule="size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0",
            message="must be unique",
        ),
    ),
    "ResourceFlavor.spec": (
        Rule(
            rule="!has(self.topologyName) || (has(self.nodeLabels) && self.nodeLabels.size() >= 1)",
            message="at least one nodeLabel is required when topology is set",
        ),
        *(
            Rule(
                rule=f"!has(oldSelf.topologyName) || {_unchanged(field)}",
                message=f"{field} are immutable when topologyName is set",
            )
            for field in ("nodeLabels", "tolerations")
        ),
        Rule(
            rule="!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
            message="topologyName is immutable when topologyName is set",
        ),
    ),
    "Topology.spec.levels": (
        _IMMUTABLE,
        Rule(
            rule="size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0",
            message="must be unique",
        ),
        Rule(
            rule="size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0 || "
            "self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
            message="the kubernetes.io/hostname label can only be used at the lowest level of topology",
        ),
    ),
    "TopologyAssignment": (
        Rule(
            rule="self.slices.all(x, size(x.valuesPerLevel) == size(self.levels))",
            message="valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
            reach=RuleScope.CURRENT,
        ),
    ),
    "TopologyAssignment.slices[]": (
        Rule(
            rule="!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
            message="podCounts.individual must have length equal to domainCount",
        ),
        Rule(
            rule="self.valuesPerLevel.all(x, !has(x.individual) || size(x.individual.roots) == self.domainCount)",
            message="valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this "
            "TopologyAssignmentSlice",
        ),
    ),
    **{
        place: (
            Rule(
                rule="has(self.universal) != has(self.individual)",
                message="exactly one of the fields in [universal individual] must be set",
            ),
        )
        for place in ("TopologyAssignment.slices[].podCounts", "TopologyAssignment.slices[].valuesPerLevel[]")
    },
    "Workload": _WORKLOAD,
    "Workload.spec": (
        Rule(
            rule="!has(self.priorityClassRef) || has(self.priority)",
            message="priority should not be nil when priorityClassRef is set",
            reach=RuleScope.CURRENT,
        ),
        Rule(
            rule="!has(self.priorityClassName) || has(self.priority)",
            message="priority should not be nil when priorityClassName is set",
            reach=RuleScope.FORMER,
        ),
    ),
    "Workload.spec.podSets[]": (
        Rule(
            rule="has(self.minCount) ? self.minCount <= self.count : true",
            message="minCount should be positive and less or equal to count",
        ),
    ),
    "Workload.spec.priorityClassRef": tuple(
        Rule(
            rule=f"(self.group == '{group}') ? self.kind == '{kind}' : true",
            message=f"only the {kind} kind is allowed for the {group} group",
        )
        for group, kind in (("scheduling.k8s.io", "PriorityClass"), ("kueue.x-k8s.io", "WorkloadPriorityClass"))
    ),
    "Workload.status": (
        Rule(
            rule="!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
            message="clusterName is immutable once set",
        ),
        Rule(
            rule="!has(self.clusterName) || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0",
            message="clusterName and nominatedClusterNames are mutually exclusive",
        ),
    ),
}
"""Every rule by its place."""
