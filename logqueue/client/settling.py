"""Calls that end or prolong leases, and what came of them per job.

Owns: seqs and lease ids out of jobs, requests of at most 1000 seqs, which seqs counted. Must not
know: how a call is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from logqueue.client.appending import NewRecord, new_key, new_record
from logqueue.client.calls import (
    Answer,
    Call,
    CallRequest,
    Endpoint,
    encode,
    given,
    read_shape,
    request,
)
from logqueue.client.endpoints import ACK_JOBS, EXTEND_LEASES, NACK_JOBS, REJECT_JOBS
from logqueue.client.topic_calls import ConfigFields
from logqueue.errors import InvalidRequest
from logqueue.shapes import Acked, Appended, Extended, Job, Nacked, Rejected

SEQS_PER_REQUEST = 1000
RESULTS_PER_REQUEST = 512 << 10
"""Bytes of results after which a further request begins: a body has 1 MiB at most."""

Jobs = Job | int | Iterable[Job | int]
"""A job, several, or their seqs. Jobs bring their lease ids along; bare seqs go by node alone."""

SettledReply = TypeVar("SettledReply", Acked, Nacked, Rejected)


@dataclass(frozen=True, slots=True)
class Settled:
    """What an ack, nack or reject did, by seq, in the order given.

    Attributes:
        counted: Settled by this call.
        skipped: Not, or no longer, leased to this caller: nothing was changed.
        unsure: Skipped, but a try before had lost its reply: it may have settled them.
        ready: Jobs that can be claimed now.
        in_flight: Jobs that are leased now.
        appended: Of an ack with `append`: what came of each write; empty when nothing was acked
            and nothing written, because some jobs were skipped. None of any other call.
    """

    queue: str
    counted: list[int]
    skipped: list[int]
    unsure: list[int]
    ready: int
    in_flight: int
    appended: list[Appended] | None = None


class FollowUp(msgspec.Struct, frozen=True):
    """What is written to a topic when jobs are acked.

    Attributes:
        records: Any JSON values, or `NewRecord`s.
        create: True makes an absent topic, a log; False never does, which is an error then. When
            not given, it is made if there is a `config`.
        config: For a topic that this makes.
    """

    topic: str
    records: Sequence[Any]
    create: bool | None = None
    config: ConfigFields | None = None


class _FollowUp(msgspec.Struct, omit_defaults=True):
    topic: str
    records: list[NewRecord]
    idempotency_key: str
    create: bool | None = None
    config: ConfigFields | None = None


def ack(
    queue: str,
    jobs: Jobs,
    *,
    node: str | None = None,
    results: Sequence[Any] | None = None,
    append: Iterable[FollowUp] | None = None,
    idempotency_key: str | None = None,
) -> Call[Settled]:
    """Finish jobs: they are done and deleted.

    With `append`, records are written in the same transaction: the jobs end and the records exist,
    or neither. If one of the jobs is no longer leased to the caller, nothing is acked and nothing
    written.

    Args:
        jobs: Jobs as claimed, so that a lease that meanwhile belongs to another holder is left
            alone; or seqs. With `append`, 1000 at most.
        node: Who holds the leases; the client's own name when not given.
        results: What each job came to, any JSON value, None for none: one for each of the jobs. A
            queue with the config `results` keeps them.
        append: What is written: up to 1000 records, to 32 topics at most.
        idempotency_key: By which a repeat of the very same call is recognized, up to 256 bytes;
            made when not given.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue, or no topic that is written to.
        TopicFull, RecordTooLarge, KeyConflict: A write is refused; the jobs stay leased.
        InvalidRequest: `append` with no jobs, or with more than one request takes; not one result
            for each job.
        RecordTooLarge: A result has more than 64 KiB; the jobs stay leased.
    """
    follow_ups = _follow_ups(append or (), idempotency_key or new_key())
    if not follow_ups:
        return _settle(ACK_JOBS, queue, jobs, given(node=node), results)
    members = {**given(node=node), "append": follow_ups}
    calls = _settle(ACK_JOBS, queue, jobs, members, results)
    if len(calls.requests) > 1:
        raise InvalidRequest(
            f"an ack with append is one request: give at most {SEQS_PER_REQUEST} jobs"
        )
    return calls


def _follow_ups(append: Iterable[FollowUp], key: str) -> list[_FollowUp]:
    """What is written to each topic, whatever the order in which it was given."""
    found: dict[str, _FollowUp] = {}
    for follow_up in append:
        known = found.setdefault(follow_up.topic, _FollowUp(follow_up.topic, [], key))
        known.records += map(new_record, follow_up.records)
        known.create = known.create or follow_up.create
        known.config = known.config or follow_up.config
    for write in found.values():
        if write.config is None:
            # A name that is mistyped must not become a log of its own.
            write.create = bool(write.create)
    return [*found.values()]


def nack(
    queue: str,
    jobs: Jobs,
    *,
    node: str | None = None,
    delay_ms: int | None = None,
    error: str | None = None,
    count: bool = True,
    last: bool = False,
) -> Call[Settled]:
    """Give jobs back, to be delivered again.

    Args:
        jobs: Jobs as claimed, or seqs.
        node: Who holds the leases; the client's own name when not given.
        delay_ms: Not before this long from now, up to 24 h. When not given, the queue's
            `retry_backoff` decides; without one they are ready at once.
        error: What went wrong, up to 4 KiB; kept as the job's `last_error`.
        count: False takes the delivery back: the handler never started.
        last: True has the work streams of this node get no more jobs; they keep what they hold.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
    """
    members = given(node=node, delay_ms=delay_ms, error=error, count=None if count else False)
    if last:
        members["last"] = True
    return _settle(NACK_JOBS, queue, jobs, members)


def reject(
    queue: str, jobs: Jobs, *, node: str | None = None, error: str | None = None
) -> Call[Settled]:
    """Fail jobs permanently: they become dead letters, or end as the queue's config says.

    Args:
        jobs: Jobs as claimed, or seqs.
        node: Who holds the leases; the client's own name when not given.
        error: What went wrong, up to 4 KiB.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
    """
    return _settle(REJECT_JOBS, queue, jobs, given(node=node, error=error))


def extend(
    queue: str,
    jobs: Jobs,
    lease_ms: int,
    *,
    node: str | None = None,
    progress: float | None = None,
    note: str | None = None,
) -> Call[Extended]:
    """Set the deadline of leases to `lease_ms` from now; that may also be earlier than before.

    Args:
        jobs: Jobs as claimed, or seqs.
        lease_ms: 100 to 86 400 000.
        node: Who holds the leases; the client's own name when not given.
        progress: How far the jobs are, 0 to 1; what was said before stays when not given.
        note: What to show beside it, up to 256 bytes; likewise.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
    """
    members = given(node=node, lease_ms=lease_ms, progress=progress, note=note)
    requests, _ = _requests(EXTEND_LEASES, queue, jobs, members)

    def read(answers: Sequence[Answer]) -> Extended:
        replies = [read_shape(answer, Extended) for answer in answers]
        return Extended(
            topic=queue,
            extended=sum(reply.extended for reply in replies),
            skipped=[seq for reply in replies for seq in reply.skipped],
            deadlines={seq: at for reply in replies for seq, at in reply.deadlines.items()},
            performance=replies[-1].performance,
        )

    return Call(requests, read)


def _settle(
    endpoint: Endpoint[SettledReply],
    queue: str,
    jobs: Jobs,
    members: dict[str, Any],
    results: Sequence[Any] | None = None,
) -> Call[Settled]:
    requests, sent = _requests(endpoint, queue, jobs, members, results)
    return Call(requests, _reader(queue, sent, endpoint.reply))


def _reader(
    queue: str, sent: list[list[int]], kind: type[SettledReply]
) -> Callable[[Sequence[Answer]], Settled]:
    def read(answers: Sequence[Answer]) -> Settled:
        counted: list[int] = []
        skipped: list[int] = []
        unsure: list[int] = []
        for seqs, answer in zip(sent, answers, strict=True):
            reply = read_shape(answer, kind)
            appended = getattr(reply, "appended", None)
            if appended != []:
                counted += _without(seqs, reply.skipped)
            (unsure if answer.is_unsure else skipped).extend(reply.skipped)
        return Settled(queue, counted, skipped, unsure, reply.ready, reply.in_flight, appended)

    return read


def _requests(
    endpoint: Endpoint[Any],
    queue: str,
    jobs: Jobs,
    members: dict[str, Any],
    results: Sequence[Any] | None = None,
) -> tuple[list[CallRequest], list[list[int]]]:
    """Requests for all jobs (one, if there are none), and the seqs that each one names.

    Raises:
        InvalidRequest: There is not one result for each job.
    """
    listed = [jobs] if isinstance(jobs, Job | int) else [*jobs]
    if results is not None and len(results) != len(listed):
        raise InvalidRequest(f"{len(results)} results for {len(listed)} jobs: give one for each")
    texts = None if results is None else [msgspec.Raw(encode(result)) for result in results]
    requests, sent = [], []
    for start, stop in _parts(len(listed), texts):
        part = listed[start:stop]
        seqs = [job.seq if isinstance(job, Job) else job for job in part]
        lease_ids = [job.lease_id if isinstance(job, Job) else "" for job in part]
        body = {**members, "seqs": seqs}
        if texts is not None:
            body["results"] = texts[start:stop]
        if any(lease_ids):
            body["lease_ids"] = lease_ids
        # By node alone, a second try could meet a lease that the node got since.
        requests.append(
            request(
                endpoint,
                queue,
                body=body,
                is_repeatable=all(lease_ids),
                is_signed=True,
            )
        )
        sent.append(seqs)
    return requests, sent


def _parts(count: int, results: Sequence[msgspec.Raw] | None) -> Iterator[tuple[int, int]]:
    """Where each request begins and ends among the jobs."""
    start = size = 0
    for at in range(count):
        added = len(bytes(results[at])) if results is not None else 0
        if at - start == SEQS_PER_REQUEST or (at > start and size + added > RESULTS_PER_REQUEST):
            yield start, at
            start, size = at, 0
        size += added
    yield start, count


def _without(seqs: list[int], skipped: list[int]) -> list[int]:
    """The seqs that counted; of a seq given twice, the first."""
    if not skipped:
        return seqs
    left = Counter(seqs)
    left.subtract(skipped)
    counted = []
    for seq in seqs:
        if left[seq] > 0:
            left[seq] -= 1
            counted.append(seq)
    return counted
