"""
The fold of provisioning: configurations, requests and their PodTemplates, and the checks that depend on them.

Called by `headgate.core.fold` only. It keeps `Index.requests_of`. A request is in the state from the decision to create
it until the API server has shown that it is gone, or has none of that name: so no second one is created under the name
of one that is being deleted, whose content may be of another reservation.
"""

from typing import Never

import msgspec

from headgate.core.fold.transitions import moved
from headgate.core.kubernetes import conditions
from headgate.core.state.handlers import EventHandlers
from headgate.core.state.tables import RequestRecord, State, Workload
from headgate.events import effects, facts, queueing
from headgate.events.commit import Commit
from headgate.events.ids import RequestKey, Seq


def _config_observed(state: State, event: facts.ProvisioningConfigObserved, commit: Commit, seq: Seq) -> None:
    state.provisioning_configs[event.name] = event.spec


def _config_deleted(state: State, event: facts.ProvisioningConfigDeleted, commit: Commit, seq: Seq) -> None:
    state.provisioning_configs.pop(event.name, None)


def _add(state: State, key: RequestKey, record: RequestRecord) -> None:
    state.provisioning_requests[key] = record
    state.index.requests_of.setdefault(record.workload, {})[key] = None


def _remove(state: State, key: RequestKey) -> None:
    record = state.provisioning_requests.pop(key)
    requests = state.index.requests_of[record.workload]
    del requests[key]
    if not requests:
        del state.index.requests_of[record.workload]


def _request_observed(state: State, event: facts.ProvisioningRequestObserved, commit: Commit, seq: Seq) -> None:
    record = state.provisioning_requests.get(event.request)
    if record is not None and record.workload != event.owner:
        _remove(state, event.request)
        record = None
    if record is None:
        record = RequestRecord(workload=event.owner)
        _add(state, event.request, record)
    elif record.request is not None and record.request.uid != event.spec.uid:
        # The one that was to be deleted is gone.
        record.withdrawn = ""
    record.request, record.refused = event.spec, ""


def _request_deleted(state: State, event: facts.ProvisioningRequestDeleted, commit: Commit, seq: Seq) -> None:
    record = state.provisioning_requests.get(event.request)
    if record is None or record.request is None or record.request.uid != event.uid:
        state.overtaken += 1
        return
    _remove(state, event.request)


def _template_observed(state: State, event: facts.PodTemplateObserved, commit: Commit, seq: Seq) -> None:
    state.request_templates[event.template] = event.spec


def _template_deleted(state: State, event: facts.PodTemplateDeleted, commit: Commit, seq: Seq) -> None:
    state.request_templates.pop(event.template, None)


def _requested(state: State, event: queueing.ProvisioningRequested, commit: Commit, seq: Seq) -> None:
    workload = state.workloads.get(event.workload)
    if workload is None or workload.uid != event.uid or event.request in state.provisioning_requests:
        # The Workload is gone, or somebody has created a request of that name meanwhile.
        state.overtaken += 1
        return
    _add(state, event.request, RequestRecord(workload=event.workload))


def _withdrawn(state: State, event: queueing.ProvisioningWithdrawn, commit: Commit, seq: Seq) -> None:
    record = state.provisioning_requests.get(event.request)
    if record is None or record.workload != event.workload:
        state.overtaken += 1
        return
    record.withdrawn = event.why


def _created(state: State, event: effects.ProvisioningCreated, commit: Commit, seq: Seq) -> None:
    record = state.provisioning_requests.get(event.request)
    if record is not None and record.workload == event.workload:
        record.refused = ""


def _rejected(state: State, event: effects.ProvisioningRejected, commit: Commit, seq: Seq) -> None:
    record = state.provisioning_requests.get(event.request)
    if record is not None and record.workload == event.workload and record.request is None:
        record.refused = event.message


def _removed(state: State, event: effects.ProvisioningRemoved, commit: Commit, seq: Seq) -> None:
    record = state.provisioning_requests.get(event.request)
    if record is not None and record.withdrawn and record.request is None:
        _remove(state, event.request)


def _check_updated(state: State, event: queueing.CheckUpdated, commit: Commit, seq: Seq) -> None:
    found = moved(state, event, seq)
    if found is None:
        return
    workload, _ = found
    check = event.check
    before = next((each for each in workload.checks if each.name == check.name), None)
    if before is None:
        # The ClusterQueue does not name it any more.
        state.overtaken += 1
        return
    since = before.last_transition_time if before.state == check.state else conditions.rfc3339(commit.time_ms)
    after = msgspec.structs.replace(check, last_transition_time=since)
    workload.checks = tuple(after if each is before else each for each in workload.checks)
    workload.observed_checks = tuple(each for each in workload.observed_checks if each.name != check.name)
    workload.stale_checks = tuple(each for each in workload.stale_checks if each.name != check.name)
    if check.name not in workload.decided_checks:
        workload.decided_checks = (*workload.decided_checks, check.name)
    workload.last_seq = seq


def forget(state: State, workload: Workload) -> None:
    """A workload is gone: with it the requests that were never created. The others are deleted with their owner."""
    for key in tuple(state.index.requests_of.get(workload.key, ())):
        if state.provisioning_requests[key].request is None:
            _remove(state, key)


def reindex(state: State) -> None:
    """Rebuild the index of requests."""
    for key, record in state.provisioning_requests.items():
        state.index.requests_of.setdefault(record.workload, {})[key] = None


HANDLERS = (
    EventHandlers[Never]()
    .on(facts.ProvisioningConfigObserved, _config_observed)
    .on(facts.ProvisioningConfigDeleted, _config_deleted)
    .on(facts.ProvisioningRequestObserved, _request_observed)
    .on(facts.ProvisioningRequestDeleted, _request_deleted)
    .on(facts.PodTemplateObserved, _template_observed)
    .on(facts.PodTemplateDeleted, _template_deleted)
    .on(queueing.ProvisioningRequested, _requested)
    .on(queueing.ProvisioningWithdrawn, _withdrawn)
    .on(queueing.CheckUpdated, _check_updated)
    .on(effects.ProvisioningCreated, _created)
    .on(effects.ProvisioningRejected, _rejected)
    .on(effects.ProvisioningRemoved, _removed)
)
