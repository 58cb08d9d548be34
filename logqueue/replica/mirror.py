"""The segment files of a standby: both logs of a replica, copied and then grown by its chunks.

Owns: that local bytes are those of the replica, frame by frame, whatever moment this process was
killed at; where they end in the chain of chunks. Must not know: what is in a frame, who reads them.

All that is written was checked before: the digests of chunks and segments, the check of every
frame, that numbers follow. A segment is synced before the next one is begun, and all of it before
`catch_up` yields it. What a kill or a power cut leaves torn is cut off at the next `load`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import NamedTuple

from logqueue.replica.chain import LOGS, ChainBroken, ChainEnd, LogPlace, chain_start, extended
from logqueue.replica.chunk import Chunk, ChunkRun, LogName
from logqueue.replica.manifest import ReplicaManifest, SegmentEntry
from logqueue.replica.reading import ReadVoid, ReplicaDamaged, ReplicaReader
from logqueue.replica.restoring import RestoreProgress, restore, settle
from wal import (
    FRAME_BYTES_MAX,
    HEAD_NAME,
    HEADER_BYTES,
    File,
    FileSystem,
    Frame,
    HeaderState,
    SegmentHeader,
    Walk,
    decode_header,
    encode_header,
    salt_of,
    segment_ids,
    segment_path,
)

AHEAD_MAX = 16
"""Chunks that are read one after the other; more than that are looked up in a listing."""


class MirrorDiverged(Exception):
    """The local logs are not a part of the replica: they are of another log, or have frames that
    the replica does not have. Nothing was changed."""


class MirrorStale(Exception):
    """The replica no longer has what follows the local logs: begin again without them."""


class Growth(NamedTuple):
    """What was added to one segment file.

    Attributes:
        log: Which log.
        header: Of the segment.
        end: Where its last frame ends now, in bytes.
        last: Number of that frame.
        frames: Those that were added, in order; offsets are those in the file.
    """

    log: LogName
    header: SegmentHeader
    end: int
    last: int
    frames: list[Frame]


class _LogMirror:
    """The files of one log.

    Attributes:
        ids: Of the segments that are there, in order.
        end: Where the last frame ends in the last of them, in bytes.
        last: Number of the last frame; 0 when there never was one.
    """

    def __init__(self, fs: FileSystem, directory: str, name: LogName, identity: bytes) -> None:
        self.directory = directory
        self.name: LogName = name
        self.identity = identity
        self.ids: list[int] = []
        self.end = 0
        self.last = 0
        self._fs = fs
        self._header: SegmentHeader | None = None
        self._file: File | None = None
        self._is_dirty = False

    @property
    def place(self) -> LogPlace | None:
        """Where the log ends; None when it has no frames."""
        return LogPlace(self.ids[-1], self.end, self.last) if self.last else None

    def examine(self) -> None:
        """Find where the log ends, and cut off what is torn there.

        Raises:
            MirrorDiverged: It is another log.
        """
        self.close()
        fs = self._fs
        fs.mkdir(self.directory)
        self.ids = segment_ids(fs, self.directory)
        while self.ids:
            path = segment_path(self.directory, self.ids[-1])
            file = fs.open(path, writable=True)
            data = file.pread(file.size(), 0)
            state, header = decode_header(data[:HEADER_BYTES])
            if state is HeaderState.OK and header is not None:
                self._resume(file, header, data)
                return
            file.close()
            if state is HeaderState.FOREIGN:
                raise MirrorDiverged(f"{path} is not a segment of this log")
            # A kill came before its header was there.
            fs.remove(path)
            fs.sync_dir(self.directory)
            self.ids.pop()

    def _resume(self, file: File, header: SegmentHeader, data: bytes) -> None:
        if header.identity != self.identity:
            file.close()
            raise MirrorDiverged(
                f"{self.directory} is log {header.identity.hex()}, the replica is of "
                f"{self.identity.hex()}: this server has another log"
            )
        salt = salt_of(self.identity, header.id)
        walk = Walk(data, salt, header.first, header.id, FRAME_BYTES_MAX).run()
        if walk.offset < file.size():
            file.truncate(walk.offset)
        # A killed process may have left frames that were never synced.
        file.sync()
        self._file, self._header = file, header
        self.end, self.last = walk.offset, walk.number - 1

    def begin(self, header: SegmentHeader) -> None:
        """Begin a segment, behind all that is there."""
        self.sync()
        self.close()
        file = self._fs.create(segment_path(self.directory, header.id))
        file.pwrite(encode_header(header), 0)
        file.sync()
        self._fs.sync_dir(self.directory)
        self._file, self._header = file, header
        self.ids.append(header.id)
        self.end, self.last = HEADER_BYTES, header.first - 1

    def read(self, id: int, offset: int, length: int) -> bytes:
        """Bytes of a segment that is there."""
        if id == self.ids[-1]:
            assert self._file is not None
            return self._file.pread(min(length, self.end - offset), offset)
        file = self._fs.open(segment_path(self.directory, id))
        try:
            return file.pread(length, offset)
        finally:
            file.close()

    def size(self, id: int) -> int:
        """Of a segment that is there, in bytes."""
        if id == self.ids[-1]:
            return self.end
        file = self._fs.open(segment_path(self.directory, id))
        try:
            return file.size()
        finally:
            file.close()

    def append(self, data: bytes, last: int, source: str) -> Growth:
        """Add whole frames to the last segment.

        Args:
            data: Their bytes.
            last: Number of the last one.
            source: What they are from, for messages.

        Raises:
            ReplicaDamaged: They are not sound, or do not follow.
        """
        assert self._file is not None and self._header is not None
        header, base = self._header, self.end
        salt = salt_of(self.identity, header.id)
        walk = Walk(data, salt, self.last + 1, header.id, FRAME_BYTES_MAX, start=0)
        frames = [frame._replace(offset=base + frame.offset) for frame in walk]
        if walk.offset != len(data) or walk.number != last + 1:
            raise ReplicaDamaged(
                f"{source}: the frames of the {self.name} log behind frame {self.last} are not "
                f"sound: {walk.problem or 'there are not as many as it says'}"
            )
        self._file.pwrite(data, base)
        self._is_dirty = True
        self.end, self.last = base + len(data), last
        return Growth(self.name, header, self.end, last, frames)

    def sync(self) -> None:
        """Make all that was added survive a power cut."""
        if self._is_dirty and self._file is not None:
            self._file.sync()
        self._is_dirty = False

    def wipe(self) -> None:
        """Remove all segments, newest first, and the note of the log."""
        self.close()
        for id in reversed(self.ids):
            self._fs.remove(segment_path(self.directory, id))
        self.ids, self.end, self.last = [], 0, 0
        if HEAD_NAME in self._fs.listdir(self.directory):
            self._fs.remove(str(PurePath(self.directory) / HEAD_NAME))
        self._fs.sync_dir(self.directory)

    def close(self) -> None:
        """Close the file."""
        file, self._file, self._header = self._file, None, None
        self._is_dirty = False
        if file is not None:
            file.close()


class ReplicaMirror:
    """Both logs below a data directory, as far as the replica was read.

    Attributes:
        manifest: As it was last read; None before `catch_up`.
        kept_from: The first segment of each log that the present needs. All that makes the ones
            before it needless is here, once `catch_up` has come to the end.
        end: The last chunk whose frames are all here; None before `catch_up` has come to the end.
    """

    def __init__(
        self,
        reader: ReplicaReader,
        fs: FileSystem,
        data_dir: str,
        *,
        progress: Callable[[RestoreProgress], None] = lambda progress: None,
        may_be_ahead: bool = False,
    ) -> None:
        """Of a replica, in a data directory that this process has locked.

        Args:
            reader: Of the replica.
            fs: Where the directory is.
            data_dir: It need not have logs.
            progress: Called now and then while they are restored.
            may_be_ahead: The local logs may have frames that the replica does not have yet.
        """
        self.manifest: ReplicaManifest | None = None
        self.kept_from: Mapping[LogName, int] = {}
        self.end: ChainEnd | None = None
        self._reader = reader
        self._fs = fs
        self._data_dir = data_dir
        self._progress = progress
        self._may_be_ahead = may_be_ahead
        self._logs: dict[LogName, _LogMirror] = {}

    @property
    def places(self) -> Mapping[LogName, LogPlace]:
        """Where the local logs end."""
        return {name: log.place for name, log in self._logs.items() if log.place is not None}

    def catch_up(self) -> Iterator[Growth]:
        """Bring the local files to where the replica ends: restore them, or add what is missing.

        Yields:
            What was added, synced. A restore yields nothing: what it made is to be read from the
            files.

        Raises:
            MirrorDiverged: What is here is not a part of the replica.
            MirrorStale: What follows is gone; `wipe`, and call again.
            ReplicaUnreadable: The replica is missing or damaged.
            StoreError: The store cannot be read.
            OSError: The directory cannot be written.
        """
        is_first = self.end is None
        if is_first:
            yield from self._begin()
        try:
            yield from self._follow(to_the_end=is_first)
        except ReadVoid:
            # Segments have by now what the chunks behind the last one said.
            yield from self._begin()
            yield from self._follow(to_the_end=True)

    def receive(self, chunks: Iterable[Chunk]) -> list[Growth]:
        """Add chunks that follow `end`, durably.

        Raises:
            ReplicaDamaged: They are not sound, or do not follow.
            MirrorDiverged: Local frames are others than theirs.
            OSError: The directory cannot be written.
        """
        growth: list[Growth] = []
        for chunk in chunks:
            growth += self._take(chunk)
        self._sync()
        return growth

    def forget_before(self, name: LogName, id: int) -> None:
        """Segments of a log with a lower id were removed."""
        log = self._logs[name]
        log.ids = [kept for kept in log.ids if kept >= id]

    def wipe(self) -> None:
        """Remove the local logs.

        Raises:
            OSError: The directory cannot be written.
        """
        for log in reversed(self._logs.values()):
            log.wipe()
        self.end = None

    def close(self) -> None:
        """Close all files."""
        for log in self._logs.values():
            log.close()
        self._logs = {}
        self.end = None

    # -- to the chain ----------------------------------------------------------------------------

    def _begin(self) -> Iterator[Growth]:
        """Compare what is here with the segments that the manifest lists, and add what of them is
        missing."""
        settle(self._fs, self._data_dir)
        self.manifest = manifest = self._reader.manifest().manifest
        self._examine(manifest)
        if not any(log.ids for log in self._logs.values()):
            for log in self._logs.values():
                log.close()
            made = restore(
                self._reader.store,
                self._fs,
                self._data_dir,
                progress=self._progress,
                parallel=self._reader.parallel,
                pause=self._reader.pause,
            )
            self._examine(manifest)
            self._begin_empty()
            self.end = ChainEnd(made.chunk, made.digest, self.places)
            return
        for name, log in self._logs.items():
            entries = [entry for entry in manifest.segments if entry.log == name]
            yield from self._add_segments(log, entries, manifest.kept_from.get(name, 0))
        self._begin_empty()
        self.end = chain_start(manifest)

    def _examine(self, manifest: ReplicaManifest) -> None:
        identities: dict[LogName, str] = {
            "jobs": manifest.log_id,
            "leases": manifest.leases_id,
        }
        for log in self._logs.values():
            log.close()
        self._logs = {}
        for name in LOGS:
            directory = str(PurePath(self._data_dir) / name)
            log = _LogMirror(self._fs, directory, name, bytes.fromhex(identities[name]))
            self._logs[name] = log
            log.examine()

    def _begin_empty(self) -> None:
        """A log of which the replica has no frame yet begins with its first segment."""
        for log in self._logs.values():
            if not log.ids:
                log.begin(SegmentHeader(1, 1, log.identity))

    def _add_segments(
        self, log: _LogMirror, entries: list[SegmentEntry], kept_from: int
    ) -> Iterator[Growth]:
        here = {*log.ids}
        if here and kept_from and min(here) > kept_from:
            raise MirrorStale(f"segments of the {log.name} log before {min(here)} are not here")
        wanted: list[SegmentEntry] = []
        for entry in entries:
            if entry.id in here and log.size(entry.id) == entry.bytes:
                data = log.read(entry.id, 0, entry.bytes)
                if hashlib.sha256(data).hexdigest() != entry.sha256:
                    raise _diverged(log, f"segment {entry.id} has other bytes")
            elif entry.id in here and entry.id != log.ids[-1]:
                raise _diverged(log, f"segment {entry.id} has another length")
            elif entry.id >= (log.ids[-1] if log.ids else kept_from):
                wanted.append(entry)
        for entry, data in self._reader.segments(wanted):
            growth = self._add_segment(log, entry, data)
            log.sync()
            if growth is not None:
                yield growth

    def _add_segment(self, log: _LogMirror, entry: SegmentEntry, data: bytes) -> Growth | None:
        source = f"segment {entry.id}"
        if log.ids and entry.id == log.ids[-1]:
            if log.end > len(data) or log.read(entry.id, 0, log.end) != data[: log.end]:
                raise _diverged(log, f"{source} has other bytes")
        else:
            state, header = decode_header(data[:HEADER_BYTES])
            if state is not HeaderState.OK or header is None or header.identity != log.identity:
                raise ReplicaDamaged(f"{source} of the {log.name} log has no header of this log")
            if log.ids and (header.id != log.ids[-1] + 1 or header.first != log.last + 1):
                raise MirrorStale(f"{source} does not follow frame {log.last}")
            log.begin(header)
        if log.end == len(data):
            return None
        return log.append(data[log.end :], entry.last, source)

    # -- along the chain -------------------------------------------------------------------------

    def _follow(self, *, to_the_end: bool) -> Iterator[Growth]:
        if self.manifest is not None:
            self.kept_from = self.manifest.kept_from
        if not to_the_end and (yield from self._follow_to(to_the_end=False)) == AHEAD_MAX:
            # So many are faster read several at a time.
            to_the_end = True
        if to_the_end:
            yield from self._follow_to(to_the_end=True)
        self._require_not_ahead()

    def _follow_to(self, *, to_the_end: bool) -> Generator[Growth, None, int]:
        assert self.end is not None
        number, digest = self.end.number + 1, self.end.digest
        found = (
            self._reader.chunks(number, digest)
            if to_the_end
            else self._reader.chunks(number, digest, to_the_end=False, chunks_max=AHEAD_MAX)
        )
        # The last step finds out whether any of them is void.
        chunks = [*found]
        self.manifest = self._reader.latest
        yield from self.receive(chunks)
        return len(chunks)

    def _take(self, chunk: Chunk) -> list[Growth]:
        assert self.end is not None
        try:
            end = extended(self.end, chunk)
        except ChainBroken as problem:
            raise ReplicaDamaged(f"chunk {chunk.header.number}: {problem}") from problem
        growth: list[Growth] = []
        for run, data in zip(chunk.header.runs, chunk.data, strict=True):
            grown = self._add_run(self._logs[run.log], run, data, f"chunk {chunk.header.number}")
            if grown is not None:
                growth.append(grown)
        self.end = end
        return growth

    def _add_run(self, log: _LogMirror, run: ChunkRun, data: bytes, source: str) -> Growth | None:
        if log.ids and run.segment < log.ids[0]:
            return None
        if run.segment in log.ids:
            here = log.read(run.segment, run.offset, run.bytes)
            if here != data[: len(here)]:
                raise _diverged(log, f"{source} has other frames from {run.first} on")
            if len(here) == run.bytes:
                return None
            if run.segment != log.ids[-1] or run.offset + len(here) != log.end:
                raise ReplicaDamaged(f"{source}: frame {run.first} does not follow {log.last}")
            return log.append(data[len(here) :], run.last, source)
        if run.offset != HEADER_BYTES or run.first != run.base:
            raise MirrorStale(f"{source}: frame {run.first} does not follow {log.last}")
        if log.ids and (run.first != log.last + 1 or run.segment < log.ids[-1]):
            raise MirrorStale(f"{source}: frame {run.first} does not follow {log.last}")
        log.begin(SegmentHeader(run.segment, run.base, log.identity))
        return log.append(data, run.last, source)

    def _require_not_ahead(self) -> None:
        assert self.end is not None
        for name, log in self._logs.items() if not self._may_be_ahead else ():
            if log.last > max(self.end.frame(name), 0):
                raise _diverged(
                    log, f"it has frames up to {log.last}, the replica up to {self.end.frame(name)}"
                )

    def _sync(self) -> None:
        for log in self._logs.values():
            log.sync()


def _diverged(log: _LogMirror, why: str) -> MirrorDiverged:
    return MirrorDiverged(f"{log.directory} is not a part of the replica: {why}")
