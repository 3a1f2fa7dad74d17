"""
Server-side apply: who owns which field, what conflicts, what is removed when an applier no longer mentions it.

What sigs.k8s.io/structured-merge-diff's `merge.Updater` does, on decoded JSON, driven by the kind's schema (list keys,
sets, atomic values). Field sets are sets of paths whose steps are spelled as in `FieldsV1` (`f:name`,
`k:{"type":"Ready"}`, `v:"x"`), so turning them into `managedFields` is only a matter of nesting.

`applied` and `tracked` are the two entry points: one for apply patches, one for every other write. Both take and
return the list that is stored in `metadata.managedFields`. An applier owns the leaves of its configuration; every other
writer owns what it changed, and of what it added the containers too.

Objects of a kind that the same manager writes mostly own the same fields. So a field set and its nested form are made
once and shared (`_fields_v1`, `_paths_of`): they are never written into, as nothing in the store is.
"""
# Over 400 lines: what structured-merge-diff's Updater does, with the operations on field sets that it is made of.

from collections import OrderedDict
from collections.abc import Iterator, Set
from functools import lru_cache
from typing import Any, Final

import msgspec

from headgate.adapters.kubernetes.crds.schema import SchemaNode, compile_schemas
from headgate.testing.cluster.errors import apply_conflict

JsonObject = dict[str, Any]
Path = tuple[str, ...]
Paths = frozenset[Path]

_SHARED_MAX: Final = 4096
"""How many field sets, and how many steps, are remembered."""

_ABSENT: Final = object()

METADATA: Final = compile_schemas(
    """
Metadata: object (open)
  labels: map[string]
  annotations: map[string]
  finalizers: []string (set, union)
  ownerReferences: []object (map=uid)
    uid: string
"""
)["Metadata"]
"""The schema of `metadata` as far as lists and maps of it are merged."""
METADATA.fields["ownerReferences"].item.atomic = True  # type: ignore[union-attr]

_UNOWNED: Final = frozenset(
    {
        "name",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
    }
)


def root_node(schema: SchemaNode) -> SchemaNode:
    """The schema of a whole object: its fields and its metadata."""
    root = SchemaNode("object")
    root.fields = {**schema.fields, "metadata": METADATA}
    return root


