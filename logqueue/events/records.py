"""Events of records: appended, moved, replaced, gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, ClassVar, Literal, cast

import msgspec

from logqueue.events.block import DELAY, NOT_BEFORE, SEQ, BlockView, size_total
from logqueue.events.event import (
    JOBS,
    Event,
    JobChange,
    JobChangeKind,
    LoggedWhen,
    RecordVisitor,
    SpaceEffect,
    SyncedWhen,
)

if TYPE_CHECKING:
    from logqueue.events.split_block import SplitBlock


def evicted(cap_floor: int, dropped: int) -> Sequence[JobChange]:
    """What a write means for the jobs that the caps have evicted with it."""
    return (JobChange("trimmed", (cap_floor,), "", dropped, reason="cap"),) if cap_floor else ()


class RecordsAppended(Event, frozen=True, array_like=True, tag=4, gc=False):
    """A batch got consecutive seqs from `first_seq`.

    Attributes:
        block: The records (see `logqueue.events.block`).
        cap_floor: Highest seq that caps have evicted, this batch counted in.
        key: Idempotency key, or None.
        seqs_reserved: Highest seq promised never to be handed out twice (0: no promise needed).
        size: Bytes of the records as the limits count them; 0 in early logs.
        hops: How many routers the records have come through.
        dropped: How many records the caps evicted with this write.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "topic_logged"
    synced: ClassVar[SyncedWhen] = "as_configured"
    space: ClassVar[SpaceEffect] = "takes"
    holds_records: ClassVar[bool] = True

    first_seq: int
    count: int
    block: bytes
    cap_floor: int = 0
    key: str | None = None
    seqs_reserved: int = 0
    size: int = 0
    hops: int = 0
    dropped: int = 0

    def record_blocks(self) -> Sequence[bytes]:
        """See `Event.record_blocks`."""
        return (self.block,)

    def with_blocks(self, blocks: Sequence[bytes | SplitBlock]) -> Event:
        """See `Event.with_blocks`."""
        return msgspec.structs.replace(self, block=blocks[0])

    def visit_records(self, to: RecordVisitor) -> None:
        """See `Event.visit_records`."""
        size = self.size or size_total(self.block)
        to.appended(self, self.first_seq, self.count, self.block, size)
        if self.seqs_reserved:
            to.reserved(self, self.seqs_reserved)
        if self.cap_floor:
            to.trimmed(self)

    def job_changes(self) -> Iterable[JobChange]:
        """See `Event.job_changes`."""
        return evicted(self.cap_floor, self.dropped) if self.cap_floor else ()


class RecordsMoved(Event, frozen=True, array_like=True, tag=5):
    """Live records were rewritten; they replace every batch in their range of seqs.

    Attributes:
        block: The survivors, with their own seqs and times as number columns.
        span: First and last seq of the range that is replaced.
        hops: How many routers the records have come through.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "never"
    wakes_readers: ClassVar[bool] = False
    holds_records: ClassVar[bool] = True

    block: bytes
    span: tuple[int, int]
    hops: int = 0

    def record_blocks(self) -> Sequence[bytes]:
        """See `Event.record_blocks`."""
        return (self.block,)

    def with_blocks(self, blocks: Sequence[bytes | SplitBlock]) -> Event:
        """See `Event.with_blocks`."""
        return msgspec.structs.replace(self, block=blocks[0])

    def visit_records(self, to: RecordVisitor) -> None:
        """See `Event.visit_records`."""
        to.moved(self, self.span, self.block)


class RecordsTrimmed(Event, frozen=True, array_like=True, tag=6):
    """The front was evicted up to a floor, by TTL or by caps after a config change.

    Attributes:
        expired, dropped: How many records went by TTL, and by caps; those that a `RecordsFinished`
            beside it has counted are left out.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "always"

    ttl_floor: int
    cap_floor: int
    expired: int = 0
    dropped: int = 0

    def visit_records(self, to: RecordVisitor) -> None:
        """See `Event.visit_records`."""
        to.trimmed(self)

    def job_changes(self) -> Iterable[JobChange]:
        """See `Event.job_changes`."""
        return (
            JobChange("trimmed", (self.ttl_floor,), "", self.expired, reason="ttl"),
            JobChange("trimmed", (self.cap_floor,), "", self.dropped, reason="cap"),
        )


