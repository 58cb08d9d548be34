"""The operations of the server, as calls name them.

Written by `make generate` from logqueue/api/operations: change the row there.
"""

from __future__ import annotations

from logqueue.client.calls import Endpoint
from logqueue.shapes import (
    Aborted,
    Acked,
    Appended,
    BackgroundList,
    BackgroundReply,
    BatchDropped,
    BatchPage,
    BatchState,
    Cancelled,
    Claimed,
    Committed,
    DeadLetterGroups,
    Extended,
    Firings,
    GroupList,
    Health,
    JobEdited,
    JobHistory,
    JobPage,
    JobStatuses,
    LogLevelChanged,
    Nacked,
    Page,
    Paused,
    Producer,
    Purged,
    Ready,
    RecordsDeleted,
    Redriven,
    Rejected,
    Released,
    ReplicaStatus,
    ReplicaTakeover,
    Router,
    RouterDropped,
    RouterPage,
    Schedule,
    ScheduleDropped,
    SchedulePage,
    ScheduleRun,
    SegmentPage,
    SeqAt,
    ServerState,
    ServerWorkerList,
    Staged,
    TopicDropped,
    TopicEnsured,
    TopicHistory,
    TopicPage,
    TopicPut,
    TopicState,
    TopicStats,
    WatchSession,
    WorkerList,
)

