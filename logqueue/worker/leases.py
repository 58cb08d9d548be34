"""Leases that are held, and the thread that keeps them.

Owns: when each lease is renewed, in which batches, until when at most, and finding out that one is
lost. Must not know: handlers, event loops, what a job is about. Everything here works while the
event loop is blocked: it has a thread and a connection of its own.

A lease is renewed when a third of it has passed, so two renewals may fail before it runs out. It is
reckoned from the moment the request left, by this machine's monotonic clock; the server's clock is
never compared with ours.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from logqueue import shapes
from logqueue.errors import LogqueueError, NotAQueue, NotFound

RENEWED_AFTER = 1 / 3
"""Share of a lease after which it is renewed."""

BATCHED_WITHIN = 1 / 12
"""Share of a lease by which it may be renewed early, to ride along with others."""

LEASE_MS_MIN = 100
SEQS_PER_CALL = 1000

logger = logging.getLogger("logqueue.worker.leases")


@dataclass(eq=False, slots=True)
class Lease:
    """One job that this worker holds. Times are seconds of the monotonic clock.

    Attributes:
        job: As it was handed out, with the id of the lease.
        lease_s: What each renewal asks for.
        began: When the job was asked for, or its frame received.
        deadline_ms: When the lease ends by the server's clock; changes with each renewal.
        is_settling: A settle is on its way, so a renewal that does not count says nothing.
        is_lost: The server has said, or the clock says, that the job is no longer ours.
        on_lost: Called once when that happens, from any thread, with the reason.
    """

    queue: str
    job: shapes.Job
    lease_s: float
    began: float
    on_lost: Callable[[str], None] = field(default=lambda reason: None)
    is_settling: bool = False
    is_lost: bool = False
    expires: float = field(init=False)
    renew_at: float = field(init=False)
    deadline_ms: int = field(init=False)

    def __post_init__(self) -> None:
        """A lease begins as long as it was asked for."""
        self.deadline_ms = self.job.deadline
        self.renewed(self.began, self.lease_s)

    def renewed(self, at: float, lease_s: float) -> None:
        """The lease lasts `lease_s` seconds from `at`."""
        self.expires = at + lease_s
        self.renew_at = at + lease_s * RENEWED_AFTER


class Renewal(Protocol):
    """One extend call. Raises LogqueueError."""

    def __call__(self, queue: str, jobs: list[shapes.Job], lease_ms: int) -> shapes.Extended: ...


class LeaseKeeper:
    """Renews what is due. Thread-safe; its driver calls `renew_due` by `next_due`."""

    def __init__(self, extend: Renewal, now: Callable[[], float], max_lease_s: float) -> None:
        self._extend = extend
        self._now = now
        self._max_lease_s = max_lease_s
        self._held: dict[tuple[str, int], Lease] = {}
        self._changed = threading.Condition()
        self._closed = False

    def hold(self, lease: Lease) -> None:
        """Keep a lease from now on. One that the same job had before is lost: the server knew of it
        no longer, or it would not have delivered the job again."""
        key = _key(lease)
        with self._changed:
            before = self._held.get(key)
        if before is not None:
            self._lose(before, "the server delivered the job again")
        with self._changed:
            self._held[key] = lease
            self._changed.notify()

    def drop(self, lease: Lease) -> None:
        """Keep it no longer: it was settled, or lost."""
        with self._changed:
            self._discard(lease)

    def check(self, leases: Iterable[Lease]) -> None:
        """Ask the server at once whether these are still ours."""
        with self._changed:
            for lease in leases:
                lease.renew_at = min(lease.renew_at, self._now())
            self._changed.notify()

    def next_due(self) -> float | None:
        """When `renew_due` has something to do next; None while nothing is held."""
        with self._changed:
            return min((lease.renew_at for lease in self._held.values()), default=None)

    def renew_due(self) -> None:
        """Renew everything that is due or nearly so, in as few calls as possible."""
        now = self._now()
        calls: dict[tuple[str, int], list[Lease]] = {}
        ended: list[Lease] = []
        with self._changed:
            for lease in self._held.values():
                if lease.renew_at > now + lease.lease_s * BATCHED_WITHIN:
                    continue
                left_s = lease.began + self._max_lease_s - now
                if lease.expires >= lease.began + self._max_lease_s:
                    # Renewed for the last time already.
                    if now >= lease.expires:
                        ended.append(lease)
                    else:
                        lease.renew_at = lease.expires
                    continue
                lease_ms = max(round(min(lease.lease_s, left_s) * 1000), LEASE_MS_MIN)
                calls.setdefault((lease.queue, lease_ms), []).append(lease)
        for lease in ended:
            self._lose(lease, f"it was leased for max_lease, {self._max_lease_s:g} s")
        for (queue, lease_ms), leases in calls.items():
            for start in range(0, len(leases), SEQS_PER_CALL):
                self._renew(queue, lease_ms, leases[start : start + SEQS_PER_CALL])

    def _renew(self, queue: str, lease_ms: int, leases: list[Lease]) -> None:
        asked_at = self._now()
        try:
            reply = self._extend(queue, [lease.job for lease in leases], lease_ms)
        except (NotFound, NotAQueue):
            for lease in leases:
                self._lose(lease, "its queue is gone")
            return
        except LogqueueError as error:
            level = logging.INFO if error.retryable else logging.ERROR
            text = "%d leases of %s cannot be renewed now: %s"
            logger.log(level, text, len(leases), queue, error)
            self._try_again(leases)
            return
        skipped = set(reply.skipped)
        for lease in leases:
            seq = lease.job.seq
            if seq not in skipped:
                lease.deadline_ms = reply.deadlines.get(seq, lease.deadline_ms)
                lease.renewed(asked_at, lease_ms / 1000)
            elif lease.is_settling:
                lease.renew_at = asked_at + lease.lease_s * RENEWED_AFTER
            else:
                self._lose(
                    lease,
                    "the server released the job, or delivered it to another worker",
                )

    def _try_again(self, leases: list[Lease]) -> None:
        now = self._now()
        for lease in leases:
            if now >= lease.expires:
                self._lose(lease, "it could not be renewed in time")
            else:
                lease.renew_at = now + lease.lease_s * BATCHED_WITHIN

    def _lose(self, lease: Lease, reason: str) -> None:
        with self._changed:
            if not self._discard(lease):
                # Settled while the call was on its way.
                return
        lease.is_lost = True
        lease.on_lost(reason)

    def _discard(self, lease: Lease) -> bool:
        """Keep a lease no longer, under the lock; whether it was kept."""
        is_held = self._held.get(_key(lease)) is lease
        if is_held:
            del self._held[_key(lease)]
        return is_held

    # -- the thread ------------------------------------------------------------------------------

    def run(self) -> None:
        """Renew until closed; the body of the keeper's thread."""
        while self._wait():
            try:
                self.renew_due()
            except Exception:
                logger.exception("renewing leases failed; retrying")

    def _wait(self) -> bool:
        """Sleep until something is due; False once closed."""
        with self._changed:
            while not self._closed:
                due = min((lease.renew_at for lease in self._held.values()), default=None)
                left_s = None if due is None else due - self._now()
                if left_s is not None and left_s <= 0:
                    return True
                self._changed.wait(left_s)
            return False

    def close(self) -> None:
        """End `run`, whatever is still held."""
        with self._changed:
            self._closed = True
            self._held.clear()
            self._changed.notify()


def _key(lease: Lease) -> tuple[str, int]:
    return lease.queue, lease.job.seq
