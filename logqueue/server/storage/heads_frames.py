"""Frames of the jobs log without the data of their records: what a heads file says of each.

Owns: which part of a transaction is left out, which neighbouring appends are one entry, and how an
entry becomes the events of its frames again. Must not know: files, when they are used.

A frame keeps its payload, with heads in place of blocks that are large. Where producers do not
batch, a segment has a frame for each record; so neighbouring appends with nothing between them in
either log are one entry (`core/apply/append_runs`), whose data is gathered from their frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from logqueue import events as ev
from logqueue.core.apply.append_runs import AppendRun, RunBuilder
from logqueue.core.apply.replay import RUNS_MAX
from logqueue.events import split_block
from logqueue.events.split_block import SplitBlock, data_bounds, split
from logqueue.server.storage.payload_store import PayloadStore, find_block, page_sums
from wal import Frame

_U32: Final = Struct("<I")
_U16_MAX: Final = (1 << 16) - 1


class HeadsRun(msgspec.Struct, frozen=True, array_like=True):
    """Some frames, each of them an append of one transaction, as one.

    Attributes:
        frames: How many.
        order: Of the last transaction. No other comes between the first and this one that is not
            such an append.
        append: What the frames come to; its block may be a head.
        spans: Where the data is if it is left out, from `HeadsFrame.offset` on: for each append how
            many bytes are in front of its data, and how many it has (u16 each).
        sums: The checksum of the data of each append (u32 each).
    """

    frames: int
    order: int
    append: AppendRun
    spans: bytes
    sums: bytes


class HeadsFrame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A frame without data, or a run of them.

    Attributes:
        offset: Where its payload begins in the segment; of a run, where data begins.
        payload: The transaction; the blocks of which data is left out are heads only. Of a run b"".
        left_out: Of each of those: its place among the blocks of the transaction, where its data
            begins in the segment, and the u32 checksums of the pages.
        run: The run.
    """

    offset: int
    payload: bytes
    left_out: list[tuple[int, int, bytes]]
    run: HeadsRun | None = None

    @property
    def frames(self) -> int:
        """How many frames of the segment it replaces."""
        return self.run.frames if self.run is not None else 1


class Unusable(Exception):
    """Why there is, or can be, no heads file of a segment."""


class _Run:
    """A run that grows.

    Attributes:
        order: Of the last transaction.
    """

    __slots__ = ("_begin", "_builder", "_end", "_first", "_spans", "_sums", "order")

    def __init__(self) -> None:
        self._builder = RunBuilder()
        self._spans: list[int] = []
        self._sums: list[int] = []
        self._begin = self._end = self.order = 0
        self._first: Frame | None = None

    def take(self, event: ev.Event, order: int, frame: Frame) -> bool:
        """Take in the only event of a frame, if it is an append like those before."""
        blocks = event.record_blocks()
        if len(blocks) != 1 or ev.encode(order, [event]) != frame.payload:
            # A field that only a later version knows would be lost.
            return False
        (block,) = blocks
        at = find_block(frame.payload, block, 0)
        base, length = data_bounds(block)
        begin = frame.offset + at + base
        gap = begin - self._end if self._first is not None else 0
        if at < 0 or gap > _U16_MAX or length > _U16_MAX:
            return False
        if not self._builder.take(event, frame.segment):
            return False
        if self._first is None:
            self._first, self._begin = frame, begin
        self._spans += (gap, length)
        self._sums.append(crc32(memoryview(block)[base : base + length]))
        self._end = begin + length
        self.order = order
        return True

    def entry(self, order: int) -> HeadsFrame:
        """What the heads file says; `order` is that of the last transaction by now."""
        frames = len(self._builder.events)
        if frames == 1:
            assert self._first is not None
            return shortened(self._first)
        append = self._builder.joined()
        if data_bounds(append.block)[1] < split_block.SPLIT_FROM_BYTES:
            return HeadsFrame(self._begin, b"", [], HeadsRun(frames, order, append, b"", b""))
        sums = Struct(f"<{frames}I").pack(*self._sums)
        spans = Struct(f"<{len(self._spans)}H").pack(*self._spans)
        head = msgspec.structs.replace(append, block=split(append.block).head)
        return HeadsFrame(self._begin, b"", [], HeadsRun(frames, order, head, spans, sums))


