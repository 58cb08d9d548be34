"""`GET /v0/topics/:q/work`: jobs pushed to a worker as server-sent events.

Owns: one connection's stream: its opening, the frames, heartbeats, and noticing that the client is
gone. Must not know: how jobs are shared out. What a stream holds in memory is bounded by the jobs
it may have in flight.
"""

from __future__ import annotations

import asyncio
from typing import Any

from logqueue import replies, wire
from logqueue.core import commands as cmd
from logqueue.core import limits
from logqueue.core.config import clamp_lease_ms
from logqueue.errors import InvalidRequest, LogqueueError, NotAcceptable, ShuttingDown
from logqueue.server.coordinator import Coordinator, WorkStream
from logqueue.server.requests import Request, Send
from logqueue.server.service import Service

HEARTBEAT_S = 15.0
HEARTBEAT = b": hb\n\n"
OPENING = b"retry: 2000\n\n" + HEARTBEAT
SSE_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def require_event_stream(request: Request) -> None:
    """Check the Accept header of a stream.

    Raises:
        NotAcceptable: It excludes event streams.
    """
    accept = (request.header(b"accept") or b"").lower()
    if accept and b"text/event-stream" not in accept and b"*/*" not in accept:
        raise NotAcceptable("this route answers with an event stream: accept text/event-stream")


class SseWorkStream(WorkStream):
    """A work stream that encodes jobs as events for its connection."""

    def __init__(self, topic: str, node: str, jobs_max: int, lease_ms: int | None) -> None:
        super().__init__(topic, node, jobs_max, lease_ms)
        self._chunks: list[bytes] = []
        self._ended = False
        self._wake: asyncio.Future[None] | None = None

    @property
    def has_ended(self) -> bool:
        """See WorkStream."""
        return self._ended

    def deliver(self, jobs: list[cmd.Job]) -> None:
        """See WorkStream."""
        if not self._ended:
            self._chunks.append(replies.encode_job_frames(self.topic, jobs))
            self._rouse()

    def end(self, error: LogqueueError | None) -> None:
        """See WorkStream."""
        if self._ended:
            return
        self._ended = True
        if error is not None:
            down = isinstance(error, ShuttingDown)
            frame: dict[str, Any] = {
                "code": "server_shutting_down" if down else 409,
                "error": error.message,
                "topic": self.topic,
            }
            self._chunks.append(b"event: error\ndata: %b\n\n" % replies.encode(frame))
        self._rouse()

    def hang_up(self) -> None:
        """The client is gone: nothing more needs to be sent."""
        self._ended = True
        self._chunks.clear()
        self._rouse()

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def next_chunk(self) -> bytes:
        """What to send next: frames, a heartbeat after silence, or b"" at the end."""
        if not self._chunks and not self._ended:
            loop = asyncio.get_running_loop()
            self._wake = loop.create_future()
            timer = loop.call_later(HEARTBEAT_S, self._rouse)
            try:
                await self._wake
            finally:
                timer.cancel()
                self._wake = None
        if self._chunks:
            chunk = b"".join(self._chunks)
            self._chunks.clear()
            return chunk
        return b"" if self._ended else HEARTBEAT


class WorkRoute:
    """The push half of the queue API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def work(self, request: Request, send: Send) -> None:
        """Open a stream, feed it until either side ends it, and give its leases back.

        Raises:
            LogqueueError: Refused; nothing was sent then.
        """
        coordinator = self._service.require_serving()
        require_event_stream(request)
        stream = _read_stream(request)
        coordinator.engine.state.queue(request.name)
        if request.method == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
            await send({"type": "http.response.body", "body": b""})
            return
        self._service.enter_stream(request.key)
        try:
            await _feed(request, send, stream, coordinator)
        finally:
            self._service.leave_stream(request.key)


def _read_stream(request: Request) -> SseWorkStream:
    query = request.query
    lease_ms = _number(query.get("lease_ms"), "lease_ms", limits.U64_MAX)
    jobs_max = _number(query.get("max"), "max", limits.U32_MAX)
    claimer = wire.claimer(query.get("node", ""), 1 if jobs_max is None else jobs_max, None)
    return SseWorkStream(
        request.name,
        claimer.node,
        claimer.jobs_max,
        None if lease_ms is None else clamp_lease_ms(lease_ms),
    )


def _number(given: str | None, name: str, most: int) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 40) or int(given) > most:
        raise InvalidRequest(f"`{name}` must be an integer from 0 to {most}")
    return int(given)


async def _feed(
    request: Request, send: Send, stream: SseWorkStream, coordinator: Coordinator
) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": list(SSE_HEADERS)})
    await send({"type": "http.response.body", "body": OPENING, "more_body": True})
    watch = asyncio.ensure_future(_hang_up_with_client(request, stream))
    try:
        coordinator.open_stream(stream)
    except LogqueueError as refusal:
        # The queue went while the head of the reply was sent.
        stream.end(refusal)
    try:
        while chunk := await stream.next_chunk():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if not watch.done():
            await send({"type": "http.response.body", "body": b""})
    finally:
        coordinator.close_stream(stream)
        watch.cancel()


async def _hang_up_with_client(request: Request, stream: SseWorkStream) -> None:
    await request.gone()
    stream.hang_up()
