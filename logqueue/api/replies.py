"""The shapes of HTTP replies: what commands answered, as bytes.

Owns: the JSON of every reply and the frames of event streams. Must not know: how a request is read,
how a command is decided, routes, sockets. Records go out as joins of the slices that came in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import add
from typing import Any

import msgspec

from logqueue.core import commands as cmd
from logqueue.core.decide.claims import oldest_ready_ms
from logqueue.core.ended_jobs import EndedJob
from logqueue.core.job_status import STATE_OF, KnownJob
from logqueue.core.job_views import JobListing, JobSummary
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.reading import ReadPage
from logqueue.core.staging import ProducerState
from logqueue.core.topic import Topic
from logqueue.errors import HIDDEN, LogqueueError
from logqueue.model.config import RouterOptions, TopicOptions

_encode = msgspec.json.Encoder().encode


def encode(reply: Any) -> bytes:
    """Compact JSON of a reply built from plain values."""
    return _encode(reply)


def encode_error(error: LogqueueError) -> bytes:
    """The error envelope."""
    fields: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.detail is not None:
        fields["detail"] = error.detail
    return _encode({"error": fields})


def performance(began: float, further: bytes = b"") -> bytes:
    """The performance block of a reply to what began at this `time.perf_counter()`; see
    `further_timings`."""
    return b'{"server_total_ms":%.3f%b}' % ((time.perf_counter() - began) * 1000, further)


def further_timings(**timings: float) -> bytes:
    """More members of a performance block, in ms."""
    text = b""
    for name, ms in timings.items():
        text += b',"%b":%.3f' % (name.encode(), ms)
    return text


def encode_appended(
    topic: str,
    reply: cmd.AppendResult,
    return_seqs: bool,
    performance: bytes,
    no_seqs: bytes = b"",
) -> bytes:
    """The reply to a write; `no_seqs` is in the place of seqs that are not wanted."""
    first, count, head, created, deduped, fates = reply
    seqs, results = no_seqs, b""
    if fates is not None:
        results = b'"created_count":%d,"results":%b,' % (
            reply.created_count,
            _encode([{"seq": seq, "result": result} for seq, result in fates]),
        )
    if return_seqs and count == 1:
        seqs = b'"seqs":[%d],' % first
    elif return_seqs:
        all_seqs = range(first, first + count) if fates is None else [seq for seq, _ in fates]
        seqs = b'"seqs":%b,' % _encode([*all_seqs])
    return (
        b'{"topic":"%b","first_seq":%d,"last_seq":%d,%b"head_seq":%d,"count":%d,"created":%b,'
        b'%b"deduped":%b,"performance":%b}'
        % (
            topic.encode(),
            first,
            first + count - 1,
            seqs,
            head,
            count,
            b"true" if created else b"false",
            results,
            b"true" if deduped else b"false",
            performance,
        )
    )


def encode_ack(
    request_id: bytes,
    topic: str,
    reply: cmd.AppendResult,
    return_seqs: bool,
    performance: bytes,
) -> bytes:
    """The reply to a write over a WebSocket; `request_id` is JSON."""
    members = encode_appended(topic, reply, return_seqs, performance, b'"seqs":null,')
    return b'{"op":"ack","request_id":%b,%b' % (request_id, members[1:])


def encode_socket_error(request_id: bytes | None, code: str, message: str) -> bytes:
    """A refusal over a WebSocket; `request_id` is JSON, None when there can be none."""
    asked = b"" if request_id is None else b'"request_id":%b,' % request_id
    members = _encode({"code": code, "message": message})
    return b'{"op":"error",%b%b' % (asked, members[1:])


def _members_of(jobs: cmd.ClaimedJobs) -> list[bytes]:
    """The members of each of some claimed jobs, without the braces around them."""
    count = len(jobs.seqs)
    tags = repeat(b"", count) if jobs.tags is None else _named(b'"$tag"', jobs.tags)
    metas = repeat(b"", count) if jobs.metas is None else _named(b'"meta"', jobs.metas)
    fates: Iterable[bytes] = repeat(b"", count) if jobs.fates is None else map(_fate, jobs.fates)
    if jobs.groups is not None:
        fates = map(add, fates, _named(b'"group"', jobs.groups))
    if jobs.priorities is not None:
        fates = map(add, fates, [b',"priority":%d' % p if p else b"" for p in jobs.priorities])
    rows = zip(
        jobs.seqs, jobs.leases, jobs.times, tags, jobs.deliveries, fates, jobs.data, metas,
        strict=True,
    )  # fmt: skip
    form = (
        b'"$seq":%%d,"lease_id":"lease_%%x","deadline":%d,"$ts":%%d%%b,"deliveries":%%d%%b,'
        b'"data":%%b%%b' % jobs.deadline
    )
    return [*map(form.__mod__, rows)]


def _named(name: bytes, texts: list[bytes]) -> list[bytes]:
    return [b",%b:%b" % (name, text) if text else b"" for text in texts]


def _fate(job: cmd.JobFate | JobSummary) -> bytes:
    """The members of a job that most jobs do not have, each with a comma before it."""
    return b"%b%b%b%b%b" % (
        b',"$key":' + job.key if job.key else b"",
        b',"last_error":' + _encode(job.error) if job.error is not None else b"",
        b',"$updated_at":%d' % job.updated_at if job.updated_at else b"",
        b',"given_back":%d' % job.given_back if job.given_back else b"",
        b"," + job.follow[1:-1] if job.follow else b"",
    )


def encode_claimed(
    topic: str, jobs: cmd.ClaimedJobs, claimed: cmd.ClaimResult, performance: bytes
) -> bytes:
    """The reply to a claim. An empty one says why it is, and when that may change."""
    why = b""
    count = len(jobs.seqs)
    if not count and claimed.reason is not None:
        why = b',"reason":"%b"' % claimed.reason.encode()
        if claimed.retry_after_ms is not None:
            why += b',"retry_after_ms":%d' % claimed.retry_after_ms
    return b'{"topic":"%b","claimed":[%b],"count":%d,"ready":%d%b,"performance":%b}' % (
        topic.encode(),
        b"{%b}" % b"},{".join(_members_of(jobs)) if count else b"",
        count,
        claimed.ready,
        why,
        performance,
    )


def encode_job_frames(topic: str, jobs: cmd.ClaimedJobs) -> bytes:
    """Server-sent events for jobs pushed over a work stream."""
    head = b'event: job\ndata: {"topic":"%b",' % topic.encode()
    members = zip(jobs.seqs, _members_of(jobs), strict=True)
    return b"".join([b"id: %d\n%b%b}\n\n" % (seq, head, text) for seq, text in members])


def encode_settled(topic: str, verb: str, reply: cmd.SettleResult, performance: bytes) -> bytes:
    """The reply to an ack, nack or reject; `verb` is the counting member's name."""
    return b'{"topic":"%b","%b":%d,"skipped":%b,"ready":%d,"in_flight":%d,"performance":%b}' % (
        topic.encode(),
        verb.encode(),
        reply.settled,
        _encode(reply.skipped),
        reply.ready,
        reply.in_flight,
        performance,
    )


