"""What a server shows of itself, once a second.

Owns: the second. Must not know: what is counted, what is shown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError
from logqueue.model.clock import Clock
from logqueue.server.auth import Key
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.engine.engine import Engine
from logqueue.server.metrics import Metrics
from logqueue.server.service import Service
from logqueue.server.stats.feed import StatsFeed
from logqueue.server.stats.history import StatsHistory, in_parts
from logqueue.server.stats.server_figures import ServerFigures

SECOND_MS = 1000
MARK_SECONDS = 10
NODES_PER_STEP = 2000
LATE_MS = 20
"""How long after the end of a second its rows are written."""

logger = logging.getLogger("logqueue.stats")


class ServerStats:
    """History and live feed of one server.

    Attributes:
        history: What has happened on topics.
        feed: What is shown of it live.
    """

    def __init__(self, service: Service, metrics: Metrics, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._figures = ServerFigures(service, metrics, clock)
        self._engine: Engine | None = None
        self._is_running = False
        self._seconds = 0
        self._viewed: asyncio.Task[None] | None = None
        self.history = StatsHistory(metrics.activity)
        self.feed = StatsFeed(service, self.history, self._figures, clock, self._be_viewed)

    async def run(self) -> None:
        """Write rows and frames each second, for ever."""
        self._is_running = True
        try:
            while True:
                await self._next_second()
        finally:
            self._is_running = False

    async def _next_second(self) -> None:
        late_ms = (self._clock.now_ms() - LATE_MS) % SECOND_MS
        await asyncio.sleep((SECOND_MS - late_ms) / 1000)
        try:
            await self.second()
        except Exception:
            logger.exception("statistics were not computed; it is tried again in a second")

    async def second(self) -> None:
        """Write the rows of the last second, and show what has changed."""
        engine = self._service.engine
        active: list[int] = []
        if engine is not None:
            if engine is not self._engine:
                self._engine = engine
                self._seconds = 0
                await self.history.begin(engine)
            active = await self.history.fold(engine)
        await self.feed.tick(active)
        dispatcher = self._service.lifecycle.dispatcher
        if self._seconds % MARK_SECONDS == 0 and dispatcher is not None:
            await self._mark_workers(dispatcher)
        self._seconds += 1

    async def _mark_workers(self, dispatcher: Dispatcher) -> None:
        """Rates of workers are measured from here."""
        workers = dispatcher.workers
        for some in in_parts(workers.begin_mark(self._clock.now_ms()), NODES_PER_STEP):
            for observed in some:
                workers.set_mark(observed)
            await asyncio.sleep(0)

    async def series(
        self, topic: Topic, *, is_long: bool
    ) -> tuple[int, int, dict[str, list[int | None]]]:
        """The history of a topic: see `StatsHistory.series`."""
        if not self._is_running:
            await self.second()
        return self.history.series(topic, self._clock.now_ms(), is_long=is_long)

    def watch(self, key: Key | None) -> AsyncGenerator[bytes, None]:
        """The frames of the live feed for one viewer: see `StatsFeed.watch`."""
        return self.feed.watch(key)

    def _be_viewed(self) -> None:
        if not self._is_running and self._viewed is None:
            # A server without background tasks: the seconds are those of its viewers.
            self._viewed = asyncio.get_running_loop().create_task(self._while_viewed())

    async def _while_viewed(self) -> None:
        while self.feed.has_viewers:
            await self._next_second()
        self._viewed = None

    def end(self, error: LogqueueError) -> None:
        """End all streams; the last event says why."""
        self.feed.end(error)
        if self._viewed is not None:
            self._viewed.cancel()
            self._viewed = None
