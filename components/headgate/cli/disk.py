"""
Free disk space for the data of a cell of `headgate up`.

A NATS server that could not write continues to refuse writes, also when there is space again, until it is restarted. So
the supervisor periodically checks the free space (`DiskWatch.look`), and restarts its own broker once the disk was full
and no longer is.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

FULL_BYTES: Final = 1 << 20
"""With less than this a write may fail."""
ROOM_BYTES: Final = 4 << 20
"""With this much there is enough space again."""


class DiskWatch:
    """Whether the disk below a directory has become full, or has space again. `told` is called once for either."""

    def __init__(self, folder: Path, told: Callable[[str], None], free: Callable[[Path], int] | None = None) -> None:
        self._folder = folder
        self._told = told
        self._free = free or _free
        self._was_full = False

    def look(self) -> bool:
        """True when there is space again on a disk that was full at the last check."""
        free = self._free(self._folder)
        if free < FULL_BYTES and not self._was_full:
            self._was_full = True
            self._told(f"the disk of {self._folder} is full: make room for it; everybody waits until there is")
        elif self._was_full and free >= ROOM_BYTES:
            self._was_full = False
            self._told(f"the disk of {self._folder} has room again")
            return True
        return False


def _free(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return ROOM_BYTES
