"""
The log of a container: what a simulated container has done, for no program runs in it.

One line when it starts, with its command, and one when it ends, with its exit code. Selection of the container and its
refusals are those of the API server (k8s.io/kubernetes/pkg/registry/core/pod/strategy.go, `LogLocation`) and of the
kubelet. `follow` returns what there is.
"""

from collections.abc import Mapping
from typing import Any, Final

from headgate.core.kubernetes.numbers import decimal
from headgate.testing.cluster import errors
from headgate.testing.cluster.storage.store import ObjectVersion

JsonObject = dict[str, Any]

_GROUPS: Final = ("initContainers", "containers", "ephemeralContainers")


def container_log(pod: ObjectVersion, query: Mapping[str, str]) -> str:
    """The log of one container of a pod. Raises ApiStatusError 400: which container, not scheduled, not started."""
    spec, status = pod.obj["spec"], pod.obj.get("status", {})
    container = _container(pod, query.get("container", ""))
    if not spec.get("nodeName"):
        raise errors.bad_request(f"pod {pod.key[1]} does not have a host assigned")
    name = container["name"]
    found = next((each for each in status.get("containerStatuses") or () if each["name"] == name), None)
    state: JsonObject = (found or {}).get("state") or {}
    ended, running = state.get("terminated"), state.get("running")
    if ended is None and running is None:
        why = (state.get("waiting") or {}).get("reason", "ContainerCreating")
        raise errors.bad_request(f'container "{name}" in pod "{pod.key[1]}" is waiting to start: {why}')
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    program = " ".join(" ".join(words).split()) or f"the entrypoint of {container.get('image', 'its image')}"
    began = (ended or running or {}).get("startedAt")
    lines = [f"{began} simulated container {name} started: {program}"]
    if ended is not None:
        lines.append(f"{ended.get('finishedAt')} simulated container {name} ended with exit code {ended['exitCode']}")
    tail = decimal(query.get("tailLines"))
    if tail is not None and tail >= 0:
        lines = lines[len(lines) - min(len(lines), tail) :]
    return "".join(f"{line}\n" for line in lines)


def _container(pod: ObjectVersion, name: str) -> JsonObject:
    spec = pod.obj["spec"]
    known: list[JsonObject] = [each for group in _GROUPS for each in spec.get(group) or ()]
    main: list[JsonObject] = spec.get("containers") or []
    if name:
        chosen = next((each for each in known if each["name"] == name), None)
        if chosen is None:
            raise errors.bad_request(f"container {name} is not valid for pod {pod.key[1]}")
        return chosen
    if len(main) != 1:
        names = " ".join(each["name"] for each in main)
        raise errors.bad_request(f"a container name must be specified for pod {pod.key[1]}, choose one of: [{names}]")
    return main[0]
