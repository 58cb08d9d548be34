"""Wishes: what a caller wants, already typed and bounded, before anybody said yes.

Owns: one struct per command and per reply. Must not know: how a wish is decided, HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from logqueue.core.config import TopicConfig
from logqueue.core.predicate import Predicate


class PutTopic(msgspec.Struct, frozen=True):
    """Create a topic or replace its whole config. `config` is resolved."""

    topic: str
    config: TopicConfig


class DropTopic(msgspec.Struct, frozen=True):
    """Delete a topic with everything in it."""

    topic: str
    if_empty: bool = False


class Append(msgspec.Struct, frozen=True):
    """Write a batch.

    Attributes:
        block: The records, encoded by `block.pack`.
        count: Records in the block.
        key: Idempotency key, or None.
        create: True creates an absent topic, False never does, None asks `config.auto_create`.
        config: Config for a topic this write creates; ignored when the topic exists.
    """

    topic: str
    block: bytes
    count: int
    key: str | None = None
    create: bool | None = None
    config: TopicConfig | None = None


class Claimer(msgspec.Struct, frozen=True):
    """One party of a claim pass: a claim call, or a work stream with free slots.

    Attributes:
        jobs_max: How many jobs it wants.
        lease_ms: Clamped lease duration, or None for the queue's.
        stream: Identity of the work stream that will hold the leases; 0 for a claim call.
    """

    node: str
    jobs_max: int
    lease_ms: int | None = None
    stream: int = 0


class Claim(msgspec.Struct, frozen=True):
    """One coordinator pass: share the claimable jobs evenly over the whole cohort.

    Without `divert`, jobs delivered too often are passed over instead of dead-lettered.
    """

    topic: str
    cohort: tuple[Claimer, ...]
    divert: bool = True


class Ack(msgspec.Struct, frozen=True):
    """Complete jobs: the permanent delete. `tokens` are lease numbers, None where unfenced."""

    topic: str
    node: str
    seqs: Sequence[int]
    tokens: Sequence[int | None] | None = None


class Nack(msgspec.Struct, frozen=True):
    """Give jobs back, claimable again after `delay_ms`."""

    topic: str
    node: str
    seqs: Sequence[int]
    tokens: Sequence[int | None] | None = None
    delay_ms: int = 0


class Extend(msgspec.Struct, frozen=True):
    """Set the deadline of held leases to now + `lease_ms`."""

    topic: str
    node: str
    seqs: Sequence[int]
    lease_ms: int
    tokens: Sequence[int | None] | None = None


class ReleaseStream(msgspec.Struct, frozen=True):
    """Give back every job still leased over one work stream."""

    topic: str
    stream: int


class DeleteRecords(msgspec.Struct, frozen=True):
    """Delete live records below a seq and/or matching a tag predicate, for good and silently."""

    topic: str
    before_seq: int | None = None
    match: Predicate | None = None


class Expire(msgspec.Struct, frozen=True):
    """Let time act on a topic: records past their TTL go. Submitted by the coordinator only."""

    topic: str


class Compact(msgspec.Struct, frozen=True):
    """Write the live records of neighbouring batches anew, so that old segments can be dropped.

    Attributes:
        first_seqs: First seqs of the batches, ascending and adjacent in the topic.
    """

    topic: str
    first_seqs: Sequence[int]


Command = (
    PutTopic
    | DropTopic
    | Append
    | Claim
    | Ack
    | Nack
    | Extend
    | ReleaseStream
    | DeleteRecords
    | Expire
    | Compact
)


class Put(NamedTuple):
    """Reply to PutTopic."""

    created: bool
    config: TopicConfig


class Dropped(NamedTuple):
    """Reply to DropTopic."""

    deleted: bool


class Appended(NamedTuple):
    """Reply to Append."""

    first_seq: int
    records: int
    head_seq: int
    created: bool
    deduped: bool


class Job(NamedTuple):
    """One leased job as handed out.

    Attributes:
        lease: Lease number; `lease_` + hex on the wire.
        deadline: ms since the epoch.
        deliveries: Claims of this job so far, this one included.
        data, tag, meta: JSON fragments; b"" when absent.
    """

    seq: int
    lease: int
    deadline: int
    ts: int
    deliveries: int
    data: bytes
    tag: bytes
    meta: bytes


class Claimed(NamedTuple):
    """Reply to Claim: jobs per claimer in the cohort's order, each ascending, and what is left."""

    jobs: list[list[Job]]
    ready: int


class Settled(NamedTuple):
    """Reply to Ack and Nack: how many counted, which did not, and the counters after it."""

    settled: int
    skipped: list[int]
    ready: int
    in_flight: int


class Extended(NamedTuple):
    """Reply to Extend: the seqs that counted (repeats and all), the rest, the new deadline."""

    seqs: list[int]
    skipped: list[int]
    deadline: int


class Removed(NamedTuple):
    """Reply to DeleteRecords: how many were removed, and the topic's state after it."""

    deleted: int
    earliest_seq: int
    head_seq: int
    live: int
    live_bytes: int


class Done(NamedTuple):
    """Reply to commands that only the server itself submits."""

    total: int = 0


Reply = Put | Dropped | Appended | Claimed | Settled | Extended | Removed | Done
