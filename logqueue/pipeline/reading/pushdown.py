"""What need not be read: topics, seqs and times that the query excludes.

Owns: that knowledge, from options and from filters, and its effect on ranges. Must not know:
pyspark, segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from logqueue.pipeline.reading.available import Range
from logqueue.pipeline.reading.options import Reading


@dataclass(frozen=True, slots=True)
class Pushdown:
    """What is asked for; None means no bound.

    Attributes:
        topics: Their names.
        first, last: Seqs, or orders of lease events, both inclusive.
        from_micros, to_micros: Times in microseconds since the epoch, both inclusive. Rows outside
            may come all the same.
        from_ms, end_ms: Times of lease events in ms, the end not inclusive; exact.
    """

    topics: frozenset[str] | None = None
    first: int | None = None
    last: int | None = None
    from_micros: int | None = None
    to_micros: int | None = None
    from_ms: int | None = None
    end_ms: int | None = None

    @classmethod
    def of(cls, reading: Reading) -> Pushdown:
        """What options say beyond offsets. Times of records have become seqs."""
        if reading.events != "leases":
            return cls()
        return cls(from_ms=reading.start.at_ms, end_ms=reading.end.at_ms)

    def topics_in(self, names: frozenset[str]) -> Pushdown:
        """Only these topics."""
        return replace(self, topics=names if self.topics is None else self.topics & names)

    def seqs(self, first: int | None, last: int | None) -> Pushdown:
        """Only these seqs or orders."""
        return replace(self, first=_most(self.first, first), last=_least(self.last, last))

    def micros(self, first: int | None, last: int | None) -> Pushdown:
        """Only these times, in microseconds."""
        return replace(
            self,
            from_micros=_most(self.from_micros, first),
            to_micros=_least(self.to_micros, last),
        )

    def of_ranges(self, ranges: Sequence[Range]) -> list[Range]:
        """The part of ranges that is asked for."""
        reduced = []
        for range in ranges:
            if range.topic and self.topics is not None and range.topic not in self.topics:
                continue
            first = max(range.first, self.first if self.first is not None else range.first)
            end = min(range.end, self.last + 1 if self.last is not None else range.end)
            if first < end:
                reduced.append(range._replace(first=first, end=end))
        return reduced

    def meets(self, first_ms: int, last_ms: int) -> bool:
        """Whether something between two times may be asked for."""
        low = max(self.from_ms or 0, (self.from_micros or 0) // 1000)
        if last_ms < low:
            return False
        if self.end_ms is not None and first_ms >= self.end_ms:
            return False
        return self.to_micros is None or first_ms * 1000 <= self.to_micros


def _most(one: int | None, other: int | None) -> int | None:
    return max((bound for bound in (one, other) if bound is not None), default=None)


def _least(one: int | None, other: int | None) -> int | None:
    return min((bound for bound in (one, other) if bound is not None), default=None)
