"""The bodies of leasing jobs and settling them: claim, ack, nack, reject, extend.

Must not know: how a command is decided, how replies look, routes, sockets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import repeat
from typing import Annotated

import msgspec

from logqueue.api.bodies.reader import U32, BodyReader
from logqueue.api.bodies.records import AppendBody, JobsBody, StrictJobBody, append_command
from logqueue.core import commands as cmd
from logqueue.errors import BatchTooLarge, InvalidRequest, RecordTooLarge, quoted
from logqueue.model import limits
from logqueue.model.config import U64, clamp_lease_ms, require_topic_name


class ClaimBody(msgspec.Struct):
    """`POST /v0/topics/:q/claim`."""

    node: str
    max: U32 = 1
    lease_ms: U64 | None = None
    wait_ms: U32 = 0


class FollowUpBody(JobsBody, kw_only=True):
    """What an ack writes to one topic."""

    topic: str


class AckBody(msgspec.Struct):
    """`POST /v0/topics/:q/ack`."""

    node: str
    seqs: list[U64]
    lease_ids: list[str] = []
    append: list[FollowUpBody] = []
    results: list[msgspec.Raw] | None = None


class _PlainFollowUp(AppendBody, kw_only=True, forbid_unknown_fields=True):
    """The write of most acks that write."""

    topic: str
    config: None = None


class _StrictFollowUp(FollowUpBody, kw_only=True, forbid_unknown_fields=True):
    """Every write of an ack without unknown members. A config may have some: it has none."""

    config: None = None
    records: Sequence[StrictJobBody]


class _PlainAck(AckBody, forbid_unknown_fields=True):
    """An ack as most are: what it writes says no more than most records do."""

    append: list[_PlainFollowUp] = []  # type: ignore[assignment]


class _StrictAck(AckBody, forbid_unknown_fields=True):
    """Every ack without unknown members."""

    append: list[_StrictFollowUp] = []  # type: ignore[assignment]


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
    progress: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    note: str | None = None


SettleBody = AckBody | NackBody | RejectBody | ExtendBody

read_claim_body = BodyReader(ClaimBody).read
read_ack_body = BodyReader(AckBody, _PlainAck, _StrictAck, strips_blanks=True).read
read_nack_body = BodyReader(NackBody).read
read_reject_body = BodyReader(RejectBody).read
read_extend_body = BodyReader(ExtendBody).read


def follow_ups(body: AckBody) -> tuple[cmd.Append, ...]:
    """What an ack writes.

    Raises:
        InvalidRequest, BatchTooLarge, RecordTooLarge: A bound is exceeded, or a topic is named
            twice; nothing was changed.
    """
    if not body.append:
        return ()
    if not body.seqs:
        raise InvalidRequest("`append` needs `seqs`: it is written when these jobs are acked")
    if len(body.append) > limits.FOLLOW_UP_TOPICS_MAX:
        raise BatchTooLarge(
            f"`append` has {len(body.append)} entries; send at most {limits.FOLLOW_UP_TOPICS_MAX}",
            {"topics": len(body.append), "max": limits.FOLLOW_UP_TOPICS_MAX},
        )
    records = sum(len(follow_up.records) for follow_up in body.append)
    if records > limits.FOLLOW_UP_RECORDS_MAX:
        raise BatchTooLarge(
            f"{records} records in `append`; send at most {limits.FOLLOW_UP_RECORDS_MAX}",
            {"records": records, "max": limits.FOLLOW_UP_RECORDS_MAX},
        )
    commands: dict[str, cmd.Append] = {}
    for index, follow_up in enumerate(body.append):
        require_topic_name(follow_up.topic)
        if follow_up.topic in commands:
            raise InvalidRequest(
                f"append[{index}] names topic {quoted(follow_up.topic)} again: put all records for "
                "a topic into one entry"
            )
        commands[follow_up.topic] = append_command(follow_up.topic, follow_up, None)
    return tuple(commands.values())


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
    tokens = _lease_numbers(body.lease_ids)
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


def results_of(given: Sequence[msgspec.Raw], seqs: Sequence[int]) -> list[bytes]:
    """What an ack says its jobs came to: compact JSON, b"" for null.

    Raises:
        InvalidRequest: Not one for each seq.
        RecordTooLarge: One is too large to keep.
    """
    if len(given) != len(seqs):
        raise InvalidRequest(
            f"`results` has {len(given)} entries for {len(seqs)} seqs; give one for each "
            "(null where there is none), or leave the field out"
        )
    results: list[bytes] = []
    for seq, raw in zip(seqs, given, strict=True):
        result = bytes(raw)
        if len(result) > limits.RESULT_BYTES_MAX:
            raise RecordTooLarge(
                f"the result of job {seq} has {len(result)} bytes; at most "
                f"{limits.RESULT_BYTES_MAX} are kept. Store it elsewhere and ack with a reference",
                {"seq": seq, "bytes": len(result), "max": limits.RESULT_BYTES_MAX},
            )
        results.append(b"" if result == b"null" else result)
    return results


def require_note(note: str | None) -> None:
    """Refuse a note about the progress of a job that is too long.

    Raises:
        InvalidRequest: It is.
    """
    if note is not None and len(note.encode()) > limits.NOTE_BYTES_MAX:
        raise InvalidRequest(f"`note` is over {limits.NOTE_BYTES_MAX} bytes; send its beginning")


def require_error_text(error: str | None) -> None:
    """Refuse a worker's error text that is too long to keep.

    Raises:
        InvalidRequest: It is.
    """
    if error is not None and len(error.encode()) > limits.ERROR_BYTES_MAX:
        raise InvalidRequest(f"`error` is over {limits.ERROR_BYTES_MAX} bytes; send its beginning")


_LEASES = re.compile(r"lease_[0-9a-fA-F]{1,64}(?:,lease_[0-9a-fA-F]{1,64})*")
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


def _lease_numbers(tokens: Sequence[str]) -> list[int | None]:
    """The numbers in lease ids, None for an empty one. Those of a claim are read in one go.

    Raises:
        InvalidRequest: One is malformed.
    """
    together = ",".join(tokens)
    if _LEASES.fullmatch(together) is not None:
        digits = together.removeprefix("lease_").split(",lease_")
        if len(digits) == len(tokens):
            return [*map(int, digits, repeat(16))]
    return [_lease_number(token) for token in tokens]


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
