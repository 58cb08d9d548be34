"""Shapes of batches of jobs. See the package."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from logqueue.shapes.values import Performance

BatchPhase = Literal["open", "closed", "ended"]


class BatchCallbackView(msgspec.Struct, frozen=True, kw_only=True):
    """A record that is written when a batch ends, as it was sent."""

    topic: str
    record: Any


class BatchProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why the callback of a batch was refused last; it is tried again."""

    code: str
    message: str


class BatchEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A batch in the list.

    Attributes:
        state: "closed" until its last job has ended and the callback is written.
        joined: Jobs that were ever in it.
        done: Jobs that were acked.
        failed: Jobs that ended otherwise: rejected, dead-lettered, expired, cancelled, replaced,
            dropped, or gone with their topic.
        left: Jobs that have not ended.
        last_error: Why the callback of a batch that is over was refused; null when it was not.
    """

    batch: str
    state: BatchPhase
    joined: int
    done: int
    failed: int
    left: int
    created_at: int
    closed_at: int | None
    ended_at: int | None
    last_error: BatchProblem | None


class BatchState(BatchEntry, frozen=True, kw_only=True):
    """A batch of jobs.

    Attributes:
        on_done: Written when all jobs were acked; without an `on_problem`, always.
        on_problem: Written when some have failed.
        created: This call made it; only in the reply to opening it.
    """

    on_done: BatchCallbackView | None
    on_problem: BatchCallbackView | None
    created: bool | None = None
    performance: Performance = {}


class BatchPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list of batches; `next_cursor` only when there is more."""

    batches: list[BatchEntry]
    next_cursor: str | None = None
    performance: Performance = {}


class BatchDropped(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to deleting a batch; `deleted` is false when there was none."""

    batch: str
    deleted: bool
    performance: Performance = {}
