"""What of a replica is garbage, and removing it.

Owns: which objects may go, by the manifest alone. Must not know: when the boundary is moved
(upkeep.py), what earlier moments need (retention.py).

Takeover chunks stay for ever: each keeps the number at which the writer before it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from logqueue.replica.chain import LOGS
from logqueue.replica.chunk import (
    ChunkDamaged,
    ChunkHeader,
    LogName,
    chunk_header_end,
    chunk_key,
    decode_chunk_header,
)
from logqueue.replica.manifest import (
    MANIFEST_KEY,
    ReplicaManifest,
    encode_manifest,
    segment_key,
)
from logqueue.replica.object_store import ObjectMissing, ObjectStore
from logqueue.replica.reading import ReplicaDamaged, ReplicaReader
from logqueue.replica.retention import retired
from logqueue.segments.index import SUFFIX as INDEX_SUFFIX

HEADER_READ_BYTES = 4 << 10
TAKEOVER_BYTES_MAX = 4 << 10
"""A takeover chunk is smaller."""

DELETE_TOGETHER = 256


def read_chunk_header(store: ObjectStore, number: int) -> ChunkHeader | None:
    """The header of a chunk, not all of it; None when it is not there.

    Raises:
        ReplicaDamaged: It is not such a header.
        StoreError: The store cannot be read.
    """
    key = chunk_key(number)
    try:
        data = store.get_range(key, 0, HEADER_READ_BYTES)
        end = chunk_header_end(data)
        if end > len(data):
            data = store.get_range(key, 0, end)
        return decode_chunk_header(data, number)
    except ObjectMissing:
        return None
    except ChunkDamaged as error:
        raise ReplicaDamaged(f"{store.url}/{key}: {error}") from error


def segment_keys(log: LogName, id: int) -> tuple[str, str]:
    """The objects of a segment: its index, and itself."""
    key = segment_key(log, id)
    return key + INDEX_SUFFIX, key


def garbage(store: ObjectStore, manifest: ReplicaManifest) -> Iterator[str]:
    """The objects that a manifest makes needless, as far as they are there.

    Args:
        store: Where the replica is.
        manifest: A version that was in the store, however old.

    Raises:
        StoreError: The store cannot be read.
    """
    boundary = chunk_key(manifest.garbage_before)
    for found in store.list("chunks/"):
        if found.key >= boundary:
            break
        if found.bytes > TAKEOVER_BYTES_MAX or not _is_takeover(store, found.key):
            yield found.key
    for log in LOGS:
        oldest = next((entry.id for entry in manifest.segments if entry.log == log), 0)
        if oldest:
            boundary = segment_key(log, oldest)
            for found in store.list(f"segments/{log}/"):
                if found.key >= boundary:
                    break
                yield found.key


def _is_takeover(store: ObjectStore, key: str) -> bool:
    name = key.rpartition("/")[2]
    if not name.isdecimal():
        return True
    try:
        header = read_chunk_header(store, int(name))
    except ReplicaDamaged:
        # It may be one.
        return True
    return header is None or header.kind == "takeover"


def trimmed(manifest: ReplicaManifest, *, now: int = 0, keep_ms: int = 0) -> ReplicaManifest:
    """A manifest as `collect` leaves it: nothing is kept for readers who are in what may go.

    Args:
        manifest: The present one.
        now: The clock, ms since the epoch.
        keep_ms: How far back any moment can still be restored, in ms; 0 for as far as there is.
    """
    if keep_ms:
        manifest = retired(manifest, now, keep_ms)
    if manifest.garbage_before >= manifest.start_chunk:
        return manifest
    return msgspec.structs.replace(manifest, garbage_before=manifest.start_chunk)


def collect(store: ObjectStore, *, now: int = 0, keep_ms: int = 0) -> int:
    """Delete what the manifest makes needless, now. Readers who are in it must begin again.

    Args:
        store: Where the replica is; it may have a writer.
        now: See `trimmed`.
        keep_ms: See `trimmed`.

    Returns:
        How many objects were deleted.

    Raises:
        ReplicaUnreadable: There is no replica, or its manifest is damaged.
        ObjectChanged: The manifest has changed meanwhile: call it again.
        StoreError: The store cannot be read or written.
    """
    stored, version = ReplicaReader(store, tries=1).manifest()
    manifest = trimmed(stored, now=now, keep_ms=keep_ms)
    if manifest != stored:
        store.replace(MANIFEST_KEY, encode_manifest(manifest), version)
    count = 0
    keys = garbage(store, manifest)
    while some := [*islice(keys, DELETE_TOGETHER)]:
        store.delete(some)
        count += len(some)
    return count
