"""Reads that wait: until their topic changes, or until jobs end.

Owns: who waits for which topic or job, and how many of them go on in one turn of the event loop.
Must not know: HTTP, what is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from logqueue import events as ev
from logqueue.core.job_status import STATE_OF

READS_PER_TURN = 16
"""Waiting reads that go on in one turn of the event loop: each reads, and makes a reply."""

Read = asyncio.Future[None]


class _Woken:
    """Reads that go on: so many now, and the others soon."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._reads: deque[Read] = deque()

    def add(self, reads: Iterable[Read]) -> None:
        """These go on."""
        is_going_on = bool(self._reads)
        self._reads.extend(reads)
        if not is_going_on:
            self._go_on()

    def _go_on(self) -> None:
        for _ in range(min(READS_PER_TURN, len(self._reads))):
            read = self._reads.popleft()
            if not read.done():
                read.set_result(None)
        if self._reads:
            self._loop.call_soon(self._go_on)


class WaitingReads:
    """The waiting reads of one server.

    Attributes:
        by_topic: Futures of those that wait for any change, by the name of the topic.
        by_job: Futures of those that wait for the ends of jobs, by the number of their queue and
            their seqs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.by_topic: dict[str, set[Read]] = {}
        self.by_job: dict[int, dict[int, set[Read]]] = {}
        self._woken = _Woken(loop)

    def next_change(self, topic: str) -> Read:
        """A future for the next change of a topic, by name. Cancel it when it is not needed."""
        read: Read = self._loop.create_future()
        reads = self.by_topic.setdefault(topic, set())
        reads.add(read)

        def forget(done: Read) -> None:
            reads.discard(done)
            if not reads and self.by_topic.get(topic) is reads:
                del self.by_topic[topic]

        read.add_done_callback(forget)
        return read

    def next_end(self, topic: int, seqs: Sequence[int]) -> Read:
        """A future for the next end of any of some jobs, by the number of their queue. Cancel it
        when it is not needed."""
        read: Read = self._loop.create_future()
        jobs = self.by_job.setdefault(topic, {})
        for seq in seqs:
            jobs.setdefault(seq, set()).add(read)

        def forget(done: Read) -> None:
            for seq in seqs:
                reads = jobs.get(seq)
                if reads is not None:
                    reads.discard(done)
                    if not reads:
                        del jobs[seq]
            if not jobs and self.by_job.get(topic) is jobs:
                del self.by_job[topic]

        read.add_done_callback(forget)
        return read

    def wake(self, topic: str) -> None:
        """A topic has changed: those who wait for it go on."""
        reads = self.by_topic.pop(topic, None)
        if reads:
            self._woken.add(reads)

    def note(self, event: ev.Event, changes: Iterable[ev.JobChange]) -> None:
        """An event was applied: those who wait for jobs that it ends go on."""
        jobs = self.by_job.get(event.topic)
        if jobs is None:
            return
        ended: set[int] = set()
        for change in changes:
            if change.kind in STATE_OF:
                ended.update(jobs.keys() & change.seqs)
            elif change.kind == "trimmed":
                ended.update(seq for seq in jobs if seq <= change.seqs[0])
        if event.ends_topic:
            ended.update(jobs)
        if ended:
            self._woken.add({read for seq in ended for read in jobs[seq]})

    def wake_all(self) -> None:
        """All go on."""
        for topic in [*self.by_topic]:
            self.wake(topic)
        waiting = [reads for jobs in self.by_job.values() for reads in jobs.values()]
        self._woken.add({read for reads in waiting for read in reads})
