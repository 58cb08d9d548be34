"""Who holds what: the lease state of one queue.

Owns: leases, delivery counters, the reclaim freelist, delays, holds and the claim cursor, and how
they change (called from `apply` and `Particulars` only). Must not know: records, topics, commands,
the log.

A job is in one of these places. A job never delivered has no entry in `jobs`:

    fresh      seq >= cursor, not timed, in none of the indexes
    delayed    in `delayed`, claimable at its time
    reclaimed  in `reclaim`, claimable; in the order of seqs among the fresh ones; or in `order`
    leased     in `jobs` with a grant
    held       in `jobs` and in `held`, waits for an operator
    orphan     in `jobs` with a grant but `live` False: the record went while it was leased; the
               entry stays until the holder settles or the lease runs out

A *timed* job was delayed when it was written, or replaced later, or it has a priority or a group:
it always comes through `delayed`, `reclaim` or `order`, and the cursor passes over it.

Expiry is lazy. `elapse(now)` is the only place where time acts, on so many jobs in one call. Once
it has no more to do it is idempotent, and calls with rising times leave the same state as the last
of them alone. Until then a job whose lease has run out counts as in flight; it cannot be settled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import compress, groupby, repeat
from operator import attrgetter, itemgetter
from typing import Any, cast

from sortedcontainers import SortedList

from logqueue.core.backoff import delay_ms
from logqueue.core.claim_order import ClaimOrder
from logqueue.core.claim_rates import RateSpent
from logqueue.core.deadlines import Deadlines
from logqueue.core.ended_jobs import EndedJobs
from logqueue.core.job_ends import EndListener
from logqueue.core.keys import WaitingKeys
from logqueue.core.leases import Grant, JobEntry, JobProgress
from logqueue.core.record_times import moment, seq_of, time_of
from logqueue.core.timed_runs import TimedRuns
from logqueue.events import JobSnapshot
from logqueue.model import limits
from logqueue.model.config import BackoffOptions, ResultOptions

_grant = attrgetter("grant")
_lease = attrgetter("lease")


class QueueState:
    """The lease state of one queue.

    Attributes:
        cursor: Lowest seq that has never been offered.
        delayed: Moments (due, seq) of delayed jobs.
        held: Held jobs, with the log segment that says so.
        keys: Keys of waiting jobs; None while no job has had one.
        leased: Live jobs under a lease (as of the last `elapse`).
        order: The order of jobs with a priority or a group; None while no job has had one that
            counts.
        orphans: Leases whose record is gone.
        timed_runs: Runs of timed jobs, which the cursor need not look at.
        progress: What workers have said of jobs under a lease, by seq; few have said anything.
        dead_lettered: Jobs moved to the dead-letter topic over this instance's life.
        finished: Jobs that came to an end over this instance's life, by outcome.
        ended: What became of its jobs; None unless the queue keeps that.
        end_listeners: Who learns of the ends of its jobs, see `job_ends`; mostly none.
        has_overdue: Whether the cursor may have passed jobs beyond their TTL that found no room
            where they are to go.
        rate_spent: What of the claim rate is spent; an observation, not part of the replayed state.
        rests_to: Up to this time, ms since the epoch, `elapse` has nothing to do; it may be earlier
            than it need be.
        returning: From which seq on, up to the cursor, jobs are still to be found that the cursor
            has passed and that may be handed out by now; 0 when there are none. They are ready.
        has_errors: Whether any job has ever had an error.
        has_given_back: Whether any delivery of a job has not counted.
        has_timed: Whether any job has ever come by its own time.
        entered_to: No job from the cursor on has an entry in `jobs` behind this seq, but for timed
            and held ones: operators give fresh jobs another time.
        lapsed: Leases that ran out, by node; an observation, not part of the replayed state.
        lapses: How many of them there were in all.
    """

    __slots__ = (
        "_grants", "_rules", "cursor", "dead_lettered",
        "delayed", "end_listeners", "ended", "entered_to", "finished", "has_errors",
        "has_given_back", "has_overdue", "has_timed", "held", "jobs", "keys", "lapsed", "lapses",
        "leased", "order", "orphans", "progress", "rate_spent", "reclaim", "rests_to", "returning",
        "streams", "timed_runs",
    )  # fmt: skip

    def __init__(self) -> None:
        self.dead_lettered = 0
        self.finished: dict[str, int] = {}
        self.held: dict[int, int] = {}
        self.keys: WaitingKeys | None = None
        self.ended: EndedJobs | None = None
        self.end_listeners: tuple[EndListener[Any], ...] = ()
        self.has_errors = False
        self.has_given_back = False
        self.has_timed = False
        self.lapsed: dict[str, int] = {}
        self.lapses = 0
        self.timed_runs = TimedRuns()
        self.rate_spent = RateSpent()
        self._rules: list[tuple[int, BackoffOptions | None]] = []
        self._begin(1)

    def _begin(self, cursor: int) -> None:
        """No job is leased, and none ever was."""
        self.cursor = cursor
        self.entered_to = 0
        self.has_overdue = False
        self.returning = 0
        self.jobs: dict[int, JobEntry] = {}
        self.reclaim: SortedList[int] = SortedList()
        self.delayed: SortedList[int] = SortedList()
        self.streams: dict[int, set[int]] = {}
        self.leased = 0
        self.orphans = 0
        self.progress: dict[int, JobProgress] = {}
        self.rests_to = 0
        # Made again by `apply.ordering`.
        self.order: ClaimOrder | None = None
        self._grants = Deadlines()

    # -- queries ---------------------------------------------------------------------------------

    def next_due(self) -> int | None:
        """When time next changes something (ms since the epoch), None when it never does."""
        due = time_of(self.delayed[0]) if self.delayed else None
        lapse = self.next_lapse()
        if lapse is not None:
            due = lapse if due is None else min(due, lapse)
        freed = self.order.next_due() if self.order is not None else None
        if freed is not None:
            due = freed if due is None else min(due, freed)
        return due

    def next_lapse(self) -> int | None:
        """When the first of the leases runs out (ms since the epoch), None when there is none."""
        grant = self._grants.first()
        return grant.deadline + 1 if grant is not None else None

    def some_grants(self, looked_max: int) -> list[Grant]:
        """Grants that have leases left, mostly the soonest to end, of so many looked at."""
        return self._grants.some(looked_max)

    def grants_in_parts(self) -> Iterator[list[Grant]]:
        """The grants that there are when the first part is asked for, mostly the soonest to end
        first. Those that come or go meanwhile are among them, or not."""
        for bucket in self._grants.buckets():
            yield [grant for _, _, grant in bucket if grant.live]

    def is_waiting(self, seq: int) -> bool:
        """Whether a live job is ready or delayed."""
        job = self.jobs.get(seq)
        return job is None or (job.grant is None and seq not in self.held)

    def is_delayed(self, seq: int, due: int) -> bool:
        """Whether a job without an entry in `jobs` is delayed until then."""
        return bool(due) and moment(due, seq) in self.delayed

    @property
    def placed(self) -> Container[int]:
        """Where the jobs are that the cursor may meet and that are not fresh, beside timed ones:
        only those on hold, unless a job behind the cursor has an entry."""
        return self.jobs if self.entered_to >= self.cursor else self.held

    def held_by(self, stream: int) -> int:
        """How many unexpired leases a work stream holds."""
        held = self.streams.get(stream)
        return len(held) if held is not None else 0

    def grant_of(
        self, seqs: Sequence[int], leases: Sequence[int | None] | None = None
    ) -> Grant | None:
        """The grant that gave out exactly these jobs, in this order, and still has them all, under
        these lease numbers if any are given; None when there is none. Jobs are mostly settled as
        they were handed out, and then need not be looked at one by one."""
        job = self.jobs.get(seqs[0]) if seqs else None
        grant = job.grant if job is not None else None
        if grant is None or grant.live != len(seqs) or grant.seqs != seqs:
            return None
        if leases is not None and leases != [*map(_lease, map(self.jobs.__getitem__, seqs))]:
            return None
        return grant

    # -- changes (by core/apply only) ------------------------------------------------------------

    def elapse(
        self,
        now: int,
        backoff: BackoffOptions | None = None,
        jobs_max: int | None = limits.LAPSED_PER_PASS_MAX,
    ) -> bool:
        """Let time act: expired leases and due delays become reclaimable, soonest first.

        With a backoff, a job whose lease ran out is delayed from its deadline on.

        Args:
            now: The clock.
            backoff: The queue's rule.
            jobs_max: About how many jobs to move at most; None for all.

        Returns:
            Whether there are more, for the next call.
        """
        left = jobs_max if jobs_max is not None else limits.U64_MAX
        grant = self._grants.first()
        while grant is not None and grant.deadline < now:
            if left <= 0:
                return True
            left -= len(grant.seqs)
            self._grants.pop()
            self._lapse(grant, now, backoff)
            grant = self._grants.first()
        if self._rules and (grant is None or grant.deadline >= self._rules[-1][0]):
            self._rules.clear()
        if self.delayed and time_of(self.delayed[0]) <= now:
            due = self.delayed.bisect_left(moment(now + 1, 0))
            some = min(due, max(left, 1))
            seqs = [seq_of(packed) for packed in self.delayed[:some]]
            del self.delayed[:some]
            for seq in seqs:
                job = self.jobs.get(seq)
                if job is not None:
                    job.ready_at = 0
            self._admit(seqs)
            if some < due:
                return True
        if self.order is not None and self.order.elapse(now, max(left, 1)):
            return True
        next_due = self.next_due()
        self.rests_to = limits.U64_MAX if next_due is None else next_due - 1
        return False

    def _lapse(self, grant: Grant, now: int, backoff: BackoffOptions | None) -> None:
        """The leases of a grant have run out."""
        self._note_lapse(grant)
        rule = self._rule_at(grant.deadline, backoff)
        for seq in grant.seqs:
            job = self.jobs.get(seq)
            if job is not None and job.grant is grant:
                self._unlease(seq, job, grant)
                self._put_back(seq, job, _back_at(seq, job, grant, rule, now))

    def elapse_job(self, seq: int, now: int, backoff: BackoffOptions | None) -> None:
        """Advance time for one job's lease. Only at replay, where no access has done so."""
        job = self.jobs.get(seq)
        if job is None or job.grant is None or job.grant.deadline >= now:
            return
        grant = job.grant
        back_at = _back_at(seq, job, grant, self._rule_at(grant.deadline, backoff), now)
        self._end_lease(seq, job)
        self._put_back(seq, job, back_at)

    def change_backoff(self, before: BackoffOptions | None, now: int) -> None:
        """Another rule from now on. Leases that ran out before keep theirs, whenever that is
        noticed."""
        # In order, also when the clock was set back.
        until = max(now, self._rules[-1][0]) if self._rules else now
        self._rules.append((until, before))
        self.rests_to = 0

    def _rule_at(self, deadline: int, backoff: BackoffOptions | None) -> BackoffOptions | None:
        """The rule that was in force when a lease ran out."""
        rules = self._rules
        if not rules:
            return backoff
        index = bisect_right(rules, deadline, key=itemgetter(0))
        return rules[index][1] if index < len(rules) else backoff

    def claim(self, grant: Grant, first_lease: int) -> None:
        """Lease jobs that are fresh or reclaimed. If there is an order, it has been changed."""
        jobs = self.jobs
        seqs = grant.seqs
        if self.keys is not None:
            for seq in seqs:
                self.keys.end_waiting(seq)
        leases = range(first_lease, first_lease + len(seqs))
        if not jobs.keys().isdisjoint(seqs):
            for seq, lease in zip(seqs, leases, strict=True):
                self._claim_known(seq, lease, grant)
        else:
            jobs.update(zip(seqs, map(JobEntry, repeat(1), leases, repeat(grant)), strict=True))
            if self.has_timed and self.reclaim:
                for seq in seqs:
                    self.reclaim.discard(seq)
        self.leased += len(seqs)
        self._keep(grant)

    def _claim_known(self, seq: int, lease: int, grant: Grant) -> None:
        job = self.jobs.get(seq)
        if job is None:
            job = self.jobs[seq] = JobEntry()
            if self.has_timed:
                self.reclaim.discard(seq)
        elif job.grant is not None:
            self._end_lease(seq, job)
        elif job.ready_at:
            self._leave_place(seq, job)
        else:
            self.reclaim.discard(seq)
        job.deliveries += 1
        job.lease = lease
        job.grant = grant

    def keep_results(
        self, options: ResultOptions | None, now: int = 0
    ) -> list[list[Any] | dict[Any, Any]]:
        """Keep what becomes of jobs from now on, or no longer.

        Returns:
            What is no longer needed, to be freed bit by bit.
        """
        ended = self.ended
        if options is not None and ended is not None:
            ended.change(options, now)
        elif options is not None:
            self.ended = EndedJobs(options)
            self.end_listeners = (self.ended, *self.end_listeners)
        elif ended is not None:
            self.ended = None
            self.end_listeners = tuple(known for known in self.end_listeners if known is not ended)
            return ended.large_parts()
        return []

    def extend(self, node: str, deadline: int, seqs: Iterable[int]) -> None:
        """Set a new deadline for held leases; a lease keeps its number, deliveries and stream."""
        by_stream: dict[int, list[int]] = {}
        for seq in dict.fromkeys(seqs):
            job = self.jobs.get(seq)
            if job is not None and job.grant is not None:
                by_stream.setdefault(job.grant.stream, []).append(seq)
        for stream, held in by_stream.items():
            grant = Grant(node, deadline, stream, held, len(held))
            for seq in held:
                job = self.jobs[seq]
                assert job.grant is not None
                self._spend(job.grant)
                job.grant = grant
            self._keep(grant)

    def note_progress(self, seqs: Iterable[int], share: float | None, note: str | None) -> None:
        """Jobs under a lease are so far; None leaves what was said before. It is forgotten with the
        lease."""
        for seq in seqs:
            job = self.jobs.get(seq)
            if job is not None and job.grant is not None:
                known = self.progress.get(seq, JobProgress())
                share_now = known.share if share is None else share
                self.progress[seq] = JobProgress(share_now, known.note if note is None else note)

    def release(
        self,
        seqs: Sequence[int],
        dues: Sequence[int],
        error: str | None = None,
        *,
        uncounted: bool = False,
        given_back: bool = False,
    ) -> None:
        """End leases without an ack.

        Args:
            seqs: Jobs; those that are not known are passed over.
            dues: When each is claimable again; 0 means at once.
            error: What went wrong; None keeps what was said before.
            uncounted: Take the delivery back, as if the job had never been handed out.
            given_back: The delivery stays one, but does not count towards `max_deliveries`.
        """
        self.has_errors = self.has_errors or error is not None
        for seq, due in zip(seqs, dues, strict=True):
            job = self.jobs.get(seq)
            if job is None:
                continue
            if job.grant is not None:
                self._end_lease(seq, job)
            else:
                self._leave_place(seq, job)
            if error is not None:
                job.error = error
            if uncounted:
                job.deliveries = max(job.deliveries - 1, 0)
            if given_back:
                job.given_back += 1
                self.has_given_back = True
            self._put_back(seq, job, due)

    def enter(self, seq: int, due: int) -> JobEntry:
        """A job that was never delivered gets an entry, to have a place that an operator chose;
        `due` as for `unschedule`. The caller puts it there."""
        if self.has_timed:
            self.unschedule(seq, due)
        job = self.jobs[seq] = JobEntry()
        if seq >= self.cursor:
            self.entered_to = max(self.entered_to, seq)
        return job

    def hold(
        self, seq: int, deliveries: int, error: str | None, segment: int, *, due: int = 0
    ) -> None:
        """Park a job. Saying it again only notes where it is said. `due` as for `unschedule`."""
        job = self.jobs.get(seq)
        if job is None:
            if self.has_timed:
                self.unschedule(seq, due)
            job = self.jobs[seq] = JobEntry()
        elif job.grant is not None:
            self._end_lease(seq, job)
        elif seq not in self.held:
            self._leave_place(seq, job)
        if self.keys is not None:
            self.keys.end_waiting(seq)
        self.has_errors = self.has_errors or error is not None
        job.deliveries = deliveries
        job.given_back = 0
        job.error = error
        self.held[seq] = segment
        if self.order is not None:
            self.order.settled(seq)

    def release_hold(self, seq: int, *, timed: bool) -> None:
        """A held job is claimable again, and was never delivered."""
        if self.held.pop(seq, None) is None:
            # Only at replay: the segment that said it was held is gone. The leases log may still
            # tell of a delivery before, or of none.
            known = self.jobs.get(seq)
            if known is None:
                known = self.jobs[seq] = JobEntry()
                self._withdraw(seq)
            elif known.grant is not None:
                self._end_lease(seq, known)
            else:
                self._leave_place(seq, known)
            known.deliveries, known.given_back, known.error = 0, 0, None
            self._put_back(seq, known, 0)
            return
        job = self.jobs[seq]
        if seq < self.cursor or timed:
            job.deliveries, job.given_back, job.error = 0, 0, None
            self._put_back(seq, job, 0)
        else:
            # A restart has taken the cursor back before it: it is fresh again.
            del self.jobs[seq]
            if self.keys is not None:
                self.keys.begin_waiting(seq)

    def drop_holds(self, seqs: Iterable[int]) -> None:
        """Holds of records that are gone. Only at replay."""
        for seq in seqs:
            del self.held[seq], self.jobs[seq]

    def schedule(self, delayed: Iterable[int], ready: Iterable[int]) -> None:
        """Jobs without an entry become due by their own time."""
        self.has_timed = True
        self.rests_to = 0
        self.delayed.update(delayed)
        self.reclaim.update(ready)

    def unschedule(self, seq: int, due: int) -> None:
        """A timed job is about to be removed; one with an entry in `jobs` is found by that."""
        if seq not in self.jobs:
            self.delayed.discard(moment(due, seq))
            self._withdraw(seq)

    def undelay(self, seq: int, due: int) -> None:
        """The same for one that is no longer in its order."""
        if due and seq not in self.jobs:
            self.delayed.discard(moment(due, seq))

    def reschedule(self, seq: int, due: int) -> None:
        """A waiting job that has been delivered before got new content; `due` 0 means now."""
        job = self.jobs.get(seq)
        if job is not None and job.grant is None and seq not in self.held:
            self._leave_place(seq, job)
            self._put_back(seq, job, due)

    def put_back(self, seqs: Sequence[int], next_at: int) -> None:
        """Make jobs claimable that the cursor has passed and that were never handed out.

        Args:
            seqs: Neighbours among them, ascending.
            next_at: Where the others are to be found, 0 when these were the last.
        """
        for seq in seqs:
            self.jobs[seq] = JobEntry()
        self.reclaim.update(seqs)
        self.returning = next_at
        if not next_at:
            self.has_overdue = False

    def finish(self, seqs: Sequence[int]) -> None:
        """Jobs are complete: their leases and counters go."""
        known = seqs
        found = [*map(self.jobs.pop, seqs, repeat(None))]
        if None in found:
            known = [*compress(seqs, found)]
            found = [*filter(None, found)]
        # Jobs are mostly settled beside those they were handed out with.
        end = 0
        for grant, run in groupby(cast("list[JobEntry]", found), _grant):
            jobs = [*run]
            start, end = end, end + len(jobs)
            if grant is not None:
                self._end_together(known[start:end], jobs, grant)
            else:
                for seq, job in zip(known[start:end], jobs, strict=True):
                    self._leave(seq, job)

    def _end_together(self, seqs: Sequence[int], jobs: Sequence[JobEntry], grant: Grant) -> None:
        """Leases of a grant have ended, of jobs that are no longer in `jobs`."""
        if self.progress:
            self._forget_progress(seqs)
        ended = len(seqs)
        self.leased -= ended
        if self.orphans:
            orphans = sum(not job.live for job in jobs)
            self.orphans -= orphans
            self.leased += orphans
        if self.order is not None:
            for seq in seqs:
                self.order.unleased(seq)
        if grant.stream:
            self._leave_stream(seqs, grant)
        self._spend(grant, ended)

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
                self.orphans += 1

    def count(self, outcome: str, jobs: int) -> None:
        """Jobs came to an end."""
        if jobs:
            self.finished[outcome] = self.finished.get(outcome, 0) + jobs

    def rewind(self, seq: int) -> None:
        """Seqs from here on are assigned again. Only at replay: the leases log had kept more than
        the jobs log, and what it says about these seqs is about records that were lost."""
        self.finish([known for known in self.jobs if known >= seq])
        self.cursor = min(self.cursor, seq)

    def kept(self, seqs: Iterable[int] | None = None) -> list[JobSnapshot]:
        """The entries of some jobs, or of all, for a checkpoint; without orphans, and without held
        jobs, which the jobs log keeps."""
        jobs = self.jobs
        found = jobs.items() if seqs is None else [(seq, jobs[seq]) for seq in seqs if seq in jobs]
        held = self.held
        return [self.snapshot(seq, job) for seq, job in found if job.live and seq not in held]

    def snapshot(self, seq: int, job: JobEntry) -> JobSnapshot:
        """The entry of a job, for a checkpoint."""
        share, note = self.progress.get(seq, _NO_PROGRESS)
        grant = job.grant
        if grant is None:
            return JobSnapshot(
                seq, job.deliveries, 0, 0, 0, job.ready_at, "", job.error, job.given_back
            )
        return JobSnapshot(
            seq,
            job.deliveries,
            job.lease,
            grant.deadline,
            grant.stream,
            job.ready_at,
            grant.node,
            job.error,
            job.given_back,
            share,
            note or None,
        )

    def lapsed_kept(
        self, seqs: Iterable[int], now: int, backoff: BackoffOptions | None
    ) -> list[JobSnapshot]:
        """The same of some jobs as time will have it: those whose leases have run out, noticed or
        not, are back. So its readers need not know which rules there were."""
        entries = self.kept(seqs)
        for index, entry in enumerate(entries):
            if entry.lease and entry.deadline < now:
                job = self.jobs[entry.seq]
                assert job.grant is not None
                rule = self._rule_at(entry.deadline, backoff)
                back_at = _back_at(entry.seq, job, job.grant, rule, now)
                entries[index] = JobSnapshot(
                    entry.seq, entry.deliveries, 0, 0, 0, back_at, "", entry.error, entry.given_back
                )
        return entries

    def restore(self, cursor: int, kept: Iterable[JobSnapshot]) -> None:
        """Become what a checkpoint says. Holds stay, and so do earlier rules, which leases that
        ran out may still be under; timed jobs must be scheduled again."""
        held = {seq: self.jobs[seq] for seq in self.held}
        self._begin(cursor)
        # Between two runs there may be records that only came later in the log.
        self.timed_runs.clear()
        self.jobs.update(held)
        self.adopt(cursor, kept)

    def adopt(self, cursor: int, kept: Iterable[JobSnapshot]) -> None:
        """Take over what a part of a checkpoint says; other jobs stay as they are, and so do held
        ones."""
        self.cursor = cursor
        # Neighbours that were handed out together share a grant again.
        grant: Grant | None = None
        together: list[int] = []
        for entry in kept:
            if entry.seq in self.held:
                continue
            earlier = self.jobs.pop(entry.seq, None)
            if earlier is not None:
                if grant is not None:
                    self._keep(grant)
                    grant = None
                self._leave(entry.seq, earlier)
            elif self.order is not None:
                # It waits there as one that was never handed out.
                self._withdraw(entry.seq)
            job = self.jobs[entry.seq] = JobEntry()
            if entry.seq >= cursor:
                self.entered_to = max(self.entered_to, entry.seq)
            job.deliveries = entry.deliveries
            job.given_back = entry.given_back
            self.has_given_back = self.has_given_back or entry.given_back > 0
            job.error = entry.error
            self.has_errors = self.has_errors or entry.error is not None
            if entry.lease:
                job.lease = entry.lease
                if grant is None or not _is_of(entry, grant):
                    if grant is not None:
                        self._keep(grant)
                    together = []
                    grant = Grant(entry.node, entry.deadline, entry.stream, together)
                together.append(entry.seq)
                grant.live += 1
                job.grant = grant
                self.leased += 1
                self._note_lease(entry.seq)
                if entry.progress is not None or entry.note is not None:
                    self.progress[entry.seq] = JobProgress(entry.progress, entry.note or "")
            else:
                self._put_back(entry.seq, job, entry.ready_at)
        if grant is not None:
            self._keep(grant)

    def take_observations(self, other: QueueState) -> None:
        """Take over what another state of the same queue has seen that is in no log: the
        claim rate that is spent, the rules of leases whose end was not noticed yet, and whose
        leases ran out."""
        self.rate_spent = other.rate_spent
        self._rules = other._rules
        self.rests_to = 0
        self.lapsed = other.lapsed
        self.lapses = other.lapses

    def large_parts(self) -> list[list[Any] | dict[Any, Any]]:
        """Everything that is large, to be freed bit by bit; it must no longer be used."""
        held = [*self.parts_of_leases(), self.held]
        if self.keys is not None:
            held.extend(self.keys.release())
        if self.ended is not None:
            held.extend(self.ended.large_parts())
        return held

    def parts_of_leases(self) -> list[list[Any] | dict[Any, Any]]:
        """The large parts that `restore` replaces, to be freed bit by bit after that."""
        return [
            self.jobs,
            self.progress,
            self.streams,
            *self._grants.release(),
            *large_parts(self.reclaim),
            *large_parts(self.delayed),
            *(self.order.release() if self.order is not None else ()),
        ]

    # -- internals -------------------------------------------------------------------------------

    def _keep(self, grant: Grant) -> None:
        self._grants.add(grant)
        if grant.deadline < self.rests_to:
            self.rests_to = grant.deadline
        if grant.stream:
            self.streams.setdefault(grant.stream, set()).update(grant.seqs)

    def _leave(self, seq: int, job: JobEntry) -> None:
        """Take a job that is no longer in `jobs` out of every index."""
        if job.grant is not None:
            self._end_lease(seq, job)
        elif self.held.pop(seq, None) is None:
            self._leave_place(seq, job)

    def _leave_place(self, seq: int, job: JobEntry) -> None:
        """Take a job that waits out of its place, for another one."""
        if job.ready_at:
            self.delayed.discard(moment(job.ready_at, seq))
            job.ready_at = 0
        else:
            self._withdraw(seq)

    def _admit(self, seqs: Sequence[int]) -> None:
        """Jobs have become claimable."""
        order = self.order
        if order is None:
            self.reclaim.update(seqs)
            return
        for job in order.records.orders_of(sorted(seqs)):
            if not order.owns(job):
                self.reclaim.add(job.seq)
            elif order.knows(job):
                order.admit(job)

    def _withdraw(self, seq: int) -> None:
        """A job is no longer claimable."""
        order = self.order
        for job in order.records.orders_of((seq,)) if order is not None else ():
            assert order is not None
            if order.owns(job) and order.knows(job):
                order.withdraw(job)
        # What the order owns may have come here before it was replaced.
        self.reclaim.discard(seq)

    def _note_lease(self, seq: int) -> None:
        """A job is under a lease that its order has not seen begin."""
        order = self.order
        for job in order.records.orders_of((seq,)) if order is not None else ():
            assert order is not None
            if order.owns(job) and order.knows(job):
                order.leased(job)

    def _end_lease(self, seq: int, job: JobEntry) -> None:
        grant = job.grant
        assert grant is not None
        self._unlease(seq, job, grant)
        self._spend(grant)

    def _unlease(self, seq: int, job: JobEntry, grant: Grant) -> None:
        job.grant = None
        if self.progress:
            self._forget_progress((seq,))
        if job.live:
            self.leased -= 1
        if self.order is not None:
            self.order.unleased(seq)
        self._leave_stream((seq,), grant)

    def _forget_progress(self, seqs: Iterable[int]) -> None:
        for seq in seqs:
            self.progress.pop(seq, None)

    def _leave_stream(self, seqs: Iterable[int], grant: Grant) -> None:
        held = self.streams.get(grant.stream) if grant.stream else None
        if held is not None:
            held.difference_update(seqs)
            if not held:
                del self.streams[grant.stream]

    def _put_back(self, seq: int, job: JobEntry, ready_at: int) -> None:
        if not job.live:
            del self.jobs[seq]
            self.orphans -= 1
            return
        if ready_at:
            job.ready_at = ready_at
            self.delayed.add(moment(ready_at, seq))
            self.rests_to = min(self.rests_to, ready_at - 1)
        elif self.order is None:
            self.reclaim.add(seq)
        else:
            self._admit((seq,))
        if self.order is not None:
            self.order.settled(seq)
        if self.keys is not None:
            self.keys.begin_waiting(seq)

    def _note_lapse(self, grant: Grant) -> None:
        self.lapses += grant.live
        lapsed = self.lapsed
        if grant.node not in lapsed and len(lapsed) >= limits.NODES_NOTED_MAX:
            del lapsed[next(iter(lapsed))]
        lapsed[grant.node] = lapsed.get(grant.node, 0) + grant.live

    def _spend(self, grant: Grant, leases: int = 1) -> None:
        """Leases of a grant have ended."""
        grant.live -= leases
        assert grant.live >= 0
        if not grant.live:
            self._grants.spend(grant)


_NO_PROGRESS = JobProgress()


def _is_of(entry: JobSnapshot, grant: Grant) -> bool:
    return (
        entry.deadline == grant.deadline
        and entry.node == grant.node
        and entry.stream == grant.stream
        and len(grant.seqs) < limits.CLAIMED_PER_PASS_MAX
    )


def _back_at(seq: int, job: JobEntry, grant: Grant, rule: BackoffOptions | None, now: int) -> int:
    """When a job whose lease has run out is claimable; 0 for now."""
    if rule is None:
        return 0
    back_at = grant.deadline + delay_ms(rule, job.deliveries, seq, job.lease)
    return back_at if back_at > now else 0


def large_parts(items: SortedList[int]) -> list[list[int]]:
    """The lists that a sorted list is made of, to be freed bit by bit."""
    parts: list[list[int]] = items._lists
    return [*parts]
