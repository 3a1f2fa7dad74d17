"""
CEL evaluated: the part of it, with Kubernetes' functions, that our admission rules are written in.

`compiled` turns the text of an expression into a function of its variables, given by name. Values are those of JSON,
and quantities. An expression that fails (a field that is not there, a text that is no number) raises CelError; as in
CEL, `a || b` and `a && b` do not fail if one side alone decides. The API server evaluates the same text in admission
policies (`headgate.core.admission.policies`); what both must answer alike is tested on a real one.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, assert_never

from headgate.core.kubernetes.cel_functions import FUNCTIONS, METHODS, equal
from headgate.core.kubernetes.cel_syntax import (
    BinaryOperation,
    CelSyntaxError,
    Conditional,
    FieldAccess,
    FunctionCall,
    IndexAccess,
    ListOf,
    Literal,
    MapOf,
    Node,
    UnaryOperation,
    VariableName,
    parse,
)
from headgate.core.kubernetes.cel_values import NONE, CelError, CelOptional

Variables = Mapping[str, Any]
Evaluate = Callable[[Variables], Any]


STEPS: Final = "@steps"
"""
The name of a variable that is a list of one number: how often macros may still look at an item.

Without it they look at all. No expression can name it.
"""


@lru_cache(maxsize=4096)
def compiled(text: str) -> Evaluate:
    """An expression as a function of its variables. Raises CelSyntaxError for what is not covered."""
    return _compile(parse(text), text)


def _compile(node: Node, text: str) -> Evaluate:
    match node:
        case Literal(value=value):
            return lambda _: value
        case VariableName(name=name):
            return lambda variables: _variable(variables, name)
        case FieldAccess() | IndexAccess():
            return _access(node, text)
        case FunctionCall():
            return _call(node, text)
        case UnaryOperation(sign=sign, of=of):
            inner = _compile(of, text)
            return (lambda v: not _boolean(inner(v))) if sign == "!" else (lambda v: -inner(v))
        case BinaryOperation():
            return _binary(node, text)
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            test, yes, no = (_compile(each, text) for each in (condition, then, otherwise))
            return lambda v: yes(v) if _boolean(test(v)) else no(v)
        case ListOf(items=items):
            compiled_items = [_compile(each, text) for each in items]
            return lambda v: [each(v) for each in compiled_items]
        case MapOf(items=pairs):
            compiled_pairs = [(_compile(key, text), _compile(value, text)) for key, value in pairs]
            return lambda v: {key(v): value(v) for key, value in compiled_pairs}
        case _:
            assert_never(node)


def _variable(variables: Variables, name: str) -> Any:
    try:
        return variables[name]
    except KeyError:
        raise CelError(f"there is no variable {name}") from None


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"{value!r} is no boolean")
    return value


def _access(node: FieldAccess | IndexAccess, text: str) -> Evaluate:
    of = _compile(node.of, text)
    key: Evaluate = _compile(node.key, text) if isinstance(node, IndexAccess) else _constant(node.field)
    is_optional = node.is_optional

    def access(variables: Variables) -> Any:
        value = of(variables)
        if isinstance(value, CelOptional):
            return NONE if not value.values else _try(value.values[0], key(variables))
        return _try(value, key(variables)) if is_optional else _item(value, key(variables))

    return access


def _constant(value: Any) -> Evaluate:
    return lambda _: value


def _try(value: Any, key: Any) -> CelOptional:
    try:
        return CelOptional((_item(value, key),))
    except CelError:
        return NONE


def _item(value: Any, key: Any) -> Any:
    try:
        if isinstance(value, dict) or (isinstance(value, list) and isinstance(key, int) and key >= 0):
            return value[key]
    except (KeyError, IndexError, TypeError):
        pass
    raise CelError(f"no such key: {key}")


def _binary(node: BinaryOperation, text: str) -> Evaluate:
    left, right = _compile(node.left, text), _compile(node.right, text)
    if node.sign in {"&&", "||"}:
        return _logical(left, right, decisive=node.sign == "||")
    operate = _OPERATORS[node.sign]

    def binary(variables: Variables) -> Any:
        first, second = left(variables), right(variables)
        try:
            return operate(first, second)
        except (TypeError, ZeroDivisionError) as error:
            raise CelError(f"{first!r} {node.sign} {second!r}: {error}") from None

    return binary


def _logical(left: Evaluate, right: Evaluate, *, decisive: bool) -> Evaluate:
    """Either side may decide, even if the other one fails."""

    def logical(variables: Variables) -> bool:
        try:
            if _boolean(left(variables)) is decisive:
                return decisive
        except CelError:
            if _boolean(right(variables)) is decisive:
                return decisive
            raise
        return _boolean(right(variables))

    return logical


def _divide(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return left / right


def _remainder(left: int, right: int) -> int:
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """A comparison of values of one type, numbers of two types included."""

    def compared(left: Any, right: Any) -> bool:
        if isinstance(left, bool) != isinstance(right, bool):
            raise TypeError("no such overload")
        return compare(left, right)

    return compared


def _counting(operate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operation on two values of one type."""

    def operated(left: Any, right: Any) -> Any:
        if type(left) is not type(right) or isinstance(left, bool):
            raise TypeError("no such overload")
        return operate(left, right)

    return operated


