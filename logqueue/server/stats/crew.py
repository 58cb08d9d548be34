"""Who works on which queue now, as far as one look a second shows.

Owns: when a node counts as a worker of a queue. Must not know: frames, HTTP.
"""

from __future__ import annotations

import asyncio
from itertools import chain, islice

from logqueue.core.queue_topic import QueueTopic
from logqueue.core.topic import Topic
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.stats.entries import holders_of
from logqueue.server.stats.history import in_parts

PRESENT_MS = 60_000
"""A node that was seen so recently is at work."""
WAITING_LOOKED_AT = 1000
NODES_PER_STEP = 2000
"""Claims that wait, of a queue, and nodes of all queues, that one step looks at."""


class Crew:
    """The workers of all queues.

    A node is one of them if it was seen within the last minute, has a work stream or a claim that
    waits, or holds leases.
    """

    def __init__(self) -> None:
        self._present: dict[int, set[str]] = {}
        self._holders: dict[int, set[str]] = {}
        self._seen_at: dict[int, int] = {}
        self._now = 0

    async def look(self, dispatcher: Dispatcher, now: int) -> None:
        """Look who is there, in steps."""
        present: dict[int, set[str]] = {}
        seen_at: dict[int, int] = {}
        for some in in_parts([*dispatcher.workers.latest()], NODES_PER_STEP):
            for number, node, observed in some:
                if observed.seen_at > seen_at.get(number, 0):
                    seen_at[number] = observed.seen_at
                if observed.seen_at >= now - PRESENT_MS:
                    present.setdefault(number, set()).add(node)
            await asyncio.sleep(0)
        for waitlist in dispatcher.waitlists():
            nodes = present.setdefault(waitlist.topic.number, set())
            nodes.update(stream.node for stream in waitlist.streams)
            calls = islice(waitlist.waiting(), WAITING_LOOKED_AT)
            nodes.update(call.claimer.node for call in calls)
        self._present, self._seen_at, self._now = present, seen_at, now
        for number in [*self._holders]:
            if number not in dispatcher.engine.state.instances:
                del self._holders[number]

    def count(self, topic: Topic, *, is_fresh: bool = False) -> int:
        """How many workers a queue has.

        Args:
            topic: The topic; a log has none.
            is_fresh: Look again who holds leases, since something has happened on it.
        """
        if not isinstance(topic, QueueTopic):
            return 0
        present = self._present.get(topic.number) or set()
        if not topic.queue.leased:
            self._holders.pop(topic.number, None)
            return len(present)
        holders = self._holders.get(topic.number)
        if holders is None or is_fresh:
            holders = self._holders[topic.number] = holders_of(topic)
        return len({*chain(present, holders)})

    def last_seen_at(self, topic: Topic) -> int:
        """When a worker of a queue was last seen, ms since the epoch; 0 if none was."""
        if self._present.get(topic.number) or self._holders.get(topic.number):
            return self._now
        return self._seen_at.get(topic.number, 0)
