"""Who wants jobs of one queue: work streams, and claim calls that wait.

Owns: the line they wait in. Must not know: HTTP, when they are served, how jobs are chosen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from logqueue.core import commands as cmd
from logqueue.core.commands import Claimer
from logqueue.core.queue_topic import QueueTopic
from logqueue.errors import LogqueueError
from logqueue.model import limits
from logqueue.server.auth import Key
from logqueue.server.engine.pending import Pending, Spent
from logqueue.server.engine.worker_registry import Observed

WAITING_PER_PASS_MAX = 100
"""Claims that wait and are answered by one pass: all their replies are made in one turn."""


class WorkStream:
    """One push connection's side of a queue. The HTTP layer subclasses it to encode and send.

    Attributes:
        identity: The holder of the leases given over this connection.
        earlier: Identities of streams of the same node that ended with an earlier life of the
            server; the leases given over them count as this one's.
        since: Its place in the line.
        starts: Whether its client says that it starts each job as soon as it has it.
        on_way: Lease numbers of jobs dealt to it whose frames are not written yet, by seq.
        observed: What is known of its node; `worked_before` is how often that had settled or
            extended jobs of the queue when the stream was opened.
        key: Who opened it; None on a server without authentication.
    """

    key: Key | None = None

    def __init__(
        self,
        topic: str,
        node: str,
        jobs_max: int,
        lease_ms: int | None,
        *,
        starts: bool = True,
    ) -> None:
        self.topic = topic
        self.node = node
        self.jobs_max = jobs_max
        self.lease_ms = lease_ms
        self.identity = 0
        self.earlier: list[int] = []
        self.since = 0
        self.starts = starts
        self.on_way: dict[int, int] = {}
        self.observed: Observed | None = None
        self.worked_before = 0

    @property
    def has_worked(self) -> bool:
        """Whether what it brought is worked on, as far as the server can tell."""
        observed = self.observed
        return self.starts or (observed is not None and observed.worked > self.worked_before)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can be delivered; such a stream gets no more jobs."""
        raise NotImplementedError

    @property
    def is_paused(self) -> bool:
        """Whether its client must read what it has before it gets more."""
        raise NotImplementedError

    def deliver(self, jobs: cmd.ClaimedJobs) -> None:
        """Jobs leased to this stream whose promise holds. Must not block or raise."""
        raise NotImplementedError

    def held_back(self, reason: str, retry_after_ms: int | None) -> None:
        """The queue has jobs and hands out none. Must not block or raise."""

    def end(self, error: LogqueueError | None) -> None:
        """The server ends the stream. Must not block or raise."""
        raise NotImplementedError


