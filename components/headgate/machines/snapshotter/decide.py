"""
The snapshotter's machine: when to take a snapshot, and which events record it.

A snapshot is taken after `commits` commits, `every_ms` after the last one if there was a commit since, and after
`idle_ms` without commits: so a start folds a bounded tail, and in a quiet cell almost none. Commits of the snapshotter
itself do not count, or each snapshot would be a reason for the next. Commits that only mark the progress of the watches
(`informers.synced`) count among the `commits`, but do not restart the idle period.

The process stores what `TakeSnapshot` requests and answers with `Completed`: status 200 and a `StoredSnapshot` as its
body, whereupon `snapshot.taken` is appended. Later, when the log between the snapshot before and this one has been
folded again, a second `Completed` follows, with the id `verify/<position>` and a `SnapshotVerification`; where the
result was another state, `divergence.found` is appended. All of it follows from the log and from time; after a crash
the next snapshot is taken when it is due.
"""

import msgspec

from headgate.core.fold.quarantine import FOLD, about_event, is_about_aside
from headgate.core.machine.contract import (
    Append,
    Changed,
    Command,
    Committed,
    Completed,
    Listed,
    Progressed,
    Resumed,
    Settled,
    Stimulus,
    TakeSnapshot,
    WakeAt,
)
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.effects import DivergenceFound, SnapshotTaken
from headgate.events.facts import InformersSynced
from headgate.events.ids import Seq, UnixMs
from headgate.events.registry import Event

VERIFY = "verify/"
"""The prefix of the ids of completions that report a verification."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """When a snapshot is due; all counted from the last one."""

    commits: int = 20_000
    every_ms: int = 300_000
    idle_ms: int = 15_000


class StoredSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The body of the answer to `TakeSnapshot`: the snapshot that is stored now."""

    name: str
    position: Seq
    state_hash: str
    log_hash: str
    size_bytes: int


class SnapshotVerification(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a verification: the hash that the snapshot has, and the one that folding the log again gave."""

    position: Seq
    live_hash: str
    refolded_hash: str


class Snapshotter:
    """The machine of the snapshotter. See the module's docstring."""

    def __init__(self, state: State, rules: Rules = Rules()) -> None:  # noqa: B008  (frozen)
        self.state = state
        self._rules = rules
        taken = state.snapshot.position if state.snapshot is not None else Seq(0)
        # Commits folded before this term are not examined again; they count by their positions.
        self._commits = max(state.position - taken - 1, 0)
        # Commits that cannot be folded are costly to skip: with a snapshot behind them, no other process has to.
        failed = max((each.position for each in state.quarantine.values() if each.process == FOLD), default=Seq(0))
        self._is_urgent = failed > taken
        self._is_quiet = not self._commits
        self._changed_ms = state.now_ms
        self._since_ms: UnixMs | None = None
        self._taking = ""
        self._taken: list[SnapshotTaken] = []
        self._diverged: list[DivergenceFound] = []
        self._told: dict[Seq, None] = {}

    def decide(self, stimulus: Stimulus) -> list[Command]:
        """The commands that follow from a stimulus."""
        match stimulus:
            case Committed(logged=logged):
                if logged.commit.producer is not Producer.SNAPSHOTTER:
                    self._commits += 1
                    for event in logged.commit.events:
                        if not is_about_aside(self.state, event, Producer.SNAPSHOTTER):
                            with about_event(event):
                                self._note(event)
                return []
            case Completed():
                self._on_completed(stimulus)
                return []
            case Settled(now_ms=now_ms):
                return self._settle(now_ms)
            case Listed() | Changed() | Resumed() | Progressed():
                return []

    def _note(self, event: Event) -> None:
        """Any event other than a progress mark of the watches restarts the idle period."""
        if not isinstance(event, InformersSynced):
            self._is_quiet = False
            self._changed_ms = self.state.now_ms

    def _on_completed(self, completed: Completed) -> None:
        if completed.call_id.startswith(VERIFY):
            verified = msgspec.json.decode(completed.body, type=SnapshotVerification)
            if verified.live_hash != verified.refolded_hash and verified.position not in self._told:
                self._told[verified.position] = None
                self._diverged.append(
                    DivergenceFound(
                        position=verified.position,
                        live_hash=verified.live_hash,
                        refolded_hash=verified.refolded_hash,
                    )
                )
        elif completed.call_id == self._taking:
            self._taking = ""
            if completed.status == 200:
                stored = msgspec.json.decode(completed.body, type=StoredSnapshot)
                self._taken.append(
                    SnapshotTaken(
                        position=stored.position,
                        state_hash=stored.state_hash,
                        log_hash=stored.log_hash,
                        name=stored.name,
                        size_bytes=stored.size_bytes,
                    )
                )

    def _settle(self, now_ms: UnixMs) -> list[Command]:
        if self._since_ms is None:
            self._since_ms = now_ms
        commands: list[Command] = []
        if self._taken or self._diverged:
            commands.append(Append(events=(*self._taken, *self._diverged)))
            self._taken, self._diverged = [], []
        if self._taking or (not self._is_urgent and self._is_quiet and self._commits < self._rules.commits):
            return commands
        due_ms = min(self._since_ms + self._rules.every_ms, self._changed_ms + self._rules.idle_ms)
        if self._is_urgent or self._commits >= self._rules.commits or now_ms >= due_ms:
            self._is_urgent = False
            self._taking = f"snapshot/{self.state.position}"
            self._commits = 0
            self._is_quiet = True
            self._since_ms = now_ms
            commands.append(TakeSnapshot(self._taking))
        else:
            commands.append(WakeAt(UnixMs(due_ms)))
        return commands
