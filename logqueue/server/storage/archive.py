"""The log archive: segments that the logs let go of, kept beside an index of what is in them.

Owns: the archive directory, what is in it, how a segment gets there durably, and when it goes.
Works in small steps that block on the disk, for whoever has a thread to spare; the other methods
only look, and may be called beside it. Must not know: asyncio, HTTP, what transactions mean.

A segment is archived by giving its file a second name, or by a copy where that cannot be. Only
segments whose successor was begun are taken, for they never change again. A segment counts as
archived when its name there is durable; its index is made later and can be made anew at any time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from logqueue.segments.index import SUFFIX as INDEX_SUFFIX
from logqueue.segments.index import LogName, encode_index
from logqueue.server.storage.segment_lookup import LOG_NAMES, LogSegments, Looking, SegmentPlace
from wal import DirectoryLock, FileSystem, Log, SegmentInfo
from wal.files import CANNOT_LINK
from wal.format import HEADER_BYTES, HeaderState, decode_header
from wal.log import LOCK_NAME
from wal.segment import segment_ids, segment_path

if TYPE_CHECKING:
    from logqueue.server.storage.journal import Journal
DRAFT_SUFFIX = ".new"
ASIDE_SUFFIX = ".aside"
COPY_STEP_BYTES = 1 << 20
SEGMENTS_PER_SYNC = 64
"""Segments that share the syncs of the directory: small ones are archived by their bytes."""
ENDING_BYTES = 4 << 10

logger = logging.getLogger("logqueue.archive")


class ArchiveRefused(Exception):
    """The directory cannot be the archive of these logs; the message says why and what to do."""


class ArchiveLocked(ArchiveRefused):
    """Another server has it."""


@dataclass(slots=True)
class Archived:
    """One segment in the archive.

    Attributes:
        bytes: Of its file.
        has_index: Whether the file beside it says what is in it.
        last_at: Time of the last event in it, ms since the epoch; None until somebody has looked.
        is_damaged: It could not be read to its end.
    """

    id: int
    path: str
    bytes: int
    has_index: bool
    last_at: int | None = None
    is_damaged: bool = False

    @property
    def index_path(self) -> str:
        """Where its index is, or will be."""
        return index_path(self.path)


def index_path(path: str) -> str:
    """Where the index of a segment file belongs."""
    return path + INDEX_SUFFIX


class _Room:
    """The archived segments of one log. `kept` is replaced, never changed, so that others may look
    at it while it grows."""

    def __init__(self, name: LogName, directory: str, log: Log) -> None:
        self.name = name
        self.directory = directory
        self.log = log
        self.kept: dict[int, Archived] = {}

    def add(self, segments: Iterable[Archived]) -> None:
        self.kept = {**self.kept, **{segment.id: segment for segment in segments}}

    def forget(self, segment: Archived) -> None:
        self.kept = {id: other for id, other in self.kept.items() if id != segment.id}

    def due(self) -> list[SegmentInfo]:
        """The segments of the log that never change again and are not archived, oldest first."""
        due = []
        for info, successor in pairwise(self.log.segments()):
            if info.id not in self.kept:
                if not successor.begun:
                    break
                due.append(info)
        return due


class LogArchive:
    """The archive of the logs of one server. Made by `open`.

    Attributes:
        archived: Segments archived since the start.
        failures: Tries that failed since then.
    """

    def __init__(
        self,
        fs: FileSystem,
        lock: DirectoryLock,
        rooms: Mapping[str, _Room],
        segments: LogSegments,
        max_age_ms: int,
        max_bytes: int,
    ) -> None:
        """Not for callers: use `open`."""
        self.archived = 0
        self.failures = 0
        self._fs = fs
        self._lock = lock
        self._rooms = rooms
        self._segments = segments
        self._max_age_ms = max_age_ms
        self._max_bytes = max_bytes
        self._complained = False

    @classmethod
    def open(
        cls,
        directory: str,
        journal: Journal,
        *,
        max_age_ms: int = 0,
        max_bytes: int = 0,
    ) -> LogArchive:
        """Take an archive directory, making it if need be, and tidy up what a crash has left.

        Args:
            directory: Belongs to the archive alone; one directory below it for each log.
            journal: Of the logs, which must be open.
            max_age_ms: How long ago the last event of a segment may be, in ms; 0 for no bound.
            max_bytes: Of all segments in it; 0 for no bound.

        Raises:
            ArchiveRefused: It is another server's, or holds segments of another log.
            OSError: It cannot be made, read or changed.
        """
        fs = journal.fs
        rooms: dict[str, _Room] = {
            name: _Room(name, os.path.join(directory, name), journal.logs[name])
            for name in LOG_NAMES
        }
        for room in rooms.values():
            if os.path.realpath(room.directory) == os.path.realpath(room.log.directory):
                raise ArchiveRefused(
                    f"{directory} is where the log itself is; give the archive a directory of its "
                    "own with LOGQUEUE_ARCHIVE_DIR"
                )
            fs.mkdir(room.directory)
        try:
            lock = fs.lock(os.path.join(directory, LOCK_NAME))
        except BlockingIOError as error:
            raise ArchiveLocked(
                f"another server has the log archive {directory}; stop it, or set another "
                "LOGQUEUE_ARCHIVE_DIR"
            ) from error
        try:
            # A refusal changes nothing, so all is looked at first.
            for room in rooms.values():
                for id in segment_ids(fs, room.directory):
                    _judge(fs, segment_path(room.directory, id), id, room)
        except BaseException:
            lock.take_back()
            raise
        try:
            for room in rooms.values():
                _survey(fs, room)
        except BaseException:
            lock.release()
            raise
        return cls(fs, lock, rooms, journal.segments, max_age_ms, max_bytes)

    def close(self) -> None:
        """Let go of the directory. Nobody may be in a step."""
        self._lock.release()

    # -- looking ---------------------------------------------------------------------------------

    def holds_before(self, log: Log, segment: int) -> bool:
        """Whether every segment of a log with an id below this one is archived durably."""
        (room,) = [room for room in self._rooms.values() if room.log is log]
        kept = room.kept
        return all(info.id in kept for info in log.segments() if info.id < segment)

    def segments(self, name: str) -> dict[int, Archived]:
        """What is archived of a log, by id. Not to be changed."""
        return self._rooms[name].kept

    def distrust_index(self, name: str, id: int) -> None:
        """Have the index of a segment made anew."""
        segment = self._rooms[name].kept.get(id)
        if segment is not None:
            segment.has_index = False

    @property
    def count(self) -> int:
        """Segments in the archive."""
        return sum(len(room.kept) for room in self._rooms.values())

    @property
    def bytes_total(self) -> int:
        """Bytes of all segments in the archive."""
        return sum(kept.bytes for room in self._rooms.values() for kept in [*room.kept.values()])

    # -- working ---------------------------------------------------------------------------------

    def steps(self, now: int) -> Generator[None, None, None]:
        """Archive what is due, make indexes that are missing, let go of what is over the bounds.

        Never raises for what the disk does: that is counted, told once, and tried again by the
        next call.

        Args:
            now: The clock, ms since the epoch.

        Yields:
            After each step, a few milliseconds of work or one operation of the disk. Stopping
            between two steps leaves nothing that the next start would not clear up.
        """
        went_well = True
        for work in (self._keep_all, self._index_all, lambda: self._retire(now)):
            try:
                yield from work()
            except OSError as error:
                went_well = False
                self.failures += 1
                self._complain(error)
        if went_well:
            self._complained = False

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            logger.warning(
                "archiving failed and is tried again; the log drops nothing meanwhile: %s", error
            )
        self._complained = True

    def _keep_all(self) -> Iterator[None]:
        for room in self._rooms.values():
            linked: list[Archived] = []
            try:
                for info in room.due():
                    path = segment_path(room.directory, info.id)
                    yield from self._link(info, path)
                    linked.append(Archived(info.id, path, info.bytes, has_index=False))
                    if len(linked) == SEGMENTS_PER_SYNC:
                        yield from self._keep(room, linked)
            except OSError:
                # One that cannot be archived keeps nobody before it.
                yield from self._keep(room, linked)
                raise
            yield from self._keep(room, linked)

    def _keep(self, room: _Room, linked: list[Archived]) -> Iterator[None]:
        """Make the names of some segments durable; one sync is enough for all of them."""
        if linked:
            self._fs.sync_dir(room.directory)
            room.add(linked)
            self.archived += len(linked)
            linked.clear()
            yield

    def _link(self, info: SegmentInfo, path: str) -> Iterator[None]:
        try:
            try:
                self._fs.link(info.path, path)
            except FileExistsError:
                # Left by a try whose sync failed, for whatever was there at the start is known.
                # The next sync may be reported as good for nothing, so all is done anew.
                self._fs.remove(path)
                self._fs.link(info.path, path)
        except OSError as error:
            if error.errno not in CANNOT_LINK:
                raise
            yield from self._copy(info, path)
        yield

    def _copy(self, info: SegmentInfo, path: str) -> Iterator[None]:
        draft = path + DRAFT_SUFFIX
        source = self._fs.open(info.path)
        try:
            copy = self._fs.create(draft)
            try:
                for offset in range(0, info.bytes, COPY_STEP_BYTES):
                    length = min(COPY_STEP_BYTES, info.bytes - offset)
                    copy.pwrite(source.pread(length, offset), offset)
                    yield
                copy.sync()
            except OSError:
                with suppress(OSError):
                    self._fs.remove(draft)
                raise
            finally:
                copy.close()
        finally:
            source.close()
        self._fs.rename(draft, path)

    def _index_all(self) -> Iterator[None]:
        for room in self._rooms.values():
            drafts: list[Archived] = []
            try:
                for segment in [*room.kept.values()]:
                    if not segment.has_index and not segment.is_damaged:
                        try:
                            yield from self._draft(room, segment, drafts)
                        except FileNotFoundError:
                            self._require_lost(room, segment)
                    if len(drafts) == SEGMENTS_PER_SYNC:
                        yield from self._publish(room, drafts)
            except OSError:
                yield from self._publish(room, drafts)
                raise
            yield from self._publish(room, drafts)

    def _draft(self, room: _Room, segment: Archived, drafts: list[Archived]) -> Iterator[None]:
        """Write the index of a segment under another name."""
        if room.name != "jobs":
            yield from self._segments.learn_topics()
        found = yield from self._look(room, segment)
        segment.last_at = found.index.last_at
        if found.damage is not None:
            # Its bytes may still be of use to somebody; an index would say that all is well.
            segment.is_damaged = True
            logger.error("the archived segment %s is damaged: %s", segment.path, found.damage)
            return
        draft = segment.index_path + DRAFT_SUFFIX
        try:
            file = self._fs.create(draft)
            try:
                file.pwrite(encode_index(found.index), 0)
            finally:
                file.close()
        except OSError:
            with suppress(OSError):
                self._fs.remove(draft)
            raise
        drafts.append(segment)
        yield

    def _publish(self, room: _Room, drafts: list[Archived]) -> Iterator[None]:
        """Give the drafts of some indexes their names, once they are durable. The first of many
        files to be synced pays for most of the others."""
        segments = [*drafts]
        drafts.clear()
        try:
            for segment in segments:
                file = self._fs.open(segment.index_path + DRAFT_SUFFIX, writable=True)
                try:
                    file.sync()
                finally:
                    file.close()
                self._fs.rename(segment.index_path + DRAFT_SUFFIX, segment.index_path)
                yield
            if segments:
                self._fs.sync_dir(room.directory)
        except OSError:
            for segment in segments:
                with suppress(OSError):
                    self._fs.remove(segment.index_path + DRAFT_SUFFIX)
            raise
        for segment in segments:
            segment.has_index = True

    # -- letting go ------------------------------------------------------------------------------

    def _retire(self, now: int) -> Iterator[None]:
        """Let go of the oldest segments while a bound is exceeded; never of what the log has."""
        while self._max_age_ms or self._max_bytes:
            oldest: list[tuple[int, _Room, Archived]] = []
            for room in self._rooms.values():
                segment = room.kept[min(room.kept)] if room.kept else None
                if segment is not None and segment.id < room.log.segments()[0].id:
                    oldest.append(((yield from self._ended_at(room, now)), room, segment))
            if not oldest:
                return
            last_at, room, segment = min(oldest, key=lambda found: found[0])
            is_old = self._max_age_ms > 0 and last_at < now - self._max_age_ms
            if not is_old and not 0 < self._max_bytes < self.bytes_total:
                return
            try:
                self._fs.remove(segment.path)
            except FileNotFoundError:
                self._require_lost(room, segment)
            room.forget(segment)
            if segment.has_index:
                with suppress(FileNotFoundError):
                    self._fs.remove(segment.index_path)
            self._fs.sync_dir(room.directory)
            yield

    def _ended_at(self, room: _Room, now: int) -> Generator[None, None, int]:
        """When the oldest segment of a room ended, as far as that can be told.

        A clock that was ahead has left times behind that are still to come, and a damage may have
        left none. Such a segment is no younger than those that came after it.
        """
        for _, segment in sorted(room.kept.items()):
            try:
                last_at = yield from self._last_at(room, segment)
            except FileNotFoundError:
                self._require_lost(room, segment)
                continue
            if 0 < last_at <= now:
                return last_at
        return now

    def _last_at(self, room: _Room, segment: Archived) -> Generator[None, None, int]:
        if segment.last_at is None:
            segment.last_at = (yield from self._look(room, segment)).index.last_at
        return segment.last_at

    def _require_lost(self, room: _Room, segment: Archived) -> None:
        """Forget a segment whose file somebody has removed. What the log still has is then archived
        anew.

        Raises:
            OSError: It is not only this file: the directory is not there, or cannot be read.
        """
        if os.path.basename(segment.path) not in self._fs.listdir(room.directory):
            logger.warning("the archived segment %s is gone: somebody removed it", segment.path)
            room.forget(segment)

    def _look(self, room: _Room, segment: Archived) -> Looking:
        place = SegmentPlace(
            room.name, segment.id, segment.path, segment.bytes, 0, True, True, segment.has_index
        )
        return self._segments.look(place)


def _survey(fs: FileSystem, room: _Room) -> None:
    """Find out what is in a room, and clear away what a crash has left."""
    sealed = {info.id: info for info in room.log.segments()[:-1]}
    active = room.log.segments()[-1].id
    names = set(fs.listdir(room.directory))
    for name in sorted(names):
        if name.endswith(DRAFT_SUFFIX):
            fs.remove(os.path.join(room.directory, name))
    for id in segment_ids(fs, room.directory):
        path = segment_path(room.directory, id)
        size, problem = _judge(fs, path, id, room)
        if id >= active or (id in sealed and not _is_alike(fs, path, size, sealed[id])):
            # The log is from an older backup, or damage was set aside: it goes on without this.
            problem = "the log that is archived has no such segment"
        if problem:
            aside = _set_aside(fs, path, names)
            logger.warning("the archived segment %s is now %s: %s", path, aside, problem)
            continue
        has_index = os.path.basename(index_path(path)) in names
        room.kept[id] = Archived(id, path, size, has_index)
    for name in sorted(names):
        path = os.path.join(room.directory, name)
        if name.endswith(INDEX_SUFFIX) and path not in {k.index_path for k in room.kept.values()}:
            fs.remove(path)
    # Names that a killed process has left count as archived only after this.
    fs.sync_dir(room.directory)


def _is_alike(fs: FileSystem, path: str, size: int, info: SegmentInfo) -> bool:
    """Whether an archived file ends as the segment of the log does.

    What came after a backup, and what was written after it was restored, may be as long, but never
    has the same orders and times.
    """
    if size != info.bytes:
        return False
    ends = []
    for place in (path, info.path):
        file = fs.open(place)
        try:
            ends.append(file.pread(ENDING_BYTES, max(size - ENDING_BYTES, 0)))
        finally:
            file.close()
    return ends[0] == ends[1]


def _judge(fs: FileSystem, path: str, id: int, room: _Room) -> tuple[int, str]:
    """Size of an archived file, and what is wrong with it; "" when it is what its name says.

    Raises:
        ArchiveRefused: It is of another log.
    """
    file = fs.open(path)
    try:
        size = file.size()
        state, header = decode_header(file.pread(HEADER_BYTES, 0))
    finally:
        file.close()
    if header is None or state is not HeaderState.OK or header.id != id:
        return size, "its header is damaged"
    if header.identity != room.log.identity:
        raise ArchiveRefused(
            f"{room.directory} holds the archive of another log ({path} is of log "
            f"{header.identity.hex()}, the server's {room.name} log is {room.log.identity.hex()}); "
            "move it away, or set another LOGQUEUE_ARCHIVE_DIR"
        )
    return size, ""


def _set_aside(fs: FileSystem, path: str, names: set[str]) -> str:
    """Move a file out of the way under a name that nobody has."""
    count = 0
    aside = path + ASIDE_SUFFIX
    while os.path.basename(aside) in names:
        count += 1
        aside = f"{path}{ASIDE_SUFFIX}-{count}"
    names.add(os.path.basename(aside))
    fs.rename(path, aside)
    return aside
