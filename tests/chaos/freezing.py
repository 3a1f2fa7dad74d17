"""
A scheduler that stops itself (SIGSTOP) on the very brink of an append: `python -m tests.chaos.freezing FLAG`.

When the file FLAG appears, the next append of a cycle removes it and stops the process before a byte is sent. If
it is continued (SIGCONT) after another has taken over, the append goes out late: the case that leases alone cannot
exclude.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from headgate.adapters.log import AppendOutcome, Log
from headgate.processes.entry import run_process
from headgate.processes.runtime.settings import load


class Freezing:
    """A log that freezes the process before an append. All else is the log's own."""

    def __init__(self, log: Log, flag: Path) -> None:
        self._log = log
        self._flag = flag

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, producer: str, payload: bytes, *, expected_last: int, commit_id: str) -> AppendOutcome:
        """As the log does, later."""
        if self._flag.exists():
            self._flag.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        return await self._log.append(producer, payload, expected_last=expected_last, commit_id=commit_id)


def main() -> None:
    """Run the scheduler with the settings that the environment gives."""
    flag = Path(sys.argv[1])
    sys.exit(run_process("scheduler", load(), decorate=lambda log: Freezing(log, flag)))


if __name__ == "__main__":
    main()
