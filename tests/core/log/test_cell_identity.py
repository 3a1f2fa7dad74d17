"""A cell is founded once; its log names its cell, cluster and stream, and the keys that may sign."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.logs import TestLog

from headgate.core import fold
from headgate.core.log.cell_identity import objection
from headgate.core.state.tables import Identity, State
from headgate.events.base import Producer
from headgate.events.effects import LeaderElected
from headgate.events.identity import CellFounded, CellKeysChanged, CellRestored
from headgate.events.ids import Seq

BRIDGE = Producer.INFORMER_BRIDGE
FOUNDED = CellFounded(cell="main", cluster="uid-1", stream="s1", log_id="log-1", keys={"binder": ("k",)})


def folded(*events: CellFounded | CellKeysChanged | CellRestored) -> State:
    log = TestLog()
    log.append(BRIDGE, LeaderElected(holder="a"))
    for event in events:
        log.append(BRIDGE, event)
    restored = fold.restore("main", fold.encode(log.state))
    assert restored.identity == log.state.identity, "a snapshot has it too"
    return log.state


def test_a_log_without_a_founding_has_no_identity() -> None:
    """As all logs of earlier versions."""
    assert folded().identity is None
    assert b"identity" not in fold.encode(folded())


def test_the_first_founding_counts_and_later_ones_change_nothing() -> None:
    """Two bridges that found the cell at one time found it once."""
    identity = folded(FOUNDED, msgspec.structs.replace(FOUNDED, cluster="uid-2", log_id="log-2")).identity
    assert identity == Identity(
        cell="main",
        cluster="uid-1",
        stream="s1",
        log_id="log-1",
        keys={"binder": ("k",)},
        signing="off",
        founded_at=Seq(2),
    )


def test_changed_keys_replace_all_keys() -> None:
    """From the event on those of the event count, and no others."""
    identity = folded(FOUNDED, CellKeysChanged(keys={"scheduler": ("a", "b")}, signing="required")).identity
    assert identity is not None
    assert (identity.keys, identity.signing) == ({"scheduler": ("a", "b")}, "required")


def test_a_restored_cell_goes_on_in_another_stream_and_says_what_is_lost() -> None:
    """The log keeps its id; where it stopped and what it had had is kept with it."""
    event = CellRestored(backup="b7", position=Seq(400), stream="s2", lost_to=Seq(512), why="disk lost")
    identity = folded(FOUNDED, event).identity
    assert identity is not None
    assert identity.restored is not None
    assert (identity.stream, identity.log_id) == ("s2", "log-1")
    assert (identity.restored.at, identity.restored.position, identity.restored.lost_to) == (3, 400, 512)


def test_keys_and_restorations_of_a_cell_that_was_never_founded_change_nothing() -> None:
    """They say something of an identity that is not there."""
    assert (
        folded(CellKeysChanged(keys={}, signing="off"), CellRestored(backup="b", position=Seq(1), stream="s")).identity
        is None
    )


@given(st.sampled_from(["cell", "cluster", "stream", ""]), st.text(min_size=1))
def test_exactly_what_differs_is_objected_to(field: str, other: str) -> None:
    """A process of the same cell, cluster and stream continues; otherwise the error names the difference."""
    identity = Identity(cell="main", cluster="uid-1", stream="s1", log_id="l")
    mine = {"cell": "main", "cluster": "uid-1", "stream": "s1"}
    if field:
        mine[field] = other
    said = objection(identity, **mine)
    assert bool(said) == (mine != {"cell": "main", "cluster": "uid-1", "stream": "s1"})
    if said:
        assert field in said
        assert other in said


@pytest.mark.parametrize("cluster", ["", "uid-1"])
def test_who_talks_to_no_cluster_is_not_asked_which(cluster: str) -> None:
    """The queue manager, the scheduler and the snapshotter know none."""
    identity = Identity(cell="main", cluster="uid-1", stream="s1", log_id="l")
    assert objection(identity, cell="main", stream="s1", cluster=cluster) is None
