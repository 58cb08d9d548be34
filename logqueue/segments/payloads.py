"""The frames of one segment, checked.

Owns: which bytes of a segment may be believed. Must not know: what the frames say, where the bytes
come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from logqueue.segments.index import SegmentDamaged, read_header
from wal import FRAME_BYTES_MAX, FRAME_HEADER_BYTES, HEADER_BYTES, End, Walk, frame_bytes, salt_of

UNCHECKED = -1
"""In place of a checksum where nothing is checked."""

Placed = tuple[int, bytes]
"""Where a frame begins in its segment, and its payload."""

RUN_FRAMES = 1024
RUN_BYTES = 4 << 20
"""A run of frames ends when it has so many of them, or so many bytes: what is decoded of them is to
fit in the caches of a processor."""


class PayloadRun(NamedTuple):
    """Frames that follow each other: where each begins in its segment, and their payloads."""

    offsets: list[int]
    payloads: list[bytes]


_LENGTH = Struct("<4xI")


def payloads(
    data: bytes, path: str, *, length: int | None = None, checksum: int | None = None
) -> Iterator[Placed]:
    """The payloads of a segment's frames, in order.

    With the length and checksum of an index the whole is checked at once, which costs a fraction of
    checking each frame. (The index was made of frames that were each checked.) Without them every
    frame is checked, and reading ends quietly at a torn tail.

    Args:
        data: The segment from its first byte; it may be longer.
        path: How errors name it.
        length: Bytes to read, header included.
        checksum: crc32 of these bytes; UNCHECKED to trust them as they are.

    Raises:
        SegmentDamaged: A frame up to `length` is not whole, or the bytes are not those that were
            indexed.
    """
    for run in payload_runs(data, path, length=length, checksum=checksum):
        yield from zip(*run, strict=True)


def payload_runs(
    data: bytes, path: str, *, length: int | None = None, checksum: int | None = None
) -> Iterator[PayloadRun]:
    """The same in runs of some thousand frames, to be decoded at once; see `payloads`."""
    if length is None or checksum is None:
        return _in_runs(_checked(data, path, length))
    if len(data) < length:
        raise SegmentDamaged(path, len(data), f"it ends before byte {length}")
    part = data if len(data) == length else data[:length]
    if checksum != UNCHECKED and crc32(part) != checksum:
        for _ in _checked(data, path, length):
            pass
        raise SegmentDamaged(
            path, 0, "every frame is whole, but they are not those that were indexed"
        )
    return _trusted(data, length)


def _trusted(data: bytes, length: int) -> Iterator[PayloadRun]:
    offset = HEADER_BYTES
    unpack = _LENGTH.unpack_from
    while offset < length:
        offsets: list[int] = []
        found: list[bytes] = []
        end = min(offset + RUN_BYTES, length)
        # Millions of frames: no calls but those into C.
        while offset < end and len(found) < RUN_FRAMES:
            (size,) = unpack(data, offset)
            start = offset + 32
            stop = start + size
            offsets.append(offset)
            found.append(data[start:stop])
            offset = (stop + 7) & -8
        yield PayloadRun(offsets, found)


def _in_runs(placed: Iterable[Placed]) -> Iterator[PayloadRun]:
    run, size = PayloadRun([], []), 0
    for offset, payload in placed:
        run.offsets.append(offset)
        run.payloads.append(payload)
        size += len(payload)
        if size >= RUN_BYTES or len(run.payloads) >= RUN_FRAMES:
            yield run
            run, size = PayloadRun([], []), 0
    if run.payloads:
        yield run


def _checked(data: bytes, path: str, length: int | None) -> Iterator[Placed]:
    header = read_header(data, path)
    salt = salt_of(header.identity, header.id)
    walk = Walk(data, salt, header.first, header.id, FRAME_BYTES_MAX)
    offset = HEADER_BYTES
    for frame in walk:
        if length is not None and offset >= length:
            return
        yield offset, frame.payload
        offset += frame_bytes(len(frame.payload))
    if walk.end is End.MISNUMBERED or (length is not None and walk.offset < length):
        raise SegmentDamaged(path, walk.offset, walk.problem)


assert FRAME_HEADER_BYTES == 32
