"""
Decisions about admission checks for ProvisioningRequests: their states, and which requests a workload needs.

Kueue's Controller (pkg/controller/admissionchecks/provisioning/controller.go) as functions of the state. Its order is
kept: the states follow from the requests as they are; then requests that are of no use are withdrawn; then those are
requested that are missing. What Kueue reads from its client, and may find outdated, is the folded state here; a request
that is wanted or unwanted is so from its event on, and not only when the API server shows it.

The queue manager calls `steps` and `withdrawals` whenever something about the workload, its requests, its checks or
their configuration has changed. Both return nothing when the state is as decided.
"""

from typing import Final, NamedTuple

from msgspec.structs import replace

from headgate.core.config import feature_gates
from headgate.core.kubernetes import conditions
from headgate.core.provisioning.configs import are_known, config_of, is_ours
from headgate.core.provisioning.names import attempt_of, request_key, template_name
from headgate.core.state.tables import RequestRecord, Stage, State, Workload
from headgate.events.ids import RequestKey, split_key
from headgate.events.objects import (
    CheckState,
    Condition,
    PodSet,
    PodSetUpdate,
    PodSpec,
    ProvisioningConfigSpec,
    ProvisioningRequest,
    ProvisioningRetries,
)
from headgate.events.queueing import CheckUpdated, ProvisioningRequested, ProvisioningWithdrawn

CHECK_INACTIVE: Final = "the check is not active"
NO_REQUEST_NEEDED: Final = "the provisioning request is not needed"

CONSUMES: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS_NAME: Final = "autoscaling.x-k8s.io/provisioning-class-name"
"""Annotations of pods that use the capacity of a request: its name and its class."""

_HOLDING: Final = (Stage.RESERVED, Stage.ADMITTED)
_PENDING: Final = "Pending"
_READY: Final = "Ready"
_RETRY: Final = "Retry"
_REJECTED: Final = "Rejected"

_Said = CheckUpdated | ProvisioningRequested | ProvisioningWithdrawn


class RequestAttempt(NamedTuple):
    """A request of a workload for one check. `request` is None until the API server has shown it."""

    key: RequestKey
    number: int
    request: ProvisioningRequest | None
    refused: str


def steps(state: State, workload: Workload) -> list[_Said]:
    """What a workload that holds quota needs: new states of its checks, and new requests."""
    if workload.stage not in _HOLDING or workload.admission is None:
        return []
    said: list[_Said] = []
    for check in workload.checks:
        if not is_ours(state, check.name):
            continue
        config = config_of(state, check.name)
        if config is None and not are_known(state):
            continue
        needed = config is not None and is_needed(workload, config)
        last = last_attempt(state, workload, check.name, config) if config is not None and needed else None
        after = _decided(workload, check, config, last, needed=needed)
        if after != check:
            said.append(
                CheckUpdated(
                    workload=workload.key,
                    uid=workload.uid,
                    check=replace(after, last_transition_time=""),
                    before=check.state,
                )
            )
        if needed:
            said += _requested(state, workload, after, last)
    return said


# --- the state of a check ------------------------------------------------------------------------------------------


def _decided(
    workload: Workload,
    check: CheckState,
    config: ProvisioningConfigSpec | None,
    last: RequestAttempt | None,
    *,
    needed: bool | None,
) -> CheckState:
    """The state of a check that follows from the last attempt."""
    if config is None:
        return replace(check, state=_PENDING, message=CHECK_INACTIVE)
    if needed is False:
        if check.state == _READY:
            return check
        return replace(check, state=_READY, message=NO_REQUEST_NEEDED, pod_set_updates=())
    if last is None:
        return check
    if last.request is None:
        # Not created yet. The message says why, if the API server has refused it.
        return replace(check, message=last.refused) if last.refused and check.state == _PENDING else check
    return _by_request(workload, check, config, last, last.request)


