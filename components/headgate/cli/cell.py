"""
The location of a running cell: the file by which commands find it.

`headgate up` writes `cell.json` into its data directory (default `./.headgate/<cell>`) and holds a lock beside it for
as long as it runs. Commands read it there. A stopped cell can still be read: its broker's store is in the same place.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

import msgspec

from headgate.adapters.private import FOLDER_MODE, write_private
from headgate.cli.output import CliError

ROOT: Final = Path(".headgate")
"""The parent directory of cells unless --data is given."""
FILE: Final = "cell.json"
LOCK: Final = "up.lock"
NATS_STORE: Final = "nats"
KEYS: Final = "keys"
"""The keys with which the processes of `headgate up` sign their commits."""
NATS_USERS: Final = "nats-users"
"""The keys of the users of a broker that `headgate up` has started."""


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A child of `headgate up`. `address` is where it serves /healthz, /readyz, /metrics (and the read side)."""

    pid: int
    address: str = ""


class CellInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The connection data of a cell. `server` is the simulated cluster's URL, "" for an external cluster.

    `nats` are the settings, beside the URL, by which `up` reaches an external broker (`NatsSettings`): they and the URL
    may hold credentials, so only the owner can read the file.
    """

    cell: str
    nats_url: str
    nats: dict[str, str | bool] = {}
    kubeconfig: str = ""
    server: str = ""
    embedded: bool = True
    pid: int = 0
    processes: dict[str, ProcessInfo] = {}


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A cell's directory, the content of its file, and whether it runs now."""

    data: Path
    info: CellInfo
    running: bool


class DataLock:
    """The lock of a data directory. Held by one `headgate up`; the kernel frees it whenever that process ends."""

    def __init__(self, data: Path) -> None:
        self._path = data / LOCK
        self._file: int | None = None

    def take(self) -> None:
        """Take it. Raises CliError when another process holds it, or the directory cannot be created or written."""
        folder = self._path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except (FileExistsError, NotADirectoryError):
            raise CliError(f"{folder} is a file, or below one: name a directory with --data") from None
        except PermissionError as error:
            raise CliError(
                f"{folder} cannot be written: {error.strerror}: name another directory with --data"
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(file, 32).decode(errors="replace").strip()
            os.close(file)
            who = f" (process {pid})" if pid else ""
            raise CliError(
                f"{self._path.parent} belongs to a cell that runs already{who}: stop it, or name another --data"
            ) from None
        os.truncate(file, 0)
        os.write(file, str(os.getpid()).encode())
        self._file = file

    def release(self) -> None:
        """Give it back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def is_running(data: Path) -> bool:
    """Whether a `headgate up` holds this directory."""
    try:
        file = os.open(data / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(file)


def write(data: Path, info: CellInfo) -> None:
    """Publish the cell to other commands. The file is replaced atomically, and only its owner can read it."""
    write_private(data / FILE, msgspec.json.format(msgspec.json.encode(info)).decode())


def read(data: Path) -> Found | None:
    """The cell of a directory; None when there is none."""
    try:
        info = msgspec.json.decode((data / FILE).read_bytes(), type=CellInfo)
    except (OSError, msgspec.MsgspecError):
        return None
    return Found(data=data, info=info, running=is_running(data))


HOW = "start one with `headgate up`, or point to one with --data DIR, --nats URL (NATS_URL) or --log FILE"


def find(data: Path | None = None, cell: str | None = None) -> Found:
    """
    The selected cell: by directory, by name, or the only one there is (running ones first).

    Raises CliError when there is none or more than one.
    """
    if data is not None:
        found = [each for each in (read(data), *_below(data)) if each is not None]
        where = f"in {data}"
    else:
        found, where = _below(ROOT), f"in ./{ROOT}"
    if cell is not None:
        found = [each for each in found if each.info.cell == cell]
        where = f"{cell!r} {where}"
    chosen = [each for each in found if each.running] or found
    if not chosen:
        raise CliError(f"no cell found {where}: {HOW}")
    if len(chosen) > 1:
        names = ", ".join(f"{each.info.cell} ({each.data})" for each in chosen)
        raise CliError(f"several cells found {where}: {names}: choose one with --cell or --data")
    return chosen[0]


def _below(root: Path) -> list[Found]:
    try:
        directories = sorted(path.parent for path in root.glob(f"*/{FILE}"))
    except OSError:
        return []
    return [found for found in map(read, directories) if found is not None]
