"""
The patches that carry differences, beside JSON merge patch (`core.kubernetes.merge_patch`): JSON and strategic merge.

Pure functions from (object, patch) to a new object; the input is never written into and untouched parts are shared,
which is what lets validation skip them. Sources: RFC 6902, and k8s.io/apimachinery/pkg/util/strategicpatch
for the directives (`$patch`, `$deleteFromPrimitiveList/…`, `$setElementOrder/…`, `$retainKeys`). Merge keys come from
the kind's schema.
"""

from collections.abc import Sequence
from typing import Any, Final

from headgate.adapters.kubernetes.crds.schema import SchemaNode
from headgate.core.kubernetes.numbers import decimal
from headgate.testing.cluster.errors import inapplicable_patch, internal

JsonObject = dict[str, Any]

_DELETE_PRIMITIVES: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


def json_patch(target: Any, operations: Sequence[JsonObject]) -> Any:
    """
    RFC 6902 as evanphx/json-patch reads it: all operations or none; `replace` also adds, absent sources are null.

    Raises ApiStatusError 422 when a `test` fails, a path is absent or an operation is none.
    """
    document = target
    for operation in operations:
        document = _operate(document, operation)
    return document


def _operate(document: Any, operation: JsonObject) -> Any:
    if not isinstance(operation.get("path"), str):
        raise inapplicable_patch()
    path = _pointer(operation["path"])
    match operation.get("op"):
        case "add":
            return _edited(document, path, "add", operation.get("value"))
        case "replace":
            return _edited(document, path, "replace", operation.get("value"))
        case "remove":
            return _edited(document, path, "remove", None)
        case "test":
            if _lookup(document, path) != operation.get("value"):
                raise inapplicable_patch()
            return document
        case "move":
            source = _source(operation)
            value = _lookup(document, source)
            return _edited(_edited(document, source, "remove", None), path, "add", value)
        case "copy":
            return _edited(document, path, "add", _lookup(document, _source(operation)))
        case _:
            raise inapplicable_patch()


def _source(operation: JsonObject) -> list[str]:
    if not isinstance(operation.get("from"), str):
        raise inapplicable_patch()
    return _pointer(operation["from"])


def _pointer(text: str) -> list[str]:
    if not text:
        return []
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _index(step: str, length: int) -> int:
    """The place that a step names in a list; negative ones count from its end."""
    index = decimal(step)
    if index is None or not -length <= index < length:
        raise inapplicable_patch()
    return index % length


def _lookup(document: Any, path: Sequence[str]) -> Any:
    """The value at a path; null for the last step into an object that does not have it."""
    for number, step in enumerate(path):
        if isinstance(document, dict):
            if step not in document and number < len(path) - 1:
                raise inapplicable_patch()
            document = document.get(step)
        elif isinstance(document, list):
            document = document[_index(step, len(document))]
        else:
            raise inapplicable_patch()
    return document


def _edited(document: Any, path: Sequence[str], action: str, value: Any) -> Any:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(document, dict):
        copy = dict(document)
        if rest:
            if step not in copy:
                raise inapplicable_patch()
            copy[step] = _edited(copy[step], rest, action, value)
        elif action != "remove":
            copy[step] = value
        elif step not in copy:
            raise inapplicable_patch()
        else:
            del copy[step]
        return copy
    if isinstance(document, list):
        return _edited_list(document, step, rest, action, value)
    raise inapplicable_patch()


def _edited_list(items: list[Any], step: str, rest: Sequence[str], action: str, value: Any) -> list[Any]:
    copy = list(items)
    if rest:
        index = _index(step, len(copy))
        copy[index] = _edited(copy[index], rest, action, value)
    elif action == "add":
        copy.insert(len(copy) if step == "-" else _index(step, len(copy) + 1), value)
    elif action == "replace":
        copy[_index(step, len(copy))] = value
    else:
        del copy[_index(step, len(copy))]
    return copy


def go_value(value: Any) -> str:
    """A decoded value as Go prints it with %v, which is how a refusal quotes a strategic merge patch."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case dict():
            return "map[" + " ".join(f"{name}:{go_value(value[name])}" for name in sorted(value)) + "]"
        case list():
            return "[" + " ".join(go_value(item) for item in value) + "]"
        case _:
            return str(value)


# Large: one case for each directive and each type of value, as in the API server's strategic merge.
def strategic_merge(target: Any, patch: Any, node: SchemaNode | None) -> Any:
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
            if isinstance(held := result.get(field), list):
                result[field] = _ordered(held, [], held, order, node.child(field))
    return result


def _delete_primitives(result: JsonObject, directive: str, values: Any) -> None:
    if directive.startswith(_DELETE_PRIMITIVES):
        field = directive.removeprefix(_DELETE_PRIMITIVES)
        if isinstance(result.get(field), list):
            result[field] = [item for item in result[field] if item not in values]


def _merge_list(current: list[Any], patch: list[Any], node: SchemaNode | None, order: Any) -> list[Any]:
    if node is None or node.type != "list":
        return patch
    if node.union:
        merged = list(dict.fromkeys([*current, *patch]))
        return _ordered(merged, patch, current, order, node)
    if not node.merge_key:
        return patch
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    key = node.merge_key
    merged, kept = list(current), []
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise internal(f"map: {go_value(item)} does not contain declared merge key: {key}")
        index = next((i for i, held in enumerate(merged) if held.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if index is not None:
                del merged[index]
            continue
        kept.append(item)
        if index is None:
            merged.append(strategic_merge({}, item, node.item))
        else:
            merged[index] = strategic_merge(merged[index], item, node.item)
    return _ordered(merged, kept, current, order, node)


def _ordered(merged: list[Any], patch: list[Any], live: list[Any], order: Any, node: SchemaNode | None) -> list[Any]:
    """
    The merged items in the order that strategic merge gives them.

    Those that the patch names (`order`, or the patch itself) come in its order; the others are put among them, each
    before the first named one that the live list has after it.
    """
    if node is None:
        return merged
    keys = [_key(item, node) for item in (order or patch)]
    before = [_key(item, node) for item in live]
    named = sorted((item for item in merged if _key(item, node) in keys), key=lambda item: keys.index(_key(item, node)))
    others = [item for item in merged if _key(item, node) not in keys]
    result: list[Any] = []
    while named and others:
        left, right = _key(others[0], node), _key(named[0], node)
        both = left in before and right in before
        result.append((others if both and before.index(left) < before.index(right) else named).pop(0))
    return [*result, *named, *others]


def _key(item: Any, node: SchemaNode) -> Any:
    return item.get(node.merge_key) if isinstance(item, dict) else item
