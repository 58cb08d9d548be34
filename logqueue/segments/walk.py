"""From the bytes of a segment to batches of records and to job events.

Owns: which events hold records, and which of them a read takes. Must not know: files, Arrow, how
rows are shown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import add, attrgetter, itemgetter
from typing import Any, NamedTuple

from logqueue import events as ev
from logqueue.events.block import SEQ, BlockView, select
from logqueue.segments import ranges as rg
from logqueue.segments.fast_decode import (
    JOB_EVENTS,
    RECORDS,
    EventDecoder,
    PayloadError,
    RecordEvents,
    no_cycles,
)
from logqueue.segments.index import SegmentDamaged
from logqueue.segments.known import KnownTopics
from logqueue.segments.payloads import PayloadRun, payload_runs
from logqueue.segments.plan import SegmentRead
from logqueue.segments.resolver import CommittedChunk, Copies, FetchSource, Resolver, SegmentRecords

_ORDER = attrgetter("order")
_EVENTS = attrgetter("events")
_TOPIC = attrgetter("topic")
_FIRST = attrgetter("first_seq")
_COUNT = attrgetter("count")


class _Want:
    """What is still to be taken of one topic."""

    __slots__ = ("high", "is_source", "low", "moved", "ranges", "taken")

    def __init__(self, ranges: rg.Ranges, moved: rg.Ranges) -> None:
        self.ranges = ranges
        self.moved = moved
        # The range that the last seqs were found in: most often all there is.
        self.low, self.high = ranges[0] if ranges else (1, 0)
        self.taken: set[int] = set()
        # Whether wanted records may be copies of its records.
        self.is_source = False

    def parts(self, first: int, last: int) -> rg.Ranges:
        """The wanted ones of some originals."""
        found = rg.cut(self.ranges, first, last)
        if found:
            around = bisect_right(self.ranges, found[-1][0], key=itemgetter(0)) - 1
            self.low, self.high = self.ranges[around]
        return found

    def rewritten(self, seqs: Sequence[int]) -> list[int]:
        """Places of the wanted seqs among rewritten records, each once."""
        moved, taken = self.moved, self.taken
        if not moved:
            return []
        found = []
        for place, seq in enumerate(seqs):
            if seq not in taken and rg.holds(moved, seq, seq):
                taken.add(seq)
                found.append(place)
        return found


def read_records(
    data: bytes, read: SegmentRead, fetch_source: FetchSource | None = None, path: str = ""
) -> Iterator[RecordEvents]:
    """The records that a read takes of its segment, in the order of the log.

    Args:
        data: The segment from its first byte.
        read: What to take; made by `plan_records`.
        fetch_source: Gives the bytes of `read.source_segments`; may be None when there are none.
        path: How errors name the segment.

    Raises:
        SegmentDamaged: The bytes are not what they were, or a source segment lacks a record.
    """
    path = path or f"segment {read.name}"
    wants = {topic.topic: _Want(topic.ranges, topic.moved) for topic in read.topics}
    known = read.seeds.known()
    kept = SegmentRecords((), wants)
    _note_sources(known, wants, kept)
    resolver = Resolver(read.segment, kept, path, read.source_segments, fetch_source)
    taker = _Taker(wants, known, kept, resolver)
    for run in payload_runs(data, path, length=read.bytes, checksum=read.crc32):
        with no_cycles():
            transactions = _decoded(RECORDS, run, path)
            events = [*chain.from_iterable(map(_EVENTS, transactions))]
            found = taker.plain(events)
        if found is None:
            counts = map(len, map(_EVENTS, transactions))
            offsets = chain.from_iterable(map(repeat, run.offsets, counts))
            yield from taker.each(zip(offsets, events, strict=True))
        else:
            yield from found


class _Taker:
    """Takes from events what a read wants of them."""

    def __init__(
        self, wants: dict[int, _Want], known: KnownTopics, kept: SegmentRecords, resolver: Resolver
    ) -> None:
        self._wants = wants
        self._known = known
        self._kept = kept
        self._resolver = resolver
        self._routers = len(known.routers)

    def plain(self, events: Sequence[Any]) -> Sequence[RecordEvents] | None:
        """The wanted ones of some events where these are plain appends, wanted whole or not at all;
        None where they have to be looked at one by one."""
        if not {*map(type, events)} - {RecordEvents} <= RECORDS.passed:
            return None
        appends = [event for event in events if type(event) is RecordEvents]
        found: list[RecordEvents] = []
        wants = self._wants
        topics = {*map(_TOPIC, appends)}
        if any(topic in wants and wants[topic].is_source for topic in topics):
            return None
        if len(topics) == 1 and (only := wants.get(*topics)) is not None:
            firsts = [*map(_FIRST, appends)]
            ends = map(add, firsts, map(_COUNT, appends))
            if only.low <= min(firsts) and max(ends) - 1 <= only.high:
                return appends
        for event in appends:
            want = wants.get(event.topic)
            if want is None:
                continue
            first = event.first_seq
            if want.low <= first and first + event.count - 1 <= want.high:
                found.append(event)
            elif want.parts(first, first + event.count - 1):
                return None
        return found

    def each(self, events: Iterable[tuple[int, Any]]) -> Iterator[RecordEvents]:
        """The wanted records of events with their offsets, one after the other."""
        known, kept, want_of, passed = self._known, self._kept, self._wants.get, RECORDS.passed
        for offset, event in events:
            kind = type(event)
            if kind is RecordEvents:
                want = want_of(event.topic)
                if want is None:
                    continue
                first = event.first_seq
                last = first + event.count - 1
                if want.is_source:
                    kept.keep(event.topic, offset, first, event.count, event.block)
                if want.low <= first and last <= want.high:
                    yield event
                else:
                    for start, end in want.parts(first, last):
                        yield _part(event, range(start - first, end - first + 1))
            elif kind not in passed:
                event.visit_topics(known)
                if len(known.routers) != self._routers:
                    self._routers = len(known.routers)
                    _note_sources(known, self._wants, kept)
                kept.note(offset, event, known)
                want = want_of(event.topic)
                if want is not None:
                    taken = _Taken(offset, want, self._resolver, known)
                    event.visit_records(taken)
                    yield from chain.from_iterable(taken.found)


def _note_sources(known: KnownTopics, wants: dict[int, _Want], kept: SegmentRecords) -> None:
    """Have the records kept that wanted ones may be copied from, however many routers away."""
    pending = {topic for topic, want in wants.items() if want.ranges or want.is_source}
    while pending:
        sources = {r.source for r in known.routers.values() if r.dest in pending} - kept.topics
        kept.topics |= sources
        for topic in sources:
            wants.setdefault(topic, _Want([], [])).is_source = True
        pending = sources


def _part(records: RecordEvents, places: Sequence[int]) -> RecordEvents:
    """Some of the records of an event; they follow on, or bring seqs of their own."""
    if len(places) == records.count:
        return records
    block = select(BlockView(records.block), places)
    first = records.first_seq + places[0]
    return RecordEvents(records.at, records.topic, first, len(places), block)


def _decoded(decoder: EventDecoder, run: PayloadRun, path: str) -> list[Any]:
    try:
        return decoder.decode(run)
    except PayloadError as error:
        raise SegmentDamaged(
            path, error.offset, f"the frame is not a transaction: {error}"
        ) from error


class _Taken(ev.RecordVisitor):
    """The wanted records of an event that is not a plain append.

    Attributes:
        found: Their batches, resolved only when they are asked for.
    """

    def __init__(self, offset: int, want: _Want, resolver: Resolver, known: KnownTopics) -> None:
        self.found: list[Iterator[RecordEvents]] = []
        self._offset = offset
        self._want = want
        self._resolver = resolver
        self._known = known

    def appended(
        self, event: ev.Event, first_seq: int, count: int, block: bytes, size: int
    ) -> None:
        """See `RecordVisitor`."""
        self.found.append(self._originals(event, first_seq, count, block))

    def copied(
        self, event: ev.Event, router: int, cursor: int, first_seq: int, seqs: Sequence[int],
        size: int,
    ) -> None:  # fmt: skip
        """See `RecordVisitor`."""
        self.found.append(self._copies(event, router, first_seq, seqs))

    def committed(self, event: ev.Event, chunk: ev.ChunkKey, first_seq: int, count: int) -> None:
        """See `RecordVisitor`."""
        self.found.append(self._chunk(event, chunk, first_seq, count))

    def moved(self, event: ev.Event, span: tuple[int, int], block: bytes) -> None:
        """See `RecordVisitor`."""
        self.found.append(self._rewritten_places(event, block))

    def replaced(self, event: ev.Event, block: bytes) -> None:
        """See `RecordVisitor`."""
        self.found.append(self._rewritten_places(event, block))

    def _originals(
        self, event: ev.Event, first: int, count: int, block: bytes
    ) -> Iterator[RecordEvents]:
        whole = RecordEvents(event.at, event.topic, first, count, block)
        for start, end in self._want.parts(first, first + count - 1):
            yield _part(whole, range(start - first, end - first + 1))

    def _copies(
        self, event: ev.Event, number: int, first: int, seqs: Sequence[int]
    ) -> Iterator[RecordEvents]:
        router = self._known.routers.get(number)
        for start, end in self._want.parts(first, first + len(seqs) - 1):
            if router is None:
                problem = f"it is of router {number}, which no segment at hand tells of"
                raise SegmentDamaged(self._resolver.path, self._offset, problem)
            block = self._resolver.copies(
                Copies(seqs, router), self._known, self._offset, start - first, end - first + 1
            )
            yield RecordEvents(event.at, event.topic, start, end - start + 1, block)

    def _chunk(
        self, event: ev.Event, chunk: ev.ChunkKey, first: int, count: int
    ) -> Iterator[RecordEvents]:
        for start, end in self._want.parts(first, first + count - 1):
            block = self._resolver.chunk(CommittedChunk(chunk, event.topic), self._offset)
            whole = RecordEvents(event.at, event.topic, first, count, block)
            yield _part(whole, range(start - first, end - first + 1))

    def _rewritten_places(self, event: ev.Event, block: bytes) -> Iterator[RecordEvents]:
        view = BlockView(block)
        places = self._want.rewritten(view.numbers(SEQ) or ())
        if places:
            yield _part(RecordEvents(event.at, event.topic, 0, view.count, block), places)


class EventRun(NamedTuple):
    """Events of a run of frames, in the order of the log.

    Attributes:
        orders: Of the transaction of each.
        events: As decoded for readers of job events, those that were passed over among them.
    """

    orders: list[int]
    events: list[Any]


class EventReader:
    """Decodes the events that a read takes of its segment, run by run, for `job_events.rows_of`.

    Attributes:
        path: How errors name the segment.
        is_over: Whether no later run has any.
    """

    def __init__(self, read: SegmentRead, path: str = "") -> None:
        """Begin at the first run.

        Args:
            read: What to take; made by `plan_events`.
            path: How errors name the segment.
        """
        self.is_over = False
        self.path = path or f"segment {read.name}"
        self._last = read.last_order
        self._decoder = JOB_EVENTS[read.log]

    def decode(self, run: PayloadRun) -> EventRun:
        """The events of the next run up to the last order. Those before the first order are among
        them: floors move by them. Call it in `no_cycles`, and drop what it gives there.

        Raises:
            SegmentDamaged: A frame is not a transaction.
        """
        last = self._last
        transactions = _decoded(self._decoder, run, self.path)
        orders = [*map(_ORDER, transactions)]
        if max(orders) > last:
            # In logs of early versions the one before may come next.
            end = next((n for n, order in enumerate(orders) if order > last + 1), len(orders))
            self.is_over = end < len(orders)
            transactions = [found for found in transactions[:end] if found.order <= last]
            orders = [*map(_ORDER, transactions)]
        counts = map(len, map(_EVENTS, transactions))
        return EventRun(
            [*chain.from_iterable(map(repeat, orders, counts))],
            [*chain.from_iterable(map(_EVENTS, transactions))],
        )
