"""The records that copies and committed chunks are made of, looked up in their segments.

Owns: a bounded memory of what was seen in the segment being read, and of earlier segments that
are its sources. Must not know: which records are wanted, how they are shown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from logqueue import events as ev
from logqueue.events import ChunkKey
from logqueue.events.block import SEQ, BlockView, is_plain
from logqueue.events.copy_blocks import Original, original_at, pack_copies
from logqueue.segments.index import SegmentDamaged
from logqueue.segments.known import KnownTopics, RouterFacts
from logqueue.segments.payloads import payloads
from logqueue.segments.plan import SourceSegment

FetchSource = Callable[[int], bytes]
"""Gives the bytes of an earlier segment of the jobs log, by its id."""

SOURCES_MAX = 4
"""Source segments that are kept at a time; copies mostly take from the one before."""

_END = 1 << 62


class Copies(NamedTuple):
    """A router's copies: their originals, and what the router was at the time."""

    seqs: Sequence[int]
    router: RouterFacts


class CommittedChunk(NamedTuple):
    """A chunk that became records."""

    key: ChunkKey
    topic: int


Content = bytes | Copies | CommittedChunk
"""What originals are made of: a block, or where to find one."""


class _Original(NamedTuple):
    offset: int
    first: int
    records: int
    content: Content


class SegmentRecords(ev.RecordVisitor):
    """What one segment holds of some topics, in the order of its frames."""

    def __init__(self, topics: Iterable[int], staged_for: Iterable[int] = ()) -> None:
        """Nothing so far.

        Args:
            topics: Those whose records are kept here, and the chunks staged for them.
            staged_for: Further topics of which only the staged chunks are kept.
        """
        self.topics = set(topics)
        self._staged_for = frozenset(staged_for)
        self._originals: dict[int, list[_Original]] = {}
        self._rewritten: dict[tuple[int, int], list[tuple[int, bytes, int]]] = {}
        self._chunks: dict[tuple[int, ChunkKey], list[tuple[int, bytes]]] = {}
        # Of the event that is visited.
        self._offset = 0
        self._known = KnownTopics()

    def note(self, offset: int, event: ev.Event, known: KnownTopics) -> None:
        """Keep what an event tells of the topics kept here."""
        if event.topic in self.topics or event.topic in self._staged_for:
            self._offset, self._known = offset, known
            event.visit_records(self)

    def staged(self, event: ev.Event, chunk: ChunkKey, block: bytes) -> None:
        """See `RecordVisitor`."""
        self._chunks.setdefault((event.topic, chunk), []).append((self._offset, block))

    def appended(
        self, event: ev.Event, first_seq: int, count: int, block: bytes, size: int
    ) -> None:
        """See `RecordVisitor`."""
        self.keep(event.topic, self._offset, first_seq, count, block)

    def copied(
        self, event: ev.Event, router: int, cursor: int, first_seq: int, seqs: Sequence[int],
        size: int,
    ) -> None:  # fmt: skip
        """See `RecordVisitor`."""
        known = self._known.routers.get(router)
        if known is not None:
            copies = Copies(seqs, msgspec.structs.replace(known))
            self.keep(event.topic, self._offset, first_seq, len(seqs), copies)

    def committed(self, event: ev.Event, chunk: ChunkKey, first_seq: int, count: int) -> None:
        """See `RecordVisitor`."""
        committed = CommittedChunk(chunk, event.topic)
        self.keep(event.topic, self._offset, first_seq, count, committed)

    def moved(self, event: ev.Event, span: tuple[int, int], block: bytes) -> None:
        """See `RecordVisitor`."""
        self._keep_rewritten(event.topic, block)

    def replaced(self, event: ev.Event, block: bytes) -> None:
        """See `RecordVisitor`."""
        self._keep_rewritten(event.topic, block)

    def keep(self, topic: int, offset: int, first: int, count: int, content: Content) -> None:
        """Keep originals of a topic that is kept here."""
        if topic not in self.topics:
            return
        self._originals.setdefault(topic, []).append(_Original(offset, first, count, content))

    def _keep_rewritten(self, topic: int, block: bytes) -> None:
        if topic not in self.topics:
            return
        for index, seq in enumerate(BlockView(block).numbers(SEQ) or ()):
            self._rewritten.setdefault((topic, seq), []).append((self._offset, block, index))

    def original(self, topic: int, seq: int, before: int) -> _Original | None:
        """The originals that a seq is one of, if their frame begins before `before`."""
        kept = self._originals.get(topic, [])
        at = bisect_right(kept, seq, key=_first_of) - 1
        if at < 0 or seq >= kept[at].first + kept[at].records or kept[at].offset >= before:
            return None
        return kept[at]

    def rewritten(self, topic: int, seq: int, before: int) -> tuple[int, bytes, int] | None:
        """The latest block before an offset that a record was rewritten in, and its place."""
        for place in reversed(self._rewritten.get((topic, seq), ())):
            if place[0] < before:
                return place
        return None

    def rewrote(self) -> bool:
        """Whether any record kept here was rewritten."""
        return bool(self._rewritten)

    def chunk(self, topic: int, key: ChunkKey, before: int) -> bytes | None:
        """The block of a staged chunk. A commit may stage it again in its own frame."""
        for offset, block in reversed(self._chunks.get((topic, key), ())):
            if offset <= before:
                return block
        return None


def _first_of(original: _Original) -> int:
    return original.first


