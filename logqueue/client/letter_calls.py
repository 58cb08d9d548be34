"""Calls about dead letters in groups, and the edit of one job.

Owns: their parameters and what they mean. Must not know: how a call is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from logqueue.client.calls import Call, call, given, reading, request
from logqueue.client.endpoints import (
    DROP_DEAD_LETTERS,
    EDIT_JOB,
    LIST_DEAD_LETTERS,
    REDRIVE_JOBS,
)
from logqueue.client.topic_calls import Match
from logqueue.shapes import BackgroundReply, DeadLetterGroups, DeadLetterReason, JobEdited


def edit_job(
    queue: str,
    seq: int,
    *,
    data: Any = UNSET,
    tag: str | Any | None = UNSET,
    meta: Any = UNSET,
    retry: bool = False,
    priority: int | None = None,
) -> Call[JobEdited]:
    """Give a waiting or held job other content; it keeps its seq, key and deliveries.

    Args:
        data, tag, meta: What is given is replaced; None as `tag` or `meta` removes it.
        retry: Make it ready now: a delay ends, a hold is released.
        priority: 0 to 9; a higher one goes first.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
        NotFound: There is no such job.
        JobInFlight: It is leased.
    """
    body: dict[str, Any] = {"retry": True} if retry else {}
    for name, value in (("data", data), ("tag", tag), ("meta", meta)):
        if value is not UNSET:
            body[name] = value
    if priority is not None:
        body["priority"] = priority
    return call(EDIT_JOB, queue, str(seq), body=body)


def dead_letters(
    topic: str | None = None, *, origin: str | None = None, limit: int | None = None
) -> Call[DeadLetterGroups]:
    """Dead letters in groups: by queue, reason and kind of error.

    Args:
        topic: Only this dead-letter topic; all that are one when not given.
        origin: Only letters of this queue.
        limit: Groups at most, up to 500; 100 when not given.

    Raises:
        TopicNotFound: There is no such topic.
    """
    query = given(topic=topic, limit=limit)
    if origin is not None:
        query["from"] = origin
    return call(LIST_DEAD_LETTERS, query=query)


def redrive_in_background(
    topic: str,
    *,
    to: str | None = None,
    seqs: Iterable[int] | None = None,
    match: Match | None = None,
    before_seq: int | None = None,
    reason: DeadLetterReason | None = None,
    origin: str | None = None,
    error: str | None = None,
    limit: int | None = None,
    rate_per_s: int | None = None,
    dry_run: bool = False,
    wait: bool = False,
) -> Call[BackgroundReply]:
    """Move dead letters back as a background operation; see `redrive`.

    Args:
        limit: How many at most; all when not given.
        rate_per_s: How many per second at most.
        wait: Reply when it is over, or after 30 s.

    Raises:
        TopicNotFound: There is no such topic.
        Throttled: Too many operations are running.
    """
    body = _letters(seqs, match, before_seq, reason, origin, error, limit, rate_per_s, dry_run)
    if to is not None:
        body["to"] = to
    body["wait"] = wait
    redrive = request(REDRIVE_JOBS, topic, body=body, is_repeatable=False)
    return reading(redrive, BackgroundReply)


def drop_dead_letters(
    topic: str,
    *,
    seqs: Iterable[int] | None = None,
    match: Match | None = None,
    before_seq: int | None = None,
    reason: DeadLetterReason | None = None,
    origin: str | None = None,
    error: str | None = None,
    limit: int | None = None,
    rate_per_s: int | None = None,
    dry_run: bool = False,
    wait: bool = True,
) -> Call[BackgroundReply]:
    """Delete dead letters, as a background operation. Filters as of `redrive`.

    Args:
        limit: How many at most; all when not given.
        rate_per_s: How many per second at most.
        dry_run: Count, and delete nothing.
        wait: Reply when it is over, or after 30 s.

    Raises:
        TopicNotFound: There is no such topic.
        Throttled: Too many operations are running.
    """
    body = _letters(seqs, match, before_seq, reason, origin, error, limit, rate_per_s, dry_run)
    body["wait"] = wait
    return call(DROP_DEAD_LETTERS, topic, body=body, is_repeatable=False)


def _letters(
    seqs: Iterable[int] | None,
    match: Match | None,
    before_seq: int | None,
    reason: DeadLetterReason | None,
    origin: str | None,
    error: str | None,
    limit: int | None,
    rate_per_s: int | None,
    dry_run: bool,
) -> dict[str, Any]:
    body = given(
        seqs=None if seqs is None else [*seqs],
        match=match,
        before_seq=before_seq,
        reason=reason,
        error=error,
        limit=limit,
        rate_per_s=rate_per_s,
        dry_run=True if dry_run else None,
    )
    if origin is not None:
        body["from"] = origin
    return body
