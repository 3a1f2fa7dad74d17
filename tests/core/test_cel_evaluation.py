"""CEL as admission rules use it: each expression has the value that the API server's evaluator gives it."""

import pytest

from headgate.core.kubernetes.cel import compiled
from headgate.core.kubernetes.cel_syntax import CelSyntaxError
from headgate.core.kubernetes.cel_values import CelError

OBJECT = {
    "metadata": {"labels": {"a/b": "x"}, "name": "n"},
    "spec": {"groups": [{"names": ["cpu", "memory"]}, {"names": ["gpu"]}], "count": 3, "quota": "1500m"},
}

# expression | value
CASES = """
object.metadata.labels['a/b'] == 'x' | True
has(object.spec.count) && !has(object.spec.other) | True
object.?status.?phase.orValue('none') | 'none'
object.metadata.?labels['a/b'].orValue('') | 'x'
object.metadata.?annotations['a/b'].orValue('') | ''
object.metadata[?'labels'].orValue({}).size() | 1
object.spec.groups.all(g, size(g.names) > 0) | True
object.spec.groups.exists(i, g, i == 1 && 'gpu' in g.names) | True
object.spec.groups.map(g, g.names.size()).sum() | 3
object.metadata.labels.all(k, v, v == 'x' && k == 'a/b') | True
object.metadata.labels.exists(k, k == 'a/b') | True
object.spec.groups.filter(g, 'cpu' in g.names).size() | 1
[1, 2, 2].exists_one(x, x == 1) | True
quantity(object.spec.quota).isGreaterThan(quantity('1')) | True
sign(quantity('-1')) | -1
quantity('1Gi').asInteger() | 1073741824
int('12') + 1 | 13
-7 % 3 | -1
-7 / 2 | -3
true || object.missing == 1 | True
object.missing == 1 || true | True
object.missing == 1 && false | False
'a,b'.split(',').map(x, x.trim()).join(';') | 'a;b'
'abc'.matches('^[a-c]+$') && !'abc\\n'.matches('^[a-c]+$') | True
true == 1 | False
object.spec.count > 2 ? 'many' : 'few' | 'many'
'say "' + string(3) + '"' | 'say "3"'
{'a': 1}['a'] | 1
has(object.metadata.labels) ? 1 : 2 | 1
"""


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_an_expression_has_its_value(case: str) -> None:
    """As CEL and Kubernetes' libraries define it."""
    expression, value = case.rsplit(" | ", 1)
    found = compiled(expression)({"object": OBJECT})
    assert repr(found) == value.strip()


@pytest.mark.parametrize(
    "expression", ["object.missing", "object.spec.count.x", "int('x')", "sign(quantity('x'))", "1"]
)
def test_what_has_no_value_fails(expression: str) -> None:
    """A rule that cannot be evaluated never counts as holding."""
    condition = expression if expression != "1" else "1 && true"
    with pytest.raises(CelError):
        compiled(condition)({"object": OBJECT})


@pytest.mark.parametrize("expression", ["a.unknown()", "math.least(a, b)", "a +", "(a", "a ~ b", "[1].all(1, true)"])
def test_what_is_not_covered_is_refused_when_it_is_compiled(expression: str) -> None:
    """So that no rule is passed over in silence."""
    with pytest.raises(CelSyntaxError):
        compiled(expression)
