"""Events of what queues keep of jobs that have ended."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from logqueue.events.event import JOBS, Event, JobEndKind, LoggedWhen, SpaceEffect, SyncedWhen

KeptEnd = tuple[int, JobEndKind, int, str, str, bytes, str | None]
"""An end as it is stated again: seq, outcome, time, node, reason, result, error."""


class JobTexts(Event, frozen=True, array_like=True, tag=28):
    """Results and errors of jobs that another event of the same transaction has ended.

    Attributes:
        results: (seq, JSON) of those that have a result.
        errors: (seq, text) of those that have an error.
        keys: (seq, key as a JSON string) of those that have their key beyond their end.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "as_configured"
    space: ClassVar[SpaceEffect] = "takes"
    wakes_readers: ClassVar[bool] = False

    results: list[tuple[int, bytes]]
    errors: list[tuple[int, str]] = msgspec.field(default_factory=list)
    keys: list[tuple[int, bytes]] = msgspec.field(default_factory=list)


class EndsKept(Event, frozen=True, array_like=True, tag=29):
    """Ends that only a segment tells of that is about to be dropped.

    Attributes:
        keys: As of `JobTexts`.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "never"
    wakes_readers: ClassVar[bool] = False

    ends: list[KeptEnd]
    keys: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
