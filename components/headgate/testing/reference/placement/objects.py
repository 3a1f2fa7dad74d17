"""
The objects of a scenario as the API server would have them, and the cluster that placement sees of them.

Each write is a whole manifest; patches are JSON merge patches (RFC 7386). Every write reaches the cluster at once.
"""

from typing import Any

import msgspec

from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.kubernetes.merge_patch import merge_patched
from headgate.core.kubernetes.quantities import QuantityError
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.objects.kinds import OTHERS
from headgate.core.placement.objects.metadata import read
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.pods import DISRUPTION_TARGET, PREEMPTED
from headgate.core.plan.reading import PlanInputError
from headgate.events.ids import UnixMs
from headgate.testing.reference.placement.scenario import Json


class ScenarioObjects:
    """The manifests by kind and `namespace/name`, and the cluster."""

    def __init__(self) -> None:
        self.cluster = PlacementCluster()
        self._manifests: dict[tuple[str, str], Json] = {}

    def get(self, kind: str, key: str) -> Json | None:
        """A manifest, or None."""
        return self._manifests.get((kind, key))

    def seen(self, kind: str, key: str) -> Any:
        """What the cluster has of an object, as the queue is told of it; None for none."""
        cluster = self.cluster
        match kind:
            case "Pod":
                return cluster.pods.get(key)
            case "Node":
                info = cluster.node(key)
                return info.node if info is not None else None
            case _:
                return cluster.objects(OTHERS[kind].type).get(key)

    def put(self, manifest: Json) -> None:
        """An object is created or replaced. Raises PlanInputError for one that cannot be read."""
        kind, key = manifest.get("kind", ""), key_of(manifest)
        if kind not in OTHERS and kind not in ("Node", "Pod"):
            raise PlanInputError(f"{kind} {key}: placement does not read this kind: remove it")
        try:
            self._tell(kind, key, manifest)
        except (msgspec.ValidationError, QuantityError) as error:
            raise PlanInputError(f"{kind} {key}: {error}") from error
        self._manifests[kind, key] = manifest

    def _tell(self, kind: str, key: str, manifest: Json) -> None:
        match kind:
            case "Node":
                self.cluster.set_node(read(manifest, NodeObject))
            case "Pod":
                self.cluster.set_pod(self.cluster.shapes.read(manifest))
            case _:
                self.cluster.put(OTHERS[kind].type, key, read(manifest, OTHERS[kind].type))

    def patch(self, kind: str, key: str, patch: Json) -> bool:
        """An object is patched; False if it does not exist."""
        manifest = self.get(kind, key)
        if manifest is None:
            return False
        self.put(merge_patched(manifest, patch))
        return True

    def delete(self, kind: str, key: str) -> bool:
        """An object is gone; False if it was not there."""
        if self._manifests.pop((kind, key), None) is None:
            return False
        match kind:
            case "Node":
                self.cluster.remove_node(key)
            case "Pod":
                self.cluster.remove_pod(key)
            case _:
                self.cluster.put(OTHERS[kind].type, key, None)
        return True

    # --- what happens to pods --------------------------------------------------------------------------------------

    def bind(self, pod: str, node: str, at_ms: UnixMs) -> None:
        """A pod runs on a node from a moment on; its nomination is cleared."""
        status = {"phase": "Running", "startTime": rfc3339(at_ms), "nominatedNodeName": None}
        self.patch("Pod", pod, {"spec": {"nodeName": node}, "status": status})

    def terminate(self, pod: str, at_ms: UnixMs) -> None:
        """A pod has to go for another one, and is to be deleted."""
        manifest = self.get("Pod", pod)
        if manifest is None:
            return
        conditions = [
            each for each in manifest.get("status", {}).get("conditions", []) if each["type"] != DISRUPTION_TARGET
        ]
        conditions.append({"type": DISRUPTION_TARGET, "status": "True", "reason": PREEMPTED})
        self.patch(
            "Pod", pod, {"metadata": {"deletionTimestamp": rfc3339(at_ms)}, "status": {"conditions": conditions}}
        )

    def nominate(self, pod: str, node: str) -> None:
        """The nominated node of a pod is written into its status, or ("") removed."""
        self.patch("Pod", pod, {"status": {"nominatedNodeName": node or None}})


def key_of(manifest: Json) -> str:
    """`namespace/name` of a manifest, or its name."""
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace", "")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
