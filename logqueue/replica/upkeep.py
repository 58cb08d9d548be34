"""What a writer does besides chunks: sealed segments, the manifest, the collector.

Owns: an object store as a place for the sealed segments of both logs, where reading begins, and the
order of all that: a segment is there before the manifest lists it, the boundary is moved before
anything is deleted. Must not know: which segments are due and in which order
(`logqueue.segments.history`), which are still needed (retention.py), how chunks are committed
(writing.py).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import msgspec

from logqueue.replica.chain import LOGS, ChainEnd, chain_start
from logqueue.replica.chunk import ChunkHeader, LogName, chunk_key
from logqueue.replica.collecting import (
    DELETE_TOGETHER,
    garbage,
    read_chunk_header,
    segment_keys,
)
from logqueue.replica.frame_source import FrameSource
from logqueue.replica.manifest import (
    MANIFEST_KEY,
    ReplicaManifest,
    SegmentEntry,
    WriterInfo,
    encode_manifest,
    segment_key,
)
from logqueue.replica.object_store import (
    ObjectChanged,
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    StoreError,
    StoreUnavailable,
)
from logqueue.replica.reading import ReplicaDamaged, ReplicaReader, StoredManifest
from logqueue.replica.retention import marked, newest_listed, retired
from logqueue.segments.history import TOGETHER, HistoryBounds, SealedSegment, keep_history

MANIFEST_EVERY_S = 2.0
TRIES = 5


class ManifestLost(Exception):
    """The manifest names another writer by now: it is not this one's to change."""


class ChunkFacts(NamedTuple):
    """What upkeep must know of a chunk.

    Attributes:
        previous: Digest of the chunk before it.
        is_takeover: Whether it is never deleted.
        lasts: Number of the last frame of each log that it has.
    """

    previous: str
    is_takeover: bool
    lasts: Mapping[LogName, int]


def facts_of(header: ChunkHeader) -> ChunkFacts:
    """The facts of a chunk."""
    lasts = {run.log: run.last for run in header.runs}
    return ChunkFacts(header.previous, header.kind == "takeover", lasts)


@dataclass(slots=True)
class UpkeepStats:
    """Counters since the takeover.

    Attributes:
        segments: Sealed segments that were uploaded.
        segment_bytes: Of these, in bytes.
        collected: Objects that were deleted.
    """

    segments: int = 0
    segment_bytes: int = 0
    collected: int = 0