class FieldManager(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes: the identity of one `managedFields` entry."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""


def field_set(obj: JsonObject, root: SchemaNode) -> Paths:
    """Every field of an object that can be owned."""
    out: set[Path] = set()
    for name, value in obj.items():
        if name in {"apiVersion", "kind"}:
            continue
        if name == "metadata":
            for key, item in value.items():
                if key not in _UNOWNED:
                    _collect(item, METADATA.fields.get(key), ("f:metadata", f"f:{key}"), out)
        else:
            _collect(value, root.fields.get(name), (f"f:{name}",), out)
    return frozenset(out)


def _collect(value: Any, node: SchemaNode | None, path: Path, out: set[Path]) -> None:
    if isinstance(value, dict) and value and not (node is not None and node.atomic):
        _collect_fields(value, node, path, out)
    elif isinstance(value, list) and node is not None and (node.list_keys or node.set):
        # Owned by its items alone: an empty one has no owner.
        for item in value:
            at = (*path, step_of(item, node))
            out.add(at)
            if node.list_keys and isinstance(item, dict) and not (node.item is not None and node.item.atomic):
                _collect_fields(item, node.item, at, out)
    else:
        out.add(path)


def _collect_fields(value: JsonObject, node: SchemaNode | None, path: Path, out: set[Path]) -> None:
    for name, item in value.items():
        at = (*path, "f:" + name)
        if isinstance(item, dict | list):
            _collect(item, node.child(name) if node is not None else None, at, out)
        else:
            out.add(at)


def step_of(item: Any, node: SchemaNode) -> str:
    """The step to an item of a list whose items are owned one by one."""
    if not node.list_keys:
        return "v:" + msgspec.json.encode(item).decode()
    if len(node.list_keys) == 1:
        key = node.list_keys[0]
        value = item.get(key)
        if isinstance(value, str):
            return _namestep_of(key, value)
    keys: JsonObject = {}
    for key in sorted(node.list_keys):
        child = node.item.child(key) if node.item is not None else None
        value = item.get(key, child.default if child is not None and child.has_default else _ABSENT)
        if value is not _ABSENT:
            keys[key] = value
    return "k:" + msgspec.json.encode(keys).decode()


@lru_cache(maxsize=_SHARED_MAX)
def _namestep_of(key: str, value: str) -> str:
    return "k:" + msgspec.json.encode({key: value}).decode()


def merged(live: Any, config: Any, node: SchemaNode | None) -> Any:
    """
    The live value with the configuration laid over it: maps and keyed lists merge, everything else is replaced.

    The live value itself comes back when nothing changes.
    """
    if config == live:
        return live
    if isinstance(config, dict):
        if not isinstance(live, dict) or (node is not None and node.atomic):
            given = {name: value for name, value in config.items() if value is not None}
            return live if given == live else given
        changes: JsonObject = {}
        for name, value in config.items():
            if value is not None:
                old = live.get(name)
                new = merged(old, value, node.child(name) if node is not None else None)
                if new is not old:
                    changes[name] = new
        return {**live, **changes} if changes else live
    if isinstance(config, list) and isinstance(live, list) and node is not None:
        if node.list_keys:
            return _merged_items(live, config, node)
        if node.set:
            more = [item for item in config if item not in live]
            return [*live, *more] if more else live
    return config


def _merged_items(live: list[Any], config: list[Any], node: SchemaNode) -> list[Any]:
    result = list(live)
    places = {step_of(item, node): index for index, item in enumerate(live)}
    changed = False
    for item in config:
        index = places.get(step_of(item, node))
        if index is None:
            result.append(item)
            changed = True
        else:
            new = result[index] = merged(live[index], item, node.item)
            changed = changed or new is not live[index]
    return result if changed else live


def compared(before: Any, after: Any, node: SchemaNode | None) -> tuple[Paths, Paths]:
    """The paths that a change from `before` to `after` sets, and those that it removes, containers included."""
    changed: set[Path] = set()
    gone: set[Path] = set()
    for name in {**before, **after}:
        if name == "metadata":
            old, new = before.get(name) or {}, after.get(name) or {}
            for key in {**old, **new}:
                if key not in _UNOWNED:
                    _compare(old, new, key, METADATA, ("f:metadata",), changed, gone)
        elif name not in {"apiVersion", "kind"}:
            _compare(before, after, name, node, (), changed, gone)
    return frozenset(changed), frozenset(gone)


def _compare(
    old: JsonObject,
    new: JsonObject,
    name: str,
    node: SchemaNode | None,
    path: Path,
    changed: set[Path],
    gone: set[Path],
) -> None:
    """Compare one field of two maps."""
    before, after = old.get(name, _ABSENT), new.get(name, _ABSENT)
    if before is not after:
        _compare_values(
            before, after, node.child(name) if node is not None else None, (*path, f"f:{name}"), changed, gone
        )


def _compare_values(
    before: Any, after: Any, node: SchemaNode | None, path: Path, changed: set[Path], gone: set[Path]
) -> None:
    if before is after:
        return
    if before is _ABSENT:
        _walk(after, node, path, changed)
    elif after is _ABSENT:
        _walk(before, node, path, gone)
    elif _is_map(before, node) and _is_map(after, node):
        for name in {**before, **after}:
            _compare(before, after, name, node, path, changed, gone)
    elif node is not None and _is_keyed(before, node) and _is_keyed(after, node):
        olds, news = ({step_of(item, node): item for item in items or ()} for items in (before, after))
        for step in {**olds, **news}:
            _compare_values(olds.get(step, _ABSENT), news.get(step, _ABSENT), node.item, (*path, step), changed, gone)
    elif before != after:
        changed.add(path)


def _is_map(value: Any, node: SchemaNode | None) -> bool:
    return isinstance(value, dict) and not (node is not None and node.atomic)


def _is_keyed(value: Any, node: SchemaNode) -> bool:
    """Whether a value is a list whose items are owned one by one; an absent list of a struct is null."""
    return (value is None or isinstance(value, list)) and bool(node.list_keys or node.set) and not node.atomic


def _walk(value: Any, node: SchemaNode | None, path: Path, out: set[Path]) -> None:
    """Everything in a part that is new, or gone."""
    out.add(path)
    if _is_map(value, node):
        for name, item in value.items():
            _walk(item, node.child(name) if node is not None else None, (*path, f"f:{name}"), out)
    elif node is not None and isinstance(value, list) and _is_keyed(value, node):
        for item in value:
            _walk(item, node.item, (*path, step_of(item, node)), out)


def applied(
    live: JsonObject | None,
    config: JsonObject,
    managed: list[JsonObject],
    writer: FieldManager,
    root: SchemaNode,
    *,
    force: bool,
    time: str,
) -> tuple[JsonObject, list[JsonObject]]:
    """
    The object after an apply, and its managed fields.

    Raises ApiStatusError 409, with one cause per field, if another manager owns a field that the configuration would
    change, unless `force`.
    """
    sets = _decoded(managed)
    if live is not None and not sets:
        # An object without managed fields: its contents belong to the manager that wrote them before.
        first = FieldManager(manager="before-first-apply", operation="Update", api_version=writer.api_version)
        sets[first] = (compared({}, live, root)[0], time)
    wanted = field_set(config, root)
    last = sets.pop(writer, (Paths(), ""))
    if live is None:
        sets[writer] = (wanted, time)
        return config, _encoded(sets)
    others = [owned for owned, _ in sets.values()]
    result = _pruned(merged(live, config, root), last[0] - wanted, [wanted, *others])
    changed, gone = compared(live, result, root)
    clashes = {other: clash for other, (owned, _) in sets.items() if (clash := owned & changed)}
    if clashes and not force:
        ordered = sorted(clashes.items(), key=lambda pair: (pair[0].manager, pair[0].subresource))
        raise apply_conflict([_cause(other, path) for other, clash in ordered for path in sorted(clash)])
    for other, (owned, since) in list(sets.items()):
        sets[other] = (owned - changed - gone, since)
    # A manager that changed nothing has no time.
    sets[writer] = (wanted, time if changed or gone else last[1])
    return result, _encoded(sets)


def _pruned(obj: JsonObject, dropped: Paths, owned: list[Paths]) -> JsonObject:
    """
    Remove the fields that the applier used to own and that have no owner now; containers of owned fields stay.

    An owned container that has become empty becomes null, as structured-merge-diff has it: an apply
    of `{}` over what the applier alone has filled. Kubernetes' own kinds read null as absent; a custom resource is
    refused.
    """
    if not dropped:
        return obj
    held = {path[:length] for paths in owned for path in paths for length in range(1, len(path) + 1)}
    for path in sorted(dropped, key=lambda path: (len(path), path)):
        if path not in held and not _is_key(path, held):
            obj = _without(obj, path, held)
    return obj


def _is_key(path: Path, held: set[Path]) -> bool:
    """Whether the path is a key field of a list item that stays because someone else holds a part of it."""
    if len(path) < 2 or not path[-2].startswith("k:") or path[:-1] not in held:
        return False
    return path[-1].removeprefix("f:") in msgspec.json.decode(path[-2][2:])


def _find(items: Any, step: str) -> int | None:
    if not isinstance(items, list):
        return None
    wanted = msgspec.json.decode(step[2:])
    if step.startswith("v:"):
        return items.index(wanted) if wanted in items else None
    # A key that the item leaves out has its default, which is how the step came to name it.
    for index, item in enumerate(items):
        if isinstance(item, dict) and all(item.get(key, value) == value for key, value in wanted.items()):
            return index
    return None


def _value(obj: Any, path: Path) -> Any:
    for step in path:
        if step.startswith("f:"):
            if not isinstance(obj, dict) or step[2:] not in obj:
                return _ABSENT
            obj = obj[step[2:]]
        else:
            index = _find(obj, step)
            if index is None:
                return _ABSENT
            # The item itself is a member, whatever is in it; its fields are owned one by one.
            obj = obj[index] if step is not path[-1] else True
    return obj


def _without(obj: Any, path: Path, held: Set[Path], depth: int = 1) -> Any:
    """A value without what is at a path; its first `depth - 1` steps have led to the value."""
    step, is_last = path[depth - 1], depth == len(path)
    if step.startswith("f:"):
        name = step[2:]
        if not isinstance(obj, dict) or name not in obj:
            return obj
        if is_last:
            return {key: value for key, value in obj.items() if key != name}
        inner = _without(obj[name], path, held, depth + 1)
        if inner is obj[name]:
            return obj
        if inner or not isinstance(inner, dict | list):
            return {**obj, name: inner}
        if path[:depth] in held:
            return {**obj, name: None}
        return {key: value for key, value in obj.items() if key != name}
    index = _find(obj, step)
    if index is None:
        return obj
    if is_last:
        return [*obj[:index], *obj[index + 1 :]]
    inner = _without(obj[index], path, held, depth + 1)
    return obj if inner is obj[index] else [*obj[:index], inner, *obj[index + 1 :]]


def tracked(
    before: JsonObject,
    after: JsonObject,
    managed: list[JsonObject],
    writer: FieldManager,
    root: SchemaNode,
    *,
    time: str,
) -> list[JsonObject]:
    """
    The managed fields after another write: the writer takes what it changed, everyone loses what is gone.

    `before` a create is what an object without content has.
    """
    changed, gone = compared(before, after, root)
    if not changed and not gone:
        return managed
    sets = _decoded(managed)
    for other, (owned, since) in list(sets.items()):
        sets[other] = (owned - gone if other == writer else owned - changed - gone, since)
    if changed:
        mine, _ = sets.pop(writer, (Paths(), ""))
        sets[writer] = (mine | changed, time)
    return _encoded(sets)


def _cause(other: FieldManager, path: Path) -> JsonObject:
    message = f'conflict with "{other.manager}"'
    if other.subresource:
        message += f' with subresource "{other.subresource}"'
    if other.operation == "Update":
        message += f" using {other.api_version}"
    return {"reason": "FieldManagerConflict", "message": message, "field": "".join(shown_path(path))}


def shown_path(path: Path) -> Iterator[str]:
    """A path as messages show it, in parts."""
    for step in path:
        if step.startswith("f:"):
            yield f".{step[2:]}"
        elif step.startswith("v:"):
            yield f"[={step[2:]}]"
        else:
            keys = msgspec.json.decode(step[2:])
            yield "[" + ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in keys.items()) + "]"


