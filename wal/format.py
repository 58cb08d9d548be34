"""The bytes of the log: segment header and frame, as docs/wal-format.md draws them.

Owns encoding, decoding and the walk over a buffer of frames. Pure: must not know files, threads,
or what a damage means (recovery.py decides that).

The theory of the walk: a frame is believed only if all of this holds, tested in an order in which
no field is used before it was checked.

    1. 32 bytes are there and begin with the magic          (zeros stop here)
    2. the header check matches: crc32(salt; bytes 0..23)   (now the length is trustworthy)
    3. length <= bound, and the padded frame is all there
    4. crc32 continued over payload and padding matches
    5. number is the one expected, watermark below it
"""

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple
from zlib import crc32

VERSION: Final = 1
SEGMENT_MAGIC: Final = b"WALSEG\r\n"
IDENTITY_BYTES: Final = 16
HEADER_BYTES: Final = 4096
_SEGMENT: Final = struct.Struct("<8sIIQQ16s")
_U32: Final = struct.Struct("<I")
_SEGMENT_PAGE_USED: Final = _SEGMENT.size + _U32.size

FRAME_MAGIC: Final[int] = 0xF7A3C159
FRAME_MAGIC_BYTES: Final = _U32.pack(FRAME_MAGIC)
FRAME_HEADER_BYTES: Final = 32
FRAME_BYTES_LIMIT: Final = (1 << 32) - 1
FRAME_ALIGN: Final = 8
FRAME_CHECKED_BYTES: Final = 24
FRAME_FIELDS: Final = struct.Struct("<IIQQ")
FRAME_CHECKS: Final = struct.Struct("<II")
_FRAME: Final = struct.Struct("<IIQQII")
PADDING: Final = tuple(bytes(n) for n in range(FRAME_ALIGN))

assert FRAME_MAGIC != 0  # so that zeros are never a frame
assert FRAME_FIELDS.size == FRAME_CHECKED_BYTES
assert FRAME_FIELDS.size + FRAME_CHECKS.size == FRAME_HEADER_BYTES == _FRAME.size
assert HEADER_BYTES % FRAME_ALIGN == 0 and FRAME_HEADER_BYTES % FRAME_ALIGN == 0
assert _SEGMENT_PAGE_USED <= HEADER_BYTES


class Frame(NamedTuple):
    """One payload with its place: `number` counts from 1, `segment` is the id of its file, and
    `offset` is where the payload begins in there, in bytes. `left_out` is what the owner of the log
    needs to know of a payload that was shortened (see `ShortSegment`); None when it is whole."""

    number: int
    segment: int
    payload: bytes
    offset: int = 0
    left_out: object = None


class SegmentHeader(NamedTuple):
    """What the first page of a segment says."""

    id: int
    first: int
    identity: bytes


class HeaderState(Enum):
    """The content of the first page of a segment file."""

    OK = "ok"
    ABSENT = "absent"
    TORN = "torn"
    FOREIGN = "foreign"


class End(Enum):
    """How a walk over frames ended."""

    CLEAN = "clean end of file"
    ZEROS = "zeros to the end of file"
    BAD = "a frame that is not whole"
    MISNUMBERED = "a whole frame whose number does not follow"


def encode_header(header: SegmentHeader) -> bytes:
    """The whole header page, HEADER_BYTES long."""
    assert header.id >= 1 and header.first >= 1
    assert len(header.identity) == IDENTITY_BYTES
    fields = _SEGMENT.pack(SEGMENT_MAGIC, VERSION, 0, header.id, header.first, header.identity)
    return (fields + _U32.pack(crc32(fields))).ljust(HEADER_BYTES, b"\0")


def decode_header(page: bytes) -> tuple[HeaderState, SegmentHeader | None]:
    """Judge the first page of a segment; the header comes with OK only.

    FOREIGN is a page whose checksum is right but that this version cannot read.
    """
    page = page[:HEADER_BYTES]
    if is_zero(page):
        return HeaderState.ABSENT, None
    if len(page) < HEADER_BYTES or not is_zero(page[_SEGMENT_PAGE_USED:]):
        return HeaderState.TORN, None
    magic, version, reserved, id, first, identity = _SEGMENT.unpack_from(page)
    if magic != SEGMENT_MAGIC or _U32.unpack_from(page, _SEGMENT.size) != (
        crc32(page[: _SEGMENT.size]),
    ):
        return HeaderState.TORN, None
    if version != VERSION or reserved != 0 or id < 1 or first < 1:
        return HeaderState.FOREIGN, None
    return HeaderState.OK, SegmentHeader(id, first, identity)


def salt_of(identity: bytes, segment: int) -> int:
    """The value frame checksums of this segment begin from."""
    assert len(identity) == IDENTITY_BYTES
    return crc32(identity + segment.to_bytes(8, "little"))


def frame_bytes(length: int) -> int:
    """Bytes a payload of `length` bytes takes in a segment, header and padding included."""
    return (FRAME_HEADER_BYTES + length + FRAME_ALIGN - 1) & -FRAME_ALIGN


