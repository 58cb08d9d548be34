"""The logs of a running server beside a copy of them.

Owns: the comparison, byte by byte, as far as both have a segment. Must not know: where the copy is
from. The state of a server is what its log replays to, so equal logs are equal states.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from logqueue.errors import SegmentNotFound
from wal import segment_path

if TYPE_CHECKING:
    from logqueue.client import Client
    from logqueue.client.log_calls import LogName
    from logqueue.shapes import Segment

PIECE_BYTES = 4 << 20
SEGMENTS_TOGETHER = 16


class LogComparison(NamedTuple):
    """What was found.

    Attributes:
        problems: What differs, each with the name of the segment; empty if nothing does.
        bytes: How much both have.
    """

    problems: list[str]
    bytes: int


def compare_logs(client: Client, directory: Path) -> LogComparison:
    """Compare the segments that a server has with those of a copy of its logs.

    The server looks at its segments in small steps, beside its work; bytes are fetched only of
    those that have grown since the copy was made.

    Args:
        client: Of the server. Its key must be one for all names.
        directory: The copy.

    Raises:
        LogqueueError: As calls do.
    """
    problems: list[str] = []
    total = 0
    logs: tuple[LogName, ...] = ("jobs", "leases")
    for log in logs:
        for segment in _listed(client, log):
            path = Path(segment_path(str(directory / log), segment.segment))
            if not path.exists():
                # Not there any longer, or not yet.
                continue
            common = min(segment.bytes, path.stat().st_size)
            try:
                wanted = _on_server(client, segment, common)
            except SegmentNotFound:
                # Dropped meanwhile.
                continue
            total += common
            if _checksum(_pieces(path, common)) != wanted:
                problems.append(f"segment {segment.id} has other bytes on the server")
    return LogComparison(problems, total)


def _listed(client: Client, log: LogName) -> Iterator[Segment]:
    """The segments of a log, a few at a time: the server reads those that it does not know yet."""
    cursor: str | None = None
    while True:
        page = client.segment_page(log, cursor=cursor, page_size=SEGMENTS_TOGETHER)
        yield from page.segments
        cursor = page.next_cursor
        if cursor is None:
            return


def _on_server(client: Client, segment: Segment, length: int) -> int:
    """Checksum of the first bytes of a segment of the server."""
    if length == segment.bytes:
        return segment.crc32
    return _checksum(
        client.segment(segment.id, start=start, stop=min(start + PIECE_BYTES, length))
        for start in range(0, length, PIECE_BYTES)
    )


def _pieces(path: Path, length: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while length and (piece := file.read(min(PIECE_BYTES, length))):
            length -= len(piece)
            yield piece


def _checksum(pieces: Iterator[bytes]) -> int:
    checksum = 0
    for piece in pieces:
        checksum = crc32(piece, checksum)
    return checksum
