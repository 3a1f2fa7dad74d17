"""Pods with claims: which nodes they can go to, what is reserved for them, and what is written before binding."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.placement.attempt import PlacementAttempt, attempt
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.configuration.profiles import read_profiles
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.framework.status import Code
from headgate.core.placement.objects.metadata import read
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.placement.scan import NodeOrder

DEFAULT = read_profiles(None, REGISTRY).by_name["default-scheduler"]


class Storage:
    """Three nodes, a class of local volumes and one of volumes that are made."""

    def __init__(self) -> None:
        self.cluster = PlacementCluster()
        for name in ("n0", "n1", "n2"):
            labels = {"kubernetes.io/hostname": name}
            node = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}}
            self.cluster.set_node(read(node, NodeObject))
        for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("made", "csi.example.com")):
            storage = {
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            }
            self.cluster.put(StorageClass, name, read(storage, StorageClass))
        self.framework = Framework(DEFAULT, self.cluster)

    def volume(self, name: str, node: str, size: int) -> None:
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
        spec = {
            "capacity": {"storage": f"{size}Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }
        manifest = {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}
        self.cluster.put(PersistentVolume, name, read(manifest, PersistentVolume))

    def claim(self, name: str, size: int, storage: str = "local") -> None:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage,
            "resources": {"requests": {"storage": f"{size}Gi"}},
        }
        manifest = {"metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}"}, "spec": spec}
        self.cluster.put(PersistentVolumeClaim, f"a/{name}", read(manifest, PersistentVolumeClaim))

    def tried(self, *claims: str, **spec: Any) -> PlacementAttempt:
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
        full = {"schedulerName": "default-scheduler", "containers": [{"name": "c"}], "volumes": volumes, **spec}
        metadata = {"name": f"p-{'-'.join(claims)}", "namespace": "a", "uid": "u"}
        pod = self.cluster.shapes.read({"metadata": metadata, "spec": full})
        self.cluster.set_pod(pod)
        return attempt(self.framework, pod, self.cluster.index(NodeOrder).scan(0, 100))

    def reserve(self, made: PlacementAttempt) -> Any:
        node = self.cluster.node(made.node)
        assert node is not None
        reserved = self.framework.binding.reserve(made.cycle, node)
        for assumed in reserved.assumed:
            self.cluster.put(assumed.kind, assumed.key, assumed.object)
        return reserved, self.framework.binding.pre_bind(made.cycle, node)


SIZES = st.lists(st.tuples(st.sampled_from(["n0", "n1", "n2"]), st.integers(1, 5)), max_size=6)


@given(SIZES, st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_a_volume_is_reserved_once_and_where_it_is(volumes: list[tuple[str, int]], claims: list[int]) -> None:
    """Each placed pod gets a free volume on its node that is large enough, the smallest one there."""
    storage = Storage()
    free = {f"v{number}": each for number, each in enumerate(volumes)}
    for name, (node, size) in free.items():
        storage.volume(name, node, size)
    for number, size in enumerate(claims):
        storage.claim(f"c{number}", size)
        made = storage.tried(f"c{number}")
        fitting = {node for node, held in free.values() if held >= size}
        assert bool(made.node) == bool(fitting)
        if not made.node:
            assert made.rejectors == ("VolumeBinding",)
            continue
        reserved, _ = storage.reserve(made)
        (assumed,) = reserved.assumed
        node, held = free.pop(assumed.key)
        assert node == made.node
        assert held >= size
        assert all(other >= held for on, other in free.values() if on == node and other >= size)


def test_a_volume_is_written_for_its_claim_before_the_pod_is_bound() -> None:
    """The write names the claim; it is waited for."""
    storage = Storage()
    storage.volume("v", "n1", 2)
    storage.claim("c", 1)
    made = storage.tried("c")
    _, left = storage.reserve(made)
    assert (made.node, left.status.code) == ("n1", Code.WAIT)
    assert [(write.kind, write.key) for write in left.writes] == [("PersistentVolume", "v")]
    assert left.writes[0].patch["spec"]["claimRef"]["uid"] == "uid-c"


def test_a_claim_without_a_volume_is_given_the_node() -> None:
    """The provisioner makes the volume for the selected node."""
    storage = Storage()
    storage.claim("c", 1, "made")
    made = storage.tried("c")
    reserved, left = storage.reserve(made)
    selected = {"volume.kubernetes.io/selected-node": made.node}
    assert reserved.assumed[0].object.metadata.annotations == selected
    assert left.writes[0].patch == {"metadata": {"annotations": selected}}


def test_a_pod_without_its_claim_waits_for_it() -> None:
    """The message names the claim."""
    made = Storage().tried("c")
    assert 'persistentvolumeclaim "c" not found' in made.message
