"""A queue played by hand: random histories, and what is true of every job in them.

Owns: a small queue that leases, expires, delays, parks and loses jobs one by one, writing down both
what a log would tell (records, events) and, apart from that, what really happened (rows of `jobs`
and `attempts`). Nothing here reads the events back. Must not know: Spark, the fold under test.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]

START = 1_700_000_000_000
NODES = ("ant", "bee", "cat")
GIVEN_UP = ("rejected", "dropped", "superseded", "cancelled", "dead_lettered")
GONE = {"expired": "ttl_expired", "deleted": "deleted", "redriven": "redriven"}


@dataclass
class Lease:
    """Who holds a job, until when."""

    row: Row
    deadline: int


@dataclass
class Job:
    """A job as the queue sees it, with its rows of truth."""

    row: Row
    ready_at: int
    state: str
    lease: Lease | None = None
    was_ready: bool = False
    attempts: list[Row] = field(default_factory=list)
    steps: list[tuple[str, int, str, str | None]] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether it has ended; its lease may outlive it."""
        return self.row["finished_at"] is not None


class Play:
    """One queue with a few jobs, and random hands on it."""

    def __init__(self, case: int, orders: list[int], steps: int) -> None:
        self.rng = random.Random(case)
        self.topic = f"queue-{case % 7}"
        self.log_id = f"case-{case}"
        self.now = START + self.rng.randrange(200_000_000)
        self.records: list[Row] = []
        self.events: list[Row] = []
        self.jobs: dict[int, Job] = {}
        self.floor = 0
        self._orders = orders
        self._leases = 0
        self.append()
        for _ in range(steps):
            self.now += self.rng.choice((0, 1, 40, 300, 2_000, 45_000))
            self.elapse(self.now)
            self.step()

    def step(self) -> None:
        """One thing happens."""
        hands = (
            (6, self.claim), (4, self.ack), (3, self.nack), (2, self.extend), (1, self.give_up),
            (1, self.hold), (1, self.unhold), (1, self.vanish), (1, self.replace),
            (1, self.append), (1, self.trim), (1, self.postpone),
        )  # fmt: skip
        weights = [weight for weight, _ in hands]
        self.rng.choices([hand for _, hand in hands], weights)[0]()

    # -- what the log tells ----------------------------------------------------------------------

    def tell(self, event: str, seq: int, **more: Any) -> None:
        """An event into the log."""
        self._orders[0] += 1
        self.events.append(
            {
                "topic": self.topic, "lseq": self._orders[0], "ts": self.now, "event": event,
                "job_seq": seq, "lease_id": None, "worker": None, "deadline": None,
                "ready_at": None, "reason": None, "detail": None, "log_id": self.log_id, **more,
            }
        )  # fmt: skip

    # -- hands -----------------------------------------------------------------------------------

    def append(self) -> None:
        """A new job, sometimes for later."""
        seq = len(self.records) + 1
        delay = self.rng.choice((0, 0, 0, 500, 60_000))
        due = self.now + delay
        tag = self.rng.choice((None, "a", "b"))
        self.records.append(
            {
                "topic": self.topic, "seq": seq, "ts": self.now, "tag": tag, "key": None,
                "not_before": due if delay else None, "log_id": self.log_id,
            }
        )  # fmt: skip
        row: Row = {
            "topic": self.topic, "seq": seq, "tag": tag, "key": None, "appended_at": self.now,
            "ready_at": due, "first_claim_at": None, "finished_at": None, "state": None,
            "attempts": 0, "deliveries": 0, "wait_ms": None, "e2e_ms": None, "run_ms_total": 0,
            "wasted_ms": 0, "last_reason": None, "last_error": None, "last_worker": None,
            "log_id": self.log_id,
        }  # fmt: skip
        state = "delayed" if delay else "ready"
        job = self.jobs[seq] = Job(row, due, state, was_ready=not delay)
        self.mark(job, "appended")

    def claim(self) -> None:
        """A worker takes a ready job."""
        job = self.some(lambda job: job.state == "ready")
        if job is None:
            return
        self._leases += 1
        row, node = job.row, self.rng.choice(NODES)
        deadline = self.now + self.rng.choice((100, 30_000, 100_000_000))
        row["attempts"] += 1
        row["deliveries"] += 1
        row["last_worker"] = node
        if row["first_claim_at"] is None:
            row["first_claim_at"] = self.now
            row["wait_ms"] = self.now - row["ready_at"]
        attempt: Row = {
            "topic": self.topic, "job_seq": row["seq"], "lease_id": f"lease_{self._leases:x}",
            "attempt": row["deliveries"], "worker": node, "tag": row["tag"], "key": None,
            "ready_at": job.ready_at, "claimed_at": self.now, "ended_at": None, "outcome": "open",
            "reason": None, "error": None, "extensions": 0, "deadline_last": deadline,
            "wait_ms": self.now - job.ready_at, "run_ms": None, "overrun_ms": None,
            "log_id": self.log_id, "first_deadline": deadline,
        }  # fmt: skip
        job.attempts.append(attempt)
        job.lease, job.state = Lease(attempt, deadline), "in_flight"
        self.mark(job, "claimed", node)
        lease_id = attempt["lease_id"]
        self.tell("claimed", row["seq"], lease_id=lease_id, worker=node, deadline=deadline)

    def ack(self) -> None:
        """A holder is done; perhaps with a job that has gone meanwhile."""
        job = self.some(lambda job: job.lease is not None)
        if job is not None and job.lease is not None:
            node = job.lease.row["worker"]
            self.end_lease(job, self.now, "acked")
            self.over(job, "acked", "acked", node)
            self.tell("acked", job.row["seq"], worker=node)

    def nack(self) -> None:
        """A holder gives a job back."""
        job = self.some(lambda job: job.lease is not None)
        if job is None or job.lease is None:
            return
        node = job.lease.row["worker"]
        reason = self.rng.choice(("nack", "nack", "disconnect", "hand_back"))
        error = self.rng.choice((None, "ValueError: no")) if reason == "nack" else None
        delay = self.rng.choice((0, 700, 50_000))
        self.end_lease(job, self.now, "released", reason, error)
        if reason == "hand_back":
            job.row["deliveries"] -= 1
        self.wait(job, "released", self.now, delay, node)
        due = self.now + delay if delay else None
        self.tell(
            "released", job.row["seq"], worker=node, ready_at=due, reason=reason, detail=error
        )

    def extend(self) -> None:
        """A holder asks for more time."""
        job = self.some(lambda job: job.lease is not None)
        if job is not None and job.lease is not None:
            lease = job.lease
            lease.deadline = self.now + self.rng.choice((200, 60_000))
            lease.row["extensions"] += 1
            lease.row["deadline_last"] = lease.deadline
            node = lease.row["worker"]
            self.tell("extended", job.row["seq"], worker=node, deadline=lease.deadline)

    def give_up(self) -> None:
        """A job ends for good, and whoever holds it holds nothing."""
        job = self.some(lambda job: not job.is_over)
        if job is not None:
            how = self.rng.choice(GIVEN_UP)
            if job.lease is not None:
                self.end_lease(job, self.now, how)
            job.row["last_reason"] = how
            self.over(job, how, how, None)
            self.tell(how, job.row["seq"])

    def vanish(self) -> None:
        """A record goes; a lease of it lasts on."""
        job = self.some(lambda job: not job.is_over)
        if job is not None:
            how = self.rng.choice(sorted(GONE))
            job.row["last_reason"] = GONE[how]
            self.over(job, GONE[how], how, None)
            self.tell(how, job.row["seq"])

    def trim(self) -> None:
        """A floor rises over the oldest jobs."""
        if self.rng.random() < 0.5 or self.floor + 1 >= len(self.records):
            return
        self.floor += 1
        why = self.rng.choice(("ttl", "cap"))
        job = self.jobs[self.floor]
        activity, state = ("ttl_expired", "expired") if why == "ttl" else ("dropped", "dropped")
        if not job.is_over:
            job.row["last_reason"] = why
            self.over(job, activity, state, None)
        self.tell("trimmed", self.floor, reason=why)

    def hold(self) -> None:
        """A job is parked; the log may say it twice."""
        job = self.some(lambda job: not job.is_over and job.state != "held")
        if job is not None:
            error = self.rng.choice((None, "KeyError: x"))
            if job.lease is not None:
                self.end_lease(job, self.now, "held", None, error)
            elif error is not None:
                job.row["last_error"] = error
            job.state = "held"
            self.mark(job, "held")
            for _ in range(self.rng.choice((1, 1, 2))):
                self.tell("held", job.row["seq"], detail=error)

    def unhold(self) -> None:
        """An operator lets a parked job go."""
        job = self.some(lambda job: job.state == "held")
        if job is not None:
            job.row["deliveries"] = 0
            self.wait(job, "unheld", self.now)
            self.tell("unheld", job.row["seq"])

    def replace(self) -> None:
        """A ready job gets new content, and keeps its place."""
        job = self.some(lambda job: job.state == "ready")
        if job is not None:
            self.mark(job, "replaced")
            self.tell("replaced", job.row["seq"])

    def postpone(self) -> None:
        """A dead letter finds no room."""
        job = self.some(lambda job: job.state == "ready" and job.row["attempts"] > 0)
        if job is not None:
            self.wait(job, "postponed", self.now, 1_000, None)
            self.tell(
                "released", job.row["seq"], ready_at=self.now + 1_000, reason="postponed", worker=""
            )

    # -- time and book-keeping -------------------------------------------------------------------

    def elapse(self, now: int) -> None:
        """Leases and delays that have run out by now."""
        for job in self.jobs.values():
            if job.lease is not None and job.lease.deadline < now:
                at = job.lease.deadline
                self.end_lease(job, at, "expired")
                if not job.is_over:
                    self.wait(job, "expired", at)
            if job.state == "delayed" and job.ready_at <= now:
                job.state, job.was_ready = "ready", True
                job.steps.append(("ready", job.ready_at, "ready", None))

    def some(self, fits: Any) -> Job | None:
        """A random job of a kind."""
        found = [job for job in self.jobs.values() if fits(job)]
        return self.rng.choice(found) if found else None

    def mark(self, job: Job, activity: str, worker: str | None = None) -> None:
        """A step, now."""
        job.steps.append((activity, self.now, job.state, worker))

    def wait(
        self, job: Job, activity: str, at: int, delay: int = 0, worker: str | None = None
    ) -> None:
        """A job waits again, unless it is gone."""
        if not job.is_over:
            job.state = "delayed" if delay else "ready"
            job.ready_at = at + delay
            if not job.was_ready:
                job.row["ready_at"] = job.ready_at
                job.was_ready = not delay
            job.steps.append((activity, at, job.state, worker))

    def over(self, job: Job, activity: str, state: str, worker: str | None) -> None:
        """A job ends; only the first time counts."""
        if not job.is_over:
            job.state = state
            job.row["finished_at"] = self.now
            job.row["e2e_ms"] = max(self.now - job.row["ready_at"], 0)
            self.mark(job, activity, worker)

    def end_lease(
        self, job: Job, at: int, outcome: str, reason: str | None = None, error: str | None = None
    ) -> None:
        """An attempt is complete."""
        assert job.lease is not None
        row, job.lease = job.lease.row, None
        row.update(ended_at=at, outcome=outcome, reason=reason, error=error)
        row["run_ms"] = at - row["claimed_at"]
        row["overrun_ms"] = max(at - row["first_deadline"], 0)
        job.row["run_ms_total"] += row["run_ms"]
        if outcome != "acked":
            job.row["wasted_ms"] += row["run_ms"]
            job.row["last_reason"] = reason or outcome
        if error is not None:
            job.row["last_error"] = error

    def truth(self, end: int) -> tuple[list[Row], list[Row]]:
        """Rows of `jobs` (with steps as tuples) and of `attempts`, as of the end of the range."""
        self.elapse(end)
        jobs, attempts = [], []
        for job in self.jobs.values():
            names = [step[0] for step in job.steps if step[0] not in ("appended", "ready")]
            variant = ">".join(names) or "waiting"
            jobs.append(job.row | {"state": job.state, "variant": variant, "steps": job.steps})
            for row in job.attempts:
                attempts.append({k: v for k, v in row.items() if k != "first_deadline"})
        return jobs, attempts


def plays(cases: int, steps: int = 25) -> list[Play]:
    """Many queues; their decisions have one order over all."""
    orders = [0]
    return [Play(case, orders, steps) for case in range(cases)]