# --- managedFields -------------------------------------------------------------------------------------------------


def _decoded(managed: list[JsonObject]) -> dict[FieldManager, tuple[Paths, str]]:
    sets: dict[FieldManager, tuple[Paths, str]] = {}
    for entry in managed:
        writer = FieldManager(
            manager=entry.get("manager", ""),
            operation=entry.get("operation", "Update"),
            api_version=entry.get("apiVersion", ""),
            subresource=entry.get("subresource", ""),
        )
        sets[writer] = (_paths_of(entry.get("fieldsV1") or {}), entry.get("time", ""))
    return sets


_known: Final[OrderedDict[int, tuple[JsonObject, Paths]]] = OrderedDict()
"""The paths of nested sets, by the identity of the nested set, which is held here so that it stays one."""


def _paths_of(fields: JsonObject) -> Paths:
    known = _known.get(id(fields))
    if known is not None:
        _known.move_to_end(id(fields))
        return known[1]
    found: set[Path] = set()
    _unnest(fields, (), found)
    return _remember(fields, frozenset(found))


def _remember(fields: JsonObject, paths: Paths) -> Paths:
    _known[id(fields)] = (fields, paths)
    if len(_known) > _SHARED_MAX:
        _known.popitem(last=False)
    return paths


def _unnest(fields: JsonObject, path: Path, out: set[Path]) -> None:
    for step, below in fields.items():
        if step == ".":
            out.add(path)
        elif below:
            _unnest(below, (*path, step), out)
        else:
            out.add((*path, step))


