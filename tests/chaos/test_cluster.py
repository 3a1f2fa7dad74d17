"""A cluster of three brokers, every write synced: its stream leader and all six processes die, again and again."""

from pathlib import Path

import anyio
import pytest
from tests.chaos.harness import PROCESSES, Chaos, chaos

from headgate.adapters.jetstream.embedded import EmbeddedCluster
from headgate.adapters.jetstream.stream import stream_name

pytestmark = [pytest.mark.chaos, pytest.mark.anyio, pytest.mark.timeout(900)]


async def kill_leader(cluster: EmbeddedCluster, run: Chaos, number: int, times: int) -> None:
    """Kill the server that leads the log's stream, and start it again a moment later."""
    with anyio.fail_after(30):
        leader = await cluster.leader_of(stream_name("main"))
    await anyio.sleep(run.random.uniform(0, 0.5))
    await cluster.kill(leader)
    run.kills += 1
    run.say(f"stream leader n{leader} killed {number}/{times} at position {run.driver.state.position}")
    await anyio.sleep(run.random.uniform(0.1, 1.5))
    await cluster.restart(leader)


async def kill_all(run: Chaos, number: int, times: int) -> None:
    """Kill each of the six, in any order, at moments of their own."""
    victims = list(PROCESSES)
    run.random.shuffle(victims)
    for victim in victims:
        await anyio.sleep(run.random.uniform(0, 0.4))
        await run.eventually(lambda victim=victim: run.cell.pid(victim) is not None, f"{victim} runs again", 30)  # type: ignore[misc]
        run.cell.kill(victim)
        run.kills += 1
    run.say(f"all six processes killed {number}/{times}")


async def test_stream_leaders_and_processes_killed(tmp_path: Path, chaos_seed: int, kills: int) -> None:
    """Three replicas, sync_interval always, leader and processes killed each time: nothing is lost, all jobs finish."""
    async with (
        EmbeddedCluster(tmp_path / "nats", sync_interval="always") as cluster,
        chaos(tmp_path / "cell", chaos_seed, nats_url=cluster.url, env={"HEADGATE_NATS_REPLICAS": "3"}) as run,
    ):
        for number in range(1, kills + 1):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(kill_leader, cluster, run, number, kills)
                tasks.start_soon(kill_all, run, number, kills)
            await run.until_ready("nats", 90)
            await run.progress(3, 90)
        await run.judge()
