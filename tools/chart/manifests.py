"""The Kustomize manifests as they are on disk, and the little of Kustomize that the chart repeats: labels, patches."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tools.chart.templating import If, Items

ROOT: Final = Path(__file__).parents[2]
KUBERNETES: Final = ROOT / "deploy" / "kubernetes"
NAME_LABEL: Final = {"app.kubernetes.io/name": "headgate"}
"""What the base's `labels` adds to every object, selector and template."""

CLUSTER_WIDE: Final = frozenset(
    {
        "APIService",
        "ClusterRole",
        "ClusterRoleBinding",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
)

Object = dict[Any, Any]


def documents(file: str) -> list[Object]:
    """The objects of a file below deploy/kubernetes."""
    return [each for each in yaml.safe_load_all((KUBERNETES / file).read_text()) if each]


def content(file: str) -> str:
    """The text of a file below deploy/kubernetes."""
    return (KUBERNETES / file).read_text()


def labelled(document: Object) -> Object:
    """An object of the base with its label, as `includeSelectors` and `includeTemplates` say."""
    found = copy.deepcopy(document)
    metadata = found["metadata"]
    metadata["labels"] = {**NAME_LABEL, **metadata.get("labels", {})}
    for selector in _selectors(found):
        selector.update({**NAME_LABEL, **selector})
    return found


def _selectors(document: Object) -> Iterator[Object]:
    spec = document.get("spec", {})
    match document["kind"]:
        case "Service":
            yield spec["selector"]
        case "Deployment":
            yield spec["selector"]["matchLabels"]
            yield spec["template"]["metadata"]["labels"]
        case "PodDisruptionBudget":
            yield spec["selector"]["matchLabels"]
        case "NetworkPolicy" if "matchLabels" in spec["podSelector"]:
            yield spec["podSelector"]["matchLabels"]
        case _:
            pass


def merged(base: Any, patch: Any, condition: str | None = None) -> Any:
    """
    A strategic merge patch over an object: dicts by key, lists of named items by name.

    With a condition, what the patch adds is guarded by it. Raises ValueError when the patch would have to replace a
    value under a condition.
    """
    if isinstance(base, dict) and isinstance(patch, dict):
        return _merged_dicts(base, patch, condition)
    if isinstance(base, list) and isinstance(patch, list) and _named(patch):
        return _merged_lists(base, patch, condition)
    if base == patch:
        return base
    if condition is not None:
        raise ValueError(f"{base!r} would be replaced by {patch!r} under {condition}")
    return patch


def _merged_dicts(base: Object, patch: Mapping[Any, Any], condition: str | None) -> Object:
    found = dict(base)
    for key, value in patch.items():
        if key in found:
            found[key] = merged(found[key], value, condition)
        elif condition is None:
            found[key] = value
        else:
            # Two patches that say the same are one entry on either condition.
            for guard in [each for each in found if isinstance(each, If) and found[each].get(key) == value]:
                del found[guard]
                condition = f"or {_operand(guard.expression)} {_operand(condition)}"
            found[If(condition)] = {**found.get(If(condition), {}), key: value}
    return found


def _merged_lists(base: list[Any], patch: list[Any], condition: str | None) -> list[Any]:
    found = list(base)
    names = [each.get("name") if isinstance(each, dict) else None for each in found]
    added = []
    for item in patch:
        if item["name"] in names:
            place = names.index(item["name"])
            found[place] = merged(found[place], item, condition)
        else:
            added.append(item)
    if added and condition is not None:
        return [*found, Items(If(condition), added)]
    return [*found, *added]


def _named(items: Iterable[Any]) -> bool:
    return all(isinstance(each, dict) and "name" in each for each in items)


def _operand(condition: str) -> str:
    return condition if condition.startswith("(") or " " not in condition else f"({condition})"
