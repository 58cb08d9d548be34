"""From indexes of segments to topics, offsets and tasks.

Owns: what a list of segment indexes says of topics and of job events, where the log has gaps, and
how reads are packed into tasks. Pure: the same ranges and the same indexes make the same tasks,
whenever. Must not know: pyspark, files, HTTP. See `holdings` for what a loss is.

A topic that was deleted and recreated is several instances. A stream begins with the newest one and
reads an instance to its end before the one that follows; a batch from the earliest reads the older
ones, too, and so do lease events and archives. Column `log_id` tells them apart.
What a deleted topic held is read as long as the log still has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from logqueue.pipeline.reading.available import AvailableEvents, AvailableRange, Piece, Range
from logqueue.pipeline.reading.options import Reading, Selection
from logqueue.pipeline.reading.pushdown import Pushdown
from logqueue.segments import ranges as rg
from logqueue.segments.index import SegmentIndex, TopicPart
from logqueue.segments.known import KnownTopics, TopicFacts
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
        self._chosen = choose(self._known, names, selection.pattern)
        self._parts = {index.segment: {part.topic: part for part in index.topics} for index in jobs}
        self._seen = _seen_in(jobs)
        self._breaks = _breaks(jobs)
        self._instances: list[AvailableRange] | None = None

    @property
    def known(self) -> KnownTopics:
        """All topics that the segments tell of, as they are at the end."""
        return self._known

    @property
    def numbers(self) -> list[int]:
        """The instances that are asked for, dropped ones among them, ascending."""
        return [number for first, last in self._chosen for number in range(first, last + 1)]

    # -- records ---------------------------------------------------------------------------------

    def instances(self) -> list[AvailableRange]:
        """Every instance of the topics that are asked for, dropped ones among them, oldest first.

        One pass over the segments, whatever the number of topics.
        """
        if self._instances is None:
            self._instances = self._available(self.numbers)
        return self._instances

    def available(self) -> dict[str, AvailableRange]:
        """The newest instance of each topic, by name; those before it are in its `before`."""
        by_name: dict[str, list[AvailableRange]] = {}
        for instance in self.instances():
            by_name.setdefault(instance.name, []).append(instance)
        return {
            name: replace(found[-1], before=tuple(found[:-1]))
            for name, found in sorted(by_name.items())
        }

    def older(self) -> list[AvailableRange]:
        """Records of instances that were deleted and recreated since, as far as they have
        any record."""
        newest = {instance.name: instance.log for instance in self.instances()}
        return [
            instance
            for instance in self.instances()
            if instance.log != newest[instance.name] and instance.pieces
        ]

    def available_instance(self, number: int) -> AvailableRange:
        """One instance, whether or not it is asked for."""
        return self._available([number])[0]

    def _available(self, numbers: Sequence[int]) -> list[AvailableRange]:
        pieces: dict[int, list[Piece]] = {number: [] for number in numbers}
        wanted: dict[int, rg.Ranges | None] = dict.fromkeys(numbers)
        for read in plan_records(self.jobs, wanted):
            parts = self._parts[read.segment]
            for topic in read.topics:
                pieces[topic.topic].extend(_pieces(topic, parts[topic.topic]))
        return [
            self._available_of(self._known.topic(number), sorted(pieces[number]))
            for number in numbers
        ]

    def lost_orders(self, first: int) -> bool:
        """Whether segments of the jobs log are missing that had orders from `first` on."""
        return any(last >= first for _, last in _order_gaps(self.jobs))

    def record_reads(self, wanted: Mapping[int, rg.Ranges]) -> list[SegmentRead]:
        """What to read for seqs of some instances."""
        return plan_records(self.jobs, dict(wanted))

    def seq_at(self, topic: AvailableRange, at_ms: int, first_of: FirstOf) -> int:
        """The first seq that was taken in at a time or later; one behind the head for none.

        Args:
            first_of: Looks into segments: the lowest seq of a read from that time on, or None.
        """
        number = number_of(topic.log)
        later: list[tuple[int, SegmentRead]] = []
        for read in plan_records(self.jobs, {number: None}):
            part, (taken,) = self._parts[read.segment][number], read.topics
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

    def _available_of(self, facts: TopicFacts, pieces: list[Piece]) -> AvailableRange:
        number = facts.topic
        parts = [part for _, part, _ in self._seen.get(number, []) if part is not None]
        originals = rg.union(*(part.ranges for part in parts))
        spans = rg.union(originals, *(part.moved for part in parts))
        head = max(facts.head, spans[-1][1] if spans else 0)
        # The source of a copy may be gone, though the copy itself is in the log.
        readable = rg.union((piece.first, piece.last) for piece in pieces)
        dropped, is_certain = self._gaps(number)
        gaps = rg.union(dropped, rg.without(originals, readable))
        return AvailableRange(
            facts.name,
            f"{self.log_id}-{number}",
            head + 1,
            pieces,
            gaps,
            is_queue=facts.is_queue,
            is_dropped=facts.is_dropped,
            is_head_certain=is_certain,
        )

    def _gaps(self, number: int) -> tuple[rg.Ranges, bool]:
        """Seqs of a topic that were in segments which are not available any longer, and whether no
        segment is missing behind the last that tells of it."""
        gaps: rg.Ranges = []
        last, resolved, witnessed = 0, 0, 0
        for place, part, facts in self._seen.get(number, []):
            ranges = part.ranges if part is not None else []
            if self._breaks[place] > resolved:
                head = facts.head if facts is not None else -1
                if head < 0 and ranges:
                    head = ranges[0][0] - 1
                if head >= 0:
                    gaps = rg.union(gaps, rg.without(_span(last + 1, head), ranges))
                    resolved = self._breaks[place]
            last = max(last, ranges[-1][1] if ranges else 0)
            # That a topic was deleted says nothing of how far it had come.
            if ranges or (facts is not None and not facts.is_dropped):
                witnessed = self._breaks[place]
        return gaps, not self._breaks or witnessed == self._breaks[-1]

    def record_tasks(
        self, ranges: Sequence[Range], reading: Reading, pushdown: Pushdown
    ) -> list[SegmentTask]:
        """Ranges of records as tasks."""
        wanted: dict[int, rg.Ranges | None] = {}
        for range in ranges:
            wanted[number_of(range.log)] = [(range.first, range.end - 1)]
        reads = []
        for read in plan_records(self.jobs, wanted):
            parts = self._parts[read.segment]
            topics = [topic for topic in read.topics if _meets(topic, parts[topic.topic], pushdown)]
            if topics:
                reads.append(msgspec.structs.replace(read, topics=topics))
        return _pack(reads, reading)

    # -- job events ------------------------------------------------------------------------------

    def available_events(
        self, end: int | None = None, numbers: Collection[int] | None = None
    ) -> AvailableEvents:
        """The job events.

        Args:
            end: First order whose events may be incomplete; None when all are complete.
            numbers: Of these instances only; None for all that are asked for.
        """
        topics = set(self.numbers if numbers is None else numbers)
        pieces = []
        for index in [*self.jobs, *self.leases]:
            rows = sum(part.events for part in index.topics if part.topic in topics)
            if rows:
                pieces.append(Piece(index.first_order, index.last_order, rows, index.bytes))
        last = max((index.last_order for index in [*self.jobs, *self.leases]), default=-1)
        gaps = rg.union(_order_gaps(self.jobs), _order_gaps(self.leases))
        next = last + 1 if end is None else min(last + 1, end)
        known = rg.union((n, n) for n in self._known.topics if self._known.is_queue(n))
        queues = rg.both(known, rg.union((n, n) for n in topics))
        return AvailableEvents(self.log_id, next, sorted(pieces), gaps, queues, known)

    def event_tasks(
        self,
        ranges: Sequence[Range],
        reading: Reading,
        pushdown: Pushdown,
        numbers: Sequence[int] | None = None,
    ) -> list[SegmentTask]:
        """Ranges of orders as tasks.

        Args:
            numbers: Of these instances only; None for all that are asked for.
        """
        instances = [
            number
            for number in (self.numbers if numbers is None else numbers)
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
                _of_queues(instances, wanted),
                first_order=wanted.first,
                last_order=wanted.end - 1,
            )
            if pushdown.meets(*times[read.log, read.segment])
        ]
        return _pack(reads, reading)


def _of_queues(numbers: Sequence[int], wanted: Range) -> Sequence[int]:
    """Those of some instances that a range of orders is of."""
    if wanted.queues is None:
        return numbers
    of = [*wanted.queues]
    return [number for number in numbers if rg.holds(of, number, number)]


def number_of(log_id: str) -> int:
    """The number of a topic instance, from its `log_id`."""
    return int(log_id.rpartition("-")[2])


_Seen = tuple[int, TopicPart | None, TopicFacts | None]
"""Where in the list of segments, what that one holds of an instance, and what it tells of it."""


def _seen_in(indexes: Sequence[SegmentIndex]) -> dict[int, list[_Seen]]:
    """By instance, the segments that say anything of it."""
    seen: dict[int, list[_Seen]] = {}
    for place, index in enumerate(indexes):
        parts = {part.topic: part for part in index.topics}
        learned = {facts.topic: facts for facts in index.learned}
        for number in {*parts, *learned}:
            entry = (place, parts.get(number), learned.get(number))
            seen.setdefault(number, []).append(entry)
    return seen


def _breaks(indexes: Sequence[SegmentIndex]) -> list[int]:
    """For each segment, how many times segments are missing up to it."""
    breaks: list[int] = []
    before = 0
    for index in indexes:
        is_break = index.segment != before + 1
        breaks.append((breaks[-1] if breaks else 0) + is_break)
        before = index.segment
    return breaks


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


def _meets(topic: TopicRead, part: TopicPart, pushdown: Pushdown) -> bool:
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
    source_segments = [
        msgspec.structs.replace(source, crc32=UNCHECKED) for source in read.source_segments
    ]
    return msgspec.structs.replace(read, crc32=UNCHECKED, source_segments=source_segments)


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
