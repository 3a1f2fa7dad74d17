"""Two schedulers at once: the log takes the cycles of one only."""

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from tests.chaos.harness import Chaos, chaos

from headgate.cli.children import Child
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit
from headgate.events.decisions import CycleDecided
from headgate.events.effects import LeaderElected

pytestmark = [pytest.mark.chaos, pytest.mark.anyio, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
TERM_MS = 1_000
ENV = {"HEADGATE_LEASE_TERM_MS": str(TERM_MS), "PYTHONPATH": str(ROOT)}
SECOND = "scheduler-1"


class Terms:
    """The scheduler's terms in the log: epoch -> holder, and epoch -> its cycles."""

    def __init__(self, run: Chaos) -> None:
        self.holders: dict[int, str] = {}
        self.cycles: dict[int, int] = {}
        self.order: list[int] = []
        run.driver.listeners.append(self.note)
        producer = run.driver.state.producers[Producer.SCHEDULER]
        self.holders[producer.epoch] = producer.holder

    def note(self, logged: LoggedCommit, _: float) -> None:
        commit = logged.commit
        if commit.producer is not Producer.SCHEDULER:
            return
        self.order.append(commit.epoch)
        for event in commit.events:
            if isinstance(event, LeaderElected):
                self.holders[commit.epoch] = event.holder
            elif isinstance(event, CycleDecided):
                self.cycles[commit.epoch] = self.cycles.get(commit.epoch, 0) + 1

    def is_newer_than(self, epoch: int) -> bool:
        """Whether a term has begun since."""
        return max(self.holders) > epoch

    @property
    def holder(self) -> str:
        """Who holds the newest term."""
        return self.holders[max(self.holders)]


@asynccontextmanager
async def second_scheduler(run: Chaos) -> AsyncIterator[Child]:
    """Another scheduler beside the supervisor's, until the block ends."""
    cell = run.cell
    address = cell.data / "run" / f"{SECOND}.address"
    environ = {
        **cell._env("scheduler"),
        "HEADGATE_HOLDER": SECOND,
        "HEADGATE_HTTP_ADDRESS_FILE": str(address.resolve()),
    }
    child = Child(
        SECOND,
        cell._command(["run", "scheduler"]),
        env=environ,
        log_file=cell.data / "logs" / f"{SECOND}.log",
        address_file=address,
        changed=lambda text: None,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(child.keep)
        try:
            await run.wait_phase(child, "standby")
            yield child
        finally:
            with anyio.CancelScope(shield=True):
                await child.stop()
        tasks.cancel_scope.cancel()


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def test_only_one_of_two_decides(tmp_path: Path, chaos_seed: int) -> None:
    """While both run, all cycles are of one; when it is killed, the log continues with a newer epoch."""
    async with chaos(tmp_path, chaos_seed, env=ENV) as run:
        terms = Terms(run)
        async with second_scheduler(run) as second:
            by_holder = {run.cell.holder("scheduler"): run.cell.children["scheduler"], SECOND: second}
            for number in range(1, 5):
                before, epoch = len(terms.order), max(terms.holders)
                await run.progress(15)
                assert set(terms.order[before:]) == {epoch}, "cycles of two terms without a takeover"
                by_holder[terms.holder].send_signal(signal.SIGKILL)
                run.say(f"{terms.holder}, which leads in epoch {epoch}, killed {number}/4")
                await run.eventually(partial(terms.is_newer_than, epoch), "a new term", 30)
            await run.until_ready("scheduler")
            assert terms.order == sorted(terms.order), "a former term's commit landed after a newer term began"
            await run.judge()
        cycles = {f"{terms.holders[epoch]}, epoch {epoch}": count for epoch, count in terms.cycles.items()}
        run.say(f"cycles by term: {cycles}")


async def test_a_frozen_leader_is_refused_and_steps_down(tmp_path: Path, chaos_seed: int) -> None:
    """A leader stopped before its append for longer than its lease: when it comes it is refused, and it stands by."""
    flag = tmp_path / "freeze"
    async with chaos(tmp_path / "cell", chaos_seed, env=ENV) as run:
        first = run.cell.children["scheduler"]
        first.replace_args([sys.executable, "-m", "tests.chaos.freezing", str(flag)])
        await run.kill("scheduler", 1, 1)
        await run.wait_phase(first, "leading")
        terms = Terms(run)
        leader = run.cell.holder("scheduler")
        async with second_scheduler(run) as second:
            for number in range(1, 4):
                assert terms.holder == leader
                epoch, pid = max(terms.holders), first.pid
                assert pid is not None
                flag.touch()
                await run.eventually(lambda pid=pid: is_stopped(pid), f"{leader} stops itself before an append", 30)  # type: ignore[misc]
                run.say(f"{leader} stopped before an append of epoch {epoch} {number}/3")
                await run.eventually(lambda: terms.holder == SECOND, f"{SECOND} takes over", 30)
                await run.progress(10)
                first.send_signal(signal.SIGCONT)
                await run.wait_phase(first, "standby")
                refused = [
                    line
                    for line in first.log_file.read_text().splitlines()
                    if f"the log refused commit scheduler-{epoch}-" in line
                ]
                assert len(refused) == 1, await run.story(f"no append of epoch {epoch} was refused")
                assert first.pid == pid, "it was started again"
                await run.progress(5)
                # And back: the second one dies for good measure, and the first one leads again.
                second.send_signal(signal.SIGSTOP)
                await run.eventually(lambda: terms.holder == leader, f"{leader} takes over again", 30)
                second.send_signal(signal.SIGCONT)
                await run.wait_phase(second, "standby")
            assert terms.order == sorted(terms.order), "a former term's commit landed after a newer term began"
            await run.judge()


async def test_leaders_frozen_at_random_moments(tmp_path: Path, chaos_seed: int) -> None:
    """SIGSTOP for longer than the lease at any moment, then SIGCONT: the other has taken over, the former stands by."""
    async with chaos(tmp_path, chaos_seed, env=ENV) as run:
        terms = Terms(run)
        async with second_scheduler(run) as second:
            by_holder = {run.cell.holder("scheduler"): run.cell.children["scheduler"], SECOND: second}
            for number in range(1, 7):
                await anyio.sleep(run.random.uniform(0, 0.5))
                former = terms.holder
                leader = by_holder[former]
                leader.send_signal(signal.SIGSTOP)
                run.say(f"{former} stopped {number}/6")
                await run.eventually(lambda former=former: terms.holder != former, "the other takes over", 30)  # type: ignore[misc]
                await anyio.sleep(run.random.uniform(0, 2 * TERM_MS / 1000))
                leader.send_signal(signal.SIGCONT)
                await run.wait_phase(leader, "standby")
            assert terms.order == sorted(terms.order), "a former term's commit landed after a newer term began"
            assert {terms.holders[epoch] for epoch in terms.cycles} == set(by_holder)
            await run.judge()
