"""Operations about dead letters, and the edit of one job."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.bodies import dead_letters as bodies
from logqueue.api.operations.background import EXAMPLE
from logqueue.api.operations.row import COPYING, TEXT, U32, Body, Operation, Parameter
from logqueue.core import commands as cmd
from logqueue.errors import (
    BatchTooLarge,
    JobInFlight,
    KeyConflict,
    NotAQueue,
    NotFound,
    RecordTooLarge,
    Throttled,
    TopicNotFound,
)
from logqueue.model import limits
from logqueue.model.scopes import Scope

OPERATIONS = (
    Operation(
        name="edit_job",
        method="PATCH",
        pattern="/v0/topics/*/jobs/*",
        scope=Scope.WRITE,
        body_policy=Body.REQUIRED,
        command=cmd.EditJob,
        group="jobs",
        summary="Change a waiting job",
        doc="change-a-job",
        text="Replaces what the body names of `data`, `tag` and `meta`; the job keeps its seq, "
        "key, deliveries and last error. With `retry` it is ready at once. A job in flight is "
        "refused.",
        body=bodies.EditBody,
        asks={"data": {"src": "b.mov"}, "retry": True},
        only={
            "anyOf": [
                {"required": ["data"]},
                {"required": ["tag"]},
                {"required": ["meta"]},
                {"required": ["retry"], "properties": {"retry": {"const": True}}},
            ]
        },
        reply=shapes.JobEdited,
        example={
            "topic": "transcode",
            "$seq": 1,
            "was": "delayed",
            "state": "ready",
            "performance": {"server_total_ms": 0.3},
        },
        errors=(NotFound, TopicNotFound, NotAQueue, JobInFlight, KeyConflict, RecordTooLarge),
    ),
    Operation(
        name="list_dead_letters",
        method="GET",
        pattern="/v0/dead_letters",
        scope=Scope.READ,
        group="jobs",
        summary="List dead letters in groups",
        doc="dead-letters",
        text="Grouped by queue, reason and kind of error, the largest group first. Without "
        "`topic`, of all topics that are the `dead_letter` of a queue.",
        query=(
            Parameter("topic", TEXT, "Only this dead-letter topic."),
            Parameter("from", TEXT, "Only letters of this queue."),
            Parameter(
                "limit",
                {**U32, "default": 100},
                "Maximum number of groups; 1 to 500, else clamped.",
                example=10,
            ),
        ),
        reply=shapes.DeadLetterGroups,
        example={
            "total": 12,
            "topics": [{"topic": "transcode.failed", "count": 12, "queues": ["transcode"]}],
            "groups": [
                {
                    "topic": "transcode.failed",
                    "queue": "transcode",
                    "reason": "max_deliveries",
                    "error": "upstream answered 502",
                    "count": 12,
                    "first_at": 1795211102560,
                    "last_at": 1795211992560,
                    "per_hour": [0] * 23 + [12],
                    "example": {
                        "$seq": 12,
                        "$ts": 1795211992560,
                        "src_seq": 71,
                        "deliveries": 5,
                        "error": "upstream answered 502",
                        "data": {"src": "a.mov"},
                    },
                }
            ],
            "group_count": 1,
            "performance": {"server_total_ms": 0.4},
        },
        errors=(TopicNotFound,),
    ),
    Operation(
        name="redrive_jobs",
        method="POST",
        pattern="/v0/topics/*/redrive",
        scope=Scope.WRITE | Scope.DELETE,
        body_policy=Body.REQUIRED,
        command=cmd.Redrive,
        group="jobs",
        summary="Move dead letters back",
        doc="redrive",
        text="The topic is the one that holds the dead letters. `{}` selects all, each for the "
        f"queue it came from; `limit` is {limits.REDRIVE_DEFAULT} by default and "
        f"{limits.REDRIVE_MAX} at most. All filters must match. A repeat moves no job twice. With "
        "`rate_per_s` or `wait` it is a background operation without these bounds, and the reply "
        "is that of `drop`.",
        body=bodies.RedriveBody,
        asks={"reason": "rejected", "limit": 500},
        only={
            "dependentSchemas": {
                "data": {
                    "required": ["seqs"],
                    "properties": {"seqs": {"type": "array", "minItems": 1, "maxItems": 1}},
                }
            }
        },
        reply=shapes.Redriven,
        other_reply=shapes.BackgroundReply,
        statuses=(200, 202),
        example={
            "topic": "transcode.failed",
            "redriven": 2,
            "skipped": 0,
            "remaining": 0,
            "targets": ["transcode"],
            "dry_run": False,
            "performance": {"server_total_ms": 0.93},
        },
        errors=(BatchTooLarge, RecordTooLarge, TopicNotFound, Throttled),
    ),
    Operation(
        name="drop_dead_letters",
        method="POST",
        pattern="/v0/topics/*/drop",
        scope=Scope.DELETE,
        body_policy=Body.REQUIRED,
        command=cmd.DeleteRecords,
        group="jobs",
        summary="Drop dead letters",
        doc="drop",
        text="Deletes the dead letters that all filters select, those of `redrive`, as a "
        "background operation. Records that are not dead letters stay. 202 while it is running: "
        "after 30 s, or at once with `wait` false or a `rate_per_s`.",
        body=bodies.DropBody,
        asks={"from": "transcode", "error": "no such user *", "dry_run": True},
        reply=shapes.BackgroundReply,
        example={
            "operation": {**EXAMPLE, "action": "drop", "topic": "transcode.failed"},
            "performance": {"server_total_ms": 0.9},
        },
        statuses=(200, 202),
        errors=(BatchTooLarge, TopicNotFound, Throttled, *COPYING),
    ),
)
