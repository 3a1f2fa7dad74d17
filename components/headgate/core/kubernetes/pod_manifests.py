"""What the manifest of a pod shows: a decoded one, or its JSON, of which only the named fields are read."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

SCHEDULER_ERROR: Final = "SchedulerError"
"""The reason of the condition PodScheduled of a pod that an error keeps from its node."""


def shown_node(pod: Mapping[str, Any]) -> str:
    """The node that a pod is bound to, "" for none."""
    node: str = pod.get("spec", {}).get("nodeName", "")
    return node


def shown_nomination(pod: Mapping[str, Any]) -> str:
    """The node that a pod is nominated to, "" for none."""
    node: str = pod.get("status", {}).get("nominatedNodeName", "")
    return node


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    node_name: str = ""
    scheduler_name: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel", gc=False):
    nominated_node_name: str = ""


class ShownPod(msgspec.Struct, frozen=True, gc=False):
    """The fields of a pod by which what is decided about it is compared with its object."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.metadata.uid

    @property
    def node(self) -> str:
        """The node that it is bound to, "" for none."""
        return self.spec.node_name

    @property
    def nomination(self) -> str:
        """The node that it is nominated to, "" for none."""
        return self.status.nominated_node_name

    @property
    def scheduler(self) -> str:
        """The scheduler that it names."""
        return self.spec.scheduler_name


_DECODER: Final = msgspec.json.Decoder(ShownPod)


def shown_pod(manifest: bytes | msgspec.Raw) -> ShownPod:
    """What the JSON of a pod shows. Raises msgspec.MsgspecError."""
    return _DECODER.decode(manifest)
