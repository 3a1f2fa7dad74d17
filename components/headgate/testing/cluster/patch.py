"""
The three patches that carry differences: JSON merge patch, JSON patch, strategic merge patch.

Pure functions from (object, patch) to a new object; the input is never written into and untouched parts are shared,
which is what lets validation skip them. Sources: RFC 7386, RFC 6902, and k8s.io/apimachinery/pkg/util/strategicpatch
for the directives (`$patch`, `$deleteFromPrimitiveList/…`, `$setElementOrder/…`, `$retainKeys`). Merge keys come from
the kind's schema.
"""

from collections.abc import Sequence
from typing import Any, Final

from headgate.testing.cluster.errors import ApiError, bad_request
from headgate.testing.cluster.schema import Node

JsonObject = dict[str, Any]

_DELETE_PRIMITIVES: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386. Null removes; objects merge; everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merge_patch(result.get(name), value)
        else:
            result[name] = value
    return result


def json_patch(target: Any, operations: Sequence[Any]) -> Any:
    """
    RFC 6902, all operations or none.

    Raises ApiError: 422 when a `test` fails or a path is absent, 400 on a malformed operation.
    """
    document = target
    for operation in operations:
        if not isinstance(operation, dict) or "op" not in operation or not isinstance(operation.get("path"), str):
            raise bad_request("json: a JSON patch is a list of operations with op and path")
        document = _operate(document, operation)
    return document


def _operate(document: Any, operation: JsonObject) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _edited(document, path, "add", _given(operation))
        case "replace":
            return _edited(document, path, "replace", _given(operation))
        case "remove":
            return _edited(document, path, "remove", None)
        case "test":
            try:
                found = _lookup(document, path)
            except ApiError:
                found = None
            if found != operation.get("value"):
                raise ApiError(
                    422,
                    "Invalid",
                    f"the server rejected our request due to an error in our request: "
                    f"testing value {operation['path']} failed: test failed",
                    details={},
                )
            return document
        case "move":
            source = _pointer(str(operation.get("from", "")))
            value = _lookup(document, source)
            return _edited(_edited(document, source, "remove", None), path, "add", value)
        case "copy":
            return _edited(document, path, "add", _lookup(document, _pointer(str(operation.get("from", "")))))
        case other:
            raise bad_request(f"unexpected JSON patch operation {other!r}")


def _given(operation: JsonObject) -> Any:
    if "value" not in operation:
        raise bad_request(f"JSON patch operation {operation['op']} needs a value")
    return operation["value"]


def _pointer(text: str) -> list[str]:
    if not text:
        return []
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _absent(path: Sequence[str]) -> ApiError:
    shown = "/" + "/".join(path)
    return ApiError(
        422,
        "Invalid",
        f"the server rejected our request due to an error in our request: path {shown} does not exist",
        details={},
    )


def _lookup(document: Any, path: Sequence[str]) -> Any:
    for step in path:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list) and step.isdigit() and int(step) < len(document):
            document = document[int(step)]
        else:
            raise _absent(path)
    return document


def _edited(document: Any, path: Sequence[str], action: str, value: Any) -> Any:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(document, dict):
        copy = dict(document)
        if rest:
            if step not in copy:
                raise _absent(path)
            copy[step] = _edited(copy[step], rest, action, value)
        elif action == "add":
            copy[step] = value
        elif step not in copy:
            raise _absent(path)
        elif action == "replace":
            copy[step] = value
        else:
            del copy[step]
        return copy
    if isinstance(document, list):
        items = list(document)
        index = len(items) if step == "-" else int(step) if step.isdigit() else -1
        if rest:
            if not 0 <= index < len(items):
                raise _absent(path)
            items[index] = _edited(items[index], rest, action, value)
        elif action == "add" and 0 <= index <= len(items):
            items.insert(index, value)
        elif action != "add" and 0 <= index < len(items):
            if action == "replace":
                items[index] = value
            else:
                del items[index]
        else:
            raise _absent(path)
        return items
    raise _absent(path)


def strategic_merge(target: Any, patch: Any, node: Node | None) -> Any:
    """Strategic merge of one object; `node` is its schema, where the merge keys of its lists are."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    if (retained := patch.get("$retainKeys")) is not None:
        result = {name: value for name, value in result.items() if name in retained}
    for name, value in patch.items():
        if name.startswith("$"):
            _delete_primitives(result, name, value)
            continue
        child = node.child(name) if node is not None else None
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = strategic_merge(result.get(name), value, child)
        elif isinstance(value, list):
            result[name] = _merge_list(result.get(name) or [], value, child, patch.get(_ORDER + name))
        else:
            result[name] = value
    for name, order in patch.items():
        if name.startswith(_ORDER) and name.removeprefix(_ORDER) not in patch and node is not None:
            field = name.removeprefix(_ORDER)
            if isinstance(result.get(field), list):
                result[field] = _ordered(result[field], order, node.child(field))
    return result


def _delete_primitives(result: JsonObject, directive: str, values: Any) -> None:
    if directive.startswith(_DELETE_PRIMITIVES):
        field = directive.removeprefix(_DELETE_PRIMITIVES)
        if isinstance(result.get(field), list):
            result[field] = [item for item in result[field] if item not in values]


def _merge_list(current: list[Any], patch: list[Any], node: Node | None, order: Any) -> list[Any]:
    if node is None or node.type != "list":
        return patch
    if node.union:
        return _ordered([*current, *(item for item in patch if item not in current)], order, node)
    if not node.merge_key:
        return patch
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    key = node.merge_key
    merged = list(current)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        index = next((i for i, held in enumerate(merged) if held.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if index is not None:
                del merged[index]
        elif index is None:
            merged.append(strategic_merge({}, item, node.item))
        else:
            merged[index] = strategic_merge(merged[index], item, node.item)
    return _ordered(merged, order, node)


def _ordered(items: list[Any], order: Any, node: Node | None) -> list[Any]:
    """Items in the order that the patch asks for; those it does not name keep their place after their predecessor."""
    if not order or node is None:
        return items
    key = node.merge_key
    wanted = [entry.get(key) if isinstance(entry, dict) else entry for entry in order]
    named = [item for item in items if (item.get(key) if isinstance(item, dict) else item) in wanted]
    named.sort(key=lambda item: wanted.index(item.get(key) if isinstance(item, dict) else item))
    slots = iter(named)
    return [next(slots) if (item.get(key) if isinstance(item, dict) else item) in wanted else item for item in items]
