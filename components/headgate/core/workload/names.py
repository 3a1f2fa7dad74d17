"""
The length of the names of Workloads (Kueue's pkg/controller/jobframework/workload_names.go).

With the gate ShortWorkloadNames a name is no longer than the value of a label may be.
"""

from typing import Final

from headgate.core.config import feature_gates
from headgate.core.config.feature_gates import enabled
from headgate.events.configuration import Configuration

NAME_LEN_MAX: Final = 253
_SHORT_LEN_MAX: Final = 63
_HASH_LEN: Final = 5


def name_len_max(configuration: Configuration) -> int:
    """How long the name of a Workload may be."""
    return _SHORT_LEN_MAX if enabled(configuration, feature_gates.SHORT_WORKLOAD_NAMES) else NAME_LEN_MAX


def hashed_name(prefix: str, hashed: str, len_max: int) -> str:
    """A prefix, cut where it is too long, and the first digits of a hash."""
    return f"{prefix[: len_max - 1 - _HASH_LEN]}-{hashed[:_HASH_LEN]}"
