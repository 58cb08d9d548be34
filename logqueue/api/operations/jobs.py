"""Operations of job administration."""

from __future__ import annotations

from collections.abc import Iterator

from logqueue import shapes
from logqueue.api.bodies import jobs as job_bodies
from logqueue.api.operations.background import EXAMPLE as BACKGROUND
from logqueue.api.operations.row import (
    COPYING,
    TEXT,
    U32,
    U64,
    Body,
    Operation,
    Parameter,
    Schema,
    flag,
)
from logqueue.core import commands as cmd
from logqueue.errors import BatchTooLarge, NotAQueue, NotFound, Throttled, TopicNotFound
from logqueue.model import limits
from logqueue.model.scopes import Scope

QUEUE = "/v0/topics/*"

_STATE = f"({'|'.join(job_bodies.JOB_STATES)})?"


def _change_forms() -> Iterator[Schema]:
    """What each action of a change goes with: a time, and states to which it applies."""
    for action, applies in cmd.APPLIES_TO.items():
        for states, force in ((applies, True), (applies - {"in_flight"}, False)):
            if not states or (states == applies and not force):
                continue
            known = {"enum": sorted(states)}
            state = [
                {"type": "null"},
                known,
                {"type": "array", "maxItems": 0},
                {"type": "array", "contains": known},
            ]
            members: dict[str, Schema] = {
                "action": {"const": action},
                "filter": {"properties": {"state": {"anyOf": state}}},
                "delay_ms": {"type": "null"},
                "priority": {"type": "null"},
            }
            if action == "cancel":
                members["force"] = {"const": force}
            if action == "delay":
                members["delay_ms"] = {"type": "integer", "maximum": limits.DELAY_MS_MAX}
                yield {"required": ["delay_ms"], "properties": members}
            elif action == "prioritize":
                members["priority"] = {"type": "integer"}
                yield {"required": ["priority"], "properties": members}
            else:
                yield {"properties": members}


