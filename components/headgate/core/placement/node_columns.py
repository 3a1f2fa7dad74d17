"""
One column: a growing array with a number per row, and what fills it.

Values that are no numbers are interned. The id of a value is free again once no node has the value, so there are never
more ids than there were nodes at a time, however often values change.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.core.kubernetes.quantities import LOWEST, UNLIMITED
from headgate.core.placement.nodes import NodeInfo

ValueT = TypeVar("ValueT")


class NodeColumn(Protocol):
    """What the columns of nodes and of pods have in common."""

    def update(self, info: NodeInfo) -> None:
        """A row has this node, or the node has changed."""
        ...

    def clear(self, row: int) -> None:
        """A row has no node any more."""
        ...

    def values(self, size: int) -> NDArray[Any]:
        """The array, for so many rows."""
        ...


class _GrowingArray:
    """The numbers."""

    __slots__ = ("_array",)

    def __init__(self, kind: type[np.generic], capacity: int) -> None:
        self._array: NDArray[Any] = np.zeros(capacity, dtype=kind)

    def values(self, size: int) -> NDArray[Any]:
        """The array, for so many rows."""
        if size > len(self._array):
            more = np.zeros(max(size - len(self._array), len(self._array)), dtype=self._array.dtype)
            self._array = np.concatenate((self._array, more))
        return self._array[:size]


class NumberColumn(_GrowingArray):
    """A number of each node."""

    __slots__ = ("_value_of",)

    def __init__(self, value_of: Callable[[NodeInfo], int], kind: type[np.generic], capacity: int) -> None:
        super().__init__(kind, capacity)
        self._value_of = value_of

    def update(self, info: NodeInfo) -> None:
        """A row has this node, or the node has changed."""
        # What pods request together may have more than 64 bits, though what each of them requests has not.
        self.values(info.row + 1)[info.row] = min(max(self._value_of(info), LOWEST), UNLIMITED)

    def clear(self, row: int) -> None:
        """A row has no node any more."""
        self.values(row + 1)[row] = 0


class InternedColumn(_GrowingArray, Generic[ValueT]):
    """The id of a value of each node; 0 for `blank`, which has no other id."""

    __slots__ = ("_counts", "_free", "_ids", "_value_of", "by_id")

    def __init__(self, value_of: Callable[[NodeInfo], ValueT], blank: ValueT, capacity: int) -> None:
        super().__init__(np.int64, capacity)
        self._value_of = value_of
        self._ids: dict[ValueT, int] = {}
        self._counts: list[int] = [0]
        self._free: list[int] = []
        self.by_id: list[ValueT] = [blank]
        """The value of each id; `blank` for ids that are free."""

    @property
    def ids(self) -> Mapping[ValueT, int]:
        """The ids of the values that nodes have."""
        return self._ids

    def update(self, info: NodeInfo) -> None:
        """A row has this node, or the node has changed."""
        self._set(info.row, self._value_of(info))

    def clear(self, row: int) -> None:
        """A row has no node any more."""
        self._set(row, self.by_id[0])

    def _set(self, row: int, value: ValueT) -> None:
        array = self.values(row + 1)
        old = int(array[row])
        if value != self.by_id[old]:
            array[row] = self._taken(value)
            self._give_back(old)

    def _taken(self, value: ValueT) -> int:
        if value == self.by_id[0]:
            return 0
        number = self._ids.get(value)
        if number is None:
            number = self._ids[value] = self._free.pop() if self._free else len(self.by_id)
            if number == len(self.by_id):
                self.by_id.append(value)
                self._counts.append(0)
            self.by_id[number] = value
        self._counts[number] += 1
        return number

    def _give_back(self, number: int) -> None:
        if not number:
            return
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._ids[self.by_id[number]]
            self.by_id[number] = self.by_id[0]
            self._free.append(number)
