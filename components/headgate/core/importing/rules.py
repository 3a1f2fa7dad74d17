"""
Mapping rules: which LocalQueue a pod or job belongs to, by its labels and its PriorityClass.

The first rule that matches counts, as in Kueue's importer (cmd/importer/mapping), whose files are read here.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.core.kubernetes.label_syntax import why_no_label_key, why_no_label_value


class WrongRulesError(Exception):
    """Raised for rules that cannot be used. The message names rule, field and remedy."""


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What an object must have: each of the labels, and the PriorityClass of its pods unless that is empty."""

    priority_class_name: str = ""
    labels: dict[str, str] = {}

    def fits(self, priority_class: str, labels: Mapping[str, str]) -> bool:
        """Whether an object has all of it. A label with an empty value also fits one that is missing, as in Kueue."""
        if self.priority_class_name and self.priority_class_name != priority_class:
            return False
        return all(labels.get(key, "") == value for key, value in self.labels.items())


class MappingRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where what matches belongs; or, with `skip`, that it is left alone."""

    match: Match = Match()
    to_local_queue: str = ""
    skip: bool = False


Rules = tuple[MappingRule, ...]


def read_rules(document: Any) -> Rules:
    """The rules of a mapping file: a list, each with `match` and either `toLocalQueue` or `skip`."""
    if not isinstance(document, list) or not document:
        raise WrongRulesError("it must be a list of rules, each with `match` and `toLocalQueue` or `skip: true`")
    rules = []
    for number, each in enumerate(document, 1):
        try:
            rule = msgspec.convert(each, MappingRule)
        except msgspec.ValidationError as error:
            raise WrongRulesError(f"rule {number}: {error}") from error
        if rule.skip == bool(rule.to_local_queue):
            raise WrongRulesError(f"rule {number}, field toLocalQueue: name a LocalQueue, or set skip, not both")
        rules.append(rule)
    return tuple(rules)


def rules_for_label(label: str, queues: Mapping[str, str]) -> Rules:
    """The rules of `--queuelabel` and `--queuemapping`: the LocalQueue of each value of one label."""
    for value, queue in queues.items():
        if not value or not queue:
            raise WrongRulesError(f"--queuemapping {value}={queue}: write VALUE=LOCALQUEUE")
    return tuple(
        MappingRule(match=Match(labels={label: value}), to_local_queue=queue) for value, queue in queues.items()
    )


def rule_for(rules: Rules, priority_class: str, labels: Mapping[str, str]) -> MappingRule | None:
    """The first rule that matches; None when none does."""
    return next((each for each in rules if each.match.fits(priority_class, labels)), None)


def checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels that are to be added. Raises WrongRulesError for a key or a value that the API server would refuse."""
    for key, value in labels.items():
        why = why_no_label_key(key) or why_no_label_value(value)
        if why:
            raise WrongRulesError(f"--add-labels {key}={value}: {why}")
    return dict(labels)
