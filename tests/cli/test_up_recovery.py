"""`headgate up` loses its broker's store, and is brought back by the commands that its message names."""

import json
import re
import shutil
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import yaml
from tests.processes.test_end_to_end import CONFIGURATION, job
from tests.support.waiting import until

from headgate.cli import cell as cells
from headgate.cli import main
from headgate.cli.output import BROKEN, CliError
from headgate.cli.supervisor import Supervisor, UpOptions

pytestmark = pytest.mark.anyio

QUICK = {"HEADGATE_RECORD_EVERY_MS": "100"}
JOBS = 4


async def headgate(*args: object) -> int:
    return await anyio.to_thread.run_sync(main.run, [str(arg) for arg in args])


async def running_pods(data: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The running pods: their uids, and when each was started."""
    capsys.readouterr()
    assert await headgate("get", "pods", "-n", "default", "-o", "json", "--data", data) == 0
    found = json.loads(capsys.readouterr().out)
    return {
        each["metadata"]["uid"]: each["status"]["startTime"]
        for each in found.get("items", [])
        if each.get("status", {}).get("phase") == "Running"
    }


@pytest.mark.parametrize("way", ["restore", "rebuild"])
async def test_a_cell_of_up_comes_back_by_what_its_message_says(
    way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The store is gone: `up` refuses to begin a new log, and names two command lines.

    After either of them it is up again, and the jobs have not noticed.
    """
    options = UpOptions(data=tmp_path / "cell", env=QUICK)
    async with Supervisor(options) as running:
        await running.wait_ready()
        manifests = tmp_path / "jobs.yaml"
        jobs = [job(f"job-{number}", cpu="500m", run_ms=10**9) for number in range(JOBS)]
        manifests.write_text(yaml.safe_dump_all([*CONFIGURATION, *jobs]))
        assert await headgate("apply", "-f", manifests, "--data", options.data) == 0

        async def run() -> bool:
            return len(await running_pods(options.data, capsys)) == JOBS

        await until(run)
        before = await running_pods(options.data, capsys)
        assert await headgate("backup", "--out", tmp_path / "backup", "--data", options.data) == 0
    shutil.rmtree(options.data / cells.NATS_STORE / "jetstream")
    async with Supervisor(options) as running:
        with pytest.raises(CliError) as error:
            await running.wait_ready()
        assert error.value.code == BROKEN
    lines = [found.split() for found in re.findall(r"`headgate ([^`]*)`", str(error.value))]
    line = next(line for line in lines if line[0] == way)
    words = {"DIR": tmp_path / "backup", "FILE": tmp_path / "aside"}
    assert await headgate(*(words.get(word, word) for word in line), "--data", options.data) == 0
    async with Supervisor(options) as running:
        await running.wait_ready()
        assert await running_pods(options.data, capsys) == before
        assert await headgate("audit", "--data", options.data) == 0
