"""Batches of jobs that are over: when their ends are decided, and how often a refusal is retried.

Owns: the order of the ends, what a refusal leads to, what is counted of it. Must not know: which
jobs a batch has, what its callback says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from logqueue.core import commands as cmd
from logqueue.core.decide.job_batches import callback_of
from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError
from logqueue.server.engine.engine import Engine

ENDED_PER_STEP_MAX = 16
"""Ends in one step of the event loop, a few milliseconds at most."""
RETRY_MS = 1000
"""How long a batch whose callback was refused waits for the next try."""

logger = logging.getLogger("logqueue.batches")


class BatchEnds:
    """Ends the batches of an engine that are due.

    Attributes:
        ended: Since the start of the server.
        refused: Tries whose callback was refused.
    """

    def __init__(self, engine: Engine, on_end: Callable[[str], None] | None = None) -> None:
        """Nothing is decided yet.

        Args:
            engine: Whose batches.
            on_end: Called with the name of each batch that has ended.
        """
        self._engine = engine
        self._on_end = on_end
        self._put_off: dict[str, int] = {}
        self.ended = self.refused = 0

    def next_look(self) -> int | None:
        """When there is something to do, ms since the epoch; None for never."""
        due = self._engine.state.batches.due
        if not due or not self._engine.fires:
            return None
        return min(self._put_off.get(name, 0) for name in due)

    def step(self) -> tuple[Topic, ...]:
        """End batches that are due, each by a decision of its own.

        Returns:
            Topics that were changed.
        """
        engine = self._engine
        now = engine.clock.now_ms()
        due = engine.state.batches.due
        # A clock that was set back ends the wait of before.
        self._put_off = {
            name: min(at, now + RETRY_MS) for name, at in self._put_off.items() if name in due
        }
        changed: dict[int, Topic] = {}
        ready = [name for name in due if self._put_off.get(name, 0) <= now]
        for name in ready[:ENDED_PER_STEP_MAX]:
            for topic in self._end(name, now):
                changed[topic.number] = topic
        return tuple(changed.values())

    def _end(self, name: str, now: int) -> tuple[Topic, ...]:
        state = self._engine.state
        batch = state.batches.named(name)
        callback = callback_of(state, batch)
        try:
            executed = self._engine.execute(
                cmd.EndBatch(callback.topic if callback is not None else "", name), now
            )
        except LogqueueError as refusal:
            if batch.error is None:
                logger.warning("the callback of batch %s was refused, retrying: %s", name, refusal)
            self.refused += 1
            if callback is not None:
                # Who may see the batch need not be allowed to see this topic.
                refusal.names = (*refusal.names, callback.topic)
            batch.error = refusal
            self._put_off[name] = now + RETRY_MS
            return ()
        self.ended += executed.result.total
        if self._on_end is not None:
            self._on_end(name)
        return executed.topics
