"""Endless reading: what to ask for, what a frame means, how to go on after a break.

Owns: cursors and ids of a watch, leases of a work stream, which failures end them. Must not know:
httpx, whether the caller blocks or awaits, how long to wait before trying again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec

from logqueue.client.calls import Call, CallRequest, call, decode, given, request
from logqueue.client.endpoints import CREATE_WATCH, WATCH, WORK
from logqueue.client.failures import ConnectionFailed, Silence, UnexpectedReply
from logqueue.client.settling import Settled
from logqueue.errors import (
    LogqueueError,
    NotFound,
    ShuttingDown,
    quoted,
)
from logqueue.shapes import (
    CaughtUp,
    Gap,
    Job,
    JobFrame,
    Records,
    StreamError,
    TopicDeleted,
    WatchSession,
)

if TYPE_CHECKING:
    from httpx_sse import ServerSentEvent

EVENT_STREAM = "text/event-stream"
HEARTBEAT_MS = 15_000
HEARTBEAT_MS_MIN = 1000
HEARTBEAT_SEVERAL_MS = 5000
"""Where there are several servers: the end of one must be noticed before another has taken over."""

T = TypeVar("T")

WatchFrame = Records | Gap | CaughtUp | TopicDeleted
"""What a watch yields: records, the place of lost ones, news of being at the head, an end."""


class Following(ABC, Generic[T]):
    """One endless iteration over a chain of streams.

    Attributes:
        silence_ms_max: A stream that says nothing for so long is dead; heartbeats are something.
    """

    silence_ms_max = 3 * HEARTBEAT_MS

    def expect_takeovers(self) -> None:
        """Before the first request: there are several servers, and a dead one is to be noticed
        soon."""

    def is_over(self) -> bool:
        """Whether nothing more can come."""
        return False

    def prepare(self) -> Call[Any] | None:
        """The call to make before the next stream is asked for, if one is due."""
        return None

    def prepared(self, reply: Any) -> list[T]:
        """Take in that call's reply; what it means for the iteration."""
        return []

    @abstractmethod
    def request(self, node: str) -> tuple[CallRequest, dict[str, str]]:
        """The request for the next stream and its extra headers."""

    def opened(self) -> None:
        """Take in that the server has accepted the stream."""

    def moved(self) -> None:
        """Take in that another server is asked from now on: sessions of the one before are unknown
        there."""

    @abstractmethod
    def take(self, event: ServerSentEvent) -> list[T]:
        """What an event means for the iteration.

        Raises:
            LogqueueError: The event says that the stream ends, and why.
        """

    @abstractmethod
    def broken(self, error: LogqueueError) -> list[T]:
        """Take in that the stream is gone; what that means for the iteration.

        Raises:
            LogqueueError: The error given: another try would change nothing.
        """


# -- watch streams -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class From:
    """Where a watch begins on one topic.

    Attributes:
        seq: The last seq already seen; 0 for the beginning.
        tail: Only what comes from now on, whatever `seq` says.
    """

    seq: int = 0
    tail: bool = False


Topics = str | Iterable[str] | Mapping[str, int | From]
"""A topic or several, from their beginning, or each from a seq or From."""

_FRAMES: dict[str, type[WatchFrame]] = {
    "record": Records,
    "tombstone": Gap,
    "caught-up": CaughtUp,
    "topic-deleted": TopicDeleted,
}


