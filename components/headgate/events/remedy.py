"""
The remedy for a damaged log: one text for every message that reports it.

It contains command lines. A test runs them exactly as written here.
"""

from typing import Final

REMEDY: Final = (
    "Stop every process of this cell, then `headgate restore --from DIR --set-aside FILE` continues from a backup, or "
    "`headgate rebuild --set-aside FILE` begins a new log from what the API server has"
)
"""The end of every message that reports lost or changed entries of a log."""
