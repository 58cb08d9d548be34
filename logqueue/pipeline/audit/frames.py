"""Log files for an audit: which segments there are, their frames, and where bytes are damaged.

Owns: the walk over segment files that continues behind damage. Must not know: what frames say,
Spark. Nothing is changed and no lock is taken.

Unlike recovery, which keeps what comes before damage and refuses the rest, an audit wants to name
all that is lost: behind a damaged frame it looks for the next whole one and continues there.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
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
    OsFileSystem,
    Walk,
    decode_header,
    frame_bytes,
    is_zero,
    read_whole,
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


class Placed(NamedTuple):
    """A frame, or the place of a problem between two frames."""

    file: AuditedSegment
    offset: int
    frame: Frame | None
    problem: FrameProblem | None = None


def frames(files: Sequence[AuditedSegment]) -> Iterator[Placed]:
    """All frames of one log, and its problems in their places.

    Args:
        files: Of one log, ascending.
    """
    before: AuditedSegment | None = None
    number = 0
    for index, file in enumerate(files):
        is_last = index == len(files) - 1
        data = read_whole(OsFileSystem(), file.path)
        state, header = decode_header(data[:HEADER_BYTES])
        if header is None or header.id != file.id:
            if state is HeaderState.ABSENT and is_zero(data) and is_last:
                continue
            detail = "the segment has no header that this version can read"
            yield Placed(file, 0, None, FrameProblem("frame_crc", file, 0, detail))
            number = 0
            before = file
            continue
        if before is not None and before.id + 1 != file.id:
            detail = f"segments {before.id + 1} to {file.id - 1} of the {file.log} log are missing"
            yield Placed(file, 0, None, FrameProblem("segments_joined", file, 0, detail))
        elif before is not None and number and header.first != number:
            detail = f"it begins with frame {header.first} where {number} belongs"
            yield Placed(file, 0, None, FrameProblem("segments_joined", file, 0, detail))
        salt = salt_of(header.identity, file.id)
        number = yield from _walk(file, data, salt, header.first, is_last)
        before = file


def _walk(
    file: AuditedSegment, data: bytes, salt: int, first: int, is_last: bool
) -> Generator[Placed, None, int]:
    """The frames of a segment; gives back the number of the frame that is due next."""
    walk = Walk(data, salt, first, file.id, FRAME_BYTES_MAX)
    while True:
        offset = walk.offset
        for frame in walk:
            yield Placed(file, offset, frame)
            offset += frame_bytes(len(frame.payload))
        if walk.end in (End.CLEAN, End.ZEROS):
            return walk.number
        found = _next_whole(data, walk.offset, salt, walk.number)
        is_tail = found is None and is_last
        detail = f"frame {walk.number}: {walk.problem}"
        yield Placed(
            file, walk.offset, None, FrameProblem("frame_crc", file, walk.offset, detail, is_tail)
        )
        if found is None:
            return 0
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
