"""What is done for the log archive: segments come, get an index, and go.

Owns: how a segment gets into the archive durably, and when it leaves. Works in small steps that
block on the disk, for a thread of its own. Must not know: asyncio, HTTP, what transactions mean.

A segment is archived by giving its file a second name, or by a copy where that is impossible. Only
segments whose successor has a durable header are taken, for they never change again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator
from contextlib import suppress

from logqueue.segments.index import encode_index
from logqueue.server.storage.archive import DRAFT_SUFFIX, Archived, ArchivedLog, LogArchive
from logqueue.server.storage.segment_store import Scanning, SegmentPlace, SegmentStore
from wal import CANNOT_LINK, SegmentInfo, segment_path

COPY_STEP_BYTES = 1 << 20
SEGMENTS_PER_SYNC = 64
"""Segments that share the syncs of the directory: small ones are archived by their bytes."""

logger = logging.getLogger("logqueue.archive")


class Archiver:
    """Keeps the archive of one server up to date."""

    def __init__(
        self, archive: LogArchive, store: SegmentStore, *, max_age_ms: int = 0, max_bytes: int = 0
    ) -> None:
        """Nothing is done yet.

        Args:
            archive: The one of `store`.
            store: Tells what is in segments.
            max_age_ms: How long ago the last event of a segment may be, in ms; 0 for no bound.
            max_bytes: Of all segments in the archive; 0 for no bound.
        """
        self._archive = archive
        self._fs = archive.fs
        self._store = store
        self._max_age_ms = max_age_ms
        self._max_bytes = max_bytes

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
        went_well = True
        for work in (self._keep_all, self._index_all, lambda: self._retire(now)):
            try:
                yield from work()
            except OSError as error:
                went_well = False
                self._archive.failures += 1
                self._complain(error)
        if went_well:
            self._archive.is_failing = False

    def _complain(self, error: OSError) -> None:
        if not self._archive.is_failing:
            logger.warning(
                "archiving failed and is tried again; the log drops nothing meanwhile: %s", error
            )
        self._archive.is_failing = True

    def _keep_all(self) -> Iterator[None]:
        for room in self._archive.rooms.values():
            linked: list[Archived] = []
            try:
                for info in room.due():
                    if not self._store.is_settled(room.name, info.id):
                        break
                    path = segment_path(room.directory, info.id)
                    yield from self._link(info, path)
                    linked.append(Archived(info.id, path, info.bytes, has_index=False))
                    if len(linked) == SEGMENTS_PER_SYNC:
                        yield from self._keep(room, linked)
            except OSError:
                # One that cannot be archived does not block those before it.
                yield from self._keep(room, linked)
                raise
            yield from self._keep(room, linked)

    def _keep(self, room: ArchivedLog, linked: list[Archived]) -> Iterator[None]:
        """Make the names of some segments durable; one sync is enough for all of them."""
        if linked:
            self._fs.sync_dir(room.directory)
            room.add(linked)
            self._archive.archived += len(linked)
            linked.clear()
            yield

    def _link(self, info: SegmentInfo, path: str) -> Iterator[None]:
        try:
            try:
                self._fs.link(info.path, path)
            except FileExistsError:
                # Left by a try whose sync failed, for whatever was there at the start is known.
                # The next sync may report success falsely, so all is done again.
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
        for room in self._archive.rooms.values():
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

    # -- retention -------------------------------------------------------------------------------

    def _retire(self, now: int) -> Iterator[None]:
        """Delete the oldest segments while a bound is exceeded; never those the log still has."""
        while self._max_age_ms or self._max_bytes:
            oldest: list[tuple[int, ArchivedLog, Archived]] = []
            for room in self._archive.rooms.values():
                segment = room.kept[min(room.kept)] if room.kept else None
                if segment is not None and segment.id < room.log.segments()[0].id:
                    oldest.append(((yield from self._ended_at(room, now)), room, segment))
            if not oldest:
                return
            last_at, room, segment = min(oldest, key=lambda found: found[0])
            is_old = self._max_age_ms > 0 and last_at < now - self._max_age_ms
            if not is_old and not 0 < self._max_bytes < self._archive.bytes_total:
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

    def _ended_at(self, room: ArchivedLog, now: int) -> Generator[None, None, int]:
        """When the oldest segment of a room ended, as far as that is known.

        A clock that was ahead has left times behind that are still to come, and a damage may have
        left none. Such a segment is not younger than those that came after it.
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

    def _last_at(self, room: ArchivedLog, segment: Archived) -> Generator[None, None, int]:
        if segment.last_at is None:
            segment.last_at = (yield from self._scan(room, segment)).index.last_at
        return segment.last_at

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
