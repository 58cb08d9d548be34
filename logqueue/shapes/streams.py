"""Shapes of watch sessions and of the frames of event streams. See the package."""

from __future__ import annotations

import msgspec

from logqueue.shapes.queues import Job
from logqueue.shapes.records import Record, Tombstone
from logqueue.shapes.values import Performance


class WatchedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session begins on one of its topics, and what the topic holds."""

    from_seq: int
    head_seq: int
    earliest_seq: int


class WatchSession(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to creating a watch session.

    Attributes:
        wid: Its id.
        stream_url: Where its stream is, relative to the server.
        session_ttl_ms: How long it lives without an open stream.
    """

    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, WatchedTopic]
    performance: Performance = {}


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """Event `record` of a watch: records of one topic, ascending.

    Attributes:
        from_seq: The cursor before this frame.
        to_seq: The cursor after it; may be above the last record's seq.
    """

    topic: str
    records: list[Record]
    from_seq: int
    to_seq: int
    head_seq: int


class Gap(Tombstone, frozen=True, kw_only=True):
    """Event `tombstone` of a watch: a tombstone that says which topic has it."""

    topic: str


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True):
    """Event `caught-up` of a watch: everything up to `head_seq` was sent."""

    topic: str
    head_seq: int


class TopicDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """Event `topic-deleted` of a watch: the last frame for this topic."""

    topic: str
    head_seq: int = 0
    reason: str = "deleted"


class JobFrame(Job, frozen=True, kw_only=True):
    """Event `job` of a work stream: a leased job and its queue."""

    topic: str


class StreamError(msgspec.Struct, frozen=True, kw_only=True):
    """Event `error`: why the server ends a stream.

    Attributes:
        code: `server_shutting_down`, or 409 on a work stream whose claim failed.
        message: For people (`error` on work streams, see there).
    """

    code: str | int
    message: str | None = None
    error: str | None = None
    topic: str | None = None
