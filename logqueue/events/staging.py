"""Events of transactional appends: chunks that become visible with their epoch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from logqueue.events.event import (
    JOBS,
    Event,
    JobChange,
    LoggedWhen,
    RecordVisitor,
    SpaceEffect,
    SyncedWhen,
    TopicVisitor,
)
from logqueue.events.records import evicted


class ChunkStaged(Event, frozen=True, array_like=True, tag=40):
    """A producer laid down records for `topic` that become visible with their epoch."""

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "topic_logged"
    synced: ClassVar[SyncedWhen] = "never"
    space: ClassVar[SpaceEffect] = "takes"
    wakes_readers: ClassVar[bool] = False
    holds_records: ClassVar[bool] = True
    # A chunk that is staged again is compared with the first as a whole.
    keeps_blocks_whole: ClassVar[bool] = True
    # Staged again, before its segment is dropped, it keeps the time of its first staging.
    keeps_first_time: ClassVar[bool] = True

    producer: str
    epoch: int
    partition: int
    attempt: str
    number: int
    block: bytes
    count: int
    size: int

    def record_blocks(self) -> Sequence[bytes]:
        """See `Event.record_blocks`."""
        return (self.block,)

    def visit_records(self, to: RecordVisitor) -> None:
        """See `Event.visit_records`."""
        chunk = self.producer, self.epoch, self.partition, self.attempt, self.number
        to.staged(self, chunk, self.block)


class ChunksCommitted(Event, frozen=True, array_like=True, tag=41):
    """Staged chunks were appended to `topic`, in order. Their payload is in earlier frames, so a
    replay that begins behind those takes the seqs only, and meets the records as RecordsMoved.

    Attributes:
        chunks: (partition, attempt, number) of each.
        counts: Records of each chunk.
        first_seq: Seq of the first record; the others follow without a gap.
        cap_floor, seqs_reserved, dropped: As in RecordsAppended.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "topic_logged"
    synced: ClassVar[SyncedWhen] = "as_configured"
    space: ClassVar[SpaceEffect] = "takes"
    holds_records: ClassVar[bool] = True

    producer: str
    epoch: int
    chunks: list[tuple[int, str, int]]
    counts: list[int]
    first_seq: int
    cap_floor: int = 0
    seqs_reserved: int = 0
    dropped: int = 0

    def visit_records(self, to: RecordVisitor) -> None:
        """See `Event.visit_records`."""
        seq = self.first_seq
        for chunk, count in zip(self.chunks, self.counts, strict=True):
            to.committed(self, (self.producer, self.epoch, *chunk), seq, count)
            seq += count
        if self.seqs_reserved:
            to.reserved(self, self.seqs_reserved)
        if self.cap_floor:
            to.trimmed(self)

    def job_changes(self) -> Iterable[JobChange]:
        """See `Event.job_changes`."""
        return evicted(self.cap_floor, self.dropped)


class EpochCommitted(Event, frozen=True, array_like=True, tag=42):
    """A producer's epoch is complete; chunks staged for it and before are discarded. `topic` is 0.

    Attributes:
        digest: Of the content.
        ranges: (topic name, first seq, last seq), to answer a repeated commit with.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "never"
    has_topic: ClassVar[bool] = False

    producer: str
    epoch: int
    digest: bytes
    ranges: list[tuple[str, int, int]]

    def visit_topics(self, to: TopicVisitor) -> None:
        """See `Event.visit_topics`."""
        to.epoch_committed(self, self.producer, self.epoch, self.ranges)


class StagedDropped(Event, frozen=True, array_like=True, tag=43):
    """What a producer had staged was aborted, or not committed in time. `topic` is 0.

    Attributes:
        forget: The producer's last epoch is forgotten, too.
        last: Of epochs up to this one; of all when None.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "never"
    has_topic: ClassVar[bool] = False

    producer: str
    forget: bool = False
    last: int | None = None

    def visit_topics(self, to: TopicVisitor) -> None:
        """See `Event.visit_topics`."""
        to.staged_dropped(self, self.producer, forget=self.forget)
