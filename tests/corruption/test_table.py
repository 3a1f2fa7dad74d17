"""
What can happen to the stores of a cell, one by one: which check finds it, and where.

Each row is run through the audit (of the log alone, and with the other stores), a verifying replay, and a
process that starts from the beginning of the log. Damage that needs a real store, a torn tail above all, is in
`test_store` and `tests/cli/test_damaged_store.py`; feeds that continue behind a restore are in `tests/recovery`.
"""

import re
from collections.abc import Callable

import msgspec
import pytest
from tests.corruption.cells import CELL, Cell, Verdict, audited, decoded, judged, meaning, recorded
from tests.corruption.test_random import SEED, undamaged
from tests.support.forging import forged, waiting_and_running

from headgate.adapters.log import LogEntry
from headgate.core.audit.log import Audit, AuditFinding
from headgate.core.state.tables import Stage
from headgate.events import decisions, queueing
from headgate.events.base import Producer
from headgate.events.commit import digest
from headgate.events.identity import CellFounded
from headgate.events.objects import Admission, PodSetAssignment
from headgate.processes.snapshots import store as snapshots

MIDDLE = 60
"""A position well before the end."""


def cell(*, snapshots: bool = False) -> Cell:
    """Stores to be damaged. Without its snapshots every process starts at the beginning of the log."""
    found = recorded(SEED).copy()
    if not snapshots:
        found.blobs.clear()
    return found


def checks(findings: list[AuditFinding]) -> set[str]:
    return {finding.check for finding in findings}


def replaced(damaged: Cell, position: int, **fields: object) -> Cell:
    index = position - 1
    damaged.entries[index] = msgspec.structs.replace(damaged.entries[index], **fields)
    return damaged


def everybody_says(verdict: Verdict, position: int, check: str) -> None:
    """The audit, the replay and the process name a position at which, or right behind which, the damage shows."""
    assert check in checks(verdict.alone), verdict.alone
    first = min(finding.position.seq for finding in verdict.alone if finding.check == check)
    assert position <= first, verdict.alone
    assert verdict.replay, "the replay goes on"
    assert any(f"{each}" in verdict.start for each in range(position, first + 1)), verdict.start


# --- the log -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "check"),
    [
        (lambda payload: payload[:-10], "readable"),
        (lambda payload: payload.replace(b'"epoch":1', b'"epoch":1 '), "chain"),
        (lambda payload: payload.replace(b'"time_ms":17', b'"time_ms":16'), "chain"),
        (lambda _: b'{"events":[{"type":"job.teleported"}]}', "readable"),
        (lambda _: b"", "readable"),
    ],
    ids=["cut", "bytes", "value", "unknown event", "empty"],
)
def test_a_changed_entry(how: Callable[[bytes], bytes], check: str) -> None:
    """Bytes that do not decode are named by their position; others by the first commit that attests others."""
    damaged = cell()
    payload = how(damaged.entries[MIDDLE - 1].payload)
    everybody_says(judged(replaced(damaged, MIDDLE, payload=payload)), MIDDLE, check)


def test_a_missing_entry() -> None:
    """A hole, and the same with the others closed up behind it."""
    damaged = cell()
    del damaged.entries[MIDDLE - 1]
    everybody_says(judged(damaged), MIDDLE, "gaps")
    closed = [msgspec.structs.replace(entry, seq=seq) for seq, entry in enumerate(damaged.entries, 1)]
    damaged.entries = closed
    verdict = judged(damaged)
    assert checks(verdict.alone) & {"gaps", "chain"}
    assert verdict.replay
    assert "position" in verdict.start


def test_an_entry_twice() -> None:
    """Its producer's number comes once more."""
    damaged = cell()
    damaged.entries.insert(MIDDLE, damaged.entries[MIDDLE - 1])
    damaged.entries = [msgspec.structs.replace(entry, seq=seq) for seq, entry in enumerate(damaged.entries, 1)]
    everybody_says(judged(damaged), MIDDLE + 1, "gaps")


def test_two_entries_in_the_other_order() -> None:
    """Any two neighbours, of one producer or of two: the commits behind them attest the order that they had."""
    for position in range(1, len(recorded(SEED).entries)):
        damaged = cell(snapshots=True)
        one, other = damaged.entries[position - 1 : position + 1]
        damaged.entries[position - 1 : position + 1] = [
            msgspec.structs.replace(other, seq=one.seq, time_ms=one.time_ms),
            msgspec.structs.replace(one, seq=other.seq, time_ms=other.time_ms),
        ]
        assert audited(damaged).findings, f"positions {position} and {position + 1}"


def test_a_log_that_begins_late() -> None:
    """What came before is missing, and no check takes the rest for the whole."""
    damaged = cell()
    del damaged.entries[:5]
    verdict = judged(damaged)
    assert "the log begins at 6" in verdict.alone[0].text
    assert verdict.replay
    assert verdict.start


