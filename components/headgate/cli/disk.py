"""
Room on the disk that a cell of `headgate up` keeps its data on.

A NATS server that could not write goes on refusing to, also when there is room again, until it is started anew. So the
supervisor asks from time to time how much room there is (`DiskWatch.look`), and starts the broker that it keeps again
once the disk was full and no longer is.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

FULL_BYTES: Final = 1 << 20
"""With less than this nobody can be sure to write."""
ROOM_BYTES: Final = 4 << 20
"""With as much as this there is room again."""


class DiskWatch:
    """Whether the disk below a directory has become full, or has room again. `told` hears of either once."""

    def __init__(self, folder: Path, told: Callable[[str], None], free: Callable[[Path], int] | None = None) -> None:
        self._folder = folder
        self._told = told
        self._free = free or _free
        self._was_full = False

    def look(self) -> bool:
        """True when there is room again on a disk that was full when we last looked."""
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
