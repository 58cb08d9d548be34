"""Worker processes for what Python itself has to do: decoding segments, folding jobs.

Owns: when processes are worth their start, how many pieces are under way at once. Must not know:
what is done with a piece.

Processes are spawned, not forked: DuckDB and Arrow have threads. A little work is done in this
process, since starting another and importing Arrow there takes longer.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, Self, TypeVar

from logqueue.pipeline.engines.duckdb.pandas_free import import_arrow
from logqueue.pipeline.errors import PipelineError

T = TypeVar("T")
R = TypeVar("R")

WORTHWHILE_BYTES = 24 << 20
"""Work on fewer bytes of log than this is done in this process."""

AHEAD = 1
"""Pieces that wait for a free process, each: results that are not asked for yet use memory."""


def cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class WorkerPool:
    """Processes that start when there is enough for them to do, and end with the context."""

    def __init__(self, processes: int | None = None, worthwhile: int = WORTHWHILE_BYTES) -> None:
        """No process is started yet.

        Args:
            processes: How many at most; None for as many as there are processors. With one,
                everything is done in this process.
            worthwhile: Bytes of work from which on processes are started.
        """
        self._processes = cores() if processes is None else processes
        self._worthwhile = worthwhile
        self._running: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        if error is not None:
            # What they are at is not wanted; it may take a while yet.
            for process in [*getattr(running, "_processes", {}).values()]:
                process.terminate()
        running.shutdown(wait=True, cancel_futures=True)

    def parallel(self, size: int, pieces: int = 2) -> int:
        """How many pieces of some work are done at a time; 1 where it is done in this process.

        Args:
            size: Bytes of the work.
            pieces: How many it has.
        """
        if self._processes < 2 or pieces < 2 or size < self._worthwhile:
            return 1
        return min(self._processes, pieces)

    def map(
        self, work: Callable[[T], R], pieces: Iterable[T], size: int, count: int = 2
    ) -> Iterator[R]:
        """The results of some pieces of work, in their order.

        Args:
            work: A function of a module, as it and the pieces are pickled.
            pieces: What it is called with.
            size: Bytes of all of it together; little work is done in this process.
            count: How many pieces there are.

        Raises:
            PipelineError: A process died. Errors of `work` are raised as they are.
        """
        if self.parallel(size, count) == 1:
            yield from map(work, pieces)
            return
        running = self._started()
        under_way: deque[Future[R]] = deque()
        waiting = iter(pieces)
        try:
            for piece in waiting:
                under_way.append(running.submit(work, piece))
                if len(under_way) >= self._processes + AHEAD:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        except BrokenProcessPool as error:
            self._running = None
            raise PipelineError(
                "a worker process ended unexpectedly; was it killed, or is memory short?"
            ) from error
        finally:
            for future in under_way:
                future.cancel()

    def _started(self) -> ProcessPoolExecutor:
        if self._running is None:
            context: Any = multiprocessing.get_context("spawn")
            self._running = ProcessPoolExecutor(self._processes, context, _begin)
        return self._running


def _begin() -> None:
    """In a new process: Ctrl-C is the parent's business, which ends this process; and if the parent
    is killed, this process ends, which would wait for pieces for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    import_arrow()