class ReplicaUpkeep:
    """Keeps the segments and the manifest of one writer up to date. It is a `HistoryPlace`.

    Attributes:
        stored: The manifest as this writer has read or written it last.
        listed: How many segments the manifest lists, and their bytes.
        facts: Of chunks that are not collected, by number, as far as they are known. The writer
            adds those that it commits.
        stats: Counters.
    """

    def __init__(
        self,
        store: ObjectStore,
        source: FrameSource,
        writer: WriterInfo,
        stored: StoredManifest,
        *,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
        keep_ms: int,
        history: HistoryBounds | None,
        readers_s: float,
    ) -> None:
        """See ReplicaWriter."""
        self.stored = stored
        self._newest = newest_listed(stored.manifest)
        self.listed = _listed(stored.manifest)
        self.facts: dict[int, ChunkFacts] = {}
        self.stats = UpkeepStats()
        self._store = store
        self._source = source
        self._writer = writer
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._keep_ms = keep_ms
        self._history = history
        self._readers_s = readers_s
        # Segments that are in the store and not in the manifest yet.
        self._uploads: list[SegmentEntry] = []
        # Whether the manifest may be another one than `stored`.
        self._is_stale = False
        self._changed_at = -MANIFEST_EVERY_S
        # Where reading began, and since when, by our own clock.
        self._starts = deque([(monotonic(), stored.manifest.start_chunk)])
        self._garbage: deque[str] = deque()
        # What writers before have left: once the boundary has come to where this one began.
        self._sweep: Iterator[str] | None = None
        self._sweep_from: int | None = stored.manifest.start_chunk
        # The chain and what the state needs, as of the latest step; what is under way.
        self._end: ChainEnd = chain_start(stored.manifest)
        self._kept_from: Mapping[LogName, int] = {}
        self._keeping: Iterator[None] | None = None

    @property
    def reading_began_at(self) -> float:
        """Since when reading begins where it does, by our own clock."""
        return self._starts[-1][0]

    def may_drop_before(self, log: LogName) -> int:
        """See ReplicaWriter."""
        newest = self._newest.get(log, 0)
        return newest + 1 if newest else 0

    def step(self, end: ChainEnd, kept_from: Mapping[LogName, int]) -> bool:
        """One step of `ReplicaWriter.tidy`.

        Args:
            end: Where the chain ends.
            kept_from: First segment of each log that the present state needs; all that makes the
                ones before it needless is in committed chunks.

        Returns:
            Whether there is more to do at once.

        Raises:
            ManifestLost: Another writer has the manifest.
            StoreError, OSError: As the store and the disk do.
        """
        self._end, self._kept_from = end, kept_from
        if self._is_stale:
            self._read_again()
        keeping, self._keeping = self._keeping or keep_history(self, self._source.sealed), None
        for _ in keeping:
            self._keeping = keeping
            return True
        return False

    # -- as a HistoryPlace -----------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """See HistoryPlace."""
        return len(self._uploads)

    def has(self, log: LogName, id: int) -> bool:
        """See HistoryPlace."""
        if id < self.may_drop_before(log):
            return True
        return any((entry.log, entry.id) == (log, id) for entry in self._uploads)

    def is_settled(self, log: LogName, segment: SealedSegment) -> bool:
        """See HistoryPlace.

        Its successor has begun in a committed chunk: every writer that continues this chain has
        then sealed it at the same frame.
        """
        place = self._end.places.get(log)
        return place is not None and segment.id < place.segment

    def put(self, log: LogName, segment: SealedSegment) -> Iterator[None]:
        """See HistoryPlace."""
        self._upload(log, segment, self._end)
        yield

    def enlist(self) -> Iterator[None]:
        """See HistoryPlace: a change of the manifest, now and then."""
        while self.waiting >= TOGETHER or self._monotonic() >= self._changed_at + MANIFEST_EVERY_S:
            self._changed_at = self._monotonic()
            if not self.change(lambda manifest: self._tidied(manifest, self._end, self._kept_from)):
                return
            yield

    def retire(self) -> Iterator[None]:
        """See HistoryPlace: what the manifest no longer names is deleted."""
        while self._collect():
            yield

    # -- segments --------------------------------------------------------------------------------

    def _upload(self, log: LogName, segment: SealedSegment, end: ChainEnd) -> None:
        content = self._source.content(log, segment.id)
        key = segment_key(log, segment.id)
        try:
            self._store.create(key, content.data)
        except ObjectExists as error:
            # By a try before, or by a writer before: from the same chunks, so of the same bytes.
            if self._stored_segment(key) != content.data:
                raise ReplicaDamaged(
                    f"{self._store.url}/{key} is not the segment that was written here"
                ) from error
        # An index can be made again at any time; it need not be the same.
        self._store.put(segment_keys(log, segment.id)[0], content.index)
        self.stats.segments += 1
        self.stats.segment_bytes += segment.bytes
        sha256 = hashlib.sha256(content.data).hexdigest()
        self._uploads.append(
            SegmentEntry(
                log,
                segment.id,
                segment.first,
                segment.last,
                segment.bytes,
                sha256,
                content.at,
                self._chunk_with(log, segment.last, end),
            )
        )

    def _stored_segment(self, key: str) -> bytes:
        try:
            return self._store.get(key).data
        except ObjectMissing as error:
            # Collected meanwhile, so it was listed, and another server may be the writer by now.
            self._is_stale = True
            raise StoreUnavailable(f"{self._store.url}/{key} was deleted meanwhile") from error

    def _chunk_with(self, log: LogName, frame: int, end: ChainEnd) -> int:
        """Number of the chunk that has a frame."""
        number = self.stored.manifest.start_chunk
        while number < end.number:
            facts = self._facts(number)
            if facts.lasts.get(log, 0) >= frame:
                break
            number += 1
        return number

    def _facts(self, number: int) -> ChunkFacts:
        facts = self.facts.get(number)
        if facts is None:
            header = read_chunk_header(self._store, number)
            if header is None:
                self._read_again()
                key = chunk_key(number)
                if self.stored.manifest.garbage_before > number:
                    raise StoreUnavailable(f"{self._store.url}/{key} was collected meanwhile")
                raise ReplicaDamaged(f"{self._store.url}/{key} is missing")
            facts = self.facts[number] = facts_of(header)
        return facts

    # -- the manifest ----------------------------------------------------------------------------

    def change(self, changed: Callable[[ReplicaManifest], ReplicaManifest]) -> bool:
        """Change the manifest, whatever it says by then, while it names this writer.

        Returns:
            False when there is nothing to change.

        Raises:
            ManifestLost: It names another writer.
            StoreUnavailable: It may be changed or not; it is read again before it is used.
        """
        for _ in range(TRIES):
            if self._is_stale:
                self._read_again()
            # `adopt` may come from another thread meanwhile: a version is replaced by what was
            # made of it.
            stored = self.stored
            wanted = changed(stored.manifest)
            if wanted == stored.manifest:
                return False
            self._is_stale = True
            try:
                version = self._store.replace(MANIFEST_KEY, encode_manifest(wanted), stored.version)
            except ObjectChanged:
                continue
            self.adopt(StoredManifest(wanted, version))
            return True
        raise StoreUnavailable(f"{self._store.url}/{MANIFEST_KEY} changed in each of {TRIES} tries")

    def _read_again(self) -> None:
        stored = ReplicaReader(self._store, tries=1).manifest()
        if not is_same_writer(stored.manifest, self.stored.manifest):
            raise ManifestLost
        self.adopt(stored)

    def adopt(self, stored: StoredManifest) -> None:
        """Go on with a manifest that is in the store, and names this writer."""
        before, now = self.stored.manifest, stored.manifest
        self.stored = stored
        self._newest = newest = newest_listed(now)
        self.listed = _listed(now)
        self._is_stale = False
        self._uploads = [e for e in self._uploads if e.id > newest.get(e.log, 0)]
        if now.start_chunk > self._starts[-1][1]:
            self._starts.append((self._monotonic(), now.start_chunk))
        listed = {(entry.log, entry.id) for entry in now.segments}
        for entry in before.segments:
            if (entry.log, entry.id) not in listed:
                self._garbage += segment_keys(entry.log, entry.id)
        for number in range(before.garbage_before, now.garbage_before):
            if not self._is_takeover(number):
                self._garbage.append(chunk_key(number))

    def _tidied(
        self, manifest: ReplicaManifest, end: ChainEnd, kept_from: Mapping[LogName, int]
    ) -> ReplicaManifest:
        """A manifest with all that is new."""
        newest = newest_listed(manifest)
        added = [entry for entry in self._uploads if entry.id > newest.get(entry.log, 0)]
        manifest = msgspec.structs.replace(manifest, segments=(*manifest.segments, *added))
        newest = newest_listed(manifest)
        kept = {
            log: first
            for log in LOGS
            if (first := max(manifest.kept_from.get(log, 0), _begins_at(log, kept_from, newest)))
        }
        manifest = msgspec.structs.replace(manifest, kept_from=kept)
        if self._keep_ms:
            now = self._clock_ms()
            manifest = marked(manifest, now, self._keep_ms, end.frame("jobs"))
            manifest = retired(manifest, now, self._keep_ms, self._history)
        start, digest = self._start(manifest, end)
        return msgspec.structs.replace(
            manifest,
            start_chunk=start,
            start_digest=digest,
            garbage_before=max(manifest.garbage_before, self._boundary()),
        )

    def _start(self, manifest: ReplicaManifest, end: ChainEnd) -> tuple[int, str]:
        """The first chunk with a frame that no listed segment has, and the digest before it."""
        covered = {entry.log: entry.last for entry in manifest.segments}
        number, digest = manifest.start_chunk, manifest.start_digest
        while number <= end.number:
            facts = self._facts(number)
            if any(last > covered.get(log, 0) for log, last in facts.lasts.items()):
                return number, facts.previous
            number, digest = number + 1, end.digest
        return number, digest

    def _boundary(self) -> int:
        """Where reading has begun long enough ago: those who began before it have come further."""
        old = self._monotonic() - self._readers_s
        while len(self._starts) > 1 and self._starts[1][0] <= old:
            self._starts.popleft()
        at, start = self._starts[0]
        return start if at <= old else 0

    # -- the collector ---------------------------------------------------------------------------

    def _is_takeover(self, number: int) -> bool:
        facts = self.facts.pop(number, None)
        # The sweep finds those that are not known.
        return facts is None or facts.is_takeover

    def _collect(self) -> bool:
        """Delete some of what the manifest, as it was read or written, makes needless."""
        manifest = self.stored.manifest
        if self._sweep_from is not None and manifest.garbage_before >= self._sweep_from:
            self._sweep = self._sweep or garbage(self._store, manifest)
            try:
                found = [*islice(self._sweep, DELETE_TOGETHER)]
            except StoreError:
                self._sweep = None
                raise
            self._garbage += found
            if not found:
                self._sweep_from = None
        keys = [*islice(self._garbage, DELETE_TOGETHER)]
        self._store.delete(keys)
        for _ in keys:
            self._garbage.popleft()
        self.stats.collected += len(keys)
        return bool(keys)


def _begins_at(
    log: LogName, kept_from: Mapping[LogName, int], newest: Mapping[LogName, int]
) -> int:
    """The first segment of a log that a restore needs, and not beyond what is listed: so it has all
    segments that are to be listed next."""
    return min(kept_from.get(log, 0), newest.get(log, 0) + 1)


def _listed(manifest: ReplicaManifest) -> tuple[int, int]:
    return len(manifest.segments), sum(entry.bytes for entry in manifest.segments)


def is_same_writer(one: ReplicaManifest, other: ReplicaManifest) -> bool:
    """Whether two manifests are of one epoch of one writer."""
    return (one.epoch, one.writer.id) == (other.epoch, other.writer.id)
