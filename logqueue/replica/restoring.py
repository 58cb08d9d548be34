"""A data directory made of a replica: as it is now, or as it was at a moment.

Owns: which objects that needs, where a cut is, and that what was not finished is known as such.
Must not know: what the events mean beyond their order and time.

The files are written into their places, under the mark `RESTORING`, which is there before the first
of them and is removed after the last one was synced. A directory with that mark is not a data
directory: `settle` empties it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import PurePath
from typing import NamedTuple

from logqueue import events as ev
from logqueue.replica.chain import LOGS, ChainBroken, ChainEnd, chain_start, extended
from logqueue.replica.chunk import ChunkRun, LogName, chunk_key
from logqueue.replica.manifest import MANIFEST_KEY, ReplicaManifest, SegmentEntry, segment_key
from logqueue.replica.object_store import ObjectStore
from logqueue.replica.reading import ReadVoid, ReplicaDamaged, ReplicaReader
from wal import (
    FRAME_ALIGN,
    FRAME_BYTES_MAX,
    HEAD_NAME,
    HEADER_BYTES,
    File,
    FileSystem,
    Frame,
    Head,
    HeadFile,
    SegmentHeader,
    Walk,
    decode_header,
    encode_header,
    read_whole,
    salt_of,
    segment_ids,
    segment_path,
)

MARK = "RESTORING"
TRIES_MAX = 5
"""How often a restore begins again because the collector was faster."""

PARALLEL = 8


class Cut(NamedTuple):
    """Where to end: with the last transaction before the first one that is beyond.

    Attributes:
        at: Events may have happened up to then, ms since the epoch; None for any time.
        order: Number of the last transaction to have; None for any.
    """

    at: int | None = None
    order: int | None = None

    def is_before(self, transaction: ev.Transaction) -> bool:
        """Whether a transaction is beyond."""
        if self.order is not None and transaction.order > self.order:
            return True
        return self.at is not None and any(event.at > self.at for event in transaction.events)


class RestoreProgress(NamedTuple):
    """How far a restore has come, in bytes that are fetched."""

    done: int
    total: int


class Restored(NamedTuple):
    """What a restore has made.

    Attributes:
        log_id: Identity of the jobs log, in hex.
        leases_id: The same of the leases log.
        epoch: Of the manifest that was read.
        chunk: Number of the last chunk that was read; of a cut, one less than the first that is
            kept when none was needed.
        digest: Of that chunk; what its successor has as `previous`.
        bytes: Of all segment files.
        last_order: Number of the last transaction; 0 when there is none.
        last_at: Time of its last event, ms since the epoch; 0 when there is none.
    """

    log_id: str
    leases_id: str
    epoch: int
    chunk: int
    digest: str
    bytes: int
    last_order: int
    last_at: int


class RestoreRefused(Exception):
    """There are logs in that directory, or the replica does not reach back so far."""


def restore(
    store: ObjectStore,
    fs: FileSystem,
    directory: str,
    cut: Cut | None = None,
    *,
    progress: Callable[[RestoreProgress], None] = lambda progress: None,
    parallel: int = PARALLEL,
    pause: Callable[[float], None] = time.sleep,
) -> Restored:
    """Make a data directory of a replica. What an earlier try has left there is removed first.

    Args:
        store: Where the replica is.
        fs: Where the directory is.
        directory: The data directory, locked by the caller; it must have no logs.
        cut: Where to end; at the end of the replica by default.
        progress: Called now and then, from several threads.
        parallel: How many objects are fetched at the same time, in threads; 1 for none.
        pause: Waits between two tries of a call, in seconds.

    Raises:
        RestoreRefused: The directory has logs, or no moment so early can be restored.
        ReplicaUnreadable: There is no replica, or it is damaged: the message names the object.
        StoreError: The store cannot be read.
        OSError: The directory cannot be written.
    """
    settle(fs, directory)
    for name in LOGS:
        if _is_there(fs, directory, name):
            raise RestoreRefused(
                f"there are logs in {directory}: name a directory that is empty or not there"
            )
    reader = ReplicaReader(store, parallel=parallel, pause=pause)
    for tried in range(1, TRIES_MAX + 1):
        try:
            return _Restore(reader, fs, directory, cut, progress).run()
        except ReadVoid:
            if tried == TRIES_MAX:
                raise
        finally:
            settle(fs, directory)
    raise AssertionError("unreachable")


def is_unfinished(fs: FileSystem, directory: str) -> bool:
    """Whether a restore into a directory was begun and not finished."""
    try:
        return MARK in fs.listdir(directory)
    except FileNotFoundError:
        return False


def settle(fs: FileSystem, directory: str) -> None:
    """Remove what a restore has left that was not finished; of any other directory, nothing.

    Raises:
        OSError: It cannot be removed.
    """
    if not is_unfinished(fs, directory):
        return
    for name in LOGS:
        folder = str(PurePath(directory) / name)
        with suppress(FileNotFoundError):
            for id in reversed(segment_ids(fs, folder)):
                fs.remove(segment_path(folder, id))
            for found in fs.listdir(folder):
                if found.startswith(HEAD_NAME):
                    fs.remove(str(PurePath(folder) / found))
            fs.sync_dir(folder)
    _remove_mark(fs, directory)


def _remove_mark(fs: FileSystem, directory: str) -> None:
    fs.remove(str(PurePath(directory) / MARK))
    # Were it to come back after a power cut, what was written to the logs since would be removed.
    fs.sync_dir(directory)


def _is_there(fs: FileSystem, directory: str, name: LogName) -> bool:
    folder = str(PurePath(directory) / name)
    try:
        return bool(segment_ids(fs, folder)) or HEAD_NAME in fs.listdir(folder)
    except FileNotFoundError:
        return False


class _RestoredLog:
    """The files of one log.

    Attributes:
        ids: Of the segments that are there, in order.
        last_at: By segment, the time of its last event where the manifest says it.
        size: Of all files, in bytes.
    """

    def __init__(self, fs: FileSystem, directory: str, name: LogName, identity: str) -> None:
        self.name: LogName = name
        self.directory = str(PurePath(directory) / name)
        self.identity = bytes.fromhex(identity)
        self.ids: list[int] = []
        self.last_at: dict[int, int] = {}
        self.size = 0
        self._fs = fs
        self._file: File | None = None
        self._end = 0
        fs.mkdir(self.directory)

    def copy(self, entry: SegmentEntry, parts: Iterator[bytes], source: str) -> None:
        """Write a sealed segment; in any thread."""
        file = self._fs.create(self.path(entry.id))
        try:
            offset = 0
            for part in parts:
                if not offset:
                    _, header = decode_header(part[:HEADER_BYTES])
                    if header != SegmentHeader(entry.id, entry.first, self.identity):
                        raise ReplicaDamaged(f"{source} has not the header of this segment")
                file.pwrite(part, offset)
                offset += len(part)
            file.sync()
        finally:
            file.close()

    def copied(self, entry: SegmentEntry) -> None:
        """A segment was written; called in order."""
        self.ids.append(entry.id)
        self.last_at[entry.id] = entry.at

    def add(self, run: ChunkRun, data: bytes) -> None:
        """Write a run of a chunk that follows on what is there."""
        if not self.ids or run.segment != self.ids[-1]:
            # Segments without frames are in no chunk.
            for id in range(self.ids[-1] + 1 if self.ids else run.segment, run.segment + 1):
                self.begin(id, run.base)
        assert self._file is not None and run.offset == self._end
        self._file.pwrite(data, self._end)
        self._end += len(data)

    def begin(self, id: int, first: int) -> None:
        """Begin a segment."""
        self.end_segment()
        self._file = self._fs.create(self.path(id))
        self._file.pwrite(encode_header(SegmentHeader(id, first, self.identity)), 0)
        self._end = HEADER_BYTES
        self.ids.append(id)

    def end_segment(self) -> None:
        """Make the segment that is being written survive a power cut."""
        file, self._file = self._file, None
        if file is not None:
            file.sync()
            file.close()

    def path(self, id: int) -> str:
        """Of a segment."""
        return segment_path(self.directory, id)

    def frames(self, id: int) -> Iterator[Frame]:
        """The frames of a segment.

        Raises:
            ReplicaDamaged: They are not sound.
        """
        data = read_whole(self._fs, self.path(id))
        _, header = decode_header(data[:HEADER_BYTES])
        assert header is not None
        walk = Walk(data, salt_of(self.identity, id), header.first, id, FRAME_BYTES_MAX)
        yield from walk
        if walk.offset != len(data) and any(data[walk.offset :]):
            raise ReplicaDamaged(
                f"segment {id} of the {self.name} log is not sound at byte {walk.offset}: "
                f"{walk.problem}"
            )

    def first_beyond(self, cut: Cut) -> ev.Transaction | None:
        """The first transaction beyond a cut; None when there is none."""
        for id in self.ids:
            if cut.at is not None and self.last_at.get(id, cut.at + 1) <= cut.at:
                continue
            for frame in self.frames(id):
                transaction = ev.decode(frame.payload)
                if cut.is_before(transaction):
                    return transaction
        return None

    def begins_beyond(self, id: int, order: int) -> bool:
        """Whether the first frame of a segment is of a later transaction."""
        first = next(iter(self.frames(id)), None)
        return first is not None and ev.decode(first.payload).order > order

    def trim(self, order: int) -> None:
        """Remove what is later than a transaction."""
        while self.ids:
            id = self.ids[-1]
            end = HEADER_BYTES
            for frame in self.frames(id):
                if ev.decode(frame.payload).order > order:
                    break
                end = frame.offset + len(frame.payload)
            if end > HEADER_BYTES or len(self.ids) == 1:
                self._cut(id, end + -end % FRAME_ALIGN)
                return
            self._fs.remove(self.path(id))
            self.ids.pop()

    def _cut(self, id: int, end: int) -> None:
        file = self._fs.open(self.path(id), writable=True)
        try:
            if end < file.size():
                file.truncate(end)
                file.sync()
        finally:
            file.close()

    def finish(self) -> ev.Transaction | None:
        """Write the note of what must be there; returns the last transaction there is."""
        if not self.ids:
            self.begin(1, 1)
        self.end_segment()
        last: Frame | None = None
        for id in reversed(self.ids):
            for frame in self.frames(id):
                last = frame
            if last is not None:
                break
        number = last.number if last is not None else 0
        head = Head(self.identity, 1, self.ids[0], self.ids[-1], number, number)
        self._fs.sync_dir(self.directory)
        HeadFile.make(self._fs, self.directory, head).close()
        for id in self.ids:
            file = self._fs.open(self.path(id))
            self.size += file.size()
            file.close()
        return ev.decode(last.payload) if last is not None else None

    def close(self) -> None:
        """Close the file that is being written."""
        if self._file is not None:
            self._file.close()
            self._file = None


class _Restore:
    """One try."""

    def __init__(
        self,
        reader: ReplicaReader,
        fs: FileSystem,
        directory: str,
        cut: Cut | None,
        progress: Callable[[RestoreProgress], None],
    ) -> None:
        self._reader = reader
        self._fs = fs
        self._directory = directory
        self._cut = cut
        self._progress = progress
        self._lock = threading.Lock()
        self._done = self._total = 0

    def run(self) -> Restored:
        """Carry it out."""
        manifest = self._reader.manifest().manifest
        if self._cut is not None and self._cut.at is not None:
            self._require_reach(manifest, self._cut.at)
        self._mark()
        identities: dict[LogName, str] = {"jobs": manifest.log_id, "leases": manifest.leases_id}
        logs = {
            name: _RestoredLog(self._fs, self._directory, name, identities[name]) for name in LOGS
        }
        try:
            return self._restored(manifest, logs)
        finally:
            for log in logs.values():
                log.close()

    def _restored(self, manifest: ReplicaManifest, logs: dict[LogName, _RestoredLog]) -> Restored:
        needed = self._needed_from(manifest)
        wanted = {name: self._wanted(manifest, name, needed.get(name, 0)) for name in LOGS}
        chunks = self._reader.listed_chunks(manifest.start_chunk)
        self._total = sum(entry.bytes for entries in wanted.values() for entry in entries)
        self._total += sum(chunk.bytes for chunk in chunks)
        are_enough = [self._copy(wanted[name], logs[name]) for name in LOGS]
        end = ChainEnd(manifest.start_chunk - 1, manifest.start_digest)
        if not all(are_enough):
            end = self._add_chunks(manifest, logs, needed)
        for log in logs.values():
            log.end_segment()
        if self._cut is not None:
            self._trim(manifest, logs, self._cut)
        last = {name: log.finish() for name, log in logs.items()}
        if self._cut is not None and last["jobs"] is None:
            raise RestoreRefused(f"{self._reader.store.url} has nothing from before that moment")
        found = [transaction for transaction in last.values() if transaction is not None]
        latest = max(found, key=lambda transaction: transaction.order, default=None)
        _remove_mark(self._fs, self._directory)
        self._progress(RestoreProgress(self._total, self._total))
        return Restored(
            manifest.log_id,
            manifest.leases_id,
            manifest.epoch,
            end.number,
            end.digest,
            sum(log.size for log in logs.values()),
            latest.order if latest is not None else 0,
            latest.events[-1].at if latest is not None and latest.events else 0,
        )

    def _mark(self) -> None:
        self._fs.mkdir(self._directory)
        file = self._fs.create(str(PurePath(self._directory) / MARK))
        try:
            file.sync()
        finally:
            file.close()
        self._fs.sync_dir(self._directory)

    # -- segments --------------------------------------------------------------------------------

    def _wanted(self, manifest: ReplicaManifest, name: LogName, first: int) -> list[SegmentEntry]:
        """The listed segments to begin with, in order."""
        wanted: list[SegmentEntry] = []
        for entry in manifest.segments:
            if entry.log != name or entry.id < first:
                continue
            before = wanted[-1] if wanted else None
            if before is not None and (entry.id, entry.first) != (before.id + 1, before.last + 1):
                raise ReplicaDamaged(
                    f"{self._named(MANIFEST_KEY)} is damaged: segment {entry.id} of the {name} log "
                    f"does not follow on {before.id}"
                )
            wanted.append(entry)
            if self._cut is not None and self._cut.at is not None and entry.at > self._cut.at:
                break
        return wanted

    def _needed_from(self, manifest: ReplicaManifest) -> Mapping[LogName, int]:
        """The first segment of each log that the moment needs."""
        if self._cut is None:
            return manifest.kept_from
        at, order = self._cut
        marks = list(manifest.marks)
        if at is not None:
            marks = [mark for mark in marks if mark.at <= at]
        if order is not None:
            first = self._first_frame_with(manifest, order) if marks else 0
            marks = [mark for mark in marks if 0 < mark.frame < first]
        return marks[-1].kept_from if marks else {}

    def _first_frame_with(self, manifest: ReplicaManifest, order: int) -> int:
        """Number of the first frame of the listed segment that a transaction of the jobs log is in,
        or would be; 0 when that is not known. A few indexes tell."""
        entries = [entry for entry in manifest.segments if entry.log == "jobs"]
        low, high = 0, len(entries)
        while low < high:
            middle = (low + high) // 2
            index = self._reader.index(entries[middle])
            if index is None or not index.first_order:
                return 0
            low, high = (middle + 1, high) if index.first_order <= order else (low, middle)
        return entries[low - 1].first if low else 0

    def _copy(self, wanted: list[SegmentEntry], log: _RestoredLog) -> bool:
        """Copy segments up to the first that is beyond the cut; returns whether one is."""
        cut = self._cut

        def copy(entry: SegmentEntry, parts: Iterator[bytes]) -> SegmentEntry:
            source = self._named(segment_key(entry.log, entry.id))
            log.copy(entry, self._counted(parts), source)
            return entry

        copied = self._reader.each_segment(wanted, copy)
        with closing(copied):
            for entry in copied:
                log.copied(entry)
                if cut is None:
                    continue
                if cut.at is not None and entry.at > cut.at:
                    return True
                if cut.order is not None and log.begins_beyond(entry.id, cut.order):
                    return True
        return False

    def _counted(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in parts:
            yield part
            self._note(len(part))

    def _note(self, size: int) -> None:
        with self._lock:
            self._done += size
            self._total = max(self._done, self._total)
            progress = RestoreProgress(self._done, self._total)
        self._progress(progress)

    # -- chunks ----------------------------------------------------------------------------------

    def _add_chunks(
        self,
        manifest: ReplicaManifest,
        logs: dict[LogName, _RestoredLog],
        needed: Mapping[LogName, int],
    ) -> ChainEnd:
        """Add what the chunks have behind the listed segments."""
        begin = {name: needed.get(name, 0) for name in LOGS}
        for entry in manifest.segments:
            begin[entry.log] = max(begin[entry.log], entry.id + 1)
        end = chain_start(manifest)
        # Asked for before the chain is read: it only grows.
        known = self._reader.known_end(manifest)
        for chunk in self._reader.chunks(manifest.start_chunk, manifest.start_digest):
            source = self._named(chunk_key(chunk.header.number))
            try:
                end = extended(end, chunk)
            except ChainBroken as error:
                raise ReplicaDamaged(f"{source}: {error}") from error
            for run, data in zip(chunk.header.runs, chunk.data, strict=True):
                if run.segment >= begin[run.log]:
                    logs[run.log].add(run, data)
            self._note(sum(map(len, chunk.data)))
        if end.number < known:
            raise ReplicaDamaged(
                f"{self._named(chunk_key(end.number + 1))} is missing: the chain reached chunk "
                f"{known}"
            )
        return end

    # -- the cut ---------------------------------------------------------------------------------

    def _trim(self, manifest: ReplicaManifest, logs: dict[LogName, _RestoredLog], cut: Cut) -> None:
        beyond = [found for log in logs.values() if (found := log.first_beyond(cut)) is not None]
        if not beyond:
            return
        first = min(beyond, key=lambda transaction: transaction.order)
        # The moment lasts until the next transaction.
        self._require_reach(manifest, first.events[-1].at)
        # The logs are one history: what comes later in either is left out of both.
        for log in logs.values():
            log.trim(first.order - 1)

    def _require_reach(self, manifest: ReplicaManifest, at: int) -> None:
        """Refuse a moment before all that is kept."""
        since = manifest.reaches_back_to
        if at < since:
            raise RestoreRefused(
                f"{self._reader.store.url} does not reach back so far: the earliest moment is "
                f"{since} (ms since the epoch)"
            )

    def _named(self, key: str) -> str:
        return f"{self._reader.store.url}/{key}"
