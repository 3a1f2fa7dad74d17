"""
A mypy plugin: pure code may not depend on the order of a set.

The order of a set of strings differs between processes, and the log does not record it. So in pure code
(`pure_code.py` defines it) the plugin reports with the code `set-order`

- a loop, comprehension, `yield from` or unpacking over a set, and `set.pop()`;
- a set given to a built-in or library function that goes through it in order: `list`, `tuple`, `iter`, `enumerate`,
  `str.join`, `min` with a key, and all others but those in `ORDER_FREE`;
- a set given to a function of the project whose parameter is not declared as a set.

`sorted(names)` is what to write instead, or `dict.fromkeys` where the order of insertion will do. What gives the same
result in any order is no violation: a set comprehension, and a generator directly in `any`, `all`, `set` and the like.
Types are those of mypy: what is declared as an `Iterable` and holds a set is not seen where it is iterated over, but
where the set is given to it.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from mypy.errorcodes import ErrorCode
from mypy.nodes import ARG_STAR, Context, SymbolNode, TypeInfo
from mypy.options import Options
from mypy.plugin import FunctionContext, MethodContext, Plugin
from mypy.plugins.default import DefaultPlugin
from mypy.types import CallableType, Instance, Type, TypeVarType, UnionType, get_proper_type

sys.path.insert(0, str(Path(__file__).parent))
from pure_code import PACKAGE, pure_modules

sys.path.pop(0)

SET_ORDER = ErrorCode("set-order", "Pure code may not depend on the order of a set", "Headgate")
ITERABLES = frozenset({"typing.Iterable", "typing.Collection", "typing.Reversible"})
SETS = frozenset({"builtins.set", "builtins.frozenset", "typing.AbstractSet", "typing.MutableSet"})
PROJECT = f"{PACKAGE.name}."
CONSUMERS = frozenset({"all", "any", "frozenset", "set", "sorted"})
"""Built-in functions whose result does not depend on the order of a generator."""
ORDER_FREE = frozenset(
    {
        "<set>",
        "builtins.all",
        "builtins.any",
        "builtins.bool",
        "builtins.frozenset",
        "builtins.isinstance",
        "builtins.len",
        "builtins.set",
        "builtins.sorted",
        "builtins.dict.get",
        "builtins.dict.pop",
        "builtins.dict.setdefault",
        "builtins.dict.__getitem__",
        "builtins.dict.__setitem__",
        "builtins.dict.__delitem__",
        "builtins.list.append",
        "msgspec.structs.replace",
    }
)
"""Functions that keep a set whole, or whose result does not depend on its order."""
KEYED = frozenset({"builtins.sorted", "builtins.min", "builtins.max"})
"""With a key, members that are equal by it stay in the order of the set; without one, there are none."""
COMPARISONS = ("__eq__", "__ne__", "__contains__")

_Call = FunctionContext | MethodContext


class SetOrder(Plugin):
    """Looks at each call in pure code; mypy makes calls of loops, displays and f-strings, too."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._default = DefaultPlugin(options)
        """mypy calls it only where no other plugin answers."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """For the call of a function, and of a class."""
        default = self._default.get_function_hook(fullname)

        def hook(context: FunctionContext) -> Type:
            self._check(fullname, context)
            return context.default_return_type if default is None else default(context)

        return hook

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """For the call of a method, and for what a loop or an operator calls."""
        default = self._default.get_method_hook(fullname)

        def hook(context: MethodContext) -> Type:
            self._check(fullname, context)
            return context.default_return_type if default is None else default(context)

        return hook

    def _check(self, fullname: str, context: _Call) -> None:
        if not _is_pure(context):
            return
        owner, _, name = fullname.rpartition(".")
        if owner in SETS:
            if name in ("__iter__", "pop") and not _is_harmless(context):
                _report(context, "the order of a set differs between processes", context.context)
        elif fullname not in ORDER_FREE - KEYED and name not in COMPARISONS:
            for argument in self._ordered(fullname, context):
                _report(context, f"{fullname} goes through a set in its order", argument)

    def _ordered(self, fullname: str, context: _Call) -> Iterator[Context]:
        """The sets among the arguments whose order matters to a function."""
        if fullname in KEYED and "key" not in _given(context):
            return
        formals = self._formals(fullname) if fullname.startswith(PROJECT) else None
        for index, types in enumerate(context.arg_types):
            for position, type_ in enumerate(types):
                if not _is_set(type_):
                    continue
                name = context.callee_arg_names[index]
                is_whole = formals is not None and not _is_iterable(formals.get(name))
                if context.arg_kinds[index][position] is ARG_STAR or not is_whole:
                    yield context.args[index][position]

    def _formals(self, fullname: str) -> dict[str | None, Type]:
        """The types of the parameters of a function or a class, as far as they are known."""
        symbol = self.lookup_fully_qualified(fullname)
        node: SymbolNode | None = symbol.node if symbol is not None else None
        if isinstance(node, TypeInfo):
            made_by = node.get("__init__")
            if made_by is None or made_by.fullname == "builtins.object.__init__":
                made_by = node.get("__new__")
            node = None if made_by is None else made_by.node
        type_ = get_proper_type(getattr(node, "type", None))
        return dict(zip(type_.arg_names, type_.arg_types, strict=True)) if isinstance(type_, CallableType) else {}


def _given(context: _Call) -> set[str | None]:
    """The names of the parameters for which there are arguments."""
    return {name for name, given in zip(context.callee_arg_names, context.args, strict=True) if given}


def _is_harmless(context: _Call) -> bool:
    at = context.context.line, context.context.column
    return at in _harmless(_path(context))


def _report(context: _Call, problem: str, at: Context) -> None:
    context.api.fail(f"{problem}; write sorted(...)", at, code=SET_ORDER)


def _is_set(type_: Type | None) -> bool:
    type_ = get_proper_type(type_)
    if isinstance(type_, UnionType):
        return any(_is_set(item) for item in type_.items)
    if isinstance(type_, TypeVarType):
        return _is_set(type_.upper_bound)
    return isinstance(type_, Instance) and type_.type.fullname in SETS


def _is_iterable(type_: Type | None) -> bool:
    type_ = get_proper_type(type_)
    if isinstance(type_, UnionType):
        return any(_is_iterable(item) for item in type_.items)
    return isinstance(type_, Instance) and type_.type.fullname in ITERABLES


def _is_pure(context: _Call) -> bool:
    return Path(_path(context)).resolve() in _pure()


def _path(context: _Call) -> str:
    """The file that is being checked: a plugin's view of the checker leaves it out."""
    return str(context.api.path)


@lru_cache(maxsize=1)
def _pure() -> frozenset[Path]:
    return frozenset(path.resolve() for path in pure_modules(PACKAGE))


@lru_cache(maxsize=4)
def _harmless(path: str) -> frozenset[tuple[int, int]]:
    """Where in a file a set is gone through for a result that has no order: line and column of the set."""
    return frozenset(
        (clause.iter.lineno, clause.iter.col_offset)
        for node in ast.walk(ast.parse(Path(path).read_text()))
        for comprehension in _orderless(node)
        for clause in comprehension.generators
    )


def _orderless(node: ast.AST) -> list[ast.SetComp | ast.GeneratorExp]:
    match node:
        case ast.SetComp():
            return [node]
        case ast.Call(func=ast.Name(id=name), args=[ast.GeneratorExp() as generator]) if name in CONSUMERS:
            return [generator] if name != "sorted" or not node.keywords else []
        case _:
            return []


def plugin(_version: str) -> type[SetOrder]:
    """What mypy calls."""
    return SetOrder
