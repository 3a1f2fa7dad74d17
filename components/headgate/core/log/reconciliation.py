"""
After a restore: the log is older than the API server, and has to catch up with what happened meanwhile.

`cell.restored` begins it. From there on every Workload of the state is unconfirmed: its state in the log may be out of
date, and the first fact about it carries the status that its object has, as for a new object. Where that is a status
from the log, the log is complete, and continues. Where it is another one, the object is newer: the workload restarts
from its status (`headgate.core.fold.workloads`), and holds the quota that it shows.

Every process that decides waits until every resource has been listed and all of it is in the log (`is_open`); only the
bridge, and the snapshotter, which decides nothing, continue. Nothing is stopped, released or admitted based on an
outdated log.

Facts that release quota come before those that take it (`releases_first`), so that the log never holds more of it than
the cluster does.
"""

from collections import OrderedDict
from typing import Final

from headgate.core.reading.decoding import UnreadableObjectError, read
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.facts import WorkloadObserved
from headgate.events.ids import Seq

WAITING: Final = (
    "the log was restored from a backup: waiting until the informer bridge has compared it with the cluster"
)
"""The status of a process that may not decide yet."""

_GONE: Final = b""


def begin(state: State, seq: Seq) -> None:
    """The log's data about the cluster is out of date, from its position `seq` on."""
    state.reconciling = seq
    state.synced = False
    state.unconfirmed = dict.fromkeys(state.workloads)
    state.resource_versions = {}
    state.anchor = ""
    for record in state.jobs.values():
        # The facts show whether it runs, and what was refused.
        record.started_for = ""
        record.action_refused = ""


def end(state: State) -> None:
    """All existing objects have been listed, and are in the log."""
    state.reconciling = Seq(0)
    state.unconfirmed = {}


def is_open(state: State, producer: Producer) -> bool:
    """Whether a process may lead: not while the state that it would decide on may be out of date."""
    return not state.reconciling or producer in (Producer.INFORMER_BRIDGE, Producer.SNAPSHOTTER)


def releases_first(waiting: "OrderedDict[str, bytes]") -> "OrderedDict[str, bytes]":
    """The Workloads that wait to be read: those that hold no quota before those that do, else in the same order."""
    return OrderedDict(sorted(waiting.items(), key=lambda item: _holds(item[1])))


def _holds(raw: bytes) -> bool:
    if raw == _GONE:
        return False
    try:
        fact = read("workloads", raw).fact
    except UnreadableObjectError:
        return False
    return isinstance(fact, WorkloadObserved) and fact.taken_over is not None and fact.taken_over.admission is not None
