"""Reading jobs without leasing them: a page of them, or one.

Owns: what a job looks like to an operator, and how much one look may scan. Changes nothing. The
topic must have been let act by time before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from logqueue.core import record_times
from logqueue.core.commands import JobState
from logqueue.core.job_filter import ANY_JOB, JobFilterRun, ScanRun, state_of
from logqueue.core.queue_topic import QueueTopic
from logqueue.events.block import (
    DATA,
    FOLLOW,
    GROUP,
    KEY,
    MAX_DELIVERIES,
    META,
    PRIORITY,
    TAG,
    UPDATED_AT,
    BlockView,
)
from logqueue.model import limits


class JobSummary(NamedTuple):
    """One job.

    Attributes:
        ts, updated_at: When it was written, and replaced by a keyed write (0: never); ms epoch.
        deliveries: Claims so far.
        priority: 0 to 9, 0 for none.
        given_back: How many of them do not count towards `max_deliveries`.
        max_deliveries: Its own bound, 0 when the topic's counts.
        node, deadline, lease: Who holds it and until when, as of the last claim; "" and 0 when
            none does.
        not_before: When it becomes ready; 0 unless it is delayed.
        expires_at: Last ms of its life, by its own time to live or the topic's; 0: no end.
        data, tag, meta, key, group: JSON fragments; b"" when absent.
        error: The last error a worker gave with it, or None.
        follow: What follows it, see `events/follow.py`; b"" for nothing.
        progress, note: What the worker that holds it has said of it; None and "" when nothing.
    """

    seq: int
    state: JobState
    ts: int
    updated_at: int
    deliveries: int
    max_deliveries: int
    node: str
    deadline: int
    lease: int
    not_before: int
    expires_at: int
    data: bytes
    tag: bytes
    meta: bytes
    key: bytes
    error: str | None
    given_back: int
    priority: int = 0
    group: bytes = b""
    follow: bytes = b""
    progress: float | None = None
    note: str = ""


class JobListing(NamedTuple):
    """A page of jobs, ascending by seq.

    Attributes:
        next_after: `after` of the next page; None when there is nothing behind this one.
        scanned: Jobs looked at, shown or not.
        size: Bytes of data and meta listed.
    """

    jobs: list[JobSummary]
    next_after: int | None
    scanned: int
    size: int = 0


def list_jobs(
    topic: QueueTopic,
    search: JobFilterRun | None = None,
    *,
    found: Sequence[int] | None = None,
    after: int = 0,
    limit: int,
    bytes_max: int = limits.JOBS_LISTED_BYTES_MAX,
    scanned_max: int | None = None,
    size: int = 0,
    with_data: bool = True,
) -> JobListing:
    """Jobs of a queue that pass a filter.

    Args:
        topic: A queue, read only.
        search: The filter at work on it; None for all jobs.
        found: Ascending seqs that may pass, where an index has found them all.
        after: Only jobs with a higher seq.
        limit: Jobs at most.
        bytes_max: Data and meta at most; one job is always listed.
        scanned_max: Jobs looked at, at most; `JOBS_SCANNED_MAX` by default.
        size: Bytes that earlier steps of the same page have listed.
        with_data: False leaves data and meta out.

    Raises:
        StorageUnreadable: The disk does not give the data of one.
    """
    if search is None:
        search = JobFilterRun(topic, ANY_JOB, 0)
    jobs: list[JobSummary] = []
    has_listed, scanned = size > 0, 0
    if scanned_max is None:
        scanned_max = limits.JOBS_SCANNED_MAX
    searched_max = search.searched + limits.SEARCHED_BYTES_PER_PASS_MAX
    for run in search.runs(after) if found is None else _runs_of(topic, found, after):
        if not run.seqs:
            if scanned + run.scanned > scanned_max and scanned:
                return JobListing(jobs, after, scanned, size)
            scanned, after = scanned + run.scanned, run.last
        for seq in run.seqs:
            if len(jobs) == limit or scanned >= scanned_max or search.searched >= searched_max:
                return JobListing(jobs, after, scanned, size)
            scanned += 1
            before, after = after, seq
            # Before anything large is copied: nearly all that is passed over is.
            if not search.passes(seq, run.batch):
                continue
            added = run.batch.size_of(seq) if with_data else 0
            if size + added > bytes_max and (jobs or has_listed):
                # Over the bound, so that no further step of the page takes a smaller one.
                return JobListing(jobs, before, scanned, size + added)
            size += added
            jobs.append(_view(topic, seq, with_data=with_data))
        after = max(after, run.last)
        if scanned >= scanned_max or search.searched >= searched_max:
            has_more = after < (topic.head if found is None else found[-1])
            return JobListing(jobs, after if has_more else None, scanned, size)
    return JobListing(jobs, None, scanned, size)


def _runs_of(topic: QueueTopic, found: Sequence[int], after: int) -> Iterator[ScanRun]:
    """Those of some ascending seqs behind one that are still live."""
    for seq in found[bisect_right(found, after) :]:
        batch = topic.batch_of(seq)
        if batch is not None:
            yield ScanRun((seq,), batch, seq, 1)


def _view(topic: QueueTopic, seq: int, *, with_data: bool = True) -> JobSummary:
    queue = topic.queue
    batch = topic.batch_of(seq)
    assert batch is not None
    view, index = BlockView(batch.block), batch.index_of(seq)
    ts = batch.ts_at(index)
    job = queue.jobs.get(seq)
    grant = job.grant if job is not None else None
    state = state_of(topic, seq)
    not_before = 0
    if state == "delayed":
        not_before = job.ready_at if job is not None else record_times.due_at(view, index, ts)
    progress = queue.progress.get(seq) if queue.progress else None
    ends = [record_times.expires_at(view, index, ts)]
    if topic.config.ttl_ms:
        ends.append(ts + topic.config.ttl_ms)
    return JobSummary(
        seq=seq,
        state=state,
        ts=ts,
        updated_at=view.number(UPDATED_AT, index),
        deliveries=job.deliveries if job is not None else 0,
        max_deliveries=view.number(MAX_DELIVERIES, index),
        node=grant.node if grant is not None else "",
        deadline=grant.deadline if grant is not None else 0,
        lease=job.lease if job is not None and grant is not None else 0,
        not_before=not_before,
        expires_at=min((end for end in ends if end), default=0),
        data=view.text(DATA, index) if with_data else b"",
        tag=view.text(TAG, index),
        meta=view.text(META, index) if with_data else b"",
        key=view.text(KEY, index),
        error=job.error if job is not None else None,
        given_back=job.given_back if job is not None else 0,
        priority=view.number(PRIORITY, index),
        group=view.text(GROUP, index),
        follow=view.text(FOLLOW, index),
        progress=progress.share if progress is not None else None,
        note=progress.note if progress is not None else "",
    )


def describe_job(topic: QueueTopic, seq: int, *, with_data: bool = True) -> JobSummary | None:
    """One job of a queue, or None when it does not exist; perhaps without data and meta."""
    return _view(topic, seq, with_data=with_data) if topic.holds(seq) else None