class Waiting:
    """A claim call that waits: for the end of its coalescing window, or for jobs.

    Attributes:
        since: Its place in the line.
        long_poll: Whether a pass that has nothing for it leaves it waiting.
        pending: Its answer.
        timer: Ends the long poll; None without one.
    """

    def __init__(
        self, claimer: Claimer, since: int, long_poll: bool, pending: Pending[Any]
    ) -> None:
        self.claimer = claimer
        self.since = since
        self.long_poll = long_poll
        self.pending = pending
        self.timer: asyncio.TimerHandle | None = None
        self._began = time.perf_counter()

    @property
    def is_over(self) -> bool:
        """Whether it waits no longer."""
        return self.pending.is_decided

    def end(self) -> None:
        """It waits no longer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def decide(self, claimed: cmd.ClaimResult, written: int, durable: int) -> None:
        """A pass had this for it."""
        self.end()
        spent = Spent(waited_ms=(time.perf_counter() - self._began) * 1000)
        self.pending.decide(claimed, written, durable, spent)

    def refuse(self, refusal: LogqueueError, written: int = 0, durable: int = 0) -> None:
        """It is over without a pass."""
        self.end()
        self.pending.refuse(refusal, written, durable)


class Waitlist:
    """All who want jobs of one queue instance.

    A pass costs what it hands out, not what waits: long polls that the ready jobs cannot reach
    are not even looked at.

    Attributes:
        scheduled: The next pass, when there is to be one.
        is_next: That pass is due in the next turn of the event loop.
        retry_at: When time may change what the last pass could not give, ms since the epoch; 0 when
            that is not known.
        is_cut: The last line left out claims that jobs are there for.
    """

    def __init__(self, topic: QueueTopic) -> None:
        self.topic = topic
        self.streams: list[WorkStream] = []
        self.scheduled: asyncio.Handle | None = None
        self.is_next = False
        self.retry_at = 0
        self.is_cut = False
        # Each first come, first served.
        self._long_polls: dict[Waiting, None] = {}
        self._timed_out: dict[Waiting, None] = {}
        # What the end of a coalescing window answers, all of it together.
        self._in_window: dict[Waiting, None] = {}

    # -- claims ----------------------------------------------------------------------------------

    @property
    def claims(self) -> int:
        """How many claims wait."""
        return len(self._long_polls) + len(self._timed_out) + len(self._in_window)

    @property
    def has_timed_out(self) -> bool:
        """Whether there are claims whose time is up."""
        return bool(self._timed_out)

    def waiting(self) -> Iterator[Waiting]:
        """All claims that wait."""
        return chain(self._long_polls, self._timed_out, self._in_window)

    def add(self, waiting: Waiting) -> None:
        """A claim begins to wait; its place in the line is the last."""
        (self._long_polls if waiting.long_poll else self._in_window)[waiting] = None

    def remove(self, waiting: Waiting) -> None:
        """A claim waits no longer, or never did."""
        for claims in (self._long_polls, self._timed_out, self._in_window):
            claims.pop(waiting, None)

    def end_wait(self, waiting: Waiting) -> bool:
        """The time of a long poll is up: the next pass answers it. False if it waits no longer."""
        if waiting not in self._long_polls:
            return False
        del self._long_polls[waiting]
        self._timed_out[waiting] = None
        waiting.long_poll = False
        return True

    def take_long_polls(self) -> list[Waiting]:
        """Remove and return all long polls."""
        taken = [*self._long_polls]
        self._long_polls.clear()
        return taken

    def take_all(self) -> list[Waiting]:
        """Remove and return all claims."""
        taken = [*self.waiting()]
        for claims in (self._long_polls, self._timed_out, self._in_window):
            claims.clear()
        return taken

    # -- the line --------------------------------------------------------------------------------

    def line(self) -> list[tuple[Waiting | WorkStream, Claimer]]:
        """All who may get jobs now, first come first, with what they want.

        Long polls that the ready jobs cannot reach are left out, so that a job costs the same
        however many wait for one; and so are claims of any kind that are too many for a pass.
        """
        # One pass hands out so many jobs at most: there is nothing for those behind.
        ready = min(self.topic.ready, limits.CLAIMED_PER_PASS_MAX)
        within_reach = islice(self._long_polls, min(ready, WAITING_PER_PASS_MAX + 1))
        timed_out = islice(self._timed_out, WAITING_PER_PASS_MAX)
        line: list[tuple[Waiting | WorkStream, Claimer]] = [
            (waiting, waiting.claimer)
            for waiting in chain(within_reach, timed_out, self._in_window)
        ]
        queue = self.topic.queue
        for stream in self.streams:
            if stream.has_ended or stream.is_paused:
                continue
            free = stream.jobs_max - queue.held_by(stream.identity)
            if stream.earlier:
                free -= sum(map(queue.held_by, stream.earlier))
            if free > 0:
                line.append((stream, Claimer(stream.node, free, stream.lease_ms, stream.identity)))
        line.sort(key=lambda entry: entry[0].since)
        served: list[tuple[Waiting | WorkStream, Claimer]] = []
        left = WAITING_PER_PASS_MAX
        self.is_cut = False
        for place, entry in enumerate(line):
            if _is_long_poll(entry[0]):
                if place >= ready:
                    continue
                if not left:
                    self.is_cut = True
                    continue
                left -= 1
            served.append(entry)
        return served

    def next_due(self) -> int | None:
        """When time next changes what can be handed out, None when it never does."""
        due = self.topic.queue.next_due()
        if self.retry_at and (due is None or self.retry_at < due):
            return self.retry_at
        return due


def _is_long_poll(member: Waiting | WorkStream) -> bool:
    return isinstance(member, Waiting) and member.long_poll
