"""What the event loop does about the replica of a server: replies that wait too long for it, logs
that should begin new segments for it.

Owns: since when a position waits for the replica, and what is refused when that is too long. Must
not know: threads, stores, HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from logqueue.errors import Fenced, ReplicaUnavailable
from logqueue.server.engine.commit_barrier import NEVER, CommitBarrier
from logqueue.server.engine.engine import Engine
from logqueue.server.storage.replication import Replication
from wal import WalError

TICKS_PER_TIMEOUT = 8
TICK_MAX_S = 0.25

logger = logging.getLogger("logqueue.replica")


class ReplicaWatch:
    """Looks at a replica now and then."""

    def __init__(
        self,
        replication: Replication,
        engine: Engine,
        barrier: CommitBarrier,
        timeout_ms: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing waits yet.

        Args:
            replication: Of that engine.
            engine: Its journal refuses what cannot be promised.
            barrier: Where replies wait.
            timeout_ms: How long a reply may wait for the replica, in ms.
            monotonic: A clock for durations, in seconds.
        """
        self._replication = replication
        self._engine = engine
        self._barrier = barrier
        self._timeout_s = timeout_ms / 1000
        self._monotonic = monotonic
        # How far the log had come when. What is not committed a timeout later is overdue.
        self._marks: deque[tuple[float, int]] = deque()
        self._rolled: dict[str, int] = {}

    @property
    def tick_s(self) -> float:
        """How often `tick` should be called, in seconds."""
        return min(self._timeout_s / TICKS_PER_TIMEOUT, TICK_MAX_S)

    def tick(self) -> None:
        """Refuse what has waited too long, or accept changes again; begin segments."""
        if self._replication.fenced_by is not None:
            return
        if self._replication.is_sync:
            self._look_for_stall()
        self._roll()

    def _look_for_stall(self) -> None:
        replication, journal = self._replication, self._engine.journal
        now = self._monotonic()
        marks = self._marks
        marks.append((now, journal.jobs.appended))
        while marks[0][0] <= now - self._timeout_s:
            replication.stalled_through = marks.popleft()[1]
        was_stalled = bool(journal.unpromisable)
        if not replication.is_stalled:
            journal.unpromisable = ""
            if was_stalled:
                logger.info("the replica is up to date again: changes are accepted")
            return
        why = replication.stats.last_error or "no chunk was committed in time"
        journal.unpromisable = (
            f"the replica has not answered for {self._timeout_s:g} s ({why}); nothing was stored: "
            "try again later"
        )
        if not was_stalled:
            logger.error(
                "the replica has not answered for %g s: changes are refused", self._timeout_s
            )
        self._barrier.refuse_through(
            replication.stalled_through,
            ReplicaUnavailable(
                f"this waited {self._timeout_s:g} s for the replica ({why}): whether it will be "
                "there after the loss of this machine is not known; try again later"
            ),
        )

    def _roll(self) -> None:
        """Chunks can go once segments have what they say, and only sealed segments are uploaded."""
        writer, journal = self._replication.writer, self._engine.journal
        for name in self._replication.wanted_rolls:
            if writer.may_drop_before(name) < self._rolled.get(name, 0):
                # What was sealed the last time is not uploaded yet.
                continue
            with suppress(WalError):
                if name == "jobs" and journal.is_checkpointing:
                    continue
                if name == "jobs":
                    journal.checkpoint(self._engine.state, self._engine.clock.now_ms())
                else:
                    journal.leases.roll()
                self._rolled[name] = journal.logs[name].segment

    def fence(self) -> Fenced:
        """This server is fenced: refuse all that waits, for ever.

        Returns:
            What everything else is to be refused with.
        """
        refusal = Fenced.because(
            "another server has taken over this log", self._replication.fenced_by or ""
        )
        self._engine.journal.unpromisable = refusal.message
        self._engine.journal.is_fenced = True
        self._barrier.refuse_through(NEVER, refusal)
        return refusal


async def watch_replica_forever(watch: ReplicaWatch) -> None:
    """Look at the replica again and again."""
    while True:
        await asyncio.sleep(watch.tick_s)
        try:
            watch.tick()
        except Exception:
            logger.exception("the replica could not be watched; it is tried again")
