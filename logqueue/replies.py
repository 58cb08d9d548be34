"""The shapes of HTTP replies: what commands answered, as bytes.

Owns: the JSON of every reply and the frames of event streams. Must not know: how a request is read,
how a command is decided, routes, sockets. Records go out as joins of the slices that came in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from logqueue.core import commands as cmd
from logqueue.core.batch import Record
from logqueue.core.config import TopicConfig
from logqueue.core.reading import Page
from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError

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


def encode_appended(
    topic: str, reply: cmd.Appended, return_seqs: bool, timings: dict[str, float]
) -> bytes:
    """The reply to a write."""
    last_seq = reply.first_seq + reply.records - 1
    seqs = b""
    if return_seqs:
        seqs = b'"seqs":%b,' % _encode([*range(reply.first_seq, last_seq + 1)])
    return (
        b'{"topic":"%b","first_seq":%d,"last_seq":%d,%b"head_seq":%d,"count":%d,"created":%b,'
        b'"deduped":%b,"performance":%b}'
        % (
            topic.encode(),
            reply.first_seq,
            last_seq,
            seqs,
            reply.head_seq,
            reply.records,
            b"true" if reply.created else b"false",
            b"true" if reply.deduped else b"false",
            _timings(timings),
        )
    )


def _timings(timings: dict[str, float]) -> bytes:
    return b"{" + b",".join([b'"%b":%.3f' % (k.encode(), v) for k, v in timings.items()]) + b"}"


def encode_job(job: cmd.Job) -> bytes:
    """The members of one claimed job, without the braces around them."""
    return (
        b'"$seq":%d,"lease_id":"lease_%x","deadline":%d,"$ts":%d%b,"deliveries":%d,"data":%b%b'
        % (
            job.seq,
            job.lease,
            job.deadline,
            job.ts,
            b',"$tag":' + job.tag if job.tag else b"",
            job.deliveries,
            job.data,
            b',"meta":' + job.meta if job.meta else b"",
        )
    )


def encode_claimed(
    topic: str, jobs: Sequence[cmd.Job], ready: int, timings: dict[str, float]
) -> bytes:
    """The reply to a claim."""
    return b'{"topic":"%b","claimed":[%b],"count":%d,"ready":%d,"performance":%b}' % (
        topic.encode(),
        b",".join([b"{" + encode_job(job) + b"}" for job in jobs]),
        len(jobs),
        ready,
        _timings(timings),
    )


def encode_job_frames(topic: str, jobs: Iterable[cmd.Job]) -> bytes:
    """Server-sent events for jobs pushed over a work stream."""
    head = b'event: job\ndata: {"topic":"%b",' % topic.encode()
    return b"".join([b"id: %d\n%b%b}\n\n" % (job.seq, head, encode_job(job)) for job in jobs])


def encode_settled(topic: str, verb: str, reply: cmd.Settled, timings: dict[str, float]) -> bytes:
    """The reply to an ack or nack; `verb` is the counting member's name."""
    return b'{"topic":"%b","%b":%d,"skipped":%b,"ready":%d,"in_flight":%d,"performance":%b}' % (
        topic.encode(),
        verb.encode(),
        reply.settled,
        _encode(reply.skipped),
        reply.ready,
        reply.in_flight,
        _timings(timings),
    )


def encode_extended(topic: str, reply: cmd.Extended, timings: dict[str, float]) -> bytes:
    """The reply to an extend."""
    return b'{"topic":"%b","extended":%d,"skipped":%b,"deadlines":%b,"performance":%b}' % (
        topic.encode(),
        len(reply.seqs),
        _encode(reply.skipped),
        _encode({str(seq): reply.deadline for seq in reply.seqs}),
        _timings(timings),
    )


def encode_record(record: Record, include_tags: bool, include_meta: bool) -> bytes:
    """One record as diff shows it."""
    seq, ts, (data, tag, node, meta) = record
    return b'{"$seq":%d,"$ts":%d%b%b,"data":%b%b}' % (
        seq,
        ts,
        b',"$node":' + node if node else b"",
        b',"$tag":' + tag if tag and include_tags else b"",
        data,
        b',"meta":' + meta if meta and include_meta else b"",
    )


def config_members(config: TopicConfig) -> dict[str, Any]:
    """The config object as replies show it."""
    return msgspec.structs.asdict(config)


def topic_state(topic: Topic, now: int) -> dict[str, Any]:
    """The state of a topic as `GET /v0/topics/:topic` shows it."""
    state: dict[str, Any] = {
        "topic": topic.name,
        "type": topic.config.type,
        "head_seq": topic.head,
        "earliest_seq": topic.earliest_seq,
        "next_seq": topic.head + 1,
        "count": topic.live,
        "bytes": topic.live_bytes,
        "config": config_members(topic.config),
        "effective_priority": topic.effective_priority(now),
        "last_write_ts": topic.last_write_at or None,
        "last_read_ts": topic.last_read_at or None,
    }
    counters = queue_counters(topic)
    if counters is not None:
        state["queue"] = counters
    return state


def topic_entry(topic: Topic, now: int) -> dict[str, Any]:
    """A topic as the list shows it."""
    entry: dict[str, Any] = {
        "topic": topic.name,
        "type": topic.config.type,
        "head_seq": topic.head,
        "earliest_seq": topic.earliest_seq,
        "count": topic.live,
        "bytes": topic.live_bytes,
        "durable": topic.config.durable,
        "effective_priority": topic.effective_priority(now),
    }
    counters = queue_counters(topic)
    if counters is not None:
        entry["queue"] = counters
    return entry


def queue_counters(topic: Topic) -> dict[str, int] | None:
    """The queue sub-object, None for logs."""
    queue = topic.queue
    if queue is None:
        return None
    return {
        "ready": topic.ready,
        "in_flight": queue.leased,
        "dead_lettered": queue.dead_lettered,
    }


def encode_page(
    topic: str,
    page: Page,
    include_tags: bool,
    include_meta: bool,
    timings: dict[str, float],
) -> bytes:
    """The reply to a diff."""
    records = [encode_record(r, include_tags, include_meta) for r in page.records]
    at = page.next_from_seq
    return (
        b'{"topic":"%b","records":[%b],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,'
        b'"caught_up":%b,"tombstone":%b,"lag":%d,"performance":%b,"records_scanned":%d}}'
        % (
            topic.encode(),
            b",".join(records),
            at,
            page.head_seq,
            page.earliest_seq,
            b"true" if at == page.head_seq else b"false",
            _encode(page.tombstone._asdict() if page.tombstone is not None else None),
            page.head_seq - at,
            _timings(timings)[:-1],
            page.scanned,
        )
    )
