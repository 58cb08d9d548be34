"""A worker declares the schedules of its app when it starts.

Owns: which are left to declare, what is tried again. Must not know: how calls are made. A schedule
that is missing is created; one that differs is reported, and never changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from logqueue.errors import (
    Forbidden,
    InvalidRequest,
    LogqueueError,
    MethodNotAllowed,
    NotAQueue,
    NotFound,
    RecordTooLarge,
    TopicNotFound,
    Unauthorized,
)
from logqueue.worker.calls import WorkerCalls
from logqueue.worker.schedule import DeclaredSchedule

RETRY_S_MIN = 1.0
RETRY_S_MAX = 60.0

_FINAL = (Forbidden, InvalidRequest, MethodNotAllowed, NotAQueue, RecordTooLarge, Unauthorized)
"""Refusals that the next try would get, too."""

logger = logging.getLogger("logqueue.worker")


class ScheduleDeclaring:
    """The schedules that one worker has to declare."""

    def __init__(self, calls: WorkerCalls, schedules: Iterable[DeclaredSchedule]) -> None:
        self._calls = calls
        self._left = [*schedules]

    async def try_once(self) -> bool:
        """Declare all that is left, one try each; whether nothing is left."""
        self._left = [one for one in self._left if not await self._declare(one)]
        return not self._left

    async def until_done(self) -> None:
        """Try again what is left, less and less often."""
        wait_s = RETRY_S_MIN
        while self._left:
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_S_MAX)
            await self.try_once()

    async def _declare(self, schedule: DeclaredSchedule) -> bool:
        """Whether there is nothing more to do about it."""
        try:
            found = await self._calls.ensure_schedule(schedule)
        except LogqueueError as error:
            is_final = isinstance(error, _FINAL)
            # A server that knows no schedules has no such route.
            is_final |= isinstance(error, NotFound) and not isinstance(error, TopicNotFound)
            level = logging.WARNING if is_final else logging.INFO
            logger.log(level, "schedule %s could not be declared: %s", schedule.name, error)
            return is_final
        if found.created:
            logger.info("schedule %s is created", schedule.name)
        for drift in schedule.drift(found):
            logger.warning(
                "schedule %s: %s; nothing was changed: use `logqueue schedules put %s`, or change "
                "the app",
                schedule.name,
                drift,
                schedule.name,
            )
        return True
