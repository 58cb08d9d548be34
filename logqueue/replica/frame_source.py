"""What a writer ships: bytes of the segment files of both logs.

Owns: which bytes those are, from any place on; which segments are sealed, and their index. Must
not know: chunks beyond their runs, stores.

The files are the queue: nothing is kept in memory, however long the store is away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from logqueue.replica.chain import LOGS, LogPlace
from logqueue.replica.chunk import ChunkRun, LogName
from logqueue.segments.history import SealedSegment, sealed_segments
from logqueue.segments.index import IndexBuilder, encode_index
from logqueue.segments.known import KnownTopics
from logqueue.segments.self_contained import is_self_contained
from wal import (
    FRAME_FIELDS,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    HEADER_BYTES,
    File,
    FileSystem,
    Log,
    SegmentInfo,
    frame_bytes,
)

LEASES_SHARE = 4
"""While both logs have more than a chunk takes, the leases log gets this part of it: 1 / n."""

FEED_BYTES = 256 << 10

RunBytes = bytes | memoryview
"""The bytes of a run."""


class FramesMissing(Exception):
    """The segment files do not have what follows; the message says where."""


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
    ) -> list[tuple[ChunkRun, RunBytes]]:
        """What is written behind some places: whole frames, of each log in order, and that an
        empty segment begins.

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


