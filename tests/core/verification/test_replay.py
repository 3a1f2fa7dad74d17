"""A replay decides at the recorded positions, and compares with the recorded decisions."""

from collections.abc import Callable

from tests.support.history import History

from headgate.core import fold
from headgate.core.log.rules_version import RULES
from headgate.core.state.tables import State
from headgate.core.verification.replay import DecideCycle, Plan, Replay, Replayed
from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import Producer
from headgate.events.ids import Seq, Uid, WorkloadKey
from headgate.events.registry import Event

BRIDGE, SCHEDULER, SNAPSHOTTER = Producer.INFORMER_BRIDGE, Producer.SCHEDULER, Producer.SNAPSHOTTER


def decided(state: State) -> tuple[Event, ...]:
    """A scheduler that reports the number of namespaces: its decision shows which state it was given."""
    heads = tuple(
        queueing.Head(cluster_queue=name, workload=WorkloadKey("n/w"), uid=Uid("u")) for name in state.namespaces
    )
    return (decisions.CycleDecided(cycle=state.cycle + 1, decided_at=state.position, heads=heads),)


def replayed(history: History, decide: DecideCycle = decided) -> Replayed:
    plan = Plan()
    for logged in history.commits:
        plan.feed(logged)
    replay = Replay(fold.new_state("main"), plan, decide)
    for logged in history.commits:
        replay.feed(logged)
    return replay.result()


def a_history() -> History:
    """A log in which the scheduler's term has begun."""
    history = History()
    history.term(SCHEDULER)
    return history


def namespace(history: History, name: str) -> None:
    history.put(BRIDGE, facts.NamespaceObserved(name=name))


def decide(history: History) -> tuple[int, tuple[Event, ...]]:
    return history.position, decided(history.state)


def test_a_cycle_is_decided_on_the_state_it_saw_not_on_the_one_it_landed_on() -> None:
    """Commits of others between decision and append do not matter."""
    history = a_history()
    namespace(history, "a")
    at, events = decide(history)
    namespace(history, "b")
    history.put(SCHEDULER, *events, decided_at=at)
    namespace(history, "c")
    result = replayed(history)
    assert (result.cycles, result.differences) == (1, ())


def _heads(event: Event) -> tuple[queueing.Head, ...]:
    assert isinstance(event, decisions.CycleDecided)
    return event.heads


def test_a_recorded_cycle_that_saw_something_else_is_a_difference() -> None:
    """The first event that differs is shown, with its place."""
    history = a_history()
    namespace(history, "a")
    _, events = decide(history)
    namespace(history, "b")
    lied_about = history.position
    recorded = (decisions.CycleDecided(cycle=1, decided_at=Seq(lied_about), heads=_heads(events[0])),)
    seq = history.put(SCHEDULER, *recorded, decided_at=lied_about).seq
    (difference,) = replayed(history).differences
    assert difference.position.seq == seq
    assert '"a"' in difference.recorded
    assert '"b"' in difference.replayed
    assert '"b"' not in difference.recorded


def test_an_event_too_many_or_too_few_is_a_difference() -> None:
    """Decisions are compared as a whole."""
    history = a_history()
    namespace(history, "a")
    at, events = decide(history)
    more = decisions.WorkloadAdmitted(workload=WorkloadKey("n/w"), uid=Uid("u"), cluster_queue="a", message="m")
    history.put(SCHEDULER, *events, more, decided_at=at)
    (difference,) = replayed(history).differences
    assert difference.replayed == "nothing"
    assert difference.position.index == 1


def test_snapshots_are_compared_with_the_state_at_their_position() -> None:
    """Announced later, taken then."""
    history = a_history()
    namespace(history, "a")
    good = effects.SnapshotTaken(
        position=Seq(history.position),
        state_hash=fold.state_hash(history.state),
        log_hash=history.state.log_hash,
        name="good",
        size_bytes=1,
    )
    namespace(history, "b")
    history.term(SNAPSHOTTER, rules=RULES[SNAPSHOTTER])
    history.put(SNAPSHOTTER, good)
    assert replayed(history).differences == ()
    history.put(
        SNAPSHOTTER,
        effects.SnapshotTaken(position=Seq(2), state_hash="wrong", log_hash="wrong", name="bad", size_bytes=1),
    )
    (difference,) = replayed(history).differences
    assert "snapshot bad of position 2" in difference.what
    assert replayed(history).snapshots == 2


def test_a_replay_ends_with_the_state_of_the_log() -> None:
    """Its hashes are those of any fold of it."""
    history = a_history()
    namespace(history, "a")
    result = replayed(history)
    assert result.state_hash == fold.state_hash(history.state)
    assert (result.position, result.commits, result.events) == (3, 3, 3)


def skips(needs: queueing.Needs) -> Callable[[State], tuple[Event, ...]]:
    """A scheduler whose verdict needs this."""

    def decide(state: State) -> tuple[Event, ...]:
        verdict = decisions.WorkloadSkipped(
            workload=WorkloadKey("n/w"),
            uid=Uid("u"),
            cluster_queue="cq",
            status="notNominated",
            requeue_reason="NoFit",
            scope="shape",
            reason="WaitingForQuota",
            message="",
            needs=needs,
        )
        return (decisions.CycleDecided(cycle=state.cycle + 1, decided_at=state.position), verdict)

    return decide


def test_what_an_older_release_could_not_say_is_not_compared() -> None:
    """Verdicts without needs are no difference, until the log has the first with them."""
    history, needs = a_history(), ({"f/cpu": "1"},)
    namespace(history, "a")
    for recorded in (skips(()), skips(needs), skips(())):
        history.put(SCHEDULER, *recorded(history.state), decided_at=history.position)
    result = replayed(history, skips(needs))
    assert result.cycles == 3
    assert [difference.position.seq for difference in result.differences] == [history.position]
