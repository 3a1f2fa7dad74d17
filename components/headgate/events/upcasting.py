"""
Upcasting: how events of earlier versions are read.

An event type calls these functions from `__post_init__`, so an event has its present form as soon as it is decoded, and
readers need not handle former ones. The bytes of the log stay as they are.

The feed holds events as the version that published them wrote them; `feed_message` gives their present form.

Until 0.1 there was one kind of job, batch/v1 Job, and a reference to it was `<namespace>/<name>`.
"""

import re
from typing import Final

import msgspec

from headgate.events.ids import JobRef

_FORMER_GROUP: Final = "batch"
_FORMER_KIND: Final = "Job"

_WITH_JOB: Final = re.compile(rb'\{"type":"(job\.|workload\.create)')
_FORMER_JOB: Final = re.compile(rb'"job":"([^"/]+/[^"/]+)"')
_ASIDE: Final = re.compile(rb'(\{"type":"object\.[a-z]+","kind":"Job","name":")([^"/]+/[^"/]+)"')
_JOB_SUBJECT: Final = re.compile(r"([a-z]+\.[a-z0-9-]+\.(?:job|object)\.[a-z_]+\.[^.]+\.)([^./]+)")


def job_key(key: str) -> str:
    """A reference to a job in its present form."""
    if key.count("/") != 1:
        return key
    namespace, _, name = key.partition("/")
    return JobRef(_FORMER_GROUP, _FORMER_KIND, namespace, name).key


def upcast_job(event: msgspec.Struct, field: str = "job") -> None:
    """Convert the reference to a job in a field of an event to its present form."""
    former = getattr(event, field)
    present = job_key(former)
    if present != former:
        msgspec.structs.force_setattr(event, field, present)


def feed_message(subject: str, payload: bytes) -> tuple[str, bytes]:
    """Subject and payload of a message of the feed as this version writes them."""
    kind = f"{_FORMER_GROUP}/{_FORMER_KIND}/"
    if _WITH_JOB.match(payload):
        present = _FORMER_JOB.sub(rb'"job":"%b\1"' % kind.encode(), payload, count=1)
    else:
        present = _ASIDE.sub(rb'\1%b\2"' % kind.encode(), payload)
    match = _JOB_SUBJECT.fullmatch(subject)
    if present == payload or match is None:
        return subject, present
    return f"{match[1]}{kind}{match[2]}", present
