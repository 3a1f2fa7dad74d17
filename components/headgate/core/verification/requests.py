"""
ProvisioningRequests: each that the binder has created, or could not create, was requested in the log.

Each that it has found removed was withdrawn. That a request was due, and that it was of no more use, is decided by the
queue manager, and decided again with its other decisions.
"""

from collections.abc import Iterator

from headgate.core.log.rules_version import REQUESTS_SINCE, decides_alike
from headgate.core.state.tables import State
from headgate.core.verification.check import NOTHING, ReplayDifference, opens_term
from headgate.events import effects
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, Position, encode_event
from headgate.events.ids import RequestKey, Seq
from headgate.events.queueing import ProvisioningRequested, ProvisioningWithdrawn

_EFFECTS = (effects.ProvisioningCreated, effects.ProvisioningRejected, effects.ProvisioningRemoved)


class RequestCheck:
    """Justifies the recorded creations and deletions of ProvisioningRequests by the binder."""

    def __init__(self) -> None:
        self.counts = {"provisioning requests": 0}
        self.passed_over = 0
        self._has_begun = self._knows = False
        self._requested: dict[RequestKey, Seq] = {}
        self._withdrawn: dict[RequestKey, Seq] = {}

    def plan(self, logged: LoggedCommit) -> None:
        """See `Check`. Nothing has to be known before."""

    def look(self, state: State, logged: LoggedCommit) -> None:  # noqa: ARG002 (see Check)
        """See `Check`."""
        election = opens_term(logged, Producer.BINDER)
        if election is not None:
            self._has_begun = True
            self._knows = decides_alike(Producer.BINDER, election.rules, REQUESTS_SINCE)
        for event in logged.commit.events:
            if isinstance(event, ProvisioningRequested):
                self._requested[event.request] = logged.seq
            elif isinstance(event, ProvisioningWithdrawn):
                self._withdrawn[event.request] = logged.seq

    def compare(self, state: State, logged: LoggedCommit) -> Iterator[ReplayDifference]:
        """See `Check`."""
        if not self._has_begun or logged.commit.producer is not Producer.BINDER:
            return
        passed_over = False
        for index, event in enumerate(logged.commit.events):
            if not isinstance(event, _EFFECTS):
                continue
            if not self._knows:
                passed_over = True
                continue
            self.counts["provisioning requests"] += 1
            # A log that is read from a snapshot on may begin after the decision: then the record says that it was made.
            decided = self._withdrawn if isinstance(event, effects.ProvisioningRemoved) else self._requested
            at = decided.get(event.request)
            if at is None and event.request in state.provisioning_requests:
                continue
            if at is None or at > logged.commit.decided_at:
                yield ReplayDifference(
                    what=f"a ProvisioningRequest that was not decided up to {logged.commit.decided_at}",
                    position=Position(logged.seq, index),
                    recorded=encode_event(event).decode(),
                    replayed=NOTHING,
                )
        self.passed_over += passed_over
