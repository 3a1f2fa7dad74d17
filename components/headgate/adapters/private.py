"""
Files that only their owner may read: seeds of keys, configurations with passwords, addresses with credentials.

The mode is set from the first byte, whatever the umask, and a reader sees the old text or the new one, never a part.
"""

import os
from pathlib import Path
from typing import Final

MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 0600; missing parent directories are created with 0700."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "w") as file:
        file.write(text)
    partial.replace(path)
