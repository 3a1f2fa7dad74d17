"""A cluster with a journal: killed at any moment, another continues from its objects."""

import errno
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cluster.conftest import START_MS, Client, Clock

from headgate.testing.cluster import BY_PLURAL, Cluster, ControllerOptions, serve
from headgate.testing.cluster.storage import persistence
from headgate.testing.cluster.storage.persistence import FILE, Journal, JournalError, JournalInUseError

PODS = BY_PLURAL[("", "pods")]
JOBS = BY_PLURAL[("batch", "jobs")]


class Life:
    """A cluster in a directory, and its next lives."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = Clock()
        self.said: list[str] = []
        self.starts = 0
        self.begin()

    def begin(self) -> None:
        self.starts += 1
        self.journal = Journal(
            self.directory, seed=f"seed-{self.starts}", log=self.said.append, failed=self.fail_at_once
        )
        try:
            options = ControllerOptions(default_scheduler=True)
            self.client = Client(Cluster(self.clock, controllers=options, journal=self.journal), self.clock)
        except BaseException:
            self.journal.close()
            raise

    @staticmethod
    def fail_at_once(error: OSError) -> NoReturn:
        raise SystemExit(str(error))

    def kill(self) -> None:
        """What SIGKILL leaves: whatever was handed to the operating system, and no lock."""
        self.journal._pending.clear()
        self.journal.close()

    def restart(self, after_ms: int = 0) -> Client:
        self.kill()
        self.clock.now_ms += after_ms
        self.begin()
        return self.client

    def objects(self) -> dict[str, list[dict[str, Any]]]:
        tables = self.client.cluster.store.tables.values()
        return {table.kind.resource: [entry.obj for entry in table.select("")] for table in tables}

    def due(self) -> bool:
        """Let the next thing happen that is due; whether there was one."""
        due_ms = self.client.cluster.next_due_ms()
        if due_ms is not None:
            self.clock.now_ms = max(self.clock.now_ms, due_ms)
            self.client.cluster.step(self.clock.now_ms)
        return due_ms is not None


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    with_nodes = Life(tmp_path)
    add_nodes(with_nodes)
    yield with_nodes
    with_nodes.journal.close()


def add_nodes(life: Life) -> None:
    for name in ("n1", "n2"):
        capacity = {"capacity": {"cpu": "4", "memory": "8Gi"}}
        life.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": capacity})
    life.client.settle(until_ms=0)


def a_job(name: str, **annotations: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "template": {
                "metadata": {"annotations": {f"headgate.dev/{key}": value for key, value in annotations.items()}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            }
        },
    }


def pods(life: Life) -> list[dict[str, Any]]:
    return life.client.cluster.objects(PODS)


def phases(life: Life) -> list[str]:
    return sorted(pod["status"]["phase"] for pod in pods(life))


def finished(life: Life, name: str) -> str:
    """How a Job ended."""
    (job,) = [each for each in life.client.cluster.objects(JOBS) if each["metadata"]["name"] == name]
    return ",".join(
        c["type"] for c in job["status"].get("conditions", ()) if c["type"] in ("Complete", "Failed") and c["status"]
    )


# --- objects -------------------------------------------------------------------------------------------------------


def test_a_killed_cluster_has_every_object_again(life: Life, config_map: dict, workload: dict) -> None:
    """As they were, with their uids, times and resource versions; what was deleted stays deleted."""
    for name in ("a", "b"):
        life.client.create({**config_map, "metadata": {"name": name}})
    life.client.create(workload)
    life.client.create(a_job("j", **{"run-ms": "5000"}))
    life.client.settle(until_ms=1000)
    life.client.delete({**config_map, "metadata": {"name": "b"}})
    assert life.client.status == 200
    before, rv = life.objects(), life.client.cluster.store.rv
    assert before["pods"]
    life.restart()
    assert life.objects() == before
    assert life.client.cluster.store.rv == rv
    assert life.said == []


def test_an_answer_is_never_ahead_of_the_journal(life: Life, config_map: dict) -> None:
    """Whatever a request or a step did is in the file when it returns: a copy of it taken then has it all."""
    writes = (
        lambda: life.client.create(config_map),
        lambda: life.client.patch(config_map, "merge", {"data": {"a": "2"}}),
        lambda: life.client.apply({**config_map, "data": {"b": "3"}}, "me", force="true"),
        lambda: life.client.create(a_job("j")),
        lambda: life.client.settle(),
        lambda: life.client.delete(config_map),
        lambda: life.client.cluster.apply({**config_map, "metadata": {"name": "d"}}),
    )
    for number, write in enumerate(writes):
        write()
        copy = life.directory / f"copy-{number}"
        copy.mkdir()
        (copy / FILE).write_bytes((life.directory / FILE).read_bytes())
        other = Life(copy)
        assert other.objects() == life.objects()
        other.journal.close()


def test_resource_versions_never_go_back(life: Life, config_map: dict) -> None:
    """After deletions too, whose versions no object has, and after a compaction, and twice over."""
    for _ in range(3):
        life.client.create(config_map)
        life.client.delete(config_map)
        last = life.client.cluster.store.rv
        assert life.client.call("GET", "/api/v1/configmaps")["metadata"]["resourceVersion"] == str(last)
        life.restart()
        assert life.client.call("GET", "/api/v1/configmaps")["metadata"]["resourceVersion"] == str(last)
        created = life.client.create({**config_map, "metadata": {"name": "other"}})
        assert int(created["metadata"]["resourceVersion"]) > last
        life.client.delete({**config_map, "metadata": {"name": "other"}})


def test_a_watch_from_before_the_restart_gets_410_and_one_from_its_end_goes_on(life: Life, config_map: dict) -> None:
    """The history is gone, so nothing may be skipped silently; where nothing was missed, nothing is lost."""
    old = life.client.create(config_map)["metadata"]["resourceVersion"]
    last = life.client.patch(config_map, "merge", {"data": {"a": "2"}})["metadata"]["resourceVersion"]
    cluster = life.restart().cluster
    (event,) = cluster.watch("/api/v1/configmaps", {"resourceVersion": old}).poll_events()
    assert (event[0], event[1]["code"]) == ("ERROR", 410)
    going_on = cluster.watch("/api/v1/configmaps", {"resourceVersion": last})
    life.client.patch(config_map, "merge", {"data": {"a": "3"}})
    assert [(kind, obj["data"]) for kind, obj in going_on.poll_events()] == [("MODIFIED", {"a": "3"})]


def test_a_page_token_from_before_the_restart_is_expired(life: Life, config_map: dict) -> None:
    """A list that was begun before and would have to be shown as of then."""
    for name in ("a", "b"):
        life.client.create({**config_map, "metadata": {"name": name}})
    token = life.client.call("GET", "/api/v1/configmaps", limit="1")["metadata"]["continue"]
    life.client.create({**config_map, "metadata": {"name": "c"}})
    life.restart()
    life.client.call("GET", "/api/v1/configmaps", **{"continue": token, "limit": "1"})
    assert life.client.status == 410


def test_uids_and_generated_names_do_not_come_again(life: Life, config_map: dict) -> None:
    """Not those of deleted objects either: the seed stays, and the counter continues."""
    seen: set[str] = set()
    generated = {**config_map, "metadata": {"generateName": "x-", "namespace": "default"}}
    for _ in range(4):
        for _ in range(5):
            metadata = life.client.call("POST", "/api/v1/namespaces/default/configmaps", generated)["metadata"]
            assert not {metadata["uid"], metadata["name"]} & seen
            seen |= {metadata["uid"], metadata["name"]}
            life.client.call("DELETE", f"/api/v1/namespaces/default/configmaps/{metadata['name']}")
        life.restart()
    assert life.journal.seed == "seed-1"


def test_a_journal_has_one_owner(life: Life) -> None:
    """A second process is refused, and the first is left alone."""
    with pytest.raises(JournalInUseError, match="runs already"):
        Journal(life.directory, seed="x", log=life.said.append, failed=life.fail_at_once)
    life.restart()


# --- controllers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("down_ms", "ends_ms"), [(10_000, 60_000), (90_000, 110_000)])
def test_a_running_pod_runs_for_what_is_left_of_its_time(life: Life, down_ms: int, ends_ms: int) -> None:
    """Not from the start again; and at once, if its time went by while the cluster was down."""
    life.client.create(a_job("j", **{"run-ms": "60000"}))
    life.client.settle(until_ms=20_000)
    (uid,) = [pod["metadata"]["uid"] for pod in pods(life)]
    life.restart(after_ms=down_ms)
    life.client.settle()
    assert life.clock.now_ms == START_MS + ends_ms
    assert [(pod["metadata"]["uid"], pod["status"]["phase"]) for pod in pods(life)] == [(uid, "Succeeded")]
    assert finished(life, "j") == "Complete"


def test_a_starting_pod_and_one_that_waits_to_be_started_again_go_on(life: Life, pod: dict) -> None:
    """The one becomes ready, the other's back-off ends, when they would have."""
    pod["metadata"]["annotations"] = {"headgate.dev/start-ms": "8000", "headgate.dev/run-ms": "1000"}
    failing = {**pod, "metadata": {"name": "q", "annotations": {"headgate.dev/exit-code": "1"}}}
    failing["spec"] = {**pod["spec"], "restartPolicy": "OnFailure"}
    life.client.create(pod)
    life.client.create(failing)
    life.client.settle(until_ms=5000)
    assert life.client.get(failing)["status"]["containerStatuses"][0]["restartCount"] == 1
    life.restart()
    life.client.settle(until_ms=7999)
    assert life.client.get(pod)["status"]["phase"] == "Pending"
    life.client.settle(until_ms=10_999)
    assert life.client.get(pod)["status"]["phase"] == "Succeeded"
    assert "waiting" in life.client.get(failing)["status"]["containerStatuses"][0]["state"]
    life.client.settle(until_ms=11_000)
    assert "running" in life.client.get(failing)["status"]["containerStatuses"][0]["state"]


