"""The scheduler's machine places pods with resource claims: devices are decided and written, then pods are bound."""

import pytest
from tests.support.placements import Json, PlacementCell, node, pod

from headgate.events import decisions, effects
from headgate.events.base import Producer
from headgate.events.decisions import ObjectPatch
from headgate.events.facts import SchedulerConfigurationObserved
from headgate.events.ids import PodKey, Uid, UnixMs
from headgate.events.registry import Event

DRIVER = "gpu.example.com"
HOST = "kubernetes.io/hostname"


def device_class() -> Json:
    return {"kind": "DeviceClass", "metadata": {"name": "gpu"}}


def gpus(node_name: str, *names: str) -> Json:
    """The slice of a node with GPUs."""
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": name} for name in names]
    spec = {"driver": DRIVER, "nodeName": node_name, "pool": pool, "devices": devices}
    return {"kind": "ResourceSlice", "metadata": {"name": f"{node_name}-gpus"}, "spec": spec}


def claim(name: str) -> Json:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
    return {"kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": {"requests": [request]}}}


def claiming(name: str, *claims: str) -> Json:
    return pod(name, resourceClaims=[{"name": each, "resourceClaimName": each} for each in claims])


def device_of(cell: PlacementCell, name: str) -> tuple[str, str]:
    """Pool and name of the device that a claim has, as its object shows it."""
    (result,) = cell.object("resourceclaims", name)["status"]["allocation"]["devices"]["results"]
    return result["pool"], result["device"]


def test_pods_get_different_devices_and_are_bound_when_that_is_written() -> None:
    """What is decided in one commit is not given away twice in it, nor after a restart."""
    cell = PlacementCell(
        node("n1"), node("n2"), device_class(), gpus("n1", "a"), gpus("n2", "b"), claim("c"), claim("d"), claim("e")
    )
    cell.apply(claiming("p", "c"), claiming("q", "d"))
    cell.decide()
    cell.crash()
    cell.apply(claiming("r", "e"))
    cell.run()
    assert {device_of(cell, "team/c"), device_of(cell, "team/d")} == {("n1", "a"), ("n2", "b")}
    assert cell.nodes() == {f"team/{name}": device_of(cell, f"team/{of}")[0] for name, of in ("pc", "qd")} | {
        "team/r": ""
    }
    assert cell.verdict("team/r").startswith("0/2 nodes are available: 2 cannot allocate all claims.")


def test_a_claim_is_shared_once_its_allocation_is_written() -> None:
    """The second pod waits for it, and goes to the node of the device."""
    cell = PlacementCell(node("n1"), node("n2"), device_class(), gpus("n1", "a"), gpus("n2", "b"), claim("c"))
    cell.apply(claiming("p", "c"), claiming("q", "c"))
    cell.decide()
    assert "resource claim team/c is in the process of being allocated" in cell.verdict("team/q")
    cell.run()
    cell.log.now_ms = UnixMs(cell.log.now_ms + 60_000)
    cell.run()
    pool, _ = device_of(cell, "team/c")
    assert cell.nodes() == {"team/p": pool, "team/q": pool}
    reserved = cell.object("resourceclaims", "team/c")["status"]["reservedFor"]
    assert [consumer["name"] for consumer in reserved] == ["p", "q"]
    assert sum(isinstance(event, decisions.PodPrepared) for event in cell.says) == 2


def held_elsewhere(*, reserved_for: str = "") -> PlacementCell:
    """A pod for n2 alone, whose claim is allocated on n1 and reserved for nobody, or for a pod."""
    cell = PlacementCell(node("n1"), node("n2"), device_class(), gpus("n1", "a"), gpus("n2", "b"))
    result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "a"}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    reserved = [{"resource": "pods", "name": reserved_for, "uid": f"uid-{reserved_for}"}] if reserved_for else []
    cell.apply(claim("c") | {"status": {"allocation": allocation, "reservedFor": reserved}})
    cell.apply(claiming("p", "c") | {"spec": {**claiming("p", "c")["spec"], "nodeSelector": {HOST: "n2"}}})
    return cell


