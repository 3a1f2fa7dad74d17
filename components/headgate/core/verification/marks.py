"""
Effects: each must follow from a state that the log has had.

The result of a call is recorded after the call has ended, so it follows from a state at or before the position that it
was decided at. So a check of effects records what a process had reason to do at each position at which that may have
changed (`JustifiedEffects.allow`), and such a mark justifies an effect. An action on a Job consumes the marks
(`JustifiedEffects.use`): the same action requires a new reason.

Only marks for effects that the log will record are kept (`JustifiedEffects.expect`, in the first pass): a mark for each
possible effect would cost as much as the log.
"""

from collections.abc import Hashable

from headgate.events.ids import Seq


class JustifiedEffects:
    """The justified effects, by the contents of their events; and the effects that will be recorded."""

    def __init__(self) -> None:
        self._expected: dict[Hashable, dict[Hashable, int]] = {}
        self._allowed: dict[Hashable, dict[Hashable, Seq]] = {}

    def expect(self, about: Hashable, what: Hashable) -> None:
        """The log will record this effect on an object."""
        expected = self._expected.setdefault(about, {})
        expected[what] = expected.get(what, 0) + 1

    def expected(self, about: Hashable) -> dict[Hashable, int]:
        """The effects on an object that the log will still record."""
        return self._expected.get(about, {})

    def is_awaited(self, about: Hashable) -> bool:
        """Whether the log will record an effect on an object for which no reason was marked yet."""
        allowed = self._allowed.get(about, {})
        return any(what not in allowed for what in self._expected.get(about, ()))

    def allow(self, about: Hashable, what: Hashable, at: Seq) -> None:
        """There is reason for this effect on an object at a position; marked if the log will record the effect."""
        if what in self._expected.get(about, {}):
            self._allowed.setdefault(about, {}).setdefault(what, at)

    def use(self, about: Hashable, what: Hashable, decided_at: Seq, *, keep: bool = False) -> bool:
        """
        The log records this effect. Returns whether there was reason for it at the position, or before it.

        The marks of the object are dropped, unless `keep`: harmless repetitions are repeated, and recorded again.
        """
        allowed = self._allowed.get(about, {})
        is_justified = what in allowed and allowed[what] <= decided_at
        expected = self._expected.get(about, {})
        if what in expected:
            expected[what] -= 1
            if not expected[what]:
                del expected[what]
        if not expected:
            self._expected.pop(about, None)
            self._allowed.pop(about, None)
        elif not keep:
            self._allowed.pop(about, None)
        return is_justified
