"""
The outputs of a driver: requests and reports to its shell.

The shell takes outputs with `Driver.take` and carries them out in order, before it passes anything else to the driver.
"""

import msgspec

from headgate.core.machine.contract import AskExtender, Call, TakeSnapshot, WakeAt
from headgate.core.state.attribution import ObjectFailedError
from headgate.events.commit import Commit
from headgate.events.ids import Epoch, Seq


class Send(msgspec.Struct, frozen=True):
    """
    Append this payload to the log, if the last entry on the producer's subject is still `expected_last`.

    Answered by `Driver.appended`, `conflicted` or `timed_out`. At most one is unanswered at any time.
    """

    commit: Commit
    payload: bytes
    expected_last: Seq


class CommitStored(msgspec.Struct, frozen=True):
    """A commit that was sent is durable and folded."""

    commit: Commit


class CommitRefused(msgspec.Struct, frozen=True):
    """A commit that was sent is not in the log and will not be: the subject ended at another entry than expected."""

    commit: Commit
    expected_last: Seq
    actual_last: Seq


class MachineMade(msgspec.Struct, frozen=True):
    """A machine was made. Start its sources of stimuli: watches, or the publication of the feed."""

    epoch: Epoch


class MachineDropped(msgspec.Struct, frozen=True):
    """
    The machine is gone.

    Cancel its calls, snapshots, watches and timer: none of their results may reach the next one.
    """

    why: str


class ObjectSetAside(msgspec.Struct, frozen=True):
    """
    The machine failed over one object. `object.quarantined` is appended next; continue with `Driver.advance`.

    `name` is `<kind>/<key>` of the object: that of the failure, or the enclosing one if that is in quarantine already.
    """

    failed: ObjectFailedError
    name: str


class SteppedDown(msgspec.Struct, frozen=True):
    """
    The term is over. Release the lease and run for election again.

    `other_holder` is the holder of the newer term in the log; None when there is none.
    """

    epoch: Epoch
    why: str
    other_holder: str | None = None


Output = (
    Send
    | Call
    | AskExtender
    | WakeAt
    | TakeSnapshot
    | CommitStored
    | CommitRefused
    | MachineMade
    | MachineDropped
    | ObjectSetAside
    | SteppedDown
)
