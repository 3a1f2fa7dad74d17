"""The entry: what surrounds the loop, and how each end is reported."""

import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from tests.processes.cells import cell_of
from tests.support.brokers import Broker
from tests.support.founding import found
from tests.support.logs import TestLog
from tests.support.waiting import until

from headgate.adapters.jetstream import connect, open_log
from headgate.core.fold import quarantine
from headgate.events.base import EventBase, Producer
from headgate.events.commit import encode_commit
from headgate.events.facts import WorkloadObserved
from headgate.events.ids import Uid, UnixMs, WorkloadKey
from headgate.events.objects import PodSet, WorkloadSpec
from headgate.events.queueing import WorkloadReleased
from headgate.processes.entry import NAMES, Exit, Runner, main_of, processes, run_process
from headgate.processes.runtime.settings import (
    HttpSettings,
    KubernetesSettings,
    LeaseSettings,
    NatsSettings,
    Settings,
    SettingsError,
    TracingSettings,
)
from headgate.testing.cluster import Cluster
from headgate.testing.cluster.api.server import serve, wall_clock_ms
from headgate.web.routes import add_routes

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "nats") as server:
        yield server


def settings_of(server: Broker, **sections: Any) -> Settings:
    return Settings(holder="test", nats=NatsSettings(url=server.url), lease=LeaseSettings(term_ms=600), **sections)


async def append(server: Broker, log: TestLog, producer: Producer, *events: EventBase) -> None:
    """To the broker, without folding: what is appended here may be what cannot be folded."""
    logged = log.encode(producer, *events)
    async with connect(server.url, name="test") as connection:
        stored = await open_log(connection, "main")
        last = await stored.last_seq(producer.value)
        await stored.append(producer.value, encode_commit(logged.commit), expected_last=last, commit_id="x")


def test_there_are_six_processes_and_no_other() -> None:
    """Names are those of the producers."""
    assert tuple(sorted(processes())) == tuple(sorted(NAMES)) == tuple(sorted(each.value for each in Producer))
    with pytest.raises(SettingsError, match="there is no process 'placer'; there is informer-bridge"):
        run_process("placer", Settings())


async def test_a_port_that_is_taken_is_a_configuration_error(server: Broker, caplog) -> None:
    """One line names the setting."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        http = HttpSettings(port=taken.getsockname()[1])
        assert await main_of(Runner(processes()["scheduler"], settings_of(server, http=http))) == Exit.CONFIGURATION
    assert "http.port" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_kubeconfig_that_is_not_there_is_a_configuration_error(server: Broker, caplog) -> None:
    """It is found out before anything is appended."""
    kubernetes = KubernetesSettings(kubeconfig="/nowhere")
    assert await main_of(Runner(processes()["binder"], settings_of(server, kubernetes=kubernetes))) == 2
    assert "/nowhere" in caplog.text


async def test_what_can_neither_be_folded_nor_set_aside_is_told_as_a_story(server: Broker, caplog, monkeypatch) -> None:
    """The lines say where, when, who and what, up to the one that cannot be; the exit code is that of a broken log."""

    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(quarantine, "set_aside", fail)
    log = TestLog()
    key, uid = WorkloadKey("ns/w"), Uid("u")
    observed = WorkloadObserved(
        workload=key, uid=uid, created_ms=UnixMs(1), spec=WorkloadSpec(queue_name="lq", pod_sets=(PodSet(),))
    )
    await append(server, log, Producer.INFORMER_BRIDGE, observed)
    log.append(Producer.INFORMER_BRIDGE, observed)
    released = WorkloadReleased(workload=key, uid=uid, requeued=True, reason="x", message="never evicted")
    await append(server, log, Producer.QUEUE_MANAGER, released)
    assert await main_of(Runner(processes()["scheduler"], settings_of(server))) == Exit.BROKEN
    assert "the story of Workload ns/w" in caplog.text
    assert "1.0  2023-11-14T22:13:20.000Z  informer-bridge epoch 1  workload.observed" in caplog.text
    assert "2.0  2023-11-14T22:13:20.000Z  queue-manager epoch 1  workload.released" in caplog.text
    assert "RuntimeError: planted" in caplog.text


async def until_ready(cell: Any) -> None:
    await until(lambda: all(each.status.report().ready for each in cell.runners.values()))


async def test_each_process_says_how_it_does(server: Broker, tmp_path: Path, caplog) -> None:
    """/healthz, /readyz with dependencies, /metrics; the address file appears whole; the broker's loss shows."""
    address_file = tmp_path / "run" / "address"
    http = HttpSettings(address_file=str(address_file))
    names = ("snapshotter",)
    await found(server.url)
    async with (
        cell_of(server, "main", names=names, routes=add_routes, http=http) as cell,
        aiohttp.ClientSession() as session,
    ):
        await until_ready(cell)
        url = address_file.read_text().strip()
        assert url == cell.runners["snapshotter"].url
        async with session.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        async with session.get(f"{url}/metrics") as answer:
            text = await answer.text()
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert 'headgate_dependency_up{dependency="nats"} 1' in text
        assert "# TYPE kueue_admitted_workloads_total counter" in text or "headgate_commits_folded_total" in text
        async with session.get(f"{url}/state") as answer:
            assert (await answer.json())["cell"] == "main"
        await server.kill()
        await until(lambda: not cell.runners["snapshotter"].status.report().ready)
        report = await ready(session, url)
        failing = [each for each in report["dependencies"] if not each["ok"]]
        assert "nats" in [each["name"] for each in failing]
        assert all(each["error"] and each["since_ms"] for each in failing)
        await server.start()
        await until(lambda: cell.runners["snapshotter"].status.report().ready)
        assert (await ready(session, url))["ready"]


