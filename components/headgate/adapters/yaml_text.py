"""
Depth limits for YAML from users.

YAML parsers recurse once per level: a hundred thousand brackets end a whole process, without an error message. So the
text is scanned before it is parsed. Code that reads a file written by others calls `check_depth` first.
"""

import re
from typing import Final

import yaml

DEPTH_MAX: Final = 200
"""More levels than any manifest or configuration has; a Pod's schema has about fifteen."""

_BRACKET: Final = re.compile(r"[\[\]{}]")
_INDENT: Final = re.compile(r"^[ \t?-]+", re.MULTILINE)


class TooDeepError(yaml.YAMLError):
    """Raised when a text is nested more deeply than any valid document."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}: it is nested more than {DEPTH_MAX} levels deep")


def check_depth(text: str) -> None:
    """Raises TooDeepError. Very cheap if no line is indented that deep, and no more brackets are open."""
    line = _too_deep(text) if _may_be_deep(text) else None
    if line is not None:
        raise TooDeepError(line)


def _too_deep(text: str) -> int | None:
    """The line from which on it is nested too deeply, None if nowhere: found by parser events, which keep nothing."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > DEPTH_MAX:
                return event.start_mark.line + 1 if event.start_mark is not None else 1
    except yaml.YAMLError:
        pass  # The parser reports it, with the place.
    return None


def _may_be_deep(text: str) -> bool:
    if any(len(indent[0]) > DEPTH_MAX for indent in _INDENT.finditer(text)):
        return True
    open_ = 0
    for bracket in _BRACKET.finditer(text):
        open_ += 1 if bracket[0] in "[{" else -1
        if open_ > DEPTH_MAX:
            return True
        # A closing bracket without an opening one is inside a string.
        open_ = max(open_, 0)
    return False
