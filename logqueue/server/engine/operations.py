"""Background operations: long work that an operator has started, watches, and may stop.

Owns: the table of operations, their progress, their pace, and how they end. Must not know: what an
operation does in its steps, HTTP.

An operation is carried out in portions, as `portions` are, each in a turn of the event loop of its
own. What is done stays done, however it ends. The table is in memory: a restart forgets it, and a
repeat of the operation finds what is left.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import msgspec

from logqueue.errors import Internal, LogqueueError, NotFound, Throttled, quoted
from logqueue.model import limits
from logqueue.model.clock import Clock
from logqueue.server.engine.pending import Executed

RUNNING_MAX = 16
"""Operations that run at the same time."""
REMEMBERED_MAX = 100
"""Operations that are remembered, those that run among them."""
PACED_PER_S = 10
"""Portions per second of an operation with a rate, about."""
UNDONE_MAX = 1_000_000
"""Jobs whose change can be undone, of one operation and of all together: 8 bytes each."""
STOP_POLL_S = 0.25
"""How long an operation that waits for its pace may take to notice that it is to stop."""

OperationState = Literal["running", "done", "failed", "cancelled"]

logger = logging.getLogger("logqueue.operations")


class BackgroundOperation(msgspec.Struct, eq=False, kw_only=True):
    """One operation. Its steps keep the counts; what runs it keeps the rest.

    Attributes:
        action: What it does, in one word.
        topic: Where. Keys see the operations on topics within their prefixes.
        rate_per_s: How many it may change per second; 0 for any number.
        portion_max: How many one portion may change for the sake of the rate.
        total: How many there are to examine, as far as that is known.
        scanned: How many of them were examined.
        matched: How many of those the operation selects.
        changed: How many of these were changed; of a dry run, how many would be.
        skipped: How many were selected, but changed by others before their turn came.
        started_at, finished_at: ms since the epoch; `finished_at` is 0 while it runs.
        error: Why it failed, once it has.
        result: Further members of the reply.
        undo: The action that undoes it on the jobs that it has changed; "" for none.
        seqs: These, while the table has room for them; None otherwise.
        written, durable: Positions of the jobs log that what it says of itself must wait for.
        is_stopping: A caller has stopped it; it ends before its next portion.
    """

    id: str
    action: str
    topic: str
    dry_run: bool
    rate_per_s: int
    portion_max: int
    started_at: int
    state: OperationState = "running"
    total: int = 0
    scanned: int = 0
    matched: int = 0
    changed: int = 0
    skipped: int = 0
    finished_at: int = 0
    error: LogqueueError | None = None
    result: Mapping[str, Any] = {}
    undo: str = ""
    seqs: array[int] | None = None
    written: int = 0
    durable: int = 0
    is_stopping: bool = False

    def ahead_s(self, elapsed_s: float) -> float:
        """How long it has to wait, in seconds, for its rate."""
        if not self.rate_per_s:
            return 0.0
        return self.changed / self.rate_per_s - elapsed_s

    def members(self, allows: Callable[[str], bool]) -> dict[str, Any]:
        """What replies say of it to a caller who may read some names."""
        members: dict[str, Any] = {
            "id": self.id,
            "action": self.action,
            "topic": self.topic,
            "state": self.state,
            "dry_run": self.dry_run,
            "total": self.total,
            "scanned": self.scanned,
            "matched": self.matched,
            "changed": self.changed,
            "skipped": self.skipped,
            "started_at": self.started_at,
        }
        if self.rate_per_s:
            members["rate_per_s"] = self.rate_per_s
        if self.finished_at:
            members["finished_at"] = self.finished_at
        if self.error is not None:
            error = self.error.hiding(allows)
            members["error"] = {"code": error.code, "message": error.message}
        if self.finished_at and self.undo and self.seqs:
            members["undo"] = {"action": self.undo, "filter": {"operation": self.id}}
        return {**members, **self.result}

    def note_changed(self, seqs: Sequence[int]) -> None:
        """Some were changed."""
        self.changed += len(seqs)
        if self.seqs is not None and len(self.seqs) + len(seqs) <= UNDONE_MAX:
            self.seqs.extend(seqs)
        else:
            self.seqs = None


def _portion_max(rate_per_s: int) -> int:
    return max(rate_per_s // PACED_PER_S, 1) if rate_per_s else limits.U32_MAX


OperationSteps = Iterator[Executed[Any] | None]
"""Yields after each bounded step, with what it has changed."""


class OperationRunner(msgspec.Struct, frozen=True):
    """What the table needs of the engine's dispatcher.

    Attributes:
        next_portion: Makes the next step, in a turn of the loop of its own; None when there is
            none left, else what it yields, in a tuple.
        settle: Waits until the logs have reached two positions, and leases are written.
    """

    next_portion: Callable[[OperationSteps], Awaitable[tuple[Executed[Any] | None] | None]]
    settle: Callable[[int, int], Awaitable[object]]


class BackgroundOperations:
    """All operations of a server, the latest last."""

    def __init__(
        self, clock: Clock, loop: asyncio.AbstractEventLoop, runner: OperationRunner
    ) -> None:
        self._clock = clock
        self._loop = loop
        self._runner = runner
        self._known: dict[str, BackgroundOperation] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._next = 1

    def start(
        self,
        action: str,
        topic: str,
        steps_of: Callable[[BackgroundOperation], OperationSteps],
        *,
        dry_run: bool = False,
        rate_per_s: int = 0,
    ) -> BackgroundOperation:
        """Begin an operation.

        Args:
            action: What it does, in one word.
            topic: Where.
            steps_of: Makes its steps, which count what they do in the operation. Each must be as
                short as a portion, and change no more than `portion_max` says.
            dry_run: It changes nothing.
            rate_per_s: How many it may change per second; 0 for any number.

        Raises:
            Throttled: There are too many already.
        """
        if len(self._tasks) >= RUNNING_MAX:
            raise Throttled(
                f"{RUNNING_MAX} operations are running already: wait until one has finished, or "
                "stop one with DELETE /v0/operations/:id"
            )
        now = self._clock.now_ms()
        operation = BackgroundOperation(
            id=f"op_{now:x}{self._next % 0x1000:03x}",
            action=action,
            topic=topic,
            dry_run=dry_run,
            rate_per_s=rate_per_s if not dry_run else 0,
            portion_max=_portion_max(rate_per_s if not dry_run else 0),
            started_at=now,
        )
        self._next += 1
        self._known[operation.id] = operation
        self._forget_oldest()
        work = self._run(operation, steps_of(operation))
        task = self._loop.create_task(work, name="operation")
        self._tasks[operation.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(operation.id, None))
        return operation

    def find(self, identity: str, allows: Callable[[str], bool]) -> BackgroundOperation:
        """An operation on a topic that the caller may see.

        Raises:
            NotFound: There is none.
        """
        found = self._known.get(identity)
        if found is None or not allows(found.topic):
            raise NotFound(
                f"no operation {quoted(identity[:40])}: the server remembers the last "
                f"{REMEMBERED_MAX} since its start"
            )
        return found

    def listed(self, allows: Callable[[str], bool]) -> list[BackgroundOperation]:
        """The operations on topics that the caller may see, the latest first."""
        return [known for known in reversed(self._known.values()) if allows(known.topic)]

    def stop(self, operation: BackgroundOperation) -> None:
        """Have an operation end before its next portion; one that is over stays as it is."""
        if not operation.finished_at:
            operation.is_stopping = True

    async def over(self, operation: BackgroundOperation, within_s: float) -> None:
        """Return once an operation is over, or after a time in seconds."""
        task = self._tasks.get(operation.id)
        if task is not None:
            await asyncio.wait((task,), timeout=within_s)

    def end(self) -> None:
        """The server stops: nothing is changed from now on."""
        for task in self._tasks.values():
            task.cancel()

    # -- internals -------------------------------------------------------------------------------

    async def _run(self, operation: BackgroundOperation, steps: OperationSteps) -> None:
        state: OperationState = "failed"
        try:
            state = await self._carry_out(operation, steps)
            await self._runner.settle(operation.written, operation.durable)
        except LogqueueError as refusal:
            refusal.__traceback__ = None
            state, operation.error = "failed", refusal
        except Exception:
            logger.exception("operation %s failed", operation.action)
            state = "failed"
            operation.error = Internal("the server failed on it; its log has the details")
        finally:
            operation.state = state
            operation.finished_at = self._clock.now_ms()
            self._forget_undone()

    async def _carry_out(
        self, operation: BackgroundOperation, steps: OperationSteps
    ) -> OperationState:
        began = self._loop.time()
        while not operation.is_stopping:
            made = await self._runner.next_portion(steps)
            if made is None:
                return "done"
            (part,) = made
            if part is not None:
                operation.written = max(operation.written, part.written)
                operation.durable = max(operation.durable, part.durable)
            while not operation.is_stopping:
                ahead_s = operation.ahead_s(self._loop.time() - began)
                if ahead_s <= 0:
                    break
                await asyncio.sleep(min(ahead_s, STOP_POLL_S))
        return "cancelled"

    def _forget_undone(self) -> None:
        """The oldest operations can no longer be undone when there are too many jobs in all."""
        left = UNDONE_MAX
        for known in reversed(self._known.values()):
            left -= len(known.seqs or ())
            if left < 0:
                known.seqs = None

    def _forget_oldest(self) -> None:
        many = len(self._known) - REMEMBERED_MAX
        over = (known.id for known in self._known.values() if known.id not in self._tasks)
        for identity in [*islice(over, max(many, 0))]:
            del self._known[identity]