async def ready(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(f"{url}/readyz") as answer:
        body = msgspec.json.decode(await answer.read())
        assert answer.status == (200 if body["ready"] else 503)
        return body


async def test_commits_carry_the_trace_of_their_span(server: Broker, capfd, caplog) -> None:
    """With an exporter each commit's envelope has a traceparent, and the console shows the span."""
    caplog.set_level(logging.INFO)
    cell_settings: dict[str, Any] = {"tracing": TracingSettings(exporter="console")}
    async with cell_of(server, "main", names=("informer-bridge",), **cell_settings) as cell:
        await until_ready(cell)
        host = cell.runners["informer-bridge"].view.host
        assert host is not None
        await until(lambda: host.state.position >= 2)
    async with connect(server.url, name="test") as connection:
        entry = await (await open_log(connection, "main")).get(2)
    trace = msgspec.json.decode(entry.payload)["trace"]
    assert trace.startswith("00-")
    assert trace.split("-")[1] in capfd.readouterr().err


async def test_an_api_server_that_does_not_answer_shows_in_readiness(server: Broker, caplog) -> None:
    """The bridge cannot identify its cluster, so it appends nothing; /readyz has what it waits for and why."""
    kubernetes = KubernetesSettings(server="http://127.0.0.1:9")
    runner = Runner(processes()["informer-bridge"], settings_of(server, kubernetes=kubernetes))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.run)
        await until(lambda: runner.status.problems)
        report = runner.status.report()
        assert not report.ready
        (problem,) = report.problems
        assert "the identity of the cluster cannot be read" in problem
        assert "127.0.0.1:9" in problem
        assert report.position == 0
        runner.stop()


class Address:
    """One address, behind which one cluster after the other answers."""

    def __init__(self) -> None:
        self.url = ""
        self._stop = self._stopped = anyio.Event()

    async def answer(self, cluster: Cluster) -> None:
        """Serve a cluster until `close`."""
        self._stop, self._stopped = anyio.Event(), anyio.Event()
        async with serve(cluster, port=int(self.url.rpartition(":")[2] or 0)) as self.url:
            await self._stop.wait()
        self._stopped.set()

    async def close(self) -> None:
        self._stop.set()
        await self._stopped.wait()


async def test_a_cluster_that_is_exchanged_behind_its_address_ends_the_bridge(server: Broker, caplog) -> None:
    """Nothing of the new cluster gets into the log: one line, and the exit code of a wrong configuration."""
    codes: list[int] = []
    address = Address()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(address.answer, Cluster(wall_clock_ms, seed="first"))
        await until(lambda: address.url)
        kubernetes = KubernetesSettings(server=address.url)
        runner = Runner(processes()["informer-bridge"], settings_of(server, kubernetes=kubernetes))

        async def run() -> None:
            codes.append(await main_of(runner))

        tasks.start_soon(run)
        await until(lambda: runner.view.host is not None and runner.view.host.state.synced)
        assert runner.view.host is not None
        position = runner.view.host.state.position
        await address.close()
        other = Cluster(wall_clock_ms, seed="other")
        other.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "of-another"}})
        tasks.start_soon(address.answer, other)
        await until(lambda: codes)
        await address.close()
    assert codes == [Exit.CONFIGURATION]
    assert "another cluster answers" in caplog.text
    assert "Traceback" not in caplog.text
    async with connect(server.url, name="test") as connection:
        log = await open_log(connection, "main")
        later = [entry.payload async for batch in log.read(position + 1) for entry in batch]
    assert not any(b"of-another" in payload or b"deleted" in payload for payload in later)


async def test_a_process_without_its_right_ends_with_one_clear_line(server: Broker, caplog) -> None:
    """Under another user's key it may not receive its replies: the line names the user and the missing right."""
    await server.admit("main")
    mine = msgspec.structs.replace(settings_of(server), nats=server.settings("main", "reader"))
    with anyio.fail_after(30):
        assert await main_of(Runner(processes()["scheduler"], mine)) == Exit.BROKER
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    key = server.settings("main", "reader").nkey_seed_file
    assert said == [
        f"stopped: the user of {key} may not subscribe to {said[0].partition('subscribe to ')[2].partition(':')[0]}: "
        "give it the permissions that `headgate nats permissions` prints; nats.inbox_prefix "
        "(_INBOX_headgate_main_scheduler) has to be the one that they allow"
    ]
