"""Calls about queues: claiming, reading jobs, administering them.

Owns: their parameters and what they mean. Must not know: how a call is made. Settling is next door.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import UNSET

from logqueue.client.calls import Answer, Call, Listing, call, given, read_shape, request
from logqueue.client.endpoints import (
    CANCEL_JOB,
    CANCEL_KEY,
    CHANGE_JOBS,
    CLAIM_JOBS,
    GET_JOB,
    GET_JOB_STATUSES,
    LIST_GROUPS,
    LIST_JOBS,
    LIST_WORKERS,
    PAUSE_QUEUE,
    PURGE_JOBS,
    REDRIVE_JOBS,
    RELEASE_JOBS,
    RESUME_QUEUE,
)
from logqueue.client.topic_calls import Match
from logqueue.shapes import (
    BackgroundReply,
    Cancelled,
    Claimed,
    DeadLetterReason,
    GroupList,
    JobAction,
    JobHistory,
    JobPage,
    JobState,
    JobStatuses,
    JobView,
    Paused,
    Purged,
    Redriven,
    Released,
    WorkerList,
    WorkerView,
)

JOBS_PER_PAGE = 100
CHANGE_WAIT_MS = 30_000


def claim(
    queue: str,
    *,
    node: str | None = None,
    max: int = 1,
    lease_ms: int | None = None,
    wait_ms: int | None = None,
) -> Call[Claimed]:
    """Lease jobs. An empty result is not an error; it says why where the server knows.

    Never repeated after a lost reply: jobs it may have leased come back when the lease ends.

    Args:
        node: Who will hold the leases, 1 to 128 bytes; the client's own name when not given.
        max: Jobs at most, up to 1000.
        lease_ms: How long, 100 to 86 400 000; the queue's `lease_ms` when not given.
        wait_ms: How long to wait for a job when there is none, up to 30 000.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
        LostReply: No reply came; jobs may have been leased.
    """
    return call(
        CLAIM_JOBS,
        queue,
        body=given(node=node, max=max, lease_ms=lease_ms, wait_ms=wait_ms),
        is_repeatable=False,
        is_signed=True,
        wait_ms=wait_ms or 0,
    )


# -- reading -------------------------------------------------------------------------------------


def job_page(
    queue: str,
    *,
    state: JobState | Iterable[JobState] | None = None,
    tag: str | None = None,
    key: str | None = None,
    node: str | None = None,
    min_age_ms: int | None = None,
    max_age_ms: int | None = None,
    min_deliveries: int | None = None,
    text: str | None = None,
    priority: int | None = None,
    group: str | None = None,
    after: int | None = None,
    limit: int | None = None,
    data: bool = True,
) -> Call[JobPage]:
    """One page of a queue's jobs, ascending by seq; reading leases nothing.

    Args:
        state: Only jobs in this state, or in one of these.
        tag: Only jobs with this tag, or with this prefix when written `abc*`.
        key: Only jobs with this key.
        node: Only jobs that this node holds under a lease.
        min_age_ms, max_age_ms: Only jobs written at least, or at most, so long ago.
        min_deliveries: Only jobs delivered at least so often.
        text: Only jobs with this text in their data, tag, key or last error.
        priority: Only jobs with this priority.
        group: Only jobs of this group.
        after: Only jobs with a higher seq.
        limit: Jobs at most, up to 1000; 100 when not given.
        data: False leaves payloads out.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
    """
    query = given(
        state=state if state is None or isinstance(state, str) else ",".join(state),
        tag=tag,
        key=key,
        node=node,
        min_age_ms=min_age_ms,
        max_age_ms=max_age_ms,
        min_deliveries=min_deliveries,
        text=text,
        priority=priority,
        group=group,
        after=after,
        limit=limit,
        data=None if data else False,
    )
    return call(LIST_JOBS, queue, query=query)


def jobs(
    queue: str,
    *,
    state: JobState | Iterable[JobState] | None = None,
    tag: str | None = None,
    key: str | None = None,
    node: str | None = None,
    min_age_ms: int | None = None,
    max_age_ms: int | None = None,
    min_deliveries: int | None = None,
    text: str | None = None,
    priority: int | None = None,
    group: str | None = None,
    after: int | None = None,
    data: bool = True,
) -> Listing[JobView]:
    """A queue's jobs, ascending by seq, page by page; see `job_page`."""

    def ask(at: int | None) -> Call[JobPage]:
        return job_page(
            queue,
            state=state,
            tag=tag,
            key=key,
            node=node,
            min_age_ms=min_age_ms,
            max_age_ms=max_age_ms,
            min_deliveries=min_deliveries,
            text=text,
            priority=priority,
            group=group,
            after=at,
            limit=JOBS_PER_PAGE,
            data=data,
        )

    def turn(page: JobPage) -> tuple[list[JobView], Call[JobPage] | None]:
        return page.jobs, ask(page.next_after) if page.next_after is not None else None

    return Listing(ask(after), turn)