class Watching(Following[WatchFrame]):
    """A watch over topics.

    Resuming on the same session is exact only when the server noticed the break too: two open
    streams would share its cursors. After silence, or without an id to resume from, a new session
    begins at this side's cursors.
    """

    def __init__(
        self, topics: Mapping[str, From], options: Mapping[str, Any], heartbeat_ms: int | None
    ) -> None:
        self._starts = dict(topics)
        self._options = dict(options)
        self._is_heartbeat_given = heartbeat_ms is not None
        self._wid: str | None = None
        self._last_id = ""
        self._is_first = True
        self._set_heartbeat(HEARTBEAT_MS if heartbeat_ms is None else heartbeat_ms)

    def _set_heartbeat(self, heartbeat_ms: int) -> None:
        self._options["heartbeat_ms"] = heartbeat_ms
        self.silence_ms_max = 3 * max(heartbeat_ms, HEARTBEAT_MS_MIN)

    def expect_takeovers(self) -> None:
        """See Following."""
        if not self._is_heartbeat_given:
            self._set_heartbeat(HEARTBEAT_SEVERAL_MS)

    def is_over(self) -> bool:
        """See Following."""
        return not self._starts

    def prepare(self) -> Call[WatchSession] | None:
        """See Following."""
        if self._wid is not None:
            return None
        topics = {
            name: {"tail": True} if start.tail else {"from_seq": start.seq}
            for name, start in self._starts.items()
        }
        # A topic that went during a break is news, not an error.
        lenient = {} if self._is_first else {"lenient": True}
        return call(CREATE_WATCH, query=lenient, body={"topics": topics, **self._options})

    def prepared(self, reply: WatchSession) -> list[WatchFrame]:
        """See Following."""
        gone = [name for name in self._starts if name not in reply.topics]
        self._starts = {name: From(at.from_seq) for name, at in reply.topics.items()}
        self._wid = reply.wid
        self._last_id = ""
        self._is_first = False
        return [TopicDeleted(topic=name) for name in gone]

    def request(self, node: str) -> tuple[CallRequest, dict[str, str]]:
        """See Following."""
        assert self._wid is not None, "a session comes first"
        headers = {"last-event-id": self._last_id} if self._last_id else {}
        return request(WATCH, self._wid, accept=EVENT_STREAM), headers

    def take(self, event: ServerSentEvent) -> list[WatchFrame]:
        """See Following."""
        kind = _FRAMES.get(event.event)
        if kind is None:
            if event.event == "error":
                raise ending_of(event)
            return []
        frame = decode_event(event, kind)
        self._last_id = event.id
        match frame:
            case Records():
                self._starts[frame.topic] = From(frame.to_seq)
            case Gap():
                self._starts[frame.topic] = From(frame.earliest_seq - 1)
            case TopicDeleted():
                self._starts.pop(frame.topic, None)
        return [frame]

    def moved(self) -> None:
        """See Following."""
        self._wid = None

    def broken(self, error: LogqueueError) -> list[WatchFrame]:
        """See Following."""
        is_expired = type(error) is NotFound and self._wid is not None
        if not (error.retryable or is_expired):
            raise error
        if is_expired or not self._last_id or isinstance(error, Silence):
            self._wid = None
        return []


def watch(
    topics: Topics,
    *,
    tail: bool = False,
    node: str | Sequence[str] | None = None,
    limit: int | None = None,
    max_batch_bytes: int | None = None,
    heartbeat_ms: int | None = None,
    include_data: bool = True,
    include_tags: bool = True,
    include_meta: bool = True,
) -> Following[WatchFrame]:
    """Follow topics for ever: records as they come, and a Gap where some were lost.

    Resumes automatically after a break, behind the last frame taken from it; ends when all
    topics are deleted. A broken connection may repeat records, never leave one out.

    Args:
        topics: Names, or where to begin by name: a seq, or `From(tail=True)`.
        tail: Names without a place of their own begin at their end.
        node: Leaves out what these nodes wrote.
        limit: Records per frame at most, up to 1000; 256 when not given.
        max_batch_bytes: Bytes per frame at most; 256 KiB when not given.
        heartbeat_ms: The longest silence of the server, 1000 to 60 000; when not given, 15 000, and
            5000 where the client has several servers.
        include_data: False leaves payloads out.

    Raises:
        TopicNotFound: At the start, one of the topics does not exist.
        Unreachable: At the start, no server.
    """
    start = From(tail=tail)
    if isinstance(topics, str):
        starts = {topics: start}
    elif isinstance(topics, Mapping):
        starts = {n: From(at) if isinstance(at, int) else at for n, at in topics.items()}
    else:
        starts = dict.fromkeys(topics, start)
    if not starts:
        raise ValueError("name at least one topic to watch")
    options = given(
        node=node,
        limit=limit,
        max_batch_bytes=max_batch_bytes,
        include_data=include_data,
        include_tags=include_tags,
        include_meta=include_meta,
    )
    return Watching(starts, options, heartbeat_ms)


