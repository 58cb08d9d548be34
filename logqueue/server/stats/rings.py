"""Rows of numbers by time, for many topics, in a bounded number of bytes.

Owns: how rows are kept, merged, forgotten and read back as series. A topic has a row only for a
slot of time in which something happened on it. Must not know: topics, what the numbers mean.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from operator import add

ITEM_BYTES = 4
ITEM_MAX = 2**32 - 1
RING_BYTES = 250
"""What a topic costs beside its rows."""
IDLE_SLOTS = 60
"""A topic without a row for so many slots goes first when there are too many bytes."""


class HistoryRings:
    """The rows of many topics at one resolution, those changed least recently first.

    A row is its slot, then counters, then gauges. Where all topics together have too many bytes,
    topics that are idle lose theirs; if all of them are busy, one after the other loses the older
    half of its rows.

    Attributes:
        step_ms: Length of a slot.
        slots: How far back a topic's rows reach.
        size: Bytes of all rows, about.
        lost_at: The latest slot in which a topic lost rows for lack of room; 0 for never.
    """

    def __init__(self, step_ms: int, slots: int, bytes_max: int) -> None:
        self.step_ms = step_ms
        self.slots = slots
        self.size = 0
        self.lost_at = 0
        self._bytes_max = bytes_max
        self._rings: OrderedDict[int, tuple[int, array[int]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rings)

    def add(
        self, number: int, at: int, counters: Sequence[int], gauges: Sequence[int] = ()
    ) -> None:
        """Add what happened to the row of its slot, and set the gauges there.

        Args:
            number: The topic instance.
            at: ms since the epoch. A slot before the latest row counts as that of the latest row,
                unless the clock was set back by more than there are slots.
            counters: What is added up within a slot.
            gauges: What is true at its end. A topic always has as many of each, or begins again.
        """
        slot = at // self.step_ms
        known = self._rings.get(number)
        width = 1 + len(counters) + len(gauges)
        if known is not None and (known[0] != width or slot < known[1][-width] - self.slots):
            self.forget(number)
            known = None
        if known is None:
            rows = array("I")
            self._rings[number] = (width, rows)
            self.size += RING_BYTES
        else:
            rows = known[1]
            self._rings.move_to_end(number)
        if rows and slot <= rows[-width]:
            start, end = len(rows) - width + 1, len(rows) - len(gauges)
            rows[start:] = _packed([*map(add, rows[start:end], counters), *gauges])
            return
        rows.append(slot)
        rows.extend(_packed((*counters, *gauges)))
        self.size += width * ITEM_BYTES
        if rows[0] <= slot - self.slots:
            self._cut(rows, width, self._row_from(rows, width, slot - self.slots + 1))
        while self.size > self._bytes_max and len(self._rings) > 1:
            self._make_room(slot)

    def _row_from(self, rows: array[int], width: int, slot: int) -> int:
        """Where the rows from a slot on begin."""
        return width * bisect_left(range(0, len(rows), width), slot, key=rows.__getitem__)

    def _cut(self, rows: array[int], width: int, end: int) -> None:
        del rows[:end]
        self.size -= end * ITEM_BYTES

    def _make_room(self, slot: int) -> None:
        self.lost_at = slot
        number, (width, rows) = next(iter(self._rings.items()))
        if rows[-width] < slot - IDLE_SLOTS or len(rows) == width:
            self.forget(number)
            return
        self._cut(rows, width, (len(rows) // width + 1) // 2 * width)
        self._rings.move_to_end(number)

    def forget(self, number: int) -> None:
        """A topic has no history here any longer."""
        known = self._rings.pop(number, None)
        if known is not None:
            self.size -= RING_BYTES + len(known[1]) * ITEM_BYTES

    def forget_old(self, now: int) -> None:
        """Forget topics whose latest row is out of reach."""
        oldest = now // self.step_ms - self.slots
        while self._rings:
            number, (width, rows) = next(iter(self._rings.items()))
            if rows[-width] > oldest:
                return
            self.forget(number)

    def last_at(self, number: int) -> int | None:
        """When the slot of the latest row of a topic began, ms since the epoch."""
        known = self._rings.get(number)
        return known[1][-known[0]] * self.step_ms if known is not None else None

    def sums(self, number: int, at: int, slots: int, counters: Sequence[int]) -> list[int]:
        """The sums of some counters of a topic over the last slots, that of `at` included.

        Args:
            number: The topic instance.
            at: ms since the epoch.
            slots: How many.
            counters: Their columns.
        """
        known = self._rings.get(number)
        first = at // self.step_ms - slots + 1
        if known is None or known[1][-known[0]] < first:
            return [0] * len(counters)
        width, rows = known
        start = len(rows) - min(len(rows), slots * width)
        while rows[start] < first:
            start += width
        return [sum(rows[start + 1 + index :: width]) for index in counters]

    def counters(self, number: int, at: int, slots: int, index: int) -> list[int]:
        """One counter of a topic in each of the last slots, that of `at` last."""
        found = [0] * slots
        known = self._rings.get(number)
        if known is not None:
            width, rows = known
            first = at // self.step_ms - slots + 1
            for place in range(self._row_from(rows, width, first), len(rows), width):
                if rows[place] - first < slots:
                    found[rows[place] - first] = rows[place + 1 + index]
        return found

    def gauges(
        self, number: int, at: int, slots: int, index: int, present: int, growth: int = 0
    ) -> list[int | None]:
        """One gauge of a topic at the end of each of the last slots, that of `at` last: as in the
        row before where a slot has none, None before the first row.

        Args:
            number: The topic instance.
            at: ms since the epoch.
            slots: How many.
            index: Which column, behind the counters.
            present: The gauge as of now: of the last slot, and of all where no slot has a row.
            growth: How much it grows in each slot without a row, unless it is 0.
        """
        known = self._rings.get(number)
        first = at // self.step_ms - slots + 1
        if known is None or known[1][-known[0]] < first:
            lacking = range(slots - 1, -1, -1)
            return [max(present - growth * past, 0) if present else 0 for past in lacking]
        width, rows = known
        value = since = 0
        is_known = False
        place = max(self._row_from(rows, width, first + 1) - width, 0)
        found: list[int | None] = []
        for slot in range(first, first + slots):
            while place < len(rows) and rows[place] <= slot:
                value, since, is_known = rows[place + 1 + index], rows[place], True
                place += width
            grown = value + growth * (slot - since) if value else 0
            found.append(grown if is_known else None)
        found[-1] = present
        return found

    def known_from(self, number: int, began_at: int) -> int:
        """From which slot on the history of a topic is whole.

        Args:
            number: The topic instance.
            began_at: When there was none of any topic yet, ms since the epoch.
        """
        began = began_at // self.step_ms
        if not self.lost_at:
            return began
        known = self._rings.get(number)
        return max(began, known[1][0] if known is not None else self.lost_at)


def _packed(values: Sequence[int]) -> array[int]:
    """Values as rows have them; those that are too large are the largest there is."""
    try:
        return array("I", values)
    except OverflowError:
        return array("I", [min(value, ITEM_MAX) for value in values])
