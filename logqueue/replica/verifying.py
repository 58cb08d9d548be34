"""What a replica holds, whether all of it is sound, and what of it is needless.

Owns: the look over all objects, and every check that can be made without replaying. Must not know:
what the frames replay to, how a report is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from logqueue.replica.chain import LOGS, ChainBroken, ChainEnd, chain_start, extended
from logqueue.replica.chunk import Chunk, LogName, chunk_key
from logqueue.replica.collecting import garbage, trimmed
from logqueue.replica.manifest import (
    MANIFEST_KEY,
    ReplicaManifest,
    SegmentEntry,
    segment_key,
)
from logqueue.replica.reading import ReadVoid, ReplicaDamaged, ReplicaReader
from logqueue.replica.restoring import RestoreProgress
from wal import FRAME_BYTES_MAX, HEADER_BYTES, SegmentHeader, Walk, decode_header, salt_of

TRIES = 5


class ListedLog(NamedTuple):
    """The sealed segments of one log that a manifest lists.

    Attributes:
        name: Which log.
        segments: How many.
        bytes: Of all.
        first: Number of the first frame; 0 when there is none.
        last: Number of the last frame; 0 when there is none.
        last_at: Time of the last event, ms since the epoch; 0 when there is none.
    """

    name: LogName
    segments: int
    bytes: int
    first: int
    last: int
    last_at: int


class ReplicaOverview(NamedTuple):
    """What a look at manifest and listing shows.

    Attributes:
        url: Where the replica is.
        manifest: As it was.
        beat: Of the heartbeat of its writer; None when there is none.
        logs: The listed segments.
        chunks: How many a restore reads behind them.
        chunk_bytes: Of these.
        last_chunk: Number of the last one.
        objects: Everything below the URL.
        bytes: Of all.
    """

    url: str
    manifest: ReplicaManifest
    beat: int | None
    logs: tuple[ListedLog, ...]
    chunks: int
    chunk_bytes: int
    last_chunk: int
    objects: int
    bytes: int


def overview(reader: ReplicaReader) -> ReplicaOverview:
    """Look at a replica: its manifest, and a listing of all objects.

    Raises:
        ReplicaUnreadable: There is none, or its manifest is damaged.
        StoreError: The store cannot be read.
    """
    manifest = reader.manifest().manifest
    heartbeat = reader.heartbeat()
    sizes = [info.bytes for info in reader.store.list()]
    chunks = reader.listed_chunks(manifest.start_chunk)
    own = heartbeat is not None and heartbeat.writer == manifest.writer.id
    return ReplicaOverview(
        reader.store.url,
        manifest,
        heartbeat.beat if heartbeat is not None and own else None,
        tuple(_listed(manifest, name) for name in LOGS),
        len(chunks),
        sum(chunk.bytes for chunk in chunks),
        max((chunk.number for chunk in chunks), default=manifest.start_chunk - 1),
        len(sizes),
        sum(sizes),
    )


def _listed(manifest: ReplicaManifest, name: LogName) -> ListedLog:
    entries = [entry for entry in manifest.segments if entry.log == name]
    return ListedLog(
        name,
        len(entries),
        sum(entry.bytes for entry in entries),
        entries[0].first if entries else 0,
        entries[-1].last if entries else 0,
        entries[-1].at if entries else 0,
    )


class ReplicaSoundness(NamedTuple):
    """What was found in all objects of a replica.

    Attributes:
        problems: What is wrong, each with the name of the object; empty if all is sound.
        bytes: How much was read.
        frames: Number of the last frame of each log.
    """

    problems: tuple[str, ...]
    bytes: int
    frames: dict[LogName, int]


def verify(
    reader: ReplicaReader, progress: Callable[[RestoreProgress], None] = lambda progress: None
) -> ReplicaSoundness:
    """Read everything that a manifest names, and check it: digests, the chain, every frame.

    Continues behind damage, so that the report has all of it.

    Args:
        reader: Of the replica.
        progress: Called now and then, from several threads.

    Raises:
        ReadVoid: The collector was faster, again and again.
        ReplicaUnreadable: There is no replica, or its manifest is damaged.
        StoreError: The store cannot be read.
    """
    for tried in range(1, TRIES + 1):
        try:
            return _Verification(reader, progress).run()
        except ReadVoid:
            if tried == TRIES:
                raise
    raise AssertionError("unreachable")


class _Verification:
    """One try."""

    def __init__(self, reader: ReplicaReader, progress: Callable[[RestoreProgress], None]) -> None:
        self._reader = reader
        self._progress = progress
        self._problems: list[str] = []
        self._done = self._total = 0

    def run(self) -> ReplicaSoundness:
        """Carry it out."""
        manifest = self._reader.manifest().manifest
        known = self._reader.known_end(manifest)
        chunks = self._reader.listed_chunks(manifest.start_chunk)
        self._total = sum(entry.bytes for entry in manifest.segments)
        self._total += sum(chunk.bytes for chunk in chunks)
        self._require_order(manifest)
        self._check_segments(manifest)
        last = max((chunk.number for chunk in chunks), default=manifest.start_chunk - 1)
        end = self._check_chunks(manifest, max(last, known))
        return ReplicaSoundness(
            tuple(self._problems), self._done, {name: end.frame(name) for name in LOGS}
        )

    def _require_order(self, manifest: ReplicaManifest) -> None:
        for name in LOGS:
            entries = [entry for entry in manifest.segments if entry.log == name]
            for one, other in pairwise(entries):
                if (other.id, other.first) != (one.id + 1, one.last + 1):
                    self._problems.append(
                        f"{self._named(MANIFEST_KEY)}: segment {other.id} of the {name} log does "
                        f"not follow on {one.id}"
                    )

    def _check_segments(self, manifest: ReplicaManifest) -> None:
        identities: dict[LogName, bytes] = {
            "jobs": bytes.fromhex(manifest.log_id),
            "leases": bytes.fromhex(manifest.leases_id),
        }

        def check(entry: SegmentEntry, parts: Iterator[bytes]) -> str:
            try:
                return _problem_of(entry, b"".join(parts), identities[entry.log])
            except ReplicaDamaged as error:
                return str(error)

        checked = self._reader.each_segment(manifest.segments, check)
        for entry, problem in zip(manifest.segments, checked, strict=True):
            self._note(entry.bytes)
            if problem:
                key = self._named(segment_key(entry.log, entry.id))
                self._problems.append(problem if key in problem else f"{key}: {problem}")

    def _check_chunks(self, manifest: ReplicaManifest, last: int) -> ChainEnd:
        """Check the chain; returns where it ends, or where the first problem is."""
        end = chain_start(manifest)
        # Of the chunk before; None when that is not known.
        digest: str | None = end.digest
        is_whole = True
        numbers = range(manifest.start_chunk, last + 1)

        def fetch(number: int) -> Chunk | str | None:
            try:
                return self._reader.chunk(number)
            except ReplicaDamaged as error:
                return str(error)

        for number, chunk in zip(numbers, self._reader.in_parallel(fetch, numbers), strict=True):
            key = self._named(chunk_key(number))
            if chunk is None or isinstance(chunk, str):
                if self._reader.manifest().manifest.garbage_before > number:
                    raise ReadVoid(f"{key} was collected while it was read")
                self._problems.append(chunk or f"{key} is missing")
                digest, is_whole = None, False
                continue
            self._note(sum(map(len, chunk.data)))
            try:
                if is_whole:
                    end = extended(end, chunk)
                elif digest not in (None, chunk.header.previous):
                    raise ChainBroken("it follows another chunk than the one before it")
            except ChainBroken as error:
                self._problems.append(f"{key}: {error}")
                is_whole = False
            digest = chunk.digest
        return end

    def _note(self, size: int) -> None:
        self._done += size
        self._total = max(self._done, self._total)
        self._progress(RestoreProgress(self._done, self._total))

    def _named(self, key: str) -> str:
        return f"{self._reader.store.url}/{key}"


def _problem_of(entry: SegmentEntry, data: bytes, identity: bytes) -> str:
    """What is wrong with a segment whose digest is right; "" for nothing."""
    _, header = decode_header(data[:HEADER_BYTES])
    if header != SegmentHeader(entry.id, entry.first, identity):
        return "it has not the header of this segment"
    walk = Walk(data, salt_of(identity, entry.id), entry.first, entry.id, FRAME_BYTES_MAX).run()
    if any(data[walk.offset :]):
        return f"it is not sound at byte {walk.offset}: {walk.problem}"
    if walk.number != entry.last + 1:
        return f"it ends with frame {walk.number - 1}, not {entry.last}"
    return ""


# -- garbage -------------------------------------------------------------------------------------


def needless(reader: ReplicaReader, *, now: int = 0, keep_ms: int = 0) -> int:
    """How many objects `collect` would delete.

    Args:
        reader: Of the replica.
        now: See `trimmed`.
        keep_ms: See `trimmed`.

    Raises:
        ReplicaUnreadable: There is no replica.
        StoreError: The store cannot be read.
    """
    manifest = trimmed(reader.manifest().manifest, now=now, keep_ms=keep_ms)
    return sum(1 for _ in garbage(reader.store, manifest))
