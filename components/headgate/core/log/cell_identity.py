"""
Which cell a log belongs to: how the founding is folded, and how a foreign log is recognised.

The fold keeps `Tables.identity`. A process compares it with its own environment (its cell's name, its stream, its
cluster) before it acts (`headgate.processes.runtime.cell_identity`).
"""

from typing import Never

from headgate.core.log import branches, reconciliation
from headgate.core.state.handlers import EventHandlers
from headgate.core.state.tables import Identity, Restoration, State
from headgate.events.commit import Commit
from headgate.events.identity import CellFounded, CellKeysChanged, CellRestored
from headgate.events.ids import Seq


def _founded(state: State, event: CellFounded, commit: Commit, seq: Seq) -> None:  # noqa: ARG001
    if state.identity is not None:
        # Two bridges may find the log without an identity at one time; the first one founds it.
        return
    state.identity = Identity(
        cell=event.cell,
        cluster=event.cluster,
        stream=event.stream,
        log_id=event.log_id,
        keys=event.keys,
        signing=event.signing,
        resumes=event.resumes,
        founded_at=seq,
    )
    rebuilt = branches.of_rebuilt(event)
    if rebuilt is not None:
        state.branches = (*state.branches, rebuilt)


def _keys_changed(state: State, event: CellKeysChanged, commit: Commit, seq: Seq) -> None:  # noqa: ARG001
    if state.identity is not None:
        state.identity.keys = event.keys
        state.identity.signing = event.signing


def _restored(state: State, event: CellRestored, commit: Commit, seq: Seq) -> None:  # noqa: ARG001
    state.branches = (*state.branches, branches.of_restored(event, seq))
    reconciliation.begin(state, seq)
    if state.identity is None:
        return
    state.identity.stream = event.stream
    state.identity.restored = Restoration(
        at=seq, backup=event.backup, position=event.position, lost_to=event.lost_to, why=event.why
    )


HANDLERS = (
    EventHandlers[Never]().on(CellFounded, _founded).on(CellKeysChanged, _keys_changed).on(CellRestored, _restored)
)


def objection(identity: Identity, *, cell: str, stream: str, cluster: str = "") -> str | None:
    """
    Why a process with this cell's name, stream and cluster must not continue the log; None when it may.

    `cluster` "" is for a process without a cluster.
    """
    if identity.cell != cell:
        return f"its log is that of the cell {identity.cell}, not of {cell}"
    if cluster and identity.cluster != cluster:
        return (
            f"its log belongs to the cluster {identity.cluster}, and this one is {cluster}: "
            "two clusters must not share a cell"
        )
    if identity.stream != stream:
        return (
            f"its log was written to the stream created {identity.stream}, and this one was created {stream}: "
            "it is a copy"
        )
    return None
