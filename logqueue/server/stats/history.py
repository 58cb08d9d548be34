"""The history of topics while the server runs: each second for 10 minutes, each minute for a day.

Owns: which numbers there are, when rows are written, rates. Must not know: who looks at it. What
happens on a topic is counted in `Activity`; once a second the topics on which something has
happened get a row, in steps of a few milliseconds. No other topic costs anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import NamedTuple, TypeVar

from logqueue.core.decide.claims import oldest_ready_ms
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.topic import Topic
from logqueue.server.activity import Activity, ActivityCounts
from logqueue.server.engine.engine import Engine
from logqueue.server.stats.rings import HistoryRings

SECONDS, MINUTES = 600, 1440
SECONDS_BYTES_MAX = 32 << 20
MINUTES_BYTES_MAX = 64 << 20
"""Bytes of all rows together; a queue that is always busy takes 24 000 and 58 000."""
AGE_STEP_MS = 100
"""Ages are kept in so many ms, so that 13 years fit."""
RATE_SLOTS = 10
"""Rates are means over so many seconds."""
FOLD_MS = 500
"""Rows written within so many ms after the end of a slot belong into that slot."""
DUE_SLACK = 64
"""Times of queues that are gone, which are not worth a sweep."""
FOLDED_PER_STEP = 100
LOOKED_AT_PER_STEP = 1000
"""Topics that one step of the event loop writes rows for, and looks at."""

T = TypeVar("T")

COUNTERS = ("appended", "claimed", "acked", "nacked", "expired", "dead")
_columns = attrgetter(*COUNTERS)
GAUGES = ("ready", "in_flight", "oldest_ready_ms")


class TopicRates(NamedTuple):
    """What happens on a topic per second, to a tenth."""

    appended: float
    claimed: float
    acked: float
    nacked: float
    expired: float
    dead: float


NO_RATES = TopicRates(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class StatsHistory:
    """The history of all topics of one server.

    Attributes:
        activity: What has happened since the last rows were written.
        totals: What has happened on all topics together, up to the last rows.
        oldest: For how long the oldest claimable job of each queue with new rows had been claimable
            when they were written, in ms.
    """

    def __init__(self, activity: Activity) -> None:
        self.activity = activity
        self.totals = ActivityCounts()
        self.oldest: dict[int, int] = {}
        self._seconds = HistoryRings(1000, SECONDS, SECONDS_BYTES_MAX)
        self._minutes = HistoryRings(60_000, MINUTES, MINUTES_BYTES_MAX)
        self._recent_totals: deque[tuple[int, int, int, int]] = deque(maxlen=RATE_SLOTS + 1)
        self._due: list[tuple[int, int]] = []
        self._due_at: dict[int, int] = {}
        self._began_at = 0

    @property
    def size(self) -> int:
        """Bytes of all rows, about."""
        return self._seconds.size + self._minutes.size

    async def begin(self, engine: Engine) -> None:
        """Take in an engine that has just recovered: time may act on its queues."""
        self._due.clear()
        self._due_at.clear()
        if not self._began_at:
            self._note_totals(engine.clock.now_ms())
            self._began_at = engine.clock.now_ms() - FOLD_MS
        for topics in in_parts([*engine.state.instances.values()], LOOKED_AT_PER_STEP):
            for topic in topics:
                self._note_due(topic)
            await asyncio.sleep(0)

    async def fold(self, engine: Engine) -> list[int]:
        """Write the rows of what has happened since the last call.

        Returns:
            The topic instances that have changed; some of them may be gone.
        """
        now = engine.clock.now_ms()
        self._elapse(engine, now)
        taken = self.activity.take()
        self.oldest = {}
        at = now - FOLD_MS
        for some in in_parts([*taken.items()], FOLDED_PER_STEP):
            for number, counts in some:
                self._fold(engine, number, counts, at, now)
            await asyncio.sleep(0)
        self._seconds.forget_old(now)
        self._minutes.forget_old(now)
        self._note_totals(now)
        return [*taken]

    def _note_totals(self, now: int) -> None:
        totals = self.totals
        self._recent_totals.append((now, totals.appended, totals.claimed, totals.acked))

    def _fold(self, engine: Engine, number: int, counts: ActivityCounts, at: int, now: int) -> None:
        topic = engine.state.instances.get(number)
        totals = self.totals
        totals.appended += counts.appended
        totals.claimed += counts.claimed
        totals.acked += counts.acked
        if topic is None:
            self._forget(number)
            return
        if isinstance(topic, QueueTopic):
            counters: tuple[int, ...] = _columns(counts)
            oldest = self.oldest[number] = oldest_ready_ms(topic, now)
            gauges: tuple[int, ...] = (topic.ready, topic.queue.leased, oldest // AGE_STEP_MS)
            self._note_due(topic)
        else:
            counters, gauges = (counts.appended,), ()
        self._seconds.add(number, at, counters, gauges)
        self._minutes.add(number, at, counters, gauges)

    def _note_due(self, topic: Topic) -> None:
        """Time changes a queue also without any call: look again then."""
        if isinstance(topic, QueueTopic) and topic.number not in self._due_at:
            due = topic.queue.next_due()
            if due is not None:
                self._due_at[topic.number] = due
                heappush(self._due, (due, topic.number))

    def _forget(self, number: int) -> None:
        """A topic is gone."""
        self._seconds.forget(number)
        self._minutes.forget(number)
        self._due_at.pop(number, None)
        if len(self._due) > 2 * len(self._due_at) + DUE_SLACK:
            self._due = [(due, known) for known, due in self._due_at.items()]
            heapify(self._due)

    def _elapse(self, engine: Engine, now: int) -> None:
        """Let time act on queues where something is due, so many of them."""
        for _ in range(LOOKED_AT_PER_STEP):
            if not self._due or self._due[0][0] > now:
                return
            _, number = heappop(self._due)
            self._due_at.pop(number, None)
            queue = engine.state.queue_instance(number)
            if queue is None:
                continue
            if queue.queue.rests_to < now:
                engine.lapse(queue, now)
            # Its row is written, and the next time is noted, with the others.
            self.activity[number]

    # -- reading ---------------------------------------------------------------------------------

    def rates(self, topic: Topic, now: int) -> TopicRates:
        """What happens on a topic per second, over the last 10 seconds."""
        is_queue = isinstance(topic, QueueTopic)
        columns = range(len(COUNTERS) if is_queue else 1)
        sums = self._seconds.sums(topic.number, now - FOLD_MS, RATE_SLOTS, columns)
        if not any(sums):
            return NO_RATES
        per_s = [round(count / RATE_SLOTS, 1) for count in sums]
        return TopicRates(*per_s) if is_queue else NO_RATES._replace(appended=per_s[0])

    def server_rates(self) -> tuple[float, float, float]:
        """Records written, jobs claimed and acked per second on all topics together."""
        if len(self._recent_totals) < 2:
            return (0.0, 0.0, 0.0)
        first, last = self._recent_totals[0], self._recent_totals[-1]
        seconds = max((last[0] - first[0]) / 1000, 1.0)
        appended, claimed, acked = (
            round((last[index] - first[index]) / seconds, 1) for index in (1, 2, 3)
        )
        return appended, claimed, acked

    def count(self, topic: Topic, name: str, now: int, seconds: int) -> int:
        """How often something has happened on a queue in the last seconds, 600 at most."""
        column = COUNTERS.index(name)
        return self._seconds.sums(topic.number, now - FOLD_MS, seconds, (column,))[0]

    def recent(self, topic: Topic, now: int, seconds: int = 60) -> tuple[list[int], list[int]]:
        """Records written, and jobs acked, in each of the last whole seconds, latest last; empty
        lists for a topic on which nothing has happened for so long. The second whose row may grow
        is left out: it would look like a pause."""
        at, number = now - FOLD_MS - 1000, topic.number
        last = self._seconds.last_at(number)
        if last is None or last <= at - seconds * 1000:
            return [], []
        into = self._seconds.counters(number, at, seconds, 0)
        if not isinstance(topic, QueueTopic):
            return into, []
        return into, self._seconds.counters(number, at, seconds, COUNTERS.index("acked"))

    def series(
        self, topic: Topic, now: int, *, is_long: bool
    ) -> tuple[int, int, dict[str, list[int | None]]]:
        """The history of a topic: the length of a slot in ms, when the first one begins, and the
        series by name; of a log that of `appended` alone.

        Args:
            topic: The topic, brought up to date.
            now: ms since the epoch.
            is_long: A day in minutes instead of 10 minutes in seconds.
        """
        rings = self._minutes if is_long else self._seconds
        slots, number, at = rings.slots, topic.number, now - FOLD_MS
        first = (at // rings.step_ms - slots + 1) * rings.step_ms
        is_queue = isinstance(topic, QueueTopic)
        found: dict[str, list[int | None]] = {}
        for index, name in enumerate(COUNTERS if is_queue else COUNTERS[:1]):
            found[name] = [*rings.counters(number, at, slots, index)]
        if isinstance(topic, QueueTopic):
            for index, (name, present) in enumerate(zip(GAUGES, _gauges(topic, now), strict=True)):
                scale, growth = 1, 0
                if name == "oldest_ready_ms":
                    scale, growth = AGE_STEP_MS, rings.step_ms // AGE_STEP_MS
                values = rings.gauges(number, at, slots, len(COUNTERS) + index, present, growth)
                found[name] = [v if v is None else v * scale for v in values]
        unknown = min(rings.known_from(number, self._began_at) - first // rings.step_ms, slots - 1)
        for values in found.values():
            values[: max(unknown, 0)] = [None] * max(unknown, 0)
        return rings.step_ms, first, found


def _gauges(topic: QueueTopic, now: int) -> tuple[int, int, int]:
    return topic.ready, topic.queue.leased, oldest_ready_ms(topic, now) // AGE_STEP_MS


def in_parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Items in parts, one for each step of the event loop."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
