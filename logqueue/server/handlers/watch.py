"""Handlers of the watch routes: create a session, open its stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logqueue.api.bodies import feeds as feed_bodies
from logqueue.api.bodies.feeds import StartBody
from logqueue.api.record_texts import shown
from logqueue.core.topic import Topic
from logqueue.errors import Forbidden
from logqueue.model import limits
from logqueue.server.auth import Key
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.subscribers import ReadOptions
from logqueue.server.engine.watch_sessions import ReaderSession
from logqueue.server.handlers.event_stream import EventStream
from logqueue.server.handlers.members import show_members
from logqueue.server.http.byte_stream import ByteStream
from logqueue.server.http.requests import (
    Begin,
    HttpRequest,
    PendingReply,
    require_event_stream,
)
from logqueue.server.http.routing import serves
from logqueue.server.service import Service


class WatchRoutes:
    """The watch half of the API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("create_watch")
    def create(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/watch`: make a session; nothing is read yet."""
        dispatcher = self._service.require_serving()
        engine = dispatcher.engine
        body = feed_bodies.read_watch_body(request.body, request.ignore)
        require_topics_allowed(request.key, body.topics)
        sessions = self._service.watch_sessions
        sessions.forget_expired()
        topics = find_topics(engine, body.topics, lenient=request.flag("lenient", False))
        places = {name: starting_place(topics[name], body.topics[name]) for name in topics}
        floor_ms = self._service.settings.test_min_heartbeat_ms or limits.HEARTBEAT_MS_MIN
        heartbeat_ms = min(max(body.heartbeat_ms, floor_ms), limits.HEARTBEAT_MS_MAX)
        session = ReaderSession(
            request.key,
            {name: place["from_seq"] for name, place in places.items()},
            read_options(body),
            heartbeat_ms / 1000,
        )
        sessions.add(session)
        reply: dict[str, Any] = {
            "wid": session.wid,
            "stream_url": f"/v0/watch/{session.wid}",
            "session_ttl_ms": limits.WATCH_SESSION_TTL_MS,
            "topics": places,
        }
        written, durable = marks_of(engine, topics)
        return dispatcher.hold(reply, written, durable, show_members, request)

    @serves("watch")
    def open(self, request: HttpRequest) -> Begin:
        """`GET /v0/watch/:wid`: check a request for a session's stream.

        Raises:
            LogqueueError: Refused.
        """
        dispatcher = self._service.require_serving()
        require_event_stream(request)
        sessions = self._service.watch_sessions
        session = sessions.find(request.name)
        session.require_key(request.key)
        last_event_id = request.header(b"last-event-id")

        def begin(body: ByteStream) -> None:
            if last_event_id is not None:
                session.rewind(last_event_id.strip())
            EventStream(session, sessions, dispatcher, body)

        return begin


def require_topics_allowed(key: Key | None, names: Mapping[str, object]) -> None:
    """Check a key against all topics of one request.

    Raises:
        Forbidden: One is outside the key's prefixes.
    """
    for name in names:
        if key is not None and not key.allows(name):
            raise Forbidden("this key may not access names outside its prefixes", {"topic": name})


def find_topics(engine: Engine, names: Mapping[str, object], *, lenient: bool) -> dict[str, Topic]:
    """The topics to follow, as of now.

    Raises:
        TopicNotFound: One is absent; when lenient, it is left out instead.
    """
    known = engine.state.topics
    return {name: engine.topic_now(name) for name in names if not lenient or name in known}


def starting_place(topic: Topic, start: StartBody) -> dict[str, int]:
    """Where a reader begins on a topic, as replies show it."""
    return {
        "from_seq": topic.head if start.tail else start.from_seq,
        "head_seq": topic.head,
        "earliest_seq": topic.earliest_seq,
    }


def marks_of(engine: Engine, topics: Mapping[str, Topic]) -> tuple[int, int]:
    """Positions of the jobs log that a reply about these topics, and absent ones, waits for."""
    written = max((topic.mark_written for topic in topics.values()), default=0)
    durable = max((topic.mark_durable for topic in topics.values()), default=0)
    return written, max(durable, engine.control_mark)


def read_options(body: feed_bodies.WatchBody | feed_bodies.Subscribe) -> ReadOptions:
    """How a session, or a subscription, wants its topics, within bounds."""
    return ReadOptions(
        min(body.limit or limits.DIFF_RECORDS_DEFAULT, limits.DIFF_RECORDS_MAX),
        min(body.max_batch_bytes or limits.DIFF_BYTES_DEFAULT, limits.DIFF_BYTES_MAX),
        feed_bodies.node_filter(body.node),
        shown(tags=body.include_tags, meta=body.include_meta, data=body.include_data),
    )
