"""
The bridge's work for families: marks parents; creates, deletes, activates and deactivates variants.

A workload of a ClusterQueue that tries every flavor at once (`headgate.core.workload.concurrent_admission`) is marked
as a parent with a label. It gets a variant per flavor: a copy of it that may use that flavor only, owned by it. The log
stores a trimmed workload, so the copy is made from the parent in the API server (one GET per family).

Level-triggered on the state: a workload is examined when its family or its ClusterQueue changes. Names follow from the
parent, so that a repeated POST is answered 409 and does no harm. A call is not repeated until the family has changed.
"""

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from headgate.core.api.names import ALLOWED_FLAVORS
from headgate.core.api.owner_references import controlling
from headgate.core.config import feature_gates as gates
from headgate.core.config.feature_gates import enabled
from headgate.core.engine.backlog import Backlog
from headgate.core.machine.api_results import is_success
from headgate.core.machine.contract import MERGE_PATCH, Call, Command, Completed
from headgate.core.state.attribution import about
from headgate.core.state.tables import PENDING, Stage, State, Workload
from headgate.core.status.server_side_apply import API_VERSION
from headgate.core.status.workload_status import workload_path
from headgate.core.workload import concurrent_admission, variants
from headgate.events import effects, facts
from headgate.events.families import NamesWorkload
from headgate.events.ids import Uid, WorkloadKey, split_key
from headgate.events.registry import Event

CALLS_MAX: Final = 256
"""The maximum number of concurrent calls about families."""

Json = dict[str, Any]


class _RawMeta(msgspec.Struct, frozen=True):
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _RawWorkload(msgspec.Struct, frozen=True):
    metadata: _RawMeta = _RawMeta()
    spec: Json = {}


def variant_of(parent: Workload, raw: bytes, variant: WorkloadKey, flavor: str) -> Json | None:
    """
    A variant of a parent for a flavor, ready to be posted. `raw` is the parent's JSON; None when it is of another.

    Raises msgspec.MsgspecError.
    """
    whole = msgspec.json.decode(raw, type=_RawWorkload)
    if whole.metadata.uid != parent.uid:
        return None
    namespace, name = split_key(variant)
    labels = {key: value for key, value in (whole.metadata.labels or {}).items() if key != variants.PARENT}
    gates = [gate for gate in whole.spec.get("preemptionGates") or () if gate.get("name") != variants.GATE]
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": {**(whole.metadata.annotations or {}), ALLOWED_FLAVORS: flavor},
            "ownerReferences": [controlling(API_VERSION, "Workload", split_key(parent.key)[1], parent.uid)],
        },
        "spec": {**whole.spec, "preemptionGates": [*gates, {"name": variants.GATE}]},
    }


def _changed(
    parent: Workload,
    variant: WorkloadKey,
    uid: Uid,
    flavor: str,
    change: Literal["created", "deleted", "activated", "deactivated"],
    why: str = "",
) -> effects.VariantChanged:
    return effects.VariantChanged(
        variant=variant, uid=uid, parent=parent.key, parent_uid=parent.uid, flavor=flavor, change=change, why=why
    )


def _uid_in(body: bytes) -> Uid:
    """The uid of an object that was created; "" when the answer does not contain it."""
    try:
        return Uid(msgspec.json.decode(body, type=_RawWorkload).metadata.uid)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Uid("")


