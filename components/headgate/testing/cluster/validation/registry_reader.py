"""
What the rules may read besides the object that they check: other stored objects, and the time.

The registry calls the rules and passes itself as this protocol, so rules depend on no write path.
"""

from collections.abc import Callable
from typing import Protocol

from headgate.testing.cluster.kinds import Kind
from headgate.testing.cluster.storage.store import ObjectVersion, Store


class RegistryReader(Protocol):
    """What rules use of `headgate.testing.cluster.storage.registry.Registry`."""

    @property
    def store(self) -> Store:
        """The stored objects."""

    @property
    def clock(self) -> Callable[[], int]:
        """The time of the cluster, in unix milliseconds."""

    def find(self, kind: Kind, namespace: str, name: str) -> ObjectVersion | None:
        """The stored version of an object, if it exists."""