def encode_acked(
    topic: str, reply: cmd.SettleResult, topics: Sequence[str], performance: bytes
) -> bytes:
    """The reply to an ack that writes to these topics."""
    appended = [
        _appended_members(name, written)
        for name, written in zip(topics, reply.appended or (), strict=False)
    ]
    settled = encode_settled(topic, "acked", reply, performance)
    return b'%b,"appended":%b}' % (settled[:-1], _encode(appended))


def _appended_members(topic: str, reply: cmd.AppendResult) -> dict[str, Any]:
    fates = reply.results
    every = range(reply.first_seq, reply.first_seq + reply.records)
    members: dict[str, Any] = {
        "topic": topic,
        "first_seq": reply.first_seq,
        "last_seq": reply.last_seq,
        "seqs": [*every] if fates is None else [seq for seq, _ in fates],
        "head_seq": reply.head_seq,
        "count": reply.records,
        "created": reply.created,
        "deduped": reply.deduped,
    }
    if fates is not None:
        members["created_count"] = reply.created_count
        members["results"] = [{"seq": seq, "result": result} for seq, result in fates]
    return members


def encode_extended(topic: str, reply: cmd.ExtendResult, performance: bytes) -> bytes:
    """The reply to an extend."""
    return b'{"topic":"%b","extended":%d,"skipped":%b,"deadlines":%b,"performance":%b}' % (
        topic.encode(),
        len(reply.seqs),
        _encode(reply.skipped),
        _encode({str(seq): reply.deadline for seq in reply.seqs}),
        performance,
    )


def config_members(
    config: TopicOptions, allows: Callable[[str], bool] = lambda name: True
) -> dict[str, Any]:
    """The config object as replies show it to a caller who may read some names only."""
    members = config.members
    for field in ("dead_letter", "archive"):
        if members[field] is not None and not allows(members[field]):
            members[field] = HIDDEN
    if config.sqs is not None:
        sources = tuple(name if allows(name) else HIDDEN for name in config.sqs.redrive_sources)
        members["sqs"] = msgspec.structs.replace(config.sqs, redrive_sources=sources)
    return members


