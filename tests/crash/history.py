"""What the clients of one server saw over many of its lives, and whether it adds up.

Owns: the record of calls and answers, and the checks. Shared by all client threads; every method
takes the lock. Must not know: HTTP.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import NamedTuple


class Held(NamedTuple):
    """A job as it was delivered."""

    life: int
    seq: int
    job: str
    lease: str
    deadline: int
    deliveries: int


class History:
    """One queue's history.

    Attributes:
        sent: Jobs whose append was tried; `promised` those whose append was answered, with seqs.
        acked: Jobs whose ack was answered; `maybe` those whose ack was sent and not answered.
    """

    def __init__(
        self, queue: str, *, lease_ms: int, durable_acks: bool, durable_leases: bool
    ) -> None:
        self.queue = queue
        self.lease_ms = lease_ms
        self.durable_acks = durable_acks
        self.durable_leases = durable_leases
        self.lock = threading.Lock()
        self.sent: set[str] = set()
        self.promised: dict[str, int] = {}
        self.acked: set[str] = set()
        self.maybe: set[str] = set()
        self.delivered: Counter[str] = Counter()
        self.leases: dict[str, Held] = {}
        self.current: dict[int, Held] = {}
        self.given_back: set[str] = set()
        self.wrong: list[str] = []

    def trying(self, jobs: list[str]) -> None:
        """An append is about to be sent."""
        with self.lock:
            self.sent.update(jobs)

    def appended(self, jobs: list[str], first_seq: int) -> None:
        """An append was answered."""
        with self.lock:
            for place, job in enumerate(jobs):
                seq = first_seq + place
                if self.promised.setdefault(job, seq) != seq:
                    self._complain(f"{job} was promised as {self.promised[job]}, then as {seq}")

    def got(self, held: Held) -> None:
        """A job was delivered."""
        with self.lock:
            self.delivered[held.job] += 1
            if held.job not in self.sent:
                self._complain(f"{held.job} was never sent")
            if self.promised.get(held.job, held.seq) != held.seq:
                self._complain(f"{held.job} has seq {held.seq}, not {self.promised[held.job]}")
            if held.job in self.acked and self.durable_acks:
                self._complain(f"{held.job} was delivered after its ack was answered")
            if held.lease in self.leases:
                self._complain(f"lease {held.lease} was given twice")
            if held.deliveries < 1:
                self._complain(f"{held.job}: {held.deliveries} deliveries")
            other = self.current.get(held.seq)
            if other is not None and (self.durable_leases or other.life == held.life):
                self._check_turns(*sorted((other, held), key=lambda h: h.deadline))
            self.leases[held.lease] = self.current[held.seq] = held

    def settling(self, jobs: list[str]) -> None:
        """An ack is about to be sent."""
        with self.lock:
            self.maybe.update(jobs)

    def settled(self, jobs: list[str]) -> None:
        """An ack was answered and counted."""
        with self.lock:
            self.acked.update(jobs)

    def gave_back(self, leases: list[str]) -> None:
        """A nack, or the end of a stream, is about to be sent."""
        with self.lock:
            self.given_back.update(leases)

    def account(self, left: set[str], dead: set[str]) -> None:
        """At the end: every promised job is acked, maybe acked, dead or still there."""
        assert not self.wrong, "\n".join(self.wrong[:10])
        assert len(set(self.promised.values())) == len(self.promised), "one seq for two jobs"
        found = self.acked | self.maybe | dead | left
        # A killed process loses nothing that it had handed to the system, whatever the class.
        lost = self.promised.keys() - found
        assert not lost, f"{self.queue}: {len(lost)} promised jobs are lost: {sorted(lost)[:5]}"
        assert not (dead | left) - self.sent, f"{self.queue}: jobs that no producer sent"
        if self.durable_acks:
            assert not self.acked & (left | dead), f"{self.queue}: acked jobs are back"

    def _check_turns(self, first: Held, second: Held) -> None:
        """One holder at a time, by the server's own deadlines; leases are not extended."""
        claimed_at = second.deadline - self.lease_ms
        if claimed_at <= first.deadline and first.lease not in self.given_back:
            self._complain(f"{second} was given while {first} was held")
        if second.deliveries <= first.deliveries and first.deadline != second.deadline:
            self._complain(f"{second} after {first}: deliveries do not grow")

    def _complain(self, what: str) -> None:
        self.wrong.append(f"{self.queue}: {what}")