LIST_TOPICS = Endpoint("GET", "/v0/topics", TopicPage)
PUT_TOPIC = Endpoint("PUT", "/v0/topics/*", TopicPut)
GET_TOPIC = Endpoint("GET", "/v0/topics/*", TopicState)
GET_TOPIC_STATS = Endpoint("GET", "/v0/topics/*/stats", TopicStats)
PATCH_TOPIC = Endpoint("PATCH", "/v0/topics/*", TopicPut)
ENSURE_TOPIC = Endpoint("POST", "/v0/topics/*/ensure", TopicEnsured)
DELETE_TOPIC = Endpoint("DELETE", "/v0/topics/*", TopicDropped)
WRITE_RECORDS = Endpoint("POST", "/v0/topics/*", Appended)
READ_RECORDS = Endpoint("POST", "/v0/topics/*/diff", Page)
DELETE_RECORDS = Endpoint("POST", "/v0/topics/*/delete", RecordsDeleted)
SEQ_AT = Endpoint("GET", "/v0/topics/*/seq_at", SeqAt)
CLAIM_JOBS = Endpoint("POST", "/v0/topics/*/claim", Claimed)
ACK_JOBS = Endpoint("POST", "/v0/topics/*/ack", Acked)
NACK_JOBS = Endpoint("POST", "/v0/topics/*/nack", Nacked)
EXTEND_LEASES = Endpoint("POST", "/v0/topics/*/extend", Extended)
REJECT_JOBS = Endpoint("POST", "/v0/topics/*/reject", Rejected)
WORK = Endpoint("GET", "/v0/topics/*/work", bytes)
PAUSE_QUEUE = Endpoint("POST", "/v0/topics/*/pause", Paused)
RESUME_QUEUE = Endpoint("POST", "/v0/topics/*/resume", Paused)
LIST_JOBS = Endpoint("GET", "/v0/topics/*/jobs", JobPage)
GET_JOB = Endpoint("GET", "/v0/topics/*/jobs/*", JobHistory)
GET_JOB_STATUSES = Endpoint("POST", "/v0/topics/*/jobs/status", JobStatuses)
CANCEL_JOB = Endpoint("DELETE", "/v0/topics/*/jobs/*", Cancelled)
CANCEL_KEY = Endpoint("DELETE", "/v0/topics/*/keys/*", Cancelled)
PURGE_JOBS = Endpoint("POST", "/v0/topics/*/purge", Purged)
CHANGE_JOBS = Endpoint("POST", "/v0/topics/*/jobs/change", BackgroundReply)
RELEASE_JOBS = Endpoint("POST", "/v0/topics/*/release", Released)
LIST_GROUPS = Endpoint("GET", "/v0/topics/*/groups", GroupList)
LIST_WORKERS = Endpoint("GET", "/v0/topics/*/workers", WorkerList)
EDIT_JOB = Endpoint("PATCH", "/v0/topics/*/jobs/*", JobEdited)
LIST_DEAD_LETTERS = Endpoint("GET", "/v0/dead_letters", DeadLetterGroups)
REDRIVE_JOBS = Endpoint("POST", "/v0/topics/*/redrive", Redriven)
DROP_DEAD_LETTERS = Endpoint("POST", "/v0/topics/*/drop", BackgroundReply)
GET_PRODUCER = Endpoint("GET", "/v0/producers/*", Producer)
STAGE_CHUNK = Endpoint("POST", "/v0/producers/*/epochs/*/stage", Staged)
COMMIT_EPOCH = Endpoint("POST", "/v0/producers/*/epochs/*/commit", Committed)
ABORT_EPOCH = Endpoint("POST", "/v0/producers/*/epochs/*/abort", Aborted)
LIST_ROUTERS = Endpoint("GET", "/v0/routers", RouterPage)
PUT_ROUTER = Endpoint("PUT", "/v0/routers/*", Router)
GET_ROUTER = Endpoint("GET", "/v0/routers/*", Router)
DELETE_ROUTER = Endpoint("DELETE", "/v0/routers/*", RouterDropped)
LIST_SCHEDULES = Endpoint("GET", "/v0/schedules", SchedulePage)
PUT_SCHEDULE = Endpoint("PUT", "/v0/schedules/*", Schedule)
GET_SCHEDULE = Endpoint("GET", "/v0/schedules/*", Schedule)
DELETE_SCHEDULE = Endpoint("DELETE", "/v0/schedules/*", ScheduleDropped)
PAUSE_SCHEDULE = Endpoint("POST", "/v0/schedules/*/pause", Schedule)
RESUME_SCHEDULE = Endpoint("POST", "/v0/schedules/*/resume", Schedule)
RUN_SCHEDULE = Endpoint("POST", "/v0/schedules/*/run", ScheduleRun)
LIST_FIRINGS = Endpoint("GET", "/v0/firings", Firings)
LIST_BATCHES = Endpoint("GET", "/v0/batches", BatchPage)
OPEN_BATCH = Endpoint("POST", "/v0/batches", BatchState)
GET_BATCH = Endpoint("GET", "/v0/batches/*", BatchState)
CLOSE_BATCH = Endpoint("POST", "/v0/batches/*/close", BatchState)
DELETE_BATCH = Endpoint("DELETE", "/v0/batches/*", BatchDropped)
LIST_SEGMENTS = Endpoint("GET", "/v0/log/segments", SegmentPage)
GET_SEGMENT = Endpoint("GET", "/v0/log/segments/*", bytes)
REPLICA = Endpoint("GET", "/v0/replica", ReplicaStatus)
PROMOTE = Endpoint("POST", "/v0/replica/promote", ReplicaTakeover)
SERVER = Endpoint("GET", "/v0/server", ServerState)
BACKUP = Endpoint("GET", "/v0/backup", bytes)
PUT_LOG_LEVEL = Endpoint("PUT", "/v0/server/log_level", LogLevelChanged)
CREATE_WATCH = Endpoint("POST", "/v0/watch", WatchSession)
WATCH = Endpoint("GET", "/v0/watch/*", bytes)
LIST_OPERATIONS = Endpoint("GET", "/v0/operations", BackgroundList)
GET_OPERATION = Endpoint("GET", "/v0/operations/*", BackgroundReply)
STOP_OPERATION = Endpoint("DELETE", "/v0/operations/*", BackgroundReply)
STATS_STREAM = Endpoint("GET", "/v0/stats/stream", bytes)
TOPIC_HISTORY = Endpoint("GET", "/v0/topics/*/history", TopicHistory)
LIST_ALL_WORKERS = Endpoint("GET", "/v0/workers", ServerWorkerList)
HEALTH = Endpoint("GET", "/v0/health", Health)
READY = Endpoint("GET", "/v0/ready", Ready)
METRICS = Endpoint("GET", "/v0/metrics", bytes)
