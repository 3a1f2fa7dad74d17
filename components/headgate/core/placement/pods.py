"""
A pod as placement reads it, and its shape.

The shape is everything of a pod that placement reads and that equal pods have in common: namespace, labels, controller
and spec. It is interned: pods of one template share one `PodShape`, with what is computed of it, and what plugins have
found out for one of them holds for all. `PodInfo` adds what is of each pod: its name, node, nomination, status.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headgate.core.kubernetes.conditions import parse_rfc3339
from headgate.core.placement.objects.metadata import MetadataObject, Owner, read
from headgate.core.placement.objects.pods import ENDED, PodObject, PodSpecObject, PodStatusObject
from headgate.core.placement.requests import Amounts, PodRequests, problem_of, requests_of, scored_requests
from headgate.events.ids import UnixMs

SHAPES_MAX: Final = 20_000
"""Shapes that are kept. Beyond it they are forgotten: equal pods then share less, which costs time and nothing else."""

HostPort = tuple[str, str, int]
"""Host IP (0.0.0.0 for all), protocol, port."""


class PodShape:
    """What equal pods have in common. Compared by identity; `number` is unique."""

    __slots__ = (
        "controller",
        "host_ports",
        "labels",
        "namespace",
        "number",
        "priority",
        "problem",
        "requests",
        "scored_requests",
        "spec",
    )

    def __init__(
        self, number: int, namespace: str, labels: Mapping[str, str], owner: Owner | None, spec: PodSpecObject
    ) -> None:
        self.number = number
        self.namespace = namespace
        self.labels = labels
        self.controller = owner
        """The owner that controls the pod."""
        self.spec = spec
        """Without the node's name."""
        self.priority = spec.priority or 0
        self.requests: PodRequests = requests_of(spec, PodStatusObject())
        self.problem = problem_of(spec)
        """Why no pod of this shape may be placed; "" for no reason."""
        self.scored_requests: Amounts = scored_requests(spec)
        self.host_ports: tuple[HostPort, ...] = _host_ports(spec)


class PodInfo(msgspec.Struct, frozen=True, eq=False):
    """A pod. `key` is `namespace/name`; `requests` are those of its shape, except during a resize."""

    key: str
    uid: str
    name: str
    namespace: str
    shape: PodShape
    requests: PodRequests
    priority: int
    node_name: str
    nominated_node_name: str
    is_terminating: bool
    """It has a deletion timestamp."""
    is_over: bool
    """It has succeeded or failed, and takes up nothing."""
    started_ms: UnixMs | None
    object: PodObject

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels."""
        return self.shape.labels

    @property
    def spec(self) -> PodSpecObject:
        """The spec, without the node's name."""
        return self.shape.spec


class Shapes:
    """Reads pods, and interns their shapes."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self._shapes: dict[bytes, PodShape] = {}
        self._made = 0

    def read(self, manifest: Mapping[str, Any]) -> PodInfo:
        """A pod of its manifest. Raises msgspec.ValidationError or QuantityError, which name what is wrong."""
        return self.pod_of(read(manifest, PodObject))

    def pod_of(self, pod: PodObject) -> PodInfo:
        """A pod as placement reads it. Raises QuantityError."""
        metadata, status = pod.metadata, pod.status
        shape = self._shape_of(metadata, pod.spec)
        is_resizing = bool(status.container_statuses or status.init_container_statuses or status.resources)
        return PodInfo(
            key=metadata.key,
            uid=metadata.uid,
            name=metadata.name,
            namespace=metadata.namespace,
            shape=shape,
            requests=requests_of(pod.spec, status) if is_resizing else shape.requests,
            priority=shape.priority,
            node_name=pod.spec.node_name,
            nominated_node_name=status.nominated_node_name,
            is_terminating=metadata.deletion_timestamp is not None,
            is_over=status.phase in ENDED,
            started_ms=parse_rfc3339(status.start_time) if status.start_time else None,
            object=pod,
        )

    def _shape_of(self, metadata: MetadataObject, spec: PodSpecObject) -> PodShape:
        if spec.node_name:
            spec = msgspec.structs.replace(spec, node_name="")
        owner = next((each for each in metadata.owner_references if each.controller), None)
        encoded = self._encoder.encode((metadata.namespace, metadata.labels, owner, spec))
        known = self._shapes.get(encoded)
        if known is None:
            if len(self._shapes) >= SHAPES_MAX:
                self._shapes.clear()
            self._made += 1
            known = self._shapes[encoded] = PodShape(self._made, metadata.namespace, metadata.labels, owner, spec)
        return known


def _host_ports(spec: PodSpecObject) -> tuple[HostPort, ...]:
    """
    The ports of the node that a pod occupies: of containers, and of init containers that keep running.

    Source: pkg/scheduler/util GetHostPorts.
    """
    sidecars = (each for each in spec.init_containers if each.restart_policy == "Always")
    return tuple(
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)  # noqa: S104 (all addresses of the node)
        for container in (*spec.containers, *sidecars)
        for port in container.ports
        if port.host_port > 0
    )
