"""The live feed and history: what to ask for, what a frame changes.

Owns: the picture that frames add up to. Must not know: httpx, whether the caller blocks or awaits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from logqueue.client.calls import Call, CallRequest, call, given, request
from logqueue.client.endpoints import LIST_ALL_WORKERS, STATS_STREAM, TOPIC_HISTORY
from logqueue.client.failures import UnexpectedReply
from logqueue.client.following import EVENT_STREAM, Following, decode_event, ending_of
from logqueue.errors import LogqueueError, quoted
from logqueue.shapes import (
    ServerWorkerList,
    StatsAttention,
    StatsChange,
    StatsKey,
    StatsServer,
    StatsTopic,
    TopicHistory,
)

if TYPE_CHECKING:
    from httpx_sse import ServerSentEvent


@dataclass(frozen=True, slots=True)
class LiveStats:
    """What the live feed says as of one event.

    Attributes:
        at: When, ms since the epoch by the server's clock.
        topics: All topics that the key may see, in name order; 10 000 at most.
        attention: What needs attention, the worst first.
        changed: The topics that are new, or differ from the event before.
        gone: Those that were deleted since.
        key: What the key may do; None on a server without keys.
        truncated: Whether there are more topics than are shown.
    """

    at: int
    server: StatsServer
    topics: dict[str, StatsTopic]
    attention: list[StatsAttention] = field(default_factory=list)
    changed: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    key: StatsKey | None = None
    truncated: bool = False


class _FullFrame(msgspec.Struct, frozen=True, kw_only=True):
    """The event `full`, with members that changes are to be put into."""

    at: int
    key: StatsKey | None
    server: dict[str, Any]
    topics: dict[str, dict[str, Any]]
    attention: list[StatsAttention]
    truncated: bool = False


class StatsFollowing(Following[LiveStats]):
    """The live feed. After a break, the next event is a full one."""

    def __init__(self) -> None:
        self._full: _FullFrame | None = None
        self._topics: dict[str, StatsTopic] = {}
        self._attention: list[StatsAttention] = []

    def request(self, node: str) -> tuple[CallRequest, dict[str, str]]:
        """See Following."""
        return request(STATS_STREAM, accept=EVENT_STREAM), {}

    def take(self, event: ServerSentEvent) -> list[LiveStats]:
        """See Following."""
        if event.event == "error":
            raise ending_of(event)
        try:
            if event.event == "full":
                return [self._take_full(decode_event(event, _FullFrame))]
            if event.event == "change" and self._full is not None:
                return [self._take_change(self._full, decode_event(event, StatsChange))]
        except msgspec.ValidationError as error:
            text = quoted(event.data[:200])
            raise UnexpectedReply(f"a live feed that no server sends: {text} ({error})") from error
        return []

    def _take_full(self, full: _FullFrame) -> LiveStats:
        gone = self._topics.keys() - full.topics.keys()
        self._full = full
        self._topics = {}
        self._attention = full.attention
        self._convert([*full.topics])
        return self._now(full.at, frozenset(full.topics), frozenset(gone))

    def _take_change(self, full: _FullFrame, change: StatsChange) -> LiveStats:
        for name in change.gone:
            full.topics.pop(name, None)
            self._topics.pop(name, None)
        for name, members in change.topics.items():
            full.topics.setdefault(name, {}).update(members)
        full.server.update(change.server)
        if change.attention is not None:
            self._attention = change.attention
        self._convert([*change.topics])
        gone = frozenset(change.gone) - change.topics.keys()
        return self._now(change.at, frozenset(change.topics), gone)

    def _convert(self, names: list[str]) -> None:
        assert self._full is not None
        is_new = any(name not in self._topics for name in names)
        for name in names:
            self._topics[name] = msgspec.convert(self._full.topics[name], StatsTopic)
        if is_new:
            self._topics = dict(sorted(self._topics.items()))

    def _now(self, at: int, changed: frozenset[str], gone: frozenset[str]) -> LiveStats:
        full = self._full
        assert full is not None
        server = msgspec.convert(full.server, StatsServer)
        topics, attention = {**self._topics}, self._attention
        return LiveStats(at, server, topics, attention, changed, gone, full.key, full.truncated)

    def broken(self, error: LogqueueError) -> list[LiveStats]:
        """See Following."""
        if not error.retryable:
            raise error
        return []


def stats_stream() -> Following[LiveStats]:
    """The statistics of the server and of all topics for ever: all of it at once, then once a
    second if something has changed. Resumes automatically after a break.

    Raises:
        Unreachable: At the start, no server.
        Forbidden: The key may not read.
    """
    return StatsFollowing()


def topic_history(topic: str, *, window: Literal["10m", "24h"] = "10m") -> Call[TopicHistory]:
    """What has happened on a topic in each of the last 600 seconds, or 1440 minutes, while the
    server has run. Does not count as a read.

    Args:
        window: How far back.

    Raises:
        TopicNotFound: There is no such topic.
    """
    return call(TOPIC_HISTORY, topic, query=given(window=window if window != "10m" else None))


def all_workers(
    *,
    node: str | None = None,
    topic: str | None = None,
    prefix: str | None = None,
    jobs: int | None = None,
) -> Call[ServerWorkerList]:
    """The nodes that work on any queue: what they have in hand, what they did, when they were last
    seen.

    Args:
        node: Only this one.
        topic: Only this queue.
        prefix: Only queues with this prefix.
        jobs: Jobs in hand that are listed of each node, 0 to 1000, those whose leases end soonest;
            10 when not given.
    """
    return call(LIST_ALL_WORKERS, query=given(node=node, topic=topic, prefix=prefix, jobs=jobs))
