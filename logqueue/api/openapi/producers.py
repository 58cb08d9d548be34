"""Rows of transactional appends."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.bodies import producers as producer_bodies
from logqueue.api.openapi.row import STORING, OperationRow
from logqueue.errors import (
    BatchTooLarge,
    EpochConflict,
    NotAQueue,
    NotFound,
    RecordTooLarge,
    TopicFull,
)

PRODUCER = "/v0/producers/*"
EPOCH = "/v0/producers/*/epochs/*"

ROWS = [
    OperationRow(
        method="POST",
        pattern=EPOCH + "/stage",
        name="stage_chunk",
        group="producers",
        summary="Stage a chunk of an epoch",
        text="Lays down records that nobody sees before the epoch is committed. The very same "
        "chunk again is `already`. Creates an absent topic. A key needs the topic within its "
        "prefixes.",
        body=producer_bodies.StageBody,
        asks={
            "topic": "sales",
            "partition": 0,
            "attempt": "task-0",
            "chunk": 0,
            "records": [{"data": {"eur": 12}}, {"data": {"eur": 7}, "tag": "web"}],
        },
        reply=shapes.Staged,
        example={
            "producer": "etl",
            "epoch": 7,
            "status": "staged",
            "staged_bytes": 61,
            "performance": {"server_total_ms": 0.91},
        },
        errors=(BatchTooLarge, RecordTooLarge, EpochConflict, NotAQueue, *STORING),
    ),
    OperationRow(
        method="POST",
        pattern=EPOCH + "/commit",
        name="commit_epoch",
        group="producers",
        summary="Commit an epoch",
        text="Appends everything that the named attempts have staged, in the order of partitions, "
        "all at once. A repeat is `already`, with the same `topics` for the last epoch. A key "
        "needs all topics that the epoch was staged for within its prefixes.",
        body=producer_bodies.CommitBody,
        asks={"parts": [{"partition": 0, "attempt": "task-0", "chunks": 1, "rows": 2}]},
        reply=shapes.Committed,
        example={
            "producer": "etl",
            "epoch": 7,
            "status": "committed",
            "topics": [{"topic": "sales", "first_seq": 1, "last_seq": 2, "count": 2}],
            "performance": {"server_total_ms": 1.37},
        },
        errors=(BatchTooLarge, RecordTooLarge, EpochConflict, TopicFull, *STORING),
    ),
    OperationRow(
        method="GET",
        pattern=PRODUCER,
        name="get_producer",
        group="producers",
        summary="Where a producer stands",
        text="Its last committed epoch, and what waits for a commit.",
        reply=shapes.Producer,
        example={
            "producer": "etl",
            "last_epoch": 7,
            "staged": {"epochs": [], "bytes": 0},
            "performance": {"server_total_ms": 0.1},
        },
        errors=(NotFound,),
    ),
]
