"""
Objects of all kinds: fitting ones, ones that are bent here and there, and ones that are wholly drawn from their schema.

`Objects.draw` gives a manifest of a kind. Most of them fit together (`fitting`); in the others parts are left out,
added or replaced by what `values` draws.
"""

import copy
import random
from typing import Any, Final

from headgate.adapters.kubernetes.crds.schema import SchemaNode
from headgate.testing.cluster import BY_KIND, Kind
from headgate.testing.fuzz.fitting import Fitting, Manifest
from headgate.testing.fuzz.values import HOSTILE_STRINGS, WRONG, Values

_METADATA: Final = (
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "namespace",
    "uid",
    "generation",
    "creationTimestamp",
)


class Objects:
    """Draws manifests. `oddity` is how likely an object is anything but fitting."""

    def __init__(self, rng: random.Random, *, oddity: float) -> None:
        self.rng = rng
        self.fitting = Fitting(rng)
        self._oddity = oddity
        self._mild = Values(rng, edge=0.15, hostile=0.002)
        self._wild = Values(rng, edge=0.3, hostile=0.05)

    def draw(self, kind: str, name: str = "") -> Manifest:
        """A manifest of a kind of `KINDS`."""
        drawn = self.rng.random()
        manifest = self.fitting.draw(kind, name)
        if drawn < self._oddity / 8:
            return self._whole(manifest)
        if drawn < self._oddity:
            self.bend(manifest)
        return manifest

    def bend(self, manifest: Manifest) -> None:
        """Leave out, add or replace a few parts of a manifest, as its schema suggests."""
        kind = kind_of(manifest)
        values = self.rng.choice((self._mild, self._mild, self._wild))
        for _ in range(self.rng.choice((1, 1, 1, 2, 3, 8))):
            tops = [name for name in kind.schema.fields if name not in ("status",) or self.rng.random() < 0.1]
            if not tops or self.rng.random() < 0.15:
                self._bend_metadata(manifest)
                continue
            top = self.rng.choice(tops)
            manifest[top] = self._bent(kind.schema.fields[top], manifest.get(top), top, values)

    def part(self, kind: Kind, top: str, value: Any) -> Any:
        """One field at the top of an object, changed somewhere inside."""
        values = self.rng.choice((self._mild, self._wild))
        return self._bent(kind.schema.fields[top], copy.deepcopy(value), top, values)

    def _bent(self, node: SchemaNode, value: Any, name: str, values: Values) -> Any:
        """Walk down to some place and change it there."""
        rng = self.rng
        if node.type == "object" and node.fields and isinstance(value, dict) and rng.random() < 0.85:
            present = [field for field in node.fields if field in value]
            if present and rng.random() < 0.15:
                del value[rng.choice(present)]
                return value
            field = rng.choice(present if present and rng.random() < 0.6 else list(node.fields))
            value[field] = self._bent(node.fields[field], value.get(field), field, values)
            return value
        if node.type == "list" and node.item is not None and isinstance(value, list) and value and rng.random() < 0.8:
            index = rng.randrange(len(value))
            drawn = rng.random()
            if drawn < 0.1:
                del value[index]
            elif drawn < 0.2:
                value.append(copy.deepcopy(value[index]))
            else:
                value[index] = self._bent(node.item, value[index], name, values)
            return value
        if node.type == "map" and node.item is not None and isinstance(value, dict) and value and rng.random() < 0.6:
            key = rng.choice(list(value))
            value[key] = self._bent(node.item, value[key], "", values)
            return value
        return values.draw(node, name, 2)

    def _bend_metadata(self, manifest: Manifest) -> None:
        rng, metadata = self.rng, manifest["metadata"]
        match rng.randrange(6):
            case 0:
                metadata["labels"] = {**_mapping(metadata.get("labels")), **self.fitting.labels()}
            case 1:
                metadata["annotations"] = {**_mapping(metadata.get("annotations")), **self.fitting.annotations()}
            case 2:
                metadata["finalizers"] = self.fitting.finalizers()
            case 3:
                metadata["ownerReferences"] = self.fitting.owners()
            case 4:
                metadata["name"] = rng.choice((*HOSTILE_STRINGS, "odd.name-1", "x" * 253))
            case _:
                field = rng.choice(_METADATA)
                metadata[field] = rng.choice(WRONG)

    def _whole(self, fitting: Manifest) -> Manifest:
        """An object that is drawn from the schema alone, under the name of a fitting one."""
        kind, values = kind_of(fitting), self.rng.choice((self._mild, self._wild))
        drawn = values.draw(kind.schema)
        body = drawn if isinstance(drawn, dict) else {"spec": drawn}
        return {**body, **{field: fitting[field] for field in ("apiVersion", "kind", "metadata")}}


def kind_of(manifest: Manifest) -> Kind:
    """The kind of a manifest that was drawn here."""
    return BY_KIND[manifest["apiVersion"].rpartition("/")[0], manifest["kind"]]


def _mapping(value: Any) -> Manifest:
    return value if isinstance(value, dict) else {}
