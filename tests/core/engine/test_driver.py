"""The driver keeps its promises to machines and to the log, whatever its shell reports and in whatever order."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings
from tests.support.toys import Counter, Recorder

from headgate.core import fold
from headgate.core.engine.appends import LogRolledBackError, OwnCommitRefusedError
from headgate.core.engine.driver import FAILURES_MAX, Driver, DriverLimits, TermPhase
from headgate.core.engine.outputs import (
    CommitRefused,
    CommitStored,
    MachineDropped,
    MachineMade,
    ObjectSetAside,
    Output,
    Send,
    SteppedDown,
)
from headgate.core.fold.quarantine import Treatments
from headgate.core.machine.commits import next_commit
from headgate.core.machine.contract import (
    Append,
    Call,
    Command,
    Completed,
    Machine,
    Settled,
    Stimulus,
    TakeSnapshot,
    WakeAt,
)
from headgate.core.state.attribution import about
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, decode_commit, encode_commit
from headgate.events.effects import LeaderElected, ObjectQuarantined
from headgate.events.facts import NamespaceObserved
from headgate.events.ids import Epoch, Seq, UnixMs
from headgate.events.subjects import log_subject

BRIDGE = Producer.INFORMER_BRIDGE
START_MS = UnixMs(1_700_000_000_000)


class Shell:
    """A log, and one driver over it; the test decides when anything happens."""

    def __init__(self, make: Callable[[State], Machine], *, producer: Producer = BRIDGE, **more: Any) -> None:
        self.entries: list[LoggedCommit] = []
        self.driver = Driver(producer, fold.new_state("main"), make, **more)
        self.now_ms = START_MS
        self.done: list[Output] = []
        self.sent: Send | None = None

    def do(self, *kinds: type) -> list[Any]:
        """One turn; those of the outputs that are of these kinds."""
        self.driver.advance(self.now_ms)
        self.driver.deliver()
        self.driver.settle(self.now_ms)
        return self.take(*kinds)

    def take(self, *kinds: type) -> list[Any]:
        outputs = self.driver.take()
        self.done += outputs
        for output in outputs:
            if isinstance(output, Send):
                assert self.sent is None, "two appends are under way"
                self.sent = output
        return [output for output in outputs if not kinds or isinstance(output, kinds)]

    def store(self, payload: bytes, producer: Producer = BRIDGE) -> Seq:
        """The broker stores an entry."""
        seq = Seq(len(self.entries) + 1)
        self.entries.append(decode_commit(seq, log_subject("main", producer), payload, self.now_ms))
        return seq

    def answer(self) -> None:
        """The broker compares the fence of the append under way, and answers."""
        send, self.sent = self.sent, None
        assert send is not None
        mine = [entry.seq for entry in self.entries if entry.commit.producer is send.commit.producer]
        last = mine[-1] if mine else Seq(0)
        if last == send.expected_last:
            self.driver.appended(self.store(send.payload, send.commit.producer))
        else:
            self.driver.conflicted(last)

    def fold(self) -> None:
        """Everything that the log has is read."""
        while self.driver.state.position < len(self.entries) and not self.driver.is_at_election:
            self.driver.fold(self.entries[self.driver.state.position])

    def elect(self, epoch: int = 1) -> "Shell":
        """Lead, up to a machine."""
        self.driver.lead(Epoch(epoch), "one")
        self.do(Send)
        self.answer()
        self.fold()
        return self

    def rest(self) -> "Shell":
        """Turn by turn, until nothing more is requested."""
        for _ in range(1000):
            asked = self.do(Send, Call, MachineMade, ObjectSetAside)
            if self.sent is not None:
                self.answer()
                self.fold()
            elif not asked:
                return self
        raise AssertionError("it does not come to rest")

    def events(self) -> list[Any]:
        return [event for entry in self.entries for event in entry.commit.events]

    def rival(self, epoch: int) -> None:
        """Another process opens a term of this producer."""
        state = fold.new_state("main")
        for entry in self.entries:
            fold.apply(state, entry)
        append = Append(events=(LeaderElected(holder="rival"),))
        commit, _ = next_commit(state, BRIDGE, Epoch(epoch), append, self.now_ms)
        self.store(encode_commit(commit))


def scripted(*script: list[Command]) -> tuple[Shell, list[Recorder]]:
    """A driver of recorders that share one script."""
    made: list[Recorder] = []

    def make(state: State) -> Recorder:
        made.append(Recorder(state, list(script)))
        return made[-1]

    return Shell(make, bounds=DriverLimits(calls_max=2, commit_bytes_max=2_000, stimuli_max=3)), made


def names(count: int) -> tuple[NamespaceObserved, ...]:
    return tuple(NamespaceObserved(name=f"n{n}", labels={"filling": "x" * 200}) for n in range(count))


# --- terms -----------------------------------------------------------------------------------------------------------


def test_a_term_opens_in_the_log_before_there_is_a_machine() -> None:
    """The machine is made from exactly the state after the election, and decides from there on."""
    shell = Shell(lambda state: Counter(state, 3))
    shell.driver.lead(Epoch(1), "one")
    (send,) = shell.do()
    assert isinstance(send.commit.events[0], LeaderElected)
    assert shell.driver.phase is TermPhase.OPENING
    shell.answer()
    shell.store(encode_commit(_by_binder(shell)), Producer.BINDER)
    shell.fold()
    assert (shell.driver.state.position, shell.driver.machine) == (1, None)
    assert [type(each) for each in shell.do()][:2] == [CommitStored, MachineMade]
    shell.rest()
    assert sorted(shell.driver.state.namespaces) == ["n1", "n2", "n3"]


def _by_binder(shell: Shell) -> Any:
    append = Append(events=(LeaderElected(holder="b"),))
    return next_commit(fold.new_state("main"), Producer.BINDER, Epoch(1), append, shell.now_ms)[0]


def test_a_newer_epoch_in_the_log_ends_the_term() -> None:
    """The machine does not get the commit, nothing more is sent, and the shell gets the new leader."""
    shell = Shell(lambda state: Counter(state, 0)).elect().rest()
    shell.rival(epoch=2)
    shell.fold()
    outputs = shell.do(MachineDropped, SteppedDown)
    assert [type(each) for each in outputs] == [MachineDropped, SteppedDown]
    assert (outputs[1].epoch, outputs[1].other_holder) == (1, "rival")
    assert shell.driver.phase is TermPhase.STANDBY
    assert shell.do() == []


def test_a_refused_append_ends_the_term_and_the_next_one_goes_on() -> None:
    """What was decided under the old epoch is not in the log; under a newer one it is decided again."""
    shell = Shell(lambda state: Counter(state, 3)).elect()
    shell.do()
    shell.rival(epoch=2)
    shell.answer()
    assert shell.do() == [], "nothing is known before the log is folded up to the conflict"
    shell.fold()
    outputs = shell.do(CommitRefused, SteppedDown)
    assert [type(each) for each in outputs] == [CommitRefused, SteppedDown]
    assert "the log refused commit" in outputs[1].why
    shell.elect(epoch=3).rest()
    assert sorted(shell.driver.state.namespaces) == ["n1", "n2", "n3"]


def test_an_epoch_that_is_not_newer_than_the_log_opens_nothing() -> None:
    """A store of leases that was lost begins again with small epochs; the log is the fence."""
    shell = Shell(lambda state: Counter(state, 1)).elect(epoch=5).rest()
    shell.driver.lose("the lease is lost")
    (over,) = shell.do(SteppedDown)
    assert over.why == "the lease is lost"
    shell.driver.lead(Epoch(5), "one")
    (over,) = shell.do(SteppedDown)
    assert "not newer than epoch 5 in the log" in over.why
    assert shell.sent is None


def test_a_lease_that_is_lost_does_not_leave_an_append_behind() -> None:
    """The outcome of the append under way is awaited before the term ends."""
    shell = Shell(lambda state: Counter(state, 3)).elect()
    shell.do()
    shell.driver.lose("the lease is lost")
    assert shell.do(SteppedDown) == []
    shell.answer()
    shell.fold()
    assert [type(each) for each in shell.do(CommitStored, SteppedDown)] == [CommitStored, SteppedDown]


def test_a_stop_takes_no_further_decision_and_awaits_the_append() -> None:
    """`is_stopped` is true when the log has all that was sent."""
    shell = Shell(lambda state: Counter(state, 3)).elect()
    shell.do()
    shell.driver.stop()
    stopped = [shell.driver.is_stopped]
    shell.answer()
    shell.fold()
    assert shell.do(Send) == []
    stopped.append(shell.driver.is_stopped)
    assert stopped == [False, True]
    assert sorted(shell.driver.state.namespaces) == ["n1"]


# --- appends ---------------------------------------------------------------------------------------------------------


def test_a_large_append_is_split_and_complete_before_the_next_decision() -> None:
    """Each part fits, all events are in the log in order, and `Settled` comes after the last part only."""
    events = names(40)
    shell, (machine,) = _led([Append(events=events)], [])
    assert [each.name for each in shell.events()[1:]] == [each.name for each in events]
    assert max(len(encode_commit(entry.commit)) for entry in shell.entries) <= 2_000
    assert len(shell.entries) > 2
    assert len(machine.of(Settled)) == 2


def test_a_cycle_is_never_split() -> None:
    """Its decisions are appended together or not at all, whatever the size."""
    shell = Shell(
        lambda state: Recorder(state, [[Append(events=names(40))]]),
        producer=Producer.SCHEDULER,
        bounds=DriverLimits(commit_bytes_max=2_000),
    )
    shell.elect().rest()
    assert [len(entry.commit.events) for entry in shell.entries] == [1, 40]


def _led(*script: list[Command]) -> tuple[Shell, list[Recorder]]:
    shell, made = scripted(*script)
    shell.elect().rest()
    return shell, made


def test_an_append_whose_answer_was_lost_is_sent_again_and_counts_once() -> None:
    """The fence makes it safe: the second one conflicts with the first, which is recognised as ours."""
    shell = Shell(lambda state: Counter(state, 2)).elect()
    shell.do()
    assert shell.sent is not None
    shell.store(shell.sent.payload)
    shell.sent = None
    shell.driver.timed_out()
    shell.take()
    shell.answer()
    shell.fold()
    assert [type(each) for each in shell.do(CommitStored, CommitRefused)] == [CommitStored]
    shell.answer()
    shell.fold()
    shell.rest()
    assert [each.name for each in shell.events()[1:]] == ["n1", "n2"]


def test_a_subject_that_ends_before_what_was_read_is_damage() -> None:
    """No rival does that: the log has lost entries."""
    shell = Shell(lambda state: Counter(state, 2)).elect()
    shell.do()
    with pytest.raises(LogRolledBackError):
        shell.driver.conflicted(Seq(0))


def test_a_commit_of_ours_that_the_fold_refuses_stops_the_process() -> None:
    """It would be appended and refused again for ever."""
    shell = Shell(lambda state: Counter(state, 1)).elect()
    (send,) = shell.do(Send)
    forged = msgspec.structs.replace(send.commit, prev="0" * 32)
    state = shell.driver.state
    state.producers[BRIDGE].number = 0
    shell.driver.appended(state.position)
    with pytest.raises(OwnCommitRefusedError, match=forged.id):
        shell.do()


# --- calls, time, stimuli --------------------------------------------------------------------------------------------


def test_unanswered_calls_hold_decisions_back() -> None:
    """At most `calls_max` run, the others follow as answers come, and no `Settled` is sent while as many wait."""
    calls: list[Command] = [Call(id=f"c{n}", method="GET", path="/") for n in range(4)]
    shell, (machine,) = _led(calls, [])
    assert [each.id for each in shell.done if isinstance(each, Call)] == ["c0", "c1"]
    shell.driver.receive(Completed("c1", 200))
    assert [each.id for each in shell.do(Call)] == ["c2"]
    assert len(machine.of(Settled)) == 1
    assert shell.driver.is_full
    for name in ("c0", "c2"):
        shell.driver.receive(Completed(name, 200))
    shell.do()
    assert len(machine.of(Settled)) == 2
    assert [each.call_id for each in machine.of(Completed)] == ["c1", "c0", "c2"]


def test_a_feeder_is_asked_to_wait_when_much_was_heard() -> None:
    """`has_room` ends at `stimuli_max` and returns when the machine has processed them."""
    shell, _ = _led([])
    for number in range(3):
        assert shell.driver.has_room
        shell.driver.receive(Completed(f"x{number}", 200))
    assert not shell.driver.has_room
    shell.do()
    assert shell.driver.has_room


def test_settled_comes_when_something_is_new_or_due_and_never_twice_for_one_reason() -> None:
    """Without news there is one `Settled`; `WakeAt` brings another at its time, once, and time never runs back."""
    shell, (machine,) = _led([WakeAt(UnixMs(START_MS + 500))], [])
    shell.do()
    assert len(machine.of(Settled)) == 1
    shell.now_ms = UnixMs(START_MS + 500)
    shell.do()
    shell.do()
    assert len(machine.of(Settled)) == 2
    shell.now_ms = UnixMs(START_MS - 60_000)
    shell.driver.receive(Completed("x", 200))
    shell.do()
    times = [each.now_ms for each in machine.of(Settled)]
    assert times[-1] >= START_MS, "a clock that is set back does not set decisions back"


def test_a_snapshot_is_asked_for_before_anything_else_is_folded() -> None:
    """The shell takes it from the state as it is then."""
    shell, _ = _led([TakeSnapshot("s")])
    (taken,) = [each for each in shell.done if isinstance(each, TakeSnapshot)]
    assert taken.call_id == "s"


# --- defects ---------------------------------------------------------------------------------------------------------


class Careful:
    """Appends n1, n2, ... n5, but those in quarantine; fails over n3."""

    def __init__(self, state: State, *, helpless: bool = False) -> None:
        self.state = state
        self.helpless = helpless

    def decide(self, stimulus: Stimulus) -> list[Command]:
        for name in (f"n{number}" for number in range(1, 6)):
            aside = any(record.key == name for record in self.state.quarantine.values())
            if not isinstance(stimulus, Settled) or name in self.state.namespaces or (aside and not self.helpless):
                continue
            with about("Namespace", name):
                assert name != "n3", "n3 is odd"
            return [Append(events=(NamespaceObserved(name=name),))]
        return []


def test_a_defect_costs_its_object_and_the_term_goes_on() -> None:
    """The machine is dropped, the object set aside in the log, and a new machine does the rest in the same epoch."""
    shell = Shell(Careful, treatments=Treatments()).elect().rest()
    assert sorted(shell.driver.state.namespaces) == ["n1", "n2", "n4", "n5"]
    assert [event.name for event in shell.events() if isinstance(event, ObjectQuarantined)] == ["n3"]
    assert {entry.commit.epoch for entry in shell.entries} == {1}
    kinds = [type(each) for each in shell.done if isinstance(each, MachineDropped | MachineMade | ObjectSetAside)]
    assert kinds == [MachineMade, MachineDropped, ObjectSetAside, MachineMade]


def test_a_defect_that_setting_aside_does_not_help_is_raised() -> None:
    """The process stops with it; in a simulation any defect does."""
    with pytest.raises(Exception, match="n3 is odd"):
        Shell(lambda state: Careful(state, helpless=True), treatments=Treatments()).elect().rest()
    with pytest.raises(Exception, match="n3 is odd"):
        Shell(Careful).elect().rest()
    assert FAILURES_MAX >= 1


def test_nothing_reaches_the_next_machine() -> None:
    """Stimuli, calls and the timer of a machine end with it."""
    shell, made = _led([Call(id="c", method="GET", path="/"), WakeAt(UnixMs(START_MS + 1))])
    shell.driver.receive(Completed("c", 200))
    shell.rival(epoch=2)
    shell.fold()
    shell.driver.advance(shell.now_ms)
    assert (shell.driver.stimuli_waiting, shell.driver.calls_unanswered, shell.driver.wake_at_ms) == (0, 0, None)
    shell.driver.receive(Completed("c", 200))
    assert shell.driver.stimuli_waiting == 0
    assert made[0].of(Completed) == []


# --- in any order ----------------------------------------------------------------------------------------------------


class Fickle:
    """Appends as `Counter` does, with calls and times in between; it asserts what the driver promises."""

    def __init__(self, state: State, goal: int) -> None:
        self._counter = Counter(state, goal)
        self._under_way: set[str] = set()
        self._number = 0
        self.state = state

    def decide(self, stimulus: Stimulus) -> list[Command]:
        commands = self._counter.decide(stimulus)
        if isinstance(stimulus, Completed):
            self._under_way.remove(stimulus.call_id)
        if isinstance(stimulus, Settled):
            assert len(self._under_way) < 2, "a decision although too many calls are unanswered"
            if commands and self._number < 30:
                self._number += 1
                call_id = f"c{self.state.position}-{self._number}"
                self._under_way.add(call_id)
                commands.append(Call(id=call_id, method="GET", path="/"))
        return commands


GOAL = 6
STEPS = ("turn", "answer", "answer lost", "fold", "fold one", "lose", "rival", "call ends", "wait")


@settings(deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=120))
def test_in_whatever_order_things_happen_the_goal_is_reached_once(steps: list[str]) -> None:
    """Answers lost or late, leases lost, rivals: every event is in the log once, and the machine's promises hold."""
    shell = Shell(lambda state: Fickle(state, GOAL), bounds=DriverLimits(calls_max=2))
    running: list[str] = []
    epoch = 0

    def turn() -> None:
        nonlocal epoch
        if shell.driver.epoch is None:
            epoch = max(epoch, shell.driver.epoch_seen) + 1
            shell.driver.lead(Epoch(epoch), "one")
        for output in shell.do(Call, MachineDropped):
            if isinstance(output, MachineDropped):
                running.clear()
            else:
                running.append(output.id)

    for step in [*steps, *("turn", "answer", "fold", "call ends") * (8 * GOAL)]:
        match step:
            case "turn":
                turn()
            case "answer" if shell.sent is not None:
                shell.answer()
            case "answer lost" if shell.sent is not None:
                if shell.sent.expected_last == _last(shell):
                    shell.store(shell.sent.payload)
                shell.sent = None
                shell.driver.timed_out()
                shell.take()
            case "fold":
                shell.fold()
            case "fold one" if shell.driver.state.position < len(shell.entries) and not shell.driver.is_at_election:
                shell.driver.fold(shell.entries[shell.driver.state.position])
            case "lose":
                shell.driver.lose("lost")
            case "rival":
                epoch = max(epoch, *(entry.commit.epoch for entry in shell.entries), 0) + 1
                shell.rival(epoch)
            case "call ends" if running:
                shell.driver.receive(Completed(running.pop(0), 200))
            case "wait":
                shell.now_ms = UnixMs(shell.now_ms + 1000)
    told = [event.name for event in shell.events() if isinstance(event, NamespaceObserved)]
    assert told == [f"n{number}" for number in range(1, GOAL + 1)]


def _last(shell: Shell) -> int:
    return max((entry.seq for entry in shell.entries), default=0)
