"""
Which object a call to the API server is about.

A failure while a call is made, or while a machine processes its end, is attributed to this object
(`headgate.core.fold.quarantine`), unless the machine has named a more specific one.
"""

from typing import Final

import msgspec

from headgate.core.api.job_kinds import BATCH_JOB
from headgate.core.fold.quarantine import KIND_OF, ObjectRef
from headgate.core.machine.contract import Call
from headgate.core.state.attribution import ObjectFailedError

_EVENT: Final = "Event"
_KINDS: Final = {**KIND_OF, "events": _EVENT}


def body_of(call: Call) -> bytes | None:
    """
    The body of a call, as JSON; None when it has none.

    Raises ObjectFailedError when its body cannot be encoded.
    """
    try:
        return None if call.body is None else msgspec.json.encode(call.body)
    except Exception as error:
        subject = object_of(call)
        if subject is None:
            raise
        raise ObjectFailedError(subject.kind, subject.key, error) from error


def object_of(call: Call) -> ObjectRef | None:
    """
    The object that a call reads or changes; None when its path names none.

    For a Kubernetes Event it is the object that the Event regards, and for a Workload that is to be created its Job:
    they exist whatever the outcome of the call.
    """
    steps = call.path.strip("/").split("/")
    steps = steps[2 if steps[0] == "api" else 3 :]
    namespace = ""
    if len(steps) > 2 and steps[0] == "namespaces":
        namespace, steps = steps[1], steps[2:]
    kind = _KINDS.get(steps[0], "") if steps else ""
    name = steps[1] if len(steps) > 1 else ""
    if kind and not name and isinstance(call.body, dict):
        regarding, owners = call.body.get("regarding"), call.body.get("metadata", {}).get("ownerReferences")
        if kind == _EVENT and regarding:
            kind, namespace, name = regarding["kind"], regarding.get("namespace", ""), regarding["name"]
        elif owners:
            kind, name = owners[0]["kind"], owners[0]["name"]
        else:
            name = call.body.get("metadata", {}).get("name", "")
    if not kind or not name:
        return None
    if kind == BATCH_JOB.kind:
        return ObjectRef(kind, BATCH_JOB.ref(namespace, name).key)
    return ObjectRef(kind, f"{namespace}/{name}" if namespace else name)
