"""Which orders were seen: bits where the picture is still mixed, ranges where it is whole.

Owns: a set of numbers that come in no particular order from two logs, in little memory. Must not
know: what the numbers count.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from logqueue.segments import ranges as seq_ranges
from logqueue.segments.ranges import Ranges

_BITS: Final = 16
_SPAN: Final = 1 << _BITS
_BYTES: Final = _SPAN // 8
DOUBLED_MAX: Final = 1000
"""Numbers that are in twice, at most so many are named."""

Bits = npt.NDArray[np.uint8]


class OrderSet:
    """A set of orders.

    Attributes:
        doubled: Orders that were added twice.
        first, last: The lowest and the highest one; 0 when the set is empty.
    """

    def __init__(self) -> None:
        self.doubled: list[int] = []
        self.first = self.last = 0
        self._whole: Ranges = []
        """Blocks of `_SPAN` orders that are complete, by number."""
        self._mixed: dict[int, Bits] = {}

    def __bool__(self) -> bool:
        return self.last > 0

    def add(self, orders: Any) -> None:
        """Add some orders, each from 0 up."""
        found = np.asarray(orders, np.int64)
        if not len(found):
            return
        if (np.diff(found) <= 0).any():
            found, counts = np.unique(found, return_counts=True)
            self._note_doubled(found[counts > 1])
        other = OrderSet()
        other.first, other.last = int(found[0]), int(found[-1])
        blocks = found >> _BITS
        numbers, starts = np.unique(blocks, return_index=True)
        for number, part in zip(numbers.tolist(), np.split(found, starts[1:]), strict=True):
            flags = np.zeros(_SPAN, np.bool_)
            flags[part & (_SPAN - 1)] = True
            other._put(number, np.packbits(flags, bitorder="little"))
        self.merge(other)

    def merge(self, other: OrderSet) -> None:
        """Add the orders of another set."""
        if not other:
            return
        self.doubled = (self.doubled + other.doubled)[:DOUBLED_MAX]
        self.first = min(self.first, other.first) if self else other.first
        self.last = max(self.last, other.last)
        for start, end in other._whole:
            for number in range(start, end + 1):
                self._put(number, np.full(_BYTES, 255, np.uint8))
        for number, bits in other._mixed.items():
            self._put(number, bits.copy())

    def ranges(self) -> Ranges:
        """All orders as ranges."""
        found = [(a << _BITS, ((b + 1) << _BITS) - 1) for a, b in self._whole]
        for number, bits in self._mixed.items():
            seen = np.unpackbits(bits, bitorder="little")
            edges = np.flatnonzero(np.diff(np.concatenate([[0], seen, [0]]).astype(np.int8)))
            base = number << _BITS
            starts, ends = (edges[0::2] + base).tolist(), (edges[1::2] + base - 1).tolist()
            found += zip(starts, ends, strict=True)
        return seq_ranges.union(found)

    def _put(self, number: int, bits: Bits) -> None:
        known = self._mixed.pop(number, None)
        if known is None and seq_ranges.holds(self._whole, number, number):
            known = np.full(_BYTES, 255, np.uint8)
        if known is not None:
            twice = known & bits
            if twice.any():
                at = np.flatnonzero(np.unpackbits(twice, bitorder="little"))
                self._note_doubled(at + (number << _BITS))
            bits = bits | known
        if bits.all() and (bits == 255).all():
            seq_ranges.add(self._whole, number, number)
        else:
            self._mixed[number] = bits

    def _note_doubled(self, orders: Any) -> None:
        room = max(DOUBLED_MAX - len(self.doubled), 0)
        self.doubled += [int(order) for order in orders[:room]]
