"""
Child processes that are kept alive: started, watched, started again with a growing pause when they die.

Used by the supervisor (`headgate.cli.supervisor`). A child runs in a session of its own, so that a Ctrl-C in the
terminal is the supervisor's to handle, and ends with its parent even when the parent is killed (Linux:
PR_SET_PDEATHSIG). What it prints goes to a file.
"""

import ctypes
import enum
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio

from headgate.cli.output import BROKEN, FAILED, WRONG_USAGE, CliError

POLL_S = 0.05
BACKOFF_S_MIN = 0.1
BACKOFF_S_MAX = 5.0
STEADY_S = 10.0
"""A child that has lived for so long starts again without a pause."""
REPEATS_TOLD = 3
"""From this end with the same last words on, the words are told, and the pauses grow further."""
BACKOFF_S_REPEATED = 60.0
STOP_TIMEOUT_S = 15.0
"""Longer than a process gives itself (`limits.shutdown_ms`)."""
BROKER_REFUSES = 4
HOPELESS = frozenset({WRONG_USAGE, BROKEN, BROKER_REFUSES})
"""Exit codes of `headgate.processes.entry` after which starting again does not help."""
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T[\d:.]+Z")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class ChildState(enum.StrEnum):
    """How a child is doing."""

    WAITING = "waiting"
    """Not started yet, or about to be started again."""
    RUNNING = "running"
    STOPPED = "stopped"
    """Ended because it was told to."""
    FAILED = "failed"
    """Ended with an exit code for which starting it again cannot help: wrong configuration, or a broken invariant."""


class Child:
    """
    One child process. `changed` is told, in words, whenever something happens to it.

    `exit_code` is that of a child that has given up.
    """

    def __init__(
        self,
        name: str,
        args: Sequence[str],
        *,
        env: Mapping[str, str],
        log_file: Path,
        address_file: Path,
        changed: Callable[[str], None],
    ) -> None:
        self.name = name
        self.log_file = log_file
        self.address_file = address_file
        self.state = ChildState.WAITING
        self.restarts = 0
        self.exit_code = 0
        self._args = list(args)
        self._env = dict(env)
        self._changed = changed
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._words = ""
        self._repeats = 0

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def address(self) -> str:
        """Where it serves, once it does."""
        try:
            return self.address_file.read_text().strip()
        except OSError:
            return ""

    def replace_args(self, args: Sequence[str]) -> None:
        """What to start from the next time on."""
        self._args = list(args)

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def last_words(self) -> str:
        """The last line that it printed."""
        try:
            lines = self.log_file.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line for line in reversed(lines) if line.strip()), "")

    def gave_up(self) -> CliError | None:
        """If it has given up: why, with the exit code for the whole command."""
        if self.state is not ChildState.FAILED:
            return None
        code = self.exit_code if self.exit_code in (BROKEN, WRONG_USAGE) else FAILED
        return CliError(f"{self.name} gave up: {self.last_words()} ({self.log_file})", code)

    async def keep(self) -> None:
        """Run it, again and again, until `stop` or until starting it again cannot help."""
        backoff_s = BACKOFF_S_MIN
        while self._wanted():
            try:
                self._start()
            except OSError as error:
                # A full disk, or too many files: what is said is what helps, and the others go on meanwhile.
                self._changed(f"{self.name} cannot be started ({error}); it is tried again in {BACKOFF_S_MAX:g} s")
                await anyio.sleep(BACKOFF_S_MAX)
                continue
            began = anyio.current_time()
            code = await self._exited()
            if not self._wanted():
                break
            if code in HOPELESS:
                self.state = ChildState.FAILED
                self.exit_code = code
                self._changed(f"{self.name} gave up ({_how(code)}): {self.last_words()}")
                return
            repeats = self._count_repeats(code)
            if anyio.current_time() - began >= STEADY_S and repeats < REPEATS_TOLD:
                backoff_s = BACKOFF_S_MIN
            self.state = ChildState.WAITING
            self.restarts += 1
            self._changed(f"{self.name} {_how(code)}{self._again(repeats)}; it starts again in {backoff_s:g} s")
            await anyio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_S_MAX if repeats < REPEATS_TOLD else BACKOFF_S_REPEATED)
        self.state = ChildState.STOPPED

    def _count_repeats(self, code: int) -> int:
        """How often in a row it has ended with the same last words: it fails over the same input each time."""
        words = _TIME.sub("", self.last_words()) if code > 0 else ""
        self._repeats = self._repeats + 1 if words and words == self._words else 1
        self._words = words
        return self._repeats

    def _again(self, repeats: int) -> str:
        if repeats < REPEATS_TOLD:
            return ""
        return f", {repeats} times in a row with the same words: {self._words} ({self.log_file} has all of it)"

    def _wanted(self) -> bool:
        return not self._stopping

    async def stop(self) -> None:
        """End it gracefully (SIGTERM), or by SIGKILL if it takes too long."""
        self._stopping = True
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # a stopped (SIGSTOP) child cannot hear
            with anyio.move_on_after(STOP_TIMEOUT_S):
                await self._exited()
        if process.poll() is None:
            process.kill()
        process.wait()
        self.state = ChildState.STOPPED

    def _start(self) -> None:
        self.address_file.unlink(missing_ok=True)
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own programs
                self._args,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
                preexec_fn=dies_with_us(signal.SIGTERM),
            )
        self.state = ChildState.RUNNING

    async def _exited(self) -> int:
        assert self._process is not None, "it was never started"
        while True:
            code = self._process.poll()
            if code is not None:
                return code
            await anyio.sleep(POLL_S)


def dies_with_us(number: int) -> Callable[[], None]:
    """
    What a child runs before it becomes its program, so that the kernel sends it a signal when we end (Linux only).

    It is bound to the thread that starts the child, which should be the main one.
    """
    parent = os.getpid()

    def in_child() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, number)
            if os.getppid() != parent:  # it died before we could ask
                os.kill(os.getpid(), number)

    return in_child


def _how(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