def test_a_dying_pod_takes_no_longer_to_die(life: Life, pod: dict) -> None:
    """What it had left when the cluster was killed."""
    pod["metadata"]["annotations"] = {"headgate.dev/stop-ms": "20000", "headgate.dev/run-ms": "600000"}
    life.client.create(pod)
    life.client.settle(until_ms=1000)
    life.client.delete(pod)
    life.client.settle(until_ms=10_000)
    life.restart()
    life.client.settle(until_ms=20_999)
    assert phases(life) == ["Running"]
    life.client.settle(until_ms=21_000)
    assert phases(life) == []


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_what_has_succeeded_is_not_run_again_even_if_its_pod_is_gone(life: Life, mode: str) -> None:
    """Two of four are done, and one of their pods is deleted, before the cluster is killed."""
    job = a_job("j", **{"run-ms": "5000"})
    job["spec"] |= {"completions": 4, "parallelism": 2, "completionMode": mode}
    life.client.create(job)
    life.client.settle(until_ms=6000)
    done = [pod for pod in pods(life) if pod["status"]["phase"] == "Succeeded"]
    life.client.delete({"apiVersion": "v1", "kind": "Pod", "metadata": done[0]["metadata"]})
    life.client.settle(until_ms=6000)
    life.restart()
    life.client.settle()
    assert finished(life, "j") == "Complete"
    assert phases(life) == ["Succeeded"] * 3
    assert life.client.get(job)["status"]["succeeded"] == 4


