"""kill -9 of each process and of the broker, again and again, under load."""

from pathlib import Path

import pytest
from tests.chaos.harness import PROCESSES, chaos

from headgate.cli.supervisor import NATS

pytestmark = [pytest.mark.chaos, pytest.mark.anyio, pytest.mark.timeout(600)]


@pytest.mark.parametrize("victim", [*PROCESSES, NATS])
async def test_killed_at_random_moments(victim: str, tmp_path: Path, chaos_seed: int, kills: int) -> None:
    """However often a process or the broker dies: all jobs finish, the log is sound, replay agrees with live state."""
    async with chaos(tmp_path, chaos_seed) as run:
        for number in range(1, kills + 1):
            await run.kill(victim, number, kills)
        await run.judge()
