"""
Which pods are counted: those of some namespaces whose labels meet some selectors.

A selection that requires a label to have a value is found by that label (`Requirers`), and so are pods (`Holders`): a
new selection is held against few kinds of pods, and a new kind of pod against few selections.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from headgate.core.kubernetes.selectors import matches_labels
from headgate.events.objects import LabelSelector

LabelPair = tuple[str, str]

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")


class Selection(msgspec.Struct, frozen=True, eq=False):
    """
    Pods of `namespaces` (None: of all) that all of `selectors` match; one that is None matches no pod.

    `key` is equal for equal selections.
    """

    key: bytes
    namespaces: tuple[str, ...] | None
    selectors: tuple[LabelSelector | None, ...]
    counts_terminating: bool

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether pods of this namespace and these labels are counted."""
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        return all(matches_labels(selector, labels) for selector in self.selectors)


def selection(
    namespaces: Iterable[str] | None, selectors: tuple[LabelSelector | None, ...], *, counts_terminating: bool
) -> Selection:
    """A selection with its key."""
    names = tuple(sorted(dict.fromkeys(namespaces))) if namespaces is not None else None
    key = _encoder.encode((names, selectors, counts_terminating))
    return Selection(key, names, selectors, counts_terminating)


def alternatives(selectors: Iterable[LabelSelector | None]) -> Iterator[tuple[LabelPair, ...]]:
    """Of each requirement that names values, the pairs of which a pod has one if it meets the requirement."""
    for selector in selectors:
        if selector is None:
            continue
        for pair in selector.match_labels.items():
            yield (pair,)
        for requirement in selector.match_expressions:
            if requirement.operator == "In":
                yield tuple((requirement.key, value) for value in dict.fromkeys(requirement.values))


class WithLabels(Protocol):
    """Something with the labels of pods."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels."""
        ...


class Selective(Protocol):
    """Something with label selectors that all have to match."""

    @property
    def selectors(self) -> tuple[LabelSelector | None, ...]:
        """The selectors."""
        ...


LabelledT = TypeVar("LabelledT", bound=WithLabels)
SelectiveT = TypeVar("SelectiveT", bound=Selective)


class Holders(Generic[LabelledT]):
    """Kinds of pods by their labels."""

    def __init__(self) -> None:
        self._all: dict[LabelledT, None] = {}
        self._by_pair: dict[LabelPair, dict[LabelledT, None]] = {}

    def add(self, holder: LabelledT) -> None:
        """There are pods of this kind."""
        self._all[holder] = None
        for pair in holder.labels.items():
            self._by_pair.setdefault(pair, {})[holder] = None

    def remove(self, holder: LabelledT) -> None:
        """There are none any more."""
        del self._all[holder]
        for pair in holder.labels.items():
            holders = self._by_pair[pair]
            del holders[holder]
            if not holders:
                del self._by_pair[pair]

    def candidates(self, selectors: Iterable[LabelSelector | None]) -> list[LabelledT]:
        """Kinds of pods that may meet the selectors: all that do, and as few others as one label tells apart."""
        best, size = None, len(self._all)
        for pairs in alternatives(selectors):
            found = [self._by_pair[pair] for pair in pairs if pair in self._by_pair]
            held = sum(map(len, found))
            if held < size:
                best, size = found, held
        return list(self._all) if best is None else [holder for holders in best for holder in holders]


class Requirers(Generic[SelectiveT]):
    """Things that select pods, by a label that they require."""

    def __init__(self) -> None:
        self._pairs_of: dict[SelectiveT, tuple[LabelPair, ...] | None] = {}
        self._by_pair: dict[LabelPair, dict[SelectiveT, None]] = {}
        self._others: dict[SelectiveT, None] = {}

    def add(self, requirer: SelectiveT) -> None:
        """It is to be found."""
        pairs = min(alternatives(requirer.selectors), key=self._crowd, default=None)
        self._pairs_of[requirer] = pairs
        if pairs is None:
            self._others[requirer] = None
        for pair in pairs or ():
            self._by_pair.setdefault(pair, {})[requirer] = None

    def remove(self, requirer: SelectiveT) -> None:
        """It is no longer to be found."""
        pairs = self._pairs_of.pop(requirer)
        if pairs is None:
            del self._others[requirer]
        for pair in pairs or ():
            requirers = self._by_pair[pair]
            del requirers[requirer]
            if not requirers:
                del self._by_pair[pair]

    def candidates(self, labels: Mapping[str, str]) -> list[SelectiveT]:
        """What may select pods of these labels: all that does, and as few others as one label tells apart."""
        found = list(self._others)
        for pair in labels.items():
            requirers = self._by_pair.get(pair)
            if requirers is not None:
                found.extend(requirers)
        return found

    def _crowd(self, pairs: tuple[LabelPair, ...]) -> int:
        return sum(len(self._by_pair.get(pair, ())) for pair in pairs)
