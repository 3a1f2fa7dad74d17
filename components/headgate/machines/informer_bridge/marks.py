"""
Marks: the progress of each resource's watch, and when it is recorded in the log.

`informers.synced` records up to which version of each resource everything relevant is in the log, so that the watches
of the next term resume from there and nothing is listed. While objects change, a mark follows every MARK_MS, as the
last event of a commit of facts or, if no change was relevant, alone; while only bookmarks arrive, every MARK_IDLE_MS;
while nothing arrives, none.

A mark is never ahead of its facts: a resource with waiting objects is left out. After a list it does not wait for its
time, and where a list shows that the server is at a version behind the mark, the mark is reset with the first facts of
that list. Versions of one cluster never become marks of another.

The marks come with an anchor: the last observed change, if it is younger than every list. By it the next term
recognises the history that the marks belong to; without one it lists.

Owned by the bridge's machine, and equally pure.
"""

from collections.abc import Callable, Sequence
from typing import Final

from headgate.core.log.cluster_anchors import anchor_of
from headgate.core.machine.contract import Command, WakeAt
from headgate.core.reading.decoding import READING
from headgate.core.state.tables import State
from headgate.events.facts import InformersSynced
from headgate.events.ids import UnixMs

MARK_MS: Final = 10_000
"""The shortest time between two marks while objects change."""

MARK_IDLE_MS: Final = 240_000
"""The same while only bookmarks come: often enough for etcd, which forgets versions after five minutes."""