# -- work streams --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A work stream broke: the server takes back what it had handed out over it.

    Attributes:
        jobs: Those of its jobs that the caller still has and that this client has not settled.
            Their lease ids are void; others may get them from now on.
        error: What happened.
    """

    queue: str
    jobs: tuple[Job, ...]
    error: LogqueueError


class Working(Following[Job | Interrupted]):
    """The jobs of a queue, as the server pushes them."""

    def __init__(self, queue: str, node: str | None, jobs_max: int, lease_ms: int | None) -> None:
        self.queue = queue
        self._node = node
        self._jobs_max = jobs_max
        self._lease_ms = lease_ms
        # Jobs whose caller has gone must not accumulate here.
        self._held: WeakValueDictionary[int, Job] = WeakValueDictionary()
        self._is_open = False
        self._heartbeat_ms: int | None = None

    def expect_takeovers(self) -> None:
        """See Following."""
        self._heartbeat_ms = HEARTBEAT_SEVERAL_MS
        self.silence_ms_max = 3 * HEARTBEAT_SEVERAL_MS

    def opened(self) -> None:
        """See Following."""
        self._is_open = True

    def request(self, node: str) -> tuple[CallRequest, dict[str, str]]:
        """See Following."""
        query = {
            "node": self._node or node,
            "max": self._jobs_max,
            "lease_ms": self._lease_ms,
            # The iterating code has the job: should it take the process down, that was a delivery.
            "starts": "true",
            "heartbeat_ms": self._heartbeat_ms,
        }
        return request(WORK, self.queue, query=query, accept=EVENT_STREAM), {}

    def take(self, event: ServerSentEvent) -> list[Job | Interrupted]:
        """See Following."""
        if event.event == "error":
            raise ending_of(event)
        if event.event != "job":
            return []
        job = decode_event(event, JobFrame)
        self._held[job.seq] = job
        return [job]

    def forget(self, settled: Settled) -> None:
        """Take in that the caller has settled jobs, or lost them."""
        if settled.queue == self.queue:
            for seq in (*settled.counted, *settled.skipped, *settled.unsure):
                self._held.pop(seq, None)

    def broken(self, error: LogqueueError) -> list[Job | Interrupted]:
        """See Following."""
        if not error.retryable:
            raise error
        if not self._is_open:
            return []
        self._is_open = False
        held = [reference() for reference in self._held.valuerefs()]
        jobs = tuple(job for job in held if job is not None)
        lost = Interrupted(self.queue, jobs, error)
        self._held.clear()
        return [lost]


def work(
    queue: str, *, node: str | None = None, max: int = 1, lease_ms: int | None = None
) -> Following[Job | Interrupted]:
    """The jobs of a queue for ever, pushed as they become ready; settle them as claimed ones.

    At most `max` are out at a time; acking, nacking or rejecting one makes room for the next.
    Leaving the iteration gives back what is out. After a break an Interrupted comes, then jobs
    again from a new stream.

    Args:
        node: Who holds the leases, 1 to 128 bytes; the client's own name when not given.
        max: Jobs out at a time, 1 to 1000.
        lease_ms: How long, 100 to 86 400 000; the queue's `lease_ms` when not given.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
        Unreachable: At the start, no server.
    """
    return Working(queue, node, max, lease_ms)


def decode_event(event: ServerSentEvent, kind: type[T]) -> T:
    """The data of an event.

    Raises:
        UnexpectedReply: It is not such data.
    """
    try:
        return decode(event.data, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnexpectedReply(
            f"event {quoted(event.event)} with data that no logqueue server sends: "
            f"{quoted(event.data[:200])} ({error})"
        ) from error


def ending_of(event: ServerSentEvent) -> LogqueueError:
    """Why the server ended a stream, by its last event."""
    failure = decode_event(event, StreamError)
    text = failure.message or failure.error or "the server ended the stream"
    if failure.code == "server_shutting_down":
        return ShuttingDown(text)
    return ConnectionFailed(text)
