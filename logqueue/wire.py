"""The shapes of HTTP bodies: bytes to commands.

Owns: which fields a body may have, their types and bounds. Must not know: how a command is decided,
how replies look, routes, sockets. Payload bytes are checked and stripped of blanks once, on the way
in; they are never decoded.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from logqueue.core import block as blocks
from logqueue.core import commands as cmd
from logqueue.core import limits
from logqueue.core.config import U64, TopicConfig, clamp_lease_ms
from logqueue.core.predicate import Predicate
from logqueue.core.reading import Page, read
from logqueue.core.topic import Topic
from logqueue.errors import BatchTooLarge, InvalidRequest, RecordTooLarge

U32 = Annotated[int, msgspec.Meta(ge=0, le=limits.U32_MAX)]

_ABSENT = msgspec.Raw(b"")
_BLANKS = b" \t\r\n"

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
    plain = batch_node is None and not any(
        r.tag is not None or r.node is not None or r.meta is not _ABSENT for r in records
    )
    if plain and max(map(len, data)) <= limits.RECORD_BYTES_MAX:
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
