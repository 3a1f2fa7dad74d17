"""The CEL that validation rules are written in, as the simulated API server reads it."""

import pytest

from headgate.adapters.kubernetes.crds.rules import KUEUE_RULES
from headgate.testing.cluster.validation.cel import compile_rule, is_transition

OBJECT = {"a": 1, "list": [{"n": 1}, {"n": 2}], "map": {"k": "v"}, "text": "x"}


@pytest.mark.parametrize(
    ("rule", "result"),
    [
        ("has(self.a) && !has(self.b)", True),
        ("has(self.b) || self.a == 1", True),
        ("self.list.all(x, x.n > 0)", True),
        ("self.list.exists(x, x.n == 3)", False),
        ("size(self.list.filter(x, x.n > 1)) == 1", True),
        ("self.list[size(self.list) - 1].n == 2", True),
        ("has(self.b) ? self.b : self.text in ['x', 'y']", True),
        ("self.map.size() == 1 && self.map == oldSelf.map", True),
        ("self.a + 2 - 1 <= 1", False),
        ("(self.a == 2 ? 'no' : 'yes') == 'yes'", True),
    ],
)
def test_a_rule_says_what_it_says_in_cel(rule, result):
    """Access, macros, arithmetic, comparison, logic and the conditional."""
    assert bool(compile_rule(rule)(OBJECT, OBJECT)) is result


def test_a_field_that_is_not_there_is_an_error():
    """As in CEL; `has` checks first."""
    with pytest.raises(KeyError, match="b"):
        compile_rule("self.b == 1")(OBJECT, None)


@pytest.mark.parametrize("rule", ["self.a.matches('x')", "other.a == 1", "self.a ==", "self.a % 2 == 0", "has(self)"])
def test_what_is_not_covered_is_refused(rule):
    """No rule is passed over in silence."""
    with pytest.raises(ValueError, match="CEL rule is not covered"):
        compile_rule(rule)


def test_every_rule_of_kueues_kinds_is_covered():
    """Each compiles; those that look back are known as such."""
    rules = [rule.rule for rules in KUEUE_RULES.values() for rule in rules]
    assert len([compile_rule(rule) for rule in rules]) > 20
    assert {is_transition(rule) for rule in rules} == {True, False}
