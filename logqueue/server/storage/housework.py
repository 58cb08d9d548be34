"""Disk work that no request waits for, beside the event loop.

Owns: one thread, and that a task is under way once at most. Must not know: what the tasks do. Where
no thread was started, as in simulations, tasks are done where they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor


class Housework:
    """Tasks by name. All methods are for the event loop's thread."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: dict[str, Future[object]] = {}

    @property
    def has_thread(self) -> bool:
        """Whether tasks are done beside the event loop."""
        return self._thread is not None

    def begin(self) -> None:
        """Have a thread from now on."""
        assert self._thread is None, "housework has started"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logqueue-housework")

    def end(self) -> None:
        """Wait for what is under way, and do without a thread again. Fine if there is none."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()
        self._under_way.clear()

    def is_under_way(self, name: str) -> bool:
        """Whether a task of this name was started and has not ended."""
        task = self._under_way.get(name)
        return task is not None and not task.done()

    def begin_task(self, name: str, work: Callable[[], object]) -> None:
        """Do something, unless a task of this name is under way.

        Raises:
            Exception: What the last task of this name has raised.
        """
        if self.is_under_way(name):
            return
        last = self._under_way.pop(name, None)
        if last is not None:
            last.result()
        if self._thread is None:
            work()
        else:
            self._under_way[name] = self._thread.submit(work)

    def through(self, name: str, work: Callable[[], object]) -> Generator[None, None, None]:
        """Do something, in steps for a generator that others may interrupt.

        Yields:
            While it is under way.

        Raises:
            Exception: What the work raises.
        """
        while self.is_under_way(name):
            yield
        self.begin_task(name, work)
        while self.is_under_way(name):
            yield
        last = self._under_way.pop(name, None)
        if last is not None:
            last.result()
