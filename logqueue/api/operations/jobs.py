"""Operations of looking after jobs."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.bodies import jobs as job_bodies
from logqueue.api.operations.row import (
    COPYING,
    STORING,
    TEXT,
    U32,
    U64,
    Body,
    Operation,
    Parameter,
    flag,
)
from logqueue.core import commands as cmd
from logqueue.errors import BatchTooLarge, NotAQueue, NotFound, TopicNotFound
from logqueue.model import limits
from logqueue.model.scopes import Scope

QUEUE = "/v0/topics/*"

_STATE = f"({'|'.join(job_bodies.JOB_STATES)})?"

OPERATIONS = (
    Operation(
        name="list_jobs",
        method="GET",
        pattern=QUEUE + "/jobs",
        scope=Scope.READ,
        group="jobs",
        summary="List jobs",
        doc="list-jobs",
        text="By `$seq`, in pages. Looking leases nothing and changes nothing. A page ends after "
        f"`limit` jobs, or after looking at {limits.JOBS_SCANNED_MAX} of them; without "
        "`next_after` it is the last.",
        query=(
            Parameter(
                "state",
                {"type": "string", "pattern": f"^{_STATE}(,{_STATE})*$"},
                "Only jobs in these states, comma-separated.",
            ),
            Parameter("tag", TEXT, "Only with this tag; `abc*` for those that begin with `abc`."),
            Parameter("key", TEXT, "Only with this key."),
            Parameter("after", {**U64, "default": 0}, "Only with a higher `$seq`."),
            Parameter(
                "limit",
                {**U32, "default": limits.JOBS_LISTED_DEFAULT},
                f"Jobs at most; 1 to {limits.JOBS_LISTED_MAX}, else clamped.",
                example=1,
            ),
            flag("data", True, "Have `data` and `meta` of each."),
        ),
        reply=shapes.JobPage,
        example={
            "topic": "transcode",
            "jobs": [
                {
                    "$seq": 1,
                    "$ts": 1795211102560,
                    "$tag": "hd",
                    "state": "in_flight",
                    "deliveries": 2,
                    "last_error": "upstream answered 502",
                    "age_ms": 5120,
                    "node": "api-fra-1",
                    "deadline": 1795211132582,
                    "data": {"src": "a.mov"},
                    "meta": {"trace": "z9"},
                }
            ],
            "next_after": 1,
            "scanned": 2,
            "performance": {"server_total_ms": 0.21},
        },
        errors=(TopicNotFound, NotAQueue),
    ),
    Operation(
        name="get_job",
        method="GET",
        pattern=QUEUE + "/jobs/*",
        scope=Scope.READ,
        group="jobs",
        summary="A job and its history",
        doc="one-job",
        text="What the server still knows of its life, oldest first. Leases that run out are not "
        "noted: the next claim tells.",
        reply=shapes.JobHistory,
        example={
            "topic": "transcode",
            "job": {
                "$seq": 1,
                "$ts": 1795211102560,
                "state": "ready",
                "deliveries": 1,
                "last_error": "upstream answered 502",
                "age_ms": 90,
                "data": {"src": "a.mov"},
            },
            "history": [
                {
                    "at": 1795211102570,
                    "event": "claimed",
                    "node": "api-fra-1",
                    "deadline": 1795211132570,
                    "lease_id": "lease_1a1faeb833a0000",
                },
                {
                    "at": 1795211102590,
                    "event": "nack",
                    "node": "api-fra-1",
                    "error": "upstream answered 502",
                },
            ],
            "history_complete": True,
            "performance": {"server_total_ms": 1.2},
        },
        errors=(NotFound, TopicNotFound, NotAQueue),
    ),
    Operation(
        name="cancel_job",
        method="DELETE",
        pattern=QUEUE + "/jobs/*",
        scope=Scope.DELETE,
        command=cmd.CancelJob,
        group="jobs",
        summary="Cancel a job",
        doc="cancel",
        text="`state` is what it was. One in flight stays, unless by `force`: then its lease is "
        "void. A job that is not there is `cancelled: false`.",
        query=(flag("force", False, "Also when it is in flight."),),
        reply=shapes.Cancelled,
        example={
            "topic": "transcode",
            "cancelled": True,
            "$seq": 1,
            "state": "ready",
            "performance": {"server_total_ms": 0.31},
        },
        errors=(TopicNotFound, NotAQueue, *COPYING, *STORING),
    ),
    Operation(
        name="cancel_key",
        method="DELETE",
        pattern=QUEUE + "/keys/*",
        scope=Scope.DELETE,
        command=cmd.CancelKey,
        group="jobs",
        summary="Cancel the waiting job with a key",
        doc="cancel",
        text="One in flight is left alone. Without such a job it is `cancelled: false`.",
        reply=shapes.Cancelled,
        example={
            "topic": "transcode",
            "cancelled": True,
            "$seq": 2,
            "state": "delayed",
            "performance": {"server_total_ms": 0.28},
        },
        errors=(TopicNotFound, NotAQueue, *COPYING, *STORING),
    ),
    Operation(
        name="purge_jobs",
        method="POST",
        pattern=QUEUE + "/purge",
        scope=Scope.DELETE,
        body_policy=Body.REQUIRED,
        command=cmd.Purge,
        group="jobs",
        summary="Remove all jobs in some states",
        doc="purge",
        text="As a cancel of each, by force. Many are removed in several steps: jobs that come "
        "meanwhile may be among them, and after a failure in between some are gone.",
        body=job_bodies.PurgeBody,
        asks={"states": ["held", "delayed"]},
        reply=shapes.Purged,
        example={
            "topic": "transcode",
            "purged": {"held": 3, "delayed": 0},
            "performance": {"server_total_ms": 0.72},
        },
        errors=(TopicNotFound, NotAQueue, *COPYING, *STORING),
    ),
    Operation(
        name="release_jobs",
        method="POST",
        pattern=QUEUE + "/release",
        scope=Scope.ADMIN,
        body_policy=Body.REQUIRED,
        command=cmd.Release,
        group="jobs",
        summary="Release held jobs",
        doc="release",
        text="Ready again, and their deliveries begin anew. Seqs that are not held are listed in "
        "`skipped`; that is not an error.",
        body=job_bodies.ReleaseBody,
        asks={"seqs": [4, 9]},
        reply=shapes.Released,
        example={
            "topic": "transcode",
            "released": 1,
            "skipped": [9],
            "ready": 1,
            "held": 0,
            "performance": {"server_total_ms": 0.30},
        },
        errors=(BatchTooLarge, TopicNotFound, NotAQueue, *STORING),
    ),
    Operation(
        name="redrive_jobs",
        method="POST",
        pattern=QUEUE + "/redrive",
        scope=Scope.WRITE | Scope.DELETE,
        body_policy=Body.REQUIRED,
        command=cmd.Redrive,
        group="jobs",
        summary="Move dead letters back",
        doc="redrive",
        text="The topic is the one that holds them; `{}` means all, each to where it came from, "
        f"{limits.REDRIVE_DEFAULT} by default and {limits.REDRIVE_MAX} at most (`limit`). Filters "
        "add up. A repeat doubles none.",
        body=job_bodies.RedriveBody,
        asks={"reason": "rejected", "limit": 500},
        reply=shapes.Redriven,
        example={
            "topic": "transcode.failed",
            "redriven": 2,
            "skipped": 0,
            "remaining": 0,
            "targets": ["transcode"],
            "dry_run": False,
            "performance": {"server_total_ms": 0.93},
        },
        errors=(BatchTooLarge, TopicNotFound, *STORING),
    ),
    Operation(
        name="list_workers",
        method="GET",
        pattern=QUEUE + "/workers",
        scope=Scope.READ,
        group="jobs",
        summary="Nodes at work on a queue",
        doc="workers",
        text="Those that this run of the server has seen, the latest first.",
        reply=shapes.WorkerList,
        example={
            "topic": "transcode",
            "workers": [
                {
                    "node": "api-fra-1",
                    "in_flight": 2,
                    "last_seen_ts": 1795211102560,
                    "streams": 1,
                    "waiting": 0,
                    "claimed": 12,
                    "acked": 9,
                    "nacked": 1,
                    "rejected": 0,
                    "expired": 0,
                }
            ],
            "count": 1,
            "performance": {"server_total_ms": 0.12},
        },
        errors=(TopicNotFound, NotAQueue),
    ),
)
