"""
Which object a call to the API server is about.

A failure while a call is made, or while a machine processes its end, is attributed to this object
(`headgate.core.fold.quarantine`), unless the machine has named a more specific one.
"""

from typing import Any

import msgspec

from headgate.core.api.job_kinds import BATCH_JOB, known, of_group_kind
from headgate.core.fold.quarantine import ObjectRef, kind_of
from headgate.core.machine.contract import AskExtender, Call
from headgate.core.state.attribution import ObjectFailedError


def body_of(call: Call | AskExtender) -> bytes | None:
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


def object_of(call: Call | AskExtender) -> ObjectRef | None:
    """
    The object that a call reads or changes; None when its path names none.

    For a Kubernetes Event it is the object that the Event regards, and for a Workload that is to be created its job:
    they exist whatever the outcome of the call.
    """
    if isinstance(call, AskExtender):
        return ObjectRef("Pod", call.pod)
    steps = call.path.strip("/").split("/")
    group = "" if steps[0] == "api" else steps[1] if len(steps) > 1 else ""
    steps = steps[2 if steps[0] == "api" else 3 :]
    namespace = ""
    if len(steps) > 2 and steps[0] == "namespaces":
        namespace, steps = steps[1], steps[2:]
    plural, name = (*steps, "", "")[:2]
    if not name and isinstance(call.body, dict):
        return _object_in(plural, namespace, call.body)
    if not name:
        return None
    job = next((each for each in known() if (each.group, each.plural) == (group, plural) and not each.of_pods), None)
    if job is not None:
        return ObjectRef("Job", job.key(namespace, name))
    return _ref("", _kind_of(plural), namespace, name)


def _object_in(plural: str, namespace: str, body: dict[str, Any]) -> ObjectRef | None:
    """The object that the body of a call is about, which makes an object."""
    metadata = body.get("metadata", {})
    regarding, owners = body.get("regarding"), metadata.get("ownerReferences")
    if plural == "events" and regarding:
        return _ref(
            regarding.get("apiVersion", ""), regarding["kind"], regarding.get("namespace", ""), regarding["name"]
        )
    if owners:
        return _ref(owners[0].get("apiVersion", ""), owners[0]["kind"], namespace, owners[0]["name"])
    return _ref("", _kind_of(plural), namespace, metadata.get("name", ""))


def _kind_of(plural: str) -> str:
    """The kind of a resource; empty for one that is not watched."""
    try:
        return kind_of(plural)
    except KeyError:
        return ""


def _ref(api_version: str, kind: str, namespace: str, name: str) -> ObjectRef | None:
    """The reference to an object of a kind; a job's where it is one. A Job without an API version is batch's."""
    if not kind or not name:
        return None
    group = api_version.rpartition("/")[0]
    job = BATCH_JOB if kind == BATCH_JOB.kind and not group else of_group_kind(group, kind)
    if job is not None and not job.of_pods:
        return ObjectRef("Job", job.key(namespace, name))
    return ObjectRef(kind, f"{namespace}/{name}" if namespace else name)
