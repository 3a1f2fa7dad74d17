"""
One program of the control plane as a child process: started, waited for, stopped, killed, started again.

A component ends with us in whatever way we end: at the end of the block that holds the plane, or when we are killed.
What it prints goes to a file, over its restarts.
"""

import signal
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import anyio

from headgate.adapters.ends_with_parent import ends_with_us

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.02
_LOG_LINES: Final = 15


class StartError(Exception):
    """A component did not come up. The message ends with the last lines of its log."""


class Component:
    """
    A program with the arguments it is always started with.

    `ready` is called repeatedly after a start, until it returns true.
    """

    def __init__(self, name: str, args: Sequence[str], log_file: Path, ready: Callable[[], Awaitable[bool]]) -> None:
        self.name = name
        self.log_file = log_file
        self._args = list(args)
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def launch(self) -> None:
        """Start it, if it does not run, without waiting. Call it from the main thread: it dies with that thread."""
        if self.pid is not None:
            return
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - programs that the caller has named
                ends_with_us(self._args, signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C in the terminal is for us, and takes it down through us
            )

    async def wait_ready(self) -> None:
        """Wait until it serves. Raises StartError when it ends instead, or takes too long."""
        with anyio.move_on_after(START_TIMEOUT_S):
            while self.pid is not None:
                if await self._ready():
                    return
                await anyio.sleep(_POLL_S)
        assert self._process is not None, "it was never launched"
        code = self._process.poll()
        how = f"ended with exit code {code}" if code is not None else f"was not ready within {START_TIMEOUT_S:g} s"
        raise StartError(f"{self.name} {how}; the end of {self.log_file}:\n  " + "\n  ".join(self.last_lines()))

    async def stop(self) -> None:
        """End it gracefully (SIGTERM), or by SIGKILL if it takes too long."""
        if self._process is not None and self.pid is not None:
            self._process.terminate()
            self._process.send_signal(signal.SIGCONT)  # a stopped (SIGSTOP) process handles no SIGTERM
            with anyio.move_on_after(STOP_TIMEOUT_S):
                await self._ended()
        self.kill()

    async def _ended(self) -> None:
        while True:
            if self.pid is None:
                return
            await anyio.sleep(_POLL_S)

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would, and see it gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def last_lines(self) -> list[str]:
        """The end of its log."""
        try:
            return self.log_file.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        except OSError:
            return []
