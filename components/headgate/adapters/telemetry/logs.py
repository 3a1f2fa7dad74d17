"""
Structured logs on stderr, by the standard library.

A log call formats its sentence with %-arguments and puts machine-readable fields into `extra`. `human` prints time,
level, process and sentence, then the extras as key=value; `json` prints one object per line with the same keys. Times
are UTC. What is logged while a commit is under way has the `trace_id` of its span, if there is tracing (`in_trace`).
"""

import datetime as dt
import logging
import sys
from typing import Any, Final, TextIO

import msgspec

_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LEVELS: Final = {"debug": "DBG", "info": "INF", "warning": "WRN", "error": "ERR", "critical": "CRT"}
NOISY: Final = ("nats", "aiohttp", "asyncio", "kubernetes_asyncio", "opentelemetry")
"""Libraries whose own messages are only shown from warnings on, or at debug level."""


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _PLAIN and not key.startswith("_")}


def _time(record: logging.LogRecord) -> str:
    moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _TraceOfRecord(logging.Filter):
    """Adds the trace of the commit that is under way."""

    trace_id = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes."""
        if self.trace_id and not hasattr(record, "trace_id"):
            record.trace_id = self.trace_id
        return True


_TRACE: Final = _TraceOfRecord()


def in_trace(trace_id: str) -> None:
    """What is logged from now on belongs to this trace; "" for none."""
    _TRACE.trace_id = trace_id


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the fields given here, and the record's extras."""

    def __init__(self, **fields: str) -> None:
        super().__init__()
        self._fields = fields
        self._encoder = msgspec.json.Encoder(enc_hook=str)

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            **self._fields,
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return self._encoder.encode(line).decode()


class HumanFormatter(logging.Formatter):
    """`09:26:58.123 INF scheduler: leading: epoch 3 begins  epoch=3 position=812`."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The line, and an exception's lines after it."""
        level = _LEVELS.get(record.levelname.lower(), record.levelname)
        extras = "".join(f" {key}={value}" for key, value in _extras(record).items())
        line = f"{_time(record)[11:-1]} {level} {self._process}: {record.getMessage()}{' ' + extras if extras else ''}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logs(
    *, form: str, level: str, process: str, cell: str, holder: str, stream: TextIO | None = None
) -> None:
    """Send this process's logs to stderr (or `stream`) in the form "human" or "json", from `level` on."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter(process=process, cell=cell, holder=holder))
    else:
        handler.setFormatter(HumanFormatter(process))
    handler.addFilter(_TRACE)
    root = logging.getLogger()
    for old in tuple(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.NOTSET if level == "debug" else max(logging.WARNING, root.level))
