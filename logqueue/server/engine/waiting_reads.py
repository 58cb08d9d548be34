"""Reads that wait until their topic changes.

Owns: who waits for which topic, and how many of them go on in one turn of the event loop. Must not
know: HTTP, what is read.
"""

from __future__ import annotations

import asyncio
from collections import deque

READS_PER_TURN = 16
"""Waiting reads that go on in one turn of the event loop: each reads, and makes a reply."""


class WaitingReads:
    """The waiting reads of one server.

    Attributes:
        by_topic: Futures of those that wait, by the name of the topic.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.by_topic: dict[str, set[asyncio.Future[None]]] = {}
        self._woken: deque[asyncio.Future[None]] = deque()

    def next_change(self, topic: str) -> asyncio.Future[None]:
        """A future for the next change of a topic, by name. Cancel it when it is not needed."""
        read: asyncio.Future[None] = self._loop.create_future()
        reads = self.by_topic.setdefault(topic, set())
        reads.add(read)

        def forget(done: asyncio.Future[None]) -> None:
            reads.discard(done)
            if not reads and self.by_topic.get(topic) is reads:
                del self.by_topic[topic]

        read.add_done_callback(forget)
        return read

    def wake(self, topic: str) -> None:
        """A topic has changed: those who wait for it go on, so many now and the others soon."""
        reads = self.by_topic.pop(topic, None)
        if reads:
            is_going_on = bool(self._woken)
            self._woken.extend(reads)
            if not is_going_on:
                self._go_on()

    def wake_all(self) -> None:
        """The same for all topics."""
        for topic in [*self.by_topic]:
            self.wake(topic)

    def _go_on(self) -> None:
        for _ in range(min(READS_PER_TURN, len(self._woken))):
            read = self._woken.popleft()
            if not read.done():
                read.set_result(None)
        if self._woken:
            self._loop.call_soon(self._go_on)