class JournalFrames:
    """The frames of the two logs of a data directory."""

    def __init__(
        self,
        logs: Mapping[LogName, Log],
        fs: FileSystem,
        kept_from: Callable[[], Mapping[LogName, int]],
    ) -> None:
        """Use logs that have begun.

        Args:
            logs: Both.
            fs: Where they are.
            kept_from: First segment of each that the present state needs; 0 when that is not
                known. All that makes the ones before it needless is durable.
        """
        self._logs = logs
        self._fs = fs
        self._kept_from = kept_from
        self._log_id = logs["jobs"].identity.hex()
        # What the jobs log tells of topics up to the end of this segment.
        self._known = KnownTopics()
        self._known_through = 0

    def written(self) -> Mapping[LogName, int]:
        """See FrameSource."""
        # The leases log first: the jobs that its last frames speak of are then in the jobs log.
        leases = self._logs["leases"].written
        return {"jobs": self._logs["jobs"].written, "leases": leases}

    def kept_from(self) -> Mapping[LogName, int]:
        """See FrameSource."""
        return self._kept_from()

    def waiting_bytes(self, places: Mapping[LogName, LogPlace]) -> int:
        """See FrameSource."""
        total = 0
        for name, log in self._logs.items():
            place = places.get(name)
            for info in log.segments():
                if place is None or info.id > place.segment:
                    total += info.bytes - HEADER_BYTES
                elif info.id == place.segment:
                    total += info.bytes - place.offset
        return total

    def runs_after(
        self, places: Mapping[LogName, LogPlace], bytes_max: int
    ) -> list[tuple[ChunkRun, RunBytes]]:
        """See FrameSource."""
        written = self.written()
        runs: list[tuple[ChunkRun, RunBytes]] = []
        room = bytes_max
        for name in LOGS:
            others = any(
                written[other] > (places[other].frame if other in places else 0)
                for other in LOGS[LOGS.index(name) + 1 :]
            )
            share = room - bytes_max // LEASES_SHARE if others else room
            found = self._runs_of(name, places.get(name), written[name], share)
            room -= sum(run.bytes for run, _ in found)
            runs += found
        return runs

    def _runs_of(
        self, name: LogName, place: LogPlace | None, last: int, room: int
    ) -> list[tuple[ChunkRun, RunBytes]]:
        """What one log has behind a place, up to a frame; at least one frame if there is any.

        At the end of all frames, a run without bytes says that an empty segment begins, which seals
        the one before: it may stay empty for ever, and that one must become a listed segment.
        """
        runs: list[tuple[ChunkRun, RunBytes]] = []
        following = place.frame + 1 if place is not None else 0
        segments = self._logs[name].segments()
        for info in segments:
            # The last frames of a segment may still be on their way to the file.
            if min(last, info.last) < max(info.first, following):
                continue
            if info.first > last or (runs and room <= 0):
                break
            if place is not None and place.segment == info.id:
                offset, first = place.offset, following
            else:
                offset, first = HEADER_BYTES, info.first
            if following and first != following:
                raise FramesMissing(
                    f"{info.path}: frame {following} of the {name} log is wanted, and this begins "
                    f"with {first}"
                )
            data, end = self._read(info, offset, first, min(last, info.last), room, not runs)
            if end < first:
                break
            run = ChunkRun(name, info.id, info.first, offset, len(data), first, end)
            runs.append((run, data))
            room -= len(data)
            following = end + 1
            if end < info.last:
                break
        active = segments[-1]
        reached = runs[-1][0].segment if runs else place.segment if place is not None else 1
        is_new = active.last < active.first and active.id > reached and active.header_durable
        if is_new and following in (0, active.first):
            empty = ChunkRun(
                name, active.id, active.first, HEADER_BYTES, 0, active.first, active.last
            )
            runs.append((empty, b""))
        return runs

    def _read(
        self, info: SegmentInfo, offset: int, first: int, last: int, room: int, at_least_one: bool
    ) -> tuple[RunBytes, int]:
        """Whole frames of a segment from one on, and the number of the last."""
        file = self._fs.open(info.path)
        try:
            data = file.pread(max(min(room, info.bytes - offset), FRAME_HEADER_BYTES), offset)
            size, end = _whole_frames(data, first, last, info.path)
            if end < first and at_least_one:
                if len(data) < FRAME_HEADER_BYTES:
                    raise FramesMissing(f"{info.path}: frame {first} is not there")
                data = file.pread(_first_frame_bytes(data), offset)
                size, end = _whole_frames(data, first, first, info.path)
                if end < first:
                    raise FramesMissing(f"{info.path}: the file ends inside frame {first}")
        finally:
            file.close()
        # Not a copy of the most that may be read at a time.
        return memoryview(data)[:size], end

    def sealed(self, log: LogName) -> list[SealedSegment]:
        """See FrameSource."""
        return sealed_segments(self._logs[log])

    def content(self, log: LogName, id: int) -> SegmentContent:
        """See FrameSource."""
        if log == "jobs":
            self._learn_before(id)
        found = next((info for info in self._logs[log].segments() if info.id == id), None)
        if found is None:
            raise FramesMissing(f"segment {id} of the {log} log is no longer there")
        return self._content(log, found)

    def _learn_before(self, id: int) -> None:
        """Know what the jobs log tells of topics before a segment."""
        if self._known_through == id - 1:
            return
        infos = {info.id: info for info in self._logs["jobs"].segments()}
        begin = id
        while not self._is_self_contained(infos[begin]) and begin - 1 in infos:
            begin -= 1
        self._known = KnownTopics()
        for earlier in range(begin, id):
            self._content("jobs", infos[earlier])

    def _is_self_contained(self, info: SegmentInfo) -> bool:
        file = self._fs.open(info.path)
        try:
            return is_self_contained(file)
        finally:
            file.close()

    def _content(self, log: LogName, info: SegmentInfo) -> SegmentContent:
        data = _read_segment(self._fs.open(info.path), info.bytes)
        builder = IndexBuilder(
            data[:HEADER_BYTES], log, log_id=self._log_id, known=self._known, path=info.path
        )
        # In pieces, so that other threads have their turn.
        while builder.bytes < len(data):
            stop = builder.bytes + FEED_BYTES
            while not builder.feed(data[builder.bytes : stop]):
                if stop >= len(data):
                    raise FramesMissing(f"{info.path}: the file ends inside a frame")
                stop += stop - builder.bytes
        made = builder.index()
        if log == "jobs":
            self._known.add(made.learned, made.routers)
            self._known_through = info.id
        return SegmentContent(data, encode_index(made), made.last_at)


def _read_segment(file: File, length: int) -> bytes:
    try:
        file.will_read(0, length)
        return file.pread(length, 0)
    finally:
        file.close()


def _whole_frames(data: bytes, first: int, last: int, path: str) -> tuple[int, int]:
    """How many bytes are whole frames up to a number, and the number of the last of them.

    Frames are passed over by their headers: what is in them was checked when it was written, or
    read by recovery, and is checked again when the chunk is read.
    """
    size = len(data)
    unpack = FRAME_FIELDS.unpack_from
    offset, number = 0, first
    while number <= last and offset + FRAME_HEADER_BYTES <= size:
        magic, length, found, _ = unpack(data, offset)
        if magic != FRAME_MAGIC or found != number:
            raise FramesMissing(f"{path}: frame {number} is not where it belongs")
        end = offset + frame_bytes(length)
        if end > size:
            break
        offset = end
        number += 1
    return offset, number - 1


def _first_frame_bytes(data: bytes) -> int:
    _, length, _, _ = FRAME_FIELDS.unpack_from(data, 0)
    size: int = frame_bytes(length)
    return size