def topic_state(topic: Topic, now: int, allows: Callable[[str], bool]) -> dict[str, Any]:
    """The state of a topic as `GET /v0/topics/:topic` shows it to who may read some names only."""
    state: dict[str, Any] = {
        "topic": topic.name,
        "type": topic.config.type,
        "head_seq": topic.head,
        "earliest_seq": topic.earliest_seq,
        "next_seq": topic.head + 1,
        "count": topic.live,
        "bytes": topic.live_bytes,
        "config": config_members(topic.config, allows),
        "config_version": topic.config.version,
        "effective_priority": topic.effective_priority(now),
        "last_write_ts": topic.last_write_at or None,
        "last_read_ts": topic.last_read_at or None,
    }
    counters = queue_counters(topic, now)
    if counters is not None:
        state["queue"] = counters
    return state


def topic_stats(topic: Topic, now: int, **more: Any) -> dict[str, Any]:
    """The counters of a topic, with more members before those of its jobs."""
    stats: dict[str, Any] = {
        "topic": topic.name,
        "type": topic.config.type,
        "head_seq": topic.head,
        "earliest_seq": topic.earliest_seq,
        "count": topic.live,
        "bytes": topic.live_bytes,
        **more,
    }
    counters = queue_counters(topic, now)
    if counters is not None:
        stats["queue"] = counters
    return stats


def topic_entry(topic: Topic, now: int) -> dict[str, Any]:
    """A topic as the list shows it."""
    priority = topic.effective_priority(now)
    return topic_stats(topic, now, durable=topic.config.durable, effective_priority=priority)


def queue_counters(topic: Topic, now: int) -> dict[str, int | bool] | None:
    """The queue sub-object, None for logs."""
    if not isinstance(topic, QueueTopic):
        return None
    queue = topic.queue
    return {
        "ready": topic.ready,
        "in_flight": queue.leased,
        "delayed": len(queue.delayed),
        "held": len(queue.held),
        "acked": queue.finished.get("acked", 0),
        "rejected": queue.finished.get("rejected", 0),
        "expired": queue.finished.get("expired", 0),
        "dropped": queue.finished.get("dropped", 0),
        "superseded": queue.finished.get("superseded", 0),
        "cancelled": queue.finished.get("cancelled", 0),
        "dead_lettered": queue.dead_lettered,
        "paused": topic.config.paused,
        "oldest_ready_ms": oldest_ready_ms(topic, now),
    }


def encode_page(topic: str, page: ReadPage, records: bytes, performance: bytes) -> bytes:
    """The reply to a diff; `records` are the page's, as JSON objects separated by commas."""
    front, back = page_around(topic, page, performance)
    return b"%b%b%b" % (front, records, back)


def page_around(topic: str, page: ReadPage, performance: bytes) -> tuple[bytes, bytes]:
    """What the reply to a diff says before and behind the records."""
    at = page.next_from_seq
    front = b'{"topic":"%b","records":[' % topic.encode()
    back = (
        b'],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,'
        b'"caught_up":%b,"tombstone":%b,"lag":%d,"performance":%b,"records_scanned":%d}}'
        % (
            at,
            page.head_seq,
            page.earliest_seq,
            b"true" if at == page.head_seq else b"false",
            _encode(page.tombstone._asdict()) if page.tombstone is not None else b"null",
            page.head_seq - at,
            performance[:-1],
            page.scanned,
        )
    )
    return front, back


def router_members(name: str, source: str, dest: str, options: RouterOptions) -> dict[str, Any]:
    """A router as the replies to PUT and GET show it."""
    return {
        "router": name,
        "source": source,
        "dest": dest,
        "preserve_node": options.preserve_node,
        "preserve_tag": options.preserve_tag,
        "filter": options.filter.canonical() if options.filter is not None else None,
        "allow_cycle": options.allow_cycle,
        "guarantee": options.guarantee,
    }


def staged_members(producer: str, epoch: int, reply: cmd.StageResult) -> dict[str, Any]:
    """What staging a chunk came to."""
    return {
        "producer": producer,
        "epoch": epoch,
        "status": "staged" if reply.is_new else "already",
        "staged_bytes": reply.staged_bytes,
    }


def committed_members(producer: str, epoch: int, reply: cmd.CommitResult) -> dict[str, Any]:
    """What committing an epoch came to."""
    topics = [
        {"topic": topic, "first_seq": first, "last_seq": last, "count": last - first + 1}
        for topic, first, last in reply.ranges
    ]
    status = "committed" if reply.is_new else "already"
    return {"producer": producer, "epoch": epoch, "status": status, "topics": topics}


def aborted_members(producer: str, epoch: int, reply: cmd.AbortResult) -> dict[str, Any]:
    """What aborting an epoch came to."""
    return {
        "producer": producer,
        "epoch": epoch,
        "status": "committed" if reply.is_committed else "aborted",
        "staged_bytes": reply.staged_bytes,
    }


