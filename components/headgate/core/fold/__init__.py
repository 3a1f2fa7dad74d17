"""
The fold: state(n) = apply(state(n-1), commit(n)), one handler per type of event, and handling of failed events.

Used by: every process, replay, and every command that reads a log.
May import: state, log, workload, quota, status.
"""

from headgate.core.fold.applying import (
    APPLY,
    NO_TREATMENTS,
    TABLES,
    BrokenLogError,
    apply,
    encode,
    new_state,
    reindex,
    restore,
    state_hash,
    tables,
)

__all__ = [
    "APPLY",
    "NO_TREATMENTS",
    "TABLES",
    "BrokenLogError",
    "apply",
    "encode",
    "new_state",
    "reindex",
    "restore",
    "state_hash",
    "tables",
]
