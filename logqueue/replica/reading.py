"""A replica as it is read: the manifest, sealed segments, chunks in order.

Owns: what a sound replica is (digests, the chain, the boundary of the collector), fetching many
objects at the same time. Must not know: what is in a frame, where what was read goes.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

from logqueue.replica.chunk import Chunk, ChunkDamaged, chunk_key, decode_chunk
from logqueue.replica.manifest import (
    HEARTBEAT_KEY,
    MANIFEST_KEY,
    ManifestDamaged,
    ReplicaManifest,
    SegmentEntry,
    WriterHeartbeat,
    decode_heartbeat,
    decode_manifest,
    segment_key,
)
from logqueue.replica.object_store import ObjectMissing, ObjectStore, StoreUnavailable
from logqueue.segments.index import SUFFIX as INDEX_SUFFIX
from logqueue.segments.index import IndexDamaged, SegmentIndex, decode_index

CHUNKS_MAX = 1 << 62
T = TypeVar("T")
R = TypeVar("R")

PART_BYTES = 8 << 20
"""Segments are fetched in parts of so many bytes."""

CHUNKS = "chunks/"

RETRY_FIRST_S = 0.1
"""How long the second try of a call waits; each later one twice as long."""


class ReplicaUnreadable(Exception):
    """A replica cannot be read; the message names it, and the object."""


class ReplicaMissing(ReplicaUnreadable):
    """There is no replica: no manifest."""


class ReplicaDamaged(ReplicaUnreadable):
    """An object is missing, changed, or of another log; the message names it."""


class ReadVoid(ReplicaUnreadable):
    """The collector has passed the place that was read from: start again from the manifest."""


class StoredManifest(NamedTuple):
    """A manifest, and the version to replace."""

    manifest: ReplicaManifest
    version: str


class ListedChunk(NamedTuple):
    """A chunk in a listing."""

    number: int
    bytes: int


class ReplicaReader:
    """Reads one replica. Changes nothing.

    Attributes:
        store: Where the replica is.
        latest: The manifest as it was last read; None before.
        parallel: How many objects are fetched at the same time, in threads; 1 for none.
        pause: Waits between two tries of a call, in seconds.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        parallel: int = 1,
        tries: int = 5,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Make a reader.

        Args:
            store: Where the replica is.
            parallel: How many objects are fetched at the same time, in threads; 1 for none.
            tries: How often a call is tried while the store is unavailable.
            pause: Waits between two tries, in seconds.
        """
        self.store = store
        self.parallel = parallel
        self._tries = tries
        self.pause = pause
        self.latest: ReplicaManifest | None = None

    def manifest(self) -> StoredManifest:
        """The manifest as it is now.

        Raises:
            ReplicaMissing: There is none.
            ReplicaDamaged: It cannot be read.
            StoreError: The store cannot be read.
        """
        try:
            found = self._tried(partial(self.store.get, MANIFEST_KEY))
        except ObjectMissing as error:
            raise ReplicaMissing(
                f"{self.store.url} is not a replica: it has no {MANIFEST_KEY}; check the URL"
            ) from error
        try:
            manifest = decode_manifest(found.data)
        except ManifestDamaged as error:
            raise ReplicaDamaged(f"{self._named(MANIFEST_KEY)} is damaged: {error}") from error
        self.latest = manifest
        return StoredManifest(manifest, found.version)

    def heartbeat(self) -> WriterHeartbeat | None:
        """The heartbeat as it is now; None when there is none that can be read.

        Raises:
            StoreError: The store cannot be read.
        """
        try:
            found = self._tried(partial(self.store.get, HEARTBEAT_KEY))
        except ObjectMissing:
            return None
        return decode_heartbeat(found.data)

    def known_end(self, manifest: ReplicaManifest) -> int:
        """A number that the chain has reached for certain, perhaps some time ago.

        Raises:
            StoreError: The store cannot be read.
        """
        heartbeat = self.heartbeat()
        by_segments = max((entry.chunk for entry in manifest.segments), default=0)
        return max(by_segments, heartbeat.chunk if heartbeat is not None else 0)

    # -- chunks ----------------------------------------------------------------------------------

    def chunk(self, number: int) -> Chunk | None:
        """The chunk of a number, checked by itself; None when there is none.

        Raises:
            ReplicaDamaged: It is not sound, or of another log.
            StoreError: The store cannot be read.
        """
        key = chunk_key(number)
        manifest = self.latest or self.manifest().manifest
        try:
            data = self._tried(partial(self.store.get, key)).data
        except ObjectMissing:
            return None
        try:
            chunk = decode_chunk(data, number)
        except ChunkDamaged as error:
            raise ReplicaDamaged(f"{self._named(key)} is damaged: {error}") from error
        header = chunk.header
        if (header.log_id, header.leases_id) != (manifest.log_id, manifest.leases_id):
            raise ReplicaDamaged(
                f"{self._named(key)} is of another log: of {header.log_id}, not {manifest.log_id}"
            )
        return chunk

    def chunks(
        self,
        first: int,
        previous: str,
        *,
        to_the_end: bool = True,
        chunks_max: int = CHUNKS_MAX,
    ) -> Iterator[Chunk]:
        """The chunks from a number on, in order, each checked against the digest before it.

        A writer that is alive adds chunks meanwhile: the end is where it was at the first step.
        The last step checks that what was read is not void, so consume it to the end.

        Args:
            first: Number of the first.
            previous: Digest of the chunk before it; "" when there is none.
            to_the_end: Up to the last one that a listing has, several at the same time. Otherwise
                up to the first number that is not there, one after the other.
            chunks_max: How many at most.

        Raises:
            ReplicaDamaged: One is not sound, or missing with others behind it.
            ReadVoid: The garbage boundary passed `first` meanwhile.
            StoreError: The store cannot be read.
        """
        number = first
        found = self._listed_from(first) if to_the_end else self._present_from(first)
        for chunk in islice(found, chunks_max):
            if chunk.header.previous != previous:
                # Behind the collector this may be what a writer of the past has put there.
                self._require_kept(first)
                raise ReplicaDamaged(
                    f"{self._named(chunk_key(number))} does not follow on chunk {number - 1}: it "
                    "names another digest"
                )
            yield chunk
            previous = chunk.digest
            number += 1
        self._require_kept(first)

    def _present_from(self, number: int) -> Iterator[Chunk]:
        while True:
            chunk = self.chunk(number)
            if chunk is None:
                return
            yield chunk
            number += 1

    def _listed_from(self, number: int) -> Iterator[Chunk]:
        last = self._last_listed(number)
        for chunk in self.in_parallel(self.chunk, range(number, last + 1)):
            if chunk is None:
                self._require_kept(number)
                raise ReplicaDamaged(
                    f"{self._named(chunk_key(number))} is missing: there are chunks behind it"
                )
            yield chunk
            number += 1

    def _last_listed(self, number: int) -> int:
        """The last chunk from a number on; one less when there is none."""
        return max((info.number for info in self.listed_chunks(number)), default=number - 1)

    def listed_chunks(self, number: int) -> list[ListedChunk]:
        """The chunks from a number on that a listing has.

        Raises:
            StoreError: The store cannot be read.
        """

        def look() -> list[ListedChunk]:
            found = self.store.list(CHUNKS, chunk_key(number - 1) if number > 1 else "")
            names = ((info.key.removeprefix(CHUNKS), info.bytes) for info in found)
            return [ListedChunk(int(name), size) for name, size in names if name.isdecimal()]

        return self._tried(look)

    def _require_kept(self, number: int) -> None:
        if self.manifest().manifest.garbage_before > number:
            raise ReadVoid(f"{self._named(chunk_key(number))} was collected while it was read")

    # -- segments --------------------------------------------------------------------------------

    def segments(self, entries: Iterable[SegmentEntry]) -> Iterator[tuple[SegmentEntry, bytes]]:
        """Sealed segments, checked, in the order asked for; some are in memory at the same time.

        Raises:
            ReplicaDamaged: One is missing or not sound.
            ReadVoid: One is missing, and the manifest no longer lists it.
            StoreError: The store cannot be read.
        """
        return self.each_segment(entries, lambda entry, parts: (entry, b"".join(parts)))

    def index(self, entry: SegmentEntry) -> SegmentIndex | None:
        """The index beside a listed segment; None when there is none that can be used.

        Raises:
            StoreError: The store cannot be read.
        """
        key = segment_key(entry.log, entry.id) + INDEX_SUFFIX
        with suppress(ObjectMissing, IndexDamaged):
            index = decode_index(self._tried(partial(self.store.get, key)).data)
            if (index.log, index.segment, index.bytes) == (entry.log, entry.id, entry.bytes):
                return index
        return None

    def each_segment(
        self,
        entries: Iterable[SegmentEntry],
        receive: Callable[[SegmentEntry, Iterator[bytes]], R],
    ) -> Generator[R, None, None]:
        """What a function makes of each of some segments, in the order asked for.

        Args:
            entries: Which segments.
            receive: Called with each and its bytes in parts; several run at the same time, in
                threads. The iterator raises what `segments` does, at its end at the latest.
        """
        return self.in_parallel(lambda entry: receive(entry, self._parts(entry)), entries)

    def _parts(self, entry: SegmentEntry) -> Iterator[bytes]:
        key = segment_key(entry.log, entry.id)
        digest = hashlib.sha256()
        done = 0
        while True:
            # One byte more than there should be shows what is too long.
            wanted = min(PART_BYTES, entry.bytes - done + 1)
            try:
                part = self._tried(partial(self.store.get_range, key, done, wanted))
            except ObjectMissing as error:
                self._require_listed(entry)
                raise ReplicaDamaged(f"{self._named(key)} is missing") from error
            done += len(part)
            digest.update(part)
            if done > entry.bytes:
                raise ReplicaDamaged(
                    f"{self._named(key)} is damaged: it is longer than {entry.bytes} bytes"
                )
            if part:
                yield part
            if len(part) < wanted:
                break
        if done != entry.bytes:
            raise ReplicaDamaged(
                f"{self._named(key)} is cut short: it has {done} bytes, not {entry.bytes}"
            )
        if digest.hexdigest() != entry.sha256:
            raise ReplicaDamaged(
                f"{self._named(key)} is damaged: its digest does not match the manifest"
            )

    def _require_listed(self, entry: SegmentEntry) -> None:
        if entry not in self.manifest().manifest.segments:
            raise ReadVoid(
                f"{self._named(segment_key(entry.log, entry.id))} was collected while it was read"
            )

    # -- calls -----------------------------------------------------------------------------------

    def in_parallel(
        self, function: Callable[[T], R], items: Iterable[T]
    ) -> Generator[R, None, None]:
        """What a function returns for each item, in their order, some ahead of the consumer."""
        if self.parallel == 1:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(self.parallel, "replica-read") as threads:
            under_way: deque[Future[R]] = deque()
            try:
                for item in items:
                    under_way.append(threads.submit(function, item))
                    if len(under_way) > self.parallel:
                        yield under_way.popleft().result()
                while under_way:
                    yield under_way.popleft().result()
            finally:
                for future in under_way:
                    future.cancel()

    def _tried(self, call: Callable[[], R]) -> R:
        for tried in range(1, self._tries):
            try:
                return call()
            except StoreUnavailable:
                self.pause(RETRY_FIRST_S * 2 ** (tried - 1))
        return call()

    def _named(self, key: str) -> str:
        return f"{self.store.url}/{key}"
