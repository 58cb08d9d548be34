"""What a writer ships: bytes of the segment files of both logs.

Owns: which bytes those are, from any place on; which segments are sealed, and their index. Must
not know: chunks beyond their runs, stores.

The files are the queue: nothing is kept in memory, however long the store is away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from logqueue.replica.chain import LogPlace
from logqueue.replica.chunk import ChunkRun, LogName


class SealedSegment(msgspec.Struct, frozen=True):
    """A segment that takes no more frames.

    Attributes:
        id: Of the segment.
        first: Number of its first frame.
        last: Number of its last frame.
        bytes: Of its file.
    """

    id: int
    first: int
    last: int
    bytes: int


class SegmentContent(msgspec.Struct, frozen=True):
    """What is uploaded of a sealed segment.

    Attributes:
        data: The bytes of its file.
        index: The bytes of the index beside it.
        at: Time of the last event in it, ms since the epoch.
    """

    data: bytes
    index: bytes
    at: int


class FrameSource(Protocol):
    """The logs of a writer. Methods may be called from any thread, and raise `OSError` as the disk
    does."""

    def written(self) -> Mapping[LogName, int]:
        """Number of the last frame of each log that is in its file."""
        ...

    def kept_from(self) -> Mapping[LogName, int]:
        """First segment of each log that the present state needs, 0 when that is not known. All
        that makes the ones before it needless is written."""
        ...

    def waiting_bytes(self, places: Mapping[LogName, LogPlace]) -> int:
        """About how many bytes there are behind some places."""
        ...

    def runs_after(
        self, places: Mapping[LogName, LogPlace], bytes_max: int
    ) -> list[tuple[ChunkRun, bytes]]:
        """What is written behind some places: whole frames, of each log in order.

        Args:
            places: Where each log ends so far; one that is not in there is wanted from its
                beginning.
            bytes_max: Of all runs together, unless one frame is larger.
        """
        ...

    def sealed(self, log: LogName) -> list[SealedSegment]:
        """The segments of a log that are sealed, oldest first."""
        ...

    def content(self, log: LogName, id: int) -> SegmentContent:
        """A sealed segment as it is uploaded."""
        ...
