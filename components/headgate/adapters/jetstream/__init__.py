"""
The log on NATS JetStream, written on core nats-py.

nats-py's own JetStream layer is not used: its asynchronous publisher loses the answer to a refused compare-and-set,
its ordered consumer drops silently and resumes late. What is here instead, from the bottom up:

- `frames`      a message in the words of the client protocol.
- `requests`    many requests in flight over one inbox; every one ends: answered, known not to be sent, or outcome
  unknown.
- `options`     how to reach NATS and as whom, and the words for what goes wrong with it.
- `connection`  one connection per process, with the defaults that make a lost broker visible within seconds, and its
  health.
- `stream`      the streams a cell needs: created if absent, otherwise verified, with warnings in plain words.
- `appender`    the fenced append which finds out the truth when an outcome is unknown; the feed's deduplicated
  publish.
- `tail`        the reader that misses and repeats nothing over broker crashes.
- `jetstream_log`, `feed`, `lease`, `blobs`  what processes hold.
- `embedded`    a NATS server, or a cluster of three, as child processes.
"""

from headgate.adapters.jetstream.connection import Connection, connect
from headgate.adapters.jetstream.errors import BrokerClosed, BrokerError, PermissionDenied
from headgate.adapters.jetstream.health import Dependency, Health
from headgate.adapters.jetstream.jetstream_log import JetStreamLog, open_log
from headgate.adapters.jetstream.options import NatsOptions

__all__ = [
    "BrokerClosed",
    "BrokerError",
    "Connection",
    "Dependency",
    "Health",
    "JetStreamLog",
    "NatsOptions",
    "PermissionDenied",
    "connect",
    "open_log",
]
