"""
Writes to objects that placement reads: what plugins need to be written, for a pod that is placed or to help one.

A write was decided from the object as it is in the log. The kube-scheduler sends the whole object with the resource
version that it has seen, so that a change by somebody else refuses it. The log has no resource versions; therefore the
object is read first. If it has what is to be written already, nothing is. If what placement reads of it is not what the
log has, the write is refused as a conflict. Otherwise it is patched at the version that was read, by a strategic merge
patch: what others have in a list of the object, such as its finalizers, stays. Fields of `status` are written to the
subresource, after the others.

Called by `pod_writes` and `post_filter_writes`, which know whose writes these are and what a refusal means.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from headgate.core.kubernetes.merge_patch import is_applied
from headgate.core.machine.api_results import CONFLICT, INVALID, Refusal, is_success, refusal
from headgate.core.machine.contract import STRATEGIC_PATCH, Call, Completed
from headgate.core.placement.objects.kinds import KINDS, PlacementKind
from headgate.core.state.manifests import is_equal, object_of, raw_object
from headgate.core.state.tables import State
from headgate.events.decisions import ObjectPatch
from headgate.events.ids import split_key

_OF_KIND: Final[Mapping[str, PlacementKind]] = {each.kind: each for each in KINDS.values()}

Json = dict[str, Any]


class ObjectWriting:
    """How far one write has come. `call` and `answered` follow each other until it `is_done` or refused."""

    def __init__(self, write: ObjectPatch) -> None:
        self.write: Final = write
        self.is_done = False
        self._kind = _OF_KIND.get(write.kind)
        self._patches: list[tuple[str, Json]] = []
        """What is left to be written, by subresource."""
        self._version = ""
        """The resource version at which the first of them is to be applied."""

    def why_refused(self) -> Refusal | None:
        """Why it cannot even be begun: this version does not know the kind of the object."""
        if self._kind is not None:
            return None
        message = "this version of Headgate writes no object of this kind"
        return Refusal(code=INVALID, reason="Invalid", message=f"{_name_of(self.write)}: {message}")

    def is_needed(self, state: State) -> bool:
        """Whether it is under way, or the log does not have the object so yet."""
        assert self._kind is not None, f"a {self.write.kind} cannot be written"
        if self.is_done:
            return False
        return bool(self._patches) or not is_applied(
            object_of(state, self._kind.plural, self.write.name), self.write.patch
        )

    def call(self, call_id: str) -> Call:
        """The next call: the object is read, or patched."""
        kind = self._kind
        assert kind is not None, f"a {self.write.kind} cannot be written"
        call = Call(
            id=call_id, method="GET", path=_path(kind, self.write.name), lane=f"{kind.plural}/{self.write.name}"
        )
        if not self._patches:
            return call
        subresource, patch = self._patches[0]
        metadata = {**patch.get("metadata", {}), "resourceVersion": self._version}
        return msgspec.structs.replace(
            call,
            method="PATCH",
            path=call.path + subresource,
            body={**patch, "metadata": metadata},
            content_type=STRATEGIC_PATCH,
        )

    def answered(self, state: State, completed: Completed) -> Refusal | None:
        """What follows from an answer; why the write is refused, with the name of the object."""
        why = self._follow(state, completed)
        return why and msgspec.structs.replace(why, message=f"{_name_of(self.write)}: {why.message}")

    def _follow(self, state: State, completed: Completed) -> Refusal | None:
        if not is_success(completed):
            return refusal(completed)
        live: Json = msgspec.json.decode(completed.body)
        kind = self._kind
        assert kind is not None, f"a {self.write.kind} cannot be written"
        if self._patches:
            del self._patches[0]
        elif not is_applied(live, self.write.patch):
            try:
                shown, known = kind.shown(completed.body), raw_object(state, kind.plural, self.write.name)
            except msgspec.MsgspecError as error:
                return Refusal(code=INVALID, reason="Invalid", message=str(error))
            if shown is None or not is_equal(shown, known):
                return Refusal(code=CONFLICT, reason="Conflict", message="the object has been modified")
            self._patches = list(_parts(self.write.patch))
        self._version = live["metadata"]["resourceVersion"]
        self.is_done = not self._patches
        return None


def _parts(patch: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    """
    The patch of the object itself, and that of its status. A uid names the object in both.

    Identity alone is nothing to be written.
    """
    own = {name: value for name, value in patch.items() if name != "status"}
    uid = patch.get("metadata", {}).get("uid")
    identity = {"metadata": {"uid": uid}} if uid else {}
    if own and own != identity:
        yield "", own
    if "status" in patch:
        yield "/status", {**identity, "status": patch["status"]}


def _name_of(write: ObjectPatch) -> str:
    return f"{write.kind} {write.name}"


def _path(kind: PlacementKind, key: str) -> str:
    namespace, name = split_key(key)
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    where = f"/namespaces/{namespace}" if namespace else ""
    return f"{base}{where}/{kind.plural}/{name}"
