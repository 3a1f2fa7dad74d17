"""
The binder's eighth task: ProvisioningRequests and their PodTemplates in the API server.

The queue manager decides which requests a workload needs and which are of no more use (`headgate.core.provisioning`):
it decides on quota and evictions, which depend on the checks, and has no effect outside. The binder, which carries out
what is decided about Workloads, creates and deletes the objects.

Level-triggered. A request is to be created when its record has neither an object nor a reason to withdraw it; it is to
be deleted when it has such a reason. To create one, the Workload is read, since the log lacks the whole pod templates;
then each PodTemplate is created, owned by the Workload so that none is left behind, then the request, then the
PodTemplates are handed to it (Kueue's order). All names follow from the decision, so a repeated creation is answered
409: a PodTemplate is used as it is then; of a request it is checked that it is the workload's. A refusal is recorded,
so that the check of the workload can say it, and tried again with backoff.

A PodTemplate that is still owned by its Workload, and that no request has any more, is deleted.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from headgate.core.engine.work_queue import WorkQueue
from headgate.core.machine.api_results import CONFLICT, NOT_FOUND, Refusal, is_success, refusal
from headgate.core.machine.contract import MERGE_PATCH, Call, Command, Completed, deletion_of
from headgate.core.provisioning.configs import config_of, is_ours
from headgate.core.provisioning.names import attempt_of, template_key
from headgate.core.provisioning.templates import Json, UnreadableWorkloadError, objects_for, transferred
from headgate.core.state.attribution import about
from headgate.core.state.tables import RequestRecord, State, Workload
from headgate.core.status.workload_status import workload_path
from headgate.core.workload.injection import InjectionError
from headgate.events import effects, facts, queueing
from headgate.events.ids import RequestKey, TemplateKey, Uid, UnixMs, WorkloadKey, split_key
from headgate.events.objects import ProvisioningConfigSpec
from headgate.events.registry import Event

RECHECK_MS: Final = 60_000
"""After this time a request that was created and is not shown is created again."""

CALLS_MAX: Final = 64
"""The maximum number of requests that are created or deleted at a time, and that of PodTemplates."""

_REQUEST: Final = "ProvisioningRequest"
_TEMPLATE: Final = "PodTemplate"
_MESSAGE_LEN_MAX: Final = 32_768
"""The API server's limit of a message of a check."""

_Step = Literal["read", "template", "create", "check", "delete"]


class _Task(msgspec.Struct):
    """What is under way for a request."""

    workload: WorkloadKey
    uid: Uid
    step: _Step
    left: list[Json] = []
    """The objects that are still to be created, the request last."""


def request_path(key: RequestKey) -> str:
    """The path of a ProvisioningRequest."""
    namespace, name = split_key(key)
    return f"/apis/autoscaling.x-k8s.io/v1/namespaces/{namespace}/provisioningrequests/{name}"


def _template_path(key: TemplateKey) -> str:
    namespace, name = split_key(key)
    return f"/api/v1/namespaces/{namespace}/podtemplates/{name}"


