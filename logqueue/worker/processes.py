"""Processes for handlers that hold the interpreter lock: one call each at a time.

Owns: the children: starting them, handing calls over, ending one whose time is up, noticing that
one died. Must not know: queues, settles, event loops. A child imports the function by name, so it
needs no more than the module. It ignores the terminal's signals: its worker decides about it.
"""

from __future__ import annotations

import importlib
import multiprocessing
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from operator import attrgetter
from typing import Any, NamedTuple

from logqueue.worker.job import Job, enter
from logqueue.worker.leases import Lease
from logqueue.worker.message import Message

END_S = 2.0
"""How long a child may take to end before it is killed."""


class ChildDied(Exception):
    """The process of a handler ended under it: killed, out of memory, or crashed."""


class ChildEnded(Exception):
    """The worker ended the process: the handler's time was up."""


class _Child:
    """One process with its pipe. Used by one call at a time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._stop = context.Event()
        self.process: BaseProcess = context.Process(
            target=_serve, args=(theirs, self._stop), name="logqueue-handler", daemon=True
        )
        self.process.start()
        theirs.close()
        self.is_ended = False

    def call(
        self, reference: tuple[str, str], payload: bytes, started: Callable[[], object]
    ) -> _Returned:
        """Run one call to its end; blocks.

        Args:
            started: Called when the process is up, has the module, and the handler begins.

        Returns:
            What the handler has left behind.

        Raises:
            ChildDied: The process is gone.
            ChildEnded: `end` was called meanwhile.
            Exception: What the handler raised.
        """
        self._stop.clear()
        try:
            self._pipe.send((reference, payload))
            error = self._pipe.recv()
            if error is _STARTED:
                started()
                error = self._pipe.recv()
        except (EOFError, OSError) as broken:
            if self.is_ended:
                raise ChildEnded("the worker ended the handler's process") from broken
            self.process.join(END_S)
            status = self.process.exitcode
            how = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
            raise ChildDied(f"the handler's process ended with {how}") from broken
        if isinstance(error, _Returned):
            return error
        raise error

    def ask_to_stop(self) -> None:
        """Make `should_stop()` true in the handler."""
        self._stop.set()

    def end(self) -> None:
        """End the process, whatever it does."""
        self.is_ended = True
        self.process.terminate()

    def close(self) -> None:
        """Release what the process held; it is ended first if need be."""
        self.end()
        self.process.join(END_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self._pipe.close()
        self.process.close()


class HandlerProcesses:
    """Child processes, started when needed and reused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._busy: dict[Job, _Child] = {}
        self._closed = False

    def call(
        self,
        job: Job,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        started: Callable[[], object],
    ) -> Any:
        """Run a handler in a process; blocks until it returns, so call it in a thread.

        Args:
            started: Called, in that thread, when the handler begins.

        Returns:
            What the handler returned; an `Unportable` where that cannot leave its process.

        Raises:
            ChildDied, ChildEnded, Exception: As `_Child.call`.
        """
        reference = (function.__module__, function.__qualname__)
        # A consumer takes the job itself: the child makes its own of what can travel.
        args = [_JOB if argument is job else argument for argument in args]
        payload = pickle.dumps((_plain(job), list(args), kwargs))
        child = self._take(job)
        try:
            returned = child.call(reference, payload, started)
            job.stop_seen = returned.is_cut_short
            job.then = returned.then
            job.result = returned.result
            return returned.value
        finally:
            self._put_back(job, child)

    def ask_to_stop(self, job: Job) -> None:
        """Make `should_stop()` true for a job's handler, if it runs here."""
        with self._lock:
            child = self._busy.get(job)
            if child is not None:
                child.ask_to_stop()

    def end(self, job: Job) -> None:
        """End the process that runs a job's handler, if there is one."""
        with self._lock:
            child = self._busy.get(job)
            if child is not None:
                child.end()

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for child in self._busy.values():
                child.end()
        for child in idle:
            child.close()

    def _take(self, job: Job) -> _Child:
        with self._lock:
            child = self._idle.pop() if self._idle else None
        if child is None or not child.process.is_alive():
            child = _Child()
        with self._lock:
            self._busy[job] = child
            if self._closed:
                child.end()
        return child

    def _put_back(self, job: Job, child: _Child) -> None:
        with self._lock:
            del self._busy[job]
            is_good = child.process.is_alive() and not child.is_ended and not self._closed
            if is_good:
                self._idle.append(child)
        if not is_good:
            child.close()


class _JobArgument:
    """Placeholder for the job in the arguments sent to the process."""

    def __reduce__(self) -> str:
        return "_JOB"


_JOB = _JobArgument()


class _Started:
    """Says that the handler begins."""

    def __reduce__(self) -> str:
        return "_STARTED"


_STARTED = _Started()


class _Returned(NamedTuple):
    """The handler has returned.

    Attributes:
        is_cut_short: Because it was asked to stop, with work left.
        then: The jobs that follow.
        result: What `done` was given as the result.
        value: What it returned.
    """

    is_cut_short: bool
    then: Sequence[Message] = ()
    result: Any = None
    value: Any = None


class Unportable(NamedTuple):
    """In place of a value that cannot leave the process it was made in."""

    problem: str


def _plain(job: Job) -> tuple[Any, ...]:
    lease = job.lease
    return (job.queue, job.task, lease.job, lease.lease_s)


def _serve(pipe: Connection, stop: Event) -> None:
    """The child's main loop: one call after the other until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        try:
            reference, payload = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            returned = _run(reference, payload, stop, lambda: pipe.send(_STARTED))
        except BaseException as error:
            pipe.send(_portable(error))
        else:
            pipe.send(returned)


def _run(
    reference: tuple[str, str], payload: bytes, stop: Event, started: Callable[[], object]
) -> _Returned:
    module, qualname = reference
    found = attrgetter(qualname)(importlib.import_module(module))
    function = getattr(found, "function", found)
    (queue, task, wire, lease_s), args, kwargs = pickle.loads(payload)
    job = _ChildJob(Lease(queue, wire, lease_s, 0.0), stop)
    job.task = task
    enter(job)
    started()
    value = function(*[job if argument is _JOB else argument for argument in args], **kwargs)
    return _Returned(job.is_cut_short, job.then, _travelling(job.result), _travelling(value))


def _travelling(value: Any) -> Any:
    """A value that survives the pipe."""
    if value is None:
        return None
    try:
        pickle.dumps(value)
    except Exception as error:
        return Unportable(f"a {type(value).__name__} cannot leave the handler's process: {error}")
    return value


class _ChildJob(Job):
    """A job in a child: it can be looked at, not settled."""

    __slots__ = ("_stop",)

    def __init__(self, lease: Lease, stop: Event) -> None:
        super().__init__(lease)
        self._stop = stop

    def _is_stopping(self) -> bool:
        return self._stop.is_set()


def _portable(error: BaseException) -> BaseException:
    """An exception that survives the pipe, with its traceback as a note."""
    trace = "".join(traceback.format_exception(error))
    error.__traceback__ = error.__cause__ = error.__context__ = None
    try:
        copied = pickle.loads(pickle.dumps(error))
        assert type(copied) is type(error)
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"in the handler's process:\n{trace}")
    return error
