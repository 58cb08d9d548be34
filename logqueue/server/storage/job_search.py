"""Finds what both logs say of one job, without reading all of them.

Owns: which segments may speak of a job, and which frames of these are decoded. Works in small
steps, beside the event loop. Must not know: what the frames mean (`segments/job_trail.py`), HTTP,
the state.

A frame that names a job holds its seq as msgpack writes it, so a search for these bytes passes over
everything else at the speed of memory. An append names only its first seq: it is found by its time,
or by the head that the checkpoint at the beginning of each segment says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

import msgspec

from logqueue import events as ev
from logqueue.segments.index import LogName
from logqueue.segments.job_trail import JobTrail
from logqueue.server.storage.segment_store import SegmentPlace, SegmentStore
from wal import (
    FRAME_CHECKED_BYTES,
    FRAME_FIELDS,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC_BYTES,
    HEADER_BYTES,
    File,
    FileSystem,
    decode_header,
    frame_bytes,
    salt_of,
)

CHUNK_BYTES = 1 << 20
LOOK_BACK_BYTES = 4 << 20
"""A frame that began further before a chunk is an append: those are found by other means."""
SEARCHED_BYTES_MAX = 256 << 20
"""Bytes of each log that one search reads."""
DECODED_MAX = 50_000
"""Frames of each log that one search decodes."""
FRAME_DECODED_MAX = 8 << 20
_RESTATED_PER_FRAME = 1000
"""Topics that the first frame of a segment restates at most."""

_pack = msgspec.msgpack.Encoder().encode
_AT = rb"(?:\xcf.{8}|\xce.{4}|\xcd.{2})"

Steps = Generator[None, None, None]


class SearchedJob(NamedTuple):
    """Which job, and what is known of it.

    Attributes:
        topic: Number of the queue's instance.
        ts: When it was appended, ms since the epoch; 0 when that is not known.
        through: The last frame of the jobs log that may be shown.
    """

    topic: int
    seq: int
    ts: int
    through: int


class JobSearch:
    """One search.

    Attributes:
        is_whole: Whether all was read that is there; False also when the front of a log is gone.
    """

    def __init__(
        self, fs: FileSystem, segments: SegmentStore, job: SearchedJob, trail: JobTrail
    ) -> None:
        self.is_whole = True
        self._fs = fs
        self._segments = segments
        self._job = job
        self._trail = trail
        self._read = 0
        self._decoded = 0

    def steps(self) -> Steps:
        """Hand the trail all that speaks of the job."""
        job, trail = self._job, self._trail
        jobs = self._segments.places("jobs")
        if job.ts:
            yield from self._since("jobs", jobs, job.ts, self._of_live())
            since, until = job.ts, 0
        else:
            yield from self._ended(jobs)
            since = trail.written.ts if trail.written is not None else 0
            until = trail.ended_at
        self._read = self._decoded = 0
        needles = [_Needle(_pack(job.seq))]
        yield from self._since("leases", self._segments.places("leases"), since, needles, until)

    def _of_live(self) -> list[_Needle]:
        job = self._job
        appended = re.compile(re.escape(_pack(job.ts) + _pack(job.topic)), re.DOTALL)
        replaced = job.seq.to_bytes(8, "little")
        return [_Needle(appended), _Needle(_pack(job.seq)), _Needle(replaced)]

    def _ended(self, places: Sequence[SegmentPlace]) -> Steps:
        """A job that is gone: from the segment that it was appended in on, until it ends."""
        job, trail = self._job, self._trail
        first = yield from self._segment_of(places)
        pattern = re.compile(b"\x04" + _AT + re.escape(_pack(job.topic)), re.DOTALL)
        appends = _Needle(pattern, lambda data, end: _may_hold(data, end, job.seq))
        for place in places[first : first + 2]:
            if trail.written is None:
                yield from self._segment(place, [appends])
        needles = [_Needle(_pack(job.seq)), _Needle(job.seq.to_bytes(8, "little"))]
        for place in places[first:]:
            if not trail.ended:
                yield from self._segment(place, needles)

    def _segment_of(self, places: Sequence[SegmentPlace]) -> Generator[None, None, int]:
        """Index of the last segment at whose beginning the job was not appended yet."""
        low, high = 0, len(places) - 1
        while low < high:
            middle = (low + high + 1) // 2
            start = self._start_of(places[middle])
            yield
            head = start.heads.get(self._job.topic)
            if head is None and start.topics >= _RESTATED_PER_FRAME:
                # Said further behind: look through all.
                return 0
            if (head or 0) < self._job.seq:
                low = middle
            else:
                high = middle - 1
        return low

    def _since(
        self,
        log: LogName,
        places: Sequence[SegmentPlace],
        since: int,
        needles: Sequence[_Needle],
        until: int = 0,
    ) -> Steps:
        """The segments of a log from a time on, the newest first: there the most is said."""
        for place in reversed(places):
            start = self._start_of(place)
            yield
            if until and start.at > until:
                continue
            yield from self._segment(place, needles)
            if start.at and start.at < since:
                return
        if places and places[0].id > 1:
            self.is_whole = False

    def _segment(self, place: SegmentPlace, needles: Sequence[_Needle]) -> Steps:
        if self._read >= SEARCHED_BYTES_MAX or self._decoded >= DECODED_MAX:
            self.is_whole = False
            return
        try:
            file = self._fs.open(self._segments.path_of(place))
        except OSError:
            # Dropped meanwhile.
            self.is_whole = False
            return
        try:
            yield from self._search(_OpenSegment(file, place), needles)
        except OSError:
            self.is_whole = False
        finally:
            file.close()

    def _search(self, segment: _OpenSegment, needles: Sequence[_Needle]) -> Steps:
        place = segment.place
        through = self._job.through if place.log == "jobs" else 0
        seen: set[int] = set()
        for offset in range(HEADER_BYTES, place.bytes, CHUNK_BYTES):
            # Needles that lie across the end of a chunk are found in its overlap.
            data = segment.file.pread(min(CHUNK_BYTES + 64, place.bytes - offset), offset)
            for needle in needles:
                start = 0
                while (hit := needle.next(data, start)) is not None:
                    frame = segment.frame_around(data, offset, hit)
                    start = hit + 1
                    if frame is None:
                        start = max(start, _next_magic(data, start))
                        continue
                    start = max(start, frame.stop - offset)
                    if frame.at in seen or frame.length > FRAME_DECODED_MAX:
                        continue
                    seen.add(frame.at)
                    if through and frame.number > through:
                        continue
                    self._decoded += 1
                    transaction = segment.transaction(frame)
                    if transaction is not None:
                        self._trail.note(transaction, place.log)
                    yield
            self._read += len(data)
            if self._read >= SEARCHED_BYTES_MAX or self._decoded >= DECODED_MAX:
                self.is_whole = False
                return
            yield

    def _start_of(self, place: SegmentPlace) -> _SegmentStart:
        """What the first frame of a segment says."""
        with suppress(OSError):
            file = self._fs.open(self._segments.path_of(place))
            try:
                return _OpenSegment(file, place).start()
            finally:
                file.close()
        return _SegmentStart(0, {}, 0)


class _SegmentStart(NamedTuple):
    """When a segment begins, the heads of topics there, and how many topics it says."""

    at: int
    heads: dict[int, int]
    topics: int


class _Heads(ev.TopicVisitor):
    def __init__(self) -> None:
        self.found: dict[int, int] = {}

    def checkpointed(
        self,
        event: ev.Event,
        topics: Sequence[ev.TopicSnapshot],
        routers: Sequence[ev.RouterSnapshot],
        producers: Sequence[ev.ProducerSnapshot],
        *,
        clean: bool,
    ) -> None:
        """See `TopicVisitor`."""
        self.found.update((topic.topic, topic.head) for topic in topics)


class _FoundFrame(NamedTuple):
    """A frame: where it begins and ends in its file, the length of its payload, its number."""

    at: int
    stop: int
    length: int
    number: int


class _OpenSegment:
    """A segment file that is read here and there."""

    def __init__(self, file: File, place: SegmentPlace) -> None:
        self.file = file
        self.place = place
        _, header = decode_header(file.pread(HEADER_BYTES, 0))
        if header is None:
            raise OSError(f"{place.name} has no header")
        self._salt = salt_of(header.identity, header.id)

    def start(self) -> _SegmentStart:
        """What the first frame says."""
        head = self.file.pread(FRAME_HEADER_BYTES, HEADER_BYTES)
        frame = self._frame_at(head, 0, HEADER_BYTES)
        if frame is None or frame.length > FRAME_DECODED_MAX:
            return _SegmentStart(0, {}, 0)
        transaction = self.transaction(frame)
        if transaction is None or not transaction.events:
            return _SegmentStart(0, {}, 0)
        heads = _Heads()
        for event in transaction.events:
            event.visit_topics(heads)
        return _SegmentStart(transaction.events[0].at, heads.found, len(heads.found))

    def frame_around(self, data: bytes, offset: int, hit: int) -> _FoundFrame | None:
        """The frame that a byte of a chunk is in, wherever it begins; None when none is found."""
        frame = self._before(data, offset, hit)
        if frame is None and offset > HEADER_BYTES:
            back = max(offset - LOOK_BACK_BYTES, HEADER_BYTES)
            earlier = self.file.pread(offset - back, back)
            frame = self._before(earlier, back, len(earlier))
        if frame is None or offset + hit >= frame.stop:
            return None
        return frame

    def _before(self, data: bytes, offset: int, hit: int) -> _FoundFrame | None:
        at = data.rfind(FRAME_MAGIC_BYTES, 0, hit)
        while at >= 0:
            frame = self._frame_at(data, at, offset + at)
            if frame is not None:
                return frame
            at = data.rfind(FRAME_MAGIC_BYTES, 0, at)
        return None

    def _frame_at(self, data: bytes, at: int, place: int) -> _FoundFrame | None:
        if place % 8 or at + FRAME_HEADER_BYTES > len(data):
            return None
        _, length, number, _ = FRAME_FIELDS.unpack_from(data, at)
        # The check is salted: only a header that this log wrote here has it.
        check = int.from_bytes(data[at + 28 : at + 32], "little")
        if crc32(data[at : at + FRAME_CHECKED_BYTES], self._salt) != check:
            return None
        return _FoundFrame(place, place + frame_bytes(length), length, number)

    def transaction(self, frame: _FoundFrame) -> ev.Transaction | None:
        """What a frame says; None when it cannot be read."""
        payload = self.file.pread(frame.length, frame.at + FRAME_HEADER_BYTES)
        try:
            return ev.decode(payload)
        except msgspec.MsgspecError:
            return None


class _Needle:
    """Bytes to look for, or a pattern, whose finds may be looked at once more."""

    def __init__(
        self,
        sought: bytes | re.Pattern[bytes],
        is_wanted: Callable[[bytes, int], bool] = lambda data, end: True,
    ) -> None:
        self._sought = sought
        self._is_wanted = is_wanted

    def next(self, data: bytes, start: int) -> int | None:
        """Where the next one is."""
        if isinstance(self._sought, bytes):
            at = data.find(self._sought, start)
            return None if at < 0 else at
        for match in self._sought.finditer(data, start):
            if self._is_wanted(data, match.end()):
                return match.start()
        return None


def _may_hold(data: bytes, end: int, seq: int) -> bool:
    """Whether what follows the topic of an append are a first seq and a count around a seq."""
    first, behind = _number(data, end)
    count, _ = _number(data, behind)
    return first <= seq < first + count


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number as msgpack writes it, and what follows; 0 where there is none."""
    kind = data[at] if at < len(data) else 0xC0
    if kind < 0x80:
        return kind, at + 1
    size = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}.get(kind, 0)
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size


def _next_magic(data: bytes, start: int) -> int:
    at = data.find(FRAME_MAGIC_BYTES, start)
    return len(data) if at < 0 else at
