"""
What extenders are asked: the bodies of their requests, in the JSON of Go's types `extender/v1`.

A pod is sent with what placement reads of it (`placement.objects`): its metadata, and the parts of its spec and status
that the kube-scheduler's plugins decide by; so is a Node object, to an extender without a cache of nodes of its own.
Environment, commands, probes and the like of containers are not known here, and are left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from headgate.core.kubernetes.effective_requests import RequestingSpec
from headgate.core.placement.configuration.types import Extender
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.pods import PodInfo
from headgate.events.commit import digest
from headgate.events.extenders import ExtenderVerb
from headgate.events.ids import PodKey, Uid, split_key

Body = dict[str, Any]


class ExtenderAsk(msgspec.Struct, frozen=True):
    """
    A call of an extender that has to be made.

    `extender` is its `urlPrefix`, `path` what is configured for the verb. `request` identifies the call: extender,
    verb, pod and nodes (with their victims), not what they are like.
    """

    extender: str
    verb: ExtenderVerb
    path: str
    request: str
    body: Body


class NodeVictims(msgspec.Struct, frozen=True):
    """The pods that have to go from a node, and how many of them a disruption budget does not allow to go."""

    pods: tuple[PodInfo, ...]
    violations: int


def ordered(extenders: Iterable[Extender]) -> tuple[Extender, ...]:
    """Extenders in the order in which they are called: those whose errors are ignored come last."""
    return tuple(sorted(extenders, key=lambda each: each.ignorable))


# --- who is called for what ------------------------------------------------------------------------------------------


def is_interested(extender: Extender, spec: RequestingSpec) -> bool:
    """Whether an extender is to be called for a pod: it manages all pods, or a resource that the pod names."""
    managed = {each.name for each in extender.managed_resources}
    if not managed:
        return True
    return any(
        not managed.isdisjoint(container.resources.requests) or not managed.isdisjoint(container.resources.limits)
        for container in (*spec.containers, *spec.init_containers)
    )


def binders(extenders: Iterable[Extender], spec: RequestingSpec) -> tuple[Extender, ...]:
    """The extenders that bind a pod, in order: when one that is ignorable fails, the next one does."""
    return tuple(each for each in ordered(extenders) if each.bind_verb and is_interested(each, spec))


def path_of(extender: Extender, verb: ExtenderVerb) -> str:
    """What is configured for a verb; "" when the extender is not to be called for it."""
    match verb:
        case "filter":
            return extender.filter_verb
        case "prioritize":
            return extender.prioritize_verb
        case "preempt":
            return extender.preempt_verb
        case "bind":
            return extender.bind_verb


def request_of(extender: Extender, verb: ExtenderVerb, uid: str, about: Any) -> str:
    """The digest by which the answer to a call is found again."""
    return digest(msgspec.json.encode((extender.url(path_of(extender, verb)), verb, uid, about)))


# --- bodies ----------------------------------------------------------------------------------------------------------


def extender_args(extender: Extender, pod: PodInfo, nodes: Sequence[NodeObject]) -> Body:
    """`ExtenderArgs`, of filter and prioritize."""
    names: list[str] | None = None
    listed: Body | None = None
    if extender.node_cache_capable:
        names = [node.name for node in nodes]
    else:
        listed = {"metadata": {}, "items": [api_json(node) for node in nodes]}
    return {"Pod": api_json(pod.object), "Nodes": listed, "NodeNames": names}


def preemption_args(extender: Extender, pod: PodInfo, victims: Mapping[str, NodeVictims]) -> Body:
    """`ExtenderPreemptionArgs`."""
    whole: Body | None = None
    meta: Body | None = None
    if extender.node_cache_capable:
        meta = {
            node: {"Pods": [{"UID": each.uid} for each in found.pods], "NumPDBViolations": found.violations}
            for node, found in victims.items()
        }
    else:
        whole = {
            node: {"Pods": [api_json(each.object) for each in found.pods], "NumPDBViolations": found.violations}
            for node, found in victims.items()
        }
    return {"Pod": api_json(pod.object), "NodeNameToVictims": whole, "NodeNameToMetaVictims": meta}


def bind_ask(extender: Extender, pod: PodKey, uid: Uid, node: str) -> ExtenderAsk:
    """The call that binds a pod (`ExtenderBindingArgs`)."""
    namespace, name = split_key(pod)
    body = {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node}
    return ExtenderAsk(
        extender=extender.url_prefix,
        verb="bind",
        path=extender.bind_verb,
        request=request_of(extender, "bind", uid, node),
        body=body,
    )


def api_json(value: Any) -> Any:
    """
    An object of `placement.objects` as the API server would write it, as far as it is known.

    What is empty is left out, as Go does; a default that is not empty (`status.phase`) is written.
    """
    match value:
        case msgspec.Struct():
            written: Body = {}
            for field in msgspec.structs.fields(value):
                part = getattr(value, field.name)
                # Zero of an optional field says something; zero that is the default does not.
                if part or (part is not None and not isinstance(part, tuple | dict) and part != field.default):
                    written[field.encode_name] = api_json(part)
            return written
        case dict():
            return {key: api_json(each) for key, each in value.items()}
        case tuple():
            return [api_json(each) for each in value]
        case _:
            return value
