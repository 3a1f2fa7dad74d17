"""
What the chaos runs have in common: a cell under load, kills, and the checks at the end.

`Chaos` keeps jobs coming, more than quota allows at a time, so that there is always something under way to be
interrupted. When the killing is over, `judge` demands that every job finishes (once), that `headgate audit` finds
nothing, and that `headgate replay --verify` folds the log to the live state, byte for byte. Every wait has a
deadline; a failure reports which jobs are stuck, the explanation of one, the status of the processes,
and the ends of their logs.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
from tests.benchmarks.driving import Driver, Late, eventually, running_cell
from tests.benchmarks.manifests import cluster, job

from headgate.cli import children
from headgate.cli.children import ChildState
from headgate.cli.supervisor import PROCESSES, ProcessReport
from headgate.core.state.tables import Stage

TEAMS = 4
CPU = 4
UNFINISHED_MAX = 40
DRAIN_S = 120.0
COMMAND_S = 120.0
LOG_LINES = 12
PROBE = aiohttp.ClientTimeout(total=2)
RESTART_S_MAX = 0.3
"""The supervisor's pauses are against crash loops; here it is us who kill, and the next kill is due soon."""


class Chaos:
    """A cell under load, and what became of it."""

    def __init__(self, driver: Driver, seed: int, news: list[str]) -> None:
        self.driver = driver
        self.cell = driver.cell
        self.seed = seed
        self.random = random.Random(seed)
        self.created: list[str] = []
        self.kills = 0
        #: A real Job controller that loses the answer to a create makes one pod more than it needs.
        self.more_pods = False
        self._news = news
        self._loading = True

    # --- load ------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Keep jobs coming, at most `UNFINISHED_MAX` ahead of what has finished, until `stop_loading`."""
        while self._loading:
            if len(self.created) - self.finished() >= UNFINISHED_MAX:
                await anyio.sleep(0.02)
                continue
            team = self.random.randrange(TEAMS)
            name = f"job-{len(self.created)}"
            self.created.append(f"team-{team}/{name}")
            cpu, pods = self.random.choice([("1", 1), ("500m", 3), ("2", 1), ("1", 2), ("3", 1)])
            run_ms = self.random.randint(50, 500)
            await self.driver.create(job(name, f"team-{team}", cpu=cpu, pods=pods, run_ms=run_ms))

    def stop_loading(self) -> None:
        """No more jobs."""
        self._loading = False

    def finished(self) -> int:
        """How many workloads the log calls finished."""
        return sum(each.stage is Stage.FINISHED for each in self.driver.state.workloads.values())

    async def progress(self, more: int, timeout_s: float = 60.0) -> None:
        """Wait until so many more jobs have finished."""
        goal = self.finished() + more
        await self.eventually(lambda: self.finished() >= goal, f"{more} more jobs finished", timeout_s)

    # --- killing ---------------------------------------------------------------------------------------------------

    async def kill(self, victim: str, number: int, times: int) -> None:
        """Kill a child (or "nats") at a random moment, most often when it works again, now and then while it starts."""
        if self.random.random() < 0.8:
            await self.until_ready(victim)
            await anyio.sleep(self.random.uniform(0.0, 0.6))
        else:
            await self.eventually(lambda: self.cell.pid(victim) is not None, f"{victim} runs again", 30)
            await anyio.sleep(self.random.uniform(0.0, 0.3))
        pid = self.cell.pid(victim)
        self.cell.kill(victim)
        self.kills += 1
        self.say(f"{victim} (pid {pid}) killed {number}/{times} at position {self.driver.state.position}")
        await self.eventually(lambda: self.cell.pid(victim) not in (None, pid), f"{victim} started again", 30)

    async def until_ready(self, victim: str, timeout_s: float = 60.0) -> None:
        """Wait until a child is ready; for the broker, until all are."""
        with anyio.move_on_after(timeout_s):
            while True:
                self.check_alive()
                reports = await self.cell.reports()
                if all(each.ready for each in reports if victim in ("nats", each.name)):
                    return
                await anyio.sleep(0.05)
        raise Late(await self.story(f"{victim} was not ready within {timeout_s:g} s"))

    async def readyz(self, name: str) -> dict[str, Any]:
        """A child's status; nothing when it does not answer."""
        return await self._readyz(self.cell.children[name])

    async def _readyz(self, child: children.Child) -> dict[str, Any]:
        try:
            async with self.driver.session.get(f"{child.address}/readyz", timeout=PROBE) as answer:
                said: dict[str, Any] = msgspec.json.decode(await answer.read())
                return said
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError):
            return {}

    async def wait_phase(self, child: children.Child, phase: str, timeout_s: float = 30.0) -> None:
        """Wait until a child reports a phase."""
        with anyio.move_on_after(timeout_s):
            while (await self._readyz(child)).get("phase") != phase:  # noqa: ASYNC110 - of another process
                await anyio.sleep(0.05)
            return
        raise Late(
            await self.story(f"{child.name} was not {phase} within {timeout_s:g} s: {await self._readyz(child)}")
        )

    def log_of(self, name: str) -> str:
        """All that a child has logged."""
        return self.cell.children[name].log_file.read_text(errors="replace")

    def check_alive(self) -> None:
        """None has given up for good."""
        for child in self.cell.children.values():
            assert child.state is not ChildState.FAILED, f"{child.name} gave up: {child.last_words()}"

    # --- waiting, and what is told ---------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Progress for `pytest -s`."""
        line = f"[{time.strftime('%H:%M:%S')}] {text}; {self.finished()} of {len(self.created)} jobs finished"
        self._news.append(line)
        print(line, flush=True)

    async def eventually(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait for a condition. Raises Late with the story."""

        def holds() -> bool:
            self.check_alive()
            return condition()

        try:
            await eventually(holds, lambda: what, timeout_s)
        except AssertionError as error:
            raise Late(await self.story(str(error))) from error

    async def story(self, what: str) -> str:
        """Everything that one would ask first."""
        lines = [f"chaos seed {self.seed}: {what}", "", "last news:", *self._news[-6:], "", "processes:"]
        with anyio.move_on_after(10):
            lines += [_shown(report) for report in await self.cell.reports()]
        stuck = [
            f"  {key}: {workload.stage.value} since position {workload.last_seq}"
            for key, workload in self.driver.state.workloads.items()
            if workload.stage is not Stage.FINISHED
        ]
        lines += [
            "",
            f"{len(stuck)} workloads are not finished (the log was followed to {self.driver.state.position}):",
            *stuck[:10],
        ]
        if stuck:
            key = stuck[0].strip().partition(":")[0]
            lines += ["", f"headgate explain {key}:", await anyio.to_thread.run_sync(self._explain, key)]
        for name, child in self.cell.children.items():
            lines += ["", f"end of {child.log_file}:", *_tail(child.log_file), f"({name})"]
        return "\n".join(lines)

    def _explain(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        done = self.headgate("explain", name, "-n", namespace, check=False)
        return (done.stdout + done.stderr).decode(errors="replace")

    # --- judgement -------------------------------------------------------------------------------------------------

    def headgate(self, *args: str, check: bool = True) -> "subprocess.CompletedProcess[bytes]":
        """Run the command against this cell, as a user would."""
        command = [sys.executable, "-m", "headgate.cli.main", *args, "--data", str(self.cell.data)]
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("HEADGATE_", "NATS_"))}
        done = subprocess.run(command, capture_output=True, timeout=COMMAND_S, env=environ)
        if check and done.returncode:
            raise AssertionError(
                f"headgate {' '.join(args)} ended with {done.returncode}: {(done.stdout + done.stderr).decode()}"
            )
        return done

    async def judge(self) -> None:
        """All jobs finish, once; the audit finds nothing; the replay agrees with the live state."""
        self.stop_loading()
        await self.eventually(
            lambda: self.finished() >= len(self.created), f"all {len(self.created)} jobs finished", DRAIN_S
        )
        await self.until_ready("nats")
        await self.all_complete()
        await self.quiet()
        audited = await anyio.to_thread.run_sync(lambda: self.headgate("audit", "-o", "json"))
        report = msgspec.json.decode(audited.stdout)
        assert report.get("findings", []) == [], report
        await self.replay()
        commits = self.driver.state.position
        self.say(f"all jobs finished, audit and replay find nothing; {commits} commits, {self.kills} kills")

    async def all_complete(self) -> None:
        """The API server agrees: every Job is Complete, with as many pods succeeded as it requested (`more_pods`)."""
        jobs = await self.driver.items("apis/batch/v1/jobs")
        assert len(jobs) == len(self.created)
        for each in jobs:
            name = f"{each['metadata']['namespace']}/{each['metadata']['name']}"
            status = each.get("status", {})
            complete = [c for c in status.get("conditions", []) if c["type"] == "Complete" and c["status"] == "True"]
            assert complete, await self.story(f"the Job {name} is not Complete: {status}")
            wanted, succeeded = each["spec"]["completions"], status["succeeded"]
            assert succeeded == wanted or (self.more_pods and succeeded > wanted), (name, status)
        workloads = await self.driver.items("apis/kueue.x-k8s.io/v1beta2/workloads")
        assert len(workloads) == len(jobs), f"{len(workloads)} Workloads for {len(jobs)} Jobs"

    async def quiet(self, timeout_s: float = 60.0) -> None:
        """Wait until the log has not grown for a second."""
        with anyio.move_on_after(timeout_s):
            while True:
                position = self.driver.state.position
                await anyio.sleep(1.0)
                if position == self.driver.state.position:
                    return
        raise Late(await self.story(f"the log still grows after {timeout_s:g} s"))

    async def replay(self) -> None:
        """`headgate replay --verify` agrees, with the live state too: at least once while nothing was appended."""
        for _ in range(5):
            done = await anyio.to_thread.run_sync(lambda: self.headgate("replay", "--verify", "-o", "json"))
            answer = msgspec.json.decode(done.stdout)
            assert answer["replayed"].get("differences", []) == [], answer
            assert answer["replayed"]["cycles"] > 0
            if answer.get("live"):
                assert answer["live"] == answer["replayed"]["state_hash"]
                return
            await anyio.sleep(1.0)
        raise AssertionError(f"the live state could not be compared: {done.stderr.decode()}")


def _shown(report: ProcessReport) -> str:
    ready = "ready" if report.ready else "not ready"
    return (
        f"  {report.name}: {report.state}, {ready}, {report.phase}, position {report.position} of {report.log_end}, "
        f"{report.restarts} restarts {report.detail}"
    )


def _tail(path: Path) -> list[str]:
    try:
        return [f"  {line}" for line in path.read_text(errors="replace").splitlines()[-LOG_LINES:]]
    except OSError as error:
        return [f"  {error}"]


@asynccontextmanager
async def chaos(data: Path, seed: int, **options: Any) -> AsyncIterator[Chaos]:
    """A cell under load until the block ends."""
    children.BACKOFF_S_MAX = RESTART_S_MAX
    news: list[str] = []
    async with running_cell(data, told=news.append, **options) as driver:
        await driver.create_all(cluster(teams=TEAMS, cpu=CPU, strict=1), 1)
        run = Chaos(driver, seed, news)
        run.say(f"seed {seed}, data in {data}")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.load)
            await run.progress(5)
            yield run
            run.stop_loading()


__all__ = ["PROCESSES", "Chaos", "chaos"]
