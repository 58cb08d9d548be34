"""Server-sent events of a reply, read by httpx-sse.

Owns: what httpx-sse leaves open: the encoding, and bounds of what a stream asks for. Must not know:
what events mean.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING, cast

from logqueue.client.lazy import httpx

if TYPE_CHECKING:
    from httpx_sse import ServerSentEvent

RETRY_MS_MAX = 3_600_000
"""A stream that asks for a longer pause before reconnecting gets this one."""

_ENCODING = "utf-8-sig"
"""Event streams are UTF-8 whatever the reply says, perhaps behind a byte order mark."""


def async_events_of(reply: httpx.Response) -> AsyncGenerator[ServerSentEvent, None]:
    """The events of a reply whose body was not read yet; an unfinished one at the end is dropped.

    Events without data are among them: they may bring an id or a time to reconnect after.
    """
    from httpx_sse import EventSource

    reply.encoding = _ENCODING
    return EventSource(reply).aiter_sse()


def events_of(reply: httpx.Response) -> Generator[ServerSentEvent, None, None]:
    """See `async_events_of`."""
    from httpx_sse import EventSource

    reply.encoding = _ENCODING
    return cast("Generator[ServerSentEvent, None, None]", EventSource(reply).iter_sse())


def retry_ms_of(event: ServerSentEvent, before: int | None) -> int | None:
    """How long to wait before reconnecting.

    Args:
        event: One that may say so.
        before: The previous value; kept when the event has none, or an invalid one.
    """
    if event.retry is None or event.retry < 0:
        return before
    return min(event.retry, RETRY_MS_MAX)
