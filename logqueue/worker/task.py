"""A task as its producers see it: a function that can also be called later, elsewhere.

Owns: typed sending, and the options of a send. Must not know: how jobs are run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

from logqueue.worker.handle import JobHandle
from logqueue.worker.handlers import Handler
from logqueue.worker.message import Message, OnConflict, Unique
from logqueue.worker.payload import Arguments

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Outbox(Protocol):
    """Where messages go."""

    def send(self, message: Message) -> JobHandle[Any]:
        """Write it; returns its handle."""
        ...

    async def send_async(self, message: Message) -> JobHandle[Any]:
        """Write it; returns its handle."""
        ...


class ChainLink(Generic[R]):
    """A call of a task as a part of a chain; see `chain`."""

    def __init__(
        self, arguments: Arguments, options: Message, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        self._arguments = arguments
        self._options = options
        self._args = args
        self._kwargs = kwargs

    def first(self) -> Message:
        """The job of this call, at the beginning of a chain.

        Raises:
            TypeError: The arguments do not fit the function.
        """
        return self._message(self._arguments.encode(self._args, self._kwargs))

    def later(self) -> Message:
        """The job of this call, which gets the result of the job before it first.

        Raises:
            TypeError: The arguments do not fit the function.
        """
        return self._message(self._arguments.encode_later(self._args, self._kwargs))

    def _message(self, data: dict[str, Any]) -> Message:
        return replace(self._options, data=data, meta=copy.copy(self._options.meta))


class Sender(Generic[P]):
    """Sends calls of one task, with some options set."""

    def __init__(self, outbox: Outbox, arguments: Arguments, options: Message) -> None:
        self._outbox = outbox
        self._arguments = arguments
        self._options = options

    def message(self, *args: P.args, **kwargs: P.kwargs) -> Message:
        """The job that this call makes, for `App.send_many`.

        Raises:
            TypeError: The arguments do not fit the function.
        """
        data = self._arguments.encode(args, kwargs)
        return replace(self._options, data=data, meta=copy.copy(self._options.meta))

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Message:
        """The job that this call makes, for `then` of `Job.done` and `Job.ack`; see `message`.

        Raises:
            TypeError: The arguments do not fit the function.
        """
        return self.message(*args, **kwargs)

    def s(self, *args: Any, **kwargs: Any) -> ChainLink[Any]:
        """This call as a part of a `chain`."""
        return ChainLink(self._arguments, self._options, args, kwargs)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[Any]:
        """Have the task run by a worker with these arguments.

        Returns:
            The job's handle: its seq, by which its result can be asked for.

        Raises:
            TypeError: The arguments do not fit the function.
            LogqueueError: The server refused, or could not be reached.
        """
        handle = self._outbox.send(self.message(*args, **kwargs))
        handle.read = self._arguments.result
        return handle

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[Any]:
        """As `send`, for code on an event loop."""
        handle = await self._outbox.send_async(self.message(*args, **kwargs))
        handle.read = self._arguments.result
        return handle


class Task(Generic[P, R]):
    """A registered function. Calling it runs it here and now; sending it makes a job.

    Attributes:
        name: What it is called in payloads.
        queue: Where its jobs go.
        priority: What its jobs have that are sent without one; None for none.
        function: The function itself.
    """

    def __init__(self, handler: Handler, outbox: Outbox, arguments: Arguments) -> None:
        self.name = handler.name
        self.queue = handler.queue
        self.priority = handler.priority
        self.function = cast(Callable[P, R], handler.function)
        self.__doc__ = handler.function.__doc__
        self.__module__ = handler.function.__module__
        self.__wrapped__ = handler.function
        self._outbox = outbox
        self._arguments = arguments

    def __repr__(self) -> str:
        return f"<Task {self.name} on {self.queue}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now, as if it were no task."""
        return self.function(*args, **kwargs)

    def with_options(
        self,
        *,
        delay: float | None = None,
        ttl: float | None = None,
        key: str | None = None,
        on_conflict: OnConflict | None = None,
        unique: Unique | None = None,
        on_duplicate: OnConflict | None = None,
        tag: str | None = None,
        meta: Mapping[str, Any] | None = None,
        max_deliveries: int | None = None,
        queue: str | None = None,
        priority: int | None = None,
        group: str | None = None,
    ) -> Sender[P]:
        """A sender with these options; it may be kept and used many times.

        Args:
            delay: Seconds before a worker may have the job.
            ttl: Seconds after which the job is no longer worth doing.
            key: At most one job per key, for as long as `unique` says.
            on_conflict: What a job with this key leads to: `replace` it while it waits (the
                default), `keep` it, or `reject` this one.
            unique: How long the job has its key: while it is `waiting` (the default), until it
                ends (`running`), or until its result is forgotten (`kept`).
            on_duplicate: The newer name of `on_conflict`; give one of them.
            tag: For deletes, and for people.
            meta: Travels beside the data.
            max_deliveries: Overrides the queue's.
            queue: Another queue than the task's own, one whose workers know this task.
            priority: 0 to 9; jobs with a higher one go first. None for the task's own.
            group: Whose job it is, for queues that have `groups`.
        """
        options = Message(
            queue=queue or self.queue,
            data=None,
            tag=tag,
            meta=dict(meta or {}),
            delay_ms=None if delay is None else round(delay * 1000),
            ttl_ms=None if ttl is None else round(ttl * 1000),
            key=key,
            on_conflict=on_duplicate or on_conflict,
            unique=unique,
            max_deliveries=max_deliveries,
            priority=self.priority if priority is None else priority,
            group=group,
        )
        return Sender(self._outbox, self._arguments, options)

    def message(self, *args: P.args, **kwargs: P.kwargs) -> Message:
        """The job that this call makes, for `App.send_many`.

        Raises:
            TypeError: The arguments do not fit the function.
        """
        return self.with_options().message(*args, **kwargs)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Message:
        """The job that this call makes, for `then` of `Job.done` and `Job.ack`; see `message`.

        Raises:
            TypeError: The arguments do not fit the function.
        """
        return self.message(*args, **kwargs)

    def s(self, *args: Any, **kwargs: Any) -> ChainLink[R]:
        """This call as a part of a `chain`: behind another one, the result of that comes first
        among the arguments."""
        return self.with_options().s(*args, **kwargs)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Have the task run by a worker with these arguments.

        Returns:
            The job's handle: its seq, by which its result can be asked for.

        Raises:
            TypeError: The arguments do not fit the function.
            LogqueueError: The server refused, or could not be reached.
        """
        return self.with_options().send(*args, **kwargs)

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """As `send`, for code on an event loop."""
        return await self.with_options().send_async(*args, **kwargs)
