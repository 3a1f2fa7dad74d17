"""
From a machine's `Append` to the commit that is written.

Every loop, real or simulated, makes its commits here, so that numbers, hash chain and times follow the same rules
everywhere. All inputs besides the events come from the folded state and the loop's clock.
"""

import msgspec

from headgate import __version__
from headgate.core.log.log_time import commit_ms
from headgate.core.log.rules_version import RULES
from headgate.core.machine.contract import Append
from headgate.core.state.tables import ProducerRecord, State
from headgate.events.base import Producer
from headgate.events.commit import Commit, commit_id
from headgate.events.effects import LeaderElected
from headgate.events.identity import CellRestored
from headgate.events.ids import Epoch, Seq, UnixMs
from headgate.events.registry import Event


def is_deposed(state: State, producer: Producer, epoch: Epoch) -> bool:
    """
    Whether the log shows a newer term of the producer.

    The broker fences only processes that have not read that: a process that follows the log has the newest sequence and
    could append past it. So a loop checks this on its folded state before its machine decides, and steps down.
    """
    record = state.producers.get(producer)
    return record is not None and record.epoch > epoch


def next_commit(
    state: State, producer: Producer, epoch: Epoch, append: Append, now_ms: UnixMs, trace: str | None = None
) -> tuple[Commit, Seq]:
    """
    The producer's next commit, and the sequence that its append is fenced on.

    Its time is the loop's clock, but never before that of the producer's last commit: a clock that was set back does
    not set the log back (`headgate.core.log.log_time`).
    """
    record = state.producers.get(producer) or ProducerRecord()
    commit = Commit(
        id=commit_id(producer, epoch, record.number + 1),
        producer=producer,
        epoch=epoch,
        number=record.number + 1,
        time_ms=commit_ms(state, producer, now_ms),
        prev=record.last_hash,
        events=append.events,
        decided_at=append.decided_at,
        cause=append.cause,
        trace=trace,
        log=state.log_hash,
        at=state.position,
    )
    return commit, record.last_seq


def attested_anew(state: State, commit: Commit) -> Commit:
    """The same commit for an append behind entries that were refused: attested for the log as it is folded now."""
    return msgspec.structs.replace(commit, log=state.log_hash, at=state.position)


def first_of_term(
    state: State, producer: Producer, epoch: Epoch, holder: str, now_ms: UnixMs, *, before: tuple[Event, ...] = ()
) -> tuple[Commit, Seq]:
    """
    The commit that opens a term and fences the former leader. `before` are events that have to come first.

    Raises ValueError when the epoch is not newer than those in the log: the lease was lost with its store.
    """
    record = state.producers.get(producer) or ProducerRecord()
    if epoch <= record.epoch:
        raise ValueError(
            f"{producer.value}: epoch {epoch} of the lease is not newer than epoch {record.epoch} in the log; "
            f"the stream of leases was lost or belongs to another log"
        )
    elected = LeaderElected(holder=holder, rules=RULES[producer], version=__version__)
    return next_commit(state, producer, epoch, Append(events=(*before, elected)), now_ms)


def election_of(commit: Commit) -> LeaderElected | None:
    """The election that a commit opens its term with; None for another. Only `cell.restored` may come before it."""
    first = next((event for event in commit.events if not isinstance(event, CellRestored)), None)
    return first if isinstance(first, LeaderElected) else None
