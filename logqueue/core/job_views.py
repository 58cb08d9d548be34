"""Reading jobs without leasing them: a page of them, or one.

Owns: what a job looks like to an operator, and how much one look may scan. Changes nothing. The
topic must have been let act by time before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from logqueue.core import record_times
from logqueue.core.commands import JobState
from logqueue.core.queue_topic import QueueTopic
from logqueue.events.block import DATA, KEY, MAX_DELIVERIES, META, TAG, UPDATED_AT, BlockView
from logqueue.model import limits
from logqueue.model.tag_predicate import Predicate


class JobSummary(NamedTuple):
    """One job.

    Attributes:
        ts, updated_at: When it was written, and replaced by a keyed write (0: never); ms epoch.
        deliveries: Claims so far.
        given_back: How many of them do not count towards `max_deliveries`.
        max_deliveries: Its own bound, 0 when the topic's counts.
        node, deadline, lease: Who holds it and until when, as of the last claim; "" and 0 when
            none does.
        not_before: When it becomes ready; 0 unless it is delayed.
        expires_at: Last ms of its life, by its own time to live or the topic's; 0: no end.
        data, tag, meta, key: JSON fragments; b"" when absent.
        error: The last error a worker gave with it, or None.
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


def state_of(topic: QueueTopic, seq: int) -> JobState:
    """The state of a live job, as of the last `elapse`."""
    queue = topic.queue
    job = queue.jobs.get(seq)
    if job is None:
        return "delayed" if queue.is_delayed(seq, topic.due_of(seq)) else "ready"
    if job.grant is not None:
        return "in_flight"
    if seq in queue.held:
        return "held"
    return "delayed" if job.ready_at else "ready"


def list_jobs(
    topic: QueueTopic,
    *,
    states: Collection[JobState] = (),
    match: Predicate | None = None,
    key: bytes | None = None,
    after: int = 0,
    limit: int,
    bytes_max: int = limits.JOBS_LISTED_BYTES_MAX,
    scanned_max: int | None = None,
    size: int = 0,
    with_data: bool = True,
) -> JobListing:
    """Jobs of a queue that pass all filters.

    Args:
        topic: A queue, read only.
        states: Only jobs in one of these; empty for all.
        match: Only jobs with such a tag.
        key: Only jobs with this key, a JSON string fragment.
        after: Only jobs with a higher seq.
        limit: Jobs at most.
        bytes_max: Data and meta at most; one job is always listed.
        scanned_max: Jobs looked at, at most; `JOBS_SCANNED_MAX` by default.
        size: Bytes that earlier steps of the same page have listed.
        with_data: False leaves data and meta out.
    """
    jobs: list[JobSummary] = []
    has_listed, scanned = size > 0, 0
    if scanned_max is None:
        scanned_max = limits.JOBS_SCANNED_MAX
    for seq in _candidates(topic, states, after):
        if len(jobs) == limit or scanned == scanned_max:
            return JobListing(jobs, after, scanned, size)
        scanned += 1
        before, after = after, seq
        if states and state_of(topic, seq) not in states:
            continue
        if key is not None and topic.key_of(seq)[0] != key:
            continue
        batch = topic.batch_of(seq)
        assert batch is not None
        if match is not None:
            # Before anything large is copied: nearly all that is passed over is.
            tag = BlockView(batch.block).text(TAG, batch.index_of(seq))
            if not match.matches_fragment(tag):
                continue
        added = batch.size_of(seq) if with_data else 0
        if size + added > bytes_max and (jobs or has_listed):
            # Over the bound, so that no further step of the page takes a smaller one.
            return JobListing(jobs, before, scanned, size + added)
        size += added
        jobs.append(_view(topic, seq, with_data=with_data))
    return JobListing(jobs, None, scanned, size)


def _candidates(topic: QueueTopic, states: Collection[JobState], after: int) -> Iterator[int]:
    """Live seqs behind one that may be in these states, ascending; few when few can be."""
    queue = topic.queue
    few = len(queue.held) if "in_flight" not in states else len(queue.jobs)
    # Sorting many takes longer than a look through as many as one page looks at.
    if states and {*states} <= {"held", "in_flight"} and few <= limits.JOBS_SCANNED_MAX:
        if "in_flight" not in states:
            return iter(sorted(seq for seq in queue.held if seq > after))
        return iter(sorted(s for s, job in queue.jobs.items() if s > after and job.live))
    return (seq for batch in topic.batches_from(after + 1) for seq in batch.live_seqs(after + 1))


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
    )


def describe_job(topic: QueueTopic, seq: int) -> JobSummary | None:
    """One job of a queue, or None when it does not exist."""
    return _view(topic, seq) if topic.holds(seq) else None