def producer_members(producer: ProducerState) -> dict[str, Any]:
    """A producer as `GET /v0/producers/:producer` shows it."""
    return {
        "producer": producer.name,
        "last_epoch": producer.committed.number if producer.committed is not None else None,
        "staged": {
            # The chunks of a deleted topic go, their epochs stay behind without any.
            "epochs": sorted(number for number, chunks in producer.staged.items() if chunks),
            "bytes": producer.staged_bytes,
        },
    }


def _job_view(job: JobSummary, now: int, *, data: bool) -> bytes:
    """One job as an operator sees it."""
    members = [
        b'"$seq":%d,"$ts":%d%b,"state":"%b","deliveries":%d%b'
        % (
            job.seq,
            job.ts,
            b',"$tag":' + job.tag if job.tag else b"",
            job.state.encode(),
            job.deliveries,
            _fate(job),
        ),
        b'"age_ms":%d' % max(now - job.ts, 0),
    ]
    if job.state == "in_flight":
        members.append(b'"node":%b,"deadline":%d' % (_encode(job.node), job.deadline))
    if job.progress is not None:
        members.append(b'"progress":%b' % _encode(job.progress))
    if job.note:
        members.append(b'"note":%b' % _encode(job.note))
    for name, number in (
        (b"priority", job.priority),
        (b"max_deliveries", job.max_deliveries),
        (b"not_before", job.not_before),
        (b"expires_at", job.expires_at),
    ):
        if number:
            members.append(b'"%b":%d' % (name, number))
    if job.group:
        members.append(b'"group":' + job.group)
    if data:
        members.append(b'"data":' + job.data)
        if job.meta:
            members.append(b'"meta":' + job.meta)
    return b"{%b}" % b",".join(members)


def job_views(jobs: Sequence[JobSummary], now: int, data: bool) -> bytes:
    """Jobs of a page, as JSON objects separated by commas."""
    return b",".join([_job_view(job, now, data=data) for job in jobs])


def encode_jobs(
    topic: str,
    page: JobListing,
    now: int,
    data: bool,
    performance: bytes,
    earlier: Sequence[bytes] = (),
) -> bytes:
    """A page of jobs; `earlier` has the `job_views` of those in front of it."""
    views = [*earlier, job_views(page.jobs, now, data)] if page.jobs else earlier
    following = b"" if page.next_after is None else b'"next_after":%d,' % page.next_after
    return b'{"topic":"%b","jobs":[%b],%b"scanned":%d,"performance":%b}' % (
        topic.encode(),
        b",".join(views),
        following,
        page.scanned,
        performance,
    )


def encode_job_history(topic: str, members: dict[str, Any], now: int, performance: bytes) -> bytes:
    """One job with what is known of its life, oldest first.

    Args:
        topic: Its queue.
        members: What the reply says beside its name; the job as a summary, or as an object when it
            has ended.
        now: The clock.
        performance: See `performance`.
    """
    job = members["job"]
    rest = {name: value for name, value in members.items() if name != "job"}
    return b'{"topic":"%b","job":%b,%b,"performance":%b}' % (
        topic.encode(),
        _job_view(job, now, data=bool(job.data)) if isinstance(job, JobSummary) else _encode(job),
        _encode(rest)[1:-1],
        performance,
    )


def ended_members(seq: int, ended: EndedJob | None) -> dict[str, Any]:
    """A job that has ended, as far as that is kept."""
    if ended is None:
        return {"$seq": seq, "state": "gone"}
    members: dict[str, Any] = {
        "$seq": seq,
        "state": STATE_OF[ended.outcome],
        "outcome": ended.outcome,
        "ended_at": ended.at,
    }
    if ended.node:
        members["node"] = ended.node
    if ended.reason:
        members["reason"] = ended.reason
    if ended.result:
        members["result"] = msgspec.Raw(ended.result)
    if ended.error is not None:
        members["error"] = ended.error
    return members


def job_status_member(seq: int, status: KnownJob | None, now: int) -> bytes:
    """What a job is or has become; None when there has never been one."""
    if status is None:
        return b'{"$seq":%d,"state":"unknown"}' % seq
    if status.live is not None:
        return _job_view(status.live, now, data=False)
    return _encode(ended_members(seq, status.ended))


def encode_job_statuses(
    topic: str, statuses: Sequence[bytes], rest: Sequence[int], performance: bytes
) -> bytes:
    """What some jobs are or have become; `rest` are those that found no room."""
    left = b'"rest":%b,' % _encode(rest) if rest else b""
    return b'{"topic":"%b","jobs":[%b],%b"performance":%b}' % (
        topic.encode(),
        b",".join(statuses),
        left,
        performance,
    )


def raw(fragment: bytes) -> msgspec.Raw:
    """A fragment of JSON as a member of what is encoded."""
    return msgspec.Raw(fragment)


def shown_name(topic: str | None, allows: Callable[[str], bool]) -> str:
    """The name of a topic, as it is shown to who may read some names only."""
    return topic if topic is not None and allows(topic) else HIDDEN
