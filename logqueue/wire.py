"""The shapes of HTTP bodies: bytes to commands, replies to bytes.

Owns: which fields a body may have, their types and bounds, and the JSON of every reply. Must not
know: how a command is decided, routes, sockets. Payload bytes are checked and stripped of blanks
once, on the way in; they are never decoded, and replies are joins of slices of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from logqueue.core import block as blocks
from logqueue.core import commands as cmd
from logqueue.core import limits
from logqueue.core.batch import Record
from logqueue.core.config import U64, TopicConfig, clamp_lease_ms
from logqueue.core.predicate import Predicate
from logqueue.core.reading import Page, read
from logqueue.core.topic import Topic
from logqueue.errors import BatchTooLarge, InvalidRequest, LogqueueError, RecordTooLarge

U32 = Annotated[int, msgspec.Meta(ge=0, le=limits.U32_MAX)]

_ABSENT = msgspec.Raw(b"")
_BLANKS = b" \t\r\n"
_encode = msgspec.json.Encoder().encode

T = TypeVar("T")


# -- bodies --------------------------------------------------------------------------------------


class RecordBody(msgspec.Struct):
    """One record of a write."""

    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    meta: msgspec.Raw = _ABSENT


class AppendBody(msgspec.Struct):
    """`POST /v0/topics/:topic`."""

    records: list[RecordBody]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: TopicConfig | None = None
    disable_backpressure: bool = False


class ClaimBody(msgspec.Struct):
    """`POST /v0/topics/:q/claim`."""

    node: str
    max: U32 = 1
    lease_ms: U64 | None = None


class AckBody(msgspec.Struct):
    """`POST /v0/topics/:q/ack`."""

    node: str
    seqs: list[U64]
    lease_ids: list[str] = []


class NackBody(msgspec.Struct):
    """`POST /v0/topics/:q/nack`."""

    node: str
    seqs: list[U64]
    delay_ms: U64 = 0
    lease_ids: list[str] = []


class ExtendBody(msgspec.Struct):
    """`POST /v0/topics/:q/extend`."""

    node: str
    seqs: list[U64]
    lease_ms: U64
    lease_ids: list[str] = []


class DiffBody(msgspec.Struct):
    """`POST /v0/topics/:topic/diff`."""

    from_seq: U64 = 0
    limit: U32 = 0
    node: str | list[str] | None = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: U32 = 0
    max_batch_bytes: U64 = 0


class DeleteBody(msgspec.Struct):
    """`POST /v0/topics/:topic/delete`."""

    before_seq: U64 | None = None
    match: Any = None


SettleBody = AckBody | NackBody | ExtendBody


class BodyReader:
    """Decodes one kind of body."""

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._u64_fields = [
            name
            for name, hint in kind.__annotations__.items()
            if "U64" in str(hint) and name != "seqs"
        ]

    def read(self, body: bytes) -> Any:
        """Decode a body.

        Raises:
            InvalidRequest: Not UTF-8, not JSON, a wrong type, or a number out of range.
        """
        decoded = _decode(self._decoder, body)
        for name in self._u64_fields:
            value = getattr(decoded, name)
            if value is not None and value > limits.U64_MAX:
                raise InvalidRequest(f"`{name}` must be at most {limits.U64_MAX}")
        return decoded


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    require_utf8(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the body does not fit: {error}") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


def require_utf8(body: bytes) -> None:
    """Refuse bytes that are no UTF-8 text.

    Raises:
        InvalidRequest: They are not.
    """
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"the body is not valid UTF-8 (byte {error.start})") from None


read_claim_body = BodyReader(ClaimBody).read
read_ack_body = BodyReader(AckBody).read
read_nack_body = BodyReader(NackBody).read
read_extend_body = BodyReader(ExtendBody).read
read_diff_body = BodyReader(DiffBody).read
read_config_body = BodyReader(TopicConfig).read
_read_append_body = BodyReader(AppendBody).read
_read_delete_body = BodyReader(DeleteBody).read


# -- bodies to commands --------------------------------------------------------------------------


def read_append_body(body: bytes) -> AppendBody:
    """Decode a write, with all blanks between tokens taken out.

    Payloads go from here to the log and to readers as they are; without blanks their length is
    the one that limits count, and no line break can reach an event stream.

    Raises:
        InvalidRequest: See `BodyReader.read`.
    """
    if len(body.translate(None, _BLANKS)) != len(body):
        require_utf8(body)
        try:
            body = msgspec.json.format(body, indent=-1)
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"the body is not valid JSON: {error}") from None
        except RecursionError:
            raise InvalidRequest("the body is nested too deeply") from None
    decoded: AppendBody = _read_append_body(body)
    return decoded


def append_command(topic: str, body: AppendBody, header_key: str | None) -> cmd.Append:
    """The command of a decoded write.

    Raises:
        InvalidRequest, BatchTooLarge, RecordTooLarge: A bound is exceeded; nothing was changed.
    """
    records = body.records
    count = len(records)
    if not count:
        raise InvalidRequest("`records` must hold at least one record")
    if count > limits.RECORDS_PER_WRITE_MAX:
        raise BatchTooLarge(
            f"{count} records in one write; send at most {limits.RECORDS_PER_WRITE_MAX}"
        )
    key = body.idempotency_key if body.idempotency_key is not None else header_key
    if key is not None and len(key.encode("utf-8", "surrogatepass")) > limits.KEY_BYTES_MAX:
        raise InvalidRequest(f"the idempotency key is over {limits.KEY_BYTES_MAX} bytes")
    return cmd.Append(
        topic,
        _pack_records(records, body.node),
        count,
        key,
        body.create,
        body.config.resolved() if body.config is not None else None,
    )


def _pack_records(records: list[RecordBody], batch_node: str | None) -> bytes:
    data = [record.data for record in records]
    tags = [record.tag for record in records]
    nodes = [record.node for record in records]
    metas = [record.meta for record in records]
    nothing = len(records)
    plain = (
        batch_node is None
        and tags.count(None) == nothing
        and nodes.count(None) == nothing
        and metas.count(_ABSENT) == nothing
        and max(map(len, data)) <= limits.RECORD_BYTES_MAX
    )
    if plain:
        return blocks.pack([data, None, None, None])
    texts: list[list[bytes]] = [[], [], [], []]
    for index, record in enumerate(records):
        node = batch_node if record.node is None else record.node
        meta = bytes(record.meta)
        if meta == b"null":
            meta = b""
        _check_record(index, record, node, meta)
        texts[blocks.DATA].append(bytes(record.data))
        texts[blocks.TAG].append(b"" if record.tag is None else blocks.write_string(record.tag))
        texts[blocks.NODE].append(b"" if node is None else blocks.write_string(node))
        texts[blocks.META].append(meta)
    return blocks.pack([column if any(column) else None for column in texts])


_meta_keys = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _check_record(index: int, record: RecordBody, node: str | None, meta: bytes) -> None:
    where = f"records[{index}]"
    if record.tag is not None and len(record.tag.encode()) > limits.TAG_BYTES_MAX:
        raise InvalidRequest(f"{where}.tag is over {limits.TAG_BYTES_MAX} bytes")
    if node is not None and len(node.encode()) > limits.NODE_BYTES_MAX:
        raise InvalidRequest(f"{where}.node is over {limits.NODE_BYTES_MAX} bytes")
    if len(meta) > limits.META_BYTES_MAX:
        raise InvalidRequest(f"{where}.meta is over {limits.META_BYTES_MAX} bytes of JSON")
    if meta.startswith(b"{") and len(_decode(_meta_keys, meta)) > limits.META_KEYS_MAX:
        raise InvalidRequest(f"{where}.meta has over {limits.META_KEYS_MAX} keys")
    if len(record.data) + len(meta) > limits.RECORD_BYTES_MAX:
        raise RecordTooLarge(
            f"{where} has {len(record.data) + len(meta)} bytes of data and meta; "
            f"at most {limits.RECORD_BYTES_MAX} are allowed"
        )


def claimer(node: str, jobs_max: int, lease_ms: int | None) -> cmd.Claimer:
    """One party of a claim, bounds checked and clamps applied.

    Raises:
        InvalidRequest: The node is empty or too long.
    """
    if not node:
        raise InvalidRequest("`node` must not be empty: it names the worker that holds the leases")
    if len(node.encode()) > limits.NODE_BYTES_MAX:
        raise InvalidRequest(f"`node` is over {limits.NODE_BYTES_MAX} bytes")
    return cmd.Claimer(
        node,
        min(max(jobs_max, 1), limits.CLAIM_JOBS_MAX),
        None if lease_ms is None else clamp_lease_ms(lease_ms),
    )


def settle_tokens(body: SettleBody) -> list[int | None] | None:
    """The lease numbers of an ack, nack or extend body, after the checks that need no topic.

    Raises:
        InvalidRequest, BatchTooLarge: In the contract's order: malformed token, empty node, too
            many seqs, another number of tokens than of seqs.
    """
    tokens = [_lease_number(token) for token in body.lease_ids]
    if not body.node:
        raise InvalidRequest("`node` must not be empty: it names the worker that holds the leases")
    if len(body.seqs) > limits.SEQS_PER_CALL_MAX:
        raise BatchTooLarge(
            f"{len(body.seqs)} seqs in one call; send at most {limits.SEQS_PER_CALL_MAX}",
            {"seqs": len(body.seqs), "max": limits.SEQS_PER_CALL_MAX},
        )
    if tokens and len(tokens) != len(body.seqs):
        raise InvalidRequest(
            f"`lease_ids` has {len(tokens)} entries for {len(body.seqs)} seqs; give one for each "
            '("" where there is none), or leave the field out'
        )
    if body.seqs and max(body.seqs) > limits.U64_MAX:
        raise InvalidRequest(f"`seqs` must be at most {limits.U64_MAX}")
    return tokens or None


_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


def _lease_number(token: str) -> int | None:
    if not token:
        return None
    digits = token[6:]
    if not token.startswith("lease_") or not digits or not _HEX_DIGITS.issuperset(digits):
        raise InvalidRequest(
            f"lease id {token[:40]!r} is malformed: echo the `lease_id` of the claim, "
            '"lease_" and hex digits'
        )
    if len(digits) > 64:
        raise InvalidRequest("a lease id has at most 64 hex digits")
    return int(digits, 16)


def delete_command(topic: str, body: bytes) -> cmd.DeleteRecords:
    """The command of a delete body.

    Raises:
        InvalidRequest: No selector, or a predicate of no known form.
    """
    decoded: DeleteBody = _read_delete_body(body)
    match = None if decoded.match is None else Predicate.parse(decoded.match)
    if decoded.before_seq is None and match is None:
        raise InvalidRequest("name what to delete: `before_seq`, `match`, or both")
    return cmd.DeleteRecords(topic, decoded.before_seq, match)


# -- replies to bytes ----------------------------------------------------------------------------


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


def read_page(topic: Topic, body: DiffBody, now: int) -> Page:
    """What a diff body asks for."""
    nodes = [body.node] if isinstance(body.node, str) else body.node or []
    return read(
        topic,
        body.from_seq,
        now,
        records_max=min(body.limit or limits.DIFF_RECORDS_DEFAULT, limits.DIFF_RECORDS_MAX),
        bytes_max=min(body.max_batch_bytes or limits.DIFF_BYTES_DEFAULT, limits.DIFF_BYTES_MAX),
        nodes={blocks.write_string(node) for node in nodes},
    )


def encode_page(topic: str, page: Page, body: DiffBody, timings: dict[str, float]) -> bytes:
    """The reply to a diff."""
    records = [encode_record(r, body.include_tags, body.include_meta) for r in page.records]
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
