"""
The facts of the cluster that admission depends on, kept by informers.

Labels of namespaces, and the LocalQueues and WorkloadPriorityClasses called `default`. All of them are small and few.
`problem` is set until all lists were read.
"""

from typing import Any, Final

import anyio
import msgspec

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.messages import Bookmark, Changes, ChangeType, ListPage, Message, WatchResumed
from headgate.adapters.kubernetes.reflector import Reflector, ReflectorSettings
from headgate.adapters.kubernetes.resources import (
    LOCAL_QUEUES,
    NAMESPACES,
    WORKLOAD_PRIORITY_CLASSES,
    Resource,
)
from headgate.adapters.kubernetes.retry import Repeats
from headgate.adapters.kubernetes.transport import NO_QUERY
from headgate.core.admission.review import DEFAULT_NAME

Json = dict[str, Any]
Key = tuple[str, str]

WATCHED: Final = (NAMESPACES, LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES)
_ONLY_DEFAULT: Final = {"fieldSelector": f"metadata.name={DEFAULT_NAME}"}
MESSAGES_MAX: Final = 16


def _trimmed(found: Json) -> Json:
    """Without what no rule reads: managed fields and status are most of an object."""
    metadata = {key: value for key, value in found.get("metadata", {}).items() if key != "managedFields"}
    return {**{key: value for key, value in found.items() if key != "status"}, "metadata": metadata}


class Informer:
    """The objects of the watched resources, by resource, namespace and name."""

    def __init__(self, client: KubeClient, watched: tuple[Resource, ...] = WATCHED) -> None:
        self._client = client
        self._watched = watched
        self._objects: dict[str, dict[Key, Json]] = {each.plural: {} for each in watched}
        self._listed: dict[str, dict[Key, Json]] = {}
        self._complete: set[str] = set()

    @property
    def problem(self) -> str | None:
        """Which lists have not been read yet; None when all have been."""
        missing = [each.plural for each in self._watched if each.plural not in self._complete]
        return f"waiting for the list of {', '.join(missing)}" if missing else None

    def get(self, plural: str, namespace: str, name: str) -> Json | None:
        """An object; None when there is none."""
        return self._objects[plural].get((namespace, name))

    async def run(self) -> None:
        """Follow the resources until cancelled."""
        send, receive = anyio.create_memory_object_stream[Message](MESSAGES_MAX)
        repeats = Repeats()
        async with send, receive, anyio.create_task_group() as tasks:
            for resource in self._watched:
                selectors = NO_QUERY if resource is NAMESPACES else _ONLY_DEFAULT
                settings = ReflectorSettings()
                reflector = Reflector(self._client, resource, selectors=selectors, settings=settings, repeats=repeats)
                tasks.start_soon(reflector.run, send)
            async for message in receive:
                self.apply(message)

    def apply(self, message: Message) -> None:
        """Take in one message of a reflector."""
        plural = message.resource.plural
        match message:
            case ListPage(items=items, page=page, complete=complete):
                if page == 0:
                    self._listed[plural] = {}
                for raw in items:
                    found = _trimmed(msgspec.json.decode(raw))
                    self._listed[plural][_key(found)] = found
                if complete:
                    self._objects[plural] = self._listed.pop(plural)
                    self._complete.add(plural)
            case Changes(changes=changes):
                for change in changes:
                    found = _trimmed(msgspec.json.decode(change.object))
                    if change.type is ChangeType.DELETED:
                        self._objects[plural].pop(_key(found), None)
                    else:
                        self._objects[plural][_key(found)] = found
            case WatchResumed() | Bookmark():
                pass


def _key(found: Json) -> Key:
    metadata = found["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
