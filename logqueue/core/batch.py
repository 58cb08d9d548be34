"""One batch of records in memory: the block as it was logged, and which of it still lives.

Owns: the map from a seq to its place in a block, the marks of removed records, and how neighbouring
batches become one. Must not know: topics, why a record is removed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

from logqueue.events import block as blocks
from logqueue.events.block import SEQ, TS, BlockView
from logqueue.events.split_block import Block

JOINED_RECORDS_MAX = 256
JOINED_BYTES_MAX = 64 << 10
"""Bounds of a batch that is joined of others. It is freed with its last record, so both also bound
what one record that stays longer than its neighbours can hold in memory."""

THINNED_FROM = 16
THINNED_RECORDS_MAX = 1024
THINNED_BYTES_MAX = 1 << 20
"""Batches of so many records are made smaller when a quarter of them is left, and these come to no
more than this; so what stays long holds little of what was written with it."""

Record = tuple[int, int, blocks.Texts]
"""One live record as replies need it: seq, ts, JSON fragments (b"" when absent)."""


Run = tuple["Batch", int, int]
"""Neighbouring places of one batch: from the first up to, but without, the second."""


class Batch:
    """A batch with consecutive seqs, or (once moved) with a list of its own.

    Attributes:
        block: The records as they were logged; the data of a large one may be outside memory.
        ts, newest: No record here was accepted earlier, or later, ms since the epoch.
        live: Records not removed. A batch with none left is dropped by its topic.
        segment: The log segment that holds its payload; 0 when it is not logged.
        hops: How many routers its records have come through.
    """

    __slots__ = (
        "_gone", "_seqs", "_times", "block", "count", "first_seq", "hops", "last_seq", "live",
        "newest", "segment", "ts",
    )  # fmt: skip

    def __init__(
        self, block: Block, first_seq: int, count: int, ts: int, segment: int, hops: int = 0
    ) -> None:
        assert first_seq > 0 and count > 0
        self.block = block
        self.count = count
        self.first_seq = first_seq
        # A batch of one shares the number: memory per record is what bounds a backlog.
        self.last_seq = first_seq + count - 1 if count > 1 else first_seq
        self.ts = self.newest = ts
        self.live = count
        self.segment = segment
        self.hops = hops
        self._gone: bytearray | None = None
        self._seqs: array[int] | None = None
        self._times: array[int] | None = None

    @classmethod
    def moved(cls, block: Block, segment: int, hops: int = 0) -> Batch:
        """A batch whose block brings its own seqs and times."""
        view = BlockView(block)
        seqs, times = view.numbers(SEQ), view.numbers(TS)
        assert seqs is not None and times is not None, "a moved block says which records it holds"
        batch = cls(block, seqs[0], view.count, times[0], segment, hops)
        if view.count > 1:
            batch.last_seq = seqs[-1]
            batch._seqs = array("Q", seqs)
            batch._take_times(array("Q", times))
        return batch

    @classmethod
    def joined(cls, parts: Sequence[Batch]) -> Batch:
        """One batch of the records of several that `can_follow` each other, all of them whole."""
        first = parts[0]
        if len(parts) == 1:
            return first
        block = blocks.join([part.block for part in parts if isinstance(part.block, bytes)])
        times = [*chain.from_iterable(part.times_at(0, part.count) for part in parts)]
        return cls.timed(block, first.first_seq, times, first.segment, first.hops)

    @classmethod
    def timed(
        cls, block: bytes, first_seq: int, times: Sequence[int], segment: int, hops: int = 0
    ) -> Batch:
        """A batch with consecutive seqs whose records came at their own times."""
        batch = cls(block, first_seq, len(times), times[0], segment, hops)
        if times.count(times[0]) < len(times):
            batch._take_times(array("Q", times))
        return batch

    @property
    def is_sparse(self) -> bool:
        """Whether so much of the block belongs to removed records that it is worth another; not of
        one whose data leaves memory by itself."""
        live, count = self.live, self.count
        return (
            isinstance(self.block, bytes)
            and 4 * live <= count
            and count >= THINNED_FROM
            and live <= THINNED_RECORDS_MAX
            and len(self.block) * live <= THINNED_BYTES_MAX * count
        )

    def thinned(self) -> Batch:
        """The live records as a batch of their own."""
        runs = [*self.stretches(0, self.count)]
        if len(runs) == 1:
            part = self.part(*runs[0])
            assert part is not None
            return part
        places = [*self.live_indexes()]
        seqs = [self.seq_at(place) for place in places]
        block = blocks.select(BlockView(self.block), places)
        batch = Batch(block, seqs[0], len(seqs), self.ts, self.segment, self.hops)
        batch._take_seqs(array("Q", seqs))
        if self._times is not None:
            batch._take_times(array("Q", [self._times[place] for place in places]))
        return batch

    def can_follow(self, before: Batch) -> bool:
        """Whether the records of two batches may share one batch: they are neighbours, alike, and
        nothing of them was removed."""
        return (
            self.first_seq == before.last_seq + 1
            and isinstance(self.block, bytes)
            and isinstance(before.block, bytes)
            and self.segment == before.segment
            and self.hops == before.hops
            and self.is_plain == before.is_plain
            and self.is_whole
            and before.is_whole
            and blocks.has_same_numbers(self.block, before.block)
            and not blocks.is_moved(self.block)
        )

    def _take_seqs(self, seqs: array[int]) -> None:
        if seqs[-1] - seqs[0] >= len(seqs):
            self.last_seq = seqs[-1]
            self._seqs = seqs

    def _take_times(self, times: array[int]) -> None:
        self._times = times
        self.ts, self.newest = min(times), max(times)

    @property
    def is_plain(self) -> bool:
        """Whether no record here has a key, a delay or a time to live of its own."""
        return blocks.is_plain(self.block)

    @property
    def is_whole(self) -> bool:
        """Consecutive seqs and nothing removed."""
        return self._seqs is None and self._gone is None

    def index_of(self, seq: int) -> int:
        """Place of a live record in the block, -1 when it is not (or no longer) here."""
        if not self.first_seq <= seq <= self.last_seq:
            return -1
        if self._seqs is None:
            index = seq - self.first_seq
        else:
            index = bisect_left(self._seqs, seq)
            if self._seqs[index] != seq:
                return -1
        if self._gone is not None and self._gone[index]:
            return -1
        return index

    def size_of(self, seq: int) -> int:
        """Bytes of a live record as the limits count them; 0 when it is not here."""
        index = self.index_of(seq)
        return blocks.size_at(self.block, index) if index >= 0 else 0

    def seq_at(self, index: int) -> int:
        """The seq of a place in the block."""
        return self.first_seq + index if self._seqs is None else self._seqs[index]

    def ts_at(self, index: int) -> int:
        """When a record was accepted, ms since the epoch."""
        return self.ts if self._times is None else self._times[index]

    def live_seqs(self, start: int = 0, last: int | None = None) -> Sequence[int]:
        """Seqs of live records that are not below `start` nor above `last`, ascending."""
        if self._gone is None and self._seqs is None:
            end = self.last_seq if last is None else min(last, self.last_seq)
            return range(max(start, self.first_seq), end + 1)
        at = self.place_from(start)
        end = self.count if last is None else self.place_from(last + 1)
        if self._gone is None:
            return self.seqs_at(at, end)
        runs = [self.seqs_at(*stretch) for stretch in self.stretches(at, end)]
        return runs[0] if len(runs) == 1 else [*chain.from_iterable(runs)]

    def live_indexes(self) -> Iterator[int]:
        """Places of the live records, ascending."""
        gone = self._gone
        if gone is None:
            yield from range(self.count)
            return
        index = gone.find(0)
        while index >= 0:
            yield index
            index = gone.find(0, index + 1)

    def place_from(self, seq: int) -> int:
        """The first place with this seq or a higher one; `count` when there is none."""
        if seq <= self.first_seq:
            return 0
        if self._seqs is None:
            return min(seq - self.first_seq, self.count)
        return bisect_left(self._seqs, seq)

    def stretches(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Unbroken runs of live places within `start` to `end` (not included), ascending."""
        gone = self._gone
        if gone is None:
            if start < end:
                yield start, end
            return
        start = gone.find(0, start, end)
        while start >= 0:
            stop = gone.find(1, start, end)
            if stop < 0:
                stop = end
            yield start, stop
            start = gone.find(0, stop, end)

    def seqs_at(self, start: int, end: int) -> Sequence[int]:
        """Seqs of neighbouring places, whether they are live or not."""
        if self._seqs is None:
            return range(self.first_seq + start, self.first_seq + end)
        return self._seqs[start:end]

    def times_at(self, start: int, end: int) -> Sequence[int]:
        """When neighbouring places were accepted, ms since the epoch."""
        if self._times is None:
            return [self.ts] * (end - start)
        return self._times[start:end]

    def is_younger_than(self, time: int) -> bool:
        """Whether all records were accepted at this time (ms) or later."""
        return self.ts >= time

    def first_live_seq(self) -> int:
        """Seq of the first live record."""
        return self.seq_at(self._first_live())

    def first_live_ts(self) -> int:
        """When the first live record was accepted, ms since the epoch."""
        return self.ts_at(self._first_live())

    def _first_live(self) -> int:
        assert self.live > 0
        return 0 if self._gone is None else self._gone.find(0)

    def last_live_seq(self) -> int:
        """Seq of the last live record."""
        assert self.live > 0
        return self.seq_at(self.count - 1 if self._gone is None else self._gone.rfind(0))

    def records(self, start: int = 0) -> Iterator[Record]:
        """Live records that are not below `start`, ascending."""
        indexes = [i for i in self.live_indexes() if self.seq_at(i) >= start]
        return self.at(indexes)

    def at(self, indexes: Sequence[int]) -> Iterator[Record]:
        """The records at some places of the block."""
        seqs: Iterable[int]
        times: Iterable[int]
        if self._seqs is None:
            first = self.first_seq
            seqs = [first + i for i in indexes]
        else:
            seqs = [self._seqs[i] for i in indexes]
        if self._times is None:
            times = repeat(self.ts, len(indexes))
        else:
            times = [self._times[i] for i in indexes]
        return zip(seqs, times, BlockView(self.block).rows(indexes), strict=True)

    def behind(self, seq: int) -> list[Batch]:
        """This batch without its records up to and with a seq: itself, a part, or none."""
        if seq < self.first_seq:
            return [self]
        part = self._part(BlockView(self.block), self.place_from(seq + 1), self.count)
        return [] if part is None else [part]

    def around(self, seqs: Sequence[int]) -> list[Batch]:
        """What is left of this batch when some seqs of its range, ascending, are cut out: batches
        between them, those without live records left out."""
        parts: list[Batch | None] = []
        view, start = BlockView(self.block), 0
        for seq in seqs:
            end = self.place_from(seq)
            parts.append(self._part(view, start, end))
            start = end + (end < self.count and self.seq_at(end) == seq)
        parts.append(self._part(view, start, self.count))
        return [part for part in parts if part is not None]

    def part(self, start: int, end: int) -> Batch | None:
        """Neighbouring places as a batch of their own, None when no record lives there."""
        return self._part(BlockView(self.block), start, end)

    def run_from(self, start: int, stop: int) -> int:
        """The place behind an unbroken run of neighbouring seqs, at most a place to stop at."""
        stop = min(stop, self.count)
        seqs = self._seqs
        if seqs is None or seqs[stop - 1] - seqs[start] == stop - 1 - start:
            return stop
        end = start + 1
        while seqs[end] == seqs[end - 1] + 1:
            end += 1
        return end

    def _part(self, view: BlockView, start: int, end: int) -> Batch | None:
        gone = self._gone[start:end] if self._gone is not None else None
        live = end - start - (gone.count(1) if gone is not None else 0)
        if not live:
            return None
        block, first_seq = blocks.cut(view, start, end), self.seq_at(start)
        part = Batch(block, first_seq, end - start, self.ts, self.segment, self.hops)
        # Of its own seqs the block may know nothing: it may be a part of what was logged.
        if self._seqs is not None:
            part._take_seqs(self._seqs[start:end])
        if self._times is not None:
            part._take_times(self._times[start:end])
        part.live = live
        part._gone = gone if live < end - start else None
        return part

    def remove(self, start: int, end: int) -> None:
        """Mark neighbouring live records as removed."""
        if self._gone is None:
            self._gone = bytearray(self.count)
        assert self._gone.find(1, start, end) < 0, "a record is removed once"
        self._gone[start:end] = b"\1" * (end - start)
        self.live -= end - start

    def places_of(self, seqs: Sequence[int]) -> Sequence[int]:
        """The places of the live records among ascending seqs within its range."""
        gone, before = self._gone, self.first_seq
        if self._seqs is not None:
            return [index for seq in seqs if (index := self.index_of(seq)) >= 0]
        first, end = seqs[0] - before, seqs[-1] - before + 1
        if end - first == len(seqs) and (gone is None or gone.find(1, first, end) < 0):
            return range(first, end)
        return [seq - before for seq in seqs if gone is None or not gone[seq - before]]

    def run_of(self, seqs: Sequence[int], at: int) -> tuple[int, int]:
        """The place of the live record with one of ascending seqs, -1 when it is not here; and how
        many of the seqs from there on are those of the places that follow, all of them live."""
        seq = seqs[at]
        if self._seqs is not None:
            return self.index_of(seq), 1
        place = seq - self.first_seq
        if not 0 <= place < self.count or (self._gone is not None and self._gone[place]):
            return -1, 1
        count = bisect_right(seqs, self.last_seq, at) - at
        if seqs[at + count - 1] - seq != count - 1:
            # Not all are neighbours; where the first gap is takes a search.
            steps = range(count)
            count = bisect_left(steps, 1, key=lambda step: seqs[at + step] - seq - step)
        if self._gone is not None:
            removed = self._gone.find(1, place, place + count)
            count = count if removed < 0 else removed - place
        return place, count
