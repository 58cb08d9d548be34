"""Log files for an audit: which segments there are, their frames, and where bytes are damaged.

Owns: the walk over segment files that continues behind damage. Must not know: what frames say,
Spark. Nothing is changed and no lock is taken.

Unlike recovery, which keeps what comes before damage and refuses the rest, an audit wants to name
all that is lost: behind a damaged frame it looks for the next whole one and continues there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from zlib import crc32

from wal import (
    FRAME_ALIGN,
    FRAME_BYTES_MAX,
    FRAME_CHECKED_BYTES,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC_BYTES,
    HEADER_BYTES,
    End,
    Frame,
    HeaderState,
    Walk,
    decode_header,
    frame_bytes,
    is_zero,
    salt_of,
)

JOBS: Final = "jobs"
LEASES: Final = "leases"


class AuditedSegment(NamedTuple):
    """One file of a log.

    Attributes:
        log: "jobs" or "leases".
        id: Number of the segment, from 1.
        path: Of the file.
    """

    log: str
    id: int
    path: str


@dataclass(slots=True)
class FrameProblem:
    """Bytes that are not what was written, or a file that is not there.

    Attributes:
        rule: "frame_crc" or "segments_joined".
        is_tail: The last write of the log did not reach the disk whole, which the next start cuts.
        offset: In bytes, where the damage begins.
        lost: By number of a topic instance, seqs that were there, as far as later frames show.
    """

    rule: str
    file: AuditedSegment
    offset: int
    detail: str
    is_tail: bool = False
    lost: dict[int, tuple[int, int | None]] = field(default_factory=dict)


class FrameWalk:
    """The frames of a segment with their offsets, and its problems in their places.

    Attributes:
        identity: Of the log, as hex; "" when the header cannot be read.
        first: Number of the first frame; 0 when the header cannot be read.
        due: Once walked, the number of the frame that follows the last one; 0 when the segment
            ends with damage.
    """

    def __init__(self, file: AuditedSegment, data: bytes, *, is_last: bool) -> None:
        self._file = file
        self._data = data
        self._is_last = is_last
        self.state, self._header = decode_header(data[:HEADER_BYTES])
        if self._header is not None and self._header.id != file.id:
            self._header = None
        self.first = self._header.first if self._header is not None else 0
        self.identity = self._header.identity.hex() if self._header is not None else ""
        self.due = 0

    def __iter__(self) -> Iterator[tuple[int, Frame | FrameProblem]]:
        file, data = self._file, self._data
        if self._header is None:
            if self.state is HeaderState.ABSENT and is_zero(data) and self._is_last:
                return
            detail = "the segment has no header that this version can read"
            yield 0, FrameProblem("frame_crc", file, 0, detail)
            return
        salt = salt_of(self._header.identity, file.id)
        walk = Walk(data, salt, self.first, file.id, FRAME_BYTES_MAX)
        while True:
            offset = walk.offset
            for frame in walk:
                yield offset, frame
                offset += frame_bytes(len(frame.payload))
            if walk.end in (End.CLEAN, End.ZEROS):
                self.due = walk.number
                return
            found = _next_whole(data, walk.offset, salt, walk.number)
            is_tail = found is None and self._is_last
            detail = f"frame {walk.number}: {walk.problem}"
            yield walk.offset, FrameProblem("frame_crc", file, walk.offset, detail, is_tail)
            if found is None:
                return
            walk = Walk(data, salt, found[1], file.id, FRAME_BYTES_MAX)
            walk.offset = found[0]


def _next_whole(data: bytes, start: int, salt: int, number: int) -> tuple[int, int] | None:
    """Offset and number of the first whole frame behind damage."""
    offset = data.find(FRAME_MAGIC_BYTES, start + 1)
    while offset != -1 and offset + FRAME_HEADER_BYTES <= len(data):
        if offset % FRAME_ALIGN == 0:
            length = int.from_bytes(data[offset + 4 : offset + 8], "little")
            at = int.from_bytes(data[offset + 8 : offset + 16], "little")
            check_all = int.from_bytes(data[offset + 24 : offset + 28], "little")
            check = int.from_bytes(data[offset + 28 : offset + 32], "little")
            stop = offset + frame_bytes(length)
            fields = data[offset : offset + FRAME_CHECKED_BYTES]
            is_ours = at > number and stop <= len(data) and crc32(fields, salt) == check
            if is_ours and crc32(data[offset + FRAME_HEADER_BYTES : stop], check) == check_all:
                return offset, at
        offset = data.find(FRAME_MAGIC_BYTES, offset + 1)
    return None


def shown(path: str, roots: Sequence[str]) -> str:
    """A path as findings name it: below the directory that was given, so that the same log in
    another place gives the same findings."""
    for root in roots:
        relative = os.path.relpath(path, root)
        if not relative.startswith(".."):
            return relative
    return os.path.basename(path)
