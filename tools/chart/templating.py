"""
YAML with Helm's template actions in it: a tree of dicts, lists and scalars, written as text.

Three nodes stand beside YAML's own. `Raw` is a scalar that is written as it is. `Yaml` is a value that a template
expression gives. `If` and `With`, as the key of a dict's entry or around items of a list (`Items`), guard what is
below.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final


class Raw(str):
    """A scalar with template actions in it."""

    __slots__ = ()


@dataclass(frozen=True)
class Yaml:
    """A mapping or list that an expression gives."""

    expression: str


@dataclass(frozen=True)
class Guard:
    """An action that what is below depends on: `{Guard(...): {...}}`, or in a list `Items(Guard(...), [...])`."""

    action: ClassVar[str]
    expression: str

    @property
    def opening(self) -> str:
        """The action before it."""
        return f"{{{{- {self.action} {self.expression} }}}}"


class If(Guard):
    """What is below is there if the expression is true."""

    action = "if"


class With(Guard):
    """What is below is there if the expression gives anything, which is `.` in it."""

    action = "with"


@dataclass(frozen=True)
class Items:
    """Items of a list that are there on a condition."""

    guard: Guard
    items: Sequence[Any] | Yaml


END: Final = "{{- end }}"
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS: Final = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def write(node: Any, depth: int = 0) -> Iterator[str]:
    """The lines of a dict or list, indented by `depth`."""
    if isinstance(node, dict):
        for key, value in node.items():
            if isinstance(key, Guard):
                yield from _guarded(key, value, depth)
            else:
                yield from _entry(f"{' ' * depth}{_scalar(key)}:", value, depth)
    else:
        for item in node:
            if isinstance(item, Items):
                yield from _guarded(item.guard, item.items, depth)
            else:
                yield from _item(item, depth)


def _guarded(guard: Guard, node: Any, depth: int) -> Iterator[str]:
    yield guard.opening
    if isinstance(node, Yaml):
        yield _pasted(node, depth)
    else:
        yield from write(node, depth)
    yield END


def _entry(head: str, value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, Yaml):
        yield head
        yield _pasted(value, depth + 2)
    elif isinstance(value, dict | list) and value:
        yield head
        yield from write(value, depth + 2)
    else:
        yield f"{head} {_scalar(value)}"


def _item(item: Any, depth: int) -> Iterator[str]:
    if not isinstance(item, dict | list) or not item:
        yield f"{' ' * depth}- {_scalar(item)}"
        return
    first, *rest = write(item, depth + 2)
    if first.startswith("{{"):
        raise ValueError(f"the first entry of an item of a list is guarded: {first}")
    yield f"{' ' * depth}- {first[depth + 2 :]}"
    yield from rest


def _pasted(value: Yaml, depth: int) -> str:
    return f"{' ' * depth}{{{{- toYaml {value.expression} | nindent {depth} }}}}"


def _scalar(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return escaped(json.dumps(value, ensure_ascii=False))


def escaped(text: str) -> str:
    """Text in which Helm finds no action where somebody else's template has one, such as that of an alert."""
    return text.replace("{{", '{{ "{{" }}') if "{{" in text and "{{ $." not in text else text
