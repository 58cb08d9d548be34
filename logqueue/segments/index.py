"""What one segment of a log holds: its topics and seqs, without its records.

Owns: the structs, their bytes, and finding them out frame by frame. Must not know: files, other
segments, who asks. The server extends the index of the active segment as it grows and writes that
of a sealed one beside its archived copy, as NAME.wal.idx.

Seqs of a topic appear in three ways. *Originals* are appended in this segment. Of these,
*references* name records in earlier segments (a router's copies, committed chunks). *Moved* ones
are written again here, because their first segment was about to be dropped; they count only
where no earlier segment is at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from zlib import crc32

import msgspec

from logqueue import events as ev
from logqueue.events import ChunkKey
from logqueue.events.block import SEQ, TS, BlockView
from logqueue.segments import ranges as rg
from logqueue.segments.job_events import count_rows
from logqueue.segments.known import KnownTopics, RouterFacts, TopicFacts
from wal import (
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    End,
    HeaderState,
    SegmentHeader,
    Walk,
    decode_header,
    salt_of,
)

VERSION = 1
SUFFIX = ".idx"
"""Behind the name of the segment file."""

LogName = Literal["jobs", "leases"]


class IndexDamaged(ValueError):
    """Bytes that are not an index this version can read; the index is then rebuilt."""


class SegmentDamaged(ValueError):
    """A segment that cannot be read.

    Attributes:
        path: Path of the file, or a name for it.
        offset: Byte offset of the problem.
        problem: What is wrong there.
    """

    def __init__(self, path: str, offset: int, problem: str) -> None:
        super().__init__(f"{path}: damaged at byte {offset}: {problem}")
        self.path = path
        self.offset = offset
        self.problem = problem


class TopicPart(msgspec.Struct, omit_defaults=True):
    """What a segment holds of one topic instance.

    Attributes:
        topic: Number of the instance.
        name: Of the topic; "" when the segment and those before it do not tell.
        log_id: "IDENTITY-NUMBER", the identity being that of the jobs log.
        ranges: Seqs of originals, references among them.
        rows: How many.
        bytes: Of their data and meta.
        first_ts, last_ts: When they were appended, ms since the epoch; 0 without originals.
        moved: Spans of seqs that were rewritten, holes included.
        moved_rows: Records in them, each counted once per time it was written.
        moved_bytes: Of their data and meta.
        moved_first_ts, moved_last_ts: When these were appended; 0 without any.
        events: Rows of job events that this segment tells; 0 for topics that are not queues.
        events_first_ts, events_last_ts: Lowest and highest time of these; 0 without any, and in
            indexes of early versions.
        floors: How many of them are of the kind "trimmed".
    """

    topic: int
    name: str
    log_id: str
    ranges: list[tuple[int, int]] = []
    rows: int = 0
    bytes: int = 0
    first_ts: int = 0
    last_ts: int = 0
    moved: list[tuple[int, int]] = []
    moved_rows: int = 0
    moved_bytes: int = 0
    moved_first_ts: int = 0
    moved_last_ts: int = 0
    events: int = 0
    events_first_ts: int = 0
    events_last_ts: int = 0
    floors: int = 0


class Reference(msgspec.Struct, omit_defaults=True):
    """Originals whose bytes are not in this segment, or depend on such. In order of their frames.

    Attributes:
        topic: Instance that they are of.
        first, count: Their seqs.
        source, source_first: Instance and first seq of the records they copy; they follow on.
        chunk: Instead of these, the staged chunk that they are.
    """

    topic: int
    first: int
    count: int
    source: int = 0
    source_first: int = 0
    chunk: ChunkKey | None = None


class SegmentIndex(msgspec.Struct, omit_defaults=True):
    """What one segment holds, up to the last frame that was looked at.

    Attributes:
        log: Which of the two logs.
        log_id: Identity of the jobs log that the data belongs to, in hex.
        identity: Of this log, in hex; the same for the jobs log.
        segment: Its id.
        first_frame, last_frame: Frame numbers; `last_frame` is one less when there is none.
        bytes: Header and whole frames.
        crc32: Of these bytes.
        first_order, last_order: Orders of its transactions; 0 when there is none.
        first_at, last_at: Lowest and highest time of an event, ms since the epoch.
        topics: By number of the instance.
        learned: Topics it tells of, as they are at its end.
        routers: The same of routers.
        borrowed: The records whose content is in earlier segments.
        staged: Chunks laid down here that were not committed here.
    """

    version: int
    log: LogName
    log_id: str
    identity: str
    segment: int
    first_frame: int
    last_frame: int
    bytes: int
    crc32: int
    first_order: int
    last_order: int
    first_at: int
    last_at: int
    topics: list[TopicPart] = []
    learned: list[TopicFacts] = []
    routers: list[RouterFacts] = []
    borrowed: list[Reference] = []
    staged: list[ChunkKey] = []

    def part(self, topic: int) -> TopicPart | None:
        """What it holds of a topic instance, None when nothing."""
        return next((part for part in self.topics if part.topic == topic), None)


class _Ending(msgspec.Struct):
    crc32: int


_encoder = msgspec.json.Encoder()
_indexes = msgspec.json.Decoder(SegmentIndex)
_endings = msgspec.json.Decoder(_Ending)


def encode_index(index: SegmentIndex) -> bytes:
    """The bytes of an index file: a line of JSON, and a line with its checksum."""
    text = _encoder.encode(index)
    return b"%b\n%b\n" % (text, _encoder.encode(_Ending(crc32(text))))


def decode_index(data: bytes) -> SegmentIndex:
    """Read an index file.

    Raises:
        IndexDamaged: It is torn, damaged or of another version.
    """
    lines = data.split(b"\n")
    if len(lines) != 3 or lines[2]:
        raise IndexDamaged("the index is not whole")
    try:
        if _endings.decode(lines[1]).crc32 != crc32(lines[0]):
            raise IndexDamaged("the index fails its checksum")
        index = _indexes.decode(lines[0])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise IndexDamaged(f"the index does not read: {error}") from error
    if index.version != VERSION:
        raise IndexDamaged(f"the index is of version {index.version}, not {VERSION}")
    return index


def read_header(data: bytes, path: str) -> SegmentHeader:
    """The header of a segment.

    Raises:
        SegmentDamaged: There is none that this version can read.
    """
    state, header = decode_header(data[:HEADER_BYTES])
    if header is None:
        what = {
            HeaderState.ABSENT: "there is no segment header",
            HeaderState.TORN: "the segment header is torn or is none",
            HeaderState.FOREIGN: "the segment is of a version this program does not know",
        }[state]
        raise SegmentDamaged(path, 0, what)
    return header


class IndexBuilder(ev.RecordVisitor):
    """Makes the index of a segment while its frames come in.

    Attributes:
        bytes: How far the segment was looked at; the next `feed` begins there.
        end: How the last `feed` ended: CLEAN, ZEROS, or BAD at bytes that are not a whole frame (a
            torn tail, or a damage).
        problem: What is wrong at `bytes` when `end` is BAD.
    """

    def __init__(
        self,
        header_page: bytes,
        log: LogName,
        *,
        log_id: str | None = None,
        known: KnownTopics | None = None,
        path: str = "segment",
    ) -> None:
        """Begin with the first 4096 bytes of a segment.

        Args:
            header_page: These bytes.
            log: Which of the two logs it is of.
            log_id: Identity of the jobs log in hex; may be left out for a jobs log.
            known: What earlier segments say of topics and routers; it is copied. The leases
                log names no topics, so its indexes have names only from here.
            path: How errors name the segment.

        Raises:
            SegmentDamaged: These bytes are not a header.
        """
        self.header = read_header(header_page, path)
        self.log: LogName = log
        self.identity = self.header.identity.hex()
        self.log_id = log_id or self.identity
        self.bytes = HEADER_BYTES
        self.end = End.CLEAN
        self.problem = ""
        self.known = known.copy() if known is not None else KnownTopics()
        self._path = path
        self._salt = salt_of(self.header.identity, self.header.id)
        self._crc = crc32(header_page[:HEADER_BYTES])
        self._frame = self.header.first
        self._orders = [0, 0]
        self._times: list[int] = []
        self._parts: dict[int, TopicPart] = {}
        self._references: list[Reference] = []
        self._referenced: dict[int, rg.Ranges] = {}
        self._staged: dict[ChunkKey, bool] = {}

    def feed(self, data: bytes) -> int:
        """Look at more of the segment.

        Args:
            data: Its bytes from `self.bytes` on, perhaps ending inside a frame.

        Returns:
            How many of them were whole frames; give the others again, with more behind them.

        Raises:
            SegmentDamaged: A whole frame does not follow, or says what this version cannot read.
        """
        walk = Walk(data, self._salt, self._frame, self.header.id, FRAME_BYTES_MAX)
        walk.offset = 0
        for frame in walk:
            try:
                transaction = ev.decode(frame.payload)
            except msgspec.MsgspecError as error:
                raise SegmentDamaged(
                    self._path, self.bytes, f"frame {frame.number} is not a transaction: {error}"
                ) from error
            self._take(transaction)
        if walk.end is End.MISNUMBERED:
            raise SegmentDamaged(self._path, self.bytes + walk.offset, walk.problem)
        self._crc = crc32(memoryview(data)[: walk.offset], self._crc)
        self._frame = walk.number
        self.bytes += walk.offset
        self.end, self.problem = walk.end, walk.problem
        return walk.offset

    def index(self) -> SegmentIndex:
        """The index of what was looked at so far; what comes later does not change it."""
        known = self.known
        parts = []
        for number, part in sorted(self._parts.items()):
            # The leases log tells of queues only, and not which topics are queues.
            tells = self.log == "leases" or known.is_queue(number)
            events = part.events if tells else 0
            compact = msgspec.structs.replace(
                part,
                name=known.name(number),
                ranges=list(part.ranges),
                moved=list(part.moved),
                events=events,
                events_first_ts=part.events_first_ts if events else 0,
                events_last_ts=part.events_last_ts if events else 0,
                floors=part.floors if events else 0,
            )
            if compact.rows or compact.moved or compact.events:
                parts.append(compact)
        replace = msgspec.structs.replace
        return SegmentIndex(
            VERSION,
            self.log,
            self.log_id,
            self.identity,
            self.header.id,
            self.header.first,
            self._frame - 1,
            self.bytes,
            self._crc,
            self._orders[0],
            self._orders[1],
            min(self._times, default=0),
            max(self._times, default=0),
            parts,
            [replace(known.topics[number]) for number in sorted(known.changed)],
            [replace(known.routers[number]) for number in sorted(known.changed_routers)],
            [replace(reference) for reference in self._references],
            [key for key, is_open in self._staged.items() if is_open],
        )

    # -- events ----------------------------------------------------------------------------------

    def _take(self, transaction: ev.Transaction) -> None:
        # In logs of early versions the order steps back by one where a segment begins.
        if not transaction.events:
            return  # a placeholder for a lost frame
        first, last = self._orders
        order = transaction.order
        self._orders = [min(first or order, order), max(last, order)]
        for event in transaction.events:
            self._note_time(event.at)
            if event.holds_records:
                event.visit_records(self)
            else:
                event.visit_topics(self.known)
            rows, floors = count_rows(event, self.log, self.known)
            if rows:
                part = self._part(event.topic)
                part.events += rows
                part.floors += floors
                if event.at > part.events_last_ts:
                    part.events_last_ts = event.at
                if event.at < part.events_first_ts or not part.events_first_ts:
                    part.events_first_ts = event.at

    def _note_time(self, at: int) -> None:
        times = self._times
        if not times:
            self._times = [at, at]
        elif at > times[1]:
            times[1] = at
        elif at < times[0]:
            times[0] = at

    def _part(self, topic: int) -> TopicPart:
        part = self._parts.get(topic)
        if part is None:
            part = TopicPart(topic, "", f"{self.log_id}-{topic}", ranges=[], moved=[])
            self._parts[topic] = part
        return part

    def appended(
        self, event: ev.Event, first_seq: int, count: int, block: bytes, size: int
    ) -> None:
        """See `RecordVisitor`."""
        self._append(event, first_seq, count, size)

    def copied(
        self, event: ev.Event, router: int, cursor: int, first_seq: int, seqs: Sequence[int],
        size: int,
    ) -> None:  # fmt: skip
        """See `RecordVisitor`."""
        self._append(event, first_seq, len(seqs), size)
        self._note_copies(event.topic, router, first_seq, seqs)

    def staged(self, event: ev.Event, chunk: ChunkKey, block: bytes) -> None:
        """See `RecordVisitor`."""
        self._staged[chunk] = True

    def committed(self, event: ev.Event, chunk: ChunkKey, first_seq: int, count: int) -> None:
        """See `RecordVisitor`."""
        # The size of a chunk is stored beside its records, which may be elsewhere.
        self._append(event, first_seq, count, 0)
        if chunk in self._staged:
            self._staged[chunk] = False
        else:
            self._add_reference(Reference(event.topic, first_seq, count, chunk=chunk))

    def moved(self, event: ev.Event, span: tuple[int, int], block: bytes) -> None:
        """See `RecordVisitor`."""
        self._move(event.topic, [span], block)

    def replaced(self, event: ev.Event, block: bytes) -> None:
        """See `RecordVisitor`."""
        # Seqs between them stay where they are.
        runs: rg.Ranges = []
        for seq in BlockView(block).numbers(SEQ) or ():
            rg.add(runs, seq, seq)
        self._move(event.topic, runs, block)

    def _append(self, event: ev.Event, first: int, count: int, size: int) -> None:
        at = event.at
        part = self._parts.get(event.topic) or self._part(event.topic)
        rg.add(part.ranges, first, first + count - 1)
        part.rows += count
        part.bytes += size
        if at > part.last_ts:
            part.last_ts = at
        if at < part.first_ts or not part.first_ts:
            part.first_ts = at

    def _move(self, topic: int, spans: rg.Ranges, block: bytes) -> None:
        part = self._part(topic)
        view = BlockView(block)
        times = view.numbers(TS) or (0,)
        for span in spans:
            rg.add(part.moved, *span)
        part.moved_rows += view.count
        part.moved_bytes += view.size_total()
        part.moved_first_ts = min(part.moved_first_ts or min(times), *times)
        part.moved_last_ts = max(part.moved_last_ts, *times)

    def _note_copies(self, topic: int, router_of: int, first: int, seqs: Sequence[int]) -> None:
        """Tell the copies whose originals are in this segment from those that are not."""
        router = self.known.routers.get(router_of)
        source = router.source if router is not None else 0
        here = self._parts.get(source)
        if here is not None and self._is_here(here, seqs[0], seqs[-1]):
            return
        runs: list[Reference] = []
        for copy, seq in enumerate(seqs, first):
            if here is not None and self._is_here(here, seq, seq):
                continue
            run = runs[-1] if runs else None
            if run is not None and (run.source_first + run.count, run.first + run.count) == (
                seq,
                copy,
            ):
                run.count += 1
            else:
                runs.append(Reference(topic, copy, 1, source, seq))
        for run in runs:
            self._add_reference(run)

    def _is_here(self, part: TopicPart, first: int, last: int) -> bool:
        if rg.holds(part.moved, first, last):
            return True
        referenced = self._referenced.get(part.topic)
        if referenced and rg.cut(referenced, first, last):
            return False
        return rg.holds(part.ranges, first, last)

    def _add_reference(self, reference: Reference) -> None:
        last = reference.first + reference.count - 1
        rg.add(self._referenced.setdefault(reference.topic, []), reference.first, last)
        before = self._references[-1] if self._references else None
        if (
            before is not None
            and reference.chunk is None is before.chunk
            and (before.topic, before.source) == (reference.topic, reference.source)
            and before.first + before.count == reference.first
            and before.source_first + before.count == reference.source_first
        ):
            before.count += reference.count
        else:
            self._references.append(reference)