def _encoded(sets: dict[FieldManager, tuple[Paths, str]]) -> list[JsonObject]:
    entries = []
    for writer, (paths, time) in sets.items():
        if not paths:
            continue
        entry: JsonObject = {
            "manager": writer.manager,
            "operation": writer.operation,
            "apiVersion": writer.api_version,
            **({"time": time} if time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": _fields_v1(paths),
        }
        if writer.subresource:
            entry["subresource"] = writer.subresource
        entries.append(entry)
    # Appliers first, then updaters, each by time and name: the order of k8s.io/apimachinery's managedfields.
    entries.sort(
        key=lambda e: (e["operation"], e.get("time", ""), e["manager"], e["apiVersion"], e.get("subresource", ""))
    )
    return entries


@lru_cache(maxsize=_SHARED_MAX)
def _fields_v1(paths: Paths) -> JsonObject:
    """A field set as `managedFields` nests it; equal sets share one. Do not write into it."""
    ordered = sorted(paths)
    root: JsonObject = {}
    for path in ordered:
        level = root
        for step in path:
            level = level.setdefault(step, {})
    for path in reversed(ordered):
        level = root
        for step in path:
            level = level[step]
        if level and "." not in level:
            inner = dict(level)
            level.clear()
            level["."] = {}
            level.update(inner)
    _remember(root, paths)
    return root
