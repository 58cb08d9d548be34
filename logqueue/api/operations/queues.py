"""Operations of the life of a lease."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.bodies import queues as queue_bodies
from logqueue.api.operations.row import (
    COPYING,
    TEXT,
    U32,
    U64,
    Body,
    Kind,
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
    LogqueueError,
    NotAcceptable,
    NotAQueue,
    Throttled,
    TopicNotFound,
)
from logqueue.model.scopes import Scope

QUEUE = "/v0/topics/*"
LEASE = "lease_1a1faeb833a0000"
SETTLING: tuple[type[LogqueueError], ...] = (BatchTooLarge, TopicNotFound, NotAQueue)

OPERATIONS = (
    Operation(
        name="claim_jobs",
        method="POST",
        pattern=QUEUE + "/claim",
        scope=Scope.READ | Scope.WRITE,
        body_policy=Body.NOT_EMPTY,
        command=cmd.ClaimJobs,
        pipelined=True,
        group="queues",
        summary="Lease jobs",
        doc="claim",
        text="Returned jobs first, then jobs never delivered. Without any job the reply is still "
        "200, at once or after `wait_ms`, and gives a `reason`, and `retry_after_ms` if waiting "
        "alone may help.",
        body=queue_bodies.ClaimBody,
        asks={"node": "api-fra-1", "max": 16, "lease_ms": 30_000, "wait_ms": 20_000},
        reply=shapes.Claimed,
        example={
            "topic": "transcode",
            "claimed": [
                {
                    "$seq": 1,
                    "lease_id": LEASE,
                    "deadline": 1795211132582,
                    "$ts": 1795211102560,
                    "$tag": "hd",
                    "deliveries": 1,
                    "data": {"src": "a.mov"},
                    "meta": {"trace": "z9"},
                }
            ],
            "count": 1,
            "ready": 1,
            "performance": {"server_total_ms": 0.36, "throttle_wait_ms": 0.0},
        },
        errors=(TopicNotFound, NotAQueue),
    ),
    Operation(
        name="ack_jobs",
        method="POST",
        pattern=QUEUE + "/ack",
        scope=Scope.WRITE,
        body_policy=Body.REQUIRED,
        command=cmd.AckJobs,
        pipelined=True,
        group="queues",
        summary="Complete jobs",
        doc="ack",
        text="Deletes the jobs, all or none. Seqs that the caller holds no lease for are listed "
        "in `skipped`; that is not an error. With `append`, records are written in the same "
        "transaction: if any seq would be skipped or a write is refused, nothing is acked and "
        "nothing is written. `results` has one JSON value for each seq, null for none; a queue "
        "with the config `results` keeps them.",
        body=queue_bodies.AckBody,
        asks={
            "node": "api-fra-1",
            "seqs": [2, 7],
            "lease_ids": ["lease_1a1faeb833a0001", ""],
            "results": [{"frames": 240}, None],
        },
        reply=shapes.Acked,
        example={
            "topic": "transcode",
            "acked": 1,
            "skipped": [7],
            "ready": 0,
            "in_flight": 0,
            "performance": {"server_total_ms": 0.80, "fsync_ms": 0.59},
        },
        errors=(*SETTLING, *COPYING, KeyConflict, BatchNotFound, BatchClosed),
    ),
    Operation(
        name="nack_jobs",
        method="POST",
        pattern=QUEUE + "/nack",
        scope=Scope.WRITE,
        body_policy=Body.REQUIRED,
        command=cmd.NackJobs,
        pipelined=True,
        group="queues",
        summary="Return jobs to the queue",
        doc="nack",
        text="The jobs can be claimed again at once, ahead of new ones, or after `delay_ms`; by "
        "default after the queue's `retry_backoff`. `error` is delivered with the job next time, "
        "as `last_error`. With `count` false the delivery is not counted, for jobs that were "
        "never started.",
        body=queue_bodies.NackBody,
        asks={
            "node": "api-fra-1",
            "seqs": [1],
            "delay_ms": 5000,
            "error": "upstream answered 502",
        },
        reply=shapes.Nacked,
        example={
            "topic": "transcode",
            "nacked": 1,
            "skipped": [],
            "ready": 0,
            "in_flight": 1,
            "performance": {"server_total_ms": 0.22},
        },
        errors=SETTLING,
    ),
    Operation(
        name="extend_leases",
        method="POST",
        pattern=QUEUE + "/extend",
        scope=Scope.WRITE,
        body_policy=Body.REQUIRED,
        command=cmd.ExtendLeases,
        pipelined=True,
        group="queues",
        summary="Extend leases",
        doc="extend",
        text="Sets the deadline to now + `lease_ms`, which may be earlier than the present one. "
        "`progress` and `note` say how far the jobs are; they are shown with the jobs until the "
        "leases end.",
        body=queue_bodies.ExtendBody,
        asks={
            "node": "api-fra-1",
            "seqs": [1, 9],
            "lease_ms": 60_000,
            "progress": 0.5,
            "note": "half",
        },
        reply=shapes.Extended,
        example={
            "topic": "transcode",
            "extended": 1,
            "skipped": [9],
            "deadlines": {"1": 1795211162599},
            "performance": {"server_total_ms": 0.20},
        },
        errors=SETTLING,
    ),
    Operation(
        name="reject_jobs",
        method="POST",
        pattern=QUEUE + "/reject",
        scope=Scope.WRITE,
        body_policy=Body.REQUIRED,
        command=cmd.RejectJobs,
        pipelined=True,
        group="queues",
        summary="Fail jobs permanently",
        doc="reject",
        text="The jobs are moved to the `dead_letter` topic if the queue has one, held if "
        "`on_exhausted` is `hold`, and removed otherwise.",
        body=queue_bodies.RejectBody,
        asks={"node": "api-fra-1", "seqs": [1], "error": "no such user"},
        reply=shapes.Rejected,
        example={
            "topic": "transcode",
            "rejected": 1,
            "skipped": [],
            "ready": 0,
            "in_flight": 1,
            "performance": {"server_total_ms": 0.24},
        },
        errors=(*SETTLING, *COPYING),
    ),
    Operation(
        name="work",
        method="GET",
        pattern=QUEUE + "/work",
        scope=Scope.READ | Scope.WRITE,
        command=cmd.ClaimJobs,
        kind=Kind.STREAM,
        group="queues",
        summary="Receive jobs as a stream",
        doc="work",
        text="Server-sent events. At most `max` jobs are in flight over the stream; more follow "
        "as slots become free. Ack, nack, reject and extend are POST requests with the same "
        "`node`. The leases end with the connection. A comment `hb` follows each 15 s of silence.",
        query=(
            Parameter(
                "node",
                {"type": "string", "minLength": 1, "maxLength": 128},
                "Name of the lease holder.",
                required=True,
                example="api-fra-1",
            ),
            Parameter(
                "max",
                {**U32, "default": 1},
                "Maximum number of jobs in flight over this stream; 1 to 1000, else clamped.",
                example=4,
            ),
            Parameter("lease_ms", U64, "Lease time of each job; default: the queue's."),
            flag("starts", False, "The client starts each job as soon as it has received it."),
            Parameter(
                "heartbeat_ms",
                {**U64, "default": 15_000},
                "Silence after which a comment comes; 1000 to 60 000, else clamped.",
            ),
        ),
        content={
            "text/event-stream": {
                "schema": TEXT,
                "example": "retry: 2000\n\n: hb\n\nid: 1\nevent: job\n"
                'data: {"topic":"transcode","$seq":1,"lease_id":"' + LEASE + '",'
                '"deadline":1795211270577,"$ts":1795211239066,"deliveries":2,'
                '"data":{"src":"a.mov"}}\n\n',
            }
        },
        frames={"job": shapes.JobFrame, "error": shapes.StreamError},
        errors=(NotAcceptable, TopicNotFound, NotAQueue, Throttled),
    ),
    Operation(
        name="pause_queue",
        method="POST",
        pattern=QUEUE + "/pause",
        scope=Scope.ADMIN,
        command=cmd.SetPaused,
        group="queues",
        summary="Pause a queue",
        doc="pause-and-resume",
        text="Claims and work streams get no jobs, also after a restart. Writes, acks and all "
        "other calls continue; leases expire and delays pass as usual.",
        reply=shapes.Paused,
        example={"topic": "transcode", "paused": True, "performance": {"server_total_ms": 0.91}},
        errors=(TopicNotFound, NotAQueue),
    ),
    Operation(
        name="resume_queue",
        method="POST",
        pattern=QUEUE + "/resume",
        scope=Scope.ADMIN,
        command=cmd.SetPaused,
        group="queues",
        summary="Resume a queue",
        doc="pause-and-resume",
        text="Waiting claims and work streams get jobs at once.",
        reply=shapes.Paused,
        example={"topic": "transcode", "paused": False, "performance": {"server_total_ms": 0.91}},
        errors=(TopicNotFound, NotAQueue),
    ),
)
