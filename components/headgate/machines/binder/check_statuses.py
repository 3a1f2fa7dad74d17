"""
The binder's ninth task: the Active condition of the admission checks that Headgate serves itself.

These are the checks for ProvisioningRequests. A ClusterQueue with a check that is not active admits nothing. Whether
one is, follows from the configurations in the state (`headgate.core.provisioning.configs`); as with the checks of other
controllers, decisions depend on what its object shows, which returns as a fact.

Level-triggered: a condition is written when the one in the state has another status, reason or message. Checks are few
and rarely change, so all are examined after each event about one of them.
"""

from typing import Final

from headgate.core.engine.work_queue import WorkQueue
from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.machine.api_results import CONFLICT, NOT_FOUND, is_success
from headgate.core.machine.contract import APPLY_PATCH, Call, Command, Completed
from headgate.core.provisioning.configs import REQUESTS, CheckStanding, is_ours, standing
from headgate.core.quota.activeness import ACTIVE
from headgate.core.state.attribution import about
from headgate.core.state.tables import CheckRecord, State
from headgate.core.status.server_side_apply import API_VERSION, Json, apply_query
from headgate.events import facts
from headgate.events.ids import UnixMs

CALLS_MAX: Final = 16
"""The maximum number of checks whose status is written at a time."""


class CheckStatuses:
    """The working set of admission checks. The binder's machine passes on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queue: WorkQueue[str] = WorkQueue(CALLS_MAX, keys=state.admission_checks)
        self._calls: dict[str, tuple[str, tuple[str, CheckStanding]]] = {}
        self._done: dict[str, tuple[str, CheckStanding]] = {}
        """By check: its uid and the condition that was written, until the state shows it."""

    def on_event(
        self,
        event: facts.AdmissionCheckObserved
        | facts.AdmissionCheckDeleted
        | facts.ProvisioningConfigObserved
        | facts.ProvisioningConfigDeleted
        | facts.InformersSynced,
    ) -> None:
        """Record events after which a check may have become active or inactive."""
        if not isinstance(event, facts.InformersSynced) or _is_about_requests(event):
            self._queue.add_all(self._state.admission_checks)

    def on_completed(self, completed: Completed) -> None:
        """A call has ended. A refused one is repeated with backoff; none is needed for a deleted or replaced object."""
        call = self._calls.pop(completed.call_id, None)
        if call is None:
            return
        name, written = call
        if is_success(completed) or completed.status in (NOT_FOUND, CONFLICT):
            self._done[name] = written
            self._queue.done(name)
        else:
            self._queue.retry(name)

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Write the conditions that differ. Returns when to check again."""
        if not self._state.synced:
            return None
        for name in self._queue.ready(now_ms):
            with about("AdmissionCheck", name):
                self._look_at(name, now_ms, calls)
        return self._queue.next_at(now_ms)

    def _look_at(self, name: str, now_ms: UnixMs, calls: list[Command]) -> None:
        record = self._state.admission_checks.get(name)
        if record is None or not is_ours(self._state, name):
            self._done.pop(name, None)
            self._queue.forget(name)
            return
        wanted = standing(self._state, record.spec)
        if wanted is None or _shown(record) == wanted:
            self._done.pop(name, None)
            return
        if self._done.get(name) == (record.uid, wanted):
            return
        call_id = f"check-status/{name}"
        self._queue.begin(name)
        self._calls[call_id] = (name, (record.uid, wanted))
        calls.append(
            Call(
                id=call_id,
                method="PATCH",
                path=f"/apis/{API_VERSION}/admissionchecks/{name}/status",
                query=apply_query(force=True),
                body=_body(name, record, wanted, now_ms),
                content_type=APPLY_PATCH,
                lane=call_id,
            )
        )


def _is_about_requests(event: facts.InformersSynced) -> bool:
    """Whether the API of ProvisioningRequests may have been installed or removed, or every resource was shown."""
    return bool(event.resources) or REQUESTS in event.resource_versions


def _shown(record: CheckRecord) -> CheckStanding | None:
    shown = record.condition
    if shown is None:
        return None
    return CheckStanding(active=shown.status == "True", reason=shown.reason, message=shown.message)


def _body(name: str, record: CheckRecord, wanted: CheckStanding, now_ms: UnixMs) -> Json:
    status, shown = "True" if wanted.active else "False", record.condition
    since = shown.last_transition_time if shown is not None and shown.status == status else rfc3339(now_ms)
    condition = {
        "type": ACTIVE,
        "status": status,
        "reason": wanted.reason,
        "message": wanted.message,
        "observedGeneration": record.generation,
        "lastTransitionTime": since,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "AdmissionCheck",
        "metadata": {"name": name, "uid": record.uid},
        "status": {"conditions": [condition]},
    }
