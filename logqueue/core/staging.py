"""Transactional appends: chunks that wait for their epoch to be committed, all at once.

Owns: what is staged by whom, and the last epoch that each producer committed. Must not know:
commands, events, the log. A chunk is in the log from the moment it is staged; committing an epoch
names its chunks, so an epoch of any size becomes visible by one small fact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from logqueue.events.split_block import Block

DIGEST_BYTES = 16


class ChunkId(NamedTuple):
    """Which chunk of an epoch.

    Attributes:
        partition, number: Place of the chunk in the epoch; it orders the records.
        attempt: Text that tells one try of a partition from another. One attempt wins.
    """

    partition: int
    attempt: str
    number: int


class StagedChunk(NamedTuple):
    """Records that are not visible yet.

    Attributes:
        topic: Number of the topic instance they are staged for.
        block: The records (see `logqueue.events.block`).
        size: Their bytes as the limits count them.
        digest: Of the block, to tell a repeat from other content.
        segment: The log segment that holds it; 0 when it is not logged.
    """

    topic: int
    block: Block
    records: int
    size: int
    digest: bytes
    segment: int


class Epoch(NamedTuple):
    """A committed epoch, as far as a repeat of its commit needs it.

    Attributes:
        number: The epoch.
        digest: Of what its commit said of its content, else of all its chunks, in order.
        ranges: (topic name, first seq, last seq) of what it appended.
    """

    number: int
    digest: bytes
    ranges: tuple[tuple[str, int, int], ...]


class ProducerState:
    """One named producer.

    Attributes:
        committed: Its last committed epoch; None before the first.
        staged: Chunks by epoch; `staged_bytes` and `staged_chunks` are their sums.
        touched_at: When it last staged or committed, ms since the epoch.
    """

    __slots__ = ("committed", "name", "staged", "staged_bytes", "staged_chunks", "touched_at")

    def __init__(self, name: str) -> None:
        self.name = name
        self.committed: Epoch | None = None
        self.staged: dict[int, dict[ChunkId, StagedChunk]] = {}
        self.staged_bytes = 0
        self.staged_chunks = 0
        self.touched_at = 0

    def chunks(self, epoch: int) -> dict[ChunkId, StagedChunk]:
        """What is staged for an epoch."""
        return self.staged.get(epoch, {})

    def stage(self, epoch: int, chunk_id: ChunkId, chunk: StagedChunk) -> None:
        """Keep a chunk. One that is staged again (rewritten in the log) replaces itself."""
        chunks = self.staged.setdefault(epoch, {})
        known = chunks.get(chunk_id)
        chunks[chunk_id] = chunk
        self.staged_bytes += len(chunk.block) - (len(known.block) if known is not None else 0)
        self.staged_chunks += known is None

    def unstage(self, last: int) -> None:
        """Discard all chunks staged for epochs up to and including `last`."""
        for number in [number for number in self.staged if number <= last]:
            chunks = self.staged.pop(number)
            self.staged_bytes -= sum(len(chunk.block) for chunk in chunks.values())
            self.staged_chunks -= len(chunks)

    def forget_topic(self, topic: int) -> None:
        """Discard chunks staged for a deleted topic instance."""
        for chunks in self.staged.values():
            for chunk_id in [key for key, chunk in chunks.items() if chunk.topic == topic]:
                self.staged_bytes -= len(chunks.pop(chunk_id).block)
                self.staged_chunks -= 1

    def all_staged(self) -> Iterator[tuple[int, ChunkId, StagedChunk]]:
        """Every chunk with its epoch."""
        for epoch, chunks in self.staged.items():
            for chunk_id, chunk in chunks.items():
                yield epoch, chunk_id, chunk


def digest_of(block: bytes) -> bytes:
    """What tells one content from another."""
    return hashlib.blake2b(block, digest_size=DIGEST_BYTES).digest()


def digest_of_all(digests: list[bytes]) -> bytes:
    """The digest of an epoch, from those of its chunks in order."""
    return hashlib.blake2b(b"".join(digests), digest_size=DIGEST_BYTES).digest()
