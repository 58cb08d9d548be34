"""Threads for handlers that block: as many as run at once, none that keeps the process alive.

Owns: the threads. Must not know: jobs. A pool of the standard library waits for its threads when
the interpreter ends, so that one handler that never returns would keep a stopped worker from
exiting.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Call = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class HandlerThreads(Executor):
    """An executor that begins a thread whenever none is idle."""

    def __init__(self, name: str = "logqueue-handler") -> None:
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in a thread.

        Raises:
            RuntimeError: The pool is shut down.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the worker's threads are shut down")
            if self._idle:
                self._idle -= 1
            else:
                self._threads += 1
                name = f"{self._name}-{self._threads}"
                threading.Thread(target=self._loop, name=name, daemon=True).start()
        self._calls.put((future, fn, args, kwargs))
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """End idle threads now and the others after their call; never waits for them."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for _ in range(self._threads):
                self._calls.put(None)

    def _loop(self) -> None:
        while (call := self._calls.get()) is not None:
            _run(*call)
            # A finished call must not stay alive until the next one comes.
            del call
            with self._lock:
                self._idle += 1


def _run(
    future: Future[Any], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = fn(*args, **kwargs)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
