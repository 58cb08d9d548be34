"""Heads files: sealed segments of the jobs log without the data of records, for a quick start.

Owns: the form of these files, when one may be used in place of its segment, writing and removing
them. Must not know: the state, when segments are sealed or dropped.

Beside `<segment>.wal` there may be `<segment>.wal.heads`: every frame of the segment, but in place
of each block its head (`events/split_block`), where the data of the block is in the segment, and
the checksum of each page of it. A replay of it leads to the same state as one of the segment, and
data is read from the segment when it is wanted, and checked then (`payload_store`).

A heads file is a copy, never the only place of anything. It is used only if its checksums are
right, it names this log, this segment and this size of its file, and the header of the segment's
last frame is the one it was made of: that covers the frame, which no other life of the log has
written the same. Otherwise the segment is read whole. It is written in a draft, synced and renamed,
so that there is either no file or a whole one.

Layout, little endian: `_HEADER`, its u32 checksum, then a msgpack array of `_HeadsFrame`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Generator, Iterator
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from logqueue import events as ev
from logqueue.events import split_block
from logqueue.events.split_block import SplitBlock, data_bounds, split
from logqueue.server.storage import payload_store
from logqueue.server.storage.payload_store import PayloadStore, find_block, page_sums
from wal import (
    FRAME_BYTES_MAX,
    FRAME_FIELDS,
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    File,
    FileSystem,
    Frame,
    SegmentHeader,
    SegmentInfo,
    ShortSegment,
    Walk,
    decode_header,
    frame_bytes,
    salt_of,
)

SUFFIX: Final = ".heads"
DRAFT_SUFFIX: Final = ".new"
_NAME: Final = re.compile(r"(\d{20})\.wal\.heads(\.new)?", re.ASCII)

SHARE_MAX = 0.5
"""A heads file that is larger than this part of its segment would save too little reading."""

WINDOW_BYTES: Final = 4 << 20
STEP_BYTES: Final = 256 << 10
STEP_FRAMES: Final = 64

_MAGIC: Final = b"LQHEADS\n"
_VERSION: Final = 1
_HEADER: Final = Struct("<8sIIQQQQQQQ16s32sQI")
_U32: Final = Struct("<I")
_ARRAY: Final = b"\xdd"

logger = logging.getLogger("logqueue.heads")


class _HeadsHeader(NamedTuple):
    """What a heads file is of.

    Attributes:
        page_bytes: Of the data that has one checksum.
        segment, first, last: Its id, and the numbers of its first and last frame.
        size: Of its file, in bytes.
        end: Where its last frame ends.
        watermark: Of its last frame.
        tail_at: Where its last frame begins.
        identity: Of the log.
        tail: The header of its last frame.
        body_bytes, body_sum: Size and checksum of what follows in the heads file.
    """

    page_bytes: int
    segment: int
    first: int
    last: int
    size: int
    end: int
    watermark: int
    tail_at: int
    identity: bytes
    tail: bytes
    body_bytes: int
    body_sum: int

    def encode(self) -> bytes:
        """With its checksum."""
        fields = _HEADER.pack(_MAGIC, _VERSION, *self)
        return fields + _U32.pack(crc32(fields))


class _HeadsFrame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A frame without data.

    Attributes:
        offset: Where its payload begins in the segment.
        payload: The transaction; the blocks of which data is left out are heads only.
        left_out: Of each of those: its place among the blocks of the transaction, where its data
            begins in the segment, and the u32 checksums of the pages.
    """

    offset: int
    payload: bytes
    left_out: list[tuple[int, int, bytes]]


