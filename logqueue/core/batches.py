"""The live batches of one topic, in the order of their seqs.

Owns: where a batch is found, counted and taken away. Batches are kept in chunks that know their
sums, so that a look-up is two bisections and a front of any length is removed in steps of whole
chunks. Small neighbours become one batch, a few at a time, so that records written one by one cost
what records written together do. Must not know: topics, leases, tags, why a record is removed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from logqueue.core.batch import JOINED_BYTES_MAX, JOINED_RECORDS_MAX, Batch, Run
from logqueue.events.block import size_at, size_between, size_total

CHUNK_BATCHES_MAX = 512

JOINED_AT_ONCE = 16
JOINED_BELOW = (16, 64)
"""So many neighbours, all of fewer records than the first of these, become one; so do as many of
fewer than the second. So a record written alone is copied twice, and larger batches stay as they
are."""

_batches = attrgetter("batches")
_first_seq = attrgetter("first_seq")


class BatchChunk:
    """Neighbouring batches and what they come to.

    Attributes:
        firsts: First seq of each batch.
        live, size: Records not removed, and their bytes as the limits count them.
        newest: No record here was accepted later, ms since the epoch.
        oldest_segment: No batch here is in an earlier log segment.
        unjoined: Batches that were added at the end since neighbours were last joined.
    """

    __slots__ = ("batches", "firsts", "live", "newest", "oldest_segment", "size", "unjoined")

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches
        self.firsts = [batch.first_seq for batch in batches]
        self.live = sum(batch.live for batch in batches)
        self.size = sum(live_size(batch) for batch in batches)
        self.newest = max((batch.newest for batch in batches), default=0)
        self.oldest_segment = min((batch.segment for batch in batches), default=0)
        self.unjoined = 0

    @property
    def is_full(self) -> bool:
        """Whether every seq from the first to the last belongs to a live record."""
        return self.live == self.batches[-1].last_seq - self.firsts[0] + 1

    def join_last(self) -> None:
        """Make one of small neighbours at the end, where there are enough of a size."""
        self.unjoined = 0
        batches = self.batches
        for records in JOINED_BELOW:
            start = stop = len(batches)
            while start and batches[start - 1].count < records and stop - start < JOINED_AT_ONCE:
                start -= 1
            if stop - start == JOINED_AT_ONCE:
                batches[start:] = _joined(batches[start:])
                self.firsts[start:] = [batch.first_seq for batch in batches[start:]]


class Overrun(NamedTuple):
    """By how much a bound is exceeded, once everything up to and with `floor` has gone."""

    floor: int
    records: int
    size: int


def _joined(batches: Sequence[Batch]) -> list[Batch]:
    """Neighbouring batches, those as one that may be."""
    joined: list[Batch] = []
    run: list[Batch] = []
    records = size = 0
    for batch in batches:
        records += batch.count
        size += len(batch.block)
        fits = records <= JOINED_RECORDS_MAX and size <= JOINED_BYTES_MAX
        if run and not (fits and batch.can_follow(run[-1])):
            joined.append(Batch.joined(run))
            run = []
            records, size = batch.count, len(batch.block)
        run.append(batch)
    joined.append(Batch.joined(run))
    return joined


def live_size(batch: Batch) -> int:
    """Bytes of a batch's live records as the limits count them."""
    if batch.live == batch.count:
        return size_total(batch.block)
    block = batch.block
    return sum(size_between(block, start, end) for start, end in batch.stretches(0, batch.count))


