"""Rows of topics and their records."""

from __future__ import annotations

from typing import Any

from logqueue import shapes
from logqueue.api.bodies import queues as queue_bodies
from logqueue.api.bodies import records as record_bodies
from logqueue.api.openapi.row import COPYING, PAGING, STORING, OperationRow, flag
from logqueue.errors import (
    BatchTooLarge,
    KeyConflict,
    NotAQueue,
    RouterCycle,
    TopicExistsIncompatible,
    TopicNotEmpty,
    TopicNotFound,
)
from logqueue.model.config import TopicConfig

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

ROWS = [
    OperationRow(
        method="GET",
        pattern=TOPICS,
        name="list_topics",
        group="topics",
        summary="List topics",
        text="Names ascending, in pages; a key with prefixes sees only what it may touch.",
        query=(*PAGING, flag("touch", False, "Count as a read for the priority.")),
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
    OperationRow(
        method="PUT",
        pattern=TOPIC,
        name="put_topic",
        group="topics",
        summary="Create or configure a topic",
        text="The whole config is replaced: a member left out goes back to its default. Only "
        "`paused` is kept: it counts when the topic is created, later `pause` and `resume` change "
        "it. To declare a topic without changing it, see `ensure`. An empty body stands for `{}`.",
        body=TopicConfig,
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
            "performance": {"server_total_ms": 1.65},
        },
        statuses=(200, 201),
        errors=(TopicExistsIncompatible, RouterCycle, *COPYING, *STORING),
        creates=True,
    ),
    OperationRow(
        method="PATCH",
        pattern=TOPIC,
        name="patch_topic",
        group="topics",
        summary="Change some of a topic's config",
        text="A JSON merge patch (RFC 7386): only the named members change, objects are merged, "
        "null sets a member back to its default. What comes of it must be a valid config. "
        "`paused` is not changed.",
        body=TopicConfig,
        asks={"max_in_flight": 50, "retry_backoff": {"kind": "exponential", "base_ms": 500}},
        reply=shapes.TopicPut,
        example={
            "topic": "transcode",
            "created": False,
            "config": CONFIG,
            "performance": {"server_total_ms": 1.12},
        },
        errors=(TopicNotFound, TopicExistsIncompatible, RouterCycle, *COPYING, *STORING),
    ),
    OperationRow(
        method="POST",
        pattern=TOPIC + "/ensure",
        name="ensure_topic",
        group="topics",
        summary="Create a topic if it is missing",
        text="An existing topic is not changed. `differs` reports the members that were sent and "
        "have another value now; members that were not sent, and `paused`, are not compared. "
        "An empty body stands for `{}`.",
        body=TopicConfig,
        asks={"type": "queue", "max_deliveries": 4},
        reply=shapes.TopicEnsured,
        example={
            "topic": "transcode",
            "created": False,
            "differs": {"max_deliveries": {"have": 5, "want": 4}},
            "config": CONFIG,
            "performance": {"server_total_ms": 0.12},
        },
        statuses=(200, 201),
        errors=(TopicExistsIncompatible, RouterCycle, *COPYING, *STORING),
        creates=True,
    ),
    *(
        OperationRow(
            method="POST",
            pattern=f"{TOPIC}/{verb}",
            name=f"{verb}_queue",
            group="queues",
            summary=summary,
            text=text,
            reply=shapes.Paused,
            example={
                "topic": "transcode",
                "paused": verb == "pause",
                "performance": {"server_total_ms": 0.91},
            },
            errors=(TopicNotFound, NotAQueue, *STORING),
        )
        for verb, summary, text in (
            (
                "pause",
                "Hand out nothing",
                "To claims and work streams alike, over restarts too. Writes, acks and everything "
                "else go on, leases run out, delays pass.",
            ),
            ("resume", "Hand out jobs again", "Those who wait for jobs get them at once."),
        )
    ),
    OperationRow(
        method="GET",
        pattern=TOPIC,
        name="get_topic",
        group="topics",
        summary="State of a topic",
        text="Counters as of now. Looking never creates.",
        query=(flag("touch", True, "Set `last_read_ts`."),),
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
            "effective_priority": 500,
            "last_write_ts": 1795211102560,
            "last_read_ts": 1795211102632,
            "log_id": "0f8d2a9c5b7e41d3a6c4e2f190b3d587-1",
            "queue": COUNTERS,
            "performance": {"server_total_ms": 0.13},
        },
        errors=(TopicNotFound,),
    ),
    OperationRow(
        method="DELETE",
        pattern=TOPIC,
        name="delete_topic",
        group="topics",
        summary="Delete a topic",
        text="With its records, keys, leases and routers. An absent topic is `deleted: false`.",
        query=(flag("if_empty", False, "Refuse when there are live records."),),
        reply=shapes.TopicDropped,
        example={
            "topic": "transcode",
            "deleted": True,
            "routers_removed": ["audit"],
            "performance": {"server_total_ms": 0.83},
        },
        errors=(TopicNotEmpty, *STORING),
    ),
    OperationRow(
        method="POST",
        pattern=TOPIC,
        name="write_records",
        group="records",
        summary="Write records",
        text="All or nothing; the records get consecutive seqs. Creates an absent topic unless "
        "told otherwise. The header `Idempotency-Key` stands for `idempotency_key`. Delays, keys "
        "and `max_deliveries` are for queues only. A queue holds at most one waiting job per key; "
        "where a record has a key, `results` tells what became of each.",
        query=(flag("return_seqs", True, "Have `seqs` in the reply."),),
        body=record_bodies.JobsBody,
        asks={
            "records": [
                {"data": {"src": "a.mov"}, "tag": "hd", "meta": {"trace": "z9"}},
                {"data": {"src": "b.mov"}},
            ],
            "idempotency_key": "upload-17",
        },
        reply=shapes.Appended,
        example={
            "topic": "transcode",
            "first_seq": 1,
            "last_seq": 2,
            "seqs": [1, 2],
            "head_seq": 2,
            "count": 2,
            "created": False,
            "deduped": False,
            "performance": {"server_total_ms": 1.28, "wal_append_ms": 0.21, "fsync_ms": 1.0},
        },
        statuses=(200, 201),
        errors=(
            BatchTooLarge,
            *COPYING,
            TopicNotFound,
            NotAQueue,
            RouterCycle,
            KeyConflict,
            *STORING,
        ),
        creates=True,
    ),
    OperationRow(
        method="POST",
        pattern=TOPIC + "/diff",
        name="read_records",
        group="records",
        summary="Read records",
        text="Records behind a cursor, with a tombstone for those that were lost; with `wait_ms` "
        "it waits for news. Changes nothing, also not in queues. An empty body stands for `{}`.",
        body=queue_bodies.DiffBody,
        asks={"from_seq": 0, "include_tags": True},
        reply=shapes.Page,
        example={
            "topic": "transcode",
            "records": [
                {
                    "$seq": 1,
                    "$ts": 1795211102560,
                    "$tag": "hd",
                    "data": {"src": "a.mov"},
                    "meta": {"trace": "z9"},
                }
            ],
            "next_from_seq": 2,
            "head_seq": 2,
            "earliest_seq": 1,
            "caught_up": True,
            "tombstone": None,
            "lag": 0,
            "performance": {"server_total_ms": 0.39, "records_scanned": 1},
        },
        errors=(TopicNotFound,),
    ),
    OperationRow(
        method="POST",
        pattern=TOPIC + "/delete",
        name="delete_records",
        group="records",
        summary="Delete records",
        text="By seq, by tag, or by both (then both must hold). Permanent and silent.",
        body=queue_bodies.DeleteBody,
        asks={"match": "hd"},
        only={
            "anyOf": [
                {"required": ["before_seq"], "properties": {"before_seq": {"type": "integer"}}},
                {"required": ["match"], "properties": {"match": {"type": ["string", "array"]}}},
            ]
        },
        reply=shapes.RecordsDeleted,
        example={
            "topic": "transcode",
            "deleted": 1,
            "earliest_seq": 3,
            "head_seq": 2,
            "count": 0,
            "bytes": 0,
            "performance": {"server_total_ms": 0.99},
        },
        errors=(TopicNotFound, *COPYING, *STORING),
    ),
]