class RecordsRemoved(Event, frozen=True, array_like=True, tag=7):
    """Records were deleted on request: silent holes.

    Attributes:
        dead_lettered: So many of them moved elsewhere.
        redriven: All of them went back to where they came from.
        reason: Why they were dead-lettered; "" in logs of earlier versions.
        node: The node that gave them up; "" when no worker did.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "as_configured"
    space: ClassVar[SpaceEffect] = "frees"

    seqs: list[int]
    dead_lettered: int = 0
    redriven: bool = False
    reason: str = ""
    node: str = ""

    def visit_records(self, to: RecordVisitor) -> None:
        """See `Event.visit_records`."""
        to.removed(self, self.seqs, redriven=self.redriven)

    def job_changes(self) -> Iterable[JobChange]:
        """See `Event.job_changes`."""
        kind: JobChangeKind = "deleted"
        count = len(self.seqs)
        if self.redriven:
            kind = "redriven"
        elif self.dead_lettered:
            kind, count = "dead_lettered", self.dead_lettered
        return (JobChange(kind, self.seqs, self.node, count, reason=self.reason),)


class RecordsFinished(Event, frozen=True, array_like=True, tag=20):
    """Records came to an end other than an ack. What an archive keeps of them is in the same
    transaction.

    Attributes:
        outcome: "rejected", "dropped", "expired", "superseded" or "cancelled". Leases of expired
            ones last on, so that their holders can settle; all others are void.
        node: Who finished them, "" when time or an operator did.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "as_configured"
    space: ClassVar[SpaceEffect] = "frees"

    outcome: str
    node: str
    seqs: list[int]

    def visit_records(self, to: RecordVisitor) -> None:
        """See `Event.visit_records`."""
        to.removed(self, self.seqs, redriven=False)

    def job_changes(self) -> Iterable[JobChange]:
        """See `Event.job_changes`."""
        kind = cast("JobChangeKind", self.outcome)
        return (JobChange(kind, self.seqs, self.node, len(self.seqs)),)


class RecordsReplaced(Event, frozen=True, array_like=True, tag=23):
    """A write with keyed records that found waiting jobs under some of the keys.

    Comes behind the `RecordsAppended` of the records that are new.

    Attributes:
        blocks: Jobs that got new content, seqs ascending: one block (in earlier logs one for each
            run of neighbouring seqs, or for each job) with their seqs, times, `updated_at` and all
            their columns.
        key: Idempotency key of the whole write, or None.
        results: (seq, index into `RESULTS`) for each record of the write, in its order.
        head: The head after the write.
        joined: How many jobs have come to which batch with their new content.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "as_configured"
    space: ClassVar[SpaceEffect] = "takes"
    holds_records: ClassVar[bool] = True

    blocks: list[bytes]
    key: str | None
    results: list[tuple[int, int]]
    head: int
    joined: list[tuple[str, int]] = msgspec.field(default_factory=list)

    def record_blocks(self) -> Sequence[bytes]:
        """See `Event.record_blocks`."""
        return self.blocks

    def with_blocks(self, blocks: Sequence[bytes | SplitBlock]) -> Event:
        """See `Event.with_blocks`."""
        return msgspec.structs.replace(self, blocks=[*blocks])

    def visit_records(self, to: RecordVisitor) -> None:
        """See `Event.visit_records`."""
        for block in self.blocks:
            to.replaced(self, block)

    def job_changes(self) -> Iterable[JobChange]:
        """See `Event.job_changes`."""
        for block in self.blocks:
            view = BlockView(block)
            seqs = view.numbers(SEQ) or ()
            delays, moments = view.numbers(DELAY), view.numbers(NOT_BEFORE)
            dues: Sequence[int] = moments or ()
            if delays:
                pairs = zip(delays, moments or repeat(0), strict=False)
                dues = [self.at + delay if delay else moment for delay, moment in pairs]
            yield JobChange("replaced", seqs, "", len(seqs), dues=dues)


RESULTS: tuple[Literal["created", "replaced", "kept"], ...] = ("created", "replaced", "kept")


class KeysRemembered(Event, frozen=True, array_like=True, tag=8):
    """Idempotency keys of a dropped segment, still inside their window.

    Attributes:
        keys: (key, time of the first write, first seq, count, head then).
        results: Of writes with keyed records, by idempotency key: see `RecordsReplaced`.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "never"
    wakes_readers: ClassVar[bool] = False

    keys: list[tuple[str, int, int, int, int]]
    results: dict[str, list[tuple[int, int]]] = msgspec.field(default_factory=dict)
