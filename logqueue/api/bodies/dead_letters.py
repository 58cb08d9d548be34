"""Bodies about dead letters, and of an edit of one job: from JSON to commands.

Owns: the members of redrive, drop and edit. Must not know: how a command is decided, replies,
routes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from logqueue.api.bodies.jobs import checked_seqs
from logqueue.api.bodies.reader import BodyReader, decode
from logqueue.api.bodies.records import Priority
from logqueue.api.bodies.unknown_members import Ignore
from logqueue.core import commands as cmd
from logqueue.core.letters import LetterFilter
from logqueue.errors import InvalidRequest, RecordTooLarge
from logqueue.events import block as blocks
from logqueue.model import limits
from logqueue.model.config import U64
from logqueue.model.tag_predicate import Predicate

_ABSENT: Any = msgspec.UNSET
_meta_keys = msgspec.json.Decoder(dict[str, msgspec.Raw])


class LettersBody(msgspec.Struct):
    """What redrive and drop have in common."""

    seqs: list[U64] | None = None
    match: Any = None
    before_seq: U64 | None = None
    reason: cmd.DeadLetterReason | None = None
    origin: str | None = msgspec.field(name="from", default=None)
    error: str | None = None
    limit: U64 | None = None
    dry_run: bool = False
    rate_per_s: U64 | None = None
    wait: bool | None = None


class RedriveBody(LettersBody):
    """`POST /v0/topics/:topic/redrive`."""

    to: str | None = None
    data: msgspec.Raw = _ABSENT


class DropBody(LettersBody, forbid_unknown_fields=True):
    """`POST /v0/topics/:topic/drop`; a misspelt member is refused, since it would drop more."""


class EditBody(msgspec.Struct):
    """`PATCH /v0/topics/:q/jobs/:seq`."""

    data: msgspec.Raw = _ABSENT
    tag: str | msgspec.UnsetType | None = msgspec.UNSET
    meta: msgspec.Raw = _ABSENT
    retry: bool = False
    priority: Priority | None = None


class LettersPace(NamedTuple):
    """How work on many letters is carried out.

    Attributes:
        in_background: It becomes an operation, and the reply is about that.
        rate_per_s: How many per second; 0 for any number.
        waits: Reply when it is over.
    """

    in_background: bool
    rate_per_s: int
    waits: bool


class Drop(NamedTuple):
    """What to drop."""

    letters: LetterFilter
    seqs: list[int] | None
    limit: int
    dry_run: bool
    pace: LettersPace


_read_redrive_body = BodyReader(RedriveBody, strips_blanks=True).read
_read_drop_body = BodyReader(DropBody).read
_read_edit_body = BodyReader(EditBody, strips_blanks=True).read


def redrive_command(
    topic: str, body: bytes, ignore: Ignore | None = None
) -> tuple[cmd.Redrive, LettersPace]:
    """The command of a redrive body, and how it is carried out; `limit` is clamped.

    Raises:
        InvalidRequest, BatchTooLarge: A seq is out of range, or there are too many; or a predicate
            of no known form; or new data for more than one letter.
        RecordTooLarge: New data is over the bound of a record.
    """
    decoded: RedriveBody = _read_redrive_body(body, ignore)
    pace = _pace(decoded)
    data = None
    if decoded.data is not _ABSENT:
        data = bytes(decoded.data)
        if decoded.seqs is None or len(set(decoded.seqs)) != 1:
            raise InvalidRequest("`data` replaces that of one dead letter: name it in `seqs`")
        _require_size(data, b"")
    return (
        cmd.Redrive(
            topic,
            decoded.to,
            None if decoded.seqs is None else checked_seqs(decoded.seqs, limits.REDRIVE_MAX),
            None if decoded.match is None else Predicate.parse(decoded.match),
            decoded.before_seq,
            decoded.reason,
            decoded.origin,
            decoded.error,
            data,
            _limit(decoded, pace),
            decoded.dry_run,
        ),
        pace,
    )


def read_drop_body(body: bytes, ignore: Ignore | None = None) -> Drop:
    """What a body says is to be dropped.

    Raises:
        InvalidRequest, BatchTooLarge: A seq is out of range, or there are too many; or a predicate
            of no known form.
    """
    decoded: DropBody = _read_drop_body(body, ignore)
    letters = LetterFilter(
        None if decoded.match is None else Predicate.parse(decoded.match),
        decoded.before_seq,
        decoded.reason,
        decoded.origin,
        decoded.error,
        letters_only=True,
    )
    seqs = None if decoded.seqs is None else checked_seqs(decoded.seqs, limits.REDRIVE_MAX)
    pace = _pace(decoded)._replace(in_background=True)
    return Drop(letters, seqs, _limit(decoded, pace), decoded.dry_run, pace)


def edit_command(topic: str, seq: int, body: bytes, ignore: Ignore | None = None) -> cmd.EditJob:
    """The command of an edit body.

    Raises:
        InvalidRequest: Nothing is to change, or a member is out of bounds.
        RecordTooLarge: Data and meta together are over the bound of a record.
    """
    decoded: EditBody = _read_edit_body(body, ignore)
    data = None if decoded.data is _ABSENT else bytes(decoded.data)
    meta = None if decoded.meta is _ABSENT else bytes(decoded.meta)
    if meta == b"null":
        meta = b""
    tag: bytes | None = None
    if not isinstance(decoded.tag, msgspec.UnsetType):
        tag = b"" if decoded.tag is None else blocks.write_string(decoded.tag)
        if decoded.tag is not None and len(decoded.tag.encode()) > limits.TAG_BYTES_MAX:
            raise InvalidRequest(f"`tag` is over {limits.TAG_BYTES_MAX} bytes")
    given = (data, meta, tag, decoded.priority)
    if not decoded.retry and all(value is None for value in given):
        raise InvalidRequest("nothing to change: give `data`, `tag`, `meta`, `priority` or `retry`")
    if meta:
        if len(meta) > limits.META_BYTES_MAX:
            raise InvalidRequest(f"`meta` is over {limits.META_BYTES_MAX} bytes of JSON")
        if meta.startswith(b"{") and len(decode(_meta_keys, meta)) > limits.META_KEYS_MAX:
            raise InvalidRequest(f"`meta` has over {limits.META_KEYS_MAX} keys")
    _require_size(data or b"", meta or b"")
    return cmd.EditJob(topic, seq, data, tag, meta, decoded.retry, decoded.priority)


def _pace(body: LettersBody) -> LettersPace:
    rate = body.rate_per_s or 0
    if body.rate_per_s is not None and not 0 < rate <= limits.RATE_PER_S_MAX:
        raise InvalidRequest(f"`rate_per_s` must be from 1 to {limits.RATE_PER_S_MAX}")
    waits = body.wait if body.wait is not None else not rate
    return LettersPace(rate > 0 or body.wait is not None, rate, waits)


def _limit(body: LettersBody, pace: LettersPace) -> int:
    if pace.in_background:
        return limits.U64_MAX if body.limit is None else max(body.limit, 1)
    limit = limits.REDRIVE_DEFAULT if body.limit is None else body.limit
    return min(max(limit, 1), limits.REDRIVE_MAX)


def _require_size(data: bytes, meta: bytes) -> None:
    if len(data) + len(meta) > limits.RECORD_BYTES_MAX:
        raise RecordTooLarge(
            f"{len(data) + len(meta)} bytes of data and meta; at most {limits.RECORD_BYTES_MAX} "
            "are allowed"
        )
