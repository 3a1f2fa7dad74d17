"""
Topology spread and pod affinity by their definitions: each answer from all nodes and all pods on them.

A plain rendering of podtopologyspread/{filtering,scoring}.go and interpodaffinity/{filtering,scoring}.go, by which the
counts that are kept are held.
"""

import math
from collections.abc import Iterator, Mapping

from headgate.core.kubernetes.selectors import matches_labels, matches_node, untolerated_taint
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.owners import Namespace, ReplicaSet, Service
from headgate.core.placement.objects.pods import PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from headgate.core.placement.pods import PodInfo
from headgate.events.objects import LabelSelector, Requirement

HOSTNAME = "kubernetes.io/hostname"
SKEWED = "node(s) didn't match pod topology spread constraints"
NO_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
NOT_NEAR = "node(s) didn't match pod affinity rules"
TOO_NEAR = "node(s) didn't match pod anti-affinity rules"
UNWANTED = "node(s) didn't satisfy existing pods anti-affinity rules"

Constraints = list[TopologySpreadConstraint]


def nodes_of(cluster: PlacementCluster) -> list[NodeInfo]:
    """All nodes."""
    return list(cluster.columns.nodes())


def labels_of(node: NodeInfo) -> Mapping[str, str]:
    """The labels of a node."""
    return node.node.metadata.labels


# --- topology spread -----------------------------------------------------------------------------------------------


def own_constraints(pod: PodInfo, action: str) -> Constraints:
    """The constraints of a pod with this action."""
    return [each for each in pod.spec.topology_spread_constraints if each.when_unsatisfiable == action]


def default_constraints(cluster: PlacementCluster, pod: PodInfo, defaults: Constraints, action: str) -> Constraints:
    """The default constraints with what selects the pod: Services, and the ReplicaSet that owns it."""
    requirements: list[Requirement] = []
    for service in cluster.objects(Service).values():
        wanted = service.spec.selector
        if service.metadata.namespace == pod.namespace and wanted and wanted.items() <= pod.labels.items():
            requirements += [Requirement(key=key, operator="In", values=(value,)) for key, value in wanted.items()]
    if pod.shape.controller is not None:
        owner = cluster.objects(ReplicaSet).get(f"{pod.namespace}/{pod.shape.controller.name}")
        if owner is not None and owner.spec.selector is not None:
            given = owner.spec.selector
            requirements += [Requirement(key=k, operator="In", values=(v,)) for k, v in given.match_labels.items()]
            requirements += given.match_expressions
    if not requirements:
        return []
    selector = LabelSelector(match_expressions=tuple(requirements))
    return [
        TopologySpreadConstraint(
            max_skew=each.max_skew,
            topology_key=each.topology_key,
            when_unsatisfiable=each.when_unsatisfiable,
            label_selector=selector,
        )
        for each in defaults
        if each.when_unsatisfiable == action
    ]


def is_selected(constraint: TopologySpreadConstraint, pod: PodInfo, labels: Mapping[str, str]) -> bool:
    """Whether a constraint of a pod selects labels."""
    if not matches_labels(constraint.label_selector, labels):
        return False
    return all(labels.get(key) == pod.labels[key] for key in constraint.match_label_keys if key in pod.labels)


def requires_nothing(constraint: TopologySpreadConstraint, pod: PodInfo) -> bool:
    """Whether a constraint selects all pods."""
    selector = constraint.label_selector
    keys = [key for key in constraint.match_label_keys if key in pod.labels]
    return selector is not None and not selector.match_labels and not selector.match_expressions and not keys


def counted_on(node: NodeInfo, constraint: TopologySpreadConstraint, pod: PodInfo) -> int:
    """How many pods of a node a constraint counts."""
    if requires_nothing(constraint, pod):
        return 0
    return sum(
        not each.is_terminating and each.namespace == pod.namespace and is_selected(constraint, pod, each.labels)
        for each in node.pods.values()
    )


def is_included(node: NodeInfo, constraint: TopologySpreadConstraint, pod: PodInfo) -> bool:
    """Whether the policies of a constraint include a node."""
    if constraint.node_affinity_policy != "Ignore" and not matches_node(pod.spec, labels_of(node), node.name):
        return False
    is_honored = constraint.node_taints_policy == "Honor"
    return not is_honored or untolerated_taint(node.node.spec.taints, pod.spec.tolerations) is None