def test_the_last_commit_of_each_producer_edited() -> None:
    """Also the very last cannot be changed: the leases have its hash, and the feed its contents."""
    for producer in Producer:
        damaged = cell()
        of_producer = [logged for logged in decoded(damaged.entries) if logged.commit.producer is producer]
        last = of_producer[-1]
        payload = damaged.entries[last.seq - 1].payload
        edited = payload.replace(b'"time_ms":', b'"time_ms":1', 1)
        assert edited != payload
        verdict = judged(replaced(damaged, last.seq, payload=edited))
        assert verdict.audit, producer


def test_an_entry_on_another_producers_subject() -> None:
    """It names its cell, and is elsewhere."""
    damaged = cell()
    entry = damaged.entries[MIDDLE - 1]
    other = next(each.subject for each in damaged.entries if each.subject != entry.subject)
    verdict = judged(replaced(damaged, MIDDLE, subject=other))
    everybody_says(verdict, MIDDLE, "readable")
    assert f"position {MIDDLE}" in verdict.replay[0]


def test_an_entry_on_another_cells_subject() -> None:
    """The subject names another cell: it is refused, and is missing at its old place."""
    damaged = cell()
    entry = damaged.entries[MIDDLE - 1]
    verdict = judged(replaced(damaged, MIDDLE, subject=entry.subject.replace(f".{CELL}.", ".other.")))
    assert (verdict.alone[0].check, verdict.alone[0].position.seq) == ("refused", MIDDLE)
    assert "the log is broken at position" in verdict.start


def test_another_cells_log_under_this_cells_name() -> None:
    """The log itself names its cell."""
    damaged = cell()
    founded = next(
        logged for logged in decoded(damaged.entries) if any(type(e) is CellFounded for e in logged.commit.events)
    )
    damaged.entries[:] = [
        msgspec.structs.replace(entry, subject=entry.subject.replace(f".{CELL}.", ".other."))
        for entry in damaged.entries
    ]
    auditor = Audit("other")
    for entry in damaged.entries:
        auditor.feed_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)
    (finding,) = auditor.report().findings
    assert (finding.check, finding.position.seq) == ("stream", founded.seq)
    assert "founded for the cell sim" in finding.text
    assert audited(cell()).findings == ()


def test_the_brokers_time_changed() -> None:
    """A commit is stored when it was made, or later; and entries one behind the other."""
    for position, by_ms in ((MIDDLE, 86_400_000), (MIDDLE, -86_400_000)):
        damaged = cell()
        entry = damaged.entries[position - 1]
        verdict = judged(replaced(damaged, position, time_ms=entry.time_ms + by_ms))
        assert checks(verdict.alone) == {"clock"}
        assert {finding.position.seq for finding in verdict.alone} & {position, position + 1}


# --- what stands beside it -----------------------------------------------------------------------------------------


def test_a_log_that_ends_too_soon_before_its_snapshot() -> None:
    """Rolled back, or cut with its index: the snapshot, the leases and the feed know of more."""
    damaged = cell(snapshots=True)
    kept = min(int(name.rpartition("-")[2]) for name in damaged.blobs) - 1
    del damaged.entries[kept:]
    verdict = judged(damaged)
    assert verdict.alone == [], "of itself it is sound"
    assert checks(verdict.audit) == {"snapshots", "leases", "cluster", "feed"}
    assert all("headgate restore" in finding.text for finding in verdict.audit)
    assert f"the stream ends at {kept}" in verdict.start
    assert "headgate restore" in verdict.start


def test_a_log_that_ends_too_soon_behind_its_snapshots() -> None:
    """Where no snapshot shows it, the leases and the feed do."""
    damaged = cell()
    del damaged.entries[-10:]
    end = damaged.entries[-1].seq
    verdict = judged(damaged)
    assert verdict.alone == []
    assert checks(verdict.audit) == {"leases", "cluster", "feed"}
    assert any(f"the log at position {end}" in finding.text for finding in verdict.audit)


def test_a_log_that_went_on_otherwise_after_it_was_rolled_back() -> None:
    """As long as before, and another one from some position on: the feed shows where, the leases that it is so."""
    damaged = cell()
    kept = len(damaged.entries) - 20
    state = undamaged(recorded(SEED), kept)
    entries = tuple(damaged.entries[:kept])
    for _ in range(25):
        withdrawn = queueing.HeadsWithdrawn(cluster_queues=("team-a",), reason="r")
        entries = forged(entries, state, Producer.QUEUE_MANAGER, withdrawn)
        state = undamaged(Cell(list(entries)), len(entries))
    damaged.entries = list(entries)
    verdict = judged(damaged)
    assert {"leases", "feed"} <= checks(verdict.audit)
    assert min(finding.position.seq for finding in verdict.audit if finding.check == "feed") == kept + 1


