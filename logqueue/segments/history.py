"""Places where the sealed segments of the logs are kept: a directory, or an object store.

Owns: which segments a place gets, in which order they are put there, count, and are removed; when
history is too old or too large. Must not know: how a place stores them (a directory:
server/storage/archiver.py, an object store: replica/upkeep.py), threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import msgspec

from logqueue.segments.index import LogName
from wal import Log

LOGS: tuple[LogName, ...] = ("jobs", "leases")

TOGETHER = 64
"""Segments that begin to count together, at most: what makes them count costs the same for all."""


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


def sealed_segments(log: Log) -> list[SealedSegment]:
    """The segments of a log that never change again, oldest first.

    Recovery may make a segment the active one again, until the header of its successor is durable.
    """
    written = log.written
    return [
        SealedSegment(info.id, info.first, info.last, info.bytes)
        for info, successor in pairwise(log.segments())
        if successor.header_durable and info.last <= written
    ]


class HistoryPlace(Protocol):
    """Where sealed segments are kept. Methods work in steps, and raise `OSError` as disks do."""

    @property
    def waiting(self) -> int:
        """How many segments were put and do not count yet."""
        ...

    def has(self, log: LogName, id: int) -> bool:
        """Whether a segment was put, so that it is not put again."""
        ...

    def is_settled(self, log: LogName, segment: SealedSegment) -> bool:
        """Whether a sealed segment is the same for every later writer of its log."""
        ...

    def put(self, log: LogName, segment: SealedSegment) -> Iterator[None]:
        """Bring a segment there. It does not count yet."""
        ...

    def enlist(self) -> Iterator[None]:
        """Make the segments count that were put: from then on the log may drop them."""
        ...

    def retire(self) -> Iterator[None]:
        """Remove what is no longer kept."""
        ...


def keep_history(
    place: HistoryPlace, sealed: Callable[[LogName], Sequence[SealedSegment]]
) -> Iterator[None]:
    """Bring a place up to date, once. What a disk cannot do blocks nothing that it can.

    Args:
        place: Where the segments are kept.
        sealed: The sealed segments that a log has now, oldest first.

    Raises:
        OSError: The first thing that failed, after all else was done.
    """
    problem: OSError | None = None
    for work in (_put_missing(place, sealed), place.enlist(), place.retire()):
        try:
            yield from work
        except OSError as error:
            problem = problem or error
    if problem is not None:
        raise problem


def _put_missing(
    place: HistoryPlace, sealed: Callable[[LogName], Sequence[SealedSegment]]
) -> Iterator[None]:
    problem: OSError | None = None
    for log in LOGS:
        try:
            for segment in sealed(log):
                if place.has(log, segment.id):
                    continue
                if not place.is_settled(log, segment):
                    break
                if place.waiting >= TOGETHER:
                    yield from place.enlist()
                yield from place.put(log, segment)
        except OSError as error:
            problem = problem or error
    if problem is not None:
        raise problem


class HistoryBounds(NamedTuple):
    """How much history a place keeps beyond what it must have.

    Attributes:
        max_age_ms: How long ago the last event of a segment may be, in ms; 0 for no bound.
        max_bytes: Of all segments; 0 for no bound.
    """

    max_age_ms: int = 0
    max_bytes: int = 0

    @property
    def are_set(self) -> bool:
        """Whether there is any."""
        return self.max_age_ms > 0 or self.max_bytes > 0

    def are_exceeded(self, ended_at: int, total: int, now: int) -> bool:
        """Whether the oldest segment must go.

        Args:
            ended_at: When it ended, ms since the epoch.
            total: Bytes of all segments.
            now: The clock, ms since the epoch.
        """
        is_old = self.max_age_ms > 0 and ended_at < now - self.max_age_ms
        return is_old or 0 < self.max_bytes < total


def is_known_time(ended_at: int, now: int) -> bool:
    """Whether a segment can have ended then. A clock that was ahead has left times behind that are
    still to come, and damage may have left none: 0.

    Args:
        ended_at: Time of the last event in the segment, ms since the epoch.
        now: The clock, ms since the epoch.
    """
    return 0 < ended_at <= now
