"""From indexes of segments to topics, offsets and tasks.

Owns: what a list of segment indexes says of topics and of job events, where the log has gaps, and
how reads are packed into tasks. Pure: the same ranges and the same indexes make the same tasks,
whenever. Must not know: pyspark, files, HTTP. See `holdings` for what a loss is.

A topic that was deleted and recreated is several instances. A stream reads the newest one; a batch
from the earliest reads the others, too, and so do lease events. Column `log_id` tells them apart.
What a deleted topic held is read as long as the log still has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from logqueue.pipeline.reading.available import AvailableEvents, AvailableRange, Piece, Range
from logqueue.pipeline.reading.options import Reading, Selection
from logqueue.pipeline.reading.pushdown import Pushdown
from logqueue.segments import ranges as rg
from logqueue.segments.index import SegmentIndex, TopicPart
from logqueue.segments.known import TopicFacts
from logqueue.segments.payloads import UNCHECKED
from logqueue.segments.plan import (
    SegmentRead,
    TopicRead,
    choose,
    plan_events,
    plan_records,
    topics_of,
)


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Segments that one task reads, each with what to take of it."""

    reads: tuple[SegmentRead, ...]

    @property
    def bytes(self) -> int:
        """Bytes of log that are fetched for it."""
        return sum(map(weight, self.reads))


def weight(read: SegmentRead) -> int:
    """Bytes of log that are fetched for a read, of source segments too."""
    return read.bytes + sum(source.bytes for source in read.source_segments)


FirstOf = Callable[[SegmentRead], int | None]