class Batches:
    """All live batches of a topic.

    Attributes:
        live, size: Records not removed, and their bytes as the limits count them.
    """

    __slots__ = ("_chunks", "_starts", "live", "size")

    def __init__(self) -> None:
        self.live = 0
        self.size = 0
        self._chunks: list[BatchChunk] = []
        # The first seq of each chunk.
        self._starts: list[int] = []

    # -- queries ---------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __len__(self) -> int:
        return sum(len(chunk.batches) for chunk in self._chunks)

    def __iter__(self) -> Iterator[Batch]:
        return chain.from_iterable(chunk.batches for chunk in self._chunks)

    @property
    def chunks(self) -> Sequence[BatchChunk]:
        """The chunks, for those who go by their sums."""
        return self._chunks

    def chunks_from(self, seq: int) -> Sequence[BatchChunk]:
        """The chunks that may hold this seq or a higher one."""
        return self._chunks[max(bisect_right(self._starts, seq) - 1, 0) :]

    @property
    def first(self) -> Batch:
        """The batch with the lowest seqs; there must be one."""
        return self._chunks[0].batches[0]

    @property
    def last(self) -> Batch:
        """The batch with the highest seqs; there must be one."""
        return self._chunks[-1].batches[-1]

    def find(self, seq: int) -> Batch | None:
        """The batch whose range holds this seq, if any."""
        place = bisect_right(self._starts, seq) - 1
        if place < 0:
            return None
        chunk = self._chunks[place]
        batch = chunk.batches[bisect_right(chunk.firsts, seq) - 1]
        return batch if seq <= batch.last_seq else None

    def since(self, seq: int) -> Iterator[Batch]:
        """Batches that may hold live records with this seq or a higher one, ascending."""
        chunks = self._chunks
        if not chunks or seq > chunks[-1].batches[-1].last_seq:
            return iter(())
        place = max(bisect_right(self._starts, seq) - 1, 0)
        chunk = chunks[place]
        index = max(bisect_right(chunk.firsts, seq) - 1, 0)
        if chunk.batches[index].last_seq < seq:
            index += 1
        later = map(_batches, chunks[place + 1 :])
        return chain(chunk.batches[index:], chain.from_iterable(later))

    def younger_from(self, seq: int, time: int) -> Iterator[Batch]:
        """The same without most of those in which all records are from before a time."""
        chunks = (chunk for chunk in self.chunks_from(seq) if chunk.newest >= time)
        batches = chain.from_iterable(chunk.batches for chunk in chunks)
        return (batch for batch in batches if batch.last_seq >= seq and batch.newest >= time)

    def live_seqs(self, start: int, count: int, accepted_from: int = 0) -> list[int]:
        """Up to `count` live seqs from `start` on, leaving out records from before a time."""
        taken: list[int] = []
        batches = self.younger_from(start, accepted_from) if accepted_from else self.since(start)
        for batch in batches:
            seqs = batch.live_seqs(start)
            if accepted_from and not batch.is_younger_than(accepted_from):
                seqs = [s for s in seqs if batch.ts_at(batch.index_of(s)) >= accepted_from]
            taken.extend(seqs[: count - len(taken)])
            if len(taken) == count:
                break
        return taken

    def count_live(self, start: int, stop: int) -> int:
        """How many live seqs there are from `start` on and below `stop`."""
        count = 0
        for chunk in self.chunks_from(start):
            if chunk.firsts[0] >= stop:
                break
            if chunk.firsts[0] >= start and chunk.batches[-1].last_seq < stop:
                count += chunk.live
                continue
            for batch in chunk.batches:
                if batch.first_seq >= start and batch.last_seq < stop:
                    count += batch.live
                elif batch.first_seq < stop and batch.last_seq >= start:
                    count += len(batch.live_seqs(start, stop - 1))
        return count

    def runs(self, seqs: Sequence[int]) -> list[Run]:
        """Where the live records among ascending seqs are; the rest is passed over."""
        runs: list[Run] = []
        at = 0
        while at < len(seqs):
            batch = self.find(seqs[at])
            if batch is None:
                at += 1
                continue
            end = bisect_right(seqs, batch.last_seq, at)
            while at < end:
                start, count = batch.run_of(seqs, at)
                if start >= 0:
                    runs.append((batch, start, start + count))
                at += count
        return runs

    def places(self, seqs: Sequence[int]) -> list[tuple[Batch, Sequence[int]]]:
        """In which batches the live records among ascending seqs are, and at which places of their
        blocks; the rest is passed over."""
        found: list[tuple[Batch, Sequence[int]]] = []
        at = 0
        while at < len(seqs):
            batch = self.find(seqs[at])
            if batch is None:
                at += 1
                continue
            end = bisect_right(seqs, batch.last_seq, at)
            found.append((batch, batch.places_of(seqs[at:end])))
            at = end
        return found

    def live_among(self, seqs: Sequence[int]) -> list[int]:
        """Those of ascending seqs, without repeats, that belong to live records."""
        taken: list[int] = []
        for place, at, end in self._by_chunk(seqs):
            chunk = self._chunks[place]
            if chunk.is_full:
                taken.extend(seqs[at : bisect_right(seqs, chunk.batches[-1].last_seq, at, end)])
                continue
            last = 0
            for seq in seqs[at:end]:
                if seq > last:
                    batch = chunk.batches[bisect_right(chunk.firsts, seq) - 1]
                    last = batch.last_seq
                if batch.index_of(seq) >= 0:
                    taken.append(seq)
        return taken

    def _by_chunk(self, seqs: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Which chunk the seqs from one place up to another fall to. That chunk may be changed or
        taken out before the next is asked for."""
        starts = self._starts
        at = 0
        while at < len(seqs) and starts:
            place = bisect_right(starts, seqs[at]) - 1
            if place < 0:
                at = bisect_left(seqs, starts[0], at)
                continue
            end = len(seqs)
            if place + 1 < len(starts):
                end = bisect_left(seqs, starts[place + 1], at)
            yield place, at, end
            at = end

    def front_of(
        self, time: int, others: Collection[int] = (), limit: int | None = None
    ) -> tuple[int, int]:
        """The front's unbroken run of records that are from before a time or among others.

        What was removed before is not part of it: it is not lost now.

        Args:
            time: ms since the epoch.
            others: Seqs.
            limit: Records at most; None for any number.

        Returns:
            Its last seq, 0 when there is no such run, and how many records it has.
        """
        floor = count = 0
        most = self.live if limit is None else limit
        for chunk in self._chunks:
            if chunk.newest < time and count + chunk.live <= most:
                floor = chunk.batches[-1].last_live_seq()
                count += chunk.live
                continue
            for batch in chunk.batches:
                if batch.newest < time and count + batch.live <= most:
                    floor = batch.last_live_seq()
                    count += batch.live
                    continue
                for index in batch.live_indexes():
                    seq = batch.seq_at(index)
                    if count == most or (batch.ts_at(index) >= time and seq not in others):
                        return floor, count
                    floor = seq
                    count += 1
        return floor, count

    def front_over(self, records: int, size: int, limit: int | None = None) -> Overrun:
        """How much of the front must go to make good an overrun of records, of bytes, or both.

        Args:
            records, size: The overrun.
            limit: Records that may go at most; None for any number.

        Returns:
            The floor (0 when there is no overrun), and what is left of the overrun when even all
            of the batches, or as many as may go, are not enough.
        """
        floor = 0
        left = self.live if limit is None else limit
        for chunk in self._chunks:
            if (chunk.live <= records or chunk.size <= size) and chunk.live <= left:
                records -= chunk.live
                size -= chunk.size
                left -= chunk.live
                floor = chunk.batches[-1].last_live_seq()
                continue
            for batch in chunk.batches:
                if records <= 0 and size <= 0:
                    return Overrun(floor, records, size)
                of_batch = live_size(batch)
                if (batch.live <= records or of_batch <= size) and batch.live <= left:
                    records -= batch.live
                    size -= of_batch
                    left -= batch.live
                    floor = batch.last_live_seq()
                    continue
                for index in batch.live_indexes():
                    if not left or (records <= 0 and size <= 0):
                        return Overrun(floor, records, size)
                    records -= 1
                    left -= 1
                    size -= size_at(batch.block, index)
                    floor = batch.seq_at(index)
        return Overrun(floor, records, size)

    # -- changes ---------------------------------------------------------------------------------

    def add(self, batch: Batch, size: int) -> None:
        """Take in a batch with all its records live; `size` as the limits count it."""
        chunks = self._chunks
        first = batch.first_seq
        place = len(chunks) - 1
        if not chunks or first > chunks[-1].firsts[-1]:
            if not chunks or len(chunks[-1].batches) >= CHUNK_BATCHES_MAX:
                chunks.append(BatchChunk([]))
                self._starts.append(first)
                place += 1
            chunk = chunks[place]
            chunk.batches.append(batch)
            chunk.firsts.append(first)
            chunk.unjoined += 1
        else:
            place = max(bisect_right(self._starts, first) - 1, 0)
            chunk = chunks[place]
            insort(chunk.batches, batch, key=_first_seq)
            insort(chunk.firsts, first)
            self._starts[place] = chunk.firsts[0]
        if chunk.live == 0 or batch.segment < chunk.oldest_segment:
            chunk.oldest_segment = batch.segment
        chunk.newest = max(chunk.newest, batch.newest)
        chunk.live += batch.live
        chunk.size += size
        self.live += batch.live
        self.size += size
        if chunk.unjoined >= JOINED_AT_ONCE:
            chunk.join_last()
        if len(chunk.batches) > 2 * CHUNK_BATCHES_MAX:
            self._split(place)

    def cut_before(self, seq: int) -> None:
        """Have no batch reach from below a seq to it: the one that does becomes two."""
        batch = self.find(seq)
        if batch is None or batch.first_seq == seq:
            return
        place = bisect_right(self._starts, seq) - 1
        chunk = self._chunks[place]
        index = bisect_right(chunk.firsts, seq) - 1
        end = batch.place_from(seq)
        parts = [part for part in (batch.part(0, end), batch.part(end, batch.count)) if part]
        chunk.batches[index : index + 1] = parts
        chunk.firsts[index : index + 1] = [part.first_seq for part in parts]
        self._starts[place] = chunk.firsts[0]

    def _split(self, place: int) -> None:
        batches = self._chunks[place].batches
        half = len(batches) // 2
        parts = [BatchChunk(batches[:half]), BatchChunk(batches[half:])]
        self._chunks[place : place + 1] = parts
        self._starts[place : place + 1] = [part.firsts[0] for part in parts]

    def remove(self, seqs: Sequence[int]) -> list[int]:
        """Remove records; seqs that are not live are passed over.

        Args:
            seqs: Ascending, without repeats.

        Returns:
            The seqs that were live.
        """
        removed: list[int] = []
        for place, at, end in self._by_chunk(seqs):
            chunk = self._chunks[place]
            live, size = chunk.live, chunk.size
            if end - at == live and chunk.is_full and seqs[end - 1] <= chunk.batches[-1].last_seq:
                # As many as there are, ascending without repeats: this slice is the whole chunk.
                removed.extend(seqs[at:end])
                del self._chunks[place]
                del self._starts[place]
            else:
                self._remove_from(place, seqs[at:end], removed)
                live -= chunk.live
                size -= chunk.size
            self.live -= live
            self.size -= size
        return removed

    def _remove_from(self, place: int, seqs: Sequence[int], removed: list[int]) -> None:
        """Remove records of one chunk."""
        chunk = self._chunks[place]
        firsts, batches = chunk.firsts, chunk.batches
        before = len(removed)
        size = 0
        emptied: list[int] = []
        at = 0
        while at < len(seqs):
            seq = seqs[at]
            index = bisect_right(firsts, seq) - 1
            batch = batches[index]
            last = batch.last_seq
            end = at + batch.count
            if seq > last:
                at += 1
            elif (
                seq == batch.first_seq
                and end <= len(seqs)
                and seqs[end - 1] == last
                and batch.is_whole
            ):
                # The whole batch, for the same reason.
                removed.extend(seqs[at:end])
                size += size_total(batch.block)
                emptied.append(index)
                at = end
            else:
                while at < len(seqs) and seqs[at] <= last:
                    start, count = batch.run_of(seqs, at)
                    if start >= 0:
                        removed.extend(seqs[at : at + count])
                        size += size_between(batch.block, start, start + count)
                        batch.remove(start, start + count)
                    at += count
                if not batch.live:
                    emptied.append(index)
                elif batch.is_sparse:
                    batches[index] = batch.thinned()
                    firsts[index] = batches[index].first_seq
        self._starts[place] = firsts[0]
        chunk.live -= len(removed) - before
        chunk.size -= size
        for index in reversed(emptied):
            self._take_out(place, index)

    def _take_out(self, place: int, index: int) -> None:
        """Take out a batch that is counted no more."""
        chunk = self._chunks[place]
        del chunk.batches[index]
        del chunk.firsts[index]
        if not chunk.batches:
            del self._chunks[place]
            del self._starts[place]
        elif not index:
            self._starts[place] = chunk.firsts[0]

    def take_range(self, first: int, last: int) -> list[Batch]:
        """Take out, and return, every batch that reaches into a range of seqs."""
        taken: list[Batch] = []
        for batch in self.since(first):
            if batch.first_seq > last:
                break
            if batch.last_seq >= first:
                taken.append(batch)
        for batch in taken:
            place = bisect_right(self._starts, batch.first_seq) - 1
            chunk = self._chunks[place]
            size = live_size(batch)
            chunk.live -= batch.live
            chunk.size -= size
            self.live -= batch.live
            self.size -= size
            self._take_out(place, bisect_left(chunk.firsts, batch.first_seq))
        # Where a segment was, for tidying not to look there again.
        place = max(bisect_right(self._starts, first) - 1, 0)
        for chunk in self._chunks[place : place + 2]:
            chunk.oldest_segment = min(batch.segment for batch in chunk.batches)
        return taken

    def cut_front(self, floor: int) -> list[BatchChunk]:
        """Take out, and return, every batch that ends at a seq or before."""
        place = bisect_right(self._starts, floor)
        if place and self._chunks[place - 1].batches[-1].last_seq > floor:
            place -= 1
        gone = self._chunks[:place]
        del self._chunks[:place]
        del self._starts[:place]
        if self._chunks and self._chunks[0].batches[0].last_seq <= floor:
            gone.append(self._cut_chunk(floor))
        self.live -= sum(chunk.live for chunk in gone)
        self.size -= sum(chunk.size for chunk in gone)
        return gone

    def _cut_chunk(self, floor: int) -> BatchChunk:
        """The front of the first chunk, which reaches beyond the floor."""
        chunk = self._chunks[0]
        end = bisect_right(chunk.firsts, floor)
        if chunk.batches[end - 1].last_seq > floor:
            end -= 1
        gone = BatchChunk(chunk.batches[:end])
        del chunk.batches[:end]
        del chunk.firsts[:end]
        self._starts[0] = chunk.firsts[0]
        chunk.live -= gone.live
        chunk.size -= gone.size
        return gone
