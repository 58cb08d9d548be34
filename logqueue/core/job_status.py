"""What a job is or has become: one word for callers that wait for its end.

Owns: the states of ended jobs, and where they are found. Changes nothing. Must not know: HTTP, how
callers wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from logqueue.core.ended_jobs import EndedJob
from logqueue.core.job_views import JobSummary, describe_job
from logqueue.core.queue_topic import QueueTopic
from logqueue.events.event import JobEndKind

EndState = Literal["done", "dead", "dropped", "expired", "superseded", "cancelled", "redriven"]

STATE_OF: Mapping[JobEndKind, EndState] = {
    "acked": "done",
    "rejected": "dead",
    "dead_lettered": "dead",
    "dropped": "dropped",
    "expired": "expired",
    "superseded": "superseded",
    "cancelled": "cancelled",
    "deleted": "cancelled",
    "redriven": "redriven",
}
"""The state of an ended job, by how it ended."""


class KnownJob(NamedTuple):
    """What is known of a job.

    Attributes:
        live: The job, while it has not ended.
        ended: What became of it, while that is kept. With neither, it is gone.
    """

    seq: int
    live: JobSummary | None = None
    ended: EndedJob | None = None

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self.live is None


def job_status(
    topic: QueueTopic, seq: int, now: int, *, with_data: bool = False
) -> KnownJob | None:
    """What a job is or has become.

    Args:
        topic: A queue, as of now.
        seq: The job.
        now: The clock.
        with_data: Whether a live job has its data and meta.

    Returns:
        None when there has never been such a job.
    """
    live = describe_job(topic, seq, with_data=with_data)
    if live is not None:
        return KnownJob(seq, live)
    if not 0 < seq <= topic.head or any(first <= seq <= last for first, last in topic.holes):
        return None
    ended = topic.queue.ended
    return KnownJob(seq, None, ended.find(seq, now) if ended is not None else None)