class ObservedVersions:
    """
    The observed versions, compared with those in the log. See the module's docstring.

    `waits` returns whether an object of a resource was observed that is in no commit yet. `unmarked` are the resources
    that are never marked; they may be added at any time.
    """

    def __init__(self, state: State, waits: Callable[[str], bool]) -> None:
        self._state = state
        self._waits = waits
        self.unmarked: dict[str, None] = {}
        self._reached: dict[str, str] = {}
        self._relisted: dict[str, None] = {}
        self._cluster_id = ""
        # Verified before the term could resume; a list starts over.
        self._anchor = state.anchor
        self._last_change: tuple[str, str, str, bytes] | None = None
        self._listed_at = 0
        self._has_changed = False
        self._marked_ms = UnixMs(0)
        self._wake_at_ms: UnixMs | None = None

    # --- observations ----------------------------------------------------------------------------------------------

    def meet_cluster(self, cluster_id: str) -> None:
        """The identity of the cluster is known. Objects of another one are listed again before they are marked."""
        if self._cluster_id not in {"", cluster_id}:
            self._reached.clear()
            self._anchor, self._last_change = "", None
        self._cluster_id = cluster_id

    def listed(self, resource: str, version: str) -> None:
        """All of a resource was listed at this version."""
        self._anchor, self._last_change = "", None
        self._listed_at = max(self._listed_at, int(version)) if version.isdecimal() else self._listed_at
        self._reached[resource] = version
        self._relisted[resource] = None

    def forget(self, resource: str) -> None:
        """The resource has to be listed before it is marked again."""
        self._reached.pop(resource, None)
        self._relisted.pop(resource, None)

    def resumed(self, resource: str, version: str) -> None:
        """The state holds the resource up to this version, and the cluster is the one that has marked it."""
        self._cluster_id = self._cluster_id or self._state.cluster_id
        self._reached[resource] = version

    def changed(self, resource: str, version: str, kind: str, raw: bytes) -> None:
        """An object was observed with this version."""
        self._has_changed = True
        # The digest is computed when it is needed: once per mark, not for each change.
        if version.isdecimal() and int(version) > self._listed_at:
            self._last_change = (resource, version, kind, raw)
        self.reached(resource, version)

    def reached(self, resource: str, version: str) -> None:
        """Everything up to this version was observed. Ignored for a resource neither listed nor resumed before."""
        if version and resource in self._reached:
            self._reached[resource] = version

    # --- for the log -----------------------------------------------------------------------------------------------

    def rewound(self) -> list[str]:
        """The resources that were listed at a version behind their mark. Call it before the list's facts are taken."""
        marks = self._state.resource_versions
        return [
            resource
            for resource in self._relisted
            if resource in marks and not _is_at_least(self._reached.get(resource, ""), marks[resource])
        ]

    def is_due(self, now_ms: UnixMs) -> bool:
        """Whether what has changed is to be marked, as soon as all of it is appended."""
        return self._has_changed and now_ms >= self._due_ms()

    def mark(
        self, now_ms: UnixMs, *, is_synced: bool, resources: tuple[str, ...] = (), rewound: Sequence[str] = ()
    ) -> InformersSynced | None:
        """
        The event that belongs at the end of the current commit, if a mark is due.

        Nothing is marked before the term `is_synced`; its first mark names all `resources`. The marks of the `rewound`
        are reset where there is no better one.
        """
        moved = self._moved() if is_synced else {}
        self._relisted = {each: None for each in self._relisted if each in moved or self._waits(each)}
        due = bool(resources) or any(each in moved for each in self._relisted) or now_ms >= self._due_ms()
        due = due or (is_synced and self._lacks_anchor())
        versions = moved if due else {}
        versions |= {resource: "" for resource in rewound if resource not in versions}
        if not resources and not versions:
            return None
        if not due:
            return InformersSynced(resource_versions=versions)
        self._relisted = {each: None for each in self._relisted if self._waits(each)}
        self._has_changed = any(self._waits(each) for each in self._reached)
        self._marked_ms = now_ms
        anchor = self._newest_anchor()
        return InformersSynced(
            anchor=None if anchor == self._state.anchor else anchor,
            resources=resources,
            resource_versions=versions,
            cluster_id="" if self._is_same_cluster() else self._cluster_id,
            reading=0 if self._state.reading == READING else READING,
        )

    def _lacks_anchor(self) -> bool:
        """Whether the marks in the log are useless for lack of an anchor, and one is available."""
        return not self._state.anchor and self._last_change is not None

    def _newest_anchor(self) -> str:
        if self._last_change is not None:
            self._anchor = str(anchor_of(*self._last_change) or "")
            self._last_change = None
        return self._anchor

    def wake(self, now_ms: UnixMs, other_ms: UnixMs | None = None) -> list[Command]:
        """
        Request a time to mark what is not marked yet; only if no mark was made, because that is not folded yet.

        `other_ms`: when something else of the bridge is due. The earlier of the two is requested.
        """
        if self._wake_at_ms is not None and now_ms >= self._wake_at_ms:
            self._wake_at_ms = None
        times = [self._due_ms()] if self._moved() else []
        due_ms = min(times if other_ms is None else [*times, other_ms], default=None)
        if due_ms is None or due_ms == self._wake_at_ms:
            return []
        self._wake_at_ms = due_ms
        return [WakeAt(due_ms)]

    def _moved(self) -> dict[str, str]:
        """The resources that are ahead of their marks, as far as all their observed objects are appended."""
        is_valid = self._is_same_cluster() and self._state.reading == READING
        marks = self._state.resource_versions if is_valid else {}
        return {
            resource: version
            for resource, version in self._reached.items()
            if version
            and marks.get(resource) != version
            and resource not in self.unmarked
            and not self._waits(resource)
        }

    def _is_same_cluster(self) -> bool:
        return self._cluster_id in {"", self._state.cluster_id}

    def _due_ms(self) -> UnixMs:
        return UnixMs(self._marked_ms + (MARK_MS if self._has_changed else MARK_IDLE_MS))


def _is_at_least(version: str, mark: str) -> bool:
    """Whether a version is certainly not older than a mark; versions that are not numeric do not compare."""
    return version == mark or (version.isdecimal() and mark.isdecimal() and int(version) > int(mark))
