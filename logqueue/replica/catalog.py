"""The segments of a replica as readers of history see them: what there is, and its bytes.

Owns: sealed segments with their indexes, the newest ones made of chunks, and where to fetch either
from. Changes nothing. Must not know: what is read of them, Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from logqueue.replica.chain import LOGS
from logqueue.replica.chunk import Chunk, LogName
from logqueue.replica.manifest import ReplicaManifest, SegmentEntry, segment_key
from logqueue.replica.object_store import ObjectMissing, ObjectStore
from logqueue.replica.opening import open_store
from logqueue.replica.reading import ReadVoid, ReplicaDamaged, ReplicaReader
from logqueue.replica.retention import newest_listed
from logqueue.segments.catalog import Catalog, SegmentFile
from logqueue.segments.index import IndexBuilder, SegmentIndex
from logqueue.segments.known import KnownTopics
from wal import HEADER_BYTES, End, SegmentHeader, encode_header

PARALLEL = 16
TRIES = 3
"""How often a replica is looked at again when the collector was there meanwhile."""


class SegmentCollected(LookupError):
    """A segment is no longer in the replica."""


class TailRun(NamedTuple):
    """A part of a segment that is in a chunk: the number of the chunk, and of the run in it."""

    chunk: int
    run: int


class TailSegment(NamedTuple):
    """A segment that is in the replica as chunks only, so far. `runs` are in order."""

    base: int
    runs: tuple[TailRun, ...]


class ReplicaSegments:
    """The segments of one replica. Picklable: it opens the store again where it is used."""

    def __init__(self, url: str) -> None:
        """Nothing is read yet.

        Args:
            url: Of the replica.
        """
        self.url = url
        self._identities: dict[LogName, str] = {}
        self._tail: dict[tuple[LogName, int], TailSegment] = {}

    def catalog(self) -> Catalog:
        """What there is now.

        Raises:
            BadReplicaUrl, MissingExtra: The URL cannot be used.
            ReplicaUnreadable: There is no replica, or an object of it is damaged.
            StoreError: The store cannot be read.
        """
        reader = ReplicaReader(open_store(self.url), parallel=PARALLEL)
        for left in reversed(range(TRIES)):
            try:
                return self._catalog_now(reader)
            except ReadVoid:
                if not left:
                    raise
        raise AssertionError("the last try has returned or raised")

    def fetch(self, log: LogName, segment: int, length: int) -> bytes:
        """The first bytes of a segment.

        Raises:
            SegmentCollected: It is gone.
            ReplicaDamaged: There are fewer bytes, or they are damaged.
            StoreError: The store cannot be read.
        """
        store = open_store(self.url)
        tail = self._tail.get((log, segment))
        data = self._of_chunks(ReplicaReader(store), log, segment, tail) if tail else None
        if data is None:
            # What was in chunks when it was looked at may have been sealed since.
            data = _whole(store, log, segment, length)
        if len(data) < length:
            raise ReplicaDamaged(
                f"{store.url}/{segment_key(log, segment)} has {len(data)} bytes, not {length}"
            )
        return data[:length]

    # -- what there is ---------------------------------------------------------------------------

    def _catalog_now(self, reader: ReplicaReader) -> Catalog:
        manifest = reader.manifest().manifest
        self._identities = {"jobs": manifest.log_id, "leases": manifest.leases_id}
        tail = self._read_tail(reader, manifest)
        known = KnownTopics()
        files: dict[LogName, list[SegmentFile]] = {}
        for log in LOGS:
            entries = [entry for entry in manifest.segments if entry.log == log]
            files[log] = _sealed(reader, entries, known, manifest.log_id)
            files[log] += self._unsealed(reader.store, log, tail, known, manifest.log_id)
        return Catalog(manifest.log_id, files["jobs"], files["leases"])

    def _read_tail(
        self, reader: ReplicaReader, manifest: ReplicaManifest
    ) -> Mapping[tuple[LogName, int], bytes]:
        """The bytes of the segments behind those that the manifest lists, from the chunks. What is
        in chunks of older ones is listed, or no longer kept."""
        newest = newest_listed(manifest)
        data: dict[tuple[LogName, int], list[bytes]] = {}
        places: dict[tuple[LogName, int], TailSegment] = {}
        for chunk in reader.chunks(manifest.start_chunk, manifest.start_digest):
            for at, (run, part) in enumerate(zip(chunk.header.runs, chunk.data, strict=True)):
                key = run.log, run.segment
                if run.segment <= newest.get(run.log, 0):
                    continue
                before = places.get(key, TailSegment(run.base, ()))
                place = TailRun(chunk.header.number, at)
                places[key] = before._replace(runs=(*before.runs, place))
                data.setdefault(key, [self._header(run.log, run.segment, run.base)]).append(part)
        self._tail = places
        return {key: b"".join(parts) for key, parts in data.items()}

    def _unsealed(
        self,
        store: ObjectStore,
        log: LogName,
        tail: Mapping[tuple[LogName, int], bytes],
        known: KnownTopics,
        log_id: str,
    ) -> list[SegmentFile]:
        ids = sorted(id for name, id in tail if name == log)
        files: list[SegmentFile] = []
        for id in ids:
            path = f"{store.url}/{segment_key(log, id)}"
            index = _indexed(tail[log, id], log, log_id, known, path)
            files.append(SegmentFile(log, id, path, id != ids[-1], index))
            if log == "jobs":
                known.add(index.learned, index.routers)
        return files

    # -- bytes -----------------------------------------------------------------------------------

    def _header(self, log: LogName, segment: int, base: int) -> bytes:
        identity = bytes.fromhex(self._identities[log])
        return encode_header(SegmentHeader(segment, base, identity))

    def _of_chunks(
        self, reader: ReplicaReader, log: LogName, segment: int, tail: TailSegment
    ) -> bytes | None:
        """The bytes of a segment from its chunks; None when one has been collected."""
        parts = [self._header(log, segment, tail.base)]
        chunk: Chunk | None = None
        for place in tail.runs:
            if chunk is None or chunk.header.number != place.chunk:
                chunk = reader.chunk(place.chunk)
            if chunk is None:
                return None
            parts.append(chunk.data[place.run])
        return b"".join(parts)


def _sealed(
    reader: ReplicaReader, entries: Sequence[SegmentEntry], known: KnownTopics, log_id: str
) -> list[SegmentFile]:
    """The segments that a manifest lists, with the indexes beside them or made now."""
    files: list[SegmentFile] = []
    found = reader.in_parallel(reader.index, entries)
    for entry, ready in zip(entries, found, strict=True):
        path = f"{reader.store.url}/{segment_key(entry.log, entry.id)}"
        index = ready
        if index is None:
            ((_, data),) = reader.segments([entry])
            index = _indexed(data, entry.log, log_id, known, path)
        files.append(SegmentFile(entry.log, entry.id, path, is_sealed=True, index=index))
        if entry.log == "jobs":
            known.add(index.learned, index.routers)
    return files


def _indexed(data: bytes, log: LogName, log_id: str, known: KnownTopics, path: str) -> SegmentIndex:
    """The index of a segment, made of its bytes.

    Raises:
        ReplicaDamaged: They are not frames from beginning to end.
    """
    builder = IndexBuilder(data[:HEADER_BYTES], log, log_id=log_id, known=known, path=path)
    builder.feed(data[HEADER_BYTES:])
    if builder.end is End.BAD:
        raise ReplicaDamaged(f"{path} is damaged at byte {builder.bytes}: {builder.problem}")
    return builder.index()


def _whole(store: ObjectStore, log: LogName, segment: int, length: int) -> bytes:
    try:
        return store.get_range(segment_key(log, segment), 0, length)
    except ObjectMissing as error:
        raise SegmentCollected(f"{log}-{segment}") from error
