"""One run of one handler: on the loop, in a thread or in a process, within its time.

Owns: where code runs and how its time is bounded. Must not know: leases, settles, slots.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from logqueue.worker.handlers import Handler
from logqueue.worker.job import Job
from logqueue.worker.outcomes import JobTimeout
from logqueue.worker.processes import HandlerProcesses
from logqueue.worker.threads import HandlerThreads

CHILD_START_S = 60.0
"""How long a process may take until its handler begins, where the handler has a timeout."""

ABANDONED_MAX = 32
"""Maximum number of running threads of timed-out handlers before thread handlers wait."""

logger = logging.getLogger("logqueue.worker")


class Running:
    """Runs handlers.

    Attributes:
        abandoned: Threads of timed-out handlers that have not returned yet.
    """

    def __init__(self) -> None:
        self.abandoned = 0
        self._room = asyncio.Event()
        self._threads = HandlerThreads()
        self._processes = HandlerProcesses()

    async def run(self, handler: Handler, job: Job) -> Any:
        """Run a handler to its end.

        Returns:
            What it returned.

        A cancelled or overdue handler on the loop is cancelled, one in a process is ended with its
        process. One in a thread can only be asked, by `should_stop()`.

        Raises:
            BadPayload: The data does not fit the function.
            JobTimeout: It took longer than the handler's timeout.
            BaseException: Whatever the handler raised.
        """
        args, kwargs = handler.bind(job)
        if handler.run_in == "thread":
            await self._until_room()
        # A process takes its time to start and to import; that is not the handler's.
        spare_s = CHILD_START_S if handler.run_in == "process" else 0.0
        timeout = None if handler.timeout is None else handler.timeout + spare_s
        try:
            async with asyncio.timeout(timeout) as bound:
                if handler.run_in == "loop":
                    value = await handler.function(*args, **kwargs)
                elif handler.run_in == "thread":
                    context = contextvars.copy_context()
                    value = await self._in_thread(
                        lambda: context.run(handler.function, *args, **kwargs), job
                    )
                else:
                    value = await self._in_process(handler, job, args, kwargs, bound)
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise _overdue(handler) from error
        if bound.expired() and not job.is_done:
            # The handler caught the cancellation and returned.
            raise _overdue(handler)
        return value

    async def _until_room(self) -> None:
        """Wait while too many threads of given-up handlers run on: each holds memory and more."""
        while self.abandoned >= ABANDONED_MAX:
            logger.error(
                "%d threads of timed-out handlers still run: no thread handler starts "
                "before one returns; bound what they wait for, or use run_in='process'",
                self.abandoned,
            )
            self._room.clear()
            await self._room.wait()

    async def _in_thread(self, call: Callable[[], Any], job: Job) -> Any:
        loop = asyncio.get_running_loop()
        has_begun = is_given_up = False

        def run() -> _Ended:
            nonlocal has_begun
            has_begun = True
            try:
                return _caught(call)
            finally:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(returned)

        def returned() -> None:
            if is_given_up:
                self.abandoned -= 1
                self._room.set()

        try:
            ended = await loop.run_in_executor(self._threads, run)
        except asyncio.CancelledError:
            job.stop_asked = True
            if has_begun:
                is_given_up = True
                self.abandoned += 1
                text = "%s timed out; its thread runs until the handler returns (%d such threads)"
                logger.warning(text, job, self.abandoned)
            raise
        return _value(ended)

    async def _in_process(
        self,
        handler: Handler,
        job: Job,
        args: Any,
        kwargs: dict[str, Any],
        bound: asyncio.Timeout,
    ) -> Any:
        loop = asyncio.get_running_loop()
        is_waiting = True

        def note_start() -> None:
            if handler.timeout is not None and is_waiting and not bound.expired():
                bound.reschedule(loop.time() + handler.timeout)

        def call() -> Any:
            return self._processes.call(
                job,
                handler.function,
                args,
                kwargs,
                started=lambda: loop.call_soon_threadsafe(note_start),
            )

        try:
            ended = await loop.run_in_executor(self._threads, _caught, call)
        except asyncio.CancelledError:
            self._processes.end(job)
            raise
        finally:
            is_waiting = False
        return _value(ended)

    def ask_to_stop(self, job: Job) -> None:
        """Make `should_stop()` true for a job, wherever its handler runs."""
        job.stop_asked = True
        self._processes.ask_to_stop(job)

    def close(self) -> None:
        """End processes, and threads as they get idle."""
        self._processes.close()
        self._threads.shutdown()


def _overdue(handler: Handler) -> JobTimeout:
    return JobTimeout(f"{handler.name} took longer than {handler.timeout:g} s")


class _Ended(NamedTuple):
    """What a call returned or raised. A future could not carry every exception: StopIteration is
    special."""

    value: Any = None
    error: BaseException | None = None


def _value(ended: _Ended) -> Any:
    """What a handler returned elsewhere than on the loop.

    Raises:
        RuntimeError: In place of `KeyboardInterrupt`: this process was not interrupted; signals
            reach its main thread only.
        BaseException: What it raised.
    """
    error = ended.error
    if isinstance(error, KeyboardInterrupt):
        raise RuntimeError(f"the handler raised {type(error).__name__}") from error
    if error is not None:
        raise error
    return ended.value


def _caught(call: Callable[[], Any]) -> _Ended:
    try:
        return _Ended(call())
    except BaseException as error:
        return _Ended(error=error)
