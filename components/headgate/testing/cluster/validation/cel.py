"""
The part of CEL that validation rules of CustomResourceDefinitions are written in, compiled to Python.

`compile_rule` takes the text of one rule (`x-kubernetes-validations[].rule`) and returns a function of `self` and
`oldSelf`. Covered: field and index access, `has`, `size`, the macros `all`, `exists` and `filter`, `in`, sums,
comparison, `&&`, `||`, `!`, the conditional, and string, number, boolean and list literals. Anything else raises
ValueError when the rule is compiled, so that no rule is passed over in silence.

Access to a field that is not there raises KeyError, as it is an error in CEL; `has` checks first. The rules of a kind
are evaluated at every write of the simulated API server: as Python they take a tenth of the time that
`headgate.core.kubernetes.cel`, which covers more and must not generate code, would take.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from headgate.core.kubernetes.cel_syntax import (
    BinaryOperation,
    Conditional,
    FieldAccess,
    FunctionCall,
    IndexAccess,
    ListOf,
    Literal,
    Node,
    UnaryOperation,
    VariableName,
    parse,
)

_SIGNS: Final = {each: each for each in ("==", "!=", "<=", ">=", "<", ">", "in", "+", "-")} | {"&&": "and", "||": "or"}
_UNARY: Final = {"!": "not ", "-": "-"}
_MACROS: Final = {
    "all": "all({body} for {each} in {of})",
    "exists": "any({body} for {each} in {of})",
    "filter": "[{each} for {each} in {of} if {body}]",
}
_ROOTS: Final = ("self", "oldSelf")
_BUILTINS: Final = {"all": all, "any": any, "len": len}

CompiledRule = Callable[[Any, Any], Any]


@lru_cache(maxsize=1024)
def compile_rule(text: str) -> CompiledRule:
    """A rule as a function of (self, oldSelf). Raises ValueError if it uses what is not covered here."""
    try:
        source = _source(parse(text), _ROOTS)
    except ValueError as error:
        raise ValueError(f"CEL rule is not covered by the simulated API server: {text}: {error}") from error
    # The expression consists of operators, literals and checked names, put together below.
    compiled: CompiledRule = eval(f"lambda self, oldSelf: {source}", {"__builtins__": {}, **_BUILTINS})  # noqa: S307
    return compiled


def is_transition(text: str) -> bool:
    """Whether a rule compares with the value before: it is not checked on create."""
    return re.search(r"\boldSelf\b", text) is not None


def _source(node: Node, names: tuple[str, ...]) -> str:
    """An expression of these variables, in parentheses where it needs them. Raises ValueError."""
    match node:
        case Literal(value=value):
            return repr(value)
        case VariableName(name=name) if name in names:
            return name
        case FieldAccess(of=of, field=field, is_optional=False):
            return f"{_source(of, names)}[{field!r}]"
        case IndexAccess(of=of, key=key, is_optional=False):
            return f"{_source(of, names)}[{_source(key, names)}]"
        case UnaryOperation(sign=sign, of=of):
            return f"({_UNARY[sign]}{_source(of, names)})"
        case BinaryOperation(sign=sign, left=left, right=right) if sign in _SIGNS:
            return f"({_source(left, names)} {_SIGNS[sign]} {_source(right, names)})"
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            return f"({_source(then, names)} if {_source(condition, names)} else {_source(otherwise, names)})"
        case ListOf(items=items):
            return f"[{', '.join(_source(each, names) for each in items)}]"
        case FunctionCall():
            return _call(node, names)
        case _:
            raise ValueError(str(node))


def _call(node: FunctionCall, names: tuple[str, ...]) -> str:
    match node.of, node.function, node.arguments:
        case None, "has", (FieldAccess(of=of, field=field, is_optional=False),):
            return f"({field!r} in {_source(of, names)})"
        case (None, "size", (of,)) | (of, "size", ()) if of is not None:
            return f"len({_source(of, names)})"
        case of, macro, (VariableName(name=each), body) if of is not None and macro in _MACROS:
            return _MACROS[macro].format(of=_source(of, names), each=each, body=_source(body, (*names, each)))
        case _:
            raise ValueError(node.function)
