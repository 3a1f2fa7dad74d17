"""
Supervised child processes: started, watched, restarted with a growing pause when they die.

Used by the supervisor (`headgate.cli.supervisor`). A child runs in a separate session, so that the supervisor handles a
Ctrl-C in the terminal, and ends with its parent even when the parent is killed. Its output goes to a file.
"""

import enum
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio

from headgate.adapters.ends_with_parent import ends_with_us
from headgate.cli.output import BROKEN, FAILED, WRONG_USAGE, CliError

POLL_S = 0.05
BACKOFF_S_MIN = 0.1
BACKOFF_S_MAX = 5.0
STEADY_S = 10.0
"""A child that has lived for so long is restarted without a pause."""
REPEATS_TOLD = 3
"""From this repetition of the same last line on, the line is reported, and the pauses grow further."""
BACKOFF_S_REPEATED = 60.0
STOP_TIMEOUT_S = 15.0
"""Longer than a process's own shutdown limit (`limits.shutdown_ms`)."""
BROKER_REFUSES = 4
HOPELESS = frozenset({WRONG_USAGE, BROKEN, BROKER_REFUSES})
"""Exit codes of `headgate.processes.entry` after which a restart does not help."""
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T[\d:.]+Z")


class ChildState(enum.StrEnum):
    """The state of a child."""

    WAITING = "waiting"
    """Not started yet, or about to be restarted."""
    RUNNING = "running"
    STOPPED = "stopped"
    """Ended on request."""
    FAILED = "failed"
    """Ended with an exit code after which a restart cannot help: wrong configuration, or a broken invariant."""


class Child:
    """
    One child process. `changed` is called with a message on every change of its state.

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
        """Its address, once it serves."""
        try:
            return self.address_file.read_text().strip()
        except OSError:
            return ""

    def replace_args(self, args: Sequence[str]) -> None:
        """The arguments from the next start on."""
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
        """If it has given up: the reason, with the exit code for the whole command."""
        if self.state is not ChildState.FAILED:
            return None
        code = self.exit_code if self.exit_code in (BROKEN, WRONG_USAGE) else FAILED
        return CliError(f"{self.name} gave up: {self.last_words()} ({self.log_file})", code)

    async def keep(self) -> None:
        """Run it repeatedly, until `stop` or until a restart cannot help."""
        backoff_s = BACKOFF_S_MIN
        while self._wanted():
            try:
                self._start()
            except OSError as error:
                # A full disk, or too many open files: the message has the remedy, and the others continue meanwhile.
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
        """How often in a row it has ended with the same last line: it fails over the same input each time."""
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
            process.send_signal(signal.SIGCONT)  # a stopped (SIGSTOP) child cannot handle signals
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
                ends_with_us(self._args, signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )
        self.state = ChildState.RUNNING

    async def _exited(self) -> int:
        assert self._process is not None, "it was never started"
        while True:
            code = self._process.poll()
            if code is not None:
                return code
            await anyio.sleep(POLL_S)


def _how(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
