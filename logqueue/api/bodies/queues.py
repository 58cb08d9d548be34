"""The bodies of leasing jobs and settling them: claim, ack, nack, reject, extend.

Must not know: how a command is decided, how replies look, routes, sockets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import repeat

import msgspec

from logqueue.api.bodies.reader import U32, BodyReader
from logqueue.core import commands as cmd
from logqueue.errors import BatchTooLarge, InvalidRequest, quoted
from logqueue.model import limits
from logqueue.model.config import U64, clamp_lease_ms


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


SettleBody = AckBody | NackBody | RejectBody | ExtendBody

read_claim_body = BodyReader(ClaimBody).read
read_ack_body = BodyReader(AckBody).read
read_nack_body = BodyReader(NackBody).read
read_reject_body = BodyReader(RejectBody).read
read_extend_body = BodyReader(ExtendBody).read


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
