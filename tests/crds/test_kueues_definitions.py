"""
Our CustomResourceDefinitions beside Kueue's own, field by field.

Kueue's are in the cache that `make kube` fills; where they are not, these tests are skipped.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from headgate.adapters.kubernetes.crds.compare import differences, missing_fields
from headgate.adapters.kubernetes.crds.render import Conversion, custom_resource_definitions
from headgate.testing.control_plane.assets import Assets, cache_folder

JsonObject = dict[str, Any]

OURS = {definition["spec"]["names"]["plural"]: definition for definition in custom_resource_definitions()}

KNOWN = {
    # The template is checked where scheduling reads it: checking all of it costs at every status write.
    "workloads": [
        f"v1beta2 spec.podSets[].template.spec{part} x-kubernetes-preserve-unknown-fields: true / -"
        for part in ("", ".affinity", ".containers[]", ".initContainers[]")
    ],
}
"""Where v1beta2 differs on purpose, by plural name: place, ours, Kueue's."""


@pytest.fixture(scope="module")
def kueues() -> dict[str, JsonObject]:
    folder = Assets(cache_folder(), "the cache").kueue_crds()
    loaded = [yaml.safe_load(file.read_text()) for file in sorted(folder.glob("*.yaml"))]
    return {definition["spec"]["names"]["plural"]: definition for definition in loaded}


def schema(definition: JsonObject, version: str) -> JsonObject:
    found = next(each for each in definition["spec"]["versions"] if each["name"] == version)
    return found["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize("plural", OURS)
def test_names_and_v1beta2_are_kueues(plural: str, kueues: dict[str, JsonObject]) -> None:
    """Types, defaults, bounds, patterns, enumerations, list types, rules, columns: all but what `KNOWN` lists."""
    found = [
        f"{each.path}: {each.ours} / {each.theirs}"
        for each in differences(OURS[plural], kueues[plural])
        if not each.path.startswith("v1beta1 ")
    ]
    assert found == KNOWN.get(plural, [])


@pytest.mark.parametrize("plural", OURS)
def test_no_field_of_v1beta1_is_dropped_in_silence(plural: str, kueues: dict[str, JsonObject]) -> None:
    """Each is kept, for v1beta2 has it too, or refused by a rule that names the replacement."""
    ours = schema(OURS[plural], "v1beta1")
    assert list(missing_fields(schema(kueues[plural], "v1beta1"), ours)) == []
    stored = schema(OURS[plural], "v1beta2")
    lost = list(missing_fields(ours, stored))
    for field in lost:
        rules = at(ours, field)["x-kubernetes-validations"]
        assert [rule["rule"] for rule in rules] in (["false"], ["self == ''"], ["size(self) == 0"]), field
        assert "v1beta2" in rules[0]["message"], field


@pytest.mark.parametrize("plural", OURS)
def test_v1beta1_accepts_nothing_that_v1beta2_does_not(plural: str) -> None:
    """An object that is stored through v1beta1 is a good v1beta2 object: the rest of the schema is the same."""
    assert without_former(schema(OURS[plural], "v1beta1"), schema(OURS[plural], "v1beta2")) == schema(
        OURS[plural], "v1beta2"
    )


def test_the_rendered_schemas_are_structural() -> None:
    """Every field has a type or preserves unknown fields, as the API server requires."""
    for definition in OURS.values():
        for version in definition["spec"]["versions"]:
            for path, node in nodes(version["schema"]["openAPIV3Schema"]):
                assert "type" in node or node.keys() & {
                    "x-kubernetes-int-or-string",
                    "x-kubernetes-preserve-unknown-fields",
                }, path


@pytest.mark.parametrize("conversion", [None, Conversion()], ids=["none", "webhook"])
def test_every_field_has_a_description(conversion: Conversion | None) -> None:
    """For `kubectl explain`: whole sentences in plain text, in both versions."""
    lacking, unfinished = [], []
    for definition in custom_resource_definitions(conversion):
        for version in definition["spec"]["versions"]:
            for path, node in nodes(version["schema"]["openAPIV3Schema"]):
                place = f"{definition['spec']['names']['kind']} {version['name']}{path}"
                if path.endswith("[]") or path == ".metadata":
                    continue  # the list or map has it; the API server describes metadata
                text = node.get("description", "")
                if not text:
                    lacking.append(place)
                elif not conversion and version["name"] == "v1beta1":
                    continue  # fields that are refused have the message instead
                elif not text.endswith(".") or not text[0].isupper():
                    unfinished.append(place)
    assert lacking == []
    assert unfinished == []


def test_v1beta1_is_kueues_where_a_webhook_converts(kueues: dict[str, JsonObject]) -> None:
    """Every field of Kueue's v1beta1, of the same type; ours has fields, bounds and list types of v1beta2 besides."""
    for definition in custom_resource_definitions(Conversion()):
        theirs = kueues[definition["spec"]["names"]["plural"]]
        assert list(missing_fields(schema(theirs, "v1beta1"), schema(definition, "v1beta1"))) == []
        unlike = [
            each
            for each in differences(definition, theirs)
            if each.path.startswith("v1beta1 ") and each.theirs != "-" and not LENIENT.search(each.path)
        ]
        assert [f"{each.path}: {each.ours} / {each.theirs}" for each in unlike] == []


LENIENT = re.compile(r" required '| x-kubernetes-list-type$|(retryDelayMinutes|priorityClassSource) default$")
"""What ours leaves open: fields that v1beta2 does not require, and defaults that mean what an absent field means."""


def at(schema: JsonObject, path: str) -> JsonObject:
    for step in path.split("."):
        schema = schema["properties"][step.removesuffix("[]")]
        if step.endswith("[]"):
            schema = schema.get("items") or schema["additionalProperties"]
    return schema


def nodes(schema: JsonObject, path: str = "") -> Iterator[tuple[str, JsonObject]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], path + "[]")


def without_former(schema: JsonObject, stored: JsonObject) -> JsonObject:
    """The schema without the fields, values and rules that only a former version has."""
    cut = dict(schema)
    if "properties" in cut:
        cut["properties"] = {
            name: without_former(child, stored["properties"][name])
            for name, child in cut["properties"].items()
            if name in stored.get("properties", {})
        }
    for key in ("items", "additionalProperties"):
        if isinstance(cut.get(key), dict):
            cut[key] = without_former(cut[key], stored[key])
    if cut.get("enum") != stored.get("enum"):
        assert all(rule["rule"].startswith("self != ") for rule in cut["x-kubernetes-validations"])
        refused = {rule["rule"].removeprefix("self != ").strip("'") for rule in cut.pop("x-kubernetes-validations")}
        cut["enum"] = [value for value in cut["enum"] if value not in refused]
    return cut
