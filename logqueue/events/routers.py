"""Events of routers, and of the records they copy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from logqueue.events.event import (
    JOBS,
    Event,
    JobChange,
    LoggedWhen,
    RecordVisitor,
    SpaceEffect,
    SyncedWhen,
    TopicVisitor,
)
from logqueue.events.records import evicted
from logqueue.model.config import RouterOptions


class RouterCreated(Event, frozen=True, array_like=True, tag=9):
    """A router from `topic` to `dest` exists; it starts behind `cursor`."""

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    changes_topology: ClassVar[bool] = True

    router: int
    name: str
    dest: int
    cursor: int
    options: RouterOptions

    def visit_topics(self, to: TopicVisitor) -> None:
        """See `Event.visit_topics`."""
        to.router_created(self, self.router, self.name, self.dest, self.cursor, self.options)


class RouterConfigured(Event, frozen=True, array_like=True, tag=10):
    """A router of `topic` got new options."""

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    changes_topology: ClassVar[bool] = True

    router: int
    options: RouterOptions

    def visit_topics(self, to: TopicVisitor) -> None:
        """See `Event.visit_topics`."""
        to.router_configured(self, self.router, self.options)


class RouterRemoved(Event, frozen=True, array_like=True, tag=11):
    """A router of `topic` is gone. (Those of a dropped topic go with it, without this.)"""

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    changes_topology: ClassVar[bool] = True

    router: int


class RecordsForwarded(Event, frozen=True, array_like=True, tag=12):
    """A router appended copies of its source's records to `topic`.

    The copies' payload is not in the event: it follows from the source's records, which come
    earlier in the log. When a source segment was dropped, the copies that depend on it were moved
    before, so a replay that does not find the originals finds the copies later.

    Attributes:
        cursor: How far the router has come in its source.
        first_seq, count: The copies.
        source_first: First original.
        seqs: All originals; empty when they are consecutive.
        cap_floor, seqs_reserved, size, dropped: As in RecordsAppended.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "topic_logged"
    synced: ClassVar[SyncedWhen] = "as_configured"
    space: ClassVar[SpaceEffect] = "takes"
    holds_records: ClassVar[bool] = True

    router: int
    cursor: int
    first_seq: int
    count: int
    source_first: int
    seqs: list[int]
    cap_floor: int = 0
    seqs_reserved: int = 0
    size: int = 0
    dropped: int = 0

    @property
    def source_seqs(self) -> Sequence[int]:
        """The originals, ascending."""
        return self.seqs or range(self.source_first, self.source_first + self.count)

    def visit_records(self, to: RecordVisitor) -> None:
        """See `Event.visit_records`."""
        to.copied(self, self.router, self.cursor, self.first_seq, self.source_seqs, self.size)
        if self.seqs_reserved:
            to.reserved(self, self.seqs_reserved)
        if self.cap_floor:
            to.trimmed(self)

    def job_changes(self) -> Iterable[JobChange]:
        """See `Event.job_changes`."""
        return evicted(self.cap_floor, self.dropped)


class RouterAdvanced(Event, frozen=True, array_like=True, tag=13):
    """A router into `topic` has examined its source up to a cursor.

    Attributes:
        forwarded: Copies made on the way, by a RecordsAppended beside this event.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "never"

    router: int
    cursor: int
    forwarded: int = 0

    def visit_records(self, to: RecordVisitor) -> None:
        """See `Event.visit_records`."""
        to.routed(self, self.router, self.cursor, self.forwarded)


class SeqsSkipped(Event, frozen=True, array_like=True, tag=14):
    """Seqs reported to readers as lost: a router's source was trimmed before it got there."""

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "always"

    first_seq: int
    count: int
    seqs_reserved: int = 0

    def visit_records(self, to: RecordVisitor) -> None:
        """See `Event.visit_records`."""
        to.skipped(self, self.first_seq, self.count)
        if self.seqs_reserved:
            to.reserved(self, self.seqs_reserved)
