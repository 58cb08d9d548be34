"""Schedules that fire: which is next, how many fire in one step, and the timer that waits for them.

Owns: the order in which schedules that are due fire, what a refusal leads to, what is counted of
it, the one timer. Must not know: what a firing writes, when a schedule is due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from logqueue.core import commands as cmd
from logqueue.core.schedules import ScheduleState
from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError, NotReady
from logqueue.server.engine.engine import NO_WRITES, Engine

FIRED_PER_STEP_MAX = 16
"""Firings in one step of the event loop, a few milliseconds at most."""
LATE_MS = 1000
"""How long after its time a firing counts as late."""
HELD_MS = 1000
"""How long schedules rest when the log takes no changes."""

logger = logging.getLogger("logqueue.schedules")


class Firing:
    """Lets the schedules of an engine fire, in the order in which they are due.

    Attributes:
        fired: Firings since the start of the server.
        late: Those that came over a second after their time.
        missed: Firings that were passed over.
        failed: Tries that were refused.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.fired = self.late = self.missed = self.failed = 0
        self._noticed = 0
        self._held_until = 0

    def next_look(self) -> int | None:
        """When there is something to do, ms since the epoch; None for never."""
        first = self._engine.state.schedules.first() if self._engine.fires else None
        return None if first is None else max(first[0], self._held_until)

    def step(self, firings_max: int = FIRED_PER_STEP_MAX) -> tuple[Topic, ...]:
        """Let schedules that are due fire, each as a decision of its own.

        Args:
            firings_max: How many at most, so that others get their turn.

        Returns:
            Topics that were changed.
        """
        engine = self._engine
        changed: dict[int, Topic] = {}
        for _ in range(firings_max):
            now = engine.clock.now_ms()
            look = self.next_look()
            if look is None or look > now:
                # A clock that was set back ends the wait of before.
                self._held_until = min(self._held_until, now + HELD_MS)
                first = engine.state.schedules.first()
                if first is None or first[0] > now:
                    self._noticed = 0
                break
            self._noticed = min(self._noticed or now, now)
            first = engine.state.schedules.first()
            assert first is not None
            schedule = engine.state.schedules.named(first[1])
            missed = self.missed
            for topic in self._fire(schedule, now):
                changed[topic.number] = topic
            if self.missed > missed:
                # To look for the last of many times takes as long as several firings.
                break
        return tuple(changed.values())

    def _fire(self, schedule: ScheduleState, now: int) -> tuple[Topic, ...]:
        engine = self._engine
        topic: Topic | None = engine.state.topics.get(schedule.options.topic)
        if topic is not None and topic.replacing:
            engine.settle_replaced(topic, now)
            return ()
        due_at = schedule.due_at
        command = cmd.FireSchedule(schedule.options.topic, schedule.name, self._noticed)
        try:
            executed = engine.execute(command, now)
        except (*NO_WRITES, NotReady) as refusal:
            self._held_until = now + HELD_MS
            schedule.error = refusal
            return ()
        except LogqueueError as refusal:
            self.failed += 1
            if not schedule.failures:
                logger.warning(
                    "schedule %s cannot write to %s, retrying: %s",
                    schedule.name, schedule.options.topic, refusal,
                )  # fmt: skip
            engine.state.schedules.put_off(schedule, now, refusal)
            return ()
        if executed.result.scheduled_for:
            self.fired += 1
            self.late += now - due_at > LATE_MS
        if executed.result.missed:
            self.missed += executed.result.missed
            logger.warning("schedule %s: %d firings missed", schedule.name, executed.result.missed)
        return executed.topics


class DueWork(Protocol):
    """What is to be done at times of its own."""

    def next_look(self) -> int | None:
        """When there is something to do, ms since the epoch; None for never."""
        ...

    def step(self) -> tuple[Topic, ...]:
        """Do some of it; gives the topics that were changed."""
        ...


class FiringTimer:
    """Waits for the next schedule, or other work that is due, in an event loop."""

    def __init__(
        self,
        firing: DueWork,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        wake: Callable[[Iterable[Topic]], None],
        clock_check_ms: int,
    ) -> None:
        """Not waiting yet.

        Args:
            firing: What to wait for.
            loop: Where.
            now_ms: The clock that schedules go by.
            wake: Called with the topics that got records.
            clock_check_ms: How late, at most, a step of that clock is noticed.
        """
        self._firing = firing
        self._loop = loop
        self._now_ms = now_ms
        self._wake = wake
        self._clock_check_ms = clock_check_ms
        self._timer: asyncio.Handle | None = None

    def arm(self) -> None:
        """Wait for the schedule that is next now."""
        self.stop()
        look = self._firing.next_look()
        if look is None:
            return
        wait_ms = look - self._now_ms()
        if wait_ms <= 0:
            self._timer = self._loop.call_soon(self._step)
        else:
            # The loop's clock knows nothing of steps of the wall clock.
            wait_s = min(wait_ms, self._clock_check_ms) / 1000
            self._timer = self._loop.call_later(wait_s, self._step)

    def stop(self) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _step(self) -> None:
        try:
            self._wake(self._firing.step())
        except Exception:
            logger.exception("work that was due failed; it is tried again in a second")
            self._timer = self._loop.call_later(HELD_MS / 1000, self._step)
            return
        self.arm()