def test_a_suspension_that_the_restart_interrupts_uses_up_no_retries(life: Life) -> None:
    """The suspended pods vanish after it, and a Job without any retries left still runs to its end."""
    job = a_job("j", **{"run-ms": "5000", "stop-ms": "3000"})
    job["spec"] |= {"backoffLimit": 0}
    life.client.create(job)
    life.client.settle(until_ms=1000)
    life.client.patch(job, "merge", {"spec": {"suspend": True}})
    life.client.settle(until_ms=1000)
    life.restart()
    life.client.settle(until_ms=10_000)
    assert phases(life) == []
    life.client.patch(job, "merge", {"spec": {"suspend": False}})
    life.client.settle()
    assert finished(life, "j") == "Complete"


def test_failures_are_remembered_and_the_back_off_is_not(life: Life) -> None:
    """As with the real controller: the limit is reached after as many failures, the pause ends with the controller."""
    job = a_job("j", **{"run-ms": "1000", "exit-code": "1"})
    job["spec"] |= {"backoffLimit": 2}
    life.client.create(job)
    created = []
    for until_ms in (5000, 6000, 10_000, 20_000):
        life.client.settle(until_ms=until_ms)
        created.append(len(pods(life)))
        life.restart()
    assert created == [1, 2, 3, 3]
    life.client.settle()
    assert finished(life, "j") == "Failed"
    assert life.client.get(job)["status"]["failed"] == 3


