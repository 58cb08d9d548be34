"""Facts: what has happened, as the logs keep it.

Owns: one tagged struct per event, and the transaction that holds the events of one decision; their
bytes are msgpack arrays, so that new fields can be appended with a default and old logs stay
readable. Must not know: why something happened, how it changes the state.

Every event carries `at`, the coordinator's clock when it was decided; replay never asks the time.
Topics are named by `topic`, the number of the topic *instance*: a deleted and recreated topic is
another one. An event goes to the jobs log (what work exists) or the leases log (who holds what).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from logqueue.core.config import TopicConfig

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
    config: TopicConfig


class TopicConfigured(Event, frozen=True, array_like=True, tag=2):
    """The whole config was replaced."""

    config: TopicConfig


class TopicDropped(Event, frozen=True, array_like=True, tag=3):
    """The instance and all it held is gone."""


class RecordsAppended(Event, frozen=True, array_like=True, tag=4):
    """A batch got consecutive seqs from `first_seq`.

    Attributes:
        block: The records (see `logqueue.core.block`).
        cap_floor: Highest seq that caps have evicted, this batch counted in.
        key: Idempotency key, or None.
        seqs_reserved: Highest seq promised never to be handed out twice (0: no promise needed).
        size: Bytes of the records as the limits count them.
    """

    first_seq: int
    count: int
    block: bytes
    cap_floor: int = 0
    key: str | None = None
    seqs_reserved: int = 0
    size: int = 0


class RecordsMoved(Event, frozen=True, array_like=True, tag=5):
    """Live records were written anew; they replace every batch in their range of seqs.

    Attributes:
        block: The survivors, with their own seqs and times as number columns.
        span: First and last seq of the range that is replaced.
    """

    block: bytes
    span: tuple[int, int]


class RecordsTrimmed(Event, frozen=True, array_like=True, tag=6):
    """The front was evicted up to a floor, by TTL or by caps after a config change."""

    ttl_floor: int
    cap_floor: int


class RecordsDeleted(Event, frozen=True, array_like=True, tag=7):
    """Records were deleted on request: silent holes. `dead_lettered` of them moved elsewhere."""

    seqs: list[int]
    dead_lettered: int = 0


class KeysRemembered(Event, frozen=True, array_like=True, tag=8):
    """Idempotency keys of a dropped segment, still inside their window.

    Attributes:
        keys: (key, time of the first write, first seq, count, head then).
    """

    keys: list[tuple[str, int, int, int, int]]


class JobsClaimed(Event, frozen=True, array_like=True, tag=16):
    """One claim pass leased jobs.

    Attributes:
        first_lease: Lease number of the first seq of the first grant; they count up from there.
        cursor: First seq that has never been offered, after this pass.
        grants: (node, deadline, stream, seqs), one per claimer that got something.
    """

    log: ClassVar[int] = LEASES

    first_lease: int
    cursor: int
    grants: list[tuple[str, int, int, list[int]]]


class JobsAcked(Event, frozen=True, array_like=True, tag=17):
    """Jobs are complete. In the jobs log it is the delete, in the leases log the lease's end."""

    log: ClassVar[int] = BOTH

    node: str
    seqs: list[int]


class JobsReleased(Event, frozen=True, array_like=True, tag=18):
    """Leases ended without an ack; claimable again at `ready_at`.

    Attributes:
        reason: "nack", "disconnect" or "postponed" (its dead-letter topic had no room).
        ready_at: ms since the epoch; not later than `at` means at once.
    """

    log: ClassVar[int] = LEASES

    node: str
    reason: str
    ready_at: int
    seqs: list[int]


class JobsExtended(Event, frozen=True, array_like=True, tag=19):
    """Held leases got a new deadline."""

    log: ClassVar[int] = LEASES

    node: str
    deadline: int
    seqs: list[int]


class TopicKept(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint keeps of a topic: everything that no live record says."""

    topic: int
    name: str
    config: TopicConfig
    head: int
    seqs_reserved: int
    cap_floor: int
    ttl_floor: int
    last_write_at: int
    dead_lettered: int


class Checkpointed(Event, frozen=True, array_like=True, tag=32):
    """First frame of a jobs log segment: the log can be replayed from here, and what is older
    may be dropped once its live records have been moved. `clean` marks an orderly shutdown,
    `oldest` is the first segment still needed then (0 in logs from before that was noted)."""

    topics: list[TopicKept]
    next_topic: int
    next_lease: int
    clean: bool = False
    oldest: int = 0


class SegmentsDropped(Event, frozen=True, array_like=True, tag=34):
    """Jobs-log segments before `kept_from` are no longer needed and may be gone."""

    kept_from: int


class JobKept(msgspec.Struct, frozen=True, array_like=True):
    """What a leases checkpoint keeps of a job. `lease` 0: not leased; `ready_at` 0: no delay."""

    seq: int
    deliveries: int
    lease: int
    deadline: int
    stream: int
    ready_at: int
    node: str


class LeasesCheckpointed(Event, frozen=True, array_like=True, tag=33):
    """First frames of a leases log segment: the whole projection of one queue."""

    log: ClassVar[int] = LEASES

    cursor: int
    jobs: list[JobKept]


AnyEvent = (
    TopicCreated
    | TopicConfigured
    | TopicDropped
    | RecordsAppended
    | RecordsMoved
    | RecordsTrimmed
    | RecordsDeleted
    | KeysRemembered
    | JobsClaimed
    | JobsAcked
    | JobsReleased
    | JobsExtended
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


def encode(order: int, events: list[AnyEvent]) -> bytes:
    """The frame payload of a transaction."""
    assert events, "an empty decision is not logged"
    return _encoder.encode(Transaction(order, events))


def decode(payload: bytes) -> Transaction:
    """Read a frame payload.

    Raises:
        msgspec.DecodeError: The bytes are no transaction of this version.
    """
    return _decoder.decode(payload)
