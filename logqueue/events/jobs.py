"""Events of jobs: claimed, acked, released, extended, held."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import msgspec

from logqueue.events.event import (
    BOTH,
    LEASES,
    Event,
    JobChange,
    LoggedWhen,
    SpaceEffect,
    SyncedWhen,
)
from logqueue.model.config import BackoffOptions


class JobsClaimed(Event, frozen=True, array_like=True, tag=16):
    """One claim pass leased jobs.

    Attributes:
        first_lease: Lease number of the first seq of the first grant; they count up from there.
        cursor: First seq that has never been offered, after this pass.
        grants: (node, deadline, stream, seqs), one per claimer that got something.
        overdue: The cursor may have passed jobs beyond their TTL that found no room where they are
            to go.
    """

    log: ClassVar[int] = LEASES
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "as_configured"
    wakes_readers: ClassVar[bool] = False

    first_lease: int
    cursor: int
    grants: list[tuple[str, int, int, list[int]]]
    overdue: bool = False

    def job_changes(self) -> Iterable[JobChange]:
        """See `Event.job_changes`."""
        changes = []
        lease = self.first_lease
        for node, deadline, _, seqs in self.grants:
            changes.append(JobChange("claimed", seqs, node, len(seqs), lease, deadline))
            lease += len(seqs)
        return changes


class JobsAcked(Event, frozen=True, array_like=True, tag=17):
    """Jobs are complete. In the jobs log it is the delete, in the leases log the lease's end.

    Attributes:
        node: Who acked them, where it was one node.
        orphans: How many of them had lost their record before and were counted then.
        shares: Where it were several nodes: each with how many of the seqs, in their order. `node`
            is "" then.
        done: How many of them were in which batch.
    """

    log: ClassVar[int] = BOTH
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "as_configured"
    space: ClassVar[SpaceEffect] = "frees"

    node: str
    seqs: list[int]
    orphans: int = 0
    shares: list[tuple[str, int]] = msgspec.field(default_factory=list)
    done: list[tuple[str, int]] = msgspec.field(default_factory=list)

    def job_changes(self) -> Iterable[JobChange]:
        """See `Event.job_changes`."""
        if not self.shares:
            return (JobChange("acked", self.seqs, self.node, len(self.seqs)),)
        changes = []
        start = 0
        for node, count in self.shares:
            stop = start + count
            changes.append(JobChange("acked", self.seqs[start:stop], node, count))
            start = stop
        return changes


class JobsReleased(Event, frozen=True, array_like=True, tag=18):
    """Leases ended without an ack; claimable again at `ready_at`.

    Attributes:
        reason: "nack", "disconnect", "postponed" (its dead-letter topic had no room), "reject" (its
            record was gone), "restart" (of a server that does not keep the queue's leases) or
            "returned" (by an operator).
        ready_at: ms since the epoch; not later than `at` means at once.
        error: What went wrong, or None to keep what was said before.
        uncounted: The deliveries are given back, too.
        dues: The same as `ready_at` for each of the seqs, when they differ.
        given_back: The deliveries do not count towards `max_deliveries`.
    """

    log: ClassVar[int] = LEASES
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "as_configured"

    node: str
    reason: str
    ready_at: int
    seqs: list[int]
    error: str | None = None
    uncounted: bool = False
    dues: list[int] = msgspec.field(default_factory=list)
    given_back: bool = False

    def job_changes(self) -> Iterable[JobChange]:
        """See `Event.job_changes`."""
        jobs = len(self.seqs)
        return (
            JobChange(
                "released",
                self.seqs,
                self.node,
                jobs,
                dues=self.dues or [self.ready_at] * jobs,
                reason=self.reason,
                error=self.error,
                uncounted=self.uncounted,
                given_back=self.given_back,
            ),
        )


class JobsExtended(Event, frozen=True, array_like=True, tag=19):
    """Held leases got a new deadline.

    Attributes:
        progress: How far the jobs are, 0 to 1; None leaves what was said before.
        note: What their worker says of it; None leaves what was said before.
    """

    log: ClassVar[int] = LEASES
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "as_configured"

    node: str
    deadline: int
    seqs: list[int]
    progress: float | None = None
    note: str | None = None

    def job_changes(self) -> Iterable[JobChange]:
        """See `Event.job_changes`."""
        return (
            JobChange(
                "extended",
                self.seqs,
                self.node,
                len(self.seqs),
                deadline=self.deadline,
                progress=self.progress,
                note=self.note,
            ),
        )


class JobsHeld(Event, frozen=True, array_like=True, tag=21):
    """Jobs are parked until an operator comes. Logged again when its segment is dropped.

    Attributes:
        jobs: (seq, deliveries, last error).
        again: Nothing has happened: it was said before, in a segment that goes.
        reason: Why: "rejected", "max_deliveries", "unreadable" when the disk does not give their
            data, or "operator"; "" where that was not kept.
        node: The node that gave them up; "" when no worker did.
    """

    log: ClassVar[int] = BOTH
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "as_configured"

    jobs: list[tuple[int, int, str | None]]
    again: bool = False
    reason: str = ""
    node: str = ""

    def job_changes(self) -> Iterable[JobChange]:
        """See `Event.job_changes`. An event that repeats an earlier one is not a change."""
        if self.again or not self.jobs:
            return ()
        seqs, _, errors = zip(*self.jobs, strict=True)
        jobs = len(seqs)
        return (JobChange("held", seqs, self.node, jobs, reason=self.reason, errors=errors),)


class HoldsReleased(Event, frozen=True, array_like=True, tag=22):
    """Held jobs are ready again, as if they had never been delivered."""

    log: ClassVar[int] = BOTH
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "as_configured"

    seqs: list[int]

    def job_changes(self) -> Iterable[JobChange]:
        """See `Event.job_changes`."""
        return (JobChange("unheld", self.seqs, "", len(self.seqs)),)


class JobsRetimed(Event, frozen=True, array_like=True, tag=26):
    """An operator gave waiting jobs another time; deliveries and errors stay as they are.

    Attributes:
        ready_at: When they are claimable, ms since the epoch; not later than `at` means at once.
        reason: "delayed" or "retried".
    """

    log: ClassVar[int] = LEASES
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "as_configured"

    seqs: list[int]
    ready_at: int
    reason: str

    def job_changes(self) -> Iterable[JobChange]:
        """See `Event.job_changes`."""
        jobs = len(self.seqs)
        dues = [self.ready_at] * jobs
        return (JobChange("released", self.seqs, "", jobs, dues=dues, reason=self.reason),)


class BackoffChanged(Event, frozen=True, array_like=True, tag=24):
    """The queue has another `retry_backoff` from now on; the config is in the jobs log.

    The leases log may reach further back than the jobs log. Only this tells it which rule was in
    force when a lease ran out.

    Attributes:
        before: The rule until now.
    """

    log: ClassVar[int] = LEASES
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "as_configured"

    before: BackoffOptions | None


class JobsRescheduled(Event, frozen=True, array_like=True, tag=25):
    """Waiting jobs that had been delivered before were replaced, and come by their new time.

    `RecordsReplaced` says the same. The leases log may reach further back than the jobs log, and
    would otherwise go by what came before.

    Attributes:
        dues: When each is claimable; 0 means at once.
    """

    log: ClassVar[int] = LEASES
    logged: ClassVar[LoggedWhen] = "topic_on_disk"
    synced: ClassVar[SyncedWhen] = "as_configured"

    seqs: list[int]
    dues: list[int]
