"""Facts: what has happened, as the logs keep it.

Owns: one tagged struct per event, and the transaction that holds the events of one decision; their
bytes are msgpack arrays, so that new fields can be appended with a default and old logs stay
readable. Must not know: why something happened, how it changes the state.

Every event carries `at`, the coordinator's clock when it was decided; replay never asks the time.
Topics are named by `topic`, the number of the topic *instance*: a deleted and recreated topic is
another one. An event goes to the jobs log (what work exists) or the leases log (who holds what).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, Literal

import msgspec

from logqueue.events.snapshots import JobKept as JobKept
from logqueue.events.snapshots import ProducerKept as ProducerKept
from logqueue.events.snapshots import RouterKept as RouterKept
from logqueue.events.snapshots import TopicKept as TopicKept
from logqueue.model.config import BackoffOptions, RouterOptions, TopicOptions

JOBS = 1
LEASES = 2
BOTH = JOBS | LEASES


class Event(msgspec.Struct, frozen=True, array_like=True):
    """What all events share."""

    log: ClassVar[int] = JOBS

    at: int
    topic: int


class TopicCreated(Event, frozen=True, array_like=True, tag=1):
    """A new topic instance exists."""

    name: str
    config: TopicOptions


class TopicConfigured(Event, frozen=True, array_like=True, tag=2):
    """The whole config was replaced.

    Attributes:
        head, cap_floor: As they were then. What has moved them may be in no log, because of the
            class the topic had, or because a start has stepped over seqs that were promised.
    """

    config: TopicOptions
    head: int = 0
    cap_floor: int = 0


class TopicRemoved(Event, frozen=True, array_like=True, tag=3):
    """The instance and all it held is gone."""


class RecordsAppended(Event, frozen=True, array_like=True, tag=4):
    """A batch got consecutive seqs from `first_seq`.

    Attributes:
        block: The records (see `logqueue.events.block`).
        cap_floor: Highest seq that caps have evicted, this batch counted in.
        key: Idempotency key, or None.
        seqs_reserved: Highest seq promised never to be handed out twice (0: no promise needed).
        size: Bytes of the records as the limits count them.
        hops: How many routers the records have come through.
        dropped: How many records the caps evicted with this write.
    """

    first_seq: int
    count: int
    block: bytes
    cap_floor: int = 0
    key: str | None = None
    seqs_reserved: int = 0
    size: int = 0
    hops: int = 0
    dropped: int = 0


class RecordsMoved(Event, frozen=True, array_like=True, tag=5):
    """Live records were written anew; they replace every batch in their range of seqs.

    Attributes:
        block: The survivors, with their own seqs and times as number columns.
        span: First and last seq of the range that is replaced.
        hops: How many routers the records have come through.
    """

    block: bytes
    span: tuple[int, int]
    hops: int = 0


class RecordsTrimmed(Event, frozen=True, array_like=True, tag=6):
    """The front was evicted up to a floor, by TTL or by caps after a config change.

    Attributes:
        expired, dropped: How many records went by TTL, and by caps; those that a `RecordsFinished`
            beside it has counted are left out.
    """

    ttl_floor: int
    cap_floor: int
    expired: int = 0
    dropped: int = 0


class RecordsRemoved(Event, frozen=True, array_like=True, tag=7):
    """Records were deleted on request: silent holes.

    Attributes:
        dead_lettered: So many of them moved elsewhere.
        redriven: All of them went back to where they came from.
        reason: Why they were dead-lettered; "" in logs of earlier versions.
        node: Who gave them up; "" for nobody.
    """

    seqs: list[int]
    dead_lettered: int = 0
    redriven: bool = False
    reason: str = ""
    node: str = ""


class KeysRemembered(Event, frozen=True, array_like=True, tag=8):
    """Idempotency keys of a dropped segment, still inside their window.

    Attributes:
        keys: (key, time of the first write, first seq, count, head then).
        results: Of writes with keyed records, by idempotency key: see `RecordsReplaced`.
    """

    keys: list[tuple[str, int, int, int, int]]
    results: dict[str, list[tuple[int, int]]] = {}


class RouterCreated(Event, frozen=True, array_like=True, tag=9):
    """A router from `topic` to `dest` exists; it starts behind `cursor`."""

    router: int
    name: str
    dest: int
    cursor: int
    options: RouterOptions


class RouterConfigured(Event, frozen=True, array_like=True, tag=10):
    """A router of `topic` got new options."""

    router: int
    options: RouterOptions


class RouterRemoved(Event, frozen=True, array_like=True, tag=11):
    """A router of `topic` is gone. (Those of a dropped topic go with it, without this.)"""

    router: int


class RecordsForwarded(Event, frozen=True, array_like=True, tag=12):
    """A router appended copies of its source's records to `topic`.

    The copies' payload is not in the event: it follows from the source's records, which come
    earlier in the log. When a source segment was dropped, the copies that depend on it were moved
    before, so a replay that does not find the originals finds the copies later.

    Attributes:
        cursor: How far the router has come in its source.
        first_seq, count: The copies.
        source_first: First original.
        seqs: All originals; empty when they are consecutive.
        cap_floor, seqs_reserved, size, dropped: As in RecordsAppended.
    """

    router: int
    cursor: int
    first_seq: int
    count: int
    source_first: int
    seqs: list[int]
    cap_floor: int = 0
    seqs_reserved: int = 0
    size: int = 0
    dropped: int = 0

    @property
    def source_seqs(self) -> Sequence[int]:
        """The originals, ascending."""
        return self.seqs or range(self.source_first, self.source_first + self.count)


class RouterAdvanced(Event, frozen=True, array_like=True, tag=13):
    """A router into `topic` has examined its source up to a cursor.

    Attributes:
        forwarded: Copies made on the way, by a RecordsAppended beside this event.
    """

    router: int
    cursor: int
    forwarded: int = 0


class SeqsSkipped(Event, frozen=True, array_like=True, tag=14):
    """Seqs that readers are told of as lost: a router's source was trimmed before it got there."""

    first_seq: int
    count: int
    seqs_reserved: int = 0


