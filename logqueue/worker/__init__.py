"""The worker runtime: apps, tasks, consumers, and what runs them.

Owns: the names that users import. Must not know: the server.
"""

from logqueue.worker.app import App
from logqueue.worker.handle import JobFailed, JobHandle, ResultGone
from logqueue.worker.job import Job, Settling, current_job, should_stop
from logqueue.worker.message import Message
from logqueue.worker.middleware import Handle, Middleware
from logqueue.worker.outcomes import (
    AckPolicy,
    BadPayload,
    BadResult,
    JobTimeout,
    Reject,
    RetryLater,
    Snooze,
    UnknownTask,
)
from logqueue.worker.retry import Retry
from logqueue.worker.run import (
    STOP_SIGNALS,
    AppNotFound,
    check,
    check_queues,
    load_app,
    run_worker,
)
from logqueue.worker.schedule import Cron, Every, ScheduleTimes
from logqueue.worker.task import ChainLink, Sender, Task
from logqueue.worker.worker import Worker
from logqueue.worker.workflow import JobBatchHandle, chain

__all__ = [
    "STOP_SIGNALS",
    "AckPolicy",
    "App",
    "AppNotFound",
    "BadPayload",
    "BadResult",
    "ChainLink",
    "Cron",
    "Every",
    "Handle",
    "Job",
    "JobBatchHandle",
    "JobFailed",
    "JobHandle",
    "JobTimeout",
    "Message",
    "Middleware",
    "Reject",
    "ResultGone",
    "Retry",
    "RetryLater",
    "ScheduleTimes",
    "Sender",
    "Settling",
    "Snooze",
    "Task",
    "UnknownTask",
    "Worker",
    "chain",
    "check",
    "check_queues",
    "current_job",
    "load_app",
    "run_worker",
    "should_stop",
]
