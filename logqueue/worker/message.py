"""A job on its way to a queue, as senders and middleware see it.

Owns: its members, and the record it becomes. Must not know: tasks, who sends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from logqueue.client.appending import NewRecord, NextStep

OnConflict = Literal["replace", "keep", "reject"]
Unique = Literal["waiting", "running", "kept"]


@dataclass(slots=True, kw_only=True)
class Message:
    """A job that is about to be sent. Middleware may change it.

    Attributes:
        data: What its handler will get.
        meta: What travels beside it.
        delay_ms: Out of sight for so long.
        ttl_ms: Gone after so long, done or not.
        key: At most one waiting job of a queue has it.
        on_conflict: What happens to a job with this key; None for the server's default.
        unique: How long the job has its key; None for as long as it waits.
        max_deliveries: Overrides the queue's.
        priority: 0 to 9; jobs with a higher one go first.
        group: Whose job it is, for queues that have `groups`.
        then: The jobs that follow it, one after the other; see `chain`.
        batch: The batch that it is in.
    """

    queue: str
    data: Any
    tag: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    delay_ms: int | None = None
    ttl_ms: int | None = None
    key: str | None = None
    on_conflict: OnConflict | None = None
    max_deliveries: int | None = None
    priority: int | None = None
    group: str | None = None
    unique: Unique | None = None
    then: list[Message] = field(default_factory=list)
    batch: str | None = None

    def record(self) -> NewRecord:
        """The record to write."""
        return NewRecord(
            self.data,
            tag=self.tag,
            meta=self.meta or None,
            delay_ms=self.delay_ms,
            ttl_ms=self.ttl_ms,
            max_deliveries=self.max_deliveries,
            key=self.key,
            on_conflict=self.on_conflict,
            priority=self.priority,
            group=self.group,
            unique=self.unique,
            then=[NextStep(step.queue, step.record()) for step in self.then] or None,
            batch=self.batch,
        )
