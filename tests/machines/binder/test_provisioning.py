"""ProvisioningRequests are created in Kueue's order and deleted when they are withdrawn; refusals are recorded."""

import msgspec
import pytest
from tests.core.provisioning.test_deciding import UID, Provisioned, true

from headgate.core.machine.contract import Append, Call, Committed, Completed, Settled
from headgate.core.provisioning.names import template_key
from headgate.events import effects, facts
from headgate.events.base import EventBase, Producer
from headgate.events.ids import RequestKey, Uid, UnixMs
from headgate.events.objects import OwnerReference, RequestTemplate
from headgate.machines.binder.decide import Binder
from headgate.machines.binder.provisioning import RECHECK_MS

REQUEST = RequestKey("team/w-prov-1")
TEMPLATE = template_key(REQUEST, "main")
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/team/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/team/podtemplates"
POD_SETS = [{"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "main"}]}}}]
WHOLE = msgspec.json.encode({"metadata": {"uid": "uid-w"}, "spec": {"podSets": POD_SETS}})
AlreadyExists = msgspec.json.encode({"reason": "AlreadyExists", "message": "already exists"})


class Requester:
    """A binder of which only the calls about requests and PodTemplates are looked at."""

    def __init__(self, workload: Provisioned | None = None) -> None:
        self.workload = workload or Provisioned()
        if workload is None:
            self.workload.reserve()
        self.cell = self.workload.cell
        self.machine = Binder(self.cell.state, "off")
        self.said: list[EventBase] = []

    def calls(self) -> list[Call]:
        found = []
        for command in self.machine.decide(Settled(self.cell.now_ms)):
            if isinstance(command, Append):
                self.said += command.events
                self.hear(Producer.BINDER, *command.events)
            elif isinstance(command, Call) and command.id.startswith(("provisioning/", "pod-template/")):
                found.append(command)
        return found

    def call(self) -> Call:
        (call,) = self.calls()
        return call

    def hear(self, producer: Producer, *events: EventBase) -> None:
        self.machine.decide(Committed(self.cell.put(producer, *events)))

    def answer(self, call: Call, code: int = 200, body: bytes = b"{}") -> None:
        self.machine.decide(Completed(call.id, code, body))

    def pass_ms(self, ms: int) -> None:
        self.cell.log.now_ms = UnixMs(self.cell.now_ms + ms)

    def create(self) -> None:
        """Up to the request that was created."""
        for code, body in ((200, WHOLE), (201, b"{}"), (201, b"{}")):
            self.answer(self.call(), code, body)
        assert self.calls() == []


def test_a_request_is_created_after_its_templates() -> None:
    """The Workload is read, since the log has not the whole template; what was created is recorded once."""
    binder = Requester()
    read = binder.call()
    assert (read.method, read.path) == ("GET", "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w")
    binder.answer(read, 200, WHOLE)
    template = binder.call()
    assert (template.method, template.path) == ("POST", TEMPLATES)
    assert template.body["metadata"]["name"] == "ppt-w-prov-1-main"
    binder.answer(template, 409, AlreadyExists)
    request = binder.call()
    assert (request.method, request.path) == ("POST", REQUESTS)
    binder.answer(request, 201)
    assert binder.calls() == []
    assert binder.said == [effects.ProvisioningCreated(workload=binder.workload.key, uid=UID, request=REQUEST)]


def test_a_restarted_binder_creates_the_same_again() -> None:
    """Of a request that is there already it is checked that it is the workload's."""
    Requester().create()
    binder = Requester()
    binder.answer(binder.call(), 200, WHOLE)
    binder.answer(binder.call(), 409, AlreadyExists)
    binder.answer(binder.call(), 409, AlreadyExists)
    check = binder.call()
    assert (check.method, check.path) == ("GET", f"{REQUESTS}/w-prov-1")
    binder.answer(check, 200, b'{"metadata":{"ownerReferences":[{"uid":"uid-w"}]}}')
    assert binder.calls() == []
    assert [type(each) for each in binder.said] == [effects.ProvisioningCreated]


@pytest.mark.parametrize("body", [b"{}", b'{"metadata":{"ownerReferences":[{"uid":"other"}]}}'])
def test_a_request_of_that_name_that_is_not_the_workloads_is_no_substitute(body: bytes) -> None:
    """It is recorded why, once, and tried again."""
    binder = Requester()
    for _ in range(2):
        binder.answer(binder.call(), 200, WHOLE)
        binder.answer(binder.call(), 409, AlreadyExists)
        binder.answer(binder.call(), 409, AlreadyExists)
        binder.answer(binder.call(), 200, body)
        assert binder.calls() == []
        binder.pass_ms(400_000)
    (refused,) = binder.said
    assert isinstance(refused, effects.ProvisioningRejected)
    assert refused.message == (
        'Error creating ProvisioningRequest "w-prov-1": '
        'provisioningrequests.autoscaling.x-k8s.io "w-prov-1" already exists'
    )


def test_a_refused_template_is_recorded_with_its_name() -> None:
    """The check of the workload says it."""
    binder = Requester()
    binder.answer(binder.call(), 200, WHOLE)
    binder.answer(binder.call(), 403, b'{"reason":"Forbidden","message":"no quota"}')
    assert binder.calls() == []
    binder.cell.settle()
    assert binder.workload.said == ("Pending", 'Error creating PodTemplate "ppt-w-prov-1-main": no quota')


def test_a_request_that_never_shows_is_created_again() -> None:
    """It may have been deleted before the watch saw it."""
    binder = Requester()
    binder.create()
    binder.pass_ms(RECHECK_MS)
    assert binder.call().method == "GET"


def test_a_withdrawn_request_is_deleted_by_its_uid() -> None:
    """One that was never shown is deleted by its name, and recorded as removed."""
    binder = Requester()
    binder.create()
    binder.workload.show(true("Failed", "no"))
    binder = Requester(binder.workload)
    call = binder.call()
    assert (call.method, call.path, call.body["preconditions"]) == ("DELETE", f"{REQUESTS}/w-prov-1", {"uid": "uid-1"})
    binder.answer(call)
    assert binder.calls() == []
    assert binder.said == []


def test_a_request_that_was_withdrawn_before_it_was_shown_is_removed() -> None:
    """The next reservation may use its name."""
    binder = Requester()
    binder.create()
    binder.cell.delete(binder.workload.key)
    assert REQUEST not in binder.cell.state.provisioning_requests


def test_a_template_is_handed_over_once_its_request_is_shown() -> None:
    """And deleted where no request has it."""
    binder = Requester()
    binder.create()
    owner = OwnerReference(api_version="kueue.x-k8s.io/v1beta2", kind="Workload", name="w", uid="uid-w")
    spec = RequestTemplate(uid="uid-t", owner=owner)
    binder.hear(Producer.INFORMER_BRIDGE, facts.PodTemplateObserved(template=TEMPLATE, spec=spec))
    stray = template_key(RequestKey("team/w-prov-7"), "main")
    binder.hear(Producer.INFORMER_BRIDGE, facts.PodTemplateObserved(template=stray, spec=spec))
    call = binder.call()
    assert (call.method, call.path) == ("DELETE", f"{TEMPLATES}/ppt-w-prov-7-main")
    binder.answer(call)
    binder.workload.show()
    shown = binder.cell.state.provisioning_requests[REQUEST].request
    assert shown is not None
    binder.hear(
        Producer.INFORMER_BRIDGE,
        facts.ProvisioningRequestObserved(request=REQUEST, owner=binder.workload.key, spec=shown),
    )
    call = binder.call()
    assert (call.method, call.path) == ("PATCH", f"{TEMPLATES}/ppt-w-prov-1-main")
    (reference,) = call.body["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"]) == ("ProvisioningRequest", Uid("uid-1"))