class ChunkStaged(Event, frozen=True, array_like=True, tag=40):
    """A producer laid down records for `topic` that become visible with their epoch."""

    producer: str
    epoch: int
    partition: int
    attempt: str
    number: int
    block: bytes
    count: int
    size: int


class ChunksCommitted(Event, frozen=True, array_like=True, tag=41):
    """Staged chunks were appended to `topic`, in order. Their payload is in earlier frames, so a
    replay that begins behind those takes the seqs only, and meets the records as RecordsMoved.

    Attributes:
        chunks: (partition, attempt, number) of each.
        counts: Records of each chunk.
        first_seq: Seq of the first record; the others follow without a gap.
        cap_floor, seqs_reserved, dropped: As in RecordsAppended.
    """

    producer: str
    epoch: int
    chunks: list[tuple[int, str, int]]
    counts: list[int]
    first_seq: int
    cap_floor: int = 0
    seqs_reserved: int = 0
    dropped: int = 0


class EpochCommitted(Event, frozen=True, array_like=True, tag=42):
    """A producer's epoch is complete; what it staged for it and before is let go. `topic` is 0.

    Attributes:
        digest: Of the content.
        ranges: (topic name, first seq, last seq), to answer a repeated commit with.
    """

    producer: str
    epoch: int
    digest: bytes
    ranges: list[tuple[str, int, int]]


class StagedDropped(Event, frozen=True, array_like=True, tag=43):
    """What a producer had staged was not committed in time. `topic` is 0.

    Attributes:
        forget: The producer's last epoch is forgotten, too.
    """

    producer: str
    forget: bool = False


