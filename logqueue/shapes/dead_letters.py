"""Shapes of replies about dead letters, and about the edit of a job. See the package."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import field

from logqueue.shapes.values import JobState, Performance


class JobEdited(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to an edit of one job: its state before and after."""

    topic: str
    seq: int = field(name="$seq")
    was: JobState
    state: JobState
    performance: Performance = {}


class DeadLetterExample(msgspec.Struct, frozen=True, kw_only=True):
    """One letter of a group, the latest.

    Attributes:
        src_seq: The job it was.
        error: The whole error.
        data: Left out when it is over 4 KiB; `data_bytes` says how large it is then.
    """

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    tag: str | None = field(name="$tag", default=None)
    src_seq: int | None = None
    deliveries: int | None = None
    error: str | None = None
    data: Any = None
    data_bytes: int | None = None


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one queue that have one reason and one kind of error.

    Attributes:
        topic: Where they are.
        queue: Where they came from; None for records that are not dead letters.
        error: Their error, with `*` for numbers and identifiers; "" when there was none; None for
            the letters of all further groups. A redrive or drop by it selects this group.
        per_hour: How many came in each of the last 24 hours, the oldest hour first.
    """

    topic: str
    count: int
    first_at: int
    last_at: int
    per_hour: list[int]
    queue: str | None = None
    reason: str | None = None
    error: str | None = None
    example: DeadLetterExample | None = None


class DeadLetterTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A dead-letter topic, and the queues whose jobs go there."""

    topic: str
    count: int
    queues: list[str]


class DeadLetterGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters in groups, the largest first.

    Attributes:
        total: Records in these topics.
        group_count: How many groups there are; the list may be shorter.
        ungrouped: Letters that are in no group, since a topic has over two million.
    """

    total: int
    topics: list[DeadLetterTopic]
    groups: list[DeadLetterGroup]
    group_count: int
    ungrouped: int | None = None
    performance: Performance = {}
