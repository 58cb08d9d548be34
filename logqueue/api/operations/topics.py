"""Operations of topics and their records."""

from __future__ import annotations

from typing import Any

from logqueue import shapes
from logqueue.api.operations.row import (
    COPYING,
    PAGING,
    TEXT,
    Body,
    Operation,
    Parameter,
    flag,
)
from logqueue.core import commands as cmd
from logqueue.errors import (
    ConfigChanged,
    RouterCycle,
    TopicExistsIncompatible,
    TopicNotEmpty,
    TopicNotFound,
)
from logqueue.model.config import TopicOptions
from logqueue.model.scopes import Scope

TOPICS = "/v0/topics"
TOPIC = "/v0/topics/*"

CONFIG: dict[str, Any] = {
    "type": "queue",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": True,
    "durability": "fsync",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 5,
    "dead_letter": "transcode.failed",
    "leases_durable": False,
    "retry_backoff": {
        "kind": "exponential",
        "base_ms": 500,
        "step_ms": 0,
        "factor": 2.0,
        "max_ms": 300_000,
        "jitter": 0.0,
    },
    "on_exhausted": None,
    "on_expire": "drop",
    "claim_rate": None,
    "max_in_flight": 50,
    "paused": False,
    "archive": None,
}
COUNTERS = {
    "ready": 1,
    "in_flight": 0,
    "delayed": 0,
    "held": 0,
    "acked": 1,
    "rejected": 0,
    "expired": 0,
    "dropped": 0,
    "superseded": 0,
    "cancelled": 0,
    "dead_lettered": 0,
    "paused": False,
    "oldest_ready_ms": 72,
}

IF_VERSION = Parameter(
    "if_version",
    TEXT,
    "Change the config only if its present version, `config_version` of replies, is this one.",
)

