"""
Names of ProvisioningRequests and their PodTemplates: one request for each workload, check and attempt.

They are Kueue's (pkg/controller/admissionchecks/provisioning), so that requests which Kueue has made are recognised. A
name that is too long is cut and gets the beginning of its SHA-1. Kueue does not find the attempt in such a name again;
here it is found by trying.
"""

import hashlib
from typing import Final

from headgate.events.ids import RequestKey, TemplateKey, WorkloadKey, split_key

PREFIX_LEN_MAX: Final = 247
_HASH_LEN: Final = 5
_ATTEMPTS_MAX: Final = 1000
"""How many attempts are tried in a name that was cut."""


def limited(name: str) -> str:
    """A name of at most 253 characters, as in Kueue's limitObjectName."""
    if len(name) <= PREFIX_LEN_MAX:
        return name
    hashed = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    return f"{name[:PREFIX_LEN_MAX]}-{hashed[:_HASH_LEN]}"


def request_key(workload: WorkloadKey, check: str, attempt: int) -> RequestKey:
    """The request of a workload for a check; attempts count from 1."""
    namespace, name = split_key(workload)
    return RequestKey(f"{namespace}/{limited(f'{name}-{check}-{attempt}')}")


def template_name(request: RequestKey, pod_set: str) -> str:
    """The PodTemplate of a request for the pods of one pod set."""
    return limited(f"ppt-{split_key(request)[1]}-{pod_set}")


def template_key(request: RequestKey, pod_set: str) -> TemplateKey:
    """As `template_name`, with the namespace."""
    return TemplateKey(f"{split_key(request)[0]}/{template_name(request, pod_set)}")


def attempt_of(request: RequestKey, workload: WorkloadKey, check: str) -> int | None:
    """The attempt that a request is for a workload and a check; None when its name says that it is for another."""
    namespace, name = split_key(workload)
    its_namespace, its_name = split_key(request)
    prefix = f"{name}-{check}-"
    if namespace != its_namespace:
        return None
    number = its_name.removeprefix(prefix)
    if number != its_name and number.isascii() and number.isdigit():
        return int(number)
    if len(prefix) < PREFIX_LEN_MAX - len(str(_ATTEMPTS_MAX)):
        return None
    tried = range(1, _ATTEMPTS_MAX + 1)
    return next((attempt for attempt in tried if request_key(workload, check, attempt) == request), None)
