"""What a producer has of a job that it sent: its seq, and the way to what becomes of it.

Owns: handles, waiting for their results, and the errors of that. Must not know: how calls are made,
workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar, overload

from logqueue.shapes import JobStatus

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

WAIT_MS = 20_000
"""How long one call waits at the server for the end of jobs."""

SEQS_PER_CALL = 1000


class JobFailed(Exception):
    """A job ended without being done: dead, expired, cancelled, dropped or superseded.

    Attributes:
        queue, seq: Which job.
        state: What became of it.
        error: The last error its worker reported, or None.
    """

    def __init__(self, queue: str, status: JobStatus) -> None:
        why = f": {status.error}" if status.error else ""
        super().__init__(f"job {queue}/{status.seq} is {status.state}{why}")
        self.queue = queue
        self.seq = status.seq
        self.state = status.state
        self.error = status.error


class ResultGone(Exception):
    """A job has ended, and what became of it is no longer known: its queue has forgotten it, or
    keeps no results (config `results`).

    Attributes:
        queue, seq: Which job.
    """

    def __init__(self, queue: str, seq: int) -> None:
        super().__init__(
            f"the result of job {queue}/{seq} is not known: the queue has forgotten it, or keeps "
            "no results; set its config `results`, or a longer `keep_ms`"
        )
        self.queue = queue
        self.seq = seq


class JobResults(Protocol):
    """Asks for what became of jobs."""

    def statuses(self, handles: Sequence[JobHandle[Any]], timeout: float | None) -> list[JobStatus]:
        """What each job has become; what it is, with the timeout 0. Raises TimeoutError."""
        ...

    async def statuses_async(
        self, handles: Sequence[JobHandle[Any]], timeout: float | None
    ) -> list[JobStatus]:
        """As `statuses`, on an event loop."""
        ...


class JobHandle(int, Generic[R_co]):
    """A job that was sent. It is the seq of the job, a number as any other.

    Results need a queue with the config `results`. Awaiting a handle waits for the result without
    a bound; use `asyncio.timeout` around it.

    Attributes:
        queue: Where the job was written.
        read: Makes what the task returns of plain JSON; None leaves it as it is.
    """

    queue: str
    read: Callable[[Any], Any] | None
    _results: JobResults

    def __new__(cls, seq: int, queue: str, results: JobResults) -> JobHandle[R_co]:
        """A job by queue and seq."""
        handle = super().__new__(cls, seq)
        handle.queue = queue
        handle.read = None
        handle._results = results
        return handle

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Copies that travel are seqs."""
        return int, (int(self),)

    @property
    def seq(self) -> int:
        """Number of the job in its queue."""
        return int(self)

    def status(self) -> JobStatus:
        """What the job is, or has become.

        Raises:
            LogqueueError: The server refused, or could not be reached.
        """
        return self._results.statuses([self], 0)[0]

    async def status_async(self) -> JobStatus:
        """As `status`, on an event loop."""
        return (await self._results.statuses_async([self], 0))[0]

    @overload
    def result(self: JobHandle[Coroutine[Any, Any, T]], timeout: float | None = None) -> T: ...
    @overload
    def result(self, timeout: float | None = None) -> R_co: ...
    def result(self, timeout: float | None = None) -> Any:
        """What the task returned; waits for it.

        Args:
            timeout: How long to wait at most, in seconds; without a bound when not given.

        Raises:
            JobFailed: The job ended in another way; it says which, and with what error.
            ResultGone: The job has ended, and its result is not kept, or no longer.
            BadResult: The result is not of the type that the task returns.
            TimeoutError: The job has not ended in time.
            LogqueueError: The server refused, or could not be reached.
        """
        return value_of(self, self._results.statuses([self], timeout)[0])

    @overload
    async def result_async(
        self: JobHandle[Coroutine[Any, Any, T]], timeout: float | None = None
    ) -> T: ...
    @overload
    async def result_async(self, timeout: float | None = None) -> R_co: ...
    async def result_async(self, timeout: float | None = None) -> Any:
        """As `result`, on an event loop."""
        (status,) = await self._results.statuses_async([self], timeout)
        return value_of(self, status)

    @overload
    def __await__(self: JobHandle[Coroutine[Any, Any, T]]) -> Generator[Any, None, T]: ...
    @overload
    def __await__(self) -> Generator[Any, None, R_co]: ...
    def __await__(self) -> Generator[Any, None, Any]:
        return self.result_async().__await__()


def value_of(handle: JobHandle[Any], status: JobStatus) -> Any:
    """The result of a job that has ended.

    Raises:
        JobFailed: It was not done.
        ResultGone: What became of it is not known.
    """
    if status.state == "done":
        return status.result if handle.read is None else handle.read(status.result)
    if status.state in ("gone", "unknown"):
        raise ResultGone(handle.queue, handle.seq)
    raise JobFailed(handle.queue, status)


def values_of(
    handles: Sequence[JobHandle[Any]], statuses: Sequence[JobStatus], *, return_exceptions: bool
) -> list[Any]:
    """The results of several jobs, in their order.

    Raises:
        JobFailed, ResultGone: Of the first that has none, unless exceptions are returned.
    """
    values: list[Any] = []
    for handle, status in zip(handles, statuses, strict=True):
        try:
            values.append(value_of(handle, status))
        except (JobFailed, ResultGone) as error:
            if not return_exceptions:
                raise
            values.append(error)
    return values


class StatusSearch:
    """Which calls are still to be made until all of some jobs have ended."""

    def __init__(
        self,
        handles: Iterable[JobHandle[Any]],
        timeout: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is known yet.

        Args:
            handles: The jobs.
            timeout: Seconds; None for no bound, 0 to take the jobs as they are.
            clock: Seconds that only grow.
        """
        self._handles = [*handles]
        self._clock = clock
        self._waits = timeout is None or timeout > 0
        self._deadline = None if timeout is None else clock() + timeout
        self._known: dict[tuple[str, int], JobStatus] = {}
        self._left: dict[str, dict[int, None]] = {}
        for handle in self._handles:
            self._left.setdefault(handle.queue, {})[handle.seq] = None

    def next_call(self) -> tuple[str, list[int], int] | None:
        """Queue, seqs and `wait_ms` of the next call; None when nothing is left.

        Raises:
            TimeoutError: The time is up.
        """
        for queue, seqs in self._left.items():
            if not seqs:
                continue
            wait_ms = WAIT_MS if self._waits else 0
            if self._waits and self._deadline is not None:
                left_ms = round((self._deadline - self._clock()) * 1000)
                if left_ms <= 0 and any((queue, seq) in self._known for seq in seqs):
                    job = f"{queue}/{next(iter(seqs))}"
                    raise TimeoutError(f"job {job} has not ended in time ({len(seqs)} are left)")
                wait_ms = min(wait_ms, max(left_ms, 0))
            return queue, [*seqs][:SEQS_PER_CALL], wait_ms
        return None

    def note(self, queue: str, statuses: Iterable[JobStatus]) -> None:
        """A call had this answer."""
        for status in statuses:
            self._known[queue, status.seq] = status
            if status.has_ended or not self._waits:
                self._left[queue].pop(status.seq, None)

    def found(self) -> list[JobStatus]:
        """All of them, in the order of the handles."""
        return [self._known[handle.queue, handle.seq] for handle in self._handles]