def _by_request(
    workload: Workload,
    check: CheckState,
    config: ProvisioningConfigSpec,
    last: RequestAttempt,
    request: ProvisioningRequest,
) -> CheckState:
    retries, number = config.retry_strategy, last.number
    if (failed := _true(request, "Failed")) is not None:
        return _after_failure(check, retries, number, f"Retrying after failure: {failed.message}", failed.message)
    if (revoked := _true(request, "CapacityRevoked")) is not None:
        # Its nodes are gone: pods that replace others would wait forever.
        return replace(check, state=_REJECTED, message=revoked.message) if workload.spec.active else check
    if (expired := _true(request, "BookingExpired")) is not None:
        if workload.stage is Stage.ADMITTED:
            return check
        message = f"Retrying after booking expired: {expired.message}"
        return _after_failure(check, retries, number, message, expired.message)
    if (provisioned := _true(request, "Provisioned")) is not None:
        if check.state == _READY:
            return check
        updates = pod_set_updates(workload, last.key, request, config)
        return replace(check, state=_READY, message=provisioned.message, pod_set_updates=updates)
    if _true(request, "Accepted") is not None:
        waits = conditions.find(request.conditions, "Provisioned")
        # Its message may have the expected time.
        return replace(check, state=_PENDING, message=waits.message) if waits is not None else check
    return replace(check, state=_PENDING, message="")


def _after_failure(
    check: CheckState, retries: ProvisioningRetries, number: int, retrying: str, message: str
) -> CheckState:
    if number > retries.backoff_limit_count:
        return replace(check, state=_REJECTED, message=message)
    done = check.retry_count or 0
    if number <= done:
        # An attempt of a former reservation: the next one is requested.
        return replace(check, message=retrying)
    return replace(check, state=_RETRY, message=retrying, requeue_after_seconds=backoff_s(retries, done + 1))


def backoff_s(retries: ProvisioningRetries, count: int) -> int:
    """
    How long a workload waits before its `count`-th retry (from 1): the base, doubled with each retry, up to the limit.

    As in Kueue the limit does not apply to the first. Kueue adds a ten-thousandth at random.
    """
    base_s, max_s = retries.backoff_base_seconds, retries.backoff_max_seconds
    if count <= 1:
        return base_s
    grown_s = base_s << min(count - 1, 31)
    return min(grown_s, max_s) if max_s else grown_s


def _true(request: ProvisioningRequest, kind: str) -> Condition | None:
    condition = conditions.find(request.conditions, kind)
    return condition if condition is not None and condition.status == "True" else None


def pod_set_updates(
    workload: Workload, key: RequestKey, request: ProvisioningRequest, config: ProvisioningConfigSpec
) -> tuple[PodSetUpdate, ...]:
    """
    What pods get that use the capacity of a request: annotations, and node selectors from its details.

    A pod set that was merged into the template of another gets none, as in Kueue.
    """
    by_template = {template_name(key, each.name): each.name for each in workload.spec.pod_sets}
    annotations = {CONSUMES: split_key(key)[1], CLASS_NAME: request.class_name}
    wanted = config.pod_set_updates.node_selector if config.pod_set_updates is not None else ()
    selector = {
        each.key: request.details[each.value_from_provisioning_class_detail]
        for each in wanted
        if each.value_from_provisioning_class_detail in request.details
    }
    return tuple(
        PodSetUpdate(name=by_template[pods.template], annotations=annotations, node_selector=selector)
        for pods in request.pod_sets
        if pods.template in by_template
    )


# --- requests ------------------------------------------------------------------------------------------------------


def _uses(spec: PodSpec, managed: tuple[str, ...]) -> bool:
    """Whether a container of a pod requests one of these resources, or has a limit for it."""
    return any(
        resource in container.resources.requests or resource in container.resources.limits
        for container in (*spec.init_containers, *spec.containers)
        for resource in managed
    )


def required_pod_sets(workload: Workload, config: ProvisioningConfigSpec) -> tuple[PodSet, ...]:
    """The pod sets for which a check requests capacity."""
    managed = config.managed_resources
    return tuple(
        pod_set
        for pod_set in workload.spec.pod_sets
        if pod_set.count > 0 and (not managed or _uses(pod_set.template.spec, managed))
    )


