"""
The fold: state(n) = apply(state(n-1), commit(n)).

Owns: what each kind of event changes in the state, the containment of events that fail, and quarantine.
Called by: every process, replay, and every command that reads a log.
May import: quota, topology, workload, log, api, state, config, kubernetes, events.
"""

from headgate.core.fold.applying import (
    HANDLERS,
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
    "HANDLERS",
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
