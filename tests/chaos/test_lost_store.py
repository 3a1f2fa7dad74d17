"""The broker's store is lost under load, again and again, and brought back from the last backup: all jobs finish."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.benchmarks.driving import running_cell
from tests.benchmarks.manifests import cluster
from tests.chaos.harness import CPU, PROCESSES, TEAMS, Chaos

from headgate.cli import cell as cells

pytestmark = [pytest.mark.chaos, pytest.mark.anyio, pytest.mark.timeout(600)]

LOSSES = 4
BACKUPS = 2


@asynccontextmanager
async def life(data: Path, seed: int, created: list[str]) -> AsyncIterator[Chaos]:
    """The cell from one start to the next loss, with the jobs of all its lives."""
    async with running_cell(data) as driver:
        if not created:
            await driver.create_all(cluster(teams=TEAMS, cpu=CPU, strict=1), 1)
        run = Chaos(driver, seed, [])
        run.created = created
        #: A Job that was resumed as the store was lost may be suspended afterwards, and run some of its pods twice.
        run.more_pods = True
        yield run


async def test_every_job_finishes_though_the_log_is_lost_again_and_again(tmp_path: Path, chaos_seed: int) -> None:
    """
    Backups are made while all of it runs; between the last of them and the loss anything may have happened.

    At the end the audit finds nothing, and the replay decides all of it the same.
    """
    data, backup, created = tmp_path / "cell", tmp_path / "backup", list[str]()
    for number in range(LOSSES):
        async with life(data, chaos_seed + number, created) as run:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run.load)
                for _ in range(BACKUPS):
                    await run.progress(8)
                    await anyio.to_thread.run_sync(run.headgate, "backup", "--out", str(backup))
                await anyio.sleep(run.random.uniform(0.0, 3.0))
                run.say(f"the store is lost for the {number + 1}th time")
                run.stop_loading()
            for name in PROCESSES:
                run.cell.kill(name)
        shutil.rmtree(data / cells.NATS_STORE / "jetstream")
        await anyio.to_thread.run_sync(run.headgate, "restore", "--from", str(backup))
    async with life(data, chaos_seed + LOSSES, created) as run:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.load)
            await run.progress(10)
            run.stop_loading()
        await run.judge()
