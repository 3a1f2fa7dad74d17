"""Sentences about ProvisioningRequests and the admission checks for them, in explanations and diagnoses."""

from headgate.core.state.tables import State, Workload
from headgate.events import effects, facts, queueing
from headgate.events.ids import split_key

RequestEvent = (
    queueing.ProvisioningRequested
    | queueing.ProvisioningWithdrawn
    | effects.ProvisioningCreated
    | effects.ProvisioningRejected
    | effects.ProvisioningRemoved
    | facts.ProvisioningRequestObserved
    | facts.ProvisioningRequestDeleted
)
"""Events about one ProvisioningRequest."""

ProvisioningEvent = queueing.CheckUpdated | RequestEvent


def provisioning_text(event: ProvisioningEvent) -> str:
    """What an event means for its workload."""
    if not isinstance(event, queueing.CheckUpdated):
        return _of_request(event, split_key(event.request)[1])
    check = event.check
    moved = f"went from {event.before} to {check.state}" if event.before != check.state else f"is {check.state}"
    after = f"; it is requeued after {check.requeue_after_seconds}s" if check.state == "Retry" else ""
    return f"admission check {check.name} {moved}{after}"


def _of_request(event: RequestEvent, name: str) -> str:
    match event:
        case queueing.ProvisioningRequested():
            return f"admission check {event.check} needs ProvisioningRequest {name} (attempt {event.attempt})"
        case queueing.ProvisioningWithdrawn():
            return f"ProvisioningRequest {name} is of no more use: {event.why}"
        case effects.ProvisioningCreated():
            return f"ProvisioningRequest {name} was created"
        case effects.ProvisioningRejected():
            return f"ProvisioningRequest {name} could not be created ({event.code}); it is tried again"
        case effects.ProvisioningRemoved():
            return f"ProvisioningRequest {name} was removed before it was seen"
        case facts.ProvisioningRequestObserved():
            said = ", ".join(f"{each.type} is {each.status}" for each in event.spec.conditions)
            return f"ProvisioningRequest {name}: {said or 'it has no conditions'}"
        case facts.ProvisioningRequestDeleted():
            return f"ProvisioningRequest {name} was deleted"


def provisioning_message(event: ProvisioningEvent) -> str:
    """What the cluster autoscaler, or the API server, says in an event."""
    match event:
        case queueing.CheckUpdated():
            return event.check.message
        case effects.ProvisioningRejected():
            return event.message
        case facts.ProvisioningRequestObserved():
            return "; ".join(each.message for each in event.spec.conditions if each.message)
        case _:
            return ""


def awaited_requests(state: State, workload: Workload) -> list[str]:
    """What the ProvisioningRequests that a workload waits for have come to."""
    said = []
    for key in state.index.requests_of.get(workload.key, ()):
        record, name = state.provisioning_requests[key], split_key(key)[1]
        if record.withdrawn:
            continue
        if record.request is None:
            said.append(f"ProvisioningRequest {name} {record.refused or 'is being created'}")
        else:
            true = [each.type for each in record.request.conditions if each.status == "True"]
            said.append(f"ProvisioningRequest {name} is {', '.join(true) or 'not answered by the cluster autoscaler'}")
    return said
