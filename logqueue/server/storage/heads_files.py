"""Heads files: sealed segments of the jobs log without the data of records, for a quick start.

Owns: the form of these files, when one may be used in place of its segment, writing and removing
them. Must not know: the state, when segments are sealed or dropped.

Beside `<segment>.wal` there may be `<segment>.wal.heads`: what every frame of the segment says, but
in place of the data of records where it is in the segment, and its checksums (`heads_frames`). A
replay of it leads to the same state as one of the segment, and data is read from the segment when
it is wanted, and checked then (`payload_store`).

A heads file is a copy, never the only place of anything. It is used only if its checksums are
right, it names this log, this segment and this size of its file, and the header of the segment's
last frame is the one it was made of: that covers the frame, which no other life of the log has
written the same. Otherwise the segment is read whole. It is written in a draft, synced and renamed,
so that there is either no file or a whole one.

Layout, little endian: `_HEADER`, its u32 checksum, then a msgpack array of `HeadsFrame`. Files of
version 1, which had no runs, are still read.
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

from logqueue.server.storage import payload_store
from logqueue.server.storage.heads_frames import HeadsFrame, Unusable, without_data
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

TRIED_SHARE = 0.25
"""Whether it would is known once it is larger than that part of this part of its segment."""

WINDOW_BYTES: Final = 4 << 20
STEP_BYTES: Final = 256 << 10
STEP_FRAMES: Final = 64

_MAGIC: Final = b"LQHEADS\n"
_VERSION: Final = 2
_VERSIONS_READ: Final = (1, 2)
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


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[HeadsFrame])


class HeadsFiles:
    """The heads files in the directory of a jobs log. `read` is for the start of the log; all else
    may block on the disk, and may be called from any one thread at a time.

    Attributes:
        sizes: Size in bytes of the heads file of each segment that has one, as far as is known.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self.sizes: dict[int, int] = {}
        # Segments that have one, and those that need not be looked at again.
        self._seen: set[int] = set()
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
        except (Unusable, OSError) as problem:
            logger.warning("%s is not used, the segment is read: %s", path + SUFFIX, problem)
            return None
        self.sizes[header.id] = len(data)
        self._seen.add(header.id)
        short: list[Frame] = []
        number = found.first - 1
        for entry in frames:
            number += entry.frames
            left_out = entry.run or entry.left_out
            short.append(Frame(number, header.id, entry.payload, entry.offset, left_out))
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
        """Raises Unusable when a heads file is of another segment than this."""
        wanted = (header.identity, header.id, header.first, size)
        if (found.identity, found.segment, found.first, found.size) != wanted:
            raise Unusable("it was made of another segment")
        if found.page_bytes != payload_store.PAGE_BYTES:
            raise Unusable(f"its pages are of {found.page_bytes} bytes")
        file = self._fs.open(path)
        try:
            tail = file.pread(FRAME_HEADER_BYTES, found.tail_at)
        finally:
            file.close()
        if tail != found.tail:
            raise Unusable("the segment ends with another frame")

    # -- making one ------------------------------------------------------------------------------

    def write(self, segment: SegmentInfo) -> Generator[None, None, None]:
        """Write the heads file of a sealed segment, unless it has one, or it would be too large to
        be of use.

        Args:
            segment: Its file never changes again.

        Yields:
            After about a millisecond of work each. The first step reads some MiB.
        """
        if segment.id in self._seen:
            return
        self._seen.add(segment.id)
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
        except (Unusable, OSError) as problem:
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
        self._seen = {id for id in self._seen if id >= segment}

    def remove_all(self) -> None:
        """Remove all of them durably: segments may be about to change.

        Raises:
            OSError: As the file system does.
        """
        self.remove_before(1 << 64)
        self._fs.sync_dir(self._directory)


