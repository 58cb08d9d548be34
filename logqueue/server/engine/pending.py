"""Answers on their way: from the command, over its decision, to the moment they may leave.

Owns: what an answer waits for, and who is called when it may leave. Must not know: what commands
do, how answers look or travel.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError
from logqueue.server.engine.commit_barrier import CommitBarrier

logger = logging.getLogger("logqueue.engine")

C = TypeVar("C")
R = TypeVar("R")
T = TypeVar("T")


class Executed(NamedTuple, Generic[R]):
    """A result with the positions of the jobs log it must wait for.

    Attributes:
        written, durable: Frame numbers that must be written, or synced, before the result is shown.
        topics: Topics that were changed.
    """

    result: R
    written: int
    durable: int
    topics: tuple[Topic, ...] = ()


class Spent(msgspec.Struct, eq=False):
    """Where the time of a command went, or of several that were decided together.

    Attributes:
        executed_ms: Deciding, logging and applying.
        waited_ms: Waiting, for jobs or for the end of a coalescing window.
        held_ms: Waiting for the log.
        replica_ms: The part of it in which the log waited for the replica; None unless replies wait
            for one.
        shown: What replies say of it; None before the first.
    """

    executed_ms: float = 0.0
    waited_ms: float = 0.0
    held_ms: float = 0.0
    replica_ms: float | None = None
    shown: bytes | None = None

    def held_timings(self, *, was_held: bool) -> dict[str, float]:
        """What replies say of `held_ms`; zeros unless it was for a promise of the reply."""
        held_ms = self.held_ms if was_held else 0.0
        if self.replica_ms is None:
            return {"fsync_ms": held_ms}
        replica_ms = min(self.replica_ms, held_ms)
        return {"fsync_ms": held_ms - replica_ms, "replica_ms": replica_ms}


class Pending(msgspec.Struct, Generic[T], eq=False):
    """An answer that is given later: its command may still wait, its result may still be held.

    It is made of the barrier, which knows when the log has reached a position; of what makes the
    answer from a context, the result, and where the time went; and of that context.

    Attributes:
        is_decided: There is a result, or a refusal.
        has_left: The caller has left.
        leave: Takes the command off the waitlist; None unless it waits there for something that
            may never come.
        on_undelivered: Called if the answer does not reach the caller; None for most.
    """

    _barrier: CommitBarrier
    _encode: Callable[[Any, Any, Spent], T]
    _context: Any
    _result: Any = None
    _refusal: Exception | None = None
    _sink: Callable[[Pending[T]], object] | None = None
    _on_wait: Callable[[Pending[T]], object] | None = None
    _spent: Spent = msgspec.field(default_factory=Spent)
    _written: int = 0
    _durable: int = 0
    is_decided: bool = False
    has_left: bool = False
    leave: Callable[[], None] | None = None
    on_undelivered: Callable[[], None] | None = None

    # Context and result hold secrets and payloads: they must not get into the log.
    __repr__ = object.__repr__

    # -- for the engine --------------------------------------------------------------------------

    def decide(
        self, result: object, written: int, durable: int, spent: Spent | None = None
    ) -> None:
        """There is a result; it leaves once the log has reached both positions."""
        self._result = result
        if spent is not None:
            self._spent = spent
        self._written, self._durable = written, durable
        self.is_decided = True
        self.leave = self._on_wait = None
        if self._sink is not None:
            self._hold()

    def wait(self, leave: Callable[[], None]) -> None:
        """It waits for something that may never come, until `leave` is called."""
        self.leave = leave
        self._say_that_it_waits()

    def _say_that_it_waits(self) -> None:
        on_wait, self._on_wait = self._on_wait, None
        if on_wait is not None:
            self._sink = None
            on_wait(self)

    def refuse(self, refusal: Exception, written: int = 0, durable: int = 0) -> None:
        """The same for a refusal."""
        self._refusal = refusal
        self.decide(None, written, durable)

    def also_after(self, written: int, durable: int) -> None:
        """Have a decided answer wait for these positions, too."""
        self._written, self._durable = max(self._written, written), max(self._durable, durable)

    # -- for the caller --------------------------------------------------------------------------

    def when_ready(
        self,
        sink: Callable[[Pending[T]], object],
        on_wait: Callable[[Pending[T]], object] | None = None,
    ) -> None:
        """Set what is called, once, when the answer may leave; at once if it may already.

        Args:
            sink: What to call.
            on_wait: Called instead when it turns out that the answer waits for something that may
                never come; call this again then, or `cancel`.
        """
        self._sink = sink
        if self.is_decided:
            self._hold()
            return
        self._on_wait = on_wait
        if self.leave is not None:
            self._say_that_it_waits()

    def _hold(self) -> None:
        barrier = self._barrier
        if barrier.reached(self._written, self._durable):
            self._release(None)
        else:
            self._spent.held_ms = -time.perf_counter() * 1000
            barrier.when(self._written, self._durable, self._release)

    def _release(self, failure: LogqueueError | None) -> None:
        if self._spent.held_ms:
            self._spent.held_ms += time.perf_counter() * 1000
            self._spent.replica_ms = self._barrier.replica_ms(self._durable)
        if failure is not None:
            self._refusal = failure
        sink, self._sink = self._sink, None
        if sink is not None:
            sink(self)

    async def ready(self) -> None:
        """Wait until the answer may leave; a caller that is cancelled meanwhile has left."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: Pending[T]) -> None:
            if not future.done():
                future.set_result(None)

        self.when_ready(wake)
        try:
            await future
        except asyncio.CancelledError:
            self.cancel()
            raise

    def cancel(self) -> None:
        """The caller has left; what the result would have given is taken back."""
        self._sink = self._on_wait = None
        self.has_left = True
        leave, self.leave = self.leave, None
        undelivered, self.on_undelivered = self.on_undelivered, None
        if leave is not None:
            leave()
        elif undelivered is not None:
            undelivered()

    def answer(self) -> T:
        """The answer, once it may leave.

        Raises:
            LogqueueError: The command was refused, or the log failed.
        """
        refusal = self._refusal
        if refusal is not None:
            self._refusal = None
            raise refusal
        return self._encode(self._context, self._result, self._spent)


def decide_all(
    barrier: CommitBarrier,
    decided: Iterable[tuple[Pending[Any], object]],
    written: int,
    durable: int,
    spent: Spent,
) -> None:
    """Decide several answers that wait for the same: as `Pending.decide` for each, but the barrier
    is entered once for all of them."""
    waiting: list[Pending[Any]] = []
    for pending, result in decided:
        pending._result = result
        pending._written, pending._durable = written, durable
        pending.is_decided = True
        pending.leave = pending._on_wait = None
        if pending._sink is not None:
            pending._spent = spent
            waiting.append(pending)
        else:
            # It will wait by itself.
            pending._spent.executed_ms = spent.executed_ms
    if not waiting:
        return
    if barrier.reached(written, durable):
        _release_all(waiting, spent, None)
    else:
        spent.held_ms = -time.perf_counter() * 1000
        barrier.when(written, durable, partial(_release_all, waiting, spent))


def _release_all(waiting: list[Pending[Any]], spent: Spent, failure: LogqueueError | None) -> None:
    if spent.held_ms:
        spent.held_ms += time.perf_counter() * 1000
        spent.replica_ms = waiting[0]._barrier.replica_ms(waiting[0]._durable)
    for pending in waiting:
        if failure is not None:
            pending._refusal = failure
        sink, pending._sink = pending._sink, None
        try:
            if sink is not None:
                sink(pending)
        except Exception:
            # What is wrong with one answer must not keep the others.
            logger.exception("an answer could not be given")
