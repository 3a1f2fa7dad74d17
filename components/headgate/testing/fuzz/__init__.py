"""
A fuzzer for the whole cell.

Objects drawn from the schemas, operations of several actors on them, faults and restarts, through all six machines
under the virtual clock. `script_of(seed)` draws a run, `Playing` plays it, `shrink` makes a failing one small. Judges
check the invariants; the project's own are in `tests/fuzz`.

Owns: drawing a run, playing it, and shrinking a run that fails.
Called by: `tests/fuzz`.
May import: cluster, world, adapters, machines, core, events.
"""

from headgate.testing.fuzz.operations import Operation, Script, script_of
from headgate.testing.fuzz.playing import Ending, Judge, Played, Playing, PropertyViolation, tail
from headgate.testing.fuzz.shrinking import TRIES_MAX, shrink, signature, told, tries_for
from headgate.testing.fuzz.topologies import with_topologies

__all__ = [
    "TRIES_MAX",
    "Ending",
    "Judge",
    "Operation",
    "Played",
    "Playing",
    "PropertyViolation",
    "Script",
    "script_of",
    "shrink",
    "signature",
    "tail",
    "told",
    "tries_for",
    "with_topologies",
]