class Survey:
    """What the indexes of both logs say of the topics that are asked for."""

    def __init__(
        self, jobs: Sequence[SegmentIndex], leases: Sequence[SegmentIndex], selection: Selection
    ) -> None:
        """Look at indexes.

        Args:
            jobs, leases: Of all segments at hand, each ascending.
            selection: The topics that are asked for.
        """
        self.jobs = jobs
        self.leases = leases
        self.log_id = jobs[0].log_id if jobs else ""
        self._known = topics_of(jobs)
        names = selection.names if selection.pattern is None else None
        self._instances = choose(self._known, names, selection.pattern)
        self._newest: dict[str, TopicFacts] = {}
        for first, last in self._instances:
            for number in range(first, last + 1):
                facts = self._known.topics[number]
                self._newest[facts.name] = facts

    # -- records ---------------------------------------------------------------------------------

    def available(self) -> dict[str, AvailableRange]:
        """The newest instance of each topic, by name."""
        wanted: dict[int, rg.Ranges | None] = {t.topic: None for t in self._newest.values()}
        reads = plan_records(self.jobs, wanted)
        pieces: dict[int, list[Piece]] = {topic: [] for topic in wanted}
        indexes = {index.segment: index for index in self.jobs}
        for read in reads:
            for topic in read.topics:
                part = indexes[read.segment].part(topic.topic)
                assert part is not None
                pieces[topic.topic].extend(_pieces(topic, part))
        return {
            name: self._available(facts, sorted(pieces[facts.topic]))
            for name, facts in sorted(self._newest.items())
        }

    def older(self) -> list[AvailableRange]:
        """Records of instances that were deleted and recreated since, as far as they have
        any record."""
        newest = {facts.topic for facts in self._newest.values()}
        numbers = [n for first, last in self._instances for n in range(first, last + 1)]
        found = [self.available_instance(number) for number in numbers if number not in newest]
        return [available for available in found if available.pieces]

    def available_instance(self, number: int) -> AvailableRange:
        """One instance, whether or not it is the newest of its name."""
        pieces: list[Piece] = []
        indexes = {index.segment: index for index in self.jobs}
        for read in plan_records(self.jobs, {number: None}):
            part = indexes[read.segment].part(number)
            assert part is not None
            pieces.extend(_pieces(read.topics[0], part))
        return self._available(self._known.topic(number), sorted(pieces))

    def record_reads(self, wanted: Mapping[int, rg.Ranges]) -> list[SegmentRead]:
        """What to read for seqs of some instances."""
        return plan_records(self.jobs, dict(wanted))

    def seq_at(self, topic: AvailableRange, at_ms: int, first_of: FirstOf) -> int:
        """The first seq that was taken in at a time or later; one behind the head for none.

        Args:
            first_of: Looks into segments: the lowest seq of a read from that time on, or None.
        """
        number = number_of(topic.log)
        parts = {index.segment: index.part(number) for index in self.jobs}
        later: list[tuple[int, SegmentRead]] = []
        for read in plan_records(self.jobs, {number: None}):
            part, (taken,) = parts[read.segment], read.topics
            assert part is not None
            kept = msgspec.structs.replace(
                taken,
                ranges=taken.ranges if part.last_ts >= at_ms else [],
                moved=taken.moved if part.moved_last_ts >= at_ms else [],
            )
            seqs = rg.union(kept.ranges, kept.moved)
            if seqs:
                later.append((seqs[0][0], msgspec.structs.replace(read, topics=[kept])))
        found = topic.next
        for first, read in sorted(later, key=lambda entry: entry[0]):
            if first >= found:
                break
            hit = first_of(read)
            found = found if hit is None else min(found, hit)
        return found

    def _available(self, facts: TopicFacts, pieces: list[Piece]) -> AvailableRange:
        number = facts.topic
        parts = [part for index in self.jobs if (part := index.part(number)) is not None]
        originals = rg.union(*(part.ranges for part in parts))
        spans = rg.union(originals, *(part.moved for part in parts))
        head = max(facts.head, spans[-1][1] if spans else 0)
        # The source of a copy may be gone, though the copy itself is in the log.
        readable = rg.union((piece.first, piece.last) for piece in pieces)
        gaps = rg.union(self._gaps(number), rg.without(originals, readable))
        return AvailableRange(facts.name, f"{self.log_id}-{number}", head + 1, pieces, gaps)

    def _gaps(self, number: int) -> rg.Ranges:
        """Seqs of a topic that were in segments which are not available any longer."""
        gaps: rg.Ranges = []
        before, last, lost = 0, 0, False
        for index in self.jobs:
            lost = lost or index.segment != before + 1
            before = index.segment
            part = index.part(number)
            ranges = part.ranges if part is not None else []
            if lost:
                facts = next((facts for facts in index.learned if facts.topic == number), None)
                head = facts.head if facts is not None else -1
                if head < 0 and ranges:
                    head = ranges[0][0] - 1
                if head >= 0:
                    gaps = rg.union(gaps, rg.without(_span(last + 1, head), ranges))
                    lost = False
            last = max(last, ranges[-1][1] if ranges else 0)
        return gaps

    def record_tasks(
        self, ranges: Sequence[Range], reading: Reading, pushdown: Pushdown
    ) -> list[SegmentTask]:
        """Ranges of records as tasks."""
        wanted: dict[int, rg.Ranges | None] = {}
        for range in ranges:
            wanted[number_of(range.log)] = [(range.first, range.end - 1)]
        indexes = {index.segment: index for index in self.jobs}
        reads = []
        for read in plan_records(self.jobs, wanted):
            topics = [
                topic
                for topic in read.topics
                if _meets(topic, indexes[read.segment].part(topic.topic), pushdown)
            ]
            if topics:
                reads.append(msgspec.structs.replace(read, topics=topics))
        return _pack(reads, reading)

    # -- job events ------------------------------------------------------------------------------

    def available_events(self, end: int | None = None) -> AvailableEvents:
        """The job events.

        Args:
            end: First order whose events may be incomplete; None when all are complete.
        """
        topics = {number for pair in self._instances for number in range(pair[0], pair[1] + 1)}
        pieces = []
        for index in [*self.jobs, *self.leases]:
            rows = sum(part.events for part in index.topics if part.topic in topics)
            if rows:
                pieces.append(Piece(index.first_order, index.last_order, rows, index.bytes))
        last = max((index.last_order for index in [*self.jobs, *self.leases]), default=-1)
        gaps = rg.union(_order_gaps(self.jobs), _order_gaps(self.leases))
        next = last + 1 if end is None else min(last + 1, end)
        return AvailableEvents(self.log_id, next, sorted(pieces), gaps)

    def event_tasks(
        self, ranges: Sequence[Range], reading: Reading, pushdown: Pushdown
    ) -> list[SegmentTask]:
        """Ranges of orders as tasks."""
        instances = [
            number
            for first, last in self._instances
            for number in range(first, last + 1)
            if pushdown.topics is None or self._known.name(number) in pushdown.topics
        ]
        times = {
            (index.log, index.segment): (index.first_at, index.last_at)
            for index in [*self.jobs, *self.leases]
        }
        reads = [
            read
            for wanted in ranges
            for read in plan_events(
                self.jobs,
                self.leases,
                instances,
                first_order=wanted.first,
                last_order=wanted.end - 1,
            )
            if pushdown.meets(*times[read.log, read.segment])
        ]
        return _pack(reads, reading)


