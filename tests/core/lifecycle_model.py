"""One queue with all that can become of its jobs, as plainly as it can be said.

Owns: what each command should do to jobs, dead letters and the archive. Must not know: batches,
blocks, events, indexes, anything of the core but its config.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from logqueue.events.block import Texts
from logqueue.model.config import TopicOptions
from tests.core.world import Wish


@dataclass
class ModelJob:
    """A live job. `ready_at` is when it may be claimed; `lease` is (node, deadline, stream)."""

    seq: int
    ts: int
    wish: Wish
    written_at: int
    ready_at: int
    timed: bool
    deliveries: int = 0
    offered: bool = False
    error: str | None = None
    lease: tuple[str, int, int] | None = None
    held: bool = False

    @property
    def waits(self) -> bool:
        """Ready or delayed."""
        return self.lease is None and not self.held

    def state(self, now: int) -> str:
        """As an operator sees it."""
        if self.held:
            return "held"
        if self.lease is not None:
            return "in_flight"
        return "delayed" if self.ready_at > now else "ready"


@dataclass
class Letter:
    """A dead letter."""

    wish: Wish
    reason: str


def due(wish: Wish, now: int) -> int:
    """When a record written now is claimable; 0 when at once."""
    at = now + wish.delay_ms if wish.delay_ms else wish.not_before
    return at if at > now else 0


class LifecycleModel:
    """A queue, its dead letters and its archive."""

    def __init__(self, config: TopicOptions) -> None:
        self.config = config
        self.head = 0
        self.jobs: dict[int, ModelJob] = {}
        self.orphans: dict[int, tuple[str, int, int]] = {}
        self.letters: list[Letter] = []
        self.archive: Counter[tuple[bytes, str]] = Counter()
        self.finished: Counter[str] = Counter()

    # -- time ------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Leases run out; then what is superseded, and what is too old, ends."""
        self.orphans = {seq: lease for seq, lease in self.orphans.items() if lease[1] >= now}
        for job in self.jobs.values():
            if job.lease is not None and job.lease[1] < now:
                delay = self.backoff(job)
                job.ready_at = job.lease[1] + delay if delay else 0
                job.lease = None
        self.settle(now)

    def backoff(self, job: ModelJob) -> int:
        """Without jitter, linear."""
        backoff = self.config.retry_backoff
        if backoff is None:
            return 0
        return backoff.base_ms + backoff.step_ms * max(job.deliveries - 1, 0)

    def settle(self, now: int) -> None:
        """What must end before anybody looks."""
        newest: dict[str, ModelJob] = {}
        for job in [*self.jobs.values()]:
            busy = self.busy(job.wish.key)
            if job.waits and busy is not None:
                self.end(job.seq, "superseded")
        for job in sorted(self.jobs.values(), key=lambda j: (j.written_at, j.seq)):
            if job.waits and job.wish.key is not None:
                older = newest.get(job.wish.key)
                if older is not None:
                    self.end(older.seq, "superseded")
                newest[job.wish.key] = job
        for job in sorted(self.jobs.values(), key=lambda j: j.seq):
            own, ttl = job.wish.ttl_ms, self.config.ttl_ms
            if (own and now > job.written_at + own) or (ttl and now > job.ts + ttl):
                if self.config.on_expire == "dead_letter":
                    self.die(job, "expired")
                else:
                    self.end(job.seq, "expired")

    # -- ends ------------------------------------------------------------------------------------

    def end(self, seq: int, outcome: str) -> None:
        """A job is finished."""
        job = self.jobs.pop(seq)
        self.finished[outcome] += 1
        if self.config.archive is not None:
            self.archive[job.wish.texts[0], outcome] += 1
        if job.lease is not None and outcome in ("expired", "dropped", "deleted"):
            self.orphans[seq] = job.lease

    def die(self, job: ModelJob, reason: str) -> None:
        """A job becomes a dead letter."""
        del self.jobs[job.seq]
        self.letters.append(Letter(job.wish, reason))

    def evict(self) -> None:
        """The oldest go until the cap holds."""
        while self.config.cap_records and len(self.jobs) > self.config.cap_records:
            self.end(min(self.jobs), "dropped")

    # -- commands --------------------------------------------------------------------------------

    def add(self, now: int, wish: Wish) -> int:
        """A new job."""
        self.head += 1
        at = due(wish, now)
        self.jobs[self.head] = ModelJob(self.head, now, wish, now, at, at > 0)
        return self.head

    def waiting(self, key: str | None) -> ModelJob | None:
        """The waiting job with a key."""
        if key is None:
            return None
        return next((j for j in self.jobs.values() if j.waits and j.wish.key == key), None)

    def busy(self, key: str | None) -> ModelJob | None:
        """The job with a key that it has, though it does not wait."""
        if key is None:
            return None
        jobs = (j for j in self.jobs.values() if not j.waits and j.wish.unique)
        return next((j for j in jobs if j.wish.key == key), None)

    def write(self, now: int, wishes: list[Wish]) -> list[tuple[int, str]] | None:
        """The fate of each record; None when one of them rejects."""
        new: dict[str, int] = {}
        fates: list[tuple[int, str]] = []
        replaced: list[tuple[int, Wish]] = []
        added: list[Wish] = []
        for wish in wishes:
            found = self.waiting(wish.key) or self.busy(wish.key)
            seq = new.get(wish.key or "") or (found.seq if found is not None else 0)
            if not seq:
                added.append(wish)
                seq = self.head + len(added)
                fates.append((seq, "created"))
                if wish.key is not None:
                    new[wish.key] = seq
            elif wish.on_conflict == "reject":
                return None
            elif wish.on_conflict == "keep" or (found is not None and not found.waits):
                fates.append((seq, "kept"))
            else:
                fates.append((seq, "replaced"))
                if seq > self.head:
                    added[seq - self.head - 1] = wish
                else:
                    replaced.append((seq, wish))
        for seq, wish in replaced:
            job = self.jobs[seq]
            job.wish, job.written_at, job.ready_at = wish, now, due(wish, now)
            job.timed = True
        for wish in added:
            self.add(now, wish)
        if added:
            self.evict()
        return fates

    def limit(self, job: ModelJob) -> int:
        """Deliveries it may have."""
        return job.wish.max_deliveries or self.config.max_deliveries

    def claim(self, now: int, wanted: int, lease: tuple[str, int, int]) -> list[int]:
        """Seqs that are handed out, ascending."""
        config = self.config
        if config.paused:
            return []
        if config.max_in_flight:
            leased = sum(job.lease is not None for job in self.jobs.values())
            wanted = min(wanted, max(config.max_in_flight - leased, 0))
        if not wanted:
            return []
        ready = [j for _, j in sorted(self.jobs.items()) if j.state(now) == "ready"]
        action = config.when_exhausted
        taken: list[ModelJob] = []
        exhausted: list[ModelJob] = []
        for job in ready:
            if len(taken) == wanted:
                break
            if job.offered or job.timed:
                limit = self.limit(job) if action is not None else 0
                worn = limit and job.deliveries >= limit
                (exhausted if worn else taken).append(job)
        fresh = [job for job in ready if not (job.offered or job.timed)]
        taken = sorted(taken + fresh, key=lambda j: j.seq)[:wanted]
        for job in exhausted:
            if action == "hold":
                job.held = True
            elif action == "drop":
                self.end(job.seq, "dropped")
            else:
                self.die(job, "max_deliveries")
        for job in taken:
            job.lease, job.offered = lease, True
            job.deliveries += 1
        return [job.seq for job in taken]

    def mine(self, node: str, seqs: Iterable[int]) -> list[int]:
        """Those that a node holds, each once."""
        found = []
        for seq in dict.fromkeys(seqs):
            job = self.jobs.get(seq)
            lease = job.lease if job is not None else self.orphans.get(seq)
            if lease is not None and lease[0] == node:
                found.append(seq)
        return found

    def ack(self, seqs: list[int]) -> None:
        """Done."""
        for seq in seqs:
            if self.orphans.pop(seq, None) is None:
                self.end(seq, "acked")

    def give_back(
        self, now: int, seqs: list[int], delay: int | None, error: str | None, count: bool
    ) -> None:
        """A nack."""
        for seq in seqs:
            if self.orphans.pop(seq, None) is not None:
                continue
            job = self.jobs[seq]
            wait = delay if delay is not None else self.backoff(job) if count else 0
            job.lease, job.ready_at = None, now + wait if wait else 0
            job.error = job.error if error is None else error
            job.deliveries -= not count

    def reject(self, seqs: list[int], error: str | None) -> None:
        """Given up."""
        for seq in sorted(seqs):
            if self.orphans.pop(seq, None) is not None:
                continue
            job = self.jobs[seq]
            if self.config.dead_letter is not None:
                self.die(job, "rejected")
            elif self.config.on_exhausted == "hold":
                job.lease, job.held = None, True
                job.error = job.error if error is None else error
            else:
                self.end(seq, "rejected")

    def release(self, seqs: list[int]) -> list[int]:
        """Held jobs are let go."""
        found = [seq for seq in dict.fromkeys(seqs) if seq in self.jobs and self.jobs[seq].held]
        for seq in found:
            job = self.jobs[seq]
            job.held, job.deliveries, job.ready_at, job.error = False, 0, 0, None
        return found

    def edit(self, now: int, seq: int, texts: Texts, retry: bool) -> str:
        """Other content for a job that waits or is held."""
        job = self.jobs.get(seq)
        if job is None:
            return "NotFound"
        if job.lease is not None:
            return "JobInFlight"
        other = self.waiting(job.wish.key) or self.busy(job.wish.key)
        if job.held and other not in (None, job):
            return "KeyConflict"
        if job.held and retry:
            job.held, job.deliveries, job.error = False, 0, None
        ends = job.written_at + job.wish.ttl_ms if job.wish.ttl_ms else 0
        job.ready_at = 0 if retry or job.held or job.ready_at <= now else job.ready_at
        left = max(ends - now, 1) if ends else 0
        job.wish = job.wish._replace(texts=texts, delay_ms=0, not_before=0, ttl_ms=left)
        job.written_at, job.timed = now, True
        return job.state(now)

    def change(
        self, now: int, action: str, seqs: Iterable[int], states: Iterable[str], delay: int
    ) -> list[int]:
        """Operators change those of some jobs that are in one of the states."""
        found = [seq for seq in sorted(set(seqs)) if seq in self.jobs]
        found = [seq for seq in found if self.jobs[seq].state(now) in states]
        for seq in found:
            job = self.jobs[seq]
            if action == "cancel":
                self.end(seq, "cancelled")
            elif action == "hold":
                job.held = True
            elif job.held:
                self.release([seq])
            elif action == "return":
                job.lease, job.ready_at = None, 0
            else:
                job.ready_at = now + delay if action == "delay" and delay else 0
                job.offered = True
        return found

    def redrive(self, now: int, limit: int) -> int:
        """Dead letters come back."""
        back, self.letters = self.letters[:limit], self.letters[limit:]
        taken = {j.wish.key for j in self.jobs.values() if j.waits or j.wish.unique}
        for letter in back:
            key = letter.wish.key if letter.wish.key not in taken else None
            taken.add(letter.wish.key)
            wish = letter.wish
            self.add(
                now,
                Wish(
                    wish.texts,
                    key,
                    max_deliveries=wish.max_deliveries,
                    priority=wish.priority,
                    group=wish.group,
                    unique=wish.unique if key is not None else 0,
                ),
            )
        if back:
            self.evict()
        return len(back)

    def restart(self) -> None:
        """A new life of the server: counts, delays and errors stay, leases as the queue says."""
        self.orphans = {}
        if not self.config.leases_durable:
            for job in self.jobs.values():
                if job.lease is not None:
                    job.lease, job.ready_at = None, 0
