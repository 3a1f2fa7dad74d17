"""How long a key of a work queue backs off, with its jitter."""

from headgate.core.engine.work_queue import JITTER_SHARE


def longest(wait_ms: int) -> int:
    """A backoff of so long with all its jitter."""
    return wait_ms + wait_ms // JITTER_SHARE


def backs_off(now_ms: int, wake_at_ms: int | None, wait_ms: int) -> bool:
    """Whether a machine waits for a backoff of so long, with any jitter."""
    return wake_at_ms is not None and now_ms + wait_ms <= wake_at_ms <= now_ms + longest(wait_ms)
