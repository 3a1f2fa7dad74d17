"""After a restore: an old log beside a newer cluster, one workload at a time."""

from collections import OrderedDict

import msgspec
import pytest
from tests.core.fold.test_fold import BRIDGE, MANAGER, SCHEDULER, W, admitted, observed, offered, reserved, with_queue
from tests.support.logs import TestLog

from headgate.core import fold
from headgate.core.log import reconciliation
from headgate.core.log.branches import EventId, number_at, parse_event_id, token_of
from headgate.core.state.tables import Stage
from headgate.core.status.workload_status import is_settled, status_digest, workload_status
from headgate.events.base import EventBase, Producer
from headgate.events.commit import Position
from headgate.events.decisions import CycleDecided
from headgate.events.effects import LeaderElected, StatusApplied
from headgate.events.facts import InformersSynced, WorkloadDeleted, WorkloadObserved
from headgate.events.identity import CellRestored
from headgate.events.ids import Seq, Uid
from headgate.events.objects import Condition, WorkloadStatus
from headgate.events.queueing import WorkloadFinished
from headgate.machines.informer_bridge import diff

SYNCED = InformersSynced(resources=("workloads",), resource_versions={"workloads": "7"})


def restored(log: TestLog) -> TestLog:
    """As the bridge begins behind a backup."""
    event = CellRestored(backup="b", position=log.state.position, stream="new", lost_to=Seq(99))
    log.append(BRIDGE, event, LeaderElected(holder="one"), epoch=9)
    return log


def say(log: TestLog, *events: EventBase) -> None:
    """What the bridge appends of what it is shown."""
    news = [diff.news(log.state, each) or each if isinstance(each, WorkloadObserved) else each for each in events]
    log.append(BRIDGE, *news, epoch=9)


def admitted_status() -> WorkloadStatus:
    """What the API server shows of an admitted workload."""
    return WorkloadStatus(
        conditions=(
            Condition(type="QuotaReserved", status="True", last_transition_time="2026-01-01T00:00:00Z"),
            Condition(type="Admitted", status="True", last_transition_time="2026-01-01T00:00:00Z"),
        ),
        admission=reserved().admission,
    )


def evicted_status() -> WorkloadStatus:
    """What it shows of one that was evicted, has stopped, and waits again."""
    return WorkloadStatus(
        conditions=(
            Condition(
                type="QuotaReserved", status="False", reason="Pending", last_transition_time="2026-01-01T00:00:00Z"
            ),
            Condition(type="Evicted", status="True", reason="Preempted", last_transition_time="2026-01-01T00:00:00Z"),
        )
    )


def running() -> TestLog:
    """A workload that was admitted, as the log and the API server know."""
    log = with_queue(W)
    log.append(MANAGER, offered(W))
    log.append(SCHEDULER, CycleDecided(cycle=1, decided_at=Seq(3)), reserved(), admitted(), decided_at=3)
    digest = status_digest(workload_status(log.state, log.state.workloads[W]))
    log.append(Producer.BINDER, StatusApplied(workload=W, uid=Uid("u"), digest=digest))
    return log


def refolds(log: TestLog) -> bool:
    """Whether the log folds to the same state from its start and from its encoding."""
    encoded = fold.encode(log.state)
    return fold.encode(log.refold()) == encoded == fold.encode(fold.restore("main", encoded))


def test_a_restore_puts_everything_in_doubt_until_all_was_listed() -> None:
    """No watch is resumed, and only bridge and snapshotter may lead, until the lists are in the log."""
    log = with_queue(W)
    log.append(BRIDGE, InformersSynced(resource_versions={"workloads": "5"}, anchor="workloads 5 ADDED x"))
    restored(log)
    assert not log.state.synced
    assert log.state.resource_versions == {}
    assert log.state.anchor == ""
    assert [each for each in Producer if reconciliation.is_open(log.state, each)] == [BRIDGE, Producer.SNAPSHOTTER]
    say(log, observed())
    assert not reconciliation.is_open(log.state, SCHEDULER)
    say(log, SYNCED)
    assert all(reconciliation.is_open(log.state, each) for each in Producer)
    assert refolds(log)


def test_each_workload_is_shown_with_its_status_once() -> None:
    """The first fact since the restore is recorded in any case; the next only if something has changed."""
    log = restored(running())
    fact = observed(taken_over=admitted_status())
    assert diff.news(log.state, fact) == msgspec.structs.replace(fact, known=False)
    say(log, fact)
    assert diff.news(log.state, fact) is None


def test_a_status_that_was_written_is_known() -> None:
    """The fact states it, and the fold uses the fact: how a status is written does not matter to it."""
    log = running()
    written = workload_status(log.state, log.state.workloads[W])
    restored(log)
    news = diff.news(log.state, observed(taken_over=written))
    assert isinstance(news, WorkloadObserved)
    assert news.known
    before = log.state.workloads[W].first_seq
    log.append(BRIDGE, news, epoch=9)
    assert log.state.workloads[W].first_seq == before
    assert is_settled(log.state, log.state.workloads[W])
    assert refolds(log)


