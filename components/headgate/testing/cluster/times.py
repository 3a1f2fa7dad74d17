"""
Kubernetes' timestamps from the injected clock's milliseconds, and back.

Whole seconds are what `metav1.Time` holds; the rendering is cached because many objects share a second.
"""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=4096)
def _rfc3339(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339(now_ms: int) -> str:
    """The `metav1.Time` of a unix time in milliseconds (cut to seconds)."""
    return _rfc3339(now_ms // 1000)


def rfc3339_micro(now_ms: int) -> str:
    """The `metav1.MicroTime` of a unix time in milliseconds."""
    return f"{_rfc3339(now_ms // 1000)[:-1]}.{now_ms % 1000:03d}000Z"


@lru_cache(maxsize=4096)
def unix_ms(text: str) -> int:
    """Milliseconds of an RFC 3339 time. Raises ValueError if it is none."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def human_duration(elapsed_ms: int) -> str:
    """A duration as kubectl prints it: `42s`, `5m10s`, `3h`, `2d4h` (k8s.io/apimachinery/pkg/util/duration)."""
    seconds = elapsed_ms // 1000
    if seconds < 0:
        return "<invalid>" if seconds < -1 else "0s"
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = seconds // 3600
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y{rest}d" if rest and years < 8 else f"{years}y"
