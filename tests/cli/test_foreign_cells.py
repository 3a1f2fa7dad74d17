"""`headgate up` where it does not belong: another cluster's cell, a broker that has lost its store."""

import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.support.waiting import until

from headgate.adapters.jetstream import connect, open_log
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.permissions import ADMIN
from headgate.adapters.jetstream.users import make_streams, options_of
from headgate.cli import cell as cells
from headgate.cli.children import ChildState
from headgate.cli.output import BROKEN, WRONG_USAGE, CliError
from headgate.cli.supervisor import PROCESSES, Supervisor, UpOptions

pytestmark = pytest.mark.anyio

PATIENCE_S = 60
QUICK = {"HEADGATE_RECORD_EVERY_MS": "100"}


async def leaders(url: str) -> dict[str, int]:
    """How many terms each process has opened in the log of the cell `main`."""
    async with connect(url, name="test") as connection:
        log = await open_log(connection, "main")
        text = [entry.payload async for batch in log.read(1) for entry in batch]
    return {name: sum(b'"leader.elected"' in each and name.encode() in each for each in text) for name in PROCESSES}


async def test_a_second_cluster_with_the_same_cell_name_is_refused_and_disturbs_nobody(tmp_path: Path) -> None:
    """One broker, two clusters, both called main: the second ends with one line, the first leads on undisturbed."""
    async with EmbeddedServer(tmp_path / "nats") as server:
        first = UpOptions(data=tmp_path / "first", nats_url=server.url)
        second = UpOptions(data=tmp_path / "second", nats_url=server.url)
        async with Supervisor(first) as running:
            await running.wait_ready()
            before = await leaders(server.url)
            news: list[str] = []
            with anyio.fail_after(PATIENCE_S):
                async with Supervisor(second, news.append) as foreign:
                    with pytest.raises(CliError, match=r"two clusters must not share a cell.*--cell") as error:
                        await foreign.wait_ready()
                    for name in ("informer-bridge", "binder", "ungater"):
                        child = foreign.children[name]
                        await until(lambda child=child: child.state is ChildState.FAILED)  # type: ignore[misc]
                        assert child.restarts == 0
            assert error.value.code == WRONG_USAGE
            await running.wait_ready()
            assert await leaders(server.url) == before
            assert all(child.restarts == 0 for child in running.children.values())


async def length(running: Supervisor) -> int:
    """How many entries the log of a cell's own broker has."""
    options = options_of(running.data / cells.NATS_USERS, "main", ADMIN)
    async with connect(running.nats_url, name="test", options=options) as connection:
        await make_streams(connection, "main")
        return await (await open_log(connection, "main")).last_seq()


async def recorded(running: Supervisor, tmp_path: Path) -> None:
    """Wait until the cluster has the record of the cell."""
    log = tmp_path / "cell" / "cluster"

    def is_there() -> bool:
        return any(b"headgate-cell-main" in file.read_bytes() for file in log.rglob("*") if file.is_file())

    await until(is_there, lambda: [child.last_words() for child in running.children.values()])


async def test_a_broker_that_comes_back_empty_is_not_taken_for_a_new_one(headgate: Callable, tmp_path: Path) -> None:
    """The cluster has a record of the cell: `up` refuses to begin a new log, and names the commands to continue."""
    options = UpOptions(data=tmp_path / "cell", env=QUICK)
    async with Supervisor(options) as running:
        await running.wait_ready()
        await recorded(running, tmp_path)
    shutil.rmtree(tmp_path / "cell" / cells.NATS_STORE / "jetstream")
    for _ in range(2):  # also the second time, when there is an empty stream
        with anyio.fail_after(PATIENCE_S):
            async with Supervisor(options) as running:
                with pytest.raises(CliError, match=r"the log is empty.*headgate restore.*headgate rebuild") as error:
                    await running.wait_ready()
                assert error.value.code == BROKEN
                assert running.children["informer-bridge"].restarts == 0
                assert await length(running) == 0


async def test_a_broker_that_loses_its_store_under_a_running_cell_stops_it(tmp_path: Path) -> None:
    """Every process reports it and stays down; none begins a new log."""
    options = UpOptions(data=tmp_path / "cell", env=QUICK)
    news: list[str] = []
    async with Supervisor(options, news.append) as running:
        await running.wait_ready()
        await recorded(running, tmp_path)
        assert running.nats is not None
        running.kill("nats")
        shutil.rmtree(tmp_path / "cell" / cells.NATS_STORE / "jetstream")
        with anyio.fail_after(PATIENCE_S):
            for name in PROCESSES:
                child = running.children[name]
                await until(lambda child=child: child.state is ChildState.FAILED, lambda: news)  # type: ignore[misc]
                assert "headgate restore" in child.last_words(), child.last_words()
                assert "Traceback" not in child.log_file.read_text()
        assert await length(running) == 0