class Shortening:
    """The frames of a segment in their order, on their way into its heads file."""

    def __init__(self) -> None:
        # By topic. What is appended to different topics may change places.
        self._runs: dict[int, _Run] = {}
        self._order = 0

    def take(self, frame: Frame) -> Iterator[HeadsFrame]:
        """The next frame.

        Yields:
            The entries that are complete.

        Raises:
            Unusable: A block of it is needed whole.
        """
        transaction = ev.decode(frame.payload)
        order, events = transaction.order, transaction.events
        if order != self._order + 1:
            # The other log may have a word between the two.
            yield from self.rest()
        self._order = order
        event = events[0] if len(events) == 1 else None
        if event is not None and event.holds_records:
            run = self._runs.pop(event.topic, None)
            if run is not None and run.take(event, order, frame):
                self._runs[event.topic] = run
                return
            if run is not None:
                yield run.entry(order - 1)
            run = _Run()
            if run.take(event, order, frame):
                if len(self._runs) == RUNS_MAX:
                    yield from self.rest()
                self._runs[event.topic] = run
                return
        yield from self.rest()
        yield shortened(frame, transaction)

    def rest(self) -> Iterator[HeadsFrame]:
        """What is still to be completed."""
        runs, self._runs = self._runs, {}
        for run in runs.values():
            yield run.entry(max(each.order for each in runs.values()))


def shortened(frame: Frame, transaction: ev.Transaction | None = None) -> HeadsFrame:
    """A frame without the data of its blocks. All else of the payload stays as it is, byte by byte:
    a field that only a later version knows is not lost.

    Raises:
        Unusable: A block of it is needed whole.
    """
    payload, smallest = frame.payload, split_block.SPLIT_FROM_BYTES
    if len(payload) < smallest:
        return HeadsFrame(frame.offset, payload, [])
    left_out: list[tuple[int, int, bytes]] = []
    parts: list[bytes] = []
    expected: list[ev.Event] = []
    place = done = 0
    transaction = transaction or ev.decode(payload)
    for event in transaction.events:
        blocks = [*event.record_blocks()]
        for index, block in enumerate(blocks):
            base, length = data_bounds(block)
            if length >= smallest:
                if event.keeps_blocks_whole:
                    raise Unusable("a block of it is needed with its data")
                at = find_block(payload, block, done)
                begin = at - len(_bin_header(len(block)))
                if begin < done or payload[begin:at] != _bin_header(len(block)):
                    raise Unusable("a block of it was not found")
                head = blocks[index] = split(block).head
                parts += (payload[done:begin], _bin_header(len(head)), head)
                done = at + len(block)
                sums = page_sums(memoryview(block)[base : base + length])
                packed = Struct(f"<{len(sums)}I").pack(*sums)
                left_out.append((place, frame.offset + at + base, packed))
            place += 1
        expected.append(event.with_blocks(blocks) if blocks else event)
    short = b"".join((*parts, payload[done:]))
    if left_out and ev.decode(short) != ev.Transaction(transaction.order, expected):
        raise Unusable("a block of it was not found")
    return HeadsFrame(frame.offset, short, left_out)


def _bin_header(length: int) -> bytes:
    """What msgpack writes in front of so many bytes."""
    for kind, width in ((b"\xc4", 1), (b"\xc5", 2)):
        if length < 1 << 8 * width:
            return kind + length.to_bytes(width, "big")
    return b"\xc6" + length.to_bytes(4, "big")


def restored(frame: Frame, payloads: PayloadStore) -> ev.Transaction:
    """The transaction of a frame, or the one that replaces those of a run, with blocks of which
    the data is in the segment.

    Raises:
        msgspec.DecodeError: The bytes are not a transaction of this version.
    """
    run = frame.left_out
    if isinstance(run, HeadsRun):
        append: ev.Event = run.append
        if run.spans:
            append = append.with_blocks([_gathered(frame, run, payloads)])
        return ev.Transaction(run.order, [append])
    transaction = ev.decode(frame.payload)
    if frame.left_out:
        _put_in_blocks(frame, transaction, payloads)
    return transaction


def _gathered(frame: Frame, run: HeadsRun, payloads: PayloadStore) -> SplitBlock:
    head = run.append.block
    length = data_bounds(head)[1]
    data = payloads.gathered(frame.segment, frame.offset, length, run.spans, run.sums)
    return SplitBlock(head, data, 0, length)


def _put_in_blocks(frame: Frame, transaction: ev.Transaction, payloads: PayloadStore) -> None:
    """Make the heads in the events of a frame blocks of which the data is in the segment."""
    assert isinstance(frame.left_out, list)
    left_out = {place: (offset, sums) for place, offset, sums in frame.left_out}
    events = transaction.events
    place = 0
    for index, event in enumerate(events):
        blocks: list[bytes | SplitBlock] = []
        for head in event.record_blocks():
            found = left_out.get(place)
            place += 1
            if found is None:
                blocks.append(head)
                continue
            offset, packed = found
            sums = Struct(f"<{len(packed) // _U32.size}I").unpack(packed)
            length = data_bounds(head)[1]
            data = payloads.stored(frame.segment, offset, length, sums)
            blocks.append(SplitBlock(head, data, 0, length))
        if any(isinstance(block, SplitBlock) for block in blocks):
            events[index] = event.with_blocks(blocks)
