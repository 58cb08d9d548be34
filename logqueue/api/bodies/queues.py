"""The shapes of HTTP bodies: bytes to commands.

Owns: reading any body, and the bodies of topics and of the life of a lease; those of writes are in
records.py, those of looking after jobs in jobs.py. Must not know: how a command is
decided, how replies look, routes, sockets.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from logqueue.api.bodies.unknown_members import Ignore, is_flat, strict, unknown_members
from logqueue.core import commands as cmd
from logqueue.core.reading import ReadPage, read
from logqueue.core.topic import Topic
from logqueue.errors import (
    BatchTooLarge,
    InvalidRequest,
    quoted,
)
from logqueue.events import block as blocks
from logqueue.model import limits
from logqueue.model.config import U64, Guarantee, RouterOptions, TopicConfig, clamp_lease_ms
from logqueue.model.tag_predicate import Predicate

U32 = Annotated[int, msgspec.Meta(ge=0, le=limits.U32_MAX)]

T = TypeVar("T")


# -- bodies --------------------------------------------------------------------------------------


class ClaimBody(msgspec.Struct):
    """`POST /v0/topics/:q/claim`."""

    node: str
    max: U32 = 1
    lease_ms: U64 | None = None
    wait_ms: U32 = 0


class AckBody(msgspec.Struct):
    """`POST /v0/topics/:q/ack`."""

    node: str
    seqs: list[U64]
    lease_ids: list[str] = []


class NackBody(msgspec.Struct):
    """`POST /v0/topics/:q/nack`."""

    node: str
    seqs: list[U64]
    delay_ms: U64 | msgspec.UnsetType = msgspec.UNSET
    lease_ids: list[str] = []
    error: str | None = None
    count: bool = True
    last: bool = False


class RejectBody(msgspec.Struct):
    """`POST /v0/topics/:q/reject`."""

    node: str
    seqs: list[U64]
    lease_ids: list[str] = []
    error: str | None = None


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


class RouterBody(msgspec.Struct):
    """`PUT /v0/routers/:router`."""

    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Any = None
    allow_cycle: bool = False
    guarantee: Guarantee = "at_least_once"


SettleBody = AckBody | NackBody | RejectBody | ExtendBody


class BodyReader:
    """Decodes one kind of body."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind)
        # Bodies without structs in them are the frequent ones: only those with unknown members
        # are looked at twice.
        self._strict = msgspec.json.Decoder(strict(kind)) if is_flat(kind) else None
        self._u64_fields = [
            name
            for name, hint in kind.__annotations__.items()
            if "U64" in str(hint) and name != "seqs"
        ]

    def read(self, body: bytes, ignore: Ignore | None = None) -> Any:
        """Decode a body.

        Args:
            body: The whole body.
            ignore: Is told the unknown members, if there are any.

        Raises:
            InvalidRequest: Not UTF-8, not JSON, a wrong type, or a number out of range.
        """
        decoded = self._decode(body, ignore)
        for name in self._u64_fields:
            value = getattr(decoded, name)
            if isinstance(value, int) and value > limits.U64_MAX:
                raise InvalidRequest(f"`{name}` must be at most {limits.U64_MAX}")
        return decoded

    def _decode(self, body: bytes, ignore: Ignore | None) -> Any:
        require_utf8(body)
        if self._strict is not None:
            try:
                return self._strict.decode(body)
            except (msgspec.DecodeError, RecursionError):
                pass
        decoded = decode(self._decoder, body)
        if ignore is not None:
            note_unknown(self._kind, body, ignore)
        return decoded


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode a body.

    Raises:
        InvalidRequest: Not UTF-8, not JSON, or a wrong type.
    """
    require_utf8(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the body does not fit: {error}") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


def note_unknown(kind: type[msgspec.Struct], body: bytes, ignore: Ignore) -> None:
    """Tell which members of a decoded body its type does not know, if there are any."""
    names = unknown_members(kind, body)
    if names:
        ignore(names)


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
read_reject_body = BodyReader(RejectBody).read
read_extend_body = BodyReader(ExtendBody).read
read_diff_body = BodyReader(DiffBody).read
read_config_body = BodyReader(TopicConfig).read
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
read_router_body = BodyReader(RouterBody).read
_read_delete_body = BodyReader(DeleteBody).read


# -- bodies to commands --------------------------------------------------------------------------


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
    """The lease numbers of a body that settles or extends, after the checks that need no topic.

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


def require_error_text(error: str | None) -> None:
    """Refuse a worker's error text that is too long to keep.

    Raises:
        InvalidRequest: It is.
    """
    if error is not None and len(error.encode()) > limits.ERROR_BYTES_MAX:
        raise InvalidRequest(f"`error` is over {limits.ERROR_BYTES_MAX} bytes; send its beginning")


_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


def _lease_number(token: str) -> int | None:
    if not token:
        return None
    digits = token[6:]
    if not token.startswith("lease_") or not digits or not _HEX_DIGITS.issuperset(digits):
        raise InvalidRequest(
            f"lease id {quoted(token[:40])} is malformed: echo the `lease_id` of the claim, "
            '"lease_" and hex digits'
        )
    if len(digits) > 64:
        raise InvalidRequest("a lease id has at most 64 hex digits")
    return int(digits, 16)


def delete_command(topic: str, body: bytes, ignore: Ignore | None = None) -> cmd.DeleteRecords:
    """The command of a delete body.

    Raises:
        InvalidRequest: No selector, or a predicate of no known form.
    """
    decoded: DeleteBody = _read_delete_body(body, ignore)
    match = None if decoded.match is None else Predicate.parse(decoded.match)
    if decoded.before_seq is None and match is None:
        raise InvalidRequest("name what to delete: `before_seq`, `match`, or both")
    return cmd.DeleteRecords(topic, decoded.before_seq, match)


def ensure_command(topic: str, body: bytes, ignore: Ignore | None = None) -> cmd.EnsureTopic:
    """The command of a config body that only creates.

    Raises:
        InvalidRequest: It is not a config.
    """
    config: TopicConfig = read_config_body(body, ignore)
    sent = decode(_members, body)
    return cmd.EnsureTopic(topic, config.resolved(), frozenset(sent))


def read_page(topic: Topic, body: DiffBody, now: int) -> ReadPage:
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


def router_command(router: str, body: RouterBody) -> cmd.PutRouter:
    """The command of a decoded router body.

    Raises:
        InvalidRequest: The filter is a predicate of no known form.
    """
    options = RouterOptions(
        body.preserve_node,
        body.preserve_tag,
        None if body.filter is None else Predicate.parse(body.filter),
        body.allow_cycle,
        body.guarantee,
    )
    return cmd.PutRouter(router, body.source, body.dest, options, body.create_dest)
