"""The layers of topology slices: JSON in an annotation, which CEL cannot read."""

import json
from collections.abc import Iterator
from typing import Any, Final

from headgate.core.admission.names import label_key
from headgate.core.admission.rules import AdmissionRule, ErrorType
from headgate.core.kubernetes.cel import compiled

LAYERS_MAX: Final = 3
COUNT_WORDS: Final = "topology constraints must contain between 1 and 3 entries"

Found = tuple[str, ErrorType, Any, str]
_LABEL: Final = label_key(AdmissionRule(name="layer", field="", holds="", value=""), "value")


def topology_layers(text: str, pods: int) -> Iterator[Found]:
    """
    What is wrong with the layers, from the coarsest to the finest.

    Each names a node label once, and the size of one layer divides that of the one above it. `pods` is the number of
    pods, 0 if unknown.
    """
    try:
        layers = json.loads(text)
        if not isinstance(layers, list) or not all(isinstance(each, dict) for each in layers):
            raise TypeError("it is no list of objects")  # noqa: TRY301 - one answer to all that is no list
    except (ValueError, TypeError) as error:
        yield "", ErrorType.INVALID, text, f"must be a valid JSON array: {error}"
        return
    if not 1 <= len(layers) <= LAYERS_MAX:
        yield "", ErrorType.INVALID, text, COUNT_WORDS
        return
    names = [str(each.get("topology", "")) for each in layers]
    sizes = [each.get("size", 0) if isinstance(each.get("size", 0), int) else 0 for each in layers]
    yield from _each(names, sizes)
    yield from _together(names, sizes)
    if pods and sizes[0] > pods:
        yield "", ErrorType.INVALID, sizes[0], f"must not be greater than pod set count {pods}"


def _each(names: list[str], sizes: list[int]) -> Iterator[Found]:
    for index, (name, size) in enumerate(zip(names, sizes, strict=True)):
        for rule in _LABEL:
            if not compiled(rule.holds)({"value": name}):
                yield f"[{index}].topology", ErrorType.INVALID, name, rule.detail
        if size < 1:
            yield f"[{index}].size", ErrorType.INVALID, size, "must be greater than or equal to 1"


def _together(names: list[str], sizes: list[int]) -> Iterator[Found]:
    for index, name in enumerate(names):
        first = names.index(name)
        if first < index:
            yield f"[{index}].topology", ErrorType.DUPLICATE, f"{name} (also at index {first})", ""
    for index in range(1, len(sizes)):
        if sizes[index] > 0 and sizes[index - 1] % sizes[index]:
            detail = f"must evenly divide the parent layer size {sizes[index - 1]}"
            yield f"[{index}].size", ErrorType.INVALID, sizes[index], detail
