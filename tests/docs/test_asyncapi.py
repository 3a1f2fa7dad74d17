"""
The AsyncAPI document of the feed is one by AsyncAPI's own schema, and what it refers to is there.

`data/asyncapi-3.0.0.json.gz` is the schema that the AsyncAPI initiative publishes, without its examples: Apache-2.0;
`schemas/3.0.0-without-$id.json` of the npm package @asyncapi/specs 6.8.1.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
import yaml

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return yaml.load((HERE.parents[1] / "schemas/asyncapi.yaml").read_text(), yaml.CSafeLoader)


def problems(document: dict[str, Any]) -> list[str]:
    schema = msgspec.json.decode(gzip.decompress((HERE / "data/asyncapi-3.0.0.json.gz").read_bytes()))
    found = jsonschema.Draft7Validator(schema).iter_errors(document)
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in found]


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_the_document_is_valid_asyncapi(document: dict[str, Any]) -> None:
    """By the published schema of version 3.0.0."""
    assert problems(document) == []


def test_the_schema_finds_what_is_wrong(document: dict[str, Any]) -> None:
    """A discriminator as OpenAPI writes it, an operation without its action."""
    schemas = {**document["components"]["schemas"], "X": {"anyOf": [], "discriminator": {"propertyName": "type"}}}
    assert problems({**document, "components": {**document["components"], "schemas": schemas}})
    operations = {"on-x": {"channel": next(iter(document["operations"].values()))["channel"]}}
    assert problems({**document, "operations": operations})


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    """JSON pointers into the document itself."""
    for reference in set(references(document)):
        place: Any = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step.replace("~1", "/").replace("~0", "~")]
        assert place
