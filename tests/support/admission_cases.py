"""The table of what admission defaults and refuses (`tests/core/admission/cases.yaml`)."""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

Json = dict[str, Any]

FILE: Final = Path(__file__).parents[1] / "core" / "admission" / "cases.yaml"
QUEUED: Final = "queued"
PLAIN: Final = "plain"
STEPS: Final = ("status", "then_status", "finally_status", "update")


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One case; see the head of the file. `steps` are the patches after creation, with their subresource."""

    kind: str
    api_version: str
    name: str
    object: Json
    namespace: str
    steps: tuple[tuple[str, Json], ...] = ()
    refused: str = ""
    defaulted: Json = {}
    by: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


def merged(found: Any, patch: Any) -> Any:
    """A merge patch applied."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    made = dict(found) if isinstance(found, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merged(made.get(key), value)
    return made


def field_of(path: str) -> str:
    """A field without its indexes and keys, which policies do not tell."""
    return re.sub(r"\[[^]]*\]", "[]", path)


def found_at(obj: Json, path: str) -> Any:
    """The value of a field; a key may have dots behind `labels.`."""
    steps = path.split(".")
    for index, step in enumerate(steps):
        if step == "labels":
            return obj["labels"].get(".".join(steps[index + 1 :]))
        if step not in obj:
            return None
        obj = obj[step]
    return obj


def cases() -> list[Case]:
    """All cases, in the order of the file."""
    return list(_cases())


def _cases() -> Iterator[Case]:
    for kind in yaml.safe_load(FILE.read_text()):
        for index, case in enumerate(kind["cases"]):
            name = f"{kind['kind'].lower()}-{index}"
            obj = merged(kind["base"], case.get("create", {}))
            obj = {**obj, "apiVersion": kind["apiVersion"], "kind": kind["kind"]}
            obj["metadata"] = {**obj.get("metadata", {}), "name": name}
            steps = tuple(
                ("" if step == "update" else "status", case[step] if step == "update" else {"status": case[step]})
                for step in STEPS
                if step in case
            )
            yield Case(
                kind=kind["kind"],
                api_version=kind["apiVersion"],
                name=case["name"],
                object=obj,
                namespace=case.get("namespace", PLAIN),
                steps=steps,
                refused=case.get("refused", ""),
                defaulted=case.get("defaulted", {}),
                by=case.get("by", ""),
            )
