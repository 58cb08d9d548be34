"""Jobs that belong together: one after the other, or side by side until all have ended.

Owns: chains of task calls, groups of them, and batches as a program sees them. Must not know: how
jobs are run, how the server counts them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Protocol

from logqueue.client import Client, NextStep
from logqueue.shapes import BatchState
from logqueue.worker.handle import JobHandle
from logqueue.worker.message import Message
from logqueue.worker.task import ChainLink, Outbox

WAIT_MS = 20_000


class Sending(Outbox, Protocol):
    """Where jobs and batches go: an `App`."""

    def send_many(self, messages: Iterable[Message]) -> list[JobHandle[Any]]:
        """Write jobs; returns their handles."""
        ...

    def prepared(self, message: Message) -> Message:
        """A job as middleware would have it."""
        ...

    def batch_client(self) -> Client:
        """Makes calls about batches."""
        ...


def chain(first: ChainLink[Any], *rest: ChainLink[Any]) -> Message:
    """The job of the first call, which carries the others: each is sent when the one before it is
    acked, in the same transaction, with its result as the first argument.

    ```python
    app.send(chain(fetch.s("cover.png"), resize.s(width=640), publish.s()))
    ```

    Args:
        first: Called with its arguments.
        rest: Called with what the task before has returned, and their arguments; 32 at most.

    Raises:
        TypeError: Arguments do not fit their function.
    """
    message = first.first()
    message.then = [link.later() for link in rest]
    return message


class JobBatchHandle:
    """A batch of jobs, as `App.batch` opens it. As a context manager it is closed at the end, and
    deleted nowhere: the server forgets it a day after its end.

    Attributes:
        name: Its name.
    """

    def __init__(self, app: Sending, name: str) -> None:
        self.name = name
        self._app = app

    def __enter__(self) -> JobBatchHandle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def add(self, *messages: Message) -> list[JobHandle[Any]]:
        """Write jobs that are in the batch; returns their handles.

        Raises:
            BatchClosed: The batch is over.
        """
        for message in messages:
            message.batch = self.name
        return self._app.send_many(messages)

    def close(self) -> None:
        """No more jobs are to come but from jobs of the batch: it ends with the last of them."""
        self._app.batch_client().close_batch(self.name)

    def counts(self) -> BatchState:
        """How many of its jobs are done, have failed, are left."""
        return self._app.batch_client().batch(self.name)

    def wait(self, timeout: float | None = None) -> BatchState:
        """Wait until all of its jobs have ended and it is closed.

        Raises:
            TimeoutError: They have not within `timeout` seconds.
        """
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            left_ms = WAIT_MS if ends is None else round((ends - time.monotonic()) * 1000)
            found = self._app.batch_client().batch(self.name, wait_ms=min(max(left_ms, 0), WAIT_MS))
            if found.state == "ended":
                return found
            if left_ms <= 0:
                raise TimeoutError(f"batch {self.name} has {found.left} jobs left")


def open_batch(
    app: Sending,
    name: str | None,
    on_done: Message | None,
    on_problem: Message | None,
) -> JobBatchHandle:
    """What `App.batch` comes to."""
    called = name or f"batch-{secrets.token_hex(8)}"

    def step(message: Message | None) -> NextStep | None:
        if message is None:
            return None
        return NextStep(message.queue, app.prepared(message).record())

    app.batch_client().open_batch(called, on_done=step(on_done), on_problem=step(on_problem))
    return JobBatchHandle(app, called)


def send_group(
    app: Sending,
    messages: Iterable[Message],
    name: str | None,
    on_done: Message | None,
    on_problem: Message | None,
) -> JobBatchHandle:
    """What `App.group` comes to."""
    with open_batch(app, name, on_done, on_problem) as batch:
        batch.add(*messages)
    return batch
