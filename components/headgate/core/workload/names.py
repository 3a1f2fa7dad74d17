"""
The names of Workloads, and their length (Kueue's pkg/controller/jobframework/workload_names.go).

With the gate ShortWorkloadNames a name is no longer than the value of a label may be.
"""

import hashlib
from typing import Final

from headgate.core.api.names import POD_GROUP_KIND
from headgate.core.config import feature_gates
from headgate.core.config.feature_gates import enabled
from headgate.events.configuration import Configuration
from headgate.events.ids import JobRef

NAME_LEN_MAX: Final = 253
_SHORT_LEN_MAX: Final = 63
_HASH_LEN: Final = 5


def name_len_max(configuration: Configuration) -> int:
    """How long the name of a Workload may be."""
    return _SHORT_LEN_MAX if enabled(configuration, feature_gates.SHORT_WORKLOAD_NAMES) else NAME_LEN_MAX


def hashed_name(prefix: str, hashed: str, len_max: int) -> str:
    """A prefix, cut where it is too long, and the first digits of a hash."""
    return f"{prefix[: len_max - 1 - _HASH_LEN]}-{hashed[:_HASH_LEN]}"


def workload_name(job: JobRef, job_uid: str, generation: int = 0, *, len_max: int = NAME_LEN_MAX) -> str:
    """
    The name of a job's Workload, as in Kueue's GetWorkloadNameForOwnerWithGVK.

    `<kind in lower case>-<name>-<hash>`, the hash being the first five hex digits of the SHA-1 of kind, group, name and
    uid, one a line. An elastic Job has several over time: the generation that each was created for is appended. The
    Workload of a pod group has the group's name.
    """
    if job.kind == POD_GROUP_KIND:
        return job.name
    parts = [job.kind, job.group, job.name, job_uid, *([str(generation)] if generation else [])]
    hashed = hashlib.sha1("\n".join(parts).encode(), usedforsecurity=False).hexdigest()
    return hashed_name(f"{job.kind.lower()}-{job.name}", hashed, len_max)