OPERATIONS = (
    Operation(
        name="list_topics",
        method="GET",
        pattern=TOPICS,
        scope=Scope.READ,
        group="topics",
        summary="List topics",
        doc="list-topics",
        text="In pages, in ascending order of names. A key limited to prefixes sees only the "
        "names it may access.",
        query=(
            *PAGING,
            flag("touch", False, "Whether the call counts as a read for the priority."),
        ),
        reply=shapes.TopicPage,
        example={
            "topics": [
                {
                    "topic": "transcode",
                    "type": "queue",
                    "head_seq": 2,
                    "earliest_seq": 1,
                    "count": 1,
                    "bytes": 29,
                    "durable": True,
                    "effective_priority": 500,
                    "queue": COUNTERS,
                }
            ],
            "performance": {"server_total_ms": 0.14},
        },
    ),
    Operation(
        name="put_topic",
        method="PUT",
        pattern=TOPIC,
        scope=Scope.ADMIN,
        body_policy=Body.OPTIONAL,
        command=cmd.PutTopic,
        group="topics",
        summary="Create or configure a topic",
        doc="create-or-configure-a-topic",
        text="Replaces the whole config: a member left out is reset to its default. Only `paused` "
        "is kept: it applies when the topic is created; later use `pause` and `resume`. To "
        "declare a topic without changing it, use `ensure`. An empty body means `{}`.",
        query=(IF_VERSION,),
        body=TopicOptions,
        asks={
            "type": "queue",
            "durable": True,
            "max_deliveries": 5,
            "dead_letter": "transcode.failed",
            "retry_backoff": {"kind": "exponential", "base_ms": 500},
            "max_in_flight": 50,
        },
        reply=shapes.TopicPut,
        example={
            "topic": "transcode",
            "created": True,
            "config": CONFIG,
            "config_version": "5d8f0c41b6a2e973",
            "performance": {"server_total_ms": 1.65},
        },
        statuses=(200, 201),
        errors=(TopicExistsIncompatible, RouterCycle, ConfigChanged, *COPYING),
        creates=True,
    ),
    Operation(
        name="get_topic",
        method="GET",
        pattern=TOPIC,
        scope=Scope.READ,
        group="topics",
        summary="Get the state of a topic",
        doc="state-of-a-topic",
        text="Current counters. A read never creates the topic.",
        query=(flag("touch", True, "Whether to set `last_read_ts`."),),
        reply=shapes.TopicState,
        example={
            "topic": "transcode",
            "type": "queue",
            "head_seq": 2,
            "earliest_seq": 1,
            "next_seq": 3,
            "count": 1,
            "bytes": 29,
            "config": CONFIG,
            "config_version": "5d8f0c41b6a2e973",
            "effective_priority": 500,
            "last_write_ts": 1795211102560,
            "last_read_ts": 1795211102632,
            "log_id": "0f8d2a9c5b7e41d3a6c4e2f190b3d587-1",
            "queue": COUNTERS,
            "performance": {"server_total_ms": 0.13},
        },
        errors=(TopicNotFound,),
    ),
    Operation(
        name="get_topic_stats",
        method="GET",
        pattern=TOPIC + "/stats",
        scope=Scope.READ,
        group="topics",
        summary="Get the counters of a topic",
        text="The counters of the state without its config, cheap enough for one request per "
        "second. `queue` is present for queues only. Does not count as a read.",
        reply=shapes.TopicStats,
        example={
            "topic": "transcode",
            "type": "queue",
            "head_seq": 2,
            "earliest_seq": 1,
            "count": 1,
            "bytes": 29,
            "queue": COUNTERS,
            "performance": {"server_total_ms": 0.05},
        },
        errors=(TopicNotFound,),
    ),
    Operation(
        name="patch_topic",
        method="PATCH",
        pattern=TOPIC,
        scope=Scope.ADMIN,
        body_policy=Body.MERGE_PATCH,
        command=cmd.PatchTopic,
        group="topics",
        summary="Change part of a topic's config",
        doc="change-some-of-the-config",
        text="A JSON merge patch (RFC 7386): only the given members change, objects are merged, "
        "null resets a member to its default. The resulting config must be valid. `paused` cannot "
        "be changed here.",
        query=(IF_VERSION,),
        body=TopicOptions,
        asks={"max_in_flight": 50, "retry_backoff": {"kind": "exponential", "base_ms": 500}},
        reply=shapes.TopicPut,
        example={
            "topic": "transcode",
            "created": False,
            "config": CONFIG,
            "config_version": "5d8f0c41b6a2e973",
            "performance": {"server_total_ms": 1.12},
        },
        errors=(TopicNotFound, TopicExistsIncompatible, RouterCycle, ConfigChanged, *COPYING),
    ),
    Operation(
        name="ensure_topic",
        method="POST",
        pattern=TOPIC + "/ensure",
        scope=Scope.ADMIN,
        body_policy=Body.OPTIONAL,
        command=cmd.EnsureTopic,
        group="topics",
        summary="Create a topic if it is missing",
        doc="ensure-a-topic",
        text="An existing topic is not changed. `differs` lists the given members that have "
        "another value on the server; members not given, and `paused`, are not compared. An empty "
        "body means `{}`.",
        body=TopicOptions,
        asks={"type": "queue", "max_deliveries": 4},
        reply=shapes.TopicEnsured,
        example={
            "topic": "transcode",
            "created": False,
            "differs": {"max_deliveries": {"have": 5, "want": 4}},
            "config": CONFIG,
            "config_version": "5d8f0c41b6a2e973",
            "performance": {"server_total_ms": 0.12},
        },
        statuses=(200, 201),
        errors=(TopicExistsIncompatible, RouterCycle, *COPYING),
        creates=True,
    ),
    Operation(
        name="delete_topic",
        method="DELETE",
        pattern=TOPIC,
        scope=Scope.DELETE,
        command=cmd.DropTopic,
        group="topics",
        summary="Delete a topic",
        doc="delete-a-topic",
        text="Also deletes its records, keys, leases and routers. If the topic does not exist, "
        "`deleted` is false.",
        query=(flag("if_empty", False, "Refuse if there are live records."),),
        reply=shapes.TopicDropped,
        example={
            "topic": "transcode",
            "deleted": True,
            "routers_removed": ["audit"],
            "performance": {"server_total_ms": 0.83},
        },
        errors=(TopicNotEmpty,),
    ),
)