def job(
    queue: str, seq: int, *, ended: bool = False, wait_ms: int | None = None
) -> Call[JobHistory]:
    """One job, with its history as far as the server still knows it; of a queue that keeps
    `results` also what became of it.

    Args:
        ended: Whether a job that has ended is looked up in the logs.
        wait_ms: How long to wait for the end of the job, up to 30 000.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
        NotFound: There is no such job; with `ended`, the logs know of none; in a queue that keeps
            results, there has never been one.
    """
    query = given(ended=True if ended else None, wait_ms=wait_ms)
    return call(GET_JOB, queue, str(seq), query=query, wait_ms=wait_ms or 0)


def job_statuses(
    queue: str,
    seqs: Iterable[int],
    *,
    wait_ms: int | None = None,
    until: Literal["all", "any"] | None = None,
) -> Call[JobStatuses]:
    """What jobs are or have become, in the order of their seqs as given.

    Args:
        seqs: Up to 1000. Those that find no room in the reply are in its `rest`.
        wait_ms: How long to wait for their ends, up to 30 000.
        until: Wait until "all" of them have ended, which is the default, or "any".

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
        BatchTooLarge: There are too many seqs.
    """
    body = {"seqs": [*map(int, seqs)], **given(wait_ms=wait_ms, until=until)}
    return call(GET_JOB_STATUSES, queue, body=body, wait_ms=wait_ms or 0)


def groups(
    queue: str, *, order: Literal["backlog", "age"] = "backlog", limit: int | None = None
) -> Call[GroupList]:
    """The groups of a queue with the most waiting jobs, or with the oldest.

    Args:
        order: Which come first.
        limit: Groups at most, up to 1000; 20 when not given.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
    """
    return call(LIST_GROUPS, queue, query=given(order=order, limit=limit))


def workers(queue: str) -> Call[list[WorkerView]]:
    """The nodes that work on a queue: what they hold, what they did, when they were last seen.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
    """

    def read(answers: Sequence[Answer]) -> list[WorkerView]:
        return read_shape(answers[0], WorkerList).workers

    return Call((request(LIST_WORKERS, queue),), read)


# -- job administration --------------------------------------------------------------------------


def change_jobs(
    queue: str,
    action: JobAction,
    *,
    state: JobState | Iterable[JobState] | None = None,
    tag: str | None = None,
    key: str | None = None,
    node: str | None = None,
    min_age_ms: int | None = None,
    max_age_ms: int | None = None,
    min_deliveries: int | None = None,
    text: str | None = None,
    priority: int | None = None,
    group: str | None = None,
    seqs: Iterable[int] | None = None,
    before_seq: int | None = None,
    operation: str | None = None,
    delay_ms: int | None = None,
    new_priority: int | None = None,
    force: bool = False,
    limit: int | None = None,
    rate_per_s: int | None = None,
    dry_run: bool = False,
    wait: bool = False,
) -> Call[BackgroundReply]:
    """Change all jobs that a filter selects, as a background operation of the server; follow it
    with `operation`. Jobs written after its start are not selected.

    Args:
        action: "retry": delayed and held jobs are claimable now, held ones with their deliveries
            reset. "delay": ready and delayed jobs are claimable after `delay_ms`. "hold": they are
            not claimable until released. "release": held jobs are ready, with their deliveries
            reset. "cancel": waiting and held jobs are removed. "return": leases end, and their jobs
            are claimable now. "prioritize": waiting and held jobs have `new_priority` from now on.
        state, tag, key, node, min_age_ms, max_age_ms, min_deliveries, text, group: Which jobs,
            as for `job_page`; all when none is given.
        seqs: Only these, up to 10 000.
        before_seq: Only jobs with a lower seq.
        operation: Only the jobs that this operation has changed: its `undo` names the action.
        delay_ms: Of "delay", up to a year.
        new_priority: Of "prioritize", 0 to 9.
        force: "cancel" also jobs in flight.
        limit: How many at most.
        rate_per_s: How many per second at most.
        dry_run: Count, and change nothing.
        wait: Reply when it is over, or after 30 s.

    Raises:
        InvalidRequest: The action does not apply to the states.
        TopicNotFound, NotAQueue: There is no such queue.
        NotFound: The operation is not known, or not any longer.
        Throttled: Too many operations are running.
    """
    wanted = given(
        state=state if state is None or isinstance(state, str) else [*state],
        tag=tag,
        key=key,
        node=node,
        min_age_ms=min_age_ms,
        max_age_ms=max_age_ms,
        min_deliveries=min_deliveries,
        text=text,
        priority=priority,
        group=group,
        seqs=None if seqs is None else [*seqs],
        before_seq=before_seq,
        operation=operation,
    )
    body = given(
        action=action,
        delay_ms=delay_ms,
        priority=new_priority,
        force=True if force else None,
        limit=limit,
        rate_per_s=rate_per_s,
        dry_run=True if dry_run else None,
        wait=True if wait else None,
    )
    # A second try would be a second operation.
    return call(
        CHANGE_JOBS,
        queue,
        body={**body, "filter": wanted},
        is_repeatable=dry_run,
        wait_ms=CHANGE_WAIT_MS if wait else 0,
    )


