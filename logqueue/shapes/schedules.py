"""Shapes of schedules. See the package."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from logqueue.shapes.topics import Drift
from logqueue.shapes.values import Performance

CatchUp = Literal["none", "one", "all"]
FiringResult = Literal["created", "replaced", "kept", "rejected"]


class ScheduleError(msgspec.Struct, frozen=True, kw_only=True):
    """Why the last try of a firing was refused; the firing is tried again.

    Attributes:
        retry_at: When.
    """

    code: str
    message: str
    retry_at: int | None = None


class ScheduleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule in the list.

    Attributes:
        cron: Five fields; null for one that has `every_ms`.
        every_ms: Time between two firings; null for one that has `cron`.
        next_at: Time of the next firing, to which jitter adds; null while it is paused.
        last_scheduled_for: Time of the last firing, which the job has in its `meta`.
        last_fired_at: When that came.
        last_seq: The job it made, replaced or found; null when it was refused for its key.
        last_result: What became of the record.
        last_error: Why the firing that is due was refused; null when it was not.
        fired: Firings that made a job, or gave one new content.
        skipped: Firings that a job with the key has kept from doing so.
        missed: Firings that were passed over, as `catch_up` says.
        failed: Tries that were refused since the start of the server.
    """

    schedule: str
    topic: str
    cron: str | None
    every_ms: int | None
    timezone: str
    jitter_ms: int
    catch_up: CatchUp
    paused: bool
    created_at: int
    next_at: int | None
    last_scheduled_for: int | None
    last_fired_at: int | None
    last_seq: int | None
    last_result: FiringResult | None
    last_error: ScheduleError | None
    fired: int
    skipped: int
    missed: int
    failed: int


class Schedule(ScheduleEntry, frozen=True, kw_only=True):
    """A schedule that writes a record at times of its own.

    Attributes:
        record: What it writes, as it was sent.
        next: Times of the next firings.
        created: This call made it; only in the reply to a put.
        differs: Per member that has another value; only in the reply to a put with `if_absent`.
    """

    record: Any
    next: list[int]
    created: bool | None = None
    differs: dict[str, Drift] | None = None
    performance: Performance = {}


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list of schedules; `next_cursor` only when there is more."""

    schedules: list[ScheduleEntry]
    next_cursor: str | None = None
    performance: Performance = {}


class ScheduleDropped(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to deleting a schedule; `deleted` is false when there was none."""

    schedule: str
    deleted: bool
    performance: Performance = {}


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to running a schedule now.

    Attributes:
        scheduled_for: Now, by the server's clock.
        seq: The job it made, replaced or found; null when it was refused for its key.
        result: What became of the record.
    """

    schedule: str
    topic: str
    scheduled_for: int
    seq: int | None
    result: FiringResult
    performance: Performance = {}


class Firings(msgspec.Struct, frozen=True, kw_only=True):
    """When a cron text fires; `next` is shorter than asked for when it ends."""

    cron: str
    timezone: str
    next: list[int]
    performance: Performance = {}
