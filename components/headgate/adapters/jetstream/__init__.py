"""
The log on NATS JetStream, written on core nats-py.

nats-py's own JetStream layer is not used: its asynchronous publisher loses the answer to a refused compare-and-set, its
ordered consumer drops silently and resumes late. The modules here, from the bottom up:

- `frames`      a message in NATS's client protocol.
- `requests`    many requests in flight over one inbox; every one ends: answered, known not to be sent, or outcome
  unknown.
- `options`     addresses and credentials of NATS, and error messages for connection failures.
- `connection`  one connection per process, with the defaults that make a lost broker visible within seconds, and its
  health.
- `stream`      the streams a cell needs: created if absent, otherwise verified, with readable warnings.
- `appender`    the fenced append, which determines the true outcome when it is unknown; the feed's deduplicated
  publish.
- `tail`        the reader that misses and repeats nothing over broker crashes.
- `jetstream_log`, `feed`, `lease`, `blobs`  what processes hold.
- `embedded`    a NATS server, or a cluster of three, as child processes.

Owns: the connection to NATS, the streams of a cell, appending, reading, leases, blobs, the feed.
Called by: the processes, and the commands that read a log on a broker.
May import: core, events.
"""

from headgate.adapters.jetstream.connection import Connection, connect
from headgate.adapters.jetstream.errors import BrokerClosed, BrokerError, PermissionDenied
from headgate.adapters.jetstream.health import Dependency, DependencyHealth
from headgate.adapters.jetstream.jetstream_log import JetStreamLog, open_log
from headgate.adapters.jetstream.options import NatsOptions

__all__ = [
    "BrokerClosed",
    "BrokerError",
    "Connection",
    "Dependency",
    "DependencyHealth",
    "JetStreamLog",
    "NatsOptions",
    "PermissionDenied",
    "connect",
    "open_log",
]
