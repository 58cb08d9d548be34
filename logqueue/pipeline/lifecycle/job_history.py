"""What became of one job: its states, steps and attempts, folded from its events.

Owns: the life of a job as the events tell it, with what is not logged filled in. Must not know:
Spark, Arrow, where events come from, the present time.

What the server does not log, and what is made of it:

    a lease runs out       valid while now <= deadline; the next event behind the deadline, or the
                           end of the range, shows that it was over. It ended at the deadline, and
                           the job was ready from then on (a `retry_backoff` is not in the events).
    a delay ends           the job is ready from then on.
    a lease is forgotten   (with the unsynced tail of the leases log, or by a restart of an earlier
                           version): another claim, or a word of another worker, shows it. The
                           attempt is `lost`.
    a record is removed    by its time to live, a cap or a delete: the job has ended, and the lease
    it is leased           lasts on until its holder settles or it runs out.

All times are ms since the epoch; 0 means none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from logqueue.events import WAITING_REASONS

EVENTS = (
    "appended", "claimed", "extended", "released", "acked", "rejected", "dropped", "superseded",
    "cancelled", "dead_lettered", "expired", "deleted", "redriven", "held", "unheld", "replaced",
    "trimmed",
)  # fmt: skip
"""Every event there is; its place is its number. `appended` is the record itself. In one
decision, `trimmed` comes behind what happened to single jobs, so it is last."""

(
    APPENDED, CLAIMED, EXTENDED, RELEASED, ACKED, REJECTED, DROPPED, SUPERSEDED, CANCELLED,
    DEAD_LETTERED, EXPIRED, DELETED, REDRIVEN, HELD, UNHELD, REPLACED, TRIMMED,
) = range(len(EVENTS))  # fmt: skip

WAITING_STATES = ("ready", "delayed")
OPEN_STATES = (*WAITING_STATES, "in_flight", "held")

_OF_LEASES_LOG = (CLAIMED, EXTENDED, RELEASED)

VARIANT_STEPS_MAX = 40
"""A variant tells no more steps than this."""
STEPS_MAX = 1000
"""A job has no more steps than this: the first ones and, behind those that are cut, the last one.
The variant counts all of them, and `attempts` has every lease. Jobs that are folded by column have
far fewer (`history_batches.LONG_ROWS_MIN`)."""
NOTHING_YET = "waiting"
"""The variant of a job to which nothing has happened."""

NOT_IN_VARIANTS = frozenset({"appended", "ready"})


def variant_of(activities: Sequence[str], cut: int = 0) -> str:
    """What happened to a job, in one line.

    Args:
        activities: Of its steps, without those in `NOT_IN_VARIANTS`.
        cut: How many more there were, see `STEPS_MAX`.
    """
    names = list(activities)
    total = len(names) + cut
    if total > VARIANT_STEPS_MAX:
        names[VARIANT_STEPS_MAX:] = [f"({total - VARIANT_STEPS_MAX} more)"]
    return ">".join(names) or NOTHING_YET


class Attempt(NamedTuple):
    """One lease; the fields are columns of the table `attempts`."""

    lease_id: str | None
    attempt: int
    worker: str | None
    ready_at: int
    claimed_at: int
    ended_at: int
    outcome: str
    reason: str | None
    error: str | None
    extensions: int
    deadline_last: int
    overrun_ms: int


class Step(NamedTuple):
    """Something that happened, and the state of the job after it."""

    activity: str
    at: int
    state: str
    worker: str | None


class JobTimeline:
    """One job. Feed it its events in order, then `close` it.

    Attributes:
        appended_at: 0 while the record is not known.
        began_at: When it was appended, or else the first event.
        first_ready_at: When it could be claimed first.
        finished_at: When it ended.
        state: As in the table `jobs`.
        deliveries: As the server counts them.
        attempts: Leases that have ended, oldest first; after `close` the open one, too.
        steps: What happened, oldest first; nothing that came after the end. Of very many, some are
            cut before the last (`STEPS_MAX`).
        steps_cut: How many.
        run_ms, wasted_ms: Time under leases, and the part that did not end in an ack.
    """

    __slots__ = (
        "_cut_of_variant", "_deadline", "_extensions", "_last_at", "_lease", "_lease_deadline",
        "_leased_at", "_ready_at", "_waited_from", "_was_ready", "_worker", "appended_at",
        "attempts", "began_at", "deliveries", "finished_at", "first_ready_at", "last_error",
        "last_reason", "last_worker", "run_ms", "state", "steps", "steps_cut", "wasted_ms",
    )  # fmt: skip

    def __init__(self) -> None:
        self.appended_at = 0
        self.began_at = 0
        self.first_ready_at = 0
        self.finished_at = 0
        self.state = ""
        self.deliveries = 0
        self.attempts: list[Attempt] = []
        self.steps: list[Step] = []
        self.steps_cut = 0
        self.run_ms = 0
        self.wasted_ms = 0
        self.last_error: str | None = None
        self.last_reason: str | None = None
        self.last_worker: str | None = None
        self._cut_of_variant = 0
        self._last_at = 0
        self._was_ready = False
        self._ready_at = 0
        self._leased_at = 0
        self._lease: str | None = None
        self._worker: str | None = None
        self._waited_from = 0
        self._deadline = 0
        self._lease_deadline = 0
        self._extensions = 0

    @property
    def is_known(self) -> bool:
        """Whether there is anything but a floor that may be about it."""
        return bool(self.steps or self.attempts)

    @property
    def variant(self) -> str:
        """What happened, in one line."""
        names = [step.activity for step in self.steps if step.activity not in NOT_IN_VARIANTS]
        return variant_of(names, self._cut_of_variant)

    # -- events ----------------------------------------------------------------------------------

    def append(self, ts: int, not_before: int) -> None:
        """The record itself: it comes before any event."""
        if self.appended_at:
            return
        self.appended_at = self.began_at = self._last_at = ts
        self._wait("appended", ts, not_before)

    def take(
        self,
        event: int,
        ts: int,
        due: int,
        worker: str | None,
        lease: str | None,
        reason: str | None,
        detail: str | None,
    ) -> None:
        """The next event.

        Args:
            event: Its number in `EVENTS`.
            ts: When.
            due: The deadline, or when the job is ready again; 0 for none.
            worker, lease, reason, detail: As in the table `lease_events`.
        """
        if ts < self._last_at:
            if ts < self.appended_at and event in _OF_LEASES_LOG:
                # It is about a record that was lost in a crash, and whose seq was given again.
                return
            # The server's clock was set back; for a job, time never runs backwards.
            ts = self._last_at
        self._last_at = ts
        if event == TRIMMED and not self.began_at:
            return
        self.began_at = self.began_at or ts
        if self._leased_at or self.state == "delayed":
            self._elapse(ts)
        if event == CLAIMED:
            self._claim(ts, due, worker, lease)
        elif event == ACKED:
            self._end_lease(ts, "acked", worker, reason, detail)
            self._end("acked", "acked", ts, worker)
        elif event == EXTENDED:
            self._extend(ts, due, worker)
        elif event == RELEASED:
            self._release(ts, due, worker, reason, detail)
        elif event in (HELD, UNHELD, REPLACED):
            self._park_or_replace(event, ts, due, reason, detail)
        else:
            self._finish(event, ts, worker, reason, detail)

    def close(self, end: int) -> None:
        """The range has no more events.

        Args:
            end: Where it ends; what is open is open as of then.
        """
        self._elapse(end)
        if self._leased_at:
            self._note_attempt(0, "open", None, None)

    # -- internals -------------------------------------------------------------------------------

    def _elapse(self, now: int) -> None:
        """Let time act."""
        if self._leased_at and self._deadline < now:
            at = self._deadline
            self._note_attempt(at, "expired", None, None)
            if not self.finished_at:
                self._wait("expired", at, 0)
        if self.state == "delayed" and self._ready_at <= now:
            self.state = "ready"
            self._was_ready = True
            self._note_step(Step("ready", self._ready_at, "ready", None))

    def _wait(self, activity: str, ts: int, due: int, worker: str | None = None) -> None:
        if due > ts:
            self.state, self._ready_at = "delayed", due
        else:
            self.state, self._ready_at = "ready", ts
        if not self._was_ready:
            self.first_ready_at = self._ready_at
            self._was_ready = self.state == "ready"
        self._note_step(Step(activity, ts, self.state, worker))

    def _claim(self, ts: int, deadline: int, worker: str | None, lease: str | None) -> None:
        if self._leased_at:
            self._lose(ts)
        self.deliveries += 1
        self._was_ready = True
        self._lease, self._worker, self._leased_at = lease, worker, ts
        self._waited_from = self._ready_at
        self._deadline = self._lease_deadline = deadline
        self._extensions = 0
        self.last_worker = worker
        if not self.finished_at:
            self.state = "in_flight"
            self._note_step(Step("claimed", ts, "in_flight", worker))

    def _lose(self, ts: int) -> None:
        """The lease had ended before `ts`, in a way that is not in the log."""
        self._note_attempt(ts, "lost", None, None)
        if not self.finished_at:
            self._wait("lost", ts, 0)

    def _end_lease(
        self, ts: int, outcome: str, worker: str | None, reason: str | None, detail: str | None
    ) -> bool:
        """The holder ends its lease. Gives whether there was one."""
        if not self._leased_at:
            return False
        if worker and self._worker and worker != self._worker:
            self._lose(ts)
            return False
        self._note_attempt(ts, outcome, reason, detail)
        return True

    def _extend(self, ts: int, deadline: int, worker: str | None) -> None:
        if not self._leased_at:
            return
        if worker and self._worker and worker != self._worker:
            self._lose(ts)
            return
        self._deadline = deadline
        self._extensions += 1

    def _release(
        self, ts: int, due: int, worker: str | None, reason: str | None, detail: str | None
    ) -> None:
        had = self._end_lease(ts, "released", worker, reason, detail)
        if reason == "hand_back":
            self.deliveries = max(self.deliveries - 1, 0)
        if detail is not None and not had:
            self.last_error = detail
        if not self.finished_at and self.state != "held":
            # A dead letter that found no room is postponed, and operators give jobs other times: no
            # lease has ended by that.
            was_waiting = reason is not None and reason in WAITING_REASONS
            self._wait(reason if was_waiting and reason else "released", ts, due, worker)

    def _park_or_replace(
        self, event: int, ts: int, due: int, reason: str | None, detail: str | None
    ) -> None:
        if event == HELD:
            if self.state == "held" or self.finished_at:
                # Said again, because the segment that said it first went.
                return
            if self._leased_at:
                self._note_attempt(ts, "held", reason, detail)
            elif detail is not None:
                self.last_error = detail
            self.state = "held"
            self._note_step(Step("held", ts, "held", None))
        elif event == UNHELD:
            if not self.finished_at:
                self.deliveries = 0
                self._wait("unheld", ts, due)
        elif self.state == "held":
            # It got other content, and waits on for an operator.
            self._note_step(Step("replaced", ts, "held", None))
        elif not self.finished_at and not self._leased_at:
            self._replace(ts, due)

    def _replace(self, ts: int, due: int) -> None:
        if self.state == "ready" and due <= ts:
            # It keeps its place among those that wait.
            self._note_step(Step("replaced", ts, "ready", None))
            return
        self._wait("replaced", ts, due)

    def _finish(
        self, event: int, ts: int, worker: str | None, reason: str | None, detail: str | None
    ) -> None:
        state = EVENTS[event]
        activity = state
        if event == TRIMMED:
            state = "expired" if reason == "ttl" else "dropped"
            activity = "ttl_expired" if reason == "ttl" else "dropped"
        elif event == EXPIRED:
            activity = "ttl_expired"
        elif event not in (DELETED, REDRIVEN) and self._leased_at:
            # These void the lease; with the others it lasts on.
            self._note_attempt(ts, state, reason, detail)
        if not self.finished_at and state != "acked":
            self.last_reason = reason or activity
        if detail is not None:
            self.last_error = detail
        self._end(activity, state, ts, worker)

    def _end(self, activity: str, state: str, ts: int, worker: str | None) -> None:
        if not self.finished_at:
            self.state, self.finished_at = state, ts
            self._note_step(Step(activity, ts, state, worker or None))

    def _note_step(self, step: Step) -> None:
        if len(self.steps) < STEPS_MAX:
            self.steps.append(step)
            return
        self.steps_cut += 1
        self._cut_of_variant += self.steps[-1].activity not in NOT_IN_VARIANTS
        self.steps[-1] = step

    def _note_attempt(
        self, ended_at: int, outcome: str, reason: str | None, error: str | None
    ) -> None:
        """The lease becomes an attempt."""
        overrun = 0
        if ended_at:
            run = ended_at - self._leased_at
            overrun = max(ended_at - self._lease_deadline, 0)
            self.run_ms += run
            if outcome != "acked":
                self.wasted_ms += run
                self.last_reason = reason or outcome
        if error is not None:
            self.last_error = error
        self.attempts.append(
            Attempt(
                self._lease,
                self.deliveries,
                self._worker,
                self._waited_from,
                self._leased_at,
                ended_at,
                outcome,
                reason,
                error,
                self._extensions,
                self._deadline,
                overrun,
            )
        )
        self._leased_at = 0
