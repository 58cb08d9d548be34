"""The directory of the log archive: which segments it has, and whether they belong there.

Owns: the lock of the directory, the survey at the start, the list of archived segments. Must not
know: when a segment is archived or removed (archiver.py), what is in a segment (segment_store.py),
asyncio, HTTP.

A segment counts as archived when its name in the archive is durable; its index is made later and
can be rebuilt at any time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from logqueue.segments.index import SUFFIX as INDEX_SUFFIX
from logqueue.segments.index import LogName
from wal import (
    HEADER_BYTES,
    LOCK_NAME,
    DirectoryLock,
    FileSystem,
    HeaderState,
    Log,
    SegmentInfo,
    decode_header,
    segment_ids,
    segment_path,
)

DRAFT_SUFFIX = ".new"
ASIDE_SUFFIX = ".aside"
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
        last_at: Time of the last event in it, ms since the epoch; None until it was read.
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


class ArchivedLog:
    """The archived segments of one log. `kept` is replaced, never changed, so that others may look
    at it while it grows."""

    def __init__(self, name: LogName, directory: str, log: Log) -> None:
        self.name = name
        self.directory = directory
        self.log = log
        self.kept: dict[int, Archived] = {}

    def add(self, segments: Iterable[Archived]) -> None:
        """Their names in the archive are durable."""
        self.kept = {**self.kept, **{segment.id: segment for segment in segments}}

    def forget(self, segment: Archived) -> None:
        """Its file is gone, or about to go."""
        self.kept = {id: other for id, other in self.kept.items() if id != segment.id}


class LogArchive:
    """The archive of the logs of one server. Made by `open`.

    Attributes:
        fs: Where it is.
        rooms: The archived segments, by log.
        archived: Segments archived since the start.
        failures: Tries that failed since then.
        is_failing: Whether the last one did.
    """

    def __init__(
        self,
        fs: FileSystem,
        lock: DirectoryLock,
        rooms: Mapping[LogName, ArchivedLog],
    ) -> None:
        """Not for callers: use `open`."""
        self.fs = fs
        self.rooms = rooms
        self.archived = 0
        self.failures = 0
        self.is_failing = False
        self._lock = lock

    @classmethod
    def open(
        cls,
        directory: str,
        fs: FileSystem,
        logs: Mapping[LogName, Log],
    ) -> LogArchive:
        """Lock an archive directory, make it if need be, and remove what a crash has left.

        Args:
            directory: Belongs to the archive alone; one directory below it for each log.
            fs: Where it is.
            logs: The logs that are archived; they must be open.

        Raises:
            ArchiveRefused: It is another server's, or holds segments of another log.
            OSError: It cannot be made, read or changed.
        """
        rooms: dict[LogName, ArchivedLog] = {
            name: ArchivedLog(name, os.path.join(directory, name), log)
            for name, log in logs.items()
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
        return cls(fs, lock, rooms)

    def close(self) -> None:
        """Release the directory. No step may be running."""
        self._lock.release()

    # -- queries ---------------------------------------------------------------------------------

    def holds_before(self, name: LogName, segment: int) -> bool:
        """Whether every segment of a log with an id below this one is archived durably."""
        room = self.rooms[name]
        kept = room.kept
        return all(info.id in kept for info in room.log.segments() if info.id < segment)

    def segments(self, name: LogName) -> dict[int, Archived]:
        """What is archived of a log, by id. Not to be changed."""
        return self.rooms[name].kept

    def distrust_index(self, name: LogName, id: int) -> None:
        """Have the index of a segment rebuilt."""
        segment = self.rooms[name].kept.get(id)
        if segment is not None:
            segment.has_index = False

    @property
    def count(self) -> int:
        """Segments in the archive."""
        return sum(len(room.kept) for room in self.rooms.values())

    @property
    def bytes_total(self) -> int:
        """Bytes of all segments in the archive."""
        return sum(kept.bytes for room in self.rooms.values() for kept in [*room.kept.values()])


def _survey(fs: FileSystem, room: ArchivedLog) -> None:
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
            # The log is from an older backup, or damage was set aside: it continues without this.
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


def _judge(fs: FileSystem, path: str, id: int, room: ArchivedLog) -> tuple[int, str]:
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
    """Move a file out of the way under an unused name."""
    count = 0
    aside = path + ASIDE_SUFFIX
    while os.path.basename(aside) in names:
        count += 1
        aside = f"{path}{ASIDE_SUFFIX}-{count}"
    names.add(os.path.basename(aside))
    fs.rename(path, aside)
    return aside
