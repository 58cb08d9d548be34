"""The job as a handler sees it, and which job is being handled.

Owns: `Job`, `current_job`, `should_stop`. Must not know: how a settle travels; the runtime hands
each job a function for that.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import msgspec

from logqueue.json_problems import type_problem
from logqueue.worker.leases import Lease
from logqueue.worker.message import Message
from logqueue.worker.outcomes import ACK, BadPayload, Outcome
from logqueue.worker.payload import checked_result, typed

T = TypeVar("T")

NOTE_BYTES_MAX = 256

SettleJob = Callable[["Job", Outcome], "Settling"]
ExtendJob = Callable[["Job", float, float | None, str | None], "Settling"]


class Settling:
    """A settle in progress. Await it, or call `result` in a thread, or ignore it.

    The answer is True when it counted, False when the lease was lost and nothing was changed.
    """

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: concurrent.futures.Future[bool] = concurrent.futures.Future()

    def __await__(self) -> Generator[Any, None, bool]:
        return asyncio.wrap_future(self.future).__await__()

    def result(self, timeout: float | None = None) -> bool:
        """Wait for the answer, in a thread other than the event loop's.

        Raises:
            TimeoutError: It did not come within `timeout` seconds.
        """
        return self.future.result(timeout)


class Job:
    """One delivery of one job.

    Attributes:
        queue: Where it comes from.
        seq: Its number in the queue; the same for every delivery.
        deliveries: How often it was handed out, this time included.
        attempts: How many of these count: not those that ended before a handler ran.
        ts: When the server took it in, in ms since the Unix epoch.
        tag: What its producer set, or None.
        key: What makes it unique among waiting jobs, or None.
        data: The payload, decoded.
        meta: What its producer put beside the data.
        last_error: Why it came back last time, where the server keeps that.
        task: Name of the task that handles it; "" under a consumer.
        state: What the app's lifespan yielded.
        then: The jobs that follow from it, as `done` was given them.
        result: What `done` or `ack` was given as its result, or None.
    """

    __slots__ = (
        "_extend", "_settle", "attempts", "data", "deliveries", "is_done", "is_settled", "key",
        "last_error", "lease", "meta", "queue", "result", "seq", "state", "stop_asked", "stop_seen",
        "tag", "task", "then", "ts",
    )  # fmt: skip

    def __init__(
        self, lease: Lease, settle: SettleJob | None = None, extend: ExtendJob | None = None
    ) -> None:
        wire = lease.job
        self.lease = lease
        self.queue = lease.queue
        self.seq = wire.seq
        self.deliveries = wire.deliveries
        self.attempts = wire.deliveries - wire.given_back
        self.ts = wire.ts
        self.tag = wire.tag
        self.key = wire.key
        self.data = wire.data
        self.meta = wire.meta
        self.last_error = wire.last_error
        self.task = ""
        self.state: Mapping[str, Any] = {}
        self.then: Sequence[Message] = ()
        self.result: Any = None
        self.is_settled = False
        self.is_done = False
        self.stop_asked = False
        self.stop_seen = False
        self._settle = settle
        self._extend = extend

    def __repr__(self) -> str:
        return f"<Job {self.queue}/{self.seq} delivery {self.deliveries}>"

    def __str__(self) -> str:
        return f"job {self.queue}/{self.seq}" + (f" ({self.task})" if self.task else "")

    @property
    def input(self) -> Any:
        """What the job before it in its chain came to; None for a job that no other has begun."""
        return self.meta.get("$input") if isinstance(self.meta, dict) else None

    @property
    def batch(self) -> str | None:
        """The batch that it is in."""
        return self.lease.job.batch

    @property
    def lease_id(self) -> str:
        """Proof of this lease."""
        return self.lease.job.lease_id

    @property
    def deadline(self) -> int:
        """When the lease ends, in ms since the epoch by the server's clock; renewals move it."""
        return self.lease.deadline_ms

    @property
    def is_lost(self) -> bool:
        """Whether the lease is known to be lost."""
        return self.lease.is_lost

    @property
    def must_stop(self) -> bool:
        """What `should_stop()` says about this job; the worker notes that True was read."""
        must_stop = self._is_stopping()
        self.stop_seen |= must_stop
        return must_stop

    @property
    def is_cut_short(self) -> bool:
        """Whether a return now means that work is left, because the handler saw the stop."""
        return self.stop_seen and not self.is_done

    def _is_stopping(self) -> bool:
        return self.stop_asked or self.lease.is_lost

    def decode(self, kind: type[T]) -> T:
        """The data as a type that msgspec knows: a struct, a dataclass, a typed dict, ...

        Raises:
            BadPayload: It is not of that type. Left alone, it rejects the job.
        """
        try:
            return cast(T, typed(self.data, kind))
        except msgspec.ValidationError as error:
            problem = type_problem(error, kind, "the data")
            raise BadPayload(f"the data is not a {kind.__name__}: {problem}") from error

    def done(self, *, then: Iterable[Message] = (), result: Any = None) -> None:
        """Say that the work is complete, so that returning acks the job.

        Needed only after `should_stop()` was true or the handler was cancelled, since a handler
        that returns then hands its job back; and where other jobs follow. Works in threads and
        processes too. Sends nothing by itself; an exception after it still fails the job.

        Args:
            then: Jobs that follow from this one: `job.done(then=[ship.job(order)])`. They are
                written in one transaction with the ack: all of that happens, or nothing, and a
                worker that has lost its lease writes nothing.
            result: What the job came to, in place of what the handler returns; any JSON value.

        Raises:
            RuntimeError: The job is settled already, and something is to follow.
        """
        follow = tuple(then)
        if follow and self.is_settled:
            raise self._unsettleable()
        self.is_done = True
        self.then = follow
        self.result = result

    # -- settling by hand ------------------------------------------------------------------------

    def ack(self, *, then: Iterable[Message] = (), result: Any = None) -> Settling:
        """The job is done.

        Args:
            then: As for `done`.
            result: What it came to: any JSON value. A queue with the config `results` keeps it.

        Raises:
            BadResult: The result is not JSON, or has more than 64 KiB; the job is not settled.
            RuntimeError: The job is settled already, or cannot be settled from here.
        """
        if result is not None:
            self.result = checked_result(result)
        follow = tuple(then)
        if self._settle is not None and not self.is_settled and follow:
            self.then = follow
        return self.settle(ACK)

    def nack(self, *, delay: float = 0.0, error: str | None = None, count: bool = True) -> Settling:
        """Give the job back; it is out of sight for `delay` seconds.

        Args:
            delay: Seconds.
            error: Kept with the job.
            count: False to give back this delivery too, as if it had never happened.

        Raises:
            RuntimeError: The job is settled already, or cannot be settled from here.
        """
        return self.settle(Outcome("nack", max(round(delay * 1000), 0), error, count))

    def reject(self, reason: str | None = None) -> Settling:
        """The job has failed permanently.

        Raises:
            RuntimeError: The job is settled already, or cannot be settled from here.
        """
        return self.settle(Outcome("reject", error=reason))

    def extend(self, lease: float) -> Settling:
        """Hold the job `lease` seconds from now; renewals ask for as much from then on.

        Raises:
            RuntimeError: The job is settled already, or cannot be settled from here.
        """
        if self._extend is None or self.is_settled:
            raise self._unsettleable()
        return self._extend(self, lease, None, None)

    def progress(self, share: float, note: str | None = None) -> Settling:
        """Say how far the job is; it is shown with the job until the lease ends, and renews the
        lease. A handler in a process of its own cannot say it.

        Args:
            share: 0 to 1.
            note: A short text, up to 256 bytes; what was said before stays when not given.

        Raises:
            ValueError: The share is out of range, or the note too long.
            RuntimeError: The job is settled already, or cannot be settled from here.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"progress must be between 0 and 1, not {share}")
        if note is not None and len(note.encode()) > NOTE_BYTES_MAX:
            raise ValueError(f"a note about progress has {NOTE_BYTES_MAX} bytes at most")
        if self._extend is None or self.is_settled:
            raise self._unsettleable()
        return self._extend(self, self.lease.lease_s, share, note)

    def settle(self, outcome: Outcome) -> Settling:
        """What the methods above come to.

        Raises:
            RuntimeError: The job is settled already, or cannot be settled from here.
        """
        if self._settle is None or self.is_settled:
            raise self._unsettleable()
        self.is_settled = True
        return self._settle(self, outcome)

    def _unsettleable(self) -> RuntimeError:
        if self.is_settled:
            return RuntimeError(f"{self} is settled already")
        return RuntimeError(
            f"{self} cannot be settled from here: a handler in a process of its own returns or "
            "raises, and the worker settles; call done() to have a return ack the job after a stop"
        )


_current: ContextVar[Job | None] = ContextVar("logqueue_current_job", default=None)


def current_job() -> Job:
    """The job that is being handled here: in a handler, in what it calls, and in middleware.

    Raises:
        LookupError: Nothing is.
    """
    job = _current.get()
    if job is None:
        raise LookupError("no job is being handled here; call current_job() from a handler")
    return job


def should_stop() -> bool:
    """Whether the handler should end.

    True once the worker stops, the handler's time is up, or the lease was
    lost. False where no job is being handled, so that code may run outside a worker too.

    When a handler returns after it has seen True, its job returns to the queue uncounted,
    and another worker runs it from the start. Call `current_job().done()` before returning
    when the work is nevertheless complete.
    """
    job = _current.get()
    return job is not None and job.must_stop


def enter(job: Job) -> None:
    """Make a job the current one of this context; for the runtime."""
    _current.set(job)