def cancel(queue: str, seq: int, *, force: bool = False) -> Call[Cancelled]:
    """Cancel a waiting or held job.

    Args:
        force: Also one in flight: its lease is void, its worker's settle will be skipped.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
    """
    return call(CANCEL_JOB, queue, str(seq), query=given(force=True if force else None))


def cancel_key(queue: str, key: str) -> Call[Cancelled]:
    """Cancel the waiting job with this key.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
    """
    # By key, a second try could meet a job that was written since.
    return call(CANCEL_KEY, queue, key, is_repeatable=False)


def purge(queue: str, states: Iterable[JobState]) -> Call[Purged]:
    """Remove every job that is in one of these states now.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
    """
    return call(PURGE_JOBS, queue, body={"states": [*states]}, is_repeatable=False)


def release(queue: str, seqs: int | Iterable[int]) -> Call[Released]:
    """Make held jobs ready again, as if never delivered.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
    """
    body = {"seqs": [seqs] if isinstance(seqs, int) else [*seqs]}
    return call(RELEASE_JOBS, queue, body=body)


def redrive(
    topic: str,
    *,
    to: str | None = None,
    seqs: Iterable[int] | None = None,
    match: Match | None = None,
    before_seq: int | None = None,
    reason: DeadLetterReason | None = None,
    origin: str | None = None,
    error: str | None = None,
    data: Any = UNSET,
    limit: int | None = None,
    dry_run: bool = False,
) -> Call[Redriven]:
    """Move dead letters back to the queue each came from, with deliveries reset.

    Args:
        topic: The dead-letter topic.
        to: Another queue to move them to.
        seqs: Only these.
        match: Only those with this tag.
        before_seq: Only those with a lower seq.
        reason: Only those with this `$dead_letter_reason`.
        origin: Only those from this queue.
        error: Only those with this error, or this pattern of errors, as `dead_letters` shows it;
            "" for those without an error.
        data: New data for the one letter that `seqs` names.
        limit: How many at most, up to 10 000; 1000 when not given.
        dry_run: Count, and move nothing.

    Raises:
        TopicNotFound: There is no such topic.
    """
    body = given(
        to=to,
        seqs=None if seqs is None else [*seqs],
        match=match,
        before_seq=before_seq,
        reason=reason,
        error=error,
        limit=limit,
        dry_run=True if dry_run else None,
    )
    if origin is not None:
        body["from"] = origin
    if data is not UNSET:
        body["data"] = data
    # A second try moves none twice, but would go on where the first one's limit stopped it.
    return call(REDRIVE_JOBS, topic, body=body, is_repeatable=dry_run or seqs is not None)


def pause(queue: str) -> Call[Paused]:
    """Hand out no more jobs; leases that run and writes go on.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
    """
    return call(PAUSE_QUEUE, queue, body={})


def resume(queue: str) -> Call[Paused]:
    """Hand out jobs again.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
    """
    return call(RESUME_QUEUE, queue, body={})
