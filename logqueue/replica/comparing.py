"""Whether the logs of a data directory and a replica are one history, and which of them has more.

Owns: the comparison, by bytes, and what follows from takeovers of others. Reads only. Must not
know: what is done about a difference, what is in a frame.

What is compared begins at `known`, a chunk up to which both are known to be the same, or else with
the segments that the manifest lists: those by their digests, a few of them by their bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

import msgspec

from logqueue.replica.chain import LOGS, ChainBroken, ChainEnd, chain_start, extended
from logqueue.replica.chunk import Chunk, ChunkRun, LogName
from logqueue.replica.manifest import ReplicaManifest, SegmentEntry
from logqueue.replica.reading import ReadVoid, ReplicaDamaged, ReplicaReader
from wal import FileSystem, SegmentInfo

PIECE_BYTES = 1 << 20


class Comparison(msgspec.Struct, frozen=True):
    """What a data directory has beside a replica.

    Attributes:
        end: The last chunk that was compared: the end of the replica.
        lacks: The replica has frames that the directory does not have.
        only_here: By log, the first frame of the directory that the replica does not have, or has
            otherwise.
        forked: The logs that have other frames of the same numbers, or other segments.
        taken_over: Another server has taken over since this directory was the writer's, as far as
            that is known.
    """

    end: ChainEnd
    lacks: bool
    only_here: Mapping[LogName, int]
    forked: Collection[LogName]
    taken_over: bool

    @property
    def parted(self) -> frozenset[LogName]:
        """The logs in which both have gone on: neither can follow the other."""
        return frozenset(self.forked) | (frozenset(self.only_here) if self.taken_over else set())


class _LocalLog:
    """One log of the directory, as recovery found it."""

    def __init__(self, fs: FileSystem, name: LogName, segments: Sequence[SegmentInfo]) -> None:
        self.name = name
        self.by_id = {info.id: info for info in segments}
        self.oldest, self.newest = segments[0], segments[-1]
        self.last = self.newest.last
        self.lacks = False
        self.forked_at = 0
        self._fs = fs

    def differs(self, first: int) -> None:
        """From this frame on, if not earlier, the directory has other bytes."""
        self.forked_at = min(self.forked_at or first, first)

    def bytes_at(self, info: SegmentInfo, offset: int, length: int) -> bytes:
        file = self._fs.open(info.path)
        try:
            return file.pread(max(min(length, info.bytes - offset), 0), offset)
        finally:
            file.close()

    def digest(self, info: SegmentInfo) -> str:
        made = hashlib.sha256()
        for offset in range(0, info.bytes, PIECE_BYTES):
            made.update(self.bytes_at(info, offset, PIECE_BYTES))
        return made.hexdigest()

    def compare_segment(self, entry: SegmentEntry, reader: ReplicaReader) -> None:
        """Compare with a segment that the manifest lists."""
        info = self.by_id.get(entry.id)
        if info is None:
            if entry.id > self.newest.id:
                self._miss(entry.first)
        elif info.bytes == entry.bytes:
            if self.digest(info) != entry.sha256:
                self.differs(entry.first)
        elif info.bytes > entry.bytes or info.id != self.newest.id:
            self.differs(entry.first)
        else:
            for _, data in reader.segments((entry,)):
                if data[: info.bytes] != self.bytes_at(info, 0, info.bytes):
                    self.differs(entry.first)
                else:
                    self.lacks = True

    def compare_run(self, run: ChunkRun, data: bytes) -> bool:
        """Compare with bytes of a chunk; whether all of them are here."""
        if run.segment < self.oldest.id or self.forked_at:
            return False
        info = self.by_id.get(run.segment)
        if info is None:
            self._miss(run.first)
            return False
        here = self.bytes_at(info, run.offset, run.bytes)
        if here != data[: len(here)] or (len(here) < run.bytes and info.id != self.newest.id):
            self.differs(run.first)
        elif len(here) < run.bytes:
            self.lacks = True
        return len(here) == run.bytes and not self.forked_at

    def _miss(self, first: int) -> None:
        """The replica has a later segment, which begins with this frame."""
        if first <= self.last:
            self.differs(first)
        else:
            self.lacks = True

    def reaches(self, end: ChainEnd) -> bool:
        """Whether all that the replica has up to there could be here."""
        place = end.places.get(self.name)
        if place is None:
            return True
        info = self.by_id.get(place.segment)
        if info is None:
            return place.segment < self.oldest.id
        return place.offset <= info.bytes and place.frame <= info.last


class _Takeovers:
    """Whose takeovers are in the chain behind what the directory has taken part in."""

    def __init__(self, own: Collection[str], is_known: bool) -> None:
        self._own = {*own}
        self._is_known = is_known
        # Without a chunk to begin with, any takeover before may be another server's.
        self.by_others = not is_known

    def see(self, chunk: Chunk, *, is_here: bool) -> None:
        """The next chunk of the chain, and whether the directory has all its frames."""
        header = chunk.header
        if header.runs and is_here and not self._is_known:
            # This directory is that writer's, or a copy of it.
            self._own.add(header.writer)
        if header.writer in self._own:
            self.by_others = False
        elif header.kind == "takeover":
            self.by_others = True


def compare(
    reader: ReplicaReader,
    manifest: ReplicaManifest,
    fs: FileSystem,
    logs: Mapping[LogName, Sequence[SegmentInfo]],
    known: ChainEnd | None,
    own: Collection[str],
) -> Comparison:
    """Compare the logs of a directory with a replica.

    Args:
        reader: Of the replica.
        manifest: As it was just read; it is of the same logs.
        fs: Where the directory is.
        logs: The segments of each log, as recovery found them.
        known: A chunk up to which both are known to be the same; None when there is none.
        own: Ids of the writers that have worked in this directory since `known`.

    Raises:
        ReadVoid: The collector went on meanwhile: begin again.
        ReplicaUnreadable: The replica is damaged.
        StoreError: The store cannot be read.
        OSError: A file cannot be read.
    """
    local = {name: _LocalLog(fs, name, logs[name]) for name in LOGS}
    if known is not None and not _is_usable(reader, manifest, local, known):
        known = None
    takeovers = _Takeovers(own, known is not None)
    if known is not None:
        end = known
    else:
        end = chain_start(manifest)
        for entry in manifest.segments:
            local[entry.log].compare_segment(entry, reader)
    for chunk in reader.chunks(end.number + 1, end.digest):
        runs = zip(chunk.header.runs, chunk.data, strict=True)
        here = [local[run.log].compare_run(run, data) for run, data in runs]
        takeovers.see(chunk, is_here=all(here))
        try:
            end = extended(end, chunk)
        except ChainBroken as problem:
            raise ReplicaDamaged(
                f"{reader.store.url}: chunk {chunk.header.number}: {problem}"
            ) from problem
    only_here: dict[LogName, int] = {}
    for name, log in local.items():
        first = log.forked_at or end.frame(name) + 1
        if log.last >= first:
            only_here[name] = first
    forked = {name for name, log in local.items() if log.forked_at}
    lacks = any(log.lacks for log in local.values())
    return Comparison(end, lacks, only_here, forked, takeovers.by_others and end.number > 0)


def _is_usable(
    reader: ReplicaReader,
    manifest: ReplicaManifest,
    local: Mapping[LogName, _LocalLog],
    known: ChainEnd,
) -> bool:
    """Whether the replica still has the chunk to begin with, and the directory what it says."""
    if known.number + 1 < manifest.garbage_before or not all(
        log.reaches(known) for log in local.values()
    ):
        return False
    if known.number == manifest.start_chunk - 1:
        return known.digest == manifest.start_digest
    try:
        chunk = reader.chunk(known.number)
    except ReadVoid:
        return False
    return chunk is not None and chunk.digest == known.digest