class VariantMaker:
    """The families to examine, and the calls about them. The bridge's machine passes on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._dirty: Backlog[WorkloadKey] = Backlog(state.workloads)
        self._calls: dict[str, WorkloadKey] = {}
        self._raw: dict[WorkloadKey, bytes] = {}
        """Parents as read from the API server, until their variants are created. At most one per family."""
        self._asked: dict[WorkloadKey, dict[str, Call]] = {}
        """By parent: the calls since its family last changed."""
        self._parent_of: dict[WorkloadKey, WorkloadKey] = {}
        """By variant: data that its deletion event does not contain."""
        self._changing: dict[str, effects.VariantChanged] = {}
        """The events to append when a call succeeds."""
        self.effects: list[Event] = []
        for key, workload in state.workloads.items():
            self._remember(key, workload)

    def on_event(
        self, event: facts.ClusterQueueObserved | facts.LocalQueueObserved | facts.ConfigurationObserved | NamesWorkload
    ) -> None:
        """Record the families that an event concerns."""
        match event:
            case facts.ClusterQueueObserved() | facts.LocalQueueObserved() | facts.ConfigurationObserved():
                self._look_at(self._state.workloads)
            case facts.WorkloadDeleted():
                self._changed(self._parent_of.pop(event.workload, event.workload))
                self._raw.pop(event.workload, None)
            case facts.WorkloadObserved():
                workload = self._state.workloads.get(event.workload)
                if workload is not None:
                    self._remember(event.workload, workload)
                self._changed(self._parent_of.get(event.workload, event.workload))
            case _:
                if event.workload:
                    self._look_at((self._parent_of.get(event.workload, event.workload),))

    def _remember(self, key: WorkloadKey, workload: Workload) -> None:
        parent = variants.parent_key(workload)
        if parent is not None:
            self._parent_of[key] = parent

    def _changed(self, parent: WorkloadKey) -> None:
        self._asked.pop(parent, None)
        self._look_at((parent,))

    def _look_at(self, keys: Iterable[WorkloadKey]) -> None:
        self._dirty.add_all(keys)

    def settle(self, calls: list[Command]) -> None:
        """The calls that are due. The outcomes of earlier ones are in `effects`, which the caller takes."""
        if not enabled(self._state.configuration, gates.CONCURRENT_ADMISSION):
            self._dirty.clear()
        while self._dirty and len(self._calls) < CALLS_MAX:
            key = self._dirty.take()
            workload = self._state.workloads.get(key)
            with about("Workload", key):
                if (
                    workload is not None
                    and not workload.deleting
                    and concurrent_admission.never_queues(self._state, workload)
                ):
                    self._look(workload, calls)

    def _look(self, parent: Workload, calls: list[Command]) -> None:
        if not variants.is_parent(parent):
            if parent.stage in PENDING:
                self._patch(parent, parent, {"metadata": {"labels": {variants.PARENT: "true"}}}, calls)
            return
        family = concurrent_admission.family_of(self._state, parent)
        if family is None or parent.stage is Stage.FINISHED:
            return
        missing = family.missing()
        if missing:
            self._make(parent, missing, calls)
        for stale in family.stale:
            delete = Call(id="", method="DELETE", path=workload_path(stale.key))
            told = _changed(parent, stale.key, stale.uid, variants.flavor_of(stale), "deleted")
            self._ask(parent, f"delete/{stale.key}", delete, calls, told)
        for member, active in concurrent_admission.switches(family):
            told = _changed(
                parent,
                member.key,
                member.uid,
                variants.flavor_of(member),
                "activated" if active else "deactivated",
                concurrent_admission.switch_reason(family, member, active=active),
            )
            self._patch(parent, member, {"spec": {"active": active}}, calls, told)

    def _make(self, parent: Workload, missing: tuple[str, ...], calls: list[Command]) -> None:
        raw = self._raw.pop(parent.key, None)
        if raw is None:
            self._ask(parent, f"family/{parent.key}", Call(id="", method="GET", path=workload_path(parent.key)), calls)
            return
        path = f"/apis/{API_VERSION}/namespaces/{split_key(parent.key)[0]}/workloads"
        for flavor in missing:
            key = variants.variant_key(self._state.configuration, parent, flavor)
            body = variant_of(parent, raw, key, flavor)
            if body is not None:
                made = Call(id="", method="POST", path=path, body=body)
                told = _changed(parent, key, Uid(""), flavor, "created")
                self._ask(parent, f"variant/{parent.key}/{flavor}", made, calls, told)

    def _patch(
        self,
        parent: Workload,
        workload: Workload,
        change: Json,
        calls: list[Command],
        told: effects.VariantChanged | None = None,
    ) -> None:
        metadata = {"uid": workload.uid, **change.get("metadata", {})}
        body = {**change, "metadata": metadata}
        call = Call(id="", method="PATCH", path=workload_path(workload.key), body=body, content_type=MERGE_PATCH)
        self._ask(parent, f"family/{workload.key}/patch", call, calls, told)

    def _ask(
        self,
        parent: Workload,
        call_id: str,
        call: Call,
        calls: list[Command],
        told: effects.VariantChanged | None = None,
    ) -> None:
        if call_id in self._calls or self._asked.get(parent.key, {}).get(call_id) == call:
            return
        self._asked.setdefault(parent.key, {})[call_id] = call
        self._calls[call_id] = parent.key
        if told is not None:
            self._changing[call_id] = told
        calls.append(msgspec.structs.replace(call, id=call_id, lane=parent.key))

    def on_completed(self, completed: Completed) -> None:
        """A call has ended."""
        parent = self._calls.pop(completed.call_id, None)
        told = self._changing.pop(completed.call_id, None)
        if parent is None:
            return
        if told is not None and is_success(completed):
            self.effects.append(told if told.uid else msgspec.structs.replace(told, uid=_uid_in(completed.body)))
        if completed.call_id == f"family/{parent}" and is_success(completed):
            self._raw[parent] = completed.body
            self._look_at((parent,))
