"""
Manifests: YAML and JSON from files, directories and standard input, as objects with their origin.

A `List` is split, and an object of Kueue's v1beta1 is converted to v1beta2, because Headgate's CRDs convert nothing.
Documents that are not objects are refused here, with file and document; the API server refuses invalid objects, in its
own words.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from headgate.adapters.yaml_text import check_depth
from headgate.cli.output import CliError
from headgate.core.api.conversion import VersionError, to_v1beta2

_SUFFIXES = (".yaml", ".yml", ".json")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One object. `origin` is its file, with the number of the document where there are several."""

    origin: str
    api_version: str
    kind: str
    name: str
    namespace: str
    body: dict[str, Any]


def read_manifests(names: list[str]) -> list[Manifest]:
    """
    The objects of files, directories and `-`, in order.

    Raises CliError for what cannot be read, is not YAML, or is no object.
    """
    found: list[Manifest] = []
    for name in names:
        for origin, text in _texts(name):
            found += _objects(origin, text)
    if not found:
        raise CliError(f"no objects in {', '.join(names)}")
    return found


def _texts(name: str) -> Iterator[tuple[str, str]]:
    if name == "-":
        yield "standard input", sys.stdin.read()
        return
    path = Path(name)
    try:
        files = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES) if path.is_dir() else [path]
        for file in files:
            yield str(file), file.read_text()
    except FileNotFoundError:
        raise CliError(f"the path {name!r} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{name}: cannot be read: {error}") from error


def _objects(origin: str, text: str) -> Iterator[Manifest]:
    try:
        check_depth(text)
        documents = [each for each in yaml.load_all(text, Loader=_Loader) if each is not None]
    except yaml.YAMLError as error:
        raise CliError(f"{origin}: this is not YAML: {' '.join(str(error).split())}") from error
    for number, document in enumerate(documents, 1):
        where = f"{origin}, document {number}" if len(documents) > 1 else origin
        if isinstance(document, dict) and document.get("kind") == "List":
            for index, item in enumerate(document.get("items") or ()):
                yield _manifest(f"{where}, items[{index}]", item)
        else:
            yield _manifest(where, document)


def _manifest(origin: str, body: Any) -> Manifest:
    if not isinstance(body, dict):
        raise CliError(f"{origin}: an object is expected, not {type(body).__name__}")
    metadata = body.get("metadata")
    for field in ("apiVersion", "kind"):
        if not isinstance(body.get(field), str):
            raise CliError(f"{origin}: {field} not set")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str):
        raise CliError(f"{origin}: {body['kind']}: metadata.name: Required value: name is required")
    namespace = metadata.get("namespace") or ""
    if not isinstance(namespace, str):
        raise CliError(f"{origin}: {body['kind']} {name}: metadata.namespace: a string is expected")
    for field, value in (("name", name), ("namespace", namespace)):
        if problem := path_problem(value):
            raise CliError(f"{origin}: {body['kind']}: metadata.{field}: Invalid value: {value!r}: {problem}")
    try:
        body = to_v1beta2(body)
    except VersionError as error:
        raise CliError(f"{origin}: {error}") from error
    return Manifest(
        origin=origin,
        api_version=body["apiVersion"],
        kind=body["kind"],
        name=name,
        namespace=namespace,
        body=body,
    )


def path_problem(name: str) -> str:
    """The reason why a name is invalid in the path of a request, as kubectl words it; "" when it is valid."""
    if name in (".", ".."):
        return f"may not be {name!r}"
    found = next((each for each in "/%" if each in name), "")
    return f"may not contain {found!r}" if found else ""


class _Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """YAML as Kubernetes reads it: dates stay strings."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
