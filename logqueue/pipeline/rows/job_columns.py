"""What became of many jobs at once: `JobTimeline` in columns.

Owns: the same state machine as `job_history.JobTimeline`, method by method, with an array for each
of its attributes and a place in it for each job: first the first rows of all jobs are taken in,
then all second rows, and so on. Must not know: Arrow, where rows come from.

A row can add three steps at most: one for the time that has passed, one for a lease that turns out
to be lost, one for the event itself. So each has its place before anything is computed, and nothing
is sorted afterwards. A lease is known by the row of its claim.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from logqueue.events import WAITING_REASONS
from logqueue.pipeline.lifecycle.job_history import (
    ACKED,
    APPENDED,
    CLAIMED,
    DELETED,
    EVENTS,
    EXPIRED,
    EXTENDED,
    HELD,
    REDRIVEN,
    RELEASED,
    REPLACED,
    TRIMMED,
    UNHELD,
)

Longs = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

NONE = -1
"""No word, no row."""

HAND_BACK = "hand_back"
TTL = "ttl"

_FURTHER = ("ready", "delayed", "in_flight", "lost", "open", "ttl_expired", HAND_BACK, TTL)
WORDS = tuple(dict.fromkeys((*EVENTS, *_FURTHER, *sorted(WAITING_REASONS))))
"""States, activities, outcomes and reasons that have a meaning here; a word's place is its code.
Events come first, in the order of `EVENTS`."""

_READY, _DELAYED, _IN_FLIGHT, _LOST, _OPEN, _TTL_EXPIRED, _HAND_BACK, _TTL = map(
    WORDS.index, _FURTHER
)
_DROPPED = WORDS.index("dropped")
_WAITING = np.array(sorted(WORDS.index(word) for word in WAITING_REASONS), np.int32)

STEPS_PER_ROW = 3
_TIME_PASSED, _LEASE_LOST, _EVENT = range(STEPS_PER_ROW)


class Rows(NamedTuple):
    """Rows of records and events, sorted as for the fold.

    Attributes:
        kind: A place in `EVENTS`.
        ts, due: As in `JobTimeline.take`.
        who: Code of the worker; `NONE` for none.
        reason: Code of the reason; those behind `WORDS` are the caller's.
        has_detail: Whether there is a detail.
        starts: The first row of each job, and the number of rows at the end.
    """

    kind: npt.NDArray[np.int64]
    ts: Longs
    due: Longs
    who: Codes
    reason: Codes
    has_detail: Flags
    starts: Longs


class JobColumns:
    """Many jobs; the attributes are those of `JobTimeline` where they have the same name.

    Attributes:
        record: Row of the record of each job.
        last_error: Row whose detail it is.
        is_known: Whether anything is known of a job.
        activity, step_at, step_state, step_worker: Of each place of a step; no step is where the
            activity is `NONE`. The places of job n begin at `STEPS_PER_ROW * rows.starts[n] + n`.
        outcome, ...: Of each row with a claim that was taken in: the attempt. No attempt is where
            the outcome is `NONE`.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        jobs = len(rows.starts) - 1
        count = len(rows.kind)
        self._make_states(jobs)
        places = STEPS_PER_ROW * count + jobs
        self.activity = np.full(places, NONE, np.int32)
        self.step_at = np.zeros(places, np.int64)
        self.step_state = np.full(places, NONE, np.int32)
        self.step_worker = np.full(places, NONE, np.int32)
        self.claimed_by = rows.who
        self.outcome = np.full(count, NONE, np.int32)
        self.reason = np.full(count, NONE, np.int32)
        self.error = np.full(count, NONE, np.int64)
        self.attempt, self.extensions, self.ready_from, self.claimed_at, self.ended_at = (
            np.zeros(count, np.int64) for _ in range(5)
        )
        self.deadline_last, self.overrun_ms = np.zeros(count, np.int64), np.zeros(count, np.int64)

    def _make_states(self, jobs: int) -> None:
        def longs() -> Longs:
            return np.zeros(jobs, np.int64)

        def codes() -> Codes:
            return np.full(jobs, NONE, np.int32)

        self.appended_at, self.began_at, self.first_ready_at = longs(), longs(), longs()
        self.finished_at, self.deliveries = longs(), longs()
        self.run_ms, self.wasted_ms = longs(), longs()
        self.state, self.last_reason, self.last_worker = codes(), codes(), codes()
        self.last_error, self.record = np.full(jobs, NONE, np.int64), np.full(jobs, NONE, np.int64)
        self.is_known = np.zeros(jobs, np.bool_)
        self._last_at, self._ready_at, self._leased_at, self._lease = (
            longs(), longs(), longs(), longs(),
        )  # fmt: skip
        self._waited_from, self._deadline, self._lease_deadline, self._extensions = (
            longs(), longs(), longs(), longs(),
        )  # fmt: skip
        self._worker = codes()
        self._was_ready = np.zeros(jobs, np.bool_)

    def follow(self, end: int) -> None:
        """Take in all rows, and close all jobs.

        Args:
            end: Of the range.
        """
        starts = self._rows.starts
        lengths = np.diff(starts)
        for nth in range(int(lengths.max(initial=0))):
            jobs = np.flatnonzero(lengths > nth)
            self._take(jobs, starts[jobs] + nth)
        jobs = np.flatnonzero(self.is_known)
        self._elapse(jobs, np.full(len(jobs), end), starts[jobs + 1])
        leased = jobs[self._leased_at[jobs] != 0]
        self._note_attempt(leased, np.zeros(len(leased), np.int64), _OPEN)

    # -- events: the n-th row of some jobs -------------------------------------------------------

    def _take(self, jobs: Longs, rows: Longs) -> None:
        is_record = self._rows.kind[rows] == APPENDED
        if is_record.any():
            self._append(jobs[is_record], rows[is_record])
            jobs, rows = jobs[~is_record], rows[~is_record]
        kind, ts = self._rows.kind[rows], self._rows.ts[rows]
        last_at = self._last_at[jobs]
        of_leases_log = (kind == CLAIMED) | (kind == EXTENDED) | (kind == RELEASED)
        # It is about a record that was lost in a crash, and whose seq was given again.
        counts = (ts >= last_at) | (ts >= self.appended_at[jobs]) | ~of_leases_log
        if not counts.all():
            jobs, rows, kind, ts = jobs[counts], rows[counts], kind[counts], ts[counts]
            last_at = last_at[counts]
        ts = np.maximum(ts, last_at)
        self._last_at[jobs] = ts
        counts = (kind != TRIMMED) | (self.began_at[jobs] != 0)
        if not counts.all():
            jobs, rows, kind, ts = jobs[counts], rows[counts], kind[counts], ts[counts]
        began = self.began_at[jobs]
        self.began_at[jobs] = np.where(began != 0, began, ts)
        self._elapse(jobs, ts, rows)
        found = np.flatnonzero(np.bincount(kind, minlength=len(EVENTS)))
        for event in found.tolist():
            if len(found) == 1:
                self._happen(event, jobs, rows, ts)
            else:
                its = kind == event
                self._happen(event, jobs[its], rows[its], ts[its])

    def _happen(self, event: int, jobs: Longs, rows: Longs, ts: Longs) -> None:
        if event == CLAIMED:
            self._claim(jobs, rows, ts)
        elif event == ACKED:
            self._end_lease(jobs, rows, ts, ACKED)
            self._end(jobs, rows, ts, ACKED, ACKED)
        elif event == EXTENDED:
            self._extend(jobs, rows, ts)
        elif event == RELEASED:
            self._release(jobs, rows, ts)
        elif event == HELD:
            self._hold(jobs, rows, ts)
        elif event == UNHELD:
            open = self.finished_at[jobs] == 0
            jobs, rows, ts = jobs[open], rows[open], ts[open]
            self.deliveries[jobs] = 0
            self._wait(jobs, rows, ts, UNHELD, self._rows.due[rows])
        elif event == REPLACED:
            self._replace(jobs, rows, ts)
        else:
            self._finish(event, jobs, rows, ts)

    def _append(self, jobs: Longs, rows: Longs) -> None:
        self.record[jobs] = rows
        new = self.appended_at[jobs] == 0
        jobs, rows = jobs[new], rows[new]
        ts = self._rows.ts[rows]
        self.appended_at[jobs] = self.began_at[jobs] = self._last_at[jobs] = ts
        self._wait(jobs, rows, ts, APPENDED, self._rows.due[rows])

    def _elapse(self, jobs: Longs, now: Longs, rows: Longs) -> None:
        over = (self._leased_at[jobs] != 0) & (self._deadline[jobs] < now)
        if over.any():
            its, its_rows = jobs[over], rows[over]
            at = self._deadline[its]
            self._note_attempt(its, at, EXPIRED)
            open = self.finished_at[its] == 0
            self._wait(
                its[open], its_rows[open], at[open], EXPIRED, np.zeros(1, np.int64), _TIME_PASSED
            )
        ready = (self.state[jobs] == _DELAYED) & (self._ready_at[jobs] <= now)
        if ready.any():
            its, its_rows = jobs[ready], rows[ready]
            self.state[its] = _READY
            self._was_ready[its] = True
            self._step(its, its_rows, self._ready_at[its], _READY, _TIME_PASSED)

    def _wait(
        self,
        jobs: Longs,
        rows: Longs,
        ts: Longs,
        activity: int | Codes,
        due: Longs,
        slot: int = _EVENT,
        worker: Codes | None = None,
    ) -> None:
        is_delayed = due > ts
        ready_at = np.where(is_delayed, due, ts)
        self.state[jobs] = np.where(is_delayed, _DELAYED, _READY)
        self._ready_at[jobs] = ready_at
        was_ready = self._was_ready[jobs]
        self.first_ready_at[jobs] = np.where(was_ready, self.first_ready_at[jobs], ready_at)
        self._was_ready[jobs] = was_ready | ~is_delayed
        self._step(jobs, rows, ts, activity, slot, worker)

    def _claim(self, jobs: Longs, rows: Longs, ts: Longs) -> None:
        self._lose(jobs, rows, ts, self._leased_at[jobs] != 0)
        worker = self._rows.who[rows]
        self.deliveries[jobs] += 1
        self._was_ready[jobs] = True
        self._lease[jobs], self._worker[jobs], self._leased_at[jobs] = rows, worker, ts
        self._waited_from[jobs] = self._ready_at[jobs]
        self._deadline[jobs] = self._lease_deadline[jobs] = self._rows.due[rows]
        self._extensions[jobs] = 0
        self.last_worker[jobs] = worker
        self._set(jobs, rows, ts, CLAIMED, _IN_FLIGHT, self.finished_at[jobs] == 0, worker)

    def _lose(self, jobs: Longs, rows: Longs, ts: Longs, where: Flags) -> None:
        if where.any():
            jobs, rows, ts = jobs[where], rows[where], ts[where]
            self._note_attempt(jobs, ts, _LOST)
            open = self.finished_at[jobs] == 0
            none = np.zeros(1, np.int64)
            self._wait(jobs[open], rows[open], ts[open], _LOST, none, _LEASE_LOST)

    def _lose_to_others(self, jobs: Longs, rows: Longs, ts: Longs) -> Flags:
        """Give which jobs are leased by whom the row is about, or by someone unnamed."""
        is_leased = self._leased_at[jobs] != 0
        who, worker = self._rows.who[rows], self._worker[jobs]
        others = is_leased & (who != NONE) & (worker != NONE) & (who != worker)
        self._lose(jobs, rows, ts, others)
        had: Flags = is_leased & ~others
        return had

    def _end_lease(self, jobs: Longs, rows: Longs, ts: Longs, outcome: int) -> Flags:
        had = self._lose_to_others(jobs, rows, ts)
        self._note_attempt(jobs[had], ts[had], outcome, rows[had])
        return had

    def _extend(self, jobs: Longs, rows: Longs, ts: Longs) -> None:
        had = self._lose_to_others(jobs, rows, ts)
        self._deadline[jobs[had]] = self._rows.due[rows[had]]
        self._extensions[jobs[had]] += 1

    def _release(self, jobs: Longs, rows: Longs, ts: Longs) -> None:
        had = self._end_lease(jobs, rows, ts, RELEASED)
        reason = self._rows.reason[rows]
        back = jobs[reason == _HAND_BACK]
        self.deliveries[back] = np.maximum(self.deliveries[back] - 1, 0)
        self._note_error(jobs, rows, ~had)
        waits = (self.finished_at[jobs] == 0) & (self.state[jobs] != HELD)
        jobs, rows, ts, reason = jobs[waits], rows[waits], ts[waits], reason[waits]
        activity = np.where(np.isin(reason, _WAITING), reason, RELEASED).astype(np.int32)
        worker = self._rows.who[rows]
        self._wait(jobs, rows, ts, activity, self._rows.due[rows], worker=worker)

    def _hold(self, jobs: Longs, rows: Longs, ts: Longs) -> None:
        new = (self.state[jobs] != HELD) & (self.finished_at[jobs] == 0)
        jobs, rows, ts = jobs[new], rows[new], ts[new]
        is_leased = self._leased_at[jobs] != 0
        self._note_attempt(jobs[is_leased], ts[is_leased], HELD, rows[is_leased])
        self._note_error(jobs, rows, ~is_leased)
        self._set(jobs, rows, ts, HELD, HELD, np.ones(len(jobs), np.bool_))

    def _replace(self, jobs: Longs, rows: Longs, ts: Longs) -> None:
        state, due = self.state[jobs], self._rows.due[rows]
        is_held = state == HELD
        waits = ~is_held & (self.finished_at[jobs] == 0) & (self._leased_at[jobs] == 0)
        keeps = is_held | (waits & (state == _READY) & (due <= ts))
        self._step(jobs[keeps], rows[keeps], ts[keeps], REPLACED)
        new = waits & ~keeps
        self._wait(jobs[new], rows[new], ts[new], REPLACED, due[new])

    def _finish(self, event: int, jobs: Longs, rows: Longs, ts: Longs) -> None:
        reason = self._rows.reason[rows]
        state: int | Codes = event
        activity: int | Codes = event
        if event == TRIMMED:
            is_ttl = reason == _TTL
            state = np.where(is_ttl, EXPIRED, _DROPPED)
            activity = np.where(is_ttl, _TTL_EXPIRED, _DROPPED)
        elif event == EXPIRED:
            activity = _TTL_EXPIRED
        elif event not in (DELETED, REDRIVEN):
            is_leased = self._leased_at[jobs] != 0
            self._note_attempt(jobs[is_leased], ts[is_leased], event, rows[is_leased])
        why = np.where(reason != NONE, reason, activity)
        open = self.finished_at[jobs] == 0
        self.last_reason[jobs[open]] = why[open]
        self._note_error(jobs, rows, np.ones(len(jobs), np.bool_))
        self._end(jobs, rows, ts, activity, state)

    def _end(
        self, jobs: Longs, rows: Longs, ts: Longs, activity: int | Codes, state: int | Codes
    ) -> None:
        open = self.finished_at[jobs] == 0
        self.finished_at[jobs[open]] = ts[open]
        self._set(jobs, rows, ts, activity, state, open, self._rows.who[rows])

    # -- what is noted ---------------------------------------------------------------------------

    def _set(
        self,
        jobs: Longs,
        rows: Longs,
        ts: Longs,
        activity: int | Codes,
        state: int | Codes,
        where: Flags,
        worker: Codes | None = None,
    ) -> None:
        """Another state, and a step."""
        if not where.all():
            jobs, rows, ts = jobs[where], rows[where], ts[where]
            worker = None if worker is None else worker[where]
            activity = activity if isinstance(activity, int) else activity[where]
            state = state if isinstance(state, int) else state[where]
        self.state[jobs] = state
        self._step(jobs, rows, ts, activity, worker=worker)

    def _step(
        self,
        jobs: Longs,
        rows: Longs,
        at: Longs,
        activity: int | Codes,
        slot: int = _EVENT,
        worker: Codes | None = None,
    ) -> None:
        places = STEPS_PER_ROW * rows + jobs + slot
        self.is_known[jobs] = True
        self.activity[places] = activity
        self.step_at[places] = at
        self.step_state[places] = self.state[jobs]
        if worker is not None:
            self.step_worker[places] = worker

    def _note_error(self, jobs: Longs, rows: Longs, where: Flags) -> None:
        where = where & self._rows.has_detail[rows]
        self.last_error[jobs[where]] = rows[where]

    def _note_attempt(
        self, jobs: Longs, ended_at: Longs, outcome: int, rows: Longs | None = None
    ) -> None:
        """The lease becomes an attempt; `rows` have its reason and error."""
        if not len(jobs):
            return
        lease = self._lease[jobs]
        leased_at = self._leased_at[jobs]
        ended = ended_at != 0
        run = np.where(ended, ended_at - leased_at, 0)
        self.run_ms[jobs] += run
        self.outcome[lease] = outcome
        if rows is not None:
            reason = self._rows.reason[rows]
            self.reason[lease] = reason
            self.error[lease] = np.where(self._rows.has_detail[rows], rows, NONE)
            self._note_error(jobs, rows, np.ones(len(jobs), np.bool_))
        if outcome != ACKED:
            self.wasted_ms[jobs] += run
            why = outcome if rows is None else np.where(reason != NONE, reason, outcome)
            self.last_reason[jobs] = np.where(ended, why, self.last_reason[jobs])
        self.attempt[lease] = self.deliveries[jobs]
        self.extensions[lease] = self._extensions[jobs]
        self.ready_from[lease] = self._waited_from[jobs]
        self.claimed_at[lease], self.ended_at[lease] = leased_at, ended_at
        self.deadline_last[lease] = self._deadline[jobs]
        overrun = np.maximum(ended_at - self._lease_deadline[jobs], 0)
        self.overrun_ms[lease] = np.where(ended, overrun, 0)
        self._leased_at[jobs] = 0
