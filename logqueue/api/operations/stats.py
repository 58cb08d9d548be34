"""Operations for people and tools that look: the live feed, history."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.operations.row import TEXT, Kind, Operation, Parameter
from logqueue.api.operations.topics import TOPIC
from logqueue.errors import NotAcceptable, TopicNotFound
from logqueue.model.scopes import Scope

OPERATIONS = (
    Operation(
        name="stats_stream",
        method="GET",
        pattern="/v0/stats/stream",
        kind=Kind.EVENTS,
        scope=Scope.READ,
        group="operations",
        summary="Follow the statistics of all topics",
        doc="the-live-feed",
        text="Server-sent events: a `full` one with all there is, then a `change` in each second "
        "in which something changed, with the members that did. A comment `hb` comes every 15 "
        "seconds. Limited to the prefixes of the key. A client that reads too slowly gets a new "
        "`full` event instead of the changes that it has missed.",
        content={
            "text/event-stream": {
                "schema": TEXT,
                "example": "retry: 2000\n\nevent: change\nid: 2\n"
                'data: {"at":1795211102560,"server":{"records":3},'
                '"topics":{"transcode":{"head_seq":3,"count":2,"ready":1}},"gone":[]}\n\n',
            }
        },
        frames={
            "full": shapes.StatsFull,
            "change": shapes.StatsChange,
            "error": shapes.StreamError,
        },
        errors=(NotAcceptable,),
    ),
    Operation(
        name="topic_history",
        method="GET",
        pattern=TOPIC + "/history",
        scope=Scope.READ,
        group="topics",
        summary="Get the history of a topic",
        doc="history",
        text="What has happened on the topic in each of the last 600 seconds, or 1440 minutes, "
        "while this server has run. Does not count as a read.",
        query=(
            Parameter(
                "window",
                {"type": "string", "enum": ["10m", "24h"], "default": "10m"},
                "How far back.",
            ),
        ),
        reply=shapes.TopicHistory,
        example={
            "topic": "transcode",
            "step_ms": 1000,
            "from": 1795211040000,
            "series": {"appended": [0, 3, 0], "ready": [0, 3, 3]},
            "performance": {"server_total_ms": 0.21},
        },
        errors=(TopicNotFound,),
    ),
)
