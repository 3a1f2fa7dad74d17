"""An Event to be created, and the Events about what is decided about pods, in the kube-scheduler's wording."""

from collections.abc import Iterator
from typing import Literal, NamedTuple, assert_never

from headgate.core.fold.placement import nomination
from headgate.core.state.manifests import pod_of
from headgate.core.state.tables import State
from headgate.core.status.server_side_apply import API_VERSION
from headgate.events import decisions, effects
from headgate.events.commit import Position
from headgate.events.ids import PodKey, UnixMs


class EventNote(NamedTuple):
    """One Event to create."""

    kind: str
    key: str
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    note: str
    at: Position
    at_ms: UnixMs
    due_ms: UnixMs
    nth: int = 0
    """The index among the Events about the same position."""
    api_version: str = API_VERSION
    """The API group and version of `kind`."""
    action: str = ""
    """What was done, if it is called otherwise than by the reason."""
    controller: str = ""
    """The scheduler of whose profile it is; "" for Headgate as a whole."""
    related: tuple[PodKey, str] | None = None
    """Another pod that it is about, with its uid."""


OfPod = (
    decisions.PodUnschedulable
    | decisions.PodWithdrawn
    | effects.PodBound
    | effects.PodBindRejected
    | effects.PodPreempted
)
"""What the kube-scheduler writes an Event about."""


def about_placement(state: State, event: OfPod, at: Position, at_ms: UnixMs) -> Iterator[EventNote]:
    """
    The Event about what is decided about a pod, or was done.

    There is none for a pod that is gone, and none where the scheduler does not place pods.
    """
    pod = pod_of(state, event.pod)
    if pod is None or pod.uid != event.uid:
        return
    told = EventNote("Pod", event.pod, event.uid, "Normal", "", "", at, at_ms, at_ms, api_version="v1")
    told = told._replace(controller=pod.scheduler)
    match event:
        case effects.PodBound():
            note = f"Successfully assigned {event.pod} to {event.node}"
            yield told._replace(reason="Scheduled", action="Binding", note=note)
        case decisions.PodUnschedulable() | decisions.PodWithdrawn() | effects.PodBindRejected():
            yield told._replace(type="Warning", reason="FailedScheduling", action="Scheduling", note=event.message)
        case effects.PodPreempted():
            by = pod_of(state, event.by)
            if by is not None:
                note = f"Preempted by pod {by.uid} on node {pod.node or nomination(state, event.by)}"
                told = told._replace(controller=by.scheduler, related=(event.by, by.uid))
                yield told._replace(reason="Preempted", action="Preempting", note=note)
        case _:
            assert_never(event)