def test_a_whole_store_that_is_older_than_the_cluster() -> None:
    """The broker has come back from a backup, and all of it agrees: only the cluster has a later record."""
    damaged = cell()
    kept = len(damaged.entries) - 20
    state = undamaged(damaged, kept)
    damaged = Cell(damaged.entries[:kept], record=damaged.record)
    verdict = judged(damaged)
    assert checks(verdict.audit) == {"cluster"}
    (finding,) = verdict.audit
    assert f"it ends at {state.position}: commits are lost" in finding.text
    assert "headgate restore" in finding.text


def test_a_broker_that_came_back_empty() -> None:
    """Nothing is left of the log: the cluster has a record of one."""
    verdict = judged(Cell([], record=recorded(SEED).record))
    assert checks(verdict.audit) == {"cluster"}
    assert "this one was never founded" in verdict.audit[0].text


def test_a_snapshot_with_other_content_and_matching_hashes() -> None:
    """The log has its hash: the audit reports it, and no process starts from it."""
    damaged = cell(snapshots=True)
    for name, blob in damaged.blobs.items():
        encoded = blob.partition(b"\n")[2]
        changed = re.sub(rb'"nominalQuota":"\d+"', b'"nominalQuota":"800"', encoded)
        assert changed != encoded
        meta = msgspec.structs.replace(snapshots.read_meta(blob), state_hash=digest(changed), size_bytes=len(changed))
        damaged.blobs[name] = msgspec.json.encode(meta) + b"\n" + changed
    verdict = judged(damaged)
    assert checks(verdict.audit) == {"snapshots"}
    assert len(verdict.audit) == len(damaged.blobs)
    assert verdict.state is not None
    assert meaning(verdict.state) == meaning(undamaged(recorded(SEED), len(damaged.entries)))


def test_leases_of_an_older_store() -> None:
    """Their epochs lie before those of the log."""
    damaged = cell()
    for producer, lease in damaged.leases.items():
        damaged.leases[producer] = msgspec.structs.replace(lease, epoch=lease.epoch - 1, position=0, log_hash="")
    verdict = judged(damaged)
    assert checks(verdict.audit) == {"leases"}
    assert len(verdict.audit) == len(damaged.leases)


# --- who writes ----------------------------------------------------------------------------------------------------


def appended(producer: Producer, *events: object) -> tuple[Verdict, int]:
    """A commit that its producer has not made, put at the end of a genuine log."""
    entries, state, _, _ = waiting_and_running(SEED)
    log = forged(entries, state, producer, *events)  # type: ignore[arg-type]
    return judged(Cell([*log])), log[-1].seq


def test_a_forged_end_of_a_running_job() -> None:
    """Its quota would be given away while it runs."""
    _, _, _, running = waiting_and_running(SEED)
    over = queueing.WorkloadFinished(workload=running.key, uid=running.uid, reason="Succeeded", message="m")
    verdict, position = appended(Producer.QUEUE_MANAGER, over)
    assert [(finding.check, finding.position.seq) for finding in verdict.alone] == [("ended", position)]
    assert verdict.replay[0].startswith(f"{position}.0: what the queue-manager decided")


def test_a_forged_admission_over_quota() -> None:
    """More than there is, in a cycle that no scheduler has decided."""
    _, state, waiting, _ = waiting_and_running(SEED)
    assert waiting.stage in (Stage.QUEUED, Stage.OFFERED)
    assignment = PodSetAssignment(flavors={"cpu": "on-demand"}, resource_usage={"cpu": "1000"}, count=1)
    reserved = decisions.QuotaReserved(
        workload=waiting.key,
        uid=waiting.uid,
        cluster_queue=waiting.cluster_queue,
        admission=Admission(cluster_queue=waiting.cluster_queue, pod_set_assignments=(assignment,)),
        message="m",
    )
    cycle = decisions.CycleDecided(cycle=state.cycle + 1, decided_at=state.position)
    verdict, position = appended(Producer.SCHEDULER, cycle, reserved)
    assert ("quota", position) in {(finding.check, finding.position.seq) for finding in verdict.alone}
    assert verdict.replay[0].startswith(f"{position}.")


def test_an_entry_that_nobody_of_the_six_would_write() -> None:
    """What any user may publish below the log's subject is refused, reported, and stops no process."""
    damaged = cell()
    last = damaged.entries[-1]
    damaged.entries.append(LogEntry(last.seq + 1, f"headgate.{CELL}.log.foo", last.time_ms, b"hello"))
    verdict = judged(damaged)
    assert ("refused", last.seq + 1) in {(finding.check, finding.position.seq) for finding in verdict.alone}
    (difference,) = verdict.replay
    assert difference.startswith(f"{last.seq + 1}.0: an entry that no process of this cell has appended")
    assert verdict.start == ""
    assert verdict.state is not None
    assert verdict.state.position == last.seq + 1