@pytest.mark.parametrize("is_newer", [False, True])
def test_a_log_that_does_not_say_what_was_known_is_folded_by_what_is_shown(is_newer: bool) -> None:
    """Earlier versions recorded the status only: it is known where the state has its admission and conditions."""
    log = running()
    written = workload_status(log.state, log.state.workloads[W])
    restored(log)
    log.append(BRIDGE, observed(taken_over=admitted_status() if is_newer else written), epoch=9)
    workload = log.state.workloads[W]
    assert workload.stage is Stage.ADMITTED
    assert (workload.first_seq == log.state.position) == is_newer
    assert refolds(log)


def test_who_was_admitted_behind_the_backup_is_admitted_and_charged() -> None:
    """The log has it waiting; what the API server shows is newer."""
    log = restored(with_queue(W))
    say(log, observed(taken_over=admitted_status()))
    assert log.state.workloads[W].stage is Stage.ADMITTED
    assert log.state.index.usage["cq"] == {("f", "cpu"): 2000}
    assert refolds(log)


def test_who_was_evicted_behind_the_backup_gives_its_quota_back() -> None:
    """The log has it admitted; the API server shows that it waits again."""
    log = restored(running())
    say(log, observed(taken_over=evicted_status()))
    assert log.state.workloads[W].stage is Stage.NEW
    assert not any(log.state.index.usage.get("cq", {}).values())
    assert refolds(log)


def test_who_is_gone_gives_its_quota_back() -> None:
    """A list that lacks it is the proof."""
    log = restored(running())
    say(log, WorkloadDeleted(workload=W, uid=Uid("u")), SYNCED)
    assert W not in log.state.workloads
    assert log.state.unconfirmed == {}
    assert not any(log.state.index.usage.get("cq", {}).values())


def test_what_the_log_has_decided_and_not_written_yet_stays_decided() -> None:
    """The API server still shows what was written before: nothing has happened that the log does not know."""
    log = with_queue(W)
    log.append(MANAGER, offered(W))
    log.append(SCHEDULER, CycleDecided(cycle=1, decided_at=Seq(3)), reserved(), admitted(), decided_at=3)
    restored(log)
    say(log, observed())
    assert log.state.workloads[W].stage is Stage.ADMITTED
    assert log.state.index.usage["cq"] == {("f", "cpu"): 2000}


def test_who_waits_as_the_log_says_keeps_its_place() -> None:
    """Nothing starts again for which nothing has changed."""
    log = restored(with_queue(W, "team-a/x"))
    before = log.state.workloads[W].queued_at_ms
    say(log, observed(), observed("team-a/x"), SYNCED)
    assert log.state.workloads[W].stage is Stage.QUEUED
    assert log.state.workloads[W].queued_at_ms == before


def test_an_end_stays_an_end() -> None:
    """What has finished by the log is not brought back by a status that was not written yet."""
    log = running()
    log.append(MANAGER, WorkloadFinished(workload=W, uid=Uid("u"), reason="Succeeded", message="ok"))
    restored(log)
    say(log, observed(taken_over=admitted_status()))
    assert log.state.workloads[W].stage is Stage.FINISHED


@pytest.mark.parametrize("count", [0, 1, 2])
def test_ids_behind_a_break_are_of_their_branch(count: int) -> None:
    """Before any restore an event is named by its position; behind one with the token of the branch in front."""
    log = with_queue(W)
    breaks = []
    for number in range(count):
        breaks.append(log.state.position)
        event = CellRestored(backup=f"b{number}", position=log.state.position, stream=f"s{number}")
        log.append(BRIDGE, event, LeaderElected(holder="one"), epoch=number + 2)
    branches = log.state.branches
    tokens = [token_of(branches, number_at(branches, Seq(seq))) for seq in range(1, log.state.position + 1)]
    assert len({*tokens}) == count + 1
    for seq, token in enumerate(tokens, 1):
        assert (token == "") == (not breaks or seq <= breaks[0])
        named = EventId(token, Position(Seq(seq), 3))
        assert parse_event_id(str(named)) == named


@pytest.mark.parametrize("text", ["", "1", "a.b", ":1.0", "1.0.0", "x:1"])
def test_what_names_no_event_is_refused(text: str) -> None:
    """Another controller has written it."""
    with pytest.raises(ValueError, match="is not"):
        parse_event_id(text)


def test_who_holds_no_quota_is_told_before_who_does() -> None:
    """So that a log that is behind never holds more than the cluster; among equals the order stays."""

    def raw(name: str, status: WorkloadStatus | None) -> bytes:
        body = {
            "metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"queueName": "lq", "podSets": []},
            "status": msgspec.to_builtins(status) if status is not None else {},
        }
        return msgspec.json.encode(body)

    waiting = OrderedDict(
        [
            ("n/a", raw("a", admitted_status())),
            ("n/b", raw("b", evicted_status())),
            ("n/c", b""),
            ("n/d", raw("d", admitted_status())),
            ("n/e", b"no object"),
        ]
    )
    assert [*reconciliation.releases_first(waiting)] == ["n/b", "n/c", "n/e", "n/a", "n/d"]
