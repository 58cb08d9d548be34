"""Where the whole frames of a segment end that another party may be writing to.

Owns the walk over such a file in pieces, in bounded memory however large a frame is. Must not know
what is in a frame, or which segments there are.
"""

from collections.abc import Generator
from typing import Final, NamedTuple
from zlib import crc32

from wal.files import File
from wal.format import (
    FRAME_BYTES_LIMIT,
    FRAME_CHECKED_BYTES,
    FRAME_CHECKS,
    FRAME_FIELDS,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    HEADER_BYTES,
    SegmentHeader,
    Walk,
    frame_bytes,
    salt_of,
)

PIECE_BYTES: Final = 1 << 20


class WholeFrames(NamedTuple):
    """Where the whole frames end, in bytes from the start of the file, and the last one's number;
    one below the first of the segment when there is none."""

    end: int
    last: int


def find_whole_frames(
    file: File, header: SegmentHeader, piece_bytes: int = PIECE_BYTES
) -> Generator[None, None, WholeFrames]:
    """Look for the end of the whole frames, in steps of about a piece.

    Args:
        file: The segment.
        header: What its first bytes say.
        piece_bytes: How much is read at once.

    Raises:
        OSError: It cannot be read.
    """
    salt = salt_of(header.identity, header.id)
    offset, number = HEADER_BYTES, header.first
    while True:
        data = file.pread(piece_bytes, offset)
        walk = Walk(data, salt, number, header.id, FRAME_BYTES_LIMIT, start=0).run()
        if walk.offset:
            offset, number = offset + walk.offset, walk.number
            yield
            continue
        end = yield from _large_frame(file, salt, offset, number, data, piece_bytes)
        if end is None:
            return WholeFrames(offset, number - 1)
        offset, number = end, number + 1


def _large_frame(
    file: File, salt: int, offset: int, number: int, data: bytes, piece_bytes: int
) -> Generator[None, None, int | None]:
    """The end of a frame that is larger than a piece; None when it is not whole."""
    if len(data) < max(piece_bytes, FRAME_HEADER_BYTES):
        return None
    magic, length, found, watermark = FRAME_FIELDS.unpack_from(data)
    sum_of_all, check = FRAME_CHECKS.unpack_from(data, FRAME_CHECKED_BYTES)
    if magic != FRAME_MAGIC or crc32(data[:FRAME_CHECKED_BYTES], salt) != check:
        return None
    if found != number or watermark >= number:
        return None
    at, stop = offset + FRAME_HEADER_BYTES, offset + frame_bytes(length)
    body = check
    while at < stop:
        piece = file.pread(min(piece_bytes, stop - at), at)
        if not piece:
            return None
        body = crc32(piece, body)
        at += len(piece)
        yield
    return stop if body == sum_of_all else None