class Provisioning:
    """The working set of requests and PodTemplates. The binder's machine passes on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._requests: WorkQueue[RequestKey] = WorkQueue(CALLS_MAX, keys=state.provisioning_requests)
        self._tasks: dict[str, tuple[RequestKey, _Task]] = {}
        """By the id of the call that is under way."""
        self._next: list[Command] = []
        """The next calls of tasks that go on."""
        self._done: dict[RequestKey, str] = {}
        """Requests that were created or deleted, until the state shows it: `created`, or the uid that was deleted."""
        self._fresh: list[RequestKey] = []
        """Those created since the last turn, which has the time."""
        self._recheck_at: dict[RequestKey, UnixMs] = {}
        self._templates: WorkQueue[TemplateKey] = WorkQueue(CALLS_MAX, keys=state.request_templates)
        self._template_calls: dict[str, TemplateKey] = {}
        self._handled: dict[TemplateKey, str] = {}
        """PodTemplates that were handed over or deleted, by what was done, until the state shows it."""

    def on_event(
        self,
        event: facts.ProvisioningRequestObserved
        | facts.ProvisioningRequestDeleted
        | queueing.ProvisioningRequested
        | queueing.ProvisioningWithdrawn
        | effects.ProvisioningCreated
        | effects.ProvisioningRemoved
        | facts.PodTemplateObserved
        | facts.PodTemplateDeleted
        | facts.WorkloadObserved
        | facts.ResourceFlavorObserved,
    ) -> None:
        """Record the events after which a request or a PodTemplate may be to be created, changed or deleted."""
        match event:
            case facts.PodTemplateObserved() | facts.PodTemplateDeleted():
                self._templates.add(event.template)
            case facts.WorkloadObserved():
                self._retry_refused(self._state.index.requests_of.get(event.workload, ()))
            case facts.ResourceFlavorObserved():
                self._retry_refused(self._state.provisioning_requests)
            case facts.ProvisioningRequestObserved() | facts.ProvisioningRequestDeleted():
                self._look_at_request(event.request, event.owner)
            case _:
                if isinstance(event, queueing.ProvisioningRequested):
                    self._done.pop(event.request, None)
                self._look_at_request(event.request, event.workload)

    def _look_at_request(self, key: RequestKey, workload: WorkloadKey) -> None:
        self._requests.add(key)
        self._look_at_templates(workload)

    def _retry_refused(self, keys: Iterable[RequestKey]) -> None:
        """What could not be made of a Workload or a flavor may be possible now."""
        for key in keys:
            if self._state.provisioning_requests[key].request is None:
                self._requests.add(key)

    def _look_at_templates(self, workload: WorkloadKey) -> None:
        namespace, name = split_key(workload)
        for key, template in self._state.request_templates.items():
            if template.owner is not None and template.owner.name == name and split_key(key)[0] == namespace:
                self._templates.add(key)

    # --- outcomes --------------------------------------------------------------------------------------------------

    def on_completed(self, completed: Completed, out: list[Event]) -> None:
        """A call has ended."""
        template = self._template_calls.pop(completed.call_id, None)
        if template is not None:
            if is_success(completed) or completed.status == NOT_FOUND:
                self._templates.done(template)
            else:
                self._handled.pop(template, None)
                self._templates.retry(template)
            return
        found = self._tasks.pop(completed.call_id, None)
        if found is not None:
            with about("Workload", found[1].workload):
                self._on_step(*found, completed, out)

    def _on_step(self, key: RequestKey, task: _Task, completed: Completed, out: list[Event]) -> None:
        match task.step:
            case "read":
                self._on_read(key, task, completed, out)
            case "template":
                if is_success(completed) or completed.status == CONFLICT:
                    self._create_next(key, task)
                else:
                    self._refuse(key, task, _TEMPLATE, task.left[0]["metadata"]["name"], refusal(completed), out)
            case "create":
                if is_success(completed):
                    self._created(key, task, out)
                elif completed.status == CONFLICT:
                    self._call(key, msgspec.structs.replace(task, step="check"), "GET", request_path(key))
                else:
                    self._refuse(key, task, _REQUEST, split_key(key)[1], refusal(completed), out)
            case "check":
                self._on_checked(key, task, completed, out)
            case "delete":
                self._on_deleted(key, task, completed, out)

    def _on_read(self, key: RequestKey, task: _Task, completed: Completed, out: list[Event]) -> None:
        workload, config = self._state.workloads.get(task.workload), self._config(key, task.workload)
        if not is_success(completed) or workload is None or workload.admission is None or config is None:
            self._requests.retry(key)
            return
        try:
            objects = objects_for(self._state, workload, key, config, completed.body)
        except (InjectionError, UnreadableWorkloadError) as error:
            why = Refusal(code=0, reason="Invalid", message=str(error))
            self._refuse(key, task, _REQUEST, split_key(key)[1], why, out)
            return
        self._create(key, msgspec.structs.replace(task, left=[*objects.templates, objects.request]))

    def _create_next(self, key: RequestKey, task: _Task) -> None:
        self._create(key, msgspec.structs.replace(task, left=task.left[1:]))

    def _create(self, key: RequestKey, task: _Task) -> None:
        record = self._state.provisioning_requests.get(key)
        if record is None or record.withdrawn:
            # It is of no more use, and examined again.
            self._requests.done(key)
            self._requests.add(key)
            return
        body = task.left[0]
        is_template = len(task.left) > 1
        path = _template_path(TemplateKey(key)) if is_template else request_path(key)
        step: _Step = "template" if is_template else "create"
        self._call(key, msgspec.structs.replace(task, step=step), "POST", path.rpartition("/")[0], body)

    def _created(self, key: RequestKey, task: _Task, out: list[Event]) -> None:
        self._done[key] = "created"
        self._fresh.append(key)
        self._requests.done(key)
        out.append(effects.ProvisioningCreated(workload=task.workload, uid=task.uid, request=key))

    def _on_checked(self, key: RequestKey, task: _Task, completed: Completed, out: list[Event]) -> None:
        """There is a request of that name already: fine if it is the workload's, and stays."""
        if is_success(completed) and _is_of(completed.body, task.uid):
            self._created(key, task, out)
            return
        group = "provisioningrequests.autoscaling.x-k8s.io"
        why = Refusal(code=CONFLICT, reason="AlreadyExists", message=f'{group} "{split_key(key)[1]}" already exists')
        self._refuse(key, task, _REQUEST, split_key(key)[1], why, out)

    def _on_deleted(self, key: RequestKey, task: _Task, completed: Completed, out: list[Event]) -> None:
        if not is_success(completed) and completed.status not in (NOT_FOUND, CONFLICT):
            self._requests.retry(key)
            return
        record = self._state.provisioning_requests.get(key)
        self._done[key] = record.request.uid if record is not None and record.request is not None else "gone"
        self._requests.done(key)
        if record is not None and record.request is None:
            out.append(effects.ProvisioningRemoved(workload=task.workload, uid=task.uid, request=key))

    def _refuse(self, key: RequestKey, task: _Task, kind: str, name: str, why: Refusal, out: list[Event]) -> None:
        """Record why an object could not be created, unless the log has it; try again later."""
        self._requests.retry(key)
        record = self._state.provisioning_requests.get(key)
        message = f'Error creating {kind} "{name}": {why.message}'[:_MESSAGE_LEN_MAX]
        if record is None or record.request is not None or record.refused == message:
            return
        out.append(
            effects.ProvisioningRejected(
                workload=task.workload, uid=task.uid, request=key, code=why.code, reason=why.reason, message=message
            )
        )

    # --- calls -----------------------------------------------------------------------------------------------------

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Create, change and delete what is due. Returns when to check again."""
        if not self._state.synced:
            return None
        for key in self._fresh:
            self._recheck_at[key] = UnixMs(now_ms + RECHECK_MS)
            self._requests.add_at(key, self._recheck_at[key])
        self._fresh.clear()
        for key in self._requests.ready(now_ms):
            record = self._state.provisioning_requests.get(key)
            if record is None:
                self._forget(key)
                continue
            with about("Workload", record.workload):
                self._look_at(key, record, now_ms)
        for template in self._templates.ready(now_ms):
            self._look_at_template(template, calls)
        calls += self._next
        self._next.clear()
        due = [self._requests.next_at(now_ms), self._templates.next_at(now_ms)]
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    def _forget(self, key: RequestKey) -> None:
        self._done.pop(key, None)
        self._recheck_at.pop(key, None)
        self._requests.forget(key)

    def _look_at(self, key: RequestKey, record: RequestRecord, now_ms: UnixMs) -> None:
        workload = self._state.workloads.get(record.workload)
        task = _Task(record.workload, workload.uid if workload is not None else Uid(""), "read")
        if record.withdrawn:
            self._delete(key, record, task)
        elif record.request is not None:
            self._done.pop(key, None)
            self._recheck_at.pop(key, None)
        elif workload is not None and self._may_be_created(key, workload, now_ms):
            self._requests.begin(key)
            self._call(key, task, "GET", workload_path(workload.key))

    def _may_be_created(self, key: RequestKey, workload: Workload, now_ms: UnixMs) -> bool:
        if workload.admission is None or self._config(key, workload.key) is None:
            return False
        return not self._is_awaited(key, now_ms)

    def _is_awaited(self, key: RequestKey, now_ms: UnixMs) -> bool:
        """Whether a request was created so recently that the API server may still show it."""
        if self._done.get(key) != "created":
            return False
        due_ms = self._recheck_at.get(key, now_ms)
        if due_ms > now_ms:
            self._requests.add_at(key, due_ms)
        return due_ms > now_ms

    def _delete(self, key: RequestKey, record: RequestRecord, task: _Task) -> None:
        uid = record.request.uid if record.request is not None else "gone"
        if self._done.get(key) == uid:
            return
        self._requests.begin(key)
        body = deletion_of(uid) if record.request is not None else None
        self._call(key, msgspec.structs.replace(task, step="delete"), "DELETE", request_path(key), body)

    def _call(self, key: RequestKey, task: _Task, method: str, path: str, body: Json | None = None) -> None:
        call_id = f"provisioning/{key}/{task.step}"
        if task.step == "template" and body is not None:
            call_id += f"/{body['metadata']['name']}"
        self._tasks[call_id] = (key, task)
        self._next.append(Call(id=call_id, method=method, path=path, body=body, lane=f"provisioning/{key}"))

    def _config(self, key: RequestKey, workload: WorkloadKey) -> ProvisioningConfigSpec | None:
        """The configuration of the check that a request is for."""
        record = self._state.workloads.get(workload)
        for check in record.checks if record is not None else ():
            if is_ours(self._state, check.name) and attempt_of(key, workload, check.name) is not None:
                return config_of(self._state, check.name)
        return None

    # --- PodTemplates ----------------------------------------------------------------------------------------------

    def _look_at_template(self, key: TemplateKey, calls: list[Command]) -> None:
        """Hand a PodTemplate over to its request, or delete it where there is none."""
        template = self._state.request_templates.get(key)
        if template is None:
            self._handled.pop(key, None)
            self._templates.forget(key)
            return
        owner = template.owner
        if owner is None or owner.kind != "Workload" or template.deleting:
            return
        workload = self._state.workloads.get(WorkloadKey(f"{split_key(key)[0]}/{owner.name}"))
        if workload is None or workload.uid != owner.uid:
            # It is deleted with its owner.
            return
        request = self._request_of(key, workload)
        record = self._state.provisioning_requests[request] if request is not None else None
        body: Json
        if request is None or record is None:
            what, method, body = "delete", "DELETE", deletion_of(template.uid)
        elif record.request is None:
            return
        else:
            what, method = record.request.uid, "PATCH"
            references = transferred(request, record.request.uid)
            body = {"metadata": {"uid": template.uid, "ownerReferences": references}}
        if self._handled.get(key) == what:
            return
        self._handled[key] = what
        self._templates.begin(key)
        call_id = f"pod-template/{key}"
        self._template_calls[call_id] = key
        kind = MERGE_PATCH if method == "PATCH" else "application/json"
        lane = f"pod-template/{key}"
        calls.append(Call(id=call_id, method=method, path=_template_path(key), body=body, content_type=kind, lane=lane))

    def _request_of(self, key: TemplateKey, workload: Workload) -> RequestKey | None:
        """The request that a PodTemplate belongs to, or will; None when it has none that is in use."""
        for request in self._state.index.requests_of.get(workload.key, ()):
            if self._state.provisioning_requests[request].withdrawn:
                continue
            if any(template_key(request, each.name) == key for each in workload.spec.pod_sets):
                return request
        return None


class _OwnerOf(msgspec.Struct, frozen=True):
    uid: str = ""


class _MetaOf(msgspec.Struct, frozen=True, rename="camel"):
    owner_references: tuple[_OwnerOf, ...] = ()
    deletion_timestamp: str | None = None


class _ObjectOf(msgspec.Struct, frozen=True):
    metadata: _MetaOf = _MetaOf()


def _is_of(answer: bytes, uid: Uid) -> bool:
    """Whether a request belongs to a Workload, and is not being deleted."""
    try:
        metadata = msgspec.json.decode(answer, type=_ObjectOf).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return metadata.deletion_timestamp is None and any(each.uid == uid for each in metadata.owner_references)
