"""An event stream as an ASGI application, made with sse-starlette.

Owns: its headers, and that it ends with its events. Must not know: what they say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from sse_starlette.sse import EventSourceResponse
from starlette.types import Receive, Send


class EventStreamResponse(EventSourceResponse):
    """The response, whose tasks end without an exception.

    The traceback of one that was cancelled would keep all that belongs to the stream, in a cycle
    that only a full garbage collection frees, of which a server makes none.
    """

    @staticmethod
    async def _listen_for_exit_signal() -> None:
        # The server ends its streams itself, with a last event that says why. sse-starlette would
        # look for signals twice a second, also when no stream is open any longer.
        with suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()

    async def _stream_response(self, send: Send) -> None:
        with suppress(asyncio.CancelledError):
            await super()._stream_response(send)

    async def _listen_for_disconnect(self, receive: Receive) -> None:
        with suppress(asyncio.CancelledError):
            await super()._listen_for_disconnect(receive)


def event_stream(frames: AsyncIterator[bytes]) -> EventSourceResponse:
    """A stream of frames that are encoded already.

    Args:
        frames: Frames and heartbeats, perhaps in pieces; each is asked for when the one before is
            taken. Closed at the end, however it ends.
    """
    # Its heartbeats could come between two pieces of a frame: the frames bring their own.
    return EventStreamResponse(frames, headers={"content-type": "text/event-stream"}, ping=0)