def _in(left: Any, right: Any) -> bool:
    if not isinstance(right, list | dict):
        raise TypeError("no such overload")
    return left in right if isinstance(right, dict) else any(equal(left, each) for each in right)


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "<": _ordered(lambda left, right: left < right),
    "<=": _ordered(lambda left, right: left <= right),
    ">": _ordered(lambda left, right: left > right),
    ">=": _ordered(lambda left, right: left >= right),
    "in": _in,
    "+": _counting(lambda left, right: left + right),
    "-": _counting(lambda left, right: left - right),
    "*": _counting(lambda left, right: left * right),
    "/": _counting(_divide),
    "%": _counting(_remainder),
}


# --- calls ------------------------------------------------------------------------------------------------------------


def _call(node: FunctionCall, text: str) -> Evaluate:
    if node.function == "has" and node.of is None:
        return _has(node, text)
    name = _namespaced(node)
    if name == "cel.bind":
        return _bind(node, text)
    if name in FUNCTIONS and node.of is not None:
        return _call(FunctionCall(None, name, node.arguments), text)
    if node.of is not None and node.function in _MACROS:
        return _macro(node, text)
    if node.function == "orValue" and node.of is not None:
        of, otherwise = _compile(node.of, text), _compile(node.arguments[0], text)
        return lambda v: _or_value(of(v), otherwise, v)
    arguments = [_compile(each, text) for each in ((node.of,) if node.of is not None else ()) + node.arguments]
    function = (FUNCTIONS if node.of is None else METHODS).get(node.function)
    if function is None:
        raise CelSyntaxError(text, node.function)

    def call(variables: Variables) -> Any:
        values = [each(variables) for each in arguments]
        try:
            return function(*values)
        except CelError:
            raise
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise CelError(f"{node.function}: {error}") from None

    return call


def _namespaced(node: FunctionCall) -> str:
    """The name of a function with its namespace, or "" of what may be a method."""
    return f"{node.of.name}.{node.function}" if isinstance(node.of, VariableName) else ""


def _bind(node: FunctionCall, text: str) -> Evaluate:
    """`cel.bind(x, value, body)`: the body with a variable more."""
    if len(node.arguments) != 3 or not isinstance(node.arguments[0], VariableName):
        raise CelSyntaxError(text, "cel.bind")
    name, value, body = node.arguments[0].name, _compile(node.arguments[1], text), _compile(node.arguments[2], text)
    return lambda v: body({**v, name: value(v)})


def _has(node: FunctionCall, text: str) -> Evaluate:
    (asked,) = node.arguments
    if not isinstance(asked, FieldAccess):
        raise CelSyntaxError(text, "has")
    of, field = _compile(asked.of, text), asked.field

    def has(variables: Variables) -> bool:
        holder = of(variables)
        if isinstance(holder, CelOptional):
            return bool(holder.values) and _try(holder.values[0], field) != NONE
        if not isinstance(holder, dict):
            raise CelError(f"{holder!r} has no fields")
        return _try(holder, field) != NONE

    return has


def _or_value(value: Any, otherwise: Evaluate, variables: Variables) -> Any:
    if not isinstance(value, CelOptional):
        raise CelError("orValue is of optional values")
    return value.values[0] if value.values else otherwise(variables)


_MACROS: Final = frozenset({"all", "exists", "exists_one", "filter", "map", "transformList"})


def _macro(node: FunctionCall, text: str) -> Evaluate:
    """`of.macro(x, body)`, or `of.macro(i, x, body)` where `i` is the index, or the key of a map."""
    assert node.of is not None
    of, names = _compile(node.of, text), node.arguments[:-1]
    if not names or len(names) > 2 or not all(isinstance(each, VariableName) for each in names):
        raise CelSyntaxError(text, node.function)
    body = _compile(node.arguments[-1], text)
    variables_of = [each.name for each in names if isinstance(each, VariableName)]

    def scopes(variables: Variables) -> Sequence[tuple[Any, Variables]]:
        found = of(variables)
        match found:
            case list():
                pairs: Sequence[tuple[Any, Any]] = list(enumerate(found))
            case dict():
                pairs = list(found.items())
            case _:
                raise CelError(f"{found!r} has no items")
        _spend(variables, len(pairs))
        if len(variables_of) == 1:
            singles = [key if isinstance(found, dict) else value for key, value in pairs]
            return [(each, {**variables, variables_of[0]: each}) for each in singles]
        return [(value, {**variables, variables_of[0]: key, variables_of[1]: value}) for key, value in pairs]

    match node.function:
        case "all":
            return lambda v: _any(body, scopes(v), decisive=False)
        case "exists":
            return lambda v: _any(body, scopes(v), decisive=True)
        case "exists_one":
            return lambda v: sum(_boolean(body(scope)) for _, scope in scopes(v)) == 1
        case "filter":
            return lambda v: [each for each, scope in scopes(v) if _boolean(body(scope))]
        case _:
            return lambda v: [body(scope) for _, scope in scopes(v)]


def _spend(variables: Variables, items: int) -> None:
    """Raise CelError when macros have looked at as many items as they may."""
    steps = variables.get(STEPS)
    if steps is not None:
        steps[0] -= items
        if steps[0] < 0:
            raise CelError("operation cancelled: actual cost limit exceeded")


def _any(body: Evaluate, scopes: Sequence[tuple[Any, Variables]], *, decisive: bool) -> bool:
    failed: CelError | None = None
    for _, scope in scopes:
        try:
            if _boolean(body(scope)) is decisive:
                return decisive
        except CelError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return not decisive
