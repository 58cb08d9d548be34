"""Operations on records."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.bodies import reads as read_bodies
from logqueue.api.bodies import records as record_bodies
from logqueue.api.bodies.large import read_packed_append
from logqueue.api.operations.row import (
    COPYING,
    U64,
    Body,
    Operation,
    Parameter,
    flag,
)
from logqueue.core import commands as cmd
from logqueue.errors import (
    BatchClosed,
    BatchNotFound,
    BatchTooLarge,
    KeyConflict,
    NotAQueue,
    RouterCycle,
    TopicNotFound,
)
from logqueue.model.scopes import Scope

TOPIC = "/v0/topics/*"


OPERATIONS = (
    Operation(
        name="write_records",
        method="POST",
        pattern=TOPIC,
        scope=Scope.WRITE,
        body_policy=Body.REQUIRED,
        command=cmd.Append,
        in_steps=read_packed_append,
        pipelined=True,
        group="records",
        summary="Write records",
        doc="write-records",
        text="All or nothing; the records get consecutive seqs. Creates a missing topic unless "
        "`create` is false. The header `Idempotency-Key` can replace `idempotency_key`. Delays, "
        "keys and `max_deliveries` are for queues only. A queue holds at most one waiting job per "
        "key; if any record has a key, `results` reports what happened to each record.",
        query=(flag("return_seqs", True, "Whether the reply has `seqs`."),),
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
            BatchNotFound,
            BatchClosed,
        ),
        creates=True,
    ),
    Operation(
        name="read_records",
        method="POST",
        pattern=TOPIC + "/diff",
        scope=Scope.READ,
        body_policy=Body.OPTIONAL,
        group="records",
        summary="Read records",
        doc="read-records",
        text="Records after a cursor, with a tombstone in place of lost ones; with `wait_ms` the "
        "read waits for new records. Changes nothing, in queues either. An empty body means `{}`.",
        body=read_bodies.DiffBody,
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
    Operation(
        name="delete_records",
        method="POST",
        pattern=TOPIC + "/delete",
        scope=Scope.DELETE,
        body_policy=Body.REQUIRED,
        command=cmd.DeleteRecords,
        group="records",
        summary="Delete records",
        doc="delete-records",
        text="By seq, by tag, or by both (then both must match). Permanent; readers are not "
        "notified.",
        body=read_bodies.DeleteBody,
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
        errors=(TopicNotFound, *COPYING),
    ),
    Operation(
        name="seq_at",
        method="GET",
        pattern=TOPIC + "/seq_at",
        scope=Scope.READ,
        group="records",
        summary="Find the first record since a time",
        doc="seq-of-a-time",
        text="Among the records that the topic still has. If the server's clock was set back, "
        "this is the first match in seq order; later records may then be older.",
        query=(
            Parameter("ts", U64, "ms since the Unix epoch.", required=True, example=1795211102560),
        ),
        reply=shapes.SeqAt,
        example={
            "topic": "transcode",
            "log_id": "0f8d2a9c5b7e41d3a6c4e2f190b3d587-1",
            "ts": 1795211102560,
            "seq": 1,
            "previous_seq": 0,
            "earliest_seq": 1,
            "head_seq": 2,
            "performance": {"server_total_ms": 0.11},
        },
        errors=(TopicNotFound,),
    ),
)
