"""`GET /v0/topics/:q/work`: jobs pushed to a worker as server-sent events.

Owns: one connection's stream: its opening, the frames, heartbeats. Must not know: how jobs are
shared out. A client that does not read gets no more jobs until it does.
"""

from __future__ import annotations

from typing import Any

from logqueue.api import replies
from logqueue.api.bodies import queues as queue_bodies
from logqueue.core import commands as cmd
from logqueue.errors import InvalidRequest, LogqueueError, ShuttingDown, Unauthorized
from logqueue.model import limits
from logqueue.model.config import clamp_lease_ms
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.engine.waitlist import WorkStream
from logqueue.server.http.byte_stream import ByteStream
from logqueue.server.http.heartbeat import Heartbeat
from logqueue.server.http.requests import Begin, HttpRequest, require_event_stream
from logqueue.server.http.routing import serves
from logqueue.server.service import Service

HEARTBEAT = b": hb\n\n"
OPENING = b"retry: 2000\n\n" + HEARTBEAT


class SseWorkStream(WorkStream):
    """A work stream that encodes jobs as events for its connection."""

    def __init__(
        self,
        topic: str,
        node: str,
        jobs_max: int,
        lease_ms: int | None,
        dispatcher: Dispatcher,
        *,
        starts: bool,
        heartbeat_s: float,
    ) -> None:
        super().__init__(topic, node, jobs_max, lease_ms, starts=starts)
        self._dispatcher = dispatcher
        self._heartbeat_s = heartbeat_s
        self._body: ByteStream | None = None
        self._heartbeat: Heartbeat | None = None
        self._held_back_by = ""

    @property
    def has_ended(self) -> bool:
        """See WorkStream."""
        return self._body is None

    @property
    def is_paused(self) -> bool:
        """See WorkStream."""
        return self._body is not None and self._body.is_paused

    def begin(self, body: ByteStream) -> None:
        """Open: from now on jobs may be delivered."""
        self._body = body
        body.writer = self
        body.write(body.frame(OPENING))
        self._heartbeat = Heartbeat(self._dispatcher.loop, self._heartbeat_s, self._beat)
        try:
            self._dispatcher.open_stream(self)
        except LogqueueError as refusal:
            # The queue went while the stream was opened.
            self.end(refusal)

    def deliver(self, jobs: cmd.ClaimedJobs) -> None:
        """See WorkStream."""
        self._held_back_by = ""
        self._write(replies.encode_job_frames(self.topic, jobs))

    def held_back(self, reason: str, retry_after_ms: int | None) -> None:
        """See WorkStream. Said once, in a comment, which clients of event streams pass over."""
        if reason == self._held_back_by:
            return
        self._held_back_by = reason
        again = b"" if retry_after_ms is None else b" retry_after_ms=%d" % retry_after_ms
        self._write(b": idle reason=%b%b\n\n" % (reason.encode(), again))

    def end(self, error: LogqueueError | None) -> None:
        """See WorkStream."""
        if error is not None:
            code: str | int = 409
            if isinstance(error, ShuttingDown):
                code = "server_shutting_down"
            elif isinstance(error, Unauthorized):
                code = error.status
            frame: dict[str, Any] = {
                "code": code,
                "error": error.message,
                "topic": self.topic,
            }
            self._write(b"event: error\ndata: %b\n\n" % replies.encode(frame))
        body = self._body
        if body is not None:
            self._close()
            body.end()

    def stream_drained(self) -> None:
        """See StreamWriter."""
        self._dispatcher.resume_stream(self)

    def stream_lost(self) -> None:
        """See StreamWriter."""
        self._close()

    def _write(self, frames: bytes) -> None:
        if self._body is not None and self._heartbeat is not None:
            self._body.write(self._body.frame(frames))
            self._heartbeat.sent(self._dispatcher.loop.time())

    def _beat(self) -> None:
        if not self.is_paused:
            self._write(HEARTBEAT)

    def _close(self) -> None:
        if self._body is not None:
            self._body = None
            if self._heartbeat is not None:
                self._heartbeat.stop()
                self._heartbeat = None
            self._dispatcher.close_stream(self)


class WorkRoute:
    """The push half of the queue API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("work")
    def work(self, request: HttpRequest) -> Begin:
        """Check a request for a stream of jobs.

        Raises:
            LogqueueError: Refused.
        """
        dispatcher = self._service.require_serving()
        require_event_stream(request)
        stream = _read_stream(request, dispatcher)
        dispatcher.engine.state.queue(request.name)
        return stream.begin


def _read_stream(request: HttpRequest, dispatcher: Dispatcher) -> SseWorkStream:
    query = request.query
    lease_ms = _number(query.get("lease_ms"), "lease_ms", limits.U64_MAX)
    jobs_max = _number(query.get("max"), "max", limits.U32_MAX)
    asked_ms = _number(query.get("heartbeat_ms"), "heartbeat_ms", limits.U64_MAX)
    heartbeat_ms = limits.HEARTBEAT_MS_DEFAULT if asked_ms is None else asked_ms
    heartbeat_ms = min(max(heartbeat_ms, limits.HEARTBEAT_MS_MIN), limits.HEARTBEAT_MS_MAX)
    claimer = queue_bodies.claimer(query.get("node", ""), 1 if jobs_max is None else jobs_max, None)
    stream = SseWorkStream(
        request.name,
        claimer.node,
        claimer.jobs_max,
        None if lease_ms is None else clamp_lease_ms(lease_ms),
        dispatcher,
        starts=request.flag("starts", False),
        heartbeat_s=heartbeat_ms / 1000,
    )
    stream.key = request.key
    return stream


def _number(given: str | None, name: str, most: int) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 40) or int(given) > most:
        raise InvalidRequest(f"`{name}` must be an integer from 0 to {most}")
    return int(given)
