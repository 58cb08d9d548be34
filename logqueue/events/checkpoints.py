"""Events of the logs themselves: checkpoints, and segments that may go."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from logqueue.events.event import JOBS, LEASES, Event, LoggedWhen, SyncedWhen, TopicVisitor
from logqueue.events.snapshots import (
    BatchSnapshot,
    JobSnapshot,
    ProducerSnapshot,
    RouterSnapshot,
    ScheduleSnapshot,
    TopicSnapshot,
)


class Checkpointed(Event, frozen=True, array_like=True, tag=32):
    """A checkpoint, or a part of one. The first is at the head of a jobs log segment: the log
    can be replayed from there, and what is older may be dropped once its live records have been
    moved and the last part is durable. `topic` is 0.

    Attributes:
        clean: It marks an orderly shutdown.
        oldest: First segment still needed (0 in logs from before that was noted).
        first_segment: Segment that holds the first part (0 in logs from before there were parts).
        more: Further parts follow, perhaps with other events in between.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    has_topic: ClassVar[bool] = False

    topics: list[TopicSnapshot]
    next_topic: int
    next_lease: int
    clean: bool = False
    oldest: int = 0
    routers: list[RouterSnapshot] = msgspec.field(default_factory=list)
    first_segment: int = 0
    more: bool = False
    producers: list[ProducerSnapshot] = msgspec.field(default_factory=list)
    schedules: list[ScheduleSnapshot] = msgspec.field(default_factory=list)
    batches: list[BatchSnapshot] = msgspec.field(default_factory=list)

    def visit_topics(self, to: TopicVisitor) -> None:
        """See `Event.visit_topics`."""
        to.checkpointed(self, self.topics, self.routers, self.producers, clean=self.clean)

    def needed_from(self) -> int:
        """See `Event.needed_from`."""
        return self.oldest


class LeasesCheckpointed(Event, frozen=True, array_like=True, tag=33):
    """A part of a leases checkpoint: some jobs of a queue as they are at this place in the log.
    Jobs that are not named stay as they were."""

    log: ClassVar[int] = LEASES
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "as_configured"

    cursor: int
    jobs: list[JobSnapshot]


class SegmentsDropped(Event, frozen=True, array_like=True, tag=34):
    """Jobs-log segments before `kept_from` are no longer needed and may be gone. `topic` is 0."""

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    has_topic: ClassVar[bool] = False

    kept_from: int

    def needed_from(self) -> int:
        """See `Event.needed_from`."""
        return self.kept_from
