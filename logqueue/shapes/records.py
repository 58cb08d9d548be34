"""Shapes of refusals, reading and writing. See the package."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import field

from logqueue.shapes.values import GapReason, Performance

# -- refusals -----------------------------------------------------------------------------------


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call was refused. Branch on `code`; `message` is for people."""

    code: str
    message: str
    detail: dict[str, Any] | None = None


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every reply that is not a success."""

    error: ErrorBody


# -- records and reading ------------------------------------------------------------------------


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One record, as reading shows it.

    Attributes:
        seq: Its place in the topic, from 1, never given out twice.
        ts: When the server took it in.
        data: What the producer sent: any JSON value.
        node: Who produced it, if it said so.
    """

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    data: Any
    node: str | None = field(name="$node", default=None)
    tag: str | None = field(name="$tag", default=None)
    meta: Any = None


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """Records that are gone and that the reader had not seen: `gap_from` to `gap_to`, inclusive.

    Attributes:
        earliest_seq: Where reading continues.
        missed_estimate: How many at most; frames of a watch leave it out.
    """

    gap_from: int
    gap_to: int
    reason: GapReason
    earliest_seq: int
    head_seq: int
    missed_estimate: int | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to a diff.

    Attributes:
        next_from_seq: The last seq that was looked at: the next page's `from_seq`.
        lag: How far that is behind the head.
    """

    topic: str
    records: list[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    lag: int
    performance: Performance = {}


class RecordsDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to deleting records."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
    performance: Performance = {}


# -- writing ------------------------------------------------------------------------------------


class WriteResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a keyed write did with one record."""

    seq: int
    result: Literal["created", "replaced", "kept"]


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to a write.

    Attributes:
        seqs: The records' seqs in order; None when not asked for.
        count: How many records the write had.
        created: This write made the topic.
        deduped: The idempotency key was known: this is the answer to the first write with it.
        results: What became of each record, when any of them had a key.
        created_count: How many of the records are new jobs, when any of them had a key.
    """

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    seqs: list[int] | None = None
    results: list[WriteResult] | None = None
    created_count: int | None = None
    performance: Performance = {}
