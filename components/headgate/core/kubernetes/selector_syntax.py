"""
What makes a selector one that Kubernetes cannot read, e.g. an operator that it does not define.

The API server refuses such selectors in new objects. Objects of former versions may have them, and the kube-scheduler
then answers with an error instead of matching nothing. Sources: apimachinery `LabelSelectorAsSelector` and
`labels.NewRequirement`; component-helpers `NewPreferredSchedulingTerms`.
"""

import json
from collections.abc import Iterable
from typing import Final

from headgate.core.kubernetes.label_syntax import why_no_label_key, why_no_label_value
from headgate.core.kubernetes.numbers import decimal
from headgate.events.objects import LabelSelector, PreferredSchedulingTerm, Requirement

_SET: Final = ("In", "NotIn")
_PRESENCE: Final = ("Exists", "DoesNotExist")
_COMPARISON: Final = ("Gt", "Lt")
_OF_NODES: Final = (*_SET, *_PRESENCE, *_COMPARISON)


def why_no_selector(selector: LabelSelector | None) -> str:
    """Why a label selector cannot be read; empty when it can."""
    if selector is None:
        return ""
    for key, value in selector.match_labels.items():
        why = why_no_label_key(key) or why_no_label_value(value)
        if why:
            return why
    for requirement in selector.match_expressions:
        if requirement.operator not in (*_SET, *_PRESENCE):
            return f"{json.dumps(requirement.operator)} is not a valid label selector operator"
        why = _why_no_requirement(requirement)
        if why:
            return why
    return ""


def why_no_preference(terms: Iterable[PreferredSchedulingTerm]) -> str:
    """Why one of the preferred terms of a node affinity cannot be read; empty when all can. Weight 0 is not read."""
    for index, term in enumerate(terms):
        if not term.weight:
            continue
        for number, requirement in enumerate(term.preference.match_expressions):
            at = f"[{index}].matchExpressions[{number}]"
            if requirement.operator not in _OF_NODES:
                known = ", ".join(json.dumps(each) for each in _OF_NODES)
                operator = json.dumps(requirement.operator)
                return f"{at}.operator: Unsupported value: {operator}: supported values: {known}"
            why = _why_no_requirement(requirement)
            if why:
                return f"{at}: {why}"
    return ""


def _why_no_requirement(requirement: Requirement) -> str:
    values, operator = requirement.values, requirement.operator
    if operator in _SET and not values:
        return "for 'in', 'notin' operators, values set can't be empty"
    if operator in _PRESENCE and values:
        return "values set must be empty for exists and does not exist"
    if operator in _COMPARISON and len(values) != 1:
        return "for 'Gt', 'Lt' operators, exactly one value is required"
    if operator in _COMPARISON and decimal(values[0]) is None:
        return "for 'Gt', 'Lt' operators, the value must be an integer"
    whys = (why_no_label_key(requirement.key), *map(why_no_label_value, values))
    return next((why for why in whys if why), "")