def test_a_dependent_whose_owner_was_just_deleted_is_still_collected(life: Life) -> None:
    """The deletion was kept, its consequences were not begun."""
    job = a_job("j", **{"run-ms": "60000"})
    life.client.create(job)
    life.client.settle(until_ms=1000)
    life.client.delete(job, {"propagationPolicy": "Background"})
    life.restart()
    life.client.settle()
    assert pods(life) == []


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kills=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 9000)), min_size=1, max_size=5),
)
def test_killed_at_any_moments_jobs_finish_and_nothing_runs_twice(
    tmp_path_factory: pytest.TempPathFactory, kills: list[int], shapes: list[tuple[int, int, int]]
) -> None:
    """As many pods as completions were ever created, whenever the cluster was killed, and so after each restart."""
    life = Life(tmp_path_factory.mktemp("life"))
    add_nodes(life)
    for number, (completions, parallelism, run_ms) in enumerate(shapes):
        job = a_job(f"j{number}", **{"run-ms": str(run_ms)})
        job["spec"] |= {"completions": completions, "parallelism": parallelism}
        if number % 2:
            job["spec"]["completionMode"] = "Indexed"
        life.client.create(job)
    for steps in kills:
        for _ in range(steps):
            life.due()
        before = life.objects()
        life.restart(after_ms=100 * steps)
        assert life.objects() == before
    while life.due():
        pass
    life.journal.close()
    assert {finished(life, f"j{number}") for number in range(len(shapes))} == {"Complete"}
    assert phases(life) == ["Succeeded"] * sum(completions for completions, _, _ in shapes)


# --- the file ------------------------------------------------------------------------------------------------------


def test_a_cut_anywhere_in_the_last_record_takes_back_that_record_alone(life: Life, config_map: dict) -> None:
    """With one line in the log, that names file and line; the next start has nothing to say."""
    life.client.create(config_map)
    before, kept = life.objects(), (life.directory / FILE).read_bytes()
    life.client.patch(config_map, "merge", {"data": {"a": "2"}})
    life.kill()
    whole = (life.directory / FILE).read_bytes()
    for length in range(len(kept) + 1, len(whole)):
        (life.directory / FILE).write_bytes(whole[:length])
        life.said.clear()
        life.begin()
        assert life.objects() == before
        (said,) = life.said
        lines = kept.count(b"\n") + 1
        assert said.startswith(f"{life.directory / FILE}:{lines}: dropped the last record")
        life.restart()
        assert life.said == [said]
        life.kill()