def writes_of(events: list[Event]) -> list[tuple[str, str]]:
    """What is to be written, by kind and name."""
    verdicts = [event for event in events if isinstance(event, decisions.PodUnschedulable)]
    return [(write.kind, write.name) for verdict in verdicts for write in verdict.writes]


def test_a_claim_that_keeps_its_pod_from_every_node_is_given_back() -> None:
    """The verdict says so and what is written; once it is, the pod gets a device where it can run."""
    cell = held_elsewhere()
    assert writes_of(cell.decide()) == [("ResourceClaim", "team/c")]
    assert "deallocation of ResourceClaim completed" in cell.verdict("team/p")
    cell.crash()
    assert writes_of(cell.decide()) == []
    cell.run()
    cell.log.now_ms = UnixMs(cell.log.now_ms + 60_000)
    cell.run()
    assert device_of(cell, "team/c") == ("n2", "b")
    assert cell.nodes() == {"team/p": "n2"}
    assert cell.state.post_filter_writes == {}


def test_a_claim_of_another_pod_is_not_given_back() -> None:
    """It stays as it is, and so does the pod."""
    cell = held_elsewhere(reserved_for="q")
    assert writes_of(cell.decide()) == []
    assert "still not schedulable" in cell.verdict("team/p")


def test_a_claim_that_changes_first_is_not_given_back_as_it_was_decided() -> None:
    """Whoever has reserved it meanwhile keeps it."""
    cell = held_elsewhere()
    cell.decide()
    cell.patch("resourceclaims", "team/c", {"status": {"reservedFor": [{"resource": "pods", "name": "q", "uid": "q"}]}})
    assert cell.state.post_filter_writes == {}
    cell.run()
    assert device_of(cell, "team/c") == ("n1", "a")


def test_a_refused_write_is_asked_for_again_by_the_next_attempt() -> None:
    """It is in the log each time."""
    cell = held_elsewhere()
    cell.decide()
    cell.log.append(
        Producer.BINDER,
        effects.PodWriteRejected(
            pod=PodKey("team/p"),
            uid=Uid("uid-p"),
            kind="ResourceClaim",
            name="team/c",
            code=403,
            reason="Forbidden",
            message="ResourceClaim team/c: no",
        ),
    )
    assert cell.state.post_filter_writes == {}
    cell.crash()
    cell.log.now_ms = UnixMs(cell.log.now_ms + 60_000)
    assert writes_of(cell.decide()) == [("ResourceClaim", "team/c")]


@pytest.mark.parametrize("end", ["deleted", "made anew", "off"])
def test_nothing_is_written_for_a_pod_that_is_gone(end: str) -> None:
    """Nor once no pods are placed any more."""
    cell = held_elsewhere()
    cell.decide()
    match end:
        case "deleted":
            cell.delete("pods", "team/p")
        case "made anew":
            cell.patch("pods", "team/p", {"metadata": {"uid": "other"}})
        case _:
            cell.log.append(Producer.INFORMER_BRIDGE, SchedulerConfigurationObserved(document={}))
    assert cell.state.post_filter_writes == {}


def test_a_write_that_removes_a_field_is_done_when_the_field_is_gone() -> None:
    """What is still there was not written, though all that the patch sets is there."""
    allocated = claim("c") | {"status": {"allocation": {"devices": {"results": []}}}}
    cell = PlacementCell(node("n1"), pod("p"), allocated)
    given_back = ObjectPatch(kind="ResourceClaim", name="team/c", patch={"status": {"allocation": None}})
    cell.log.append(
        Producer.SCHEDULER,
        decisions.PodPlaced(pod=PodKey("team/p"), uid=Uid("uid-p"), node="n1", writes=(given_back,)),
    )
    cell.crash()
    assert cell.decide() == []
    cell.patch("resourceclaims", "team/c", {"status": None})
    assert [type(event) for event in cell.decide()] == [decisions.PodPrepared]
