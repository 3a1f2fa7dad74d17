"""
Node selectors and required node affinity over the columns: which rows match.

The same as `core.kubernetes.selectors` says for one node; each label value is looked at once, not each node.
"""

from typing import Final

import numpy as np

from headgate.core.kubernetes.selectors import NodeSelecting, matches_requirement, required_terms
from headgate.core.placement.columns import Bools, Columns
from headgate.events.objects import NodeSelectorTerm, Requirement

NAME_FIELD: Final = "metadata.name"


def matching_rows(columns: Columns, spec: NodeSelecting) -> Bools:
    """Which rows a pod's node selector and required node affinity allow."""
    mask = np.ones(columns.size, dtype=np.bool_)
    for key, value in spec.node_selector.items():
        mask &= _is_one_of(columns, key, (value,))
    terms = required_terms(spec)
    return mask if terms is None else mask & matching_any(columns, terms)


def matching_any(columns: Columns, terms: tuple[NodeSelectorTerm, ...]) -> Bools:
    """Which rows meet any of some node selector terms."""
    mask = np.zeros(columns.size, dtype=np.bool_)
    for term in terms:
        mask |= matching_term(columns, term)
    return mask


def matching_term(columns: Columns, term: NodeSelectorTerm) -> Bools:
    """Which rows meet a node selector term. An empty term is never met."""
    if not term.match_expressions and not term.match_fields:
        return np.zeros(columns.size, dtype=np.bool_)
    mask = np.ones(columns.size, dtype=np.bool_)
    for requirement in term.match_expressions:
        mask &= _label_meets(columns, requirement)
    for requirement in term.match_fields:
        mask &= _name_meets(columns, requirement)
    return mask


def _label_meets(columns: Columns, requirement: Requirement) -> Bools:
    match requirement.operator:
        case "In":
            return _is_one_of(columns, requirement.key, requirement.values)
        case "NotIn":
            return ~_is_one_of(columns, requirement.key, requirement.values)
        case "Exists":
            return np.not_equal(columns.label(requirement.key), 0)
        case "DoesNotExist":
            return np.equal(columns.label(requirement.key), 0)
        case _:
            column = columns.label(requirement.key)
            values = columns.label_values(requirement.key)
            labels = ({} if value is None else {requirement.key: value} for value in values)
            meets = [matches_requirement(requirement, each) for each in labels]
            return np.array(meets, dtype=np.bool_)[column]


def _is_one_of(columns: Columns, key: str, values: tuple[str, ...]) -> Bools:
    column = columns.label(key)
    known = columns.label_ids(key)
    ids = [known[value] for value in values if value in known]
    return column == ids[0] if len(ids) == 1 else np.isin(column, ids)


def _name_meets(columns: Columns, requirement: Requirement) -> Bools:
    """A requirement on a field; the name is the only one that nodes have."""
    mask = np.zeros(columns.size, dtype=np.bool_)
    if requirement.key != NAME_FIELD:
        return np.full(columns.size, matches_requirement(requirement, {}), dtype=np.bool_)
    match requirement.operator:
        case "In":
            mask[columns.rows_of(requirement.values)] = True
        case "NotIn":
            mask[:] = True
            mask[columns.rows_of(requirement.values)] = False
        case _:
            for name, row in columns.rows.items():
                mask[row] = matches_requirement(requirement, {NAME_FIELD: name})
    return mask
