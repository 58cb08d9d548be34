"""What runs around every handler and beside every send.

Owns: the shape of middleware and how several are nested. Must not know: any one of them.

A middleware wraps: it is given the job and the rest of the way, and awaits that. What the handler
raises, `RetryLater`, `Snooze` and `Reject` included, passes through it; what it raises itself is
treated as if the handler had. The first in the list is the outermost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from logqueue.worker.job import Job
from logqueue.worker.message import Message

Handle = Callable[[Job], Awaitable[None]]
"""The rest of the way to the handler."""


class Middleware:
    """Does nothing on either side; override what you need."""

    async def handle(self, job: Job, call_next: Handle) -> None:
        """Runs around a handler, on the event loop."""
        await call_next(job)

    def on_send(self, message: Message) -> None:
        """Sees, and may change, a message before it is sent."""


def nest(layers: Sequence[Middleware], innermost: Handle) -> Handle:
    """All layers around a handler, as one."""
    handle = innermost
    for layer in reversed(layers):
        handle = _around(layer, handle)
    return handle


def _around(layer: Middleware, inner: Handle) -> Handle:
    async def handle(job: Job) -> None:
        await layer.handle(job, inner)

    return handle
