"""What objects have in common as far as placement reads it, and how a manifest is decoded."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from headgate.events.objects import ApiBranch

Quantities = Mapping[str, str | int | float]


class Owner(ApiBranch, frozen=True):
    """`metav1.OwnerReference`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class MetadataObject(ApiBranch, frozen=True):
    """`metav1.ObjectMeta`. `namespace` is empty for objects of the cluster."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[Owner, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone of an object of the cluster."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


Of = TypeVar("Of")


def read(manifest: Mapping[str, Any], kind: type[Of]) -> Of:
    """
    A manifest (JSON as a dict) as a Struct of this package. Fields that placement does not read are passed over.

    Raises msgspec.ValidationError, which names the field, for a value of another type than the API's.
    """
    return msgspec.convert(manifest, kind, strict=False)