def _decode(data: bytes) -> tuple[_HeadsHeader, list[HeadsFrame]]:
    """Header and frames of a heads file.

    Raises:
        Unusable: It is damaged, or of another version.
    """
    begin = _HEADER.size + _U32.size
    if len(data) < begin or _U32.unpack_from(data, _HEADER.size)[0] != crc32(data[: _HEADER.size]):
        raise Unusable("its header is damaged")
    magic, version, *fields = _HEADER.unpack_from(data)
    if magic != _MAGIC or version not in _VERSIONS_READ:
        raise Unusable("it is of another version")
    header = _HeadsHeader(*fields)
    body = memoryview(data)[begin:]
    if len(body) != header.body_bytes or crc32(body) != header.body_sum:
        raise Unusable("it is damaged")
    try:
        frames = _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise Unusable(f"it is of another version: {error}") from error
    if sum(frame.frames for frame in frames) != header.last - header.first + 1:
        raise Unusable("frames are missing in it")
    return header, frames


def _made(file: File, segment: SegmentInfo) -> Generator[None, None, bytes]:
    """The content of the heads file of a segment.

    Raises:
        Unusable: There can be none.
        OSError: As the file system does.
    """
    _, header = decode_header(file.pread(HEADER_BYTES, 0))
    if header is None or (header.id, header.first) != (segment.id, segment.first):
        raise Unusable("its header is damaged")
    frames = _SegmentFrames(file, segment, header)
    # How many entries there are is known at the end.
    body = bytearray(_ARRAY + bytes(4))
    entries = at = count = 0
    for entry in without_data(frames):
        body += _encoder.encode(entry)
        entries += 1
        if len(body) > SHARE_MAX * max(frames.tail_at, segment.bytes * TRIED_SHARE):
            raise Unusable("too little of it is data")
        if frames.tail_at >= at + STEP_BYTES or frames.count >= count + STEP_FRAMES:
            at, count = frames.tail_at, frames.count
            yield
    body[len(_ARRAY) : len(_ARRAY) + 4] = entries.to_bytes(4, "big")
    made = _HeadsHeader(
        payload_store.PAGE_BYTES,
        segment.id,
        segment.first,
        segment.last,
        file.size(),
        segment.bytes,
        frames.watermark,
        frames.tail_at,
        header.identity,
        file.pread(FRAME_HEADER_BYTES, frames.tail_at),
        len(body),
        crc32(body),
    )
    return made.encode() + body


class _SegmentFrames:
    """The frames of a segment, all checked, read window by window.

    Attributes:
        count: How many were given by now.
        tail_at: Where the last of them begins.
        watermark: Of the last, once there are no more.
    """

    def __init__(self, file: File, segment: SegmentInfo, header: SegmentHeader) -> None:
        self.count = self.tail_at = self.watermark = 0
        self._file = file
        self._segment = segment
        self._salt = salt_of(header.identity, header.id)

    def __iter__(self) -> Iterator[Frame]:
        """Each frame once.

        Raises:
            Unusable: One is damaged.
            OSError: As the file system does.
        """
        segment, new = self._segment, tuple.__new__
        offset, first, wanted = HEADER_BYTES, segment.first, WINDOW_BYTES
        while first <= segment.last:
            data = self._file.pread(min(wanted, segment.bytes - offset), offset)
            walk = Walk(data, self._salt, first, segment.id, FRAME_BYTES_MAX, 0)
            for number, id, payload, at, _ in walk:
                self.count += 1
                self.tail_at = offset + at - FRAME_HEADER_BYTES
                yield new(Frame, (number, id, payload, offset + at, None))
            if walk.number == first:
                needed = WINDOW_BYTES
                if len(data) >= FRAME_HEADER_BYTES:
                    needed = frame_bytes(FRAME_FIELDS.unpack_from(data)[1])
                if needed <= wanted or needed > segment.bytes - offset:
                    raise Unusable(f"frame {first}: {walk.problem}")
                wanted = needed
                continue
            offset += walk.offset
            first = walk.number
            self.watermark = walk.watermark
            wanted = WINDOW_BYTES