class JobsClaimed(Event, frozen=True, array_like=True, tag=16):
    """One claim pass leased jobs.

    Attributes:
        first_lease: Lease number of the first seq of the first grant; they count up from there.
        cursor: First seq that has never been offered, after this pass.
        grants: (node, deadline, stream, seqs), one per claimer that got something.
        overdue: The cursor may have passed jobs beyond their TTL that found no room where they are
            to go.
    """

    log: ClassVar[int] = LEASES

    first_lease: int
    cursor: int
    grants: list[tuple[str, int, int, list[int]]]
    overdue: bool = False


class JobsAcked(Event, frozen=True, array_like=True, tag=17):
    """Jobs are complete. In the jobs log it is the delete, in the leases log the lease's end.
    `orphans` of them had lost their record before and were counted then."""

    log: ClassVar[int] = BOTH

    node: str
    seqs: list[int]
    orphans: int = 0


class JobsReleased(Event, frozen=True, array_like=True, tag=18):
    """Leases ended without an ack; claimable again at `ready_at`.

    Attributes:
        reason: "nack", "disconnect", "postponed" (its dead-letter topic had no room), "reject" (its
            record was gone) or "restart" (of a server that does not keep the queue's leases).
        ready_at: ms since the epoch; not later than `at` means at once.
        error: What went wrong, or None to keep what was said before.
        uncounted: The deliveries are given back, too.
        dues: The same as `ready_at` for each of the seqs, when they differ.
        given_back: The deliveries do not count towards `max_deliveries`.
    """

    log: ClassVar[int] = LEASES

    node: str
    reason: str
    ready_at: int
    seqs: list[int]
    error: str | None = None
    uncounted: bool = False
    dues: list[int] = []
    given_back: bool = False


class JobsExtended(Event, frozen=True, array_like=True, tag=19):
    """Held leases got a new deadline."""

    log: ClassVar[int] = LEASES

    node: str
    deadline: int
    seqs: list[int]


class RecordsFinished(Event, frozen=True, array_like=True, tag=20):
    """Records came to an end other than an ack. What an archive keeps of them is in the same
    transaction.

    Attributes:
        outcome: "rejected", "dropped", "expired", "superseded" or "cancelled". Leases of expired
            ones last on, so that their holders can settle; all others are void.
        node: Who finished them, "" when time or an operator did.
    """

    outcome: str
    node: str
    seqs: list[int]


class JobsHeld(Event, frozen=True, array_like=True, tag=21):
    """Jobs are parked until an operator comes. Said again when the segment that says it goes.

    Attributes:
        jobs: (seq, deliveries, last error).
        again: Nothing has happened: it was said before, in a segment that goes.
        reason: Why they failed: "rejected" or "max_deliveries"; "" where that was not kept.
        node: Who gave them up; "" for nobody.
    """

    log: ClassVar[int] = BOTH

    jobs: list[tuple[int, int, str | None]]
    again: bool = False
    reason: str = ""
    node: str = ""