def spread_counts(cluster: PlacementCluster, pod: PodInfo, constraints: Constraints) -> list[dict[str, int]]:
    """Per hard constraint the count of each domain."""
    counts: list[dict[str, int]] = [{} for _ in constraints]
    for node in nodes_of(cluster):
        if not all(each.topology_key in labels_of(node) for each in constraints):
            continue
        for each, of_domain in zip(constraints, counts, strict=True):
            if is_included(node, each, pod):
                value = labels_of(node)[each.topology_key]
                of_domain[value] = of_domain.get(value, 0) + counted_on(node, each, pod)
    return counts


def spread_reasons(cluster: PlacementCluster, pod: PodInfo, constraints: Constraints) -> dict[str, str]:
    """Why each node is refused; those that are not are absent."""
    counts = spread_counts(cluster, pod, constraints)
    refused: dict[str, str] = {}
    for node in nodes_of(cluster):
        for each, of_domain in zip(constraints, counts, strict=True):
            value = labels_of(node).get(each.topology_key)
            if value is None:
                refused[node.name] = NO_LABEL
                break
            lowest = 0 if len(of_domain) < (each.min_domains or 1) else min(of_domain.values())
            if of_domain.get(value, 0) + is_selected(each, pod, pod.labels) - lowest > each.max_skew:
                refused[node.name] = SKEWED
                break
    return refused


def spread_scores(
    cluster: PlacementCluster, pod: PodInfo, constraints: Constraints, feasible: list[NodeInfo], *, requires_keys: bool
) -> tuple[list[int], list[int]] | None:
    """The raw and the normalised scores of the feasible nodes; None without constraints."""
    if not constraints:
        return None

    def is_ignored(node: NodeInfo) -> bool:
        return requires_keys and not all(each.topology_key in labels_of(node) for each in constraints)

    scored = [node for node in feasible if not is_ignored(node)]
    raw = [0.0] * len(feasible)
    for each in constraints:
        key = each.topology_key
        counts = {labels_of(node).get(key, ""): 0 for node in scored}
        for node in nodes_of(cluster):
            value = labels_of(node).get(key, "")
            if not is_ignored(node) and is_included(node, each, pod) and value in counts:
                counts[value] += counted_on(node, each, pod)
        weight = math.log((len(scored) if key == HOSTNAME else len(counts)) + 2)
        for place, node in enumerate(feasible):
            if key in labels_of(node) and not is_ignored(node):
                count = counted_on(node, each, pod) if key == HOSTNAME else counts[labels_of(node)[key]]
                raw[place] += count * weight + (each.max_skew - 1)
    rounded = [int(math.floor(score) + (score % 1 >= 0.5)) for score in raw]
    counted = [score for score, node in zip(rounded, feasible, strict=True) if not is_ignored(node)]
    highest = max(counted, default=0)
    return rounded, [
        0 if is_ignored(node) else 100 * (highest + min(counted) - score) // highest if highest else 100
        for score, node in zip(rounded, feasible, strict=True)
    ]


# --- pod affinity --------------------------------------------------------------------------------------------------


