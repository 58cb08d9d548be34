"""Frames of the jobs log without the data of their records: what a heads file says of each.

Owns: which part of a transaction is left out, which neighbouring appends are one entry, and how an
entry becomes the events of its frames again. Must not know: files, when they are used.

A frame keeps its payload, with heads in place of blocks that are large. Where producers do not
batch, a segment has a frame for each record; so neighbouring appends with nothing between them in
either log are one entry (`core/apply/append_runs`), whose data is gathered from their frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from logqueue import events as ev
from logqueue.core.apply.append_runs import AppendRun, TransactionRun, in_runs
from logqueue.events import split_block
from logqueue.events.split_block import SplitBlock, data_bounds, split
from logqueue.server.storage.payload_store import PayloadStore, find_block, page_sums
from wal import Frame

RUN_BLOCK_BYTES_MAX: Final = 16 << 10
"""Larger appends are entries of their own: to read one of a run may mean to read what is between
them, too."""

_U32: Final = Struct("<I")


class HeadsRun(msgspec.Struct, frozen=True, array_like=True):
    """Some frames, each of them an append of one transaction, as one.

    Attributes:
        frames: How many.
        begins, order: Of the first transaction and the last. No other comes between the two that is
            not such an append.
        append: What the frames come to; its block may be a head.
        spans: Where the data is if it is left out, from `HeadsFrame.offset` on: for each append how
            many bytes are in front of its data, and how many it has (u32 each).
        sums: The checksum of the data of each append (u32 each).
    """

    frames: int
    begins: int
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


class _Decoded(NamedTuple):
    """A frame and what it says."""

    frame: Frame
    segment: int
    transaction: ev.Transaction


def without_data(frames: Iterable[Frame]) -> Iterator[HeadsFrame]:
    """What a heads file says of the frames of a segment.

    Raises:
        Unusable: A block of a frame was not found in it.
    """
    decoded = (_Decoded(frame, frame.segment, ev.decode(frame.payload)) for frame in frames)
    for is_known, stretch in groupby(decoded, _is_known):
        if is_known:
            for run in in_runs(stretch, RUN_BLOCK_BYTES_MAX):
                frame, _, transaction = run.entries[0]
                if run.order == transaction.order:
                    yield shortened(frame, transaction)
                else:
                    yield _of_run(run)
        else:
            for frame, _, transaction in stretch:
                yield shortened(frame, transaction)


def _of_run(run: TransactionRun[_Decoded]) -> HeadsFrame:
    append = run.joined()
    frames, begins = len(run.entries), run.entries[0].transaction.order
    if data_bounds(append.block)[1] < split_block.SPLIT_FROM_BYTES:
        whole = HeadsRun(frames, begins, run.order, append, b"", b"")
        return HeadsFrame(run.entries[0].frame.offset, b"", [], whole)
    spans: list[int] = []
    sums: list[int] = []
    first = end = 0
    for (frame, _, _), event in zip(run.entries, run.events, strict=True):
        block = event.block
        base, length = data_bounds(block)
        begin = frame.offset + find_block(frame.payload, block, 0) + base
        first = first or begin
        spans += (begin - (end or begin), length)
        sums.append(crc32(memoryview(block)[base : base + length]))
        end = begin + length
    head = msgspec.structs.replace(append, block=split(append.block).head)
    packed = Struct(f"<{2 * frames}I").pack(*spans), Struct(f"<{frames}I").pack(*sums)
    return HeadsFrame(first, b"", [], HeadsRun(frames, begins, run.order, head, *packed))


def _is_known(entry: _Decoded) -> bool:
    """Whether there is nothing in a frame that only a later version knows."""
    order, events = entry.transaction.order, entry.transaction.events
    # A frame that was lost to damage has no event.
    return bool(events) and ev.encode(order, events) == entry.frame.payload


def shortened(frame: Frame, transaction: ev.Transaction | None = None) -> HeadsFrame:
    """A frame without the data of its blocks, but of those that a start needs whole. All else of
    the payload stays as it is, byte by byte: a field that only a later version knows is not lost.

    Raises:
        Unusable: A block of it was not found in it.
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
            if length >= smallest and not event.keeps_blocks_whole:
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


def restored(frame: Frame, payloads: PayloadStore) -> tuple[int, ev.Transaction]:
    """The transaction of a frame, or the one that replaces those of a run, with blocks of which
    the data is in the segment; and the number of the first one.

    Raises:
        msgspec.DecodeError: The bytes are not a transaction of this version.
    """
    run = frame.left_out
    if isinstance(run, HeadsRun):
        append: ev.Event = run.append
        if run.spans:
            append = append.with_blocks([_gathered(frame, run, payloads)])
        return run.begins, ev.Transaction(run.order, [append])
    transaction = ev.decode(frame.payload)
    if frame.left_out:
        _put_in_blocks(frame, transaction, payloads)
    return transaction.order, transaction


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