class Resolver:
    """The records of the segment being read and of its source segments.

    Attributes:
        path: How errors name the segment being read.
    """

    def __init__(
        self,
        segment: int,
        kept: SegmentRecords,
        path: str,
        source_segments: Sequence[SourceSegment],
        fetch_source: FetchSource | None,
    ) -> None:
        """Begin with one segment.

        Args:
            segment: The one that is read.
            kept: What it holds; filled as it is read.
            path: How errors name it.
            source_segments: The earlier segments that may be asked for.
            fetch_source: Gives their bytes; None when none can be had.
        """
        self._segment = segment
        self._kept = kept
        self.path = path
        self._source_segments = {source.segment: source for source in source_segments}
        self._latest_first = sorted({segment, *self._source_segments}, reverse=True)
        self._fetch_source = fetch_source
        self._loaded: OrderedDict[int, SegmentRecords] = OrderedDict()

    def copies(
        self, copies: Copies, names: KnownTopics, offset: int, start: int, end: int
    ) -> bytes:
        """The block of some of a router's copies.

        Args:
            copies: All that were made at once.
            names: Has the name of the source.
            offset: Of their frame.
            start, end: Places of those that are wanted, `end` not included.

        Raises:
            SegmentDamaged: Their originals are nowhere to be found.
        """
        return self._copies(copies, names, self._segment, offset, start, end)

    def chunk(self, committed: CommittedChunk, offset: int) -> bytes:
        """The block of a committed chunk.

        Raises:
            SegmentDamaged: It is nowhere to be found.
        """
        block = self._chunk(committed, self._segment, offset)
        if block is None:
            producer, epoch, partition, _, number = committed.key
            raise SegmentDamaged(
                self.path,
                offset,
                f"chunk {number} of partition {partition}, epoch {epoch} of producer "
                f"'{producer}', is in no segment at hand",
            )
        return block

    # -- look-up ---------------------------------------------------------------------------------

    def _copies(
        self, copies: Copies, names: KnownTopics, segment: int, offset: int, start: int, end: int
    ) -> bytes:
        router = copies.router
        seqs = copies.seqs[start:end]
        whole = self._whole(router, segment, offset, seqs)
        if whole is not None:
            return whole
        originals = []
        for seq in seqs:
            found = self._original(router.source, seq, names, segment, offset)
            if found is None:
                raise SegmentDamaged(
                    self.path,
                    offset,
                    f"it copies record {seq} of topic instance {router.source}, which is in no "
                    "segment at hand",
                )
            originals.append(found)
        edge = router.name, router.router, names.name(router.source), router.source
        return pack_copies(edge, router.options, seqs, originals)

    def _whole(
        self, router: RouterFacts, segment: int, offset: int, seqs: Sequence[int]
    ) -> bytes | None:
        """The originals' own block, when the copies are just like it."""
        if segment != self._segment or self._kept.rewrote() or not router.options.keeps_records:
            return None
        original = self._kept.original(router.source, seqs[0], offset)
        if original is None or not isinstance(original.content, bytes):
            return None
        is_all = (original.first, original.records) == (seqs[0], len(seqs))
        if is_all and seqs[-1] == seqs[0] + len(seqs) - 1 and is_plain(original.content):
            return original.content
        return None

    def _original(
        self, topic: int, seq: int, names: KnownTopics, segment: int, before: int
    ) -> Original | None:
        """What a record said before a place in the log; None when no segment at hand tells."""
        for place in self._latest_first:
            if place > segment:
                continue
            limit = before if place == segment else _END
            kept = self._records_of(place, topic)
            if kept is None:
                continue
            rewritten = kept.rewritten(topic, seq, limit)
            original = kept.original(topic, seq, limit)
            if rewritten is not None and (original is None or rewritten[0] >= original.offset):
                return original_at(BlockView(rewritten[1]), rewritten[2])
            if original is not None:
                found = self._original_of(original, seq - original.first, names, place)
                if found is not None:
                    return found
        return None

    def _original_of(
        self, original: _Original, index: int, names: KnownTopics, segment: int
    ) -> Original | None:
        content = original.content
        if isinstance(content, bytes):
            return original_at(BlockView(content), index)
        if isinstance(content, CommittedChunk):
            block = self._chunk(content, segment, original.offset)
            return original_at(BlockView(block), index) if block is not None else None
        router, seq = content.router, content.seqs[index]
        found = self._original(router.source, seq, names, segment, original.offset)
        if found is None:
            return None
        edge = router.name, router.router, names.name(router.source), router.source
        return original_at(BlockView(pack_copies(edge, router.options, [seq], [found])), 0)

    def _chunk(self, committed: CommittedChunk, segment: int, before: int) -> bytes | None:
        for place in self._latest_first:
            if place > segment:
                continue
            kept = self._records_of(place, committed.topic)
            limit = before if place == segment else _END
            found = kept.chunk(committed.topic, committed.key, limit) if kept else None
            if found is not None:
                return found
        return None

    def _records_of(self, segment: int, topic: int) -> SegmentRecords | None:
        if segment == self._segment:
            return self._kept
        source = self._source_segments.get(segment)
        if source is None or self._fetch_source is None:
            return None
        kept = self._loaded.get(segment)
        if kept is None or topic not in kept.topics:
            topics = kept.topics if kept is not None else set()
            kept = self._fill(source, {*topics, topic}, self._fetch_source(segment))
            self._loaded[segment] = kept
        self._loaded.move_to_end(segment)
        while len(self._loaded) > SOURCES_MAX:
            self._loaded.popitem(last=False)
        return kept

    def _fill(self, source: SourceSegment, topics: set[int], data: bytes) -> SegmentRecords:
        kept = SegmentRecords(topics)
        known = source.seeds.known()
        path = f"segment {source.segment}"
        for offset, payload in payloads(data, path, length=source.bytes, checksum=source.crc32):
            for event in ev.decode(payload).events:
                event.visit_topics(known)
                kept.note(offset, event, known)
        return kept
