"""
Effects: each must follow from a state that the log has had.

What became of a call is recorded after the call has ended, so it follows from a state of before the position that it
was decided at, and not always from the one there. So a check of effects notes what a process had reason to do at each
position at which that may have changed (`Marks.allow`), and takes an effect for justified by such a note. What was done
to a Job uses the notes up (`Marks.use`): the same may only follow on a new reason.

Only what the log will record is noted (`Marks.expect`, in the first pass): a note for each that ever could would cost
as much as the log.
"""

from collections.abc import Hashable

from headgate.events.ids import Seq


class Marks:
    """What there was reason to do, by what the effect would say; and what will be recorded."""

    def __init__(self) -> None:
        self._expected: dict[Hashable, dict[Hashable, int]] = {}
        self._allowed: dict[Hashable, dict[Hashable, Seq]] = {}

    def expect(self, about: Hashable, what: Hashable) -> None:
        """The log will say that this was done to an object."""
        expected = self._expected.setdefault(about, {})
        expected[what] = expected.get(what, 0) + 1

    def expected(self, about: Hashable) -> dict[Hashable, int]:
        """What the log will still say that was done to an object."""
        return self._expected.get(about, {})

    def is_awaited(self, about: Hashable) -> bool:
        """Whether the log will say that anything was done to an object for which no reason was noted yet."""
        allowed = self._allowed.get(about, {})
        return any(what not in allowed for what in self._expected.get(about, ()))

    def allow(self, about: Hashable, what: Hashable, at: Seq) -> None:
        """There is reason to do this to an object at a position; noted if the log will say that it was done."""
        if what in self._expected.get(about, {}):
            self._allowed.setdefault(about, {}).setdefault(what, at)

    def use(self, about: Hashable, what: Hashable, decided_at: Seq, *, keep: bool = False) -> bool:
        """
        The log says that this was done. Whether there was reason to at the position, or before it.

        The notes of the object go, unless `keep`: what may be repeated without harm is repeated, and told again.
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