def is_needed(workload: Workload, config: ProvisioningConfigSpec) -> bool | None:
    """Whether a workload that holds quota needs a request; None when its admission has other pod sets than its spec."""
    assignments = workload.admission.pod_set_assignments if workload.admission is not None else ()
    counts = {each.name: each.count for each in assignments}
    for pod_set in required_pod_sets(workload, config):
        if pod_set.name not in counts:
            return None
        if counts[pod_set.name] > 0:
            return True
    return False


def last_attempt(state: State, workload: Workload, check: str, config: ProvisioningConfigSpec) -> RequestAttempt | None:
    """The request of a workload for a check that counts: the last that is in use and as the configuration has it."""
    attempts = [
        RequestAttempt(key, number, record.request, record.refused)
        for key in state.index.requests_of.get(workload.key, ())
        if (number := attempt_of(key, workload.key, check)) is not None
        and _is_usable(record := state.provisioning_requests[key], workload, config)
    ]
    return max(attempts, key=lambda each: each.number, default=None)


def _is_usable(record: RequestRecord, workload: Workload, config: ProvisioningConfigSpec) -> bool:
    """Whether a request is in use. One that is not shown yet will be made from the configuration as it is then."""
    if record.withdrawn:
        return False
    request = record.request
    if request is None:
        return True
    if request.deleting or request.owner_uid != workload.uid or request.class_name != config.provisioning_class_name:
        return False
    return all(request.parameters.get(key) == value for key, value in config.parameters.items())


def _requested(state: State, workload: Workload, check: CheckState, last: RequestAttempt | None) -> list[_Said]:
    """The next request for a check, if it needs one."""
    if check.state == _READY:
        return []
    if last is None:
        # With the former ones deleted at each eviction, the check has the count.
        number = (check.retry_count or 0) + 1
    elif check.state == _PENDING and last.request is not None and _has_failed(workload, last.request):
        number = last.number + 1
    else:
        return []
    key = request_key(workload.key, check.name, number)
    if key in state.provisioning_requests:
        # One of that name is being deleted.
        return []
    return [
        ProvisioningRequested(workload=workload.key, uid=workload.uid, check=check.name, request=key, attempt=number)
    ]


def _has_failed(workload: Workload, request: ProvisioningRequest) -> bool:
    if _true(request, "Failed") is not None:
        return True
    return _true(request, "BookingExpired") is not None and workload.stage is not Stage.ADMITTED


def withdrawals(state: State, workload: Workload) -> list[ProvisioningWithdrawn]:
    """The requests of a workload that are of no use, with the reason, unless they are being deleted already."""
    keys = state.index.requests_of.get(workload.key)
    if not keys:
        return []
    why = _end(state, workload)
    used: frozenset[RequestKey] = frozenset()
    if not why and workload.stage in _HOLDING:
        used = _used(state, workload)
        why = "another request replaces it, or none is needed"
    return [
        ProvisioningWithdrawn(workload=workload.key, uid=workload.uid, request=key, why=reason)
        for key in keys
        if (reason := _reason(state.provisioning_requests[key], workload, why)) and key not in used
    ]


def _reason(record: RequestRecord, workload: Workload, why: str) -> str:
    if record.withdrawn or (record.request is not None and record.request.deleting):
        return ""
    if record.request is not None and record.request.owner_uid != workload.uid:
        return "it was made for a former Workload of that name"
    return why


def _end(state: State, workload: Workload) -> str:
    """Why no request of a workload is of use any more; "" while one may be."""
    if workload.stage is Stage.FINISHED:
        return "the workload has finished"
    evicted = conditions.is_true(workload.conditions, conditions.EVICTED)
    if evicted and feature_gates.enabled(state.configuration, feature_gates.CLEANUP_REQUESTS_ON_EVICTION):
        return "the workload was evicted"
    return ""


def _used(state: State, workload: Workload) -> frozenset[RequestKey]:
    used = set()
    for check in workload.checks:
        config = config_of(state, check.name) if is_ours(state, check.name) else None
        if config is not None and is_needed(workload, config):
            last = last_attempt(state, workload, check.name, config)
            if last is not None:
                used.add(last.key)
    return frozenset(used)
