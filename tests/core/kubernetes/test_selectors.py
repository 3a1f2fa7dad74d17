"""Selectors, taints and tolerations: as Kubernetes evaluates them."""

import pytest

from headgate.core.kubernetes.selectors import (
    matches_flavor,
    matches_labels,
    matches_node,
    matches_requirement,
    matches_term,
    taint_text,
    tolerates,
    untolerated_taint,
)
from headgate.events.objects import (
    Affinity,
    LabelSelector,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodSpec,
    Requirement,
    Taint,
    Toleration,
)

LABELS = {"zone": "a", "cores": "16"}


def need(key: str, operator: str, *values: str) -> Requirement:
    return Requirement(key=key, operator=operator, values=values)


def pod(*terms: NodeSelectorTerm, **selector: str) -> PodSpec:
    affinity = Affinity(
        node_affinity=NodeAffinity(
            required_during_scheduling_ignored_during_execution=NodeSelector(node_selector_terms=terms)
        )
    )
    return PodSpec(node_selector=selector, affinity=affinity if terms else None)


@pytest.mark.parametrize(
    ("requirement", "met"),
    [
        (need("zone", "In", "a", "b"), True),
        (need("zone", "In", "b"), False),
        (need("rack", "In", "a"), False),
        (need("zone", "NotIn", "b"), True),
        (need("zone", "NotIn", "a"), False),
        (need("rack", "NotIn", "a"), True),
        (need("zone", "Exists"), True),
        (need("rack", "Exists"), False),
        (need("rack", "DoesNotExist"), True),
        (need("zone", "DoesNotExist"), False),
        (need("cores", "Gt", "8"), True),
        (need("cores", "Gt", "16"), False),
        (need("cores", "Lt", "17"), True),
        (need("zone", "Gt", "8"), False),
        (need("cores", "Gt"), False),
        (need("cores", "Gt", "1_0"), False),
        (need("cores", "Gt", " 8"), False),
        (need("zone", "Matches", "a"), False),
    ],
)
def test_each_operator_decides_as_in_kubernetes(requirement: Requirement, met: bool) -> None:
    """NotIn and DoesNotExist are met by absence; Gt and Lt compare integers; an unknown operator is never met."""
    assert matches_requirement(requirement, LABELS) is met


def test_an_absent_selector_selects_nothing_and_an_empty_one_everything() -> None:
    """The difference between `namespaceSelector: {}` and none at all."""
    assert not matches_labels(None, LABELS)
    assert matches_labels(LabelSelector(), {})


def test_all_parts_of_a_label_selector_must_match() -> None:
    """Labels and expressions are ANDed."""
    selector = LabelSelector(match_labels={"zone": "a"}, match_expressions=(need("cores", "Exists"),))
    assert matches_labels(selector, LABELS)
    assert not matches_labels(selector, {"zone": "a"})
    assert not matches_labels(selector, {"zone": "b", "cores": "1"})


def test_an_empty_term_matches_no_node() -> None:
    """As in the API; and terms can match the node's name."""
    assert not matches_term(NodeSelectorTerm(), LABELS)
    by_name = NodeSelectorTerm(match_fields=(need("metadata.name", "In", "n1"),))
    assert matches_term(by_name, {}, "n1")
    assert not matches_term(by_name, {}, "n2")


def test_a_node_must_meet_selector_and_one_of_the_terms() -> None:
    """NodeSelector AND (term OR term)."""
    spec = pod(
        NodeSelectorTerm(match_expressions=(need("rack", "Exists"),)),
        NodeSelectorTerm(match_expressions=(need("cores", "Gt", "8"),)),
        zone="a",
    )
    assert matches_node(spec, LABELS, "n")
    assert not matches_node(spec, {"zone": "a"}, "n")
    assert not matches_node(spec, {"zone": "b", "cores": "16"}, "n")


def test_a_flavor_is_asked_only_about_its_own_keys() -> None:
    """A selector of another key does not restrict this flavor; one of its own keys must match."""
    assert matches_flavor(PodSpec(node_selector={"disk": "ssd"}), {"zone": "a"})
    assert not matches_flavor(PodSpec(node_selector={"zone": "b", "disk": "ssd"}), {"zone": "a"})


def test_a_term_without_the_flavors_keys_makes_its_affinity_void() -> None:
    """Terms are alternatives: one that any flavor meets lets every flavor pass, at any place."""
    wrong = NodeSelectorTerm(match_expressions=(need("zone", "In", "b"),))
    other = NodeSelectorTerm(match_expressions=(need("disk", "In", "ssd"),))
    assert not matches_flavor(pod(wrong), {"zone": "a"})
    assert matches_flavor(pod(wrong, other), {"zone": "a"})
    assert matches_flavor(pod(other, wrong), {"zone": "a"})
    assert not matches_flavor(pod(wrong, other, zone="b"), {"zone": "a"})


TAINT = Taint(key="k", value="v", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "does"),
    [
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", operator="Equal", value="w"), False),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="k", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="k", operator="Exists", effect="NoSchedule"), True),
        (Toleration(key="k", operator="Like", value="v"), False),
    ],
)
def test_a_toleration_covers_what_it_names(toleration: Toleration, does: bool) -> None:
    """An empty effect covers every effect, an empty key with Exists every taint."""
    assert tolerates(toleration, TAINT) is does


def test_numeric_tolerations_compare_the_taints_value() -> None:
    """KEP-5471: Gt tolerates a greater taint value, Lt a smaller one, and never what is no number."""
    sla = Taint(key="sla", value="950", effect="NoSchedule")
    assert tolerates(Toleration(key="sla", operator="Gt", value="900"), sla)
    assert not tolerates(Toleration(key="sla", operator="Lt", value="900"), sla)
    assert not tolerates(Toleration(key="sla", operator="Gt", value="high"), sla)
    assert not tolerates(Toleration(key="sla", operator="Gt", value="0900"), sla)


def test_only_hard_taints_keep_a_pod_away() -> None:
    """PreferNoSchedule does not; the first untolerated hard taint is named in Kueue's form."""
    soft = Taint(key="soft", effect="PreferNoSchedule")
    assert untolerated_taint((soft,), ()) is None
    assert untolerated_taint((soft, TAINT), ()) is TAINT
    assert untolerated_taint((TAINT,), (Toleration(operator="Exists"),)) is None
    assert taint_text(TAINT) == "{k v NoSchedule <nil>}"
