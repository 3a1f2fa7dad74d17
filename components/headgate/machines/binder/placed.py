"""A pod and its node, as calls are about them: `pod_bindings`, `extender_bindings`, `pod_writes`."""

import msgspec

from headgate.events.ids import PodKey, Uid


class Placed(msgspec.Struct, frozen=True):
    """A pod and the node that was chosen for it: the subject of a call."""

    pod: PodKey
    uid: Uid
    node: str
