"""Logs in memory that are simple enough for tens of thousands of histories: no files, no events.

Owns: frames in segments, what of them is live, cutting and growing them, and the `FrameSource` over
them. Must not know: stores, writers.

A frame is its length and a text: who wrote it, and the items that it has. An item is live for ever;
compaction writes the items of the oldest segments again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping

from logqueue.replica.chain import LOGS, ChainEnd, LogPlace
from logqueue.replica.chunk import Chunk, ChunkRun, LogName
from logqueue.replica.frame_source import RunBytes, SegmentContent
from logqueue.segments.history import SealedSegment
from wal import HEADER_BYTES

_LENGTH = struct.Struct("<I")


def make_frame(author: str, items: Iterable[int]) -> bytes:
    """A frame with some items."""
    text = f"{author}:{','.join(map(str, items))}".encode()
    return _LENGTH.pack(len(text)) + text


def items_of(frame: bytes) -> list[int]:
    """The items of a frame."""
    text = frame[_LENGTH.size :].decode().rpartition(":")[2]
    return [int(item) for item in text.split(",") if item]


def split_frames(data: bytes) -> Iterator[bytes]:
    """The frames in the bytes of a run."""
    place = 0
    while place < len(data):
        stop = place + _LENGTH.size + _LENGTH.unpack_from(data, place)[0]
        yield data[place:stop]
        place = stop


class SmallSegment:
    """One segment: its id, the number of its first frame, its frames."""

    def __init__(self, id: int, base: int, frames: list[bytes] | None = None) -> None:
        self.id = id
        self.base = base
        self.frames: list[bytes] = frames or []

    @property
    def last(self) -> int:
        return self.base + len(self.frames) - 1

    @property
    def bytes(self) -> int:
        return HEADER_BYTES + sum(map(len, self.frames))


class Diverged(Exception):
    """Other frames of the same numbers."""


class SegmentGone(Exception):
    """The segment is no longer there."""


class SmallLogs:
    """Both logs of a server, on its disk: a frame source, and where the chain ends for them.

    Attributes:
        end: The chunk up to which all is here; None for nothing.
        kept: First segment of each log that the live items need.
        begins_at: First segment of each log that was restored.
        unconfirmed: Items of frames that are not known to be committed, by frame number.
        clock: Time of what is appended, ms.
    """

    def __init__(self) -> None:
        self.logs: dict[LogName, list[SmallSegment]] = {}
        self.end: ChainEnd | None = None
        self.kept: dict[LogName, int] = {}
        self.begins_at: dict[LogName, int] = {}
        self.unconfirmed: dict[int, list[int]] = {}
        self.wipe()

    def wipe(self) -> None:
        """Forget everything."""
        self.logs = {log: [] for log in LOGS}
        self.end = None
        self.kept = {}
        self.begins_at = {}
        self.unconfirmed = {}

    def copy(self) -> SmallLogs:
        """The same again."""
        other = SmallLogs()
        other.logs = {
            log: [SmallSegment(s.id, s.base, [*s.frames]) for s in segments]
            for log, segments in self.logs.items()
        }
        other.end, other.kept, other.begins_at = self.end, {**self.kept}, {**self.begins_at}
        other.unconfirmed = {**self.unconfirmed}
        return other

    def last(self, log: LogName) -> int:
        """Number of the last frame."""
        return self.logs[log][-1].last if self.logs[log] else 0

    def frame(self, log: LogName, number: int) -> bytes | None:
        """A frame; None when it is not here."""
        for segment in self.logs[log]:
            if segment.base <= number <= segment.last:
                return segment.frames[number - segment.base]
        return None

    def frames(self, log: LogName) -> dict[int, bytes]:
        """All frames by number."""
        return {
            number: frame
            for segment in self.logs[log]
            for number, frame in enumerate(segment.frames, segment.base)
        }

    # -- as a writer -----------------------------------------------------------------------------

    def append(self, log: LogName, frame: bytes) -> int:
        """Add a frame; returns its number."""
        segments = self.logs[log]
        if not segments:
            segments.append(SmallSegment(1, 1))
        segments[-1].frames.append(frame)
        return segments[-1].last

    def roll(self, log: LogName) -> None:
        """Begin a segment, if the last one has frames."""
        segments = self.logs[log]
        if segments and segments[-1].frames:
            segments.append(SmallSegment(segments[-1].id + 1, segments[-1].last + 1))

    def compact(self, author: str, before: int) -> None:
        """Write the items of the jobs segments before one again; those are then needless."""
        items: list[int] = []
        for segment in self.logs["jobs"]:
            if segment.id < before:
                for frame in segment.frames:
                    items += items_of(frame)
        self.append("jobs", make_frame(author, sorted({*items})))
        self.kept["jobs"] = before

    def drop_before(self, log: LogName, segment: int) -> None:
        """Drop needless segments."""
        self.logs[log] = [s for s in self.logs[log][:-1] if s.id >= segment] + self.logs[log][-1:]

    # -- as a frame source -----------------------------------------------------------------------

    def written(self) -> Mapping[LogName, int]:
        """See FrameSource."""
        return {log: self.last(log) for log in LOGS}

    def kept_from(self) -> Mapping[LogName, int]:
        """See FrameSource."""
        return {**self.kept}

    def waiting_bytes(self, places: Mapping[LogName, LogPlace]) -> int:
        """See FrameSource."""
        return sum(len(data) for _, data in self.runs_after(places, 1 << 40))

    def runs_after(
        self, places: Mapping[LogName, LogPlace], bytes_max: int
    ) -> list[tuple[ChunkRun, RunBytes]]:
        """See FrameSource."""
        runs: list[tuple[ChunkRun, RunBytes]] = []
        room = bytes_max
        for log in LOGS:
            following = places[log].frame + 1 if log in places else 0
            for segment in self.logs[log]:
                first = max(segment.base, following)
                taken: list[bytes] = []
                for frame in segment.frames[first - segment.base :]:
                    if (runs or taken) and room < len(frame):
                        break
                    taken.append(frame)
                    room -= len(frame)
                if taken:
                    data = b"".join(taken)
                    offset = HEADER_BYTES + sum(map(len, segment.frames[: first - segment.base]))
                    last = first + len(taken) - 1
                    runs.append(
                        (
                            ChunkRun(log, segment.id, segment.base, offset, len(data), first, last),
                            data,
                        )
                    )
                    following = last + 1
                    if last < segment.last:
                        break
            active = self.logs[log][-1] if self.logs[log] else None
            if active is not None and not active.frames and following == active.base:
                reached = runs[-1][0].segment if runs and runs[-1][0].log == log else 0
                if log in places and active.id > max(places[log].segment, reached):
                    base, id = active.base, active.id
                    run = ChunkRun(log, id, base, HEADER_BYTES, 0, base, base - 1)
                    runs.append((run, b""))
        return runs

    def sealed(self, log: LogName) -> list[SealedSegment]:
        """See FrameSource."""
        return [SealedSegment(s.id, s.base, s.last, s.bytes) for s in self.logs[log][:-1]]

    def content(self, log: LogName, id: int) -> SegmentContent:
        """See FrameSource."""
        segment = next((s for s in self.logs[log] if s.id == id), None)
        if segment is None:
            raise SegmentGone
        header = f"{log} {segment.id} {segment.base}".encode().ljust(HEADER_BYTES, b"\0")
        data = header + b"".join(segment.frames)
        return SegmentContent(data, b"index", segment.last)

    # -- as a mirror -----------------------------------------------------------------------------

    def take_segment(self, log: LogName, data: bytes) -> None:
        """Add a sealed segment of the replica."""
        name, id, base = data[:HEADER_BYTES].rstrip(b"\0").decode().split()
        assert name == log
        segments = self.logs[log]
        if segments and (int(id), int(base)) != (segments[-1].id + 1, segments[-1].last + 1):
            raise Diverged(f"segment {id} does not follow")
        frames = [*split_frames(data[HEADER_BYTES:])]
        segments.append(SmallSegment(int(id), int(base), frames))

    def take_chunk(self, chunk: Chunk) -> None:
        """Add what is new in a chunk.

        Raises:
            Diverged: Here are other frames.
        """
        for run, data in zip(chunk.header.runs, chunk.data, strict=True):
            if run.segment < self.begins_at.get(run.log, 0):
                continue
            if not data:
                self._begin(run)
            for number, frame in enumerate(split_frames(data), run.first):
                self._take_frame(run, number, frame)

    def _begin(self, run: ChunkRun) -> None:
        segments = self.logs[run.log]
        if any(segment.id == run.segment for segment in segments):
            return
        if self.last(run.log) >= run.base:
            raise Diverged(f"frame {run.base} of the {run.log} log is in another segment here")
        if segments and not segments[-1].frames:
            segments.pop()
        segments.append(SmallSegment(run.segment, run.base))

    def _take_frame(self, run: ChunkRun, number: int, frame: bytes) -> None:
        segments = self.logs[run.log]
        if number <= self.last(run.log):
            here = self.frame(run.log, number)
            if here is not None and here != frame:
                raise Diverged(f"frame {number} of the {run.log} log is another one here")
            return
        while segments and not segments[-1].frames and segments[-1].id != run.segment:
            segments.pop()
        if not segments or segments[-1].id != run.segment:
            segments.append(SmallSegment(run.segment, run.base))
        if number != segments[-1].last + 1:
            raise Diverged(f"frame {number} of the {run.log} log does not follow")
        segments[-1].frames.append(frame)

    def cut_to_chain(self) -> None:
        """Drop all that is not in the chain as far as it is known."""
        for log in LOGS:
            place = self.end.places.get(log) if self.end is not None else None
            last, newest = (place.frame, place.segment) if place is not None else (0, 0)
            segments = self.logs[log]
            while segments and (segments[-1].id > newest or segments[-1].last > last):
                segment = segments[-1]
                del segment.frames[max(last + 1 - segment.base, 0) :]
                if segment.id <= newest:
                    break
                segments.pop()
        self.unconfirmed = {n: i for n, i in self.unconfirmed.items() if n <= self.last("jobs")}
