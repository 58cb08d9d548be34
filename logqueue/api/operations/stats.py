"""Operations for people and tools that look: the live feed, history."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.operations.row import TEXT, Kind, Operation, Parameter
from logqueue.api.operations.topics import TOPIC
from logqueue.errors import NotAcceptable, TopicNotFound
from logqueue.model.scopes import Scope

WORK = {
    "in_flight": 1,
    "streams": 1,
    "waiting": 0,
    "claimed": 12,
    "acked": 9,
    "nacked": 1,
    "rejected": 0,
    "expired": 0,
    "acked_per_s": 0.4,
}

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
        "in which something changed, with the members that did. A comment `hb` follows each "
        "silence of 15 seconds. Limited to the prefixes of the key. A client that reads too slowly "
        "gets a new `full` event instead of the changes that it has missed.",
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
    Operation(
        name="list_all_workers",
        method="GET",
        pattern="/v0/workers",
        scope=Scope.READ,
        group="jobs",
        summary="List the workers of all queues",
        doc="workers",
        text="Nodes seen since the server started or holding leases, most recent first, with the "
        "jobs in hand whose leases end soonest. Limited to queues within the prefixes of the key.",
        query=(
            Parameter("node", TEXT, "Only this node."),
            Parameter("topic", TEXT, "Only this queue."),
            Parameter("prefix", TEXT, "Only queues with this prefix."),
            Parameter(
                "jobs",
                {"type": "integer", "minimum": 0, "maximum": 1000, "default": 10},
                "Maximum number of jobs in hand for each node; 20,000 of all nodes together.",
            ),
        ),
        reply=shapes.ServerWorkerList,
        example={
            "workers": [
                {
                    "node": "api-fra-1",
                    "state": "working",
                    "last_seen_ts": 1795211102560,
                    **WORK,
                    "queues": [
                        {"topic": "transcode", "last_seen_ts": 1795211102560, **WORK},
                    ],
                    "jobs": [
                        {
                            "topic": "transcode",
                            "$seq": 1,
                            "age_ms": 5120,
                            "deadline": 1795211132560,
                            "lease_left_ms": 29900,
                            "deliveries": 1,
                        }
                    ],
                }
            ],
            "count": 1,
            "performance": {"server_total_ms": 0.31},
        },
    ),
)
