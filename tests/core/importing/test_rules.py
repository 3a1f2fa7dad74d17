"""Mapping rules: which LocalQueue an object belongs to, as in Kueue's importer (cmd/importer/mapping)."""

from typing import Any

import pytest
import yaml

from headgate.core.importing.rules import (
    Rules,
    WrongRulesError,
    checked_labels,
    read_rules,
    rule_for,
    rules_for_label,
)

README = """
- match: {labels: {src.lbl: src-val}}
  toLocalQueue: user-queue
- match:
    priorityClassName: p-class
    labels: {src.lbl: src-val2, src2.lbl: src2-val}
  toLocalQueue: user-queue2
- match: {labels: {src.lbl: src-val3}}
  skip: true
"""
"""The example of Kueue's importer."""


def queue(rules: Rules, priority_class: str = "", **labels: str) -> str | None:
    """The queue of an object with these labels (`_` for a dot), "skip", or None where no rule matches."""
    found = rule_for(rules, priority_class, {key.replace("_", "."): value for key, value in labels.items()})
    return None if found is None else "skip" if found.skip else found.to_local_queue


def test_a_rule_needs_all_its_labels_and_its_priority_class_if_it_names_one() -> None:
    """The example of Kueue's documentation, with what it says of it."""
    rules = read_rules(yaml.safe_load(README))
    assert queue(rules, src_lbl="src-val") == "user-queue"
    assert queue(rules, "any", src_lbl="src-val") == "user-queue"
    assert queue(rules, "p-class", src_lbl="src-val2", src2_lbl="src2-val") == "user-queue2"
    assert queue(rules, "", src_lbl="src-val2", src2_lbl="src2-val") is None
    assert queue(rules, "p-class", src_lbl="src-val2") is None
    assert queue(rules, src_lbl="src-val3") == "skip"
    assert queue(rules) is None


def test_the_first_rule_that_matches_counts() -> None:
    """In the order of the file; one without a match fits everything."""
    rules = read_rules([{"match": {"labels": {"a": "1"}}, "toLocalQueue": "one"}, {"toLocalQueue": "rest"}])
    assert (queue(rules, a="1"), queue(rules, a="2"), queue(rules)) == ("one", "rest", "rest")


def test_a_label_leads_to_the_queue_of_its_value() -> None:
    """What --queuelabel and --queuemapping say."""
    rules = rules_for_label("team", {"vision": "gpu", "speech": "cpu"})
    assert (queue(rules, team="vision"), queue(rules, team="speech"), queue(rules, team="x")) == ("gpu", "cpu", None)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (None, "must be a list of rules"),
        ([], "must be a list of rules"),
        ({"match": {}}, "must be a list of rules"),
        ([{"match": {}, "toLocalQueue": "a"}, {"match": {}}], "rule 2, field toLocalQueue: name a LocalQueue"),
        ([{"toLocalQueue": "a", "skip": True}], "rule 1, field toLocalQueue"),
        ([{"toLocalQueue": "a", "queue": "b"}], "rule 1: Object contains unknown field `queue`"),
        ([{"match": {"label": {}}, "toLocalQueue": "a"}], "unknown field `label` - at `$.match`"),
        ([{"match": {"labels": {"a": 1}}, "toLocalQueue": "a"}], "$.match.labels"),
    ],
)
def test_a_wrong_file_is_refused_with_the_rule_and_the_field(document: Any, why: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(WrongRulesError) as refused:
        read_rules(document)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value", "is_right"),
    [
        ("team", "a", True),
        ("example.com/team", "", True),
        ("Example.com/team", "a", False),
        ("/team", "a", False),
        ("team/", "a", False),
        ("-team", "a", False),
        ("t" * 63, "v" * 63, True),
        ("t" * 64, "a", False),
        ("team", "v" * 64, False),
        ("team", "a b", False),
    ],
)
def test_labels_are_checked_before_anything_is_read(key: str, value: str, is_right: bool) -> None:
    """As the API server would refuse them."""
    if is_right:
        assert checked_labels({key: value}) == {key: value}
        return
    with pytest.raises(WrongRulesError, match="--add-labels"):
        checked_labels({key: value})
