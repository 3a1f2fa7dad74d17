"""
YAML that people hand us, as deep as people write it.

The parsers of YAML go down one step of their own stack a level: a hundred thousand brackets end a whole process, and
nothing can be said of them any more. So text is looked over before it is parsed. Whoever reads a file that somebody
else has written asks `check_depth` first.
"""

import re
from typing import Final

import yaml

DEPTH_MAX: Final = 200
"""More levels than any manifest or configuration has; a Pod's schema has about fifteen."""

_BRACKET: Final = re.compile(r"[\[\]{}]")
_INDENT: Final = re.compile(r"^[ \t?-]+", re.MULTILINE)


class TooDeepError(yaml.YAMLError):
    """Raised when a text is nested more deeply than anything that is meant."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}: it is nested more than {DEPTH_MAX} levels deep")


def check_depth(text: str) -> None:
    """Raises TooDeepError. Costs next to nothing where no line could begin so deep, and no more brackets are open."""
    line = _too_deep(text) if _may_be_deep(text) else None
    if line is not None:
        raise TooDeepError(line)


def _too_deep(text: str) -> int | None:
    """The line from which on it is nested too deeply, None if nowhere: told by events, for which nothing is kept."""
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
        pass  # Whoever parses it says so, with the place.
    return None


def _may_be_deep(text: str) -> bool:
    if any(len(indent[0]) > DEPTH_MAX for indent in _INDENT.finditer(text)):
        return True
    open_ = 0
    for bracket in _BRACKET.finditer(text):
        open_ += 1 if bracket[0] in "[{" else -1
        if open_ > DEPTH_MAX:
            return True
        # One that closes what was never opened stands in a string.
        open_ = max(open_, 0)
    return False
