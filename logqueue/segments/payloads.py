"""The frames of one segment, checked.

Owns: which bytes of a segment may be believed. Must not know: what the frames say, where the bytes
come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from zlib import crc32

from logqueue.segments.index import SegmentDamaged, read_header
from wal import FRAME_BYTES_MAX, FRAME_HEADER_BYTES, HEADER_BYTES, End, Walk, frame_bytes, salt_of

UNCHECKED = -1
"""In place of a checksum where nothing is checked."""

Placed = tuple[int, bytes]
"""Where a frame begins in its segment, and its payload."""

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
    if length is None or checksum is None:
        return _checked(data, path, length)
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


def _trusted(data: bytes, length: int) -> Iterator[Placed]:
    offset = HEADER_BYTES
    unpack = _LENGTH.unpack_from
    while offset < length:
        (size,) = unpack(data, offset)
        start = offset + 32
        stop = start + size
        yield offset, data[start:stop]
        offset = (stop + 7) & -8


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
