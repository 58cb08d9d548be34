"""A directory as a place for the sealed segments of both logs: how they come, get an index, and go.

Owns: how a segment gets into the archive durably, and when it leaves. Works in small steps that
block on the disk, for a thread of its own. Must not know: which segments are due and in which
order (`logqueue.segments.history`), asyncio, HTTP, what transactions mean.

A segment is archived by giving its file a second name, or by a copy where that is impossible.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator
from contextlib import suppress

from logqueue.segments.history import (
    LOGS,
    TOGETHER,
    HistoryBounds,
    SealedSegment,
    is_known_time,
    keep_history,
    sealed_segments,
)
from logqueue.segments.index import LogName, encode_index
from logqueue.server.storage.archive import DRAFT_SUFFIX, Archived, ArchivedLog, LogArchive
from logqueue.server.storage.segment_store import Scanning, SegmentPlace, SegmentStore
from wal import CANNOT_LINK, segment_path

COPY_STEP_BYTES = 1 << 20

logger = logging.getLogger("logqueue.archive")


class Archiver:
    """Keeps the archive of one server up to date. It is a `HistoryPlace`."""

    def __init__(self, archive: LogArchive, store: SegmentStore, bounds: HistoryBounds) -> None:
        """Nothing is done yet.

        Args:
            archive: The one of `store`.
            store: Tells what is in segments.
            bounds: What the archive keeps of segments that the log has dropped.
        """
        self._archive = archive
        self._fs = archive.fs
        self._store = store
        self._bounds = bounds
        self._now = 0
        # Names in the directory that are not durable yet.
        self._linked: dict[LogName, list[Archived]] = {log: [] for log in LOGS}

    def steps(self, now: int) -> Generator[None, None, None]:
        """Archive what is due, make indexes that are missing, delete what exceeds the bounds.

        Never raises for what the disk does: that is counted, logged once, and tried again by the
        next call.

        Args:
            now: The clock, ms since the epoch.

        Yields:
            After each step, a few milliseconds of work or one operation of the disk. Stopping
            between two steps leaves nothing that the next start would not clear up.
        """
        self._now = now
        self._linked = {log: [] for log in LOGS}
        logs = {room.name: room.log for room in self._archive.rooms.values()}
        try:
            yield from keep_history(self, lambda log: sealed_segments(logs[log]))
            self._archive.is_failing = False
        except OSError as error:
            self._archive.failures += 1
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        if not self._archive.is_failing:
            logger.warning(
                "archiving failed and is tried again; the log drops nothing meanwhile: %s", error
            )
        self._archive.is_failing = True

    # -- as a HistoryPlace -----------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """See HistoryPlace."""
        return sum(map(len, self._linked.values()))

    def has(self, log: LogName, id: int) -> bool:
        """See HistoryPlace."""
        linked = self._linked[log]
        return id in self._archive.rooms[log].kept or any(other.id == id for other in linked)

    def is_settled(self, log: LogName, segment: SealedSegment) -> bool:
        """See HistoryPlace."""
        return self._store.is_settled(log, segment.id)

    def put(self, log: LogName, segment: SealedSegment) -> Iterator[None]:
        """See HistoryPlace."""
        room = self._archive.rooms[log]
        path = segment_path(room.directory, segment.id)
        yield from self._link(segment_path(room.log.directory, segment.id), path, segment.bytes)
        self._linked[log].append(Archived(segment.id, path, segment.bytes, has_index=False))

    def enlist(self) -> Iterator[None]:
        """See HistoryPlace."""
        try:
            for log, room in self._archive.rooms.items():
                linked, self._linked[log] = self._linked[log], []
                if linked:
                    self._fs.sync_dir(room.directory)
                    room.add(linked)
                    self._archive.archived += len(linked)
                    yield
        finally:
            # After a failed sync the next one may report success falsely: all is done again.
            self._linked = {log: [] for log in LOGS}
        yield from self._index_all()

    def retire(self) -> Iterator[None]:
        """See HistoryPlace. Segments that the log still has stay."""
        while self._bounds.are_set:
            oldest: list[tuple[int, ArchivedLog, Archived]] = []
            for room in self._archive.rooms.values():
                segment = room.kept[min(room.kept)] if room.kept else None
                if segment is not None and segment.id < room.log.segments()[0].id:
                    oldest.append(((yield from self._ended_at(room)), room, segment))
            if not oldest:
                return
            last_at, room, segment = min(oldest, key=lambda found: found[0])
            if not self._bounds.are_exceeded(last_at, self._archive.bytes_total, self._now):
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

    def _ended_at(self, room: ArchivedLog) -> Generator[None, None, int]:
        """When the oldest segment of a room ended, as far as that is known: it is not younger than
        those that came after it."""
        for _, segment in sorted(room.kept.items()):
            try:
                if segment.last_at is None:
                    segment.last_at = (yield from self._scan(room, segment)).index.last_at
            except FileNotFoundError:
                self._require_lost(room, segment)
                continue
            if is_known_time(segment.last_at, self._now):
                return segment.last_at
        return self._now

    # -- files -----------------------------------------------------------------------------------

    def _link(self, source: str, path: str, size: int) -> Iterator[None]:
        try:
            try:
                self._fs.link(source, path)
            except FileExistsError:
                # Left by a try whose sync failed, for whatever was there at the start is known.
                # The next sync may report success falsely, so all is done again.
                self._fs.remove(path)
                self._fs.link(source, path)
        except OSError as error:
            if error.errno not in CANNOT_LINK:
                raise
            yield from self._copy(source, path, size)
        yield

    def _copy(self, source: str, path: str, size: int) -> Iterator[None]:
        draft = path + DRAFT_SUFFIX
        original = self._fs.open(source)
        try:
            copy = self._fs.create(draft)
            try:
                for offset in range(0, size, COPY_STEP_BYTES):
                    length = min(COPY_STEP_BYTES, size - offset)
                    copy.pwrite(original.pread(length, offset), offset)
                    yield
                copy.sync()
            except OSError:
                with suppress(OSError):
                    self._fs.remove(draft)
                raise
            finally:
                copy.close()
        finally:
            original.close()
        self._fs.rename(draft, path)

    def _index_all(self) -> Iterator[None]:
        for room in self._archive.rooms.values():
            drafts: list[Archived] = []
            try:
                for segment in [*room.kept.values()]:
                    if not segment.has_index and not segment.is_damaged:
                        try:
                            yield from self._draft(room, segment, drafts)
                        except FileNotFoundError:
                            self._require_lost(room, segment)
                    if len(drafts) == TOGETHER:
                        yield from self._publish(room, drafts)
            except OSError:
                yield from self._publish(room, drafts)
                raise
            yield from self._publish(room, drafts)

    def _draft(
        self, room: ArchivedLog, segment: Archived, drafts: list[Archived]
    ) -> Iterator[None]:
        """Write the index of a segment under another name."""
        if room.name != "jobs":
            yield from self._store.learn_topics()
        found = yield from self._scan(room, segment)
        segment.last_at = found.index.last_at
        if found.damage is not None:
            # Its bytes may still be useful; an index would mark it as sound.
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

    def _publish(self, room: ArchivedLog, drafts: list[Archived]) -> Iterator[None]:
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

    def _require_lost(self, room: ArchivedLog, segment: Archived) -> None:
        """Forget a segment whose file was removed by others. What the log still has is then
        archived again.

        Raises:
            OSError: It is not only this file: the directory is not there, or cannot be read.
        """
        if os.path.basename(segment.path) not in self._fs.listdir(room.directory):
            logger.warning("the archived segment %s was removed by another program", segment.path)
            room.forget(segment)

    def _scan(self, room: ArchivedLog, segment: Archived) -> Scanning:
        place = SegmentPlace(
            room.name, segment.id, segment.path, segment.bytes, 0, True, True, segment.has_index
        )
        return self._store.scan(place)
