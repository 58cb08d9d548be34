"""Shapes of background operations. See the package."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from logqueue.shapes.values import Performance

OperationStateName = Literal["running", "done", "failed", "cancelled"]


class OperationError(msgspec.Struct, frozen=True, kw_only=True):
    """Why an operation failed."""

    code: str
    message: str


class BackgroundStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A background operation, and how far it is.

    Attributes:
        total: How many jobs or records there are to examine, as far as that is known.
        scanned: How many of them were examined.
        matched: How many of those the operation selects.
        changed: How many were changed; of a dry run, how many would be.
        skipped: How many were selected, but changed by others before their turn came.
        finished_at: Once it is over.
        error: Of one that failed.
        targets: Of a redrive: where the letters went.
        undo: What undoes it: the body of a change of jobs in the same queue. None where nothing
            does.
    """

    id: str
    action: str
    topic: str
    state: OperationStateName
    dry_run: bool
    total: int
    scanned: int
    matched: int
    changed: int
    skipped: int
    started_at: int
    rate_per_s: int | None = None
    finished_at: int | None = None
    error: OperationError | None = None
    targets: list[str] | None = None
    undo: dict[str, Any] | None = None


class BackgroundReply(msgspec.Struct, frozen=True, kw_only=True):
    """Reply about one background operation."""

    operation: BackgroundStatus
    performance: Performance = {}


class BackgroundList(msgspec.Struct, frozen=True, kw_only=True):
    """The operations that the server remembers, the latest first."""

    operations: list[BackgroundStatus]
    performance: Performance = {}
