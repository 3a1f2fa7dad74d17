"""
The text of an exception, the same in every process because it becomes a part of the state.

No address, no order of a set, no traceback: the type, the first line of the message, and the innermost line of ours.
"""

import re
from typing import Final

TEXT_MAX: Final = 500
"""The longest text of an error that is kept."""

_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


def describe(error: Exception) -> str:
    """The type of an exception and the first line of its message."""
    kind = type(error).__name__
    if any(isinstance(each, set | frozenset) for each in error.args):
        # Its elements are printed in an order that differs between processes.
        return kind
    try:
        lines = str(error).splitlines()
    except Exception:  # noqa: BLE001 - an unprintable message must not hide the error
        return kind
    text = _ADDRESS.sub("", lines[0]) if lines else ""
    return f"{kind}: {text}"[:TEXT_MAX] if text else kind


def where(error: Exception) -> str:
    """`<module>:<line>` of the innermost line of ours in the traceback, else of the innermost."""
    found, trace = "", error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if module.startswith("headgate.") or not found.startswith("headgate."):
            found = f"{module}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
