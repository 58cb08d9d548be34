"""What an app can do with the jobs of its queues.

Owns: the description of one handler, and which one takes a job. Must not know: how handlers are
run, clients.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from logqueue.errors import quoted
from logqueue.worker.job import Job
from logqueue.worker.outcomes import AckPolicy, UnknownTask
from logqueue.worker.payload import read_call
from logqueue.worker.retry import Retry

RunIn = Literal["loop", "thread", "process"]

Bind = Callable[[Job], tuple[Sequence[Any], dict[str, Any]]]
"""From a job to the arguments of the function. Raises BadPayload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """One task or consumer.

    Attributes:
        concurrency: Runs at once; None leaves it to the worker.
        timeout: Seconds a run may take; None for no bound.
        run_in: Where the function runs.
        priority: What jobs of a task have that are sent without one; None for none.
    """

    name: str
    queue: str
    function: Callable[..., Any]
    bind: Bind
    policy: AckPolicy = AckPolicy.NACK_ON_ERROR
    retry: Retry = field(default_factory=Retry)
    timeout: float | None = None
    concurrency: int | None = None
    run_in: RunIn = "loop"
    priority: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ValueError: A bound is violated, or the function does not fit where it should run.
        """
        if self.timeout is not None and self.timeout <= 0:
            raise ValueError(f"{self.name}: timeout is in seconds and must be above 0")
        if self.concurrency is not None and self.concurrency < 1:
            raise ValueError(f"{self.name}: concurrency must be at least 1")
        if self.priority is not None and not 0 <= self.priority <= 9:
            raise ValueError(f"{self.name}: priority must be from 0 to 9")
        if is_async(self.function) is not (self.run_in == "loop"):
            raise ValueError(
                f"{self.name}: an async function runs on the loop, any other in a thread or process"
            )
        if self.run_in == "process" and "<" in self.function.__qualname__:
            raise ValueError(
                f"{self.name}: a process must be able to import the function by name; define it "
                "at the top of a module"
            )


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


def where(function: Callable[..., Any], asked: RunIn | None) -> RunIn:
    """Where a function runs: as asked, else on the loop if it is async and in a thread if not."""
    return asked or ("loop" if is_async(function) else "thread")


class Handlers:
    """All handlers of an app, by queue: one consumer, or any number of tasks."""

    def __init__(self) -> None:
        self.tasks: dict[str, Handler] = {}
        self.consumers: dict[str, Handler] = {}

    def add_task(self, handler: Handler) -> None:
        """Register a task.

        Raises:
            ValueError: Its name is taken, or its queue has a consumer.
        """
        if handler.name in self.tasks:
            raise ValueError(
                f"task {quoted(handler.name)} exists already: give this one another name="
            )
        if handler.queue in self.consumers:
            raise ValueError(
                f"queue {quoted(handler.queue)} has a consumer already, which takes all its jobs"
            )
        self.tasks[handler.name] = handler

    def add_consumer(self, handler: Handler) -> None:
        """Register a consumer.

        Raises:
            ValueError: Its queue has a consumer or tasks.
        """
        if handler.queue in self.queues():
            raise ValueError(
                f"queue {quoted(handler.queue)} has handlers already; a consumer must be alone"
            )
        self.consumers[handler.queue] = handler

    def queues(self) -> list[str]:
        """Queues with at least one handler, in the order of registration."""
        named = [handler.queue for handler in self.of_all()]
        return list(dict.fromkeys(named))

    def of_all(self) -> list[Handler]:
        """Every handler."""
        return [*self.tasks.values(), *self.consumers.values()]

    def of_queue(self, queue: str) -> list[Handler]:
        """The handlers of one queue."""
        return [handler for handler in self.of_all() if handler.queue == queue]

    def find(self, job: Job) -> Handler:
        """The handler that takes a job.

        Raises:
            BadPayload: The job is not a task call, and its queue has no consumer.
            UnknownTask: No such task is registered.
        """
        consumer = self.consumers.get(job.queue)
        if consumer is not None:
            return consumer
        call = read_call(job.data)
        handler = self.tasks.get(call.task)
        if handler is None:
            known = ", ".join(sorted(self.tasks)) or "none"
            raise UnknownTask(f"no task {quoted(call.task)} is registered (known: {known})")
        return handler
