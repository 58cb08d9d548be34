"""Operations of transactional appends."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.bodies import producers as producer_bodies
from logqueue.api.bodies.large import read_packed_stage
from logqueue.api.operations.row import Body, Operation
from logqueue.core import commands as cmd
from logqueue.errors import (
    BatchTooLarge,
    EpochConflict,
    NotAQueue,
    NotFound,
    RecordTooLarge,
    TopicFull,
)
from logqueue.model.scopes import Scope

PRODUCER = "/v0/producers/*"
EPOCH = "/v0/producers/*/epochs/*"

OPERATIONS = (
    Operation(
        name="get_producer",
        method="GET",
        pattern=PRODUCER,
        scope=Scope.READ,
        group="producers",
        summary="Get the state of a producer",
        doc="transactional-appends",
        text="Its last committed epoch, and the staged chunks that await a commit.",
        reply=shapes.Producer,
        example={
            "producer": "etl",
            "last_epoch": 7,
            "staged": {"epochs": [], "bytes": 0},
            "performance": {"server_total_ms": 0.1},
        },
        errors=(NotFound,),
    ),
    Operation(
        name="stage_chunk",
        method="POST",
        pattern=EPOCH + "/stage",
        scope=Scope.WRITE,
        body_policy=Body.REQUIRED,
        command=cmd.StageChunk,
        in_steps=read_packed_stage,
        group="producers",
        summary="Stage a chunk of an epoch",
        doc="stage",
        text="Stages records that become visible when the epoch is committed. Repeating the same "
        "chunk returns `already`. Creates a missing topic. The topic must be within the prefixes "
        "of the key.",
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
        errors=(BatchTooLarge, RecordTooLarge, EpochConflict, NotAQueue),
    ),
    Operation(
        name="commit_epoch",
        method="POST",
        pattern=EPOCH + "/commit",
        scope=Scope.WRITE,
        body_policy=Body.REQUIRED,
        command=cmd.CommitEpoch,
        group="producers",
        summary="Commit an epoch",
        doc="commit",
        text="Appends everything that the given attempts have staged, in order of partitions, all "
        "at once. A repeat returns `already`, with the same `topics` for the last epoch. All "
        "topics of the epoch must be within the prefixes of the key.",
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
        errors=(BatchTooLarge, RecordTooLarge, EpochConflict, TopicFull),
    ),
    Operation(
        name="abort_epoch",
        method="POST",
        pattern=EPOCH + "/abort",
        scope=Scope.WRITE,
        command=cmd.AbortEpoch,
        group="producers",
        summary="Abort an epoch",
        doc="abort",
        text="Discards everything that is staged for the epoch and earlier ones, so that its room "
        "is free at once. An epoch that was committed stays, and the reply says `committed`. All "
        "topics that were staged for must be within the prefixes of the key.",
        reply=shapes.Aborted,
        example={
            "producer": "etl",
            "epoch": 8,
            "status": "aborted",
            "staged_bytes": 0,
            "performance": {"server_total_ms": 0.31},
        },
        errors=(EpochConflict,),
    ),
)