def required(affinity: PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
    """The required terms."""
    return affinity.required_during_scheduling_ignored_during_execution if affinity is not None else ()


def near(pod: PodInfo) -> tuple[PodAffinityTerm, ...]:
    """The terms of required affinity."""
    return required(pod.spec.affinity.pod_affinity) if pod.spec.affinity is not None else ()


def far(pod: PodInfo) -> tuple[PodAffinityTerm, ...]:
    """The terms of required anti-affinity."""
    return required(pod.spec.affinity.pod_anti_affinity) if pod.spec.affinity is not None else ()


def preferred(pod: PodInfo) -> Iterator[tuple[PodAffinityTerm, int]]:
    """The preferred terms with their weights, those of anti-affinity negative."""
    affinity = pod.spec.affinity
    if affinity is None:
        return
    for sign, terms in ((1, affinity.pod_affinity), (-1, affinity.pod_anti_affinity)):
        for each in terms.preferred_during_scheduling_ignored_during_execution if terms is not None else ():
            yield each.pod_affinity_term, sign * each.weight


def names_of(term: PodAffinityTerm, owner: PodInfo) -> tuple[str, ...]:
    """The namespaces that a term names: its owner's if it says nothing of namespaces."""
    return term.namespaces or ((owner.namespace,) if term.namespace_selector is None else ())


def incoming_means(cluster: PlacementCluster, term: PodAffinityTerm, owner: PodInfo, pod: PodInfo) -> bool:
    """Whether a term of an incoming pod means a pod on a node."""
    selected = [
        name
        for name, each in cluster.objects(Namespace).items()
        if matches_labels(term.namespace_selector, each.metadata.labels)
    ]
    is_any = matches_labels(term.namespace_selector, {})
    is_there = is_any or pod.namespace in (*names_of(term, owner), *selected)
    return is_there and matches_labels(term.label_selector, pod.labels)


def existing_means(cluster: PlacementCluster, term: PodAffinityTerm, owner: PodInfo, pod: PodInfo) -> bool:
    """Whether a term of a pod on a node means an incoming pod."""
    namespace = cluster.objects(Namespace).get(pod.namespace)
    labels = namespace.metadata.labels if namespace is not None else {}
    is_there = pod.namespace in names_of(term, owner) or matches_labels(term.namespace_selector, labels)
    return is_there and matches_labels(term.label_selector, pod.labels)


def pods_of(cluster: PlacementCluster) -> Iterator[tuple[NodeInfo, PodInfo]]:
    """All pods on nodes."""
    for node in nodes_of(cluster):
        for pod in node.pods.values():
            yield node, pod


def is_together(one: NodeInfo, other: NodeInfo, key: str) -> bool:
    """Whether two nodes are in the same domain."""
    return key in labels_of(one) and labels_of(one)[key] == labels_of(other).get(key)


def affinity_reason(cluster: PlacementCluster, pod: PodInfo, node: NodeInfo) -> str:
    """Why a node is refused; "" if it is not."""
    if not is_near(cluster, pod, node):
        return NOT_NEAR
    for other, existing in pods_of(cluster):
        for term in far(pod):
            if is_together(node, other, term.topology_key) and incoming_means(cluster, term, pod, existing):
                return TOO_NEAR
    for other, existing in pods_of(cluster):
        for term in far(existing):
            if is_together(node, other, term.topology_key) and existing_means(cluster, term, existing, pod):
                return UNWANTED
    return ""


def is_near(cluster: PlacementCluster, pod: PodInfo, node: NodeInfo) -> bool:
    """Whether a node is near to what the affinity of a pod requires, or may take the first of a group."""
    terms = near(pod)
    if not all(term.topology_key in labels_of(node) for term in terms):
        return False
    meant = [
        (other, existing)
        for other, existing in pods_of(cluster)
        if all(incoming_means(cluster, term, pod, existing) for term in terms)
    ]
    if all(any(is_together(node, other, term.topology_key) for other, _ in meant) for term in terms):
        return True
    is_first = not any(term.topology_key in labels_of(other) for other, _ in meant for term in terms)
    return is_first and all(incoming_means(cluster, term, pod, pod) for term in terms)


def affinity_scores(
    cluster: PlacementCluster, pod: PodInfo, feasible: list[NodeInfo], *, hard_weight: int, ignores_others: bool
) -> tuple[list[int], list[int]] | None:
    """The raw and the normalised scores of the feasible nodes; None if no term applies anywhere."""
    if ignores_others and not list(preferred(pod)):
        return None
    sums: dict[tuple[str, str], int] = {}
    for other, existing in pods_of(cluster):
        meant = [(t, weight) for t, weight in preferred(pod) if incoming_means(cluster, t, pod, existing)]
        meant += [(t, weight) for t, weight in preferred(existing) if existing_means(cluster, t, existing, pod)]
        if hard_weight:
            meant += [(t, hard_weight) for t in near(existing) if existing_means(cluster, t, existing, pod)]
        for term, weight in meant:
            if term.topology_key in labels_of(other):
                pair = (term.topology_key, labels_of(other)[term.topology_key])
                sums[pair] = sums.get(pair, 0) + weight
    if not sums:
        return None
    raw = [sum(sums.get(pair, 0) for pair in labels_of(node).items()) for node in feasible]
    lowest, spread = min(raw), max(raw) - min(raw)
    return raw, [int(100 * ((score - lowest) / spread)) if spread else 0 for score in raw]
