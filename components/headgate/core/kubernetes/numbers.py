"""
Numbers and truth values in labels and annotations, read as Kubernetes and Kueue read them: with Go's strconv.

They are text that anybody may write. Python's `int` and `str.isdigit` accept other texts than Go does (`²`, `1_000`,
blanks), and fail where there are too many digits, so all such texts are read here.
"""

import re
from typing import Final

_NUMBER: Final = re.compile(r"([+-]?)0*([0-9]{1,20})")
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})


def decimal(text: str | None, *, bits: int = 64) -> int | None:
    """The number in a text, of at most so many bits with its sign (strconv.ParseInt); None where there is none."""
    form = _NUMBER.fullmatch(text) if text is not None else None
    if form is None:
        return None
    number = int(form[1] + form[2])
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def positive(text: str | None) -> int | None:
    """A number of 1 or more and 32 bits; None for any other text."""
    number = decimal(text, bits=32)
    return number if number is not None and number > 0 else None


def is_true(text: str | None) -> bool:
    """Whether a text is one of those that mean true (strconv.ParseBool)."""
    return text in _TRUE