def encode_frame(payload: bytes, number: int, watermark: int, salt: int) -> bytes:
    """One whole frame. (Log.append builds the same bytes from parts, without this copy.)"""
    assert 0 <= watermark < number
    fields = FRAME_FIELDS.pack(FRAME_MAGIC, len(payload), number, watermark)
    check = crc32(fields, salt)
    padding = PADDING[-len(payload) & 7]
    return b"".join(
        (
            fields,
            FRAME_CHECKS.pack(crc32(padding, crc32(payload, check)), check),
            payload,
            padding,
        )
    )


def is_zero(data: bytes) -> bool:
    """Whether there is nothing but zero bytes (or nothing at all)."""
    return data == bytes(len(data))


class ShortSegment:
    """The frames of a sealed segment with shorter payloads, from a file that its owner wrote.

    It counts as a walk over the segment: the attributes are those of a `Walk` that has ended.
    """

    end = End.CLEAN
    problem = ""

    def __init__(self, frames: Sequence[Frame], offset: int, number: int, watermark: int) -> None:
        """All frames, checked by the owner; the rest as the attributes of `Walk`."""
        self.offset = offset
        self.number = number
        self.watermark = watermark
        self._frames = frames

    def __iter__(self) -> Iterator[Frame]:
        """The frames in order."""
        return iter(self._frames)


class Walk:
    """Iterates the frames of one segment and then says where and why it stopped.

    Attributes:
        end: how it ended (BAD until it did).
        offset: byte offset behind the last good frame.
        number: number expected there; every frame given had a smaller one.
        problem: for BAD and MISNUMBERED, what was wrong at `offset`.
        watermark: of the last good frame, the highest of all; 0 when there is none.
    """

    def __init__(
        self,
        data: bytes,
        salt: int,
        first: int,
        segment: int,
        frame_bytes_max: int,
        start: int = HEADER_BYTES,
    ) -> None:
        """Over a whole segment; or over a part of one, when `start`, the place of the frame number
        `first` in `data`, is another. Offsets are those in `data`."""
        assert first >= 1
        self.end = End.BAD
        self.offset = start
        self.number = first
        self.problem = "not walked"
        self.watermark = 0
        self._data = data
        self._salt = salt
        self._segment = segment
        self._length_max = frame_bytes_max

    def __iter__(self) -> Iterator[Frame]:
        # One million frames are to pass in a second, so: no calls but those into C, no attributes.
        data, salt, segment = self._data, self._salt, self._segment
        offset, number, length_max = self.offset, self.number, self._length_max
        size, unpack, crc, new = len(data), _FRAME.unpack_from, crc32, tuple.__new__
        problem, known = "", 0
        while offset + 32 <= size:
            magic, length, found, watermark, check_all, check = unpack(data, offset)
            if magic != FRAME_MAGIC:
                problem = "no frame begins here"
                break
            if crc(data[offset : offset + 24], salt) != check:
                problem = "the frame header fails its check"
                break
            start = offset + 32
            stop = (start + length + 7) & -8
            if length > length_max or stop > size:
                problem = f"a length of {length} bytes is over the bound or the file"
                break
            body = data[start:stop]
            if crc(body, check) != check_all:
                problem = "the frame fails its checksum"
                break
            if found != number or watermark >= number:
                problem = f"frame {found} (watermark {watermark}) where {number} was expected"
                self.end = End.MISNUMBERED
                break
            payload = body if stop == start + length else body[:length]
            yield new(Frame, (number, segment, payload, start, None))
            offset = stop
            number += 1
            known = watermark
        self.watermark = known
        self.offset, self.number = offset, number
        if self.end is not End.MISNUMBERED:
            self._judge(problem or "the file ends inside a frame")
        self.problem = problem or self.problem

    def _judge(self, problem: str) -> None:
        """Tell clean ends from damage. Only bytes behind the last good frame are looked at."""
        self.problem = problem
        if self.offset >= len(self._data):
            self.end = End.CLEAN
        elif is_zero(self._data[self.offset :]):
            self.end = End.ZEROS
        else:
            self.end = End.BAD

    def run(self) -> "Walk":
        """Walk to the end, keeping no frame."""
        deque(self, maxlen=0)
        return self


def frames_behind(data: bytes, start: int, salt: int, number: int) -> tuple[bool, int]:
    """Look for whole frames behind a damage.

    Args:
        data: the whole segment.
        start: where the damage begins; aligned like a frame.
        salt: of the segment.
        number: of the damaged frame.

    Returns:
        Whether there is any, and the highest watermark among them (0 if none).
    """
    assert start % FRAME_ALIGN == 0
    found, watermark_max, size = False, 0, len(data)
    offset = data.find(FRAME_MAGIC_BYTES, start + 1)
    while offset != -1 and offset + FRAME_HEADER_BYTES <= size:
        step = 1
        if offset % FRAME_ALIGN == 0:
            _, length, at, watermark, check_all, check = _FRAME.unpack_from(data, offset)
            fields = data[offset : offset + FRAME_CHECKED_BYTES]
            stop = offset + frame_bytes(length)
            # The salted check admits only headers this log wrote here, so the crc over payloads
            # below is done once per real frame and the scan stays linear.
            if crc32(fields, salt) == check and stop <= size and at > number:
                body = data[offset + FRAME_HEADER_BYTES : stop]
                if crc32(body, check) == check_all:
                    found, watermark_max = True, max(watermark_max, watermark)
                    step = stop - offset
        offset = data.find(FRAME_MAGIC_BYTES, offset + step)
    return found, watermark_max