class HoldsReleased(Event, frozen=True, array_like=True, tag=22):
    """Held jobs are ready again, as if they had never been delivered."""

    log: ClassVar[int] = BOTH

    seqs: list[int]


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
    """

    blocks: list[bytes]
    key: str | None
    results: list[tuple[int, int]]
    head: int


RESULTS: tuple[Literal["created", "replaced", "kept"], ...] = ("created", "replaced", "kept")


class BackoffChanged(Event, frozen=True, array_like=True, tag=24):
    """The queue has another `retry_backoff` from now on; the config is in the jobs log.

    The leases log may reach further back than the jobs log. Only this tells it which rule was in
    force when a lease ran out.

    Attributes:
        before: The rule until now.
    """

    log: ClassVar[int] = LEASES

    before: BackoffOptions | None


class JobsRescheduled(Event, frozen=True, array_like=True, tag=25):
    """Waiting jobs that had been delivered before were replaced, and come by their new time.

    `RecordsReplaced` says the same. The leases log may reach further back than the jobs log, and
    would otherwise go by what came before.

    Attributes:
        dues: When each is claimable; 0 means at once.
    """

    log: ClassVar[int] = LEASES

    seqs: list[int]
    dues: list[int]


class Checkpointed(Event, frozen=True, array_like=True, tag=32):
    """A checkpoint, or a part of one. The first stands at the head of a jobs log segment: the log
    can be replayed from there, and what is older may be dropped once its live records have been
    moved and the last part is durable.

    Attributes:
        clean: It marks an orderly shutdown.
        oldest: First segment still needed (0 in logs from before that was noted).
        begun: Segment in which the first part stands (0 in logs from before there were parts).
        more: Further parts follow, perhaps with other events in between.
    """

    topics: list[TopicKept]
    next_topic: int
    next_lease: int
    clean: bool = False
    oldest: int = 0
    routers: list[RouterKept] = []
    begun: int = 0
    more: bool = False
    producers: list[ProducerKept] = []


class SegmentsDropped(Event, frozen=True, array_like=True, tag=34):
    """Jobs-log segments before `kept_from` are no longer needed and may be gone."""

    kept_from: int


class LeasesCheckpointed(Event, frozen=True, array_like=True, tag=33):
    """A part of a leases checkpoint: some jobs of a queue as they are at this place in the log.
    Jobs that are not named stay as they were."""

    log: ClassVar[int] = LEASES

    cursor: int
    jobs: list[JobKept]


AnyEvent = (
    TopicCreated
    | TopicConfigured
    | TopicRemoved
    | RecordsAppended
    | RecordsMoved
    | RecordsTrimmed
    | RecordsRemoved
    | KeysRemembered
    | RouterCreated
    | RouterConfigured
    | RouterRemoved
    | RecordsForwarded
    | RouterAdvanced
    | SeqsSkipped
    | ChunkStaged
    | ChunksCommitted
    | EpochCommitted
    | StagedDropped
    | JobsClaimed
    | JobsAcked
    | JobsReleased
    | JobsExtended
    | RecordsFinished
    | JobsHeld
    | HoldsReleased
    | RecordsReplaced
    | BackoffChanged
    | JobsRescheduled
    | Checkpointed
    | LeasesCheckpointed
    | SegmentsDropped
)


class Transaction(msgspec.Struct, frozen=True, array_like=True):
    """The events of one decision, in one frame: all of them happened or none.

    Attributes:
        order: Position among all decisions; replay merges the two logs by it.
    """

    order: int
    events: list[AnyEvent]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Transaction)


LOST: Final = _encoder.encode(Transaction(0, []))
"""The payload of a frame that stands for one that was lost to damage: no event, no order."""


LARGE_BLOCK_BYTES = 1 << 20
"""Blocks from here on go to the log as they are: see `encode_parts`."""
_BLOCK_PLACE = bytes.fromhex("a3f1c07e5b924d188c0fe6d1b7402955")


def encode(order: int, events: list[AnyEvent]) -> bytes:
    """The frame payload of a transaction."""
    assert events, "an empty decision is not logged"
    return _encoder.encode(Transaction(order, events))


def encode_parts(order: int, events: list[AnyEvent]) -> list[bytes]:
    """The same in parts: the block of a large write is not copied."""
    large = [e for e in events if type(e) is RecordsAppended and len(e.block) >= LARGE_BLOCK_BYTES]
    if len(large) == 1:
        block = large[0].block
        bare = msgspec.structs.replace(large[0], block=_BLOCK_PLACE)
        payload = encode(order, [bare if event is large[0] else event for event in events])
        around = payload.split(b"\xc4%c%b" % (len(_BLOCK_PLACE), _BLOCK_PLACE))
        if len(around) == 2:
            return [b"%b\xc6%b" % (around[0], len(block).to_bytes(4, "big")), block, around[1]]
    return [encode(order, events)]


def decode(payload: bytes) -> Transaction:
    """Read a frame payload.

    Raises:
        msgspec.DecodeError: The bytes are not a transaction of this version.
    """
    return _decoder.decode(payload)