OPERATIONS = (
    Operation(
        name="list_jobs",
        method="GET",
        pattern=QUEUE + "/jobs",
        scope=Scope.READ,
        group="jobs",
        summary="List jobs",
        doc="list-jobs",
        text="In pages, in order of `$seq`. Leases nothing and changes nothing. All filters must "
        f"match. A page ends after `limit` jobs, or after {limits.JOBS_SCANNED_MAX} jobs were "
        "examined; the last page has no `next_after`.",
        query=(
            Parameter(
                "state",
                {"type": "string", "pattern": f"^{_STATE}(,{_STATE})*$"},
                "Only jobs in these states, comma-separated.",
            ),
            Parameter("tag", TEXT, "Only jobs with this tag; `abc*` matches a prefix."),
            Parameter("key", TEXT, "Only jobs with this key."),
            Parameter("node", TEXT, "Only jobs that this node holds under a lease."),
            Parameter("min_age_ms", U64, "Only jobs written at least so long ago."),
            Parameter("max_age_ms", U64, "Only jobs written at most so long ago."),
            Parameter("min_deliveries", U32, "Only jobs delivered at least so often."),
            Parameter(
                "text",
                {**TEXT, "maxLength": limits.SEARCH_TEXT_CHARS_MAX},
                "Only jobs with this text in `data`, tag, key or `last_error`; case counts.",
            ),
            Parameter(
                "priority",
                {"type": "integer", "minimum": 0, "maximum": limits.JOB_PRIORITY_MAX},
                "Only jobs with this priority.",
            ),
            Parameter("group", TEXT, "Only jobs of this group."),
            Parameter("after", {**U64, "default": 0}, "Only jobs with a higher `$seq`."),
            Parameter(
                "limit",
                {**U32, "default": limits.JOBS_LISTED_DEFAULT},
                f"Maximum number of jobs; 1 to {limits.JOBS_LISTED_MAX}, else clamped.",
                example=1,
            ),
            flag("data", True, "Whether the jobs have `data` and `meta`."),
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
        summary="Get a job and its history",
        doc="one-job",
        text="With `ended` also of a job that has ended, as long as the log has it. `why` says in "
        "one sentence why the job is not being worked on; `timeline` has its whole life, `history` "
        "the part that is about its leases, both oldest first.",
        query=(
            flag("data", True, "Whether the job has `data` and `meta`."),
            flag("timeline", True, "Whether the logs are searched."),
            flag("ended", False, "Whether a job that has ended is looked up in the logs."),
            Parameter(
                "wait_ms",
                {**U32, "default": 0},
                f"How long to wait for the end of the job; at most {limits.JOB_WAIT_MS_MAX}.",
            ),
        ),
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
            "why": {
                "code": "behind",
                "text": "Ready: 12 jobs are ahead of it.",
                "ahead": 12,
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
            "timeline": [
                {"at": 1795211102560, "event": "appended", "node": "web-1"},
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
            "timeline_complete": True,
            "performance": {"server_total_ms": 1.2},
        },
        errors=(NotFound, TopicNotFound, NotAQueue),
    ),
    Operation(
        name="get_job_statuses",
        method="POST",
        pattern=QUEUE + "/jobs/status",
        scope=Scope.READ,
        body_policy=Body.REQUIRED,
        group="jobs",
        summary="Get the states and results of jobs",
        doc="status-of-many-jobs",
        text="What each job is, or has become if the queue keeps `results`. With `wait_ms`, waits "
        "until all of the jobs, or any of them, have ended.",
        body=job_bodies.JobStatusBody,
        asks={"seqs": [1, 2], "wait_ms": 0, "until": "all"},
        reply=shapes.JobStatuses,
        example={
            "topic": "transcode",
            "jobs": [
                {
                    "$seq": 1,
                    "$ts": 1795211102560,
                    "state": "in_flight",
                    "deliveries": 1,
                    "age_ms": 90,
                    "node": "api-fra-1",
                    "deadline": 1795211132570,
                    "progress": 0.5,
                    "note": "half",
                },
                {
                    "$seq": 2,
                    "state": "done",
                    "outcome": "acked",
                    "ended_at": 1795211102640,
                    "node": "api-fra-1",
                    "result": {"frames": 240},
                },
            ],
            "performance": {"server_total_ms": 0.2},
        },
        errors=(BatchTooLarge, TopicNotFound, NotAQueue),
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
        text="`state` is the state before. A job in flight is cancelled only with `force`, which "
        "voids its lease. If there is no such job, `cancelled` is false.",
        query=(flag("force", False, "Cancel the job even if it is in flight."),),
        reply=shapes.Cancelled,
        example={
            "topic": "transcode",
            "cancelled": True,
            "$seq": 1,
            "state": "ready",
            "performance": {"server_total_ms": 0.31},
        },
        errors=(TopicNotFound, NotAQueue, *COPYING),
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
        text="A job in flight is not affected. If there is no waiting job with the key, "
        "`cancelled` is false.",
        reply=shapes.Cancelled,
        example={
            "topic": "transcode",
            "cancelled": True,
            "$seq": 2,
            "state": "delayed",
            "performance": {"server_total_ms": 0.28},
        },
        errors=(TopicNotFound, NotAQueue, *COPYING),
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
        text="Each job is cancelled as with `force`. Large purges run in several steps: jobs that "
        "arrive meanwhile may be included, and a failure may leave the purge partly done.",
        body=job_bodies.PurgeBody,
        asks={"states": ["held", "delayed"]},
        reply=shapes.Purged,
        example={
            "topic": "transcode",
            "purged": {"held": 3, "delayed": 0},
            "performance": {"server_total_ms": 0.72},
        },
        errors=(TopicNotFound, NotAQueue, *COPYING),
    ),
    Operation(
        name="change_jobs",
        method="POST",
        pattern=QUEUE + "/jobs/change",
        scope=Scope.ADMIN,
        access="`admin`, to cancel also `delete`",
        body_policy=Body.REQUIRED,
        command=cmd.ChangeJobs,
        group="jobs",
        summary="Change many jobs",
        doc="change-many-jobs",
        text="Retries, delays, holds, releases, cancels, returns or prioritizes the jobs that "
        "a filter selects, as a background operation. Jobs written after its start are not "
        "selected.",
        body=job_bodies.ChangeJobsBody,
        only={"anyOf": [*_change_forms()]},
        asks={
            "action": "retry",
            "filter": {"state": ["held", "delayed"], "tag": "hd"},
            "rate_per_s": 500,
            "wait": True,
        },
        reply=shapes.BackgroundReply,
        example={"operation": BACKGROUND, "performance": {"server_total_ms": 0.4}},
        statuses=(200, 202),
        errors=(BatchTooLarge, NotFound, TopicNotFound, NotAQueue, Throttled),
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
        text="The jobs become ready, with their deliveries reset. Seqs that are not held are "
        "listed in `skipped`; that is not an error.",
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
        errors=(BatchTooLarge, TopicNotFound, NotAQueue),
    ),
    Operation(
        name="list_groups",
        method="GET",
        pattern=QUEUE + "/groups",
        scope=Scope.READ,
        group="jobs",
        summary="List the groups of a queue",
        doc="list-groups",
        text="The groups with the most waiting jobs, or with the oldest. A queue without `groups` "
        f"has none. At most {limits.GROUPS_SCANNED_MAX} groups are examined.",
        query=(
            Parameter(
                "order",
                {"enum": ["backlog", "age"], "default": "backlog"},
                "Which come first: those with the most waiting jobs, or the oldest.",
            ),
            Parameter(
                "limit",
                {**U32, "default": limits.GROUPS_LISTED_DEFAULT},
                f"Maximum number of groups; 1 to {limits.GROUPS_LISTED_MAX}, else clamped.",
            ),
        ),
        reply=shapes.GroupList,
        example={
            "topic": "mails",
            "groups": [
                {
                    "group": "acme",
                    "waiting": 120,
                    "in_flight": 2,
                    "oldest_seq": 17,
                    "oldest_ms": 5120,
                    "blocked": True,
                }
            ],
            "count": 1,
            "scanned": 1,
            "performance": {"server_total_ms": 0.21},
        },
        errors=(TopicNotFound, NotAQueue),
    ),
    Operation(
        name="list_workers",
        method="GET",
        pattern=QUEUE + "/workers",
        scope=Scope.READ,
        group="jobs",
        summary="List the workers of a queue",
        doc="workers",
        text="Nodes seen since the server started, most recent first.",
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