DAMAGE: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "garbled": lambda lines: [*lines[:3], b"\0" * len(lines[3]) + b"\n", *lines[4:]],
    "a line lost its end": lambda lines: [*lines[:3], lines[3][:10] + b"\n", *lines[4:]],
    "an object lost its name": lambda lines: [*lines[:3], lines[3].replace(b'"name":', b'"nome":'), *lines[4:]],
    "an unknown kind": lambda lines: [*lines[:3], lines[3].replace(b'"kind":"', b'"kind":"x', 1), *lines[4:]],
    "older than the line before": lambda lines: [*lines[:3], lines[3].replace(b'{"rv":', b'{"rv":0.'), *lines[4:]],
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_before_the_end_stops_the_start(life: Life, config_map: dict, how: str) -> None:
    """With file, line and the way out; nothing is written, so that the file can be repaired."""
    life.client.create(config_map)
    life.kill()
    file = life.directory / FILE
    file.write_bytes(b"".join(DAMAGE[how](file.read_bytes().splitlines(keepends=True))))
    damaged = file.read_bytes()
    with pytest.raises(JournalError, match=rf"{FILE}:4: .*or delete it, and the cluster starts empty"):
        life.begin()
    assert file.read_bytes() == damaged
    file.unlink()
    life.begin()
    assert life.objects()["configmaps"] == []


def test_a_file_of_another_format_is_not_touched(life: Life) -> None:
    """A newer version's, or not ours at all."""
    life.kill()
    file = life.directory / FILE
    header, *rest = file.read_bytes().splitlines(keepends=True)
    for text in (header.replace(b'"format":1', b'"format":2'), b"hello", b"\n"):
        file.write_bytes(text + b"".join(rest))
        with pytest.raises(JournalError, match=rf"{FILE}:1: "):
            life.begin()
        assert file.read_bytes() == text + b"".join(rest)


def test_the_journal_stays_within_its_bound(life: Life, config_map: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often an object changes, the file is at most COMPACT_RATIO times the live objects and one record."""
    monkeypatch.setattr(persistence, "COMPACT_BYTES_MIN", 1)
    life.restart()
    file = life.directory / FILE
    least = file.stat().st_size
    life.client.create(config_map)
    sizes = []
    for number in range(2000):
        life.client.patch(config_map, "merge", {"data": {"a": "x" * 1000 + str(number)}})
        sizes.append(file.stat().st_size)
    assert max(sizes) > 2 * least
    assert max(sizes) <= persistence.COMPACT_RATIO * (least + 2000) + 2000
    assert sum(after < before for before, after in pairwise(sizes)) >= 2
    before = life.objects()
    life.restart()
    assert life.objects() == before
    assert not list(life.directory.glob("*.part"))


def test_a_compaction_that_finds_no_room_leaves_the_journal_as_it_is(
    life: Life, config_map: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported once, and what follows is still kept."""
    monkeypatch.setattr(persistence, "COMPACT_BYTES_MIN", 1)
    life.restart()

    def no_room(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    life.client.create(config_map)
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", no_room)
        while not life.said:
            life.client.patch(config_map, "merge", {"data": {"a": "x" * 50_000 + str(life.client.cluster.store.rv)}})
    (said,) = life.said
    assert "cannot be rewritten: No space left" in said
    life.client.patch(config_map, "merge", {"data": {"b": "1"}})
    before = life.objects()
    life.restart()
    assert life.objects() == before


def test_what_cannot_be_kept_is_not_answered(life: Life, config_map: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends instead, and the next one does not know of it, even if a part was written."""
    before = life.objects()
    write = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) <= 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:20])

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full)
        with pytest.raises(SystemExit, match="No space left"):
            life.client.create(config_map)
    life.restart()
    assert life.objects() == before


def test_the_file_says_what_it_is(life: Life) -> None:
    """JSON lines: a header, then batches."""
    header, first, *_ = [msgspec.json.decode(line) for line in (life.directory / FILE).read_bytes().splitlines()]
    assert header == {"format": 1, "seed": "seed-1"}
    assert first.keys() == {"rv", "identities"}


def test_without_room_it_ends_and_may_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, which a supervisor retries, and one line with the remedy."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Journal, "_rewrite", full)
    assert serve.main(["--data", str(tmp_path)]) == 1
    said = "".join(capsys.readouterr())
    assert said.count("\n") == 1
    assert "cannot be written: No space left on device; make room for it" in said
