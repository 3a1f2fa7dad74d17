"""
A log in a file: written by `headgate events --export` and `headgate simulate`, opened by every reading command.

One entry per line as JSON, gzipped: `{"seq": 1, "subject": "...", "time_ms": 0, "payload": {...}}`. The payload is
stored exactly as it was appended, byte for byte, so that hashes over it are valid; one that is not a single line of
JSON (a damaged entry is kept too) is stored in `base64` instead. A truncated file is read up to the cut and then
refused.
"""

import base64
import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from headgate.adapters.log import LogEntry, LogError

GZIP_LEVEL = 3
"""Three quarters of the best compression at a fifth of its time."""


class LogFileError(LogError):
    """Raised when a file is no log, or is truncated; the message names the file and the line."""


class _Stored(msgspec.Struct, omit_defaults=True):
    seq: int
    subject: str
    time_ms: int = 0
    payload: msgspec.Raw = msgspec.Raw()
    base64: str | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Stored)
_skip = msgspec.json.Decoder(msgspec.Raw)


class LogFileWriter:
    """
    Writes entries to a file, which it replaces; a context manager. The file is complete once the block has ended.

    Raises LogFileError when the file cannot be written.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.entries = 0
        self._part = self.path.with_name(self.path.name + ".part")
        try:
            self._raw = self._part.open("wb")
        except OSError as error:
            raise LogFileError(f"{self.path} cannot be written: {error.strerror}") from error
        # No time stamp and no name in the header: the same log gives the same file.
        self._file = gzip.GzipFile(filename="", fileobj=self._raw, mode="wb", compresslevel=GZIP_LEVEL, mtime=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._raw.close()
        if kind is None:
            self._part.replace(self.path)
        else:
            self._part.unlink(missing_ok=True)

    def write(self, entries: Iterable[LogEntry]) -> None:
        """Add entries, in the order of the log."""
        for entry in entries:
            self._file.write(_line(entry))
            self.entries += 1


def _line(entry: LogEntry) -> bytes:
    stored = _Stored(seq=entry.seq, subject=entry.subject, time_ms=entry.time_ms)
    if _is_one_json_line(entry.payload):
        stored.payload = msgspec.Raw(entry.payload)
    else:
        stored.base64 = base64.b64encode(entry.payload).decode()
    return _encoder.encode(stored) + b"\n"


def _is_one_json_line(payload: bytes) -> bool:
    if b"\n" in payload or payload.strip() != payload:
        return False
    try:
        _skip.decode(payload)
        payload.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return payload != b"null"


def read_log_file(path: Path | str) -> Iterator[LogEntry]:
    """
    The entries of a file, in its order.

    Raises LogFileError when it cannot be read, is no log, or is truncated.
    """
    path = Path(path)
    number = 0
    try:
        with gzip.open(path, "rb") as lines:
            for number, line in enumerate(lines, 1):  # noqa: B007 - the handler names the line
                yield _entry(line)
    except OSError as error:
        what = "is no gzipped log" if isinstance(error, gzip.BadGzipFile) else f"cannot be read: {error.strerror}"
        raise LogFileError(f"{path} {what}") from error
    except (EOFError, zlib.error) as error:
        raise LogFileError(f"{path} was cut off after line {number}: write it again") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise LogFileError(f"{path} line {number} is no log entry: {error}") from error


def _entry(line: bytes) -> LogEntry:
    stored = _decoder.decode(line)
    damaged = stored.base64
    payload = bytes(stored.payload) if damaged is None else base64.b64decode(damaged, validate=True)
    return LogEntry(seq=stored.seq, subject=stored.subject, time_ms=stored.time_ms, payload=payload)
