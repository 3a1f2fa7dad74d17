"""
A seeded plan of what goes wrong between a client and the API server.

A plan is a list of rules; each request from outside draws once per rule that covers it, from the `random.Random` that
the caller injects, so a run is reproduced by its seed. The simulated cluster's own controllers are never disturbed.

Two ways in which a response is lost differ for the simulator, never for the client: `drop_before` (the request did not
arrive) and `drop_after` (it was carried out). Both raise `ConnectionDropped`: the outcome is unknown to the caller.
"""

import random
from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Fault(StrEnum):
    """What happens to a request or a watch."""

    CONFLICT = "conflict"
    """409 Conflict on a write, as if another writer had been faster."""
    THROTTLED = "throttled"
    """429 with Retry-After."""
    INTERNAL = "internal"
    """500 before anything was done."""
    UNAVAILABLE = "unavailable"
    """503 before anything was done."""
    DROP_BEFORE = "drop_before"
    """The connection breaks before the request is carried out."""
    DROP_AFTER = "drop_after"
    """The request is carried out, then the connection breaks: the client cannot know."""
    WATCH_CUT = "cut"
    """A watch ends without a word."""
    WATCH_GONE = "gone"
    """A watch gets the ERROR event 410 Expired."""


_WATCH_FAULTS = frozenset({Fault.WATCH_CUT, Fault.WATCH_GONE})


class FaultRule(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of trouble: how probable per request (or per poll of a watch), when, and where."""

    fault: Fault
    probability: float
    from_ms: int = 0
    """First moment (unix ms) of the window."""
    until_ms: int | None = None
    """End of the window (exclusive); None: no end."""
    methods: frozenset[str] = frozenset()
    """HTTP methods it applies to; empty: all."""
    path_contains: str = ""
    count_max: int | None = None
    """How often it may strike at most; None: no bound."""


class ConnectionDropped(Exception):  # noqa: N818 - the name of what happened, not of an error class
    """The connection broke: the request may or may not have been carried out. Read before trying again."""


class FaultPlan:
    """Rules and the generator that decides. `struck` counts what happened, per rule."""

    def __init__(self, rng: random.Random, rules: Iterable[FaultRule]) -> None:
        self._rng = rng
        self._rules = tuple(rules)
        self.struck = [0] * len(self._rules)

    def draw(self, now_ms: int, method: str, path: str) -> Fault | None:
        """The fault that meets this request, if any. `method` is `WATCH` for a poll of a watch."""
        for index, rule in enumerate(self._rules):
            if (rule.fault in _WATCH_FAULTS) is not (method == "WATCH"):
                continue
            if now_ms < rule.from_ms or (rule.until_ms is not None and now_ms >= rule.until_ms):
                continue
            if rule.methods and method not in rule.methods:
                continue
            if rule.path_contains not in path or (rule.count_max is not None and self.struck[index] >= rule.count_max):
                continue
            if rule.fault is Fault.CONFLICT and method not in {"PUT", "PATCH"}:
                continue
            if self._rng.random() < rule.probability:
                self.struck[index] += 1
                return rule.fault
        return None
