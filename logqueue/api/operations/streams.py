"""Operations of what is pushed to readers: watch sessions and the WebSocket."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.bodies import feeds as feed_bodies
from logqueue.api.operations.row import TEXT, Body, KeyPolicy, Kind, Operation, flag
from logqueue.errors import NotAcceptable, NotFound, Throttled, TopicNotFound
from logqueue.model.scopes import Scope

WATCH = "/v0/watch"
WID = "wid_2q0dEXAMPLEexample0xyz"

OPERATIONS = (
    Operation(
        name="create_watch",
        method="POST",
        pattern=WATCH,
        scope=Scope.READ,
        body_policy=Body.REQUIRED,
        group="streams",
        summary="Create a watch session",
        doc="watch",
        text="Sets which topics to follow, and from which record on; nothing is read yet. A "
        "session without an open stream expires after `session_ttl_ms`.",
        query=(flag("lenient", False, "Ignore topics that do not exist."),),
        body=feed_bodies.WatchBody,
        asks={"topics": {"transcode": {"from_seq": 0}}, "include_tags": True},
        reply=shapes.WatchSession,
        example={
            "wid": WID,
            "stream_url": f"/v0/watch/{WID}",
            "session_ttl_ms": 300_000,
            "topics": {"transcode": {"from_seq": 0, "head_seq": 2, "earliest_seq": 1}},
            "performance": {"server_total_ms": 0.17},
        },
        errors=(TopicNotFound, Throttled),
    ),
    Operation(
        name="watch",
        method="GET",
        pattern=WATCH + "/*",
        kind=Kind.STREAM,
        key=KeyPolicy.HANDLER,
        access="the key that created it",
        group="streams",
        summary="Follow topics",
        doc="the-stream",
        text="Server-sent events of a session; requires the key that created it. The header "
        "`Last-Event-ID` with the id of a frame resumes right after that frame. A comment `hb` "
        "follows each silence of `heartbeat_ms`. The stream ends when all its topics are deleted.",
        content={
            "text/event-stream": {
                "schema": TEXT,
                "example": "retry: 2000\n\nid: eyJ0cmFuc2NvZGUiOjF9\nevent: record\n"
                'data: {"topic":"transcode","records":[{"$seq":1,"$ts":1795211102560,'
                '"data":{"src":"a.mov"}}],"from_seq":0,"to_seq":1,"head_seq":1}\n\n'
                "id: eyJ0cmFuc2NvZGUiOjF9\nevent: caught-up\n"
                'data: {"topic":"transcode","head_seq":1}\n\n',
            }
        },
        frames={
            "record": shapes.Records,
            "tombstone": shapes.Gap,
            "caught-up": shapes.CaughtUp,
            "topic-deleted": shapes.TopicDeleted,
            "error": shapes.StreamError,
        },
        errors=(NotAcceptable, NotFound, Throttled),
    ),
    Operation(
        name="websocket",
        method="GET",
        pattern="/v0/ws",
        kind=Kind.SOCKET,
        access="of each message",
        group="streams",
        summary="Follow and write over a WebSocket",
        doc="websocket",
        text="Requires an upgrade to WebSocket. JSON text messages, one command each, answered in "
        "order; `request_id` may be any JSON value and is returned in the reply. Each message is "
        "checked for its own scope. An error does not close the socket.",
        extra={
            "x-websocket": {
                "client": {
                    "subscribe": "Follow `topic` and/or `topics`, from `from_seq` or the `tail`. "
                    "Scope read.",
                    "unsubscribe": "Follow them no longer.",
                    "publish": "Write `records` to `topic`, with the members of JobsBody. "
                    "Scope write; admin too where `config` is given.",
                    "ping": "Ask for a `pong`.",
                },
                "server": {
                    "subscribed": "`topics`, with where each begins.",
                    "unsubscribed": "`topics`, as asked.",
                    "ack": "The members of Appended.",
                    "pong": "The reply to a `ping`.",
                    "record": "The members of Records.",
                    "tombstone": "The members of Gap.",
                    "caught_up": "The members of CaughtUp.",
                    "topic_deleted": "The members of TopicDeleted.",
                    "error": "`code` and `message`.",
                },
            }
        },
        statuses=(101,),
        errors=(Throttled,),
    ),
)
