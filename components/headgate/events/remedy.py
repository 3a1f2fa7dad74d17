"""
What to do when a log is damaged: one text for every message that says so.

It names command lines. A test runs them as they stand here.
"""

from typing import Final

REMEDY: Final = (
    "Stop every process of this cell, then `headgate restore --from DIR --set-aside FILE` continues from a backup, or "
    "`headgate rebuild --set-aside FILE` begins a new log from what the API server has"
)
"""The end of every message that says that entries of a log are lost or changed."""
