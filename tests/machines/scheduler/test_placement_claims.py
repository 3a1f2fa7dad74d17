"""The scheduler's machine places pods with resource claims: devices are decided and written, then pods are bound."""

from tests.support.placements import Json, PlacementCell, node, pod

from headgate.events import decisions
from headgate.events.ids import UnixMs

DRIVER = "gpu.example.com"


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
    (result,) = cell.state.objects["resourceclaims"][name]["status"]["allocation"]["devices"]["results"]
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
    reserved = cell.state.objects["resourceclaims"]["team/c"]["status"]["reservedFor"]
    assert [consumer["name"] for consumer in reserved] == ["p", "q"]
    assert sum(isinstance(event, decisions.PodPrepared) for event in cell.says) == 2
