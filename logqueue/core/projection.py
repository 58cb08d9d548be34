"""Who holds what: the lease projection of one queue.

Owns: leases, delivery counters, the reclaim freelist, delays and the claim cursor, and how they
change (called from `apply` only). Must not know: records, topics, commands, the log.

A job is in one of these places; a job never delivered has no entry at all:

    fresh      seq >= cursor, not in `jobs`
    leased     in `jobs` with a grant
    delayed    in `jobs` and in `delayed`, claimable at its time
    reclaimed  in `jobs` and in `reclaim`, claimable ahead of fresh jobs
    orphan     in `jobs` with a grant but `live` False: the record went while it was leased; the
               entry stays until the holder settles or the lease runs out

Expiry is lazy. `elapse(now)` is the only place where time acts; it is idempotent, and two calls
with rising times leave the same state as the last of them alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from sortedcontainers import SortedList

from logqueue.core.events import JobKept


class Grant:
    """The leases one claimer got in one pass: one holder, one deadline.

    Attributes:
        deadline: ms since the epoch; the leases are valid while now <= deadline.
        stream: Work stream that holds them, 0 for a claim call.
        live: How many of `seqs` are still under this grant.
    """

    __slots__ = ("deadline", "live", "node", "seqs", "stream")

    def __init__(self, node: str, deadline: int, stream: int, seqs: Sequence[int]) -> None:
        self.node = node
        self.deadline = deadline
        self.stream = stream
        self.seqs = seqs
        self.live = len(seqs)

    def __lt__(self, other: Grant) -> bool:
        return self.deadline < other.deadline


class Job:
    """A job that has been delivered at least once and is not finished."""

    __slots__ = ("deliveries", "grant", "lease", "live", "ready_at")

    def __init__(self) -> None:
        self.deliveries = 0
        self.lease = 0
        self.grant: Grant | None = None
        self.ready_at = 0
        self.live = True


class Queue:
    """The projection of one queue.

    Attributes:
        cursor: Lowest seq that has never been offered.
        leased: Live jobs under a lease (as of the last `elapse`).
        dead_lettered: Jobs moved to the dead-letter topic over this instance's life.
    """

    __slots__ = (
        "_grants", "_grants_spent", "cursor", "dead_lettered", "delayed", "jobs", "leased",
        "reclaim", "streams",
    )  # fmt: skip

    def __init__(self) -> None:
        self.cursor = 1
        self.jobs: dict[int, Job] = {}
        self.reclaim: SortedList[int] = SortedList()
        self.delayed: SortedList[tuple[int, int]] = SortedList()
        self.streams: dict[int, set[int]] = {}
        self.leased = 0
        self.dead_lettered = 0
        self._grants: list[Grant] = []
        self._grants_spent = 0

    # -- looking ---------------------------------------------------------------------------------

    def next_due(self) -> int | None:
        """When time next changes something (ms since the epoch), None when it never does."""
        due = self.delayed[0][0] if self.delayed else None
        if self._grants:
            expiry = self._grants[0].deadline + 1
            due = expiry if due is None else min(due, expiry)
        return due

    def held_by(self, stream: int) -> int:
        """How many unexpired leases a work stream holds."""
        held = self.streams.get(stream)
        return len(held) if held is not None else 0

    # -- changing (from apply only) --------------------------------------------------------------

    def elapse(self, now: int) -> None:
        """Let time act: expired leases and due delays become reclaimable."""
        while self._grants and self._grants[0].deadline < now:
            grant = heappop(self._grants)
            if not grant.live:
                self._grants_spent -= 1
                continue
            for seq in grant.seqs:
                job = self.jobs.get(seq)
                if job is not None and job.grant is grant:
                    self._unlease(seq, job, grant)
                    self._put_back(seq, job, 0)
        while self.delayed and self.delayed[0][0] <= now:
            _, seq = self.delayed.pop(0)
            self.jobs[seq].ready_at = 0
            self.reclaim.add(seq)

    def claim(self, grant: Grant, first_lease: int) -> None:
        """Lease jobs that are fresh or reclaimed."""
        jobs = self.jobs
        reclaim = self.reclaim
        lease = first_lease
        for seq in grant.seqs:
            job = jobs.get(seq)
            if job is None:
                job = jobs[seq] = Job()
            elif job.grant is None:
                if job.ready_at:
                    self.delayed.discard((job.ready_at, seq))
                    job.ready_at = 0
                reclaim.discard(seq)
            else:
                self._end_lease(seq, job)
            job.deliveries += 1
            job.lease = lease
            job.grant = grant
            lease += 1
        self.leased += len(grant.seqs)
        self._keep(grant)

    def extend(self, node: str, deadline: int, seqs: Iterable[int]) -> None:
        """Set a new deadline for held leases; a lease keeps its number, deliveries and stream."""
        by_stream: dict[int, list[int]] = {}
        for seq in dict.fromkeys(seqs):
            job = self.jobs.get(seq)
            if job is not None and job.grant is not None:
                by_stream.setdefault(job.grant.stream, []).append(seq)
        for stream, held in by_stream.items():
            grant = Grant(node, deadline, stream, held)
            for seq in held:
                job = self.jobs[seq]
                assert job.grant is not None
                self._spend(job.grant)
                job.grant = grant
            heappush(self._grants, grant)

    def release(self, seqs: Iterable[int], ready_at: int) -> None:
        """End leases without an ack; `ready_at` 0 means claimable at once."""
        for seq in seqs:
            job = self.jobs.get(seq)
            if job is None:
                continue
            if job.grant is not None:
                self._end_lease(seq, job)
            elif job.ready_at:
                self.delayed.discard((job.ready_at, seq))
                job.ready_at = 0
            else:
                self.reclaim.discard(seq)
            self._put_back(seq, job, ready_at)

    def finish(self, seqs: Iterable[int]) -> None:
        """Jobs are complete: their leases and counters go."""
        for seq in seqs:
            job = self.jobs.pop(seq, None)
            if job is not None:
                self._leave(seq, job)

    def forget(self, seqs: Sequence[int]) -> None:
        """Records were removed by eviction or delete. Leased ones stay as orphans."""
        if len(self.jobs) < len(seqs):
            seqs = [seq for seq in seqs if seq in self.jobs]
        for seq in seqs:
            job = self.jobs.get(seq)
            if job is None or not job.live:
                continue
            if job.grant is None:
                del self.jobs[seq]
                self._leave(seq, job)
            else:
                job.live = False
                self.leased -= 1

    def rewind(self, seq: int) -> None:
        """Seqs from here on are given anew. Only at replay: the leases log had kept more than the
        jobs log, and what it says about these seqs is about records that were lost."""
        self.finish([known for known in self.jobs if known >= seq])
        self.cursor = min(self.cursor, seq)

    def kept(self) -> list[JobKept]:
        """Every entry, for a checkpoint."""
        return [
            JobKept(
                seq,
                job.deliveries,
                job.lease if job.grant else 0,
                job.grant.deadline if job.grant else 0,
                job.grant.stream if job.grant else 0,
                job.ready_at,
                job.grant.node if job.grant else "",
            )
            for seq, job in self.jobs.items()
            if job.live
        ]

    def restore(self, cursor: int, kept: Iterable[JobKept]) -> None:
        """Become what a checkpoint says."""
        dead_lettered = self.dead_lettered
        self.__init__()  # type: ignore[misc]
        self.dead_lettered = dead_lettered
        self.cursor = cursor
        for entry in kept:
            job = self.jobs[entry.seq] = Job()
            job.deliveries = entry.deliveries
            if entry.lease:
                job.lease = entry.lease
                job.grant = Grant(entry.node, entry.deadline, entry.stream, [entry.seq])
                self.leased += 1
                self._keep(job.grant)
            else:
                self._put_back(entry.seq, job, entry.ready_at)

    # -- inside ----------------------------------------------------------------------------------

    def _keep(self, grant: Grant) -> None:
        heappush(self._grants, grant)
        if grant.stream:
            self.streams.setdefault(grant.stream, set()).update(grant.seqs)

    def _leave(self, seq: int, job: Job) -> None:
        """Take a job that is no longer in `jobs` out of every index."""
        if job.grant is not None:
            self._end_lease(seq, job)
        elif job.ready_at:
            self.delayed.discard((job.ready_at, seq))
        else:
            self.reclaim.discard(seq)

    def _end_lease(self, seq: int, job: Job) -> None:
        grant = job.grant
        assert grant is not None
        self._unlease(seq, job, grant)
        self._spend(grant)

    def _unlease(self, seq: int, job: Job, grant: Grant) -> None:
        job.grant = None
        if job.live:
            self.leased -= 1
        if grant.stream:
            held = self.streams.get(grant.stream)
            if held is not None:
                held.discard(seq)
                if not held:
                    del self.streams[grant.stream]

    def _put_back(self, seq: int, job: Job, ready_at: int) -> None:
        if not job.live:
            del self.jobs[seq]
        elif ready_at:
            job.ready_at = ready_at
            self.delayed.add((ready_at, seq))
        else:
            self.reclaim.add(seq)

    def _spend(self, grant: Grant) -> None:
        """One lease of a grant has ended. Spent grants leave the heap once they are the most of it:
        a lease may last a day, and its settled grants must not stay that long."""
        grant.live -= 1
        assert grant.live >= 0
        if grant.live:
            return
        self._grants_spent += 1
        if self._grants_spent > 64 and self._grants_spent * 2 > len(self._grants):
            self._grants = [g for g in self._grants if g.live]
            heapify(self._grants)
            self._grants_spent = 0
