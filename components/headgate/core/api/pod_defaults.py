"""
PriorityClasses, LimitRanges and RuntimeClasses as facts.

The API server's admission completes pods from these, so the requests and the priority of a job's pods depend on them.
"""

from headgate.core.api.watched_objects import Metadata, WatchedObject, check_quantities, decode, key_in
from headgate.events.facts import Fact, LimitRangeObserved, PriorityClassObserved, RuntimeClassObserved
from headgate.events.objects import ApiBranch, LimitRangeItem


class _PriorityClass(WatchedObject, frozen=True, kw_only=True):
    value: int
    global_default: bool = False


class _LimitRangeSpec(ApiBranch, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()


class _LimitRange(WatchedObject, frozen=True):
    spec: _LimitRangeSpec = _LimitRangeSpec()


class _Overhead(ApiBranch, frozen=True):
    pod_fixed: dict[str, str | int | float] = {}


class _RuntimeClass(WatchedObject, frozen=True):
    overhead: _Overhead | None = None


def read_priority_class(raw: bytes) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one PriorityClass."""
    seen = decode(_PriorityClass, raw)
    name = seen.metadata.name
    return seen.metadata, PriorityClassObserved(name=name, value=seen.value, global_default=seen.global_default)


def read_limit_range(raw: bytes) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one LimitRange."""
    seen = decode(_LimitRange, raw)
    for number, item in enumerate(seen.spec.limits):
        for field in ("max", "min", "default", "default_request", "max_limit_request_ratio"):
            check_quantities(f"spec.limits[{number}].{field}", getattr(item, field))
    return seen.metadata, LimitRangeObserved(limit_range=key_in(seen.metadata), limits=seen.spec.limits)


def read_runtime_class(raw: bytes) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one RuntimeClass."""
    seen = decode(_RuntimeClass, raw)
    overhead = seen.overhead.pod_fixed if seen.overhead is not None else {}
    check_quantities("overhead.podFixed", overhead)
    return seen.metadata, RuntimeClassObserved(name=seen.metadata.name, overhead=overhead)