class _Unusable(Exception):
    """Why there is, or can be, no heads file of a segment."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_HeadsFrame])


class HeadsFiles:
    """The heads files in the directory of a jobs log. `read` is for the start of the log; all else
    may block on the disk, and may be called from any one thread at a time.

    Attributes:
        sizes: Size in bytes of the heads file of each segment that has one, as far as is known.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self.sizes: dict[int, int] = {}
        self._fs = fs
        self._directory = directory

    # -- in place of a segment -------------------------------------------------------------------

    def read(self, header: SegmentHeader, path: str, size: int) -> ShortSegment | None:
        """See `wal.recovery.ReadShort`."""
        try:
            data = self._content(path + SUFFIX)
            found, frames = _decode(data)
            self._require_same(found, header, path, size)
        except FileNotFoundError:
            return None
        except (_Unusable, OSError) as problem:
            logger.warning("%s is not used, the segment is read: %s", path + SUFFIX, problem)
            return None
        self.sizes[header.id] = len(data)
        new = tuple.__new__
        short = [
            new(Frame, (number, header.id, frame.payload, frame.offset, frame.left_out))
            for number, frame in enumerate(frames, found.first)
        ]
        return ShortSegment(short, found.end, found.last + 1, found.watermark)

    def _content(self, path: str) -> bytes:
        file = self._fs.open(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def _require_same(
        self, found: _HeadsHeader, header: SegmentHeader, path: str, size: int
    ) -> None:
        """Raises _Unusable when a heads file is of another segment than this."""
        wanted = (header.identity, header.id, header.first, size)
        if (found.identity, found.segment, found.first, found.size) != wanted:
            raise _Unusable("it was made of another segment")
        if found.page_bytes != payload_store.PAGE_BYTES:
            raise _Unusable(f"its pages are of {found.page_bytes} bytes")
        file = self._fs.open(path)
        try:
            tail = file.pread(FRAME_HEADER_BYTES, found.tail_at)
        finally:
            file.close()
        if tail != found.tail:
            raise _Unusable("the segment ends with another frame")

    # -- making one ------------------------------------------------------------------------------

    def write(self, segment: SegmentInfo, data_bytes: int) -> Generator[None, None, None]:
        """Write the heads file of a sealed segment, unless it would be too large to be of use.

        Args:
            segment: Its file never changes again.
            data_bytes: About how much of it is data.

        Yields:
            After about a millisecond of work each. The first step reads some MiB.
        """
        if segment.bytes - data_bytes > segment.bytes * SHARE_MAX:
            return
        path = segment.path + SUFFIX
        draft = path + DRAFT_SUFFIX
        try:
            file = self._fs.open(segment.path)
            try:
                content = yield from _made(file, segment)
            finally:
                file.close()
            yield
            with_draft = self._fs.create(draft)
            try:
                for at in range(0, len(content), STEP_BYTES):
                    with_draft.pwrite(content[at : at + STEP_BYTES], at)
                    yield
                with_draft.sync()
            finally:
                with_draft.close()
            self._fs.rename(draft, path)
            self.sizes[segment.id] = len(content)
        except FileNotFoundError:
            # The segment was dropped.
            return
        except (_Unusable, OSError) as problem:
            with suppress(OSError):
                self._fs.remove(draft)
            logger.info("no heads file of %s: %s", segment.path, problem)

    # -- removal ---------------------------------------------------------------------------------

    def remove_before(self, segment: int) -> None:
        """Remove those of segments below this one, which are gone. Those that remain are harmless.

        Raises:
            OSError: As the file system does.
        """
        for name in self._fs.listdir(self._directory):
            matched = _NAME.fullmatch(name)
            if matched is not None and int(matched[1]) < segment:
                with suppress(FileNotFoundError):
                    self._fs.remove(os.path.join(self._directory, name))
                self.sizes.pop(int(matched[1]), None)

    def remove_all(self) -> None:
        """Remove all of them durably: segments may be about to change.

        Raises:
            OSError: As the file system does.
        """
        self.remove_before(1 << 64)
        self._fs.sync_dir(self._directory)


def _decode(data: bytes) -> tuple[_HeadsHeader, list[_HeadsFrame]]:
    """Header and frames of a heads file.

    Raises:
        _Unusable: It is damaged, or of another version.
    """
    begin = _HEADER.size + _U32.size
    if len(data) < begin or _U32.unpack_from(data, _HEADER.size)[0] != crc32(data[: _HEADER.size]):
        raise _Unusable("its header is damaged")
    magic, version, *fields = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        raise _Unusable("it is of another version")
    header = _HeadsHeader(*fields)
    body = memoryview(data)[begin:]
    if len(body) != header.body_bytes or crc32(body) != header.body_sum:
        raise _Unusable("it is damaged")
    try:
        frames = _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise _Unusable(f"it is of another version: {error}") from error
    if len(frames) != header.last - header.first + 1:
        raise _Unusable("frames are missing in it")
    return header, frames


def _made(file: File, segment: SegmentInfo) -> Generator[None, None, bytes]:
    """The content of the heads file of a segment.

    Raises:
        _Unusable: There can be none.
        OSError: As the file system does.
    """
    _, header = decode_header(file.pread(HEADER_BYTES, 0))
    if header is None or (header.id, header.first) != (segment.id, segment.first):
        raise _Unusable("its header is damaged")
    largest = segment.bytes * SHARE_MAX
    body = bytearray(_ARRAY + (segment.last - segment.first + 1).to_bytes(4, "big"))
    body_sum = crc32(body)
    tail_at = watermark = done = 0
    for number, (frame, known) in enumerate(_frames(file, segment, header), 1):
        encoded = _encoder.encode(_shortened(frame))
        body += encoded
        body_sum = crc32(encoded, body_sum)
        if len(body) > largest:
            raise _Unusable("too little of it is data")
        tail_at, watermark = frame.offset - FRAME_HEADER_BYTES, known
        done += len(frame.payload)
        if done >= STEP_BYTES or number % STEP_FRAMES == 0:
            done = 0
            yield
    made = _HeadsHeader(
        payload_store.PAGE_BYTES,
        segment.id,
        segment.first,
        segment.last,
        file.size(),
        segment.bytes,
        watermark,
        tail_at,
        header.identity,
        file.pread(FRAME_HEADER_BYTES, tail_at),
        len(body),
        body_sum,
    )
    return made.encode() + body


def _frames(file: File, segment: SegmentInfo, header: SegmentHeader) -> Iterator[tuple[Frame, int]]:
    """The frames of a segment with their watermarks, all checked, read window by window.

    Raises:
        _Unusable: One is damaged.
        OSError: As the file system does.
    """
    salt = salt_of(header.identity, header.id)
    offset, number, wanted = HEADER_BYTES, segment.first, WINDOW_BYTES
    while number <= segment.last:
        data = file.pread(min(wanted, segment.bytes - offset), offset)
        walk = Walk(data, salt, number, segment.id, FRAME_BYTES_MAX, 0)
        for frame in walk:
            watermark = FRAME_FIELDS.unpack_from(data, frame.offset - FRAME_HEADER_BYTES)[3]
            yield frame._replace(offset=offset + frame.offset), watermark
        if walk.number == number:
            needed = WINDOW_BYTES
            if len(data) >= FRAME_HEADER_BYTES:
                needed = frame_bytes(FRAME_FIELDS.unpack_from(data)[1])
            if needed <= wanted or needed > segment.bytes - offset:
                raise _Unusable(f"frame {number}: {walk.problem}")
            wanted = needed
            continue
        offset += walk.offset
        number = walk.number
        wanted = WINDOW_BYTES


# -- transactions without data ---------------------------------------------------------------------


def _shortened(frame: Frame) -> _HeadsFrame:
    """A frame without the data of its blocks. All else of the payload stays as it is, byte by byte:
    a field that only a later version knows is not lost.

    Raises:
        _Unusable: A block of it is needed whole.
    """
    payload, smallest = frame.payload, split_block.SPLIT_FROM_BYTES
    if len(payload) < smallest:
        return _HeadsFrame(frame.offset, payload, [])
    left_out: list[tuple[int, int, bytes]] = []
    parts: list[bytes] = []
    expected: list[ev.Event] = []
    place = done = 0
    transaction = ev.decode(payload)
    for event in transaction.events:
        blocks = [*event.record_blocks()]
        for index, block in enumerate(blocks):
            base, length = data_bounds(block)
            if length >= smallest:
                if event.keeps_blocks_whole:
                    raise _Unusable("a block of it is needed with its data")
                at = find_block(payload, block, done)
                begin = at - len(_bin_header(len(block)))
                if begin < done or payload[begin:at] != _bin_header(len(block)):
                    raise _Unusable("a block of it was not found")
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
        raise _Unusable("a block of it was not found")
    return _HeadsFrame(frame.offset, short, left_out)


def _bin_header(length: int) -> bytes:
    """What msgpack writes in front of so many bytes."""
    for kind, width in ((b"\xc4", 1), (b"\xc5", 2)):
        if length < 1 << 8 * width:
            return kind + length.to_bytes(width, "big")
    return b"\xc6" + length.to_bytes(4, "big")


def put_in_blocks(frame: Frame, transaction: ev.Transaction, payloads: PayloadStore) -> None:
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
