"""
The objects that placement reads, as facts: `object.observed` and `object.deleted`, while Headgate places pods.

Whether it does is the KubeSchedulerConfiguration's to say: the one that the bridge was given, else that of the log. An
empty one turns placement off, which takes one event: the fold drops the objects with the configuration.

When it is turned on, everything is listed and appended before the configuration is: as long as the log has a
configuration, it has the objects, and no machine decides by some of them.

Namespaces, nodes and pods are watched in any case. One watch serves both purposes: of one object there may be two
facts, each only if the part of the object that it is about has changed. Of the other resources `own` has the names.
They are those of the API, except where a kind of jobs has the name: StatefulSets are watched twice where they are
queued.

Owned by the bridge's machine, and equally pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from headgate.core.api.names import SCHEDULER_NAME
from headgate.core.fold import quarantine
from headgate.core.placement.objects.kinds import WATCHED, PlacementKind
from headgate.core.reading.decoding import unreadable
from headgate.core.state.manifests import is_equal, raw_object
from headgate.core.state.tables import State
from headgate.events import facts
from headgate.events.base import Producer

SCHEDULER_CONFIGURATIONS: Final = "kubeschedulerconfigurations.kubescheduler.config.k8s.io"
"""The name under which the machine is shown the file, as if it were a watched resource."""

ALWAYS: Final = ("namespaces", "nodes", "pods")
"""Those that are watched in any case."""

OWN: Final[Mapping[str, PlacementKind]] = {name: kind for name, kind in WATCHED.items() if name not in ALWAYS}
"""Those that are watched for placement only."""


class PlacementObjects:
    """The objects that placement reads. See the module's docstring. `document` is the configuration to be in effect."""

    def __init__(self, state: State, document: Mapping[str, Any] | None) -> None:
        self._state = state
        self.document = dict(state.scheduler_configuration if document is None else document)
        self.watched: Mapping[str, PlacementKind] = {}
        """The kinds that have facts now, by the name of their watch."""
        self.own: Mapping[str, PlacementKind] = {}
        """Those of them that have no other facts."""
        self._choose()

    def _choose(self) -> None:
        self.watched, self.own = (WATCHED, OWN) if self.document else ({}, {})

    @property
    def has_profile(self) -> bool:
        """Whether pods that name the scheduler SCHEDULER_NAME are placed."""
        profiles = self.document.get("profiles") or ()
        return any(each.get("schedulerName") == SCHEDULER_NAME for each in profiles)

    def configure(self, document: Mapping[str, Any]) -> None:
        """Decide by another configuration from now on."""
        self.document = dict(document)
        self._choose()

    # --- the configuration -----------------------------------------------------------------------------------------

    @property
    def is_starting(self) -> bool:
        """Whether the log has no configuration yet: all is to be listed before it gets one."""
        return bool(self.document) and not self._state.scheduler_configuration

    @property
    def is_ending(self) -> bool:
        """Whether the log has a configuration, and is to have none."""
        return not self.document and bool(self._state.scheduler_configuration)

    def beginning(self) -> facts.SchedulerConfigurationObserved | None:
        """The configuration, if it differs from the log's and need not wait for objects."""
        return None if self.is_starting else self._news()

    def start(self) -> facts.SchedulerConfigurationObserved | None:
        """The configuration that had to wait for the objects. Call it when all of them are appended."""
        return self._news() if self.is_starting else None

    def _news(self) -> facts.SchedulerConfigurationObserved | None:
        state = self._state
        # Objects without a configuration are left over from a start that was broken off.
        is_same = self.document == state.scheduler_configuration and (bool(self.document) or not state.objects)
        observed = facts.SchedulerConfigurationObserved(document=self.document)
        return None if is_same or self._is_set_aside(observed) else observed

    def _is_set_aside(self, observed: facts.SchedulerConfigurationObserved) -> bool:
        """Whether the log has recorded that it cannot be folded."""
        record = quarantine.find(self._state, quarantine.subject_of(observed))
        return record is not None and record.fact == observed

    # --- facts -----------------------------------------------------------------------------------------------------

    def known_keys(self, resource: str) -> Iterable[str]:
        """The keys of the objects that the log has."""
        kind = self.watched.get(resource)
        return () if kind is None else self._state.objects.get(kind.plural, {})

    def deleted(self, resource: str, key: str) -> facts.ObjectDeleted | None:
        """The fact that an object is gone; None when the log does not have it."""
        plural = WATCHED[resource].plural
        if key not in self._state.objects.get(plural, {}):
            return None
        return facts.ObjectDeleted(resource=plural, name=key)

    def fact(self, resource: str, key: str, raw: bytes) -> facts.ObjectObserved | facts.ObjectDeleted | None:
        """
        The fact that an object appears, has changed or has ended; None when the log has it as it is.

        Raises UnreadableObjectError.
        """
        kind = WATCHED[resource]
        try:
            reduced = kind.shown(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise unreadable(resource, raw, error) from error
        if reduced is None:
            return self.deleted(resource, key)
        if is_equal(reduced, raw_object(self._state, kind.plural, key)):
            return None
        observed = facts.ObjectObserved(resource=kind.plural, name=key, object=reduced)
        if self._state.quarantine and self._is_known_aside(observed):
            return None
        return observed

    def _is_known_aside(self, observed: facts.ObjectObserved) -> bool:
        """Whether the object is in quarantine as it is, or left alone by the bridge."""
        record = quarantine.find(self._state, quarantine.subject_of(observed))
        if record is None:
            return False
        if record.process == Producer.INFORMER_BRIDGE.value:
            return True
        return isinstance(record.fact, facts.ObjectObserved) and is_equal(observed.object, record.fact.object)