def number_of(log_id: str) -> int:
    """The number of a topic instance, from its `log_id`."""
    return int(log_id.rpartition("-")[2])


def _span(first: int, last: int) -> rg.Ranges:
    return [(first, last)] if first <= last else []


def _pieces(topic: TopicRead, part: TopicPart) -> Iterator[Piece]:
    for first, last in topic.ranges:
        rows = last - first + 1
        yield Piece(first, last, rows, -(-part.bytes * rows // max(part.rows, 1)))
    for first, last in topic.moved:
        # Where in the span they are, the index does not tell.
        rows = min(part.moved_rows, last - first + 1)
        yield Piece(first, last, rows, -(-part.moved_bytes * rows // max(part.moved_rows, 1)))


def _meets(topic: TopicRead, part: TopicPart | None, pushdown: Pushdown) -> bool:
    assert part is not None
    if topic.ranges and pushdown.meets(part.first_ts, part.last_ts):
        return True
    return bool(topic.moved) and pushdown.meets(part.moved_first_ts, part.moved_last_ts)


def _order_gaps(indexes: Sequence[SegmentIndex]) -> rg.Ranges:
    """Orders that segments had which are not at hand, and perhaps the other log as well."""
    gaps: rg.Ranges = []
    before, last, lost = 0, -1, False
    for index in indexes:
        lost = lost or index.segment != before + 1
        before = index.segment
        if index.last_frame < index.first_frame:
            continue
        if lost and index.first_order > last + 1:
            rg.add(gaps, last + 1, index.first_order - 1)
        lost, last = False, index.last_order
    return gaps


# -- packing ---------------------------------------------------------------------------------------


def _pack(reads: Sequence[SegmentRead], reading: Reading) -> list[SegmentTask]:
    if reading.verify == "none":
        reads = [_unchecked(read) for read in reads]
    return pack(reads, reading.partition_bytes, reading.min_partitions)


def _unchecked(read: SegmentRead) -> SegmentRead:
    replace = msgspec.structs.replace
    source_segments = [replace(source, crc32=UNCHECKED) for source in read.source_segments]
    return replace(read, crc32=UNCHECKED, source_segments=source_segments)


def pack(
    reads: Sequence[SegmentRead], partition_bytes: int, min_partitions: int
) -> list[SegmentTask]:
    """Put reads into tasks of about the same size, in their order.

    Args:
        partition_bytes: Bytes of log for one task. A segment is not cut for their sake, since each
            part of it would have to read all of it.
        min_partitions: Make so many tasks at least, if need be by cutting segments.

    Returns:
        No more tasks than bytes / `partition_bytes` rounded up, or `min_partitions`.
    """
    total = sum(map(weight, reads))
    if not total:
        return []
    count = max(-(-total // partition_bytes), min_partitions)
    if len(reads) < min_partitions:
        reads = [part for read in reads for part in _cut(read, count, total)]
        total = sum(map(weight, reads))
    tasks: list[list[SegmentRead]] = [[] for _ in range(count)]
    done = 0
    for read in reads:
        size = weight(read)
        # By its middle, so that sizes even out whatever the order.
        tasks[min((2 * done + size) * count // (2 * total), count - 1)].append(read)
        done += size
    return [SegmentTask(tuple(task)) for task in tasks if task]


def _cut(read: SegmentRead, count: int, total: int) -> list[SegmentRead]:
    """A read in parts of about the same number of rows, as many as its share of all tasks."""
    parts = -(-weight(read) * count // total)
    rows = sum(topic.rows_max for topic in read.topics)
    if read.first_order or rows < parts or parts < 2 or read.log != "jobs":
        return [read]
    cut: list[list[TopicRead]] = [[] for _ in range(parts)]
    at = 0
    for topic in read.topics:
        pieces = [(first, last, False) for first, last in topic.ranges]
        pieces += [(first, last, True) for first, last in topic.moved]
        for first, last, is_moved in pieces:
            while first <= last:
                into = at * parts // rows
                # The first row that belongs to the next part.
                room = -(-(into + 1) * rows // parts) - at
                end = min(last, first + room - 1)
                _put(cut[into], topic, first, end, is_moved)
                at += end - first + 1
                first = end + 1
    return [msgspec.structs.replace(read, topics=topics) for topics in cut if topics]


def _put(topics: list[TopicRead], like: TopicRead, first: int, last: int, is_moved: bool) -> None:
    if not topics or topics[-1].topic != like.topic:
        topics.append(TopicRead(like.topic, like.name, like.log_id, [], []))
    rg.add(topics[-1].moved if is_moved else topics[-1].ranges, first, last)
