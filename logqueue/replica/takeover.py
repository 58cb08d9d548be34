"""How a server becomes the writer of a replica.

Owns: making a new replica, and taking over one that is there. Must not know: what a writer does
then (writing.py), where the chunks that were read go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from logqueue.replica.chain import ChainBroken, ChainEnd, chain_start, extended
from logqueue.replica.chunk import FORMAT as CHUNK_FORMAT
from logqueue.replica.chunk import Chunk, ChunkHeader, chunk_key, encode_chunk
from logqueue.replica.manifest import (
    FORMAT,
    MANIFEST_KEY,
    ReplicaManifest,
    WriterInfo,
    encode_manifest,
)
from logqueue.replica.object_store import (
    ObjectChanged,
    ObjectExists,
    ObjectStore,
    StoreUnavailable,
)
from logqueue.replica.reading import ReadVoid, ReplicaDamaged, ReplicaReader, StoredManifest

BATCH_BYTES = 32 << 20
"""Chunks are received in batches of about so many bytes."""

TRIES = 20
"""How often the manifest is read again while a writer that is alive keeps changing it."""


class TakeoverLost(Exception):
    """Another server took over meanwhile.

    Attributes:
        writer: That server; None when it is not known.
    """

    def __init__(self, writer: WriterInfo | None) -> None:
        super().__init__("another server took over the replica meanwhile")
        self.writer = writer


class Takeover(NamedTuple):
    """What a server has when it has become the writer.

    Attributes:
        stored: The manifest, with its epoch.
        end: The takeover chunk, and where each log ends in the replica.
    """

    stored: StoredManifest
    end: ChainEnd


def create_replica(store: ObjectStore, log_id: str, leases_id: str, writer: WriterInfo) -> None:
    """Make the manifest of a new replica. Its first writer takes over as any other does.

    Args:
        store: Where nothing is yet.
        log_id: Identity of the jobs log, in hex.
        leases_id: Identity of the leases log, in hex.
        writer: Who makes it.

    Raises:
        ObjectExists: There is a replica; it may be the one of an earlier try.
        StoreError: The store cannot be written. It may be there all the same.
    """
    store.create(
        MANIFEST_KEY, encode_manifest(ReplicaManifest(FORMAT, log_id, leases_id, 0, writer))
    )


def take_over(
    store: ObjectStore,
    writer: WriterInfo,
    known: ChainEnd | None,
    receive: Callable[[Sequence[Chunk], ChainEnd], None],
    *,
    from_epoch: int | None = None,
) -> Takeover:
    """Become the writer. From the end of it on, no other writer can commit anything.

    After any exception it can be called again, with what is known by then: that begins a new epoch.

    Args:
        store: Where the replica is.
        writer: Who takes over; a new id for each run of a server.
        known: The chunk up to which the caller has everything; None when it has the segments that
            the manifest lists, and no more.
        receive: Called with the chunks behind `known`, in order, and where the chain ends with
            them, when they are known to be true. The caller must keep them durably before it
            returns. What it raises ends the attempt.
        from_epoch: Take over from the writer of this epoch, and from no later one; None for
            whichever there is.

    Raises:
        TakeoverLost: Another server was faster.
        ReadVoid: The chunk behind `known` was collected: begin again from the manifest.
        ReplicaUnreadable: The replica is missing or damaged.
        StoreError: The store cannot be read or written.
    """
    return _Attempt(store, writer, receive, from_epoch).made(known)


class _Attempt:
    """One try to become the writer."""

    def __init__(
        self,
        store: ObjectStore,
        writer: WriterInfo,
        receive: Callable[[Sequence[Chunk], ChainEnd], None],
        from_epoch: int | None,
    ) -> None:
        self._from_epoch = from_epoch
        self._store = store
        self._reader = ReplicaReader(store, tries=1)
        self._writer = writer
        self._receive = receive

    def made(self, known: ChainEnd | None) -> Takeover:
        """Carry it out."""
        manifest = self._begin_epoch()
        end = known if known is not None else chain_start(manifest)
        if end.number + 1 < manifest.garbage_before:
            raise ReadVoid(f"{self._key(end.number + 1)} was collected")
        # Asked for before the chain is read: it only grows.
        reached = self._reader.known_end(manifest)
        before, end = end, self._read_on(manifest, end, to_the_end=True)
        if end is before:
            self._require_end(manifest, end)
        if end.number < reached:
            raise ReplicaDamaged(
                f"{self._key(end.number + 1)} is missing: the chain reached chunk {reached}"
            )
        while True:
            header = ChunkHeader(
                CHUNK_FORMAT,
                manifest.log_id,
                manifest.leases_id,
                manifest.epoch,
                self._writer.id,
                end.number + 1,
                end.digest,
                "takeover",
            )
            data, digest = encode_chunk(header, ())
            taken = extended(end, Chunk(header, (), digest))
            try:
                self._store.create(chunk_key(taken.number), data)
            except ObjectExists:
                # By a writer before, which may still add; or by this very call, sent twice.
                if self._store.get(chunk_key(taken.number)).data != data:
                    # That writer is alive, so there is little time before its next one.
                    end = self._read_on(manifest, end, to_the_end=False)
                    continue
            return Takeover(self._confirmed(manifest, taken.number), taken)

    def _begin_epoch(self) -> ReplicaManifest:
        """Enter oneself in the manifest. Of a try with unknown outcome nothing is built on: the
        next one begins a later epoch."""
        epoch = self._from_epoch
        for _ in range(TRIES):
            stored = self._reader.manifest()
            current = stored.manifest
            if epoch not in (None, current.epoch) and current.writer.id != self._writer.id:
                raise TakeoverLost(current.writer)
            epoch = current.epoch
            mine = msgspec.structs.replace(
                current, epoch=epoch + 1, writer=self._writer, is_released=False
            )
            try:
                self._store.replace(MANIFEST_KEY, encode_manifest(mine), stored.version)
            except ObjectChanged:
                continue
            return mine
        raise StoreUnavailable(f"{self._store.url}/{MANIFEST_KEY} changed in each of {TRIES} tries")

    def _require_end(self, manifest: ReplicaManifest, end: ChainEnd) -> None:
        """Refuse a chunk that is not of this chain: nothing could follow on it."""
        if not end.number:
            digest = ""
        elif end.number == manifest.start_chunk - 1:
            digest = manifest.start_digest
        else:
            chunk = self._reader.chunk(end.number)
            if chunk is None:
                raise ReadVoid(f"{self._key(end.number)} is not there")
            digest = chunk.digest
        if digest != end.digest:
            raise ReplicaDamaged(f"{self._key(end.number)} is not the chunk that was read before")

    def _read_on(self, manifest: ReplicaManifest, end: ChainEnd, *, to_the_end: bool) -> ChainEnd:
        batch: list[Chunk] = []
        size = 0
        for chunk in self._reader.chunks(end.number + 1, end.digest, to_the_end=to_the_end):
            if chunk.header.epoch > manifest.epoch:
                raise TakeoverLost(None)
            if size >= BATCH_BYTES:
                # What is read behind the collector may be what a writer of the past has put there.
                self._confirmed(manifest, batch[0].header.number)
                self._receive(batch, end)
                batch, size = [], 0
            try:
                end = extended(end, chunk)
            except ChainBroken as error:
                raise ReplicaDamaged(f"{self._key(chunk.header.number)}: {error}") from error
            batch.append(chunk)
            size += sum(map(len, chunk.data))
        # The last step of the reader has looked at the boundary.
        if batch:
            self._receive(batch, end)
        return end

    def _confirmed(self, manifest: ReplicaManifest, number: int) -> StoredManifest:
        """The manifest as it is now, if this attempt is not void by it.

        A chunk that was read, found missing or created means something only while the collector has
        not come to it, and collectors follow writers of later epochs, too.
        """
        stored = self._reader.manifest()
        current = stored.manifest
        if (current.epoch, current.writer.id) != (manifest.epoch, self._writer.id):
            raise TakeoverLost(current.writer)
        if current.garbage_before > number:
            raise ReadVoid(f"{self._key(number)} was collected")
        return stored

    def _key(self, number: int) -> str:
        return f"{self._store.url}/{chunk_key(number)}"
