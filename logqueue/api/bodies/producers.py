"""The shapes of transactional appends: bodies and paths to commands.

Owns: the members of stage and commit, their types and bounds. Must not know: how a command is
decided, replies, routes. Staged records are those of a write, without keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logqueue.api.bodies.jobs import read_number
from logqueue.api.bodies.reader import U32, BodyReader
from logqueue.api.bodies.records import (
    JobBody,
    PackedRecords,
    RecordBody,
    StrictJobBody,
    content_of,
    wrong_count,
)
from logqueue.api.bodies.unknown_members import Ignore
from logqueue.core import commands as cmd
from logqueue.errors import BatchTooLarge, InvalidRequest
from logqueue.model import limits
from logqueue.model.config import require_router_name, require_topic_name

ATTEMPT_BYTES_MAX = 128
CONTENT_BYTES_MAX = 128


class PlainStageBody(msgspec.Struct):
    """`POST /v0/producers/:producer/epochs/:n/stage`, as most are."""

    topic: str
    records: Sequence[RecordBody]
    partition: U32 = 0
    attempt: str = ""
    chunk: U32 = 0
    node: str | None = None


class StageBody(PlainStageBody):
    """The same with records that say more than most, or have unknown members."""

    records: Sequence[JobBody]


class PartBody(msgspec.Struct):
    """The attempt of one partition that is to be committed."""

    chunks: U32
    rows: U32
    partition: U32 = 0
    attempt: str = ""


class CommitBody(msgspec.Struct):
    """`POST /v0/producers/:producer/epochs/:n/commit`."""

    parts: list[PartBody]
    content: str = ""


class _PlainStage(PlainStageBody, forbid_unknown_fields=True):
    """The chunk of most producers."""


class _StrictStage(StageBody, forbid_unknown_fields=True):
    """Every chunk without unknown members."""

    records: Sequence[StrictJobBody]


read_stage_body = BodyReader(StageBody, _PlainStage, _StrictStage, strips_blanks=True).read
"""Bytes to a `PlainStageBody`."""
_read_commit_body = BodyReader(CommitBody).read


def read_epoch(text: str) -> int:
    """The epoch of a path.

    Raises:
        InvalidRequest: It is not a u64.
    """
    return read_number(text, "the epoch", limits.U64_MAX)


def stage_command(producer: str, epoch: str, body: PlainStageBody) -> cmd.StageChunk:
    """The command of a decoded chunk.

    Raises:
        InvalidRequest, BatchTooLarge, RecordTooLarge: A bound is exceeded; nothing was changed.
    """
    require_router_name(producer)
    number = read_epoch(epoch)
    require_topic_name(body.topic)
    _require_attempt("attempt", body.attempt)
    if body.chunk >= limits.CHUNKS_PER_EPOCH_MAX:
        raise InvalidRequest(f"`chunk` must be below {limits.CHUNKS_PER_EPOCH_MAX}")
    count = len(body.records)
    if not 0 < count <= limits.RECORDS_PER_WRITE_MAX:
        raise wrong_count(count)
    require_no_keys(body)
    block, _ = content_of(body.records, body.node, are_jobs=isinstance(body, StageBody))
    return cmd.StageChunk(
        producer, number, body.topic, body.partition, body.attempt, body.chunk, block, count
    )


OF_KEYS = ("key", "on_conflict", "unique", "on_duplicate")
"""Members that keyed records have."""


def require_no_keys(body: PlainStageBody) -> None:
    """Refuse a chunk with keyed records. Those that are packed were looked at before.

    Raises:
        InvalidRequest: It has some.
    """
    if not isinstance(body, StageBody) or isinstance(body.records, PackedRecords):
        return
    for index, record in enumerate(body.records):
        named = [name for name in OF_KEYS if getattr(record, name) is not None]
        if named:
            raise InvalidRequest(
                f"records[{index}] has `{named[0]}`: keyed records cannot be "
                "staged; write them without an epoch"
            )


def commit_command(
    producer: str, epoch: str, body: bytes, ignore: Ignore | None = None
) -> cmd.CommitEpoch:
    """The command of a commit body.

    Raises:
        InvalidRequest, BatchTooLarge: It cannot be understood, or names too much.
    """
    decoded: CommitBody = _read_commit_body(body, ignore)
    require_router_name(producer)
    number = read_epoch(epoch)
    if len(decoded.content.encode()) > CONTENT_BYTES_MAX:
        raise InvalidRequest(f"`content` is over {CONTENT_BYTES_MAX} bytes")
    partitions: set[int] = set()
    for index, part in enumerate(decoded.parts):
        _require_attempt(f"parts[{index}].attempt", part.attempt)
        if part.partition in partitions:
            raise InvalidRequest(
                f"parts[{index}] names partition {part.partition} again; one attempt of it wins"
            )
        partitions.add(part.partition)
    chunks = max(sum(part.chunks for part in decoded.parts), len(decoded.parts))
    if chunks > limits.CHUNKS_PER_EPOCH_MAX:
        raise BatchTooLarge(
            f"{chunks} chunks in one epoch; commit at most {limits.CHUNKS_PER_EPOCH_MAX}",
            {"chunks": chunks, "max": limits.CHUNKS_PER_EPOCH_MAX},
        )
    parts = (cmd.StagedAttempt(p.partition, p.attempt, p.chunks, p.rows) for p in decoded.parts)
    return cmd.CommitEpoch(producer, number, tuple(parts), content=decoded.content)


def abort_command(producer: str, epoch: str) -> cmd.AbortEpoch:
    """The command that aborts an epoch.

    Raises:
        InvalidRequest: The name or the epoch is malformed.
    """
    require_router_name(producer)
    return cmd.AbortEpoch(producer, read_epoch(epoch))


def _require_attempt(where: str, attempt: str) -> None:
    if len(attempt.encode()) > ATTEMPT_BYTES_MAX:
        raise InvalidRequest(f"`{where}` is over {ATTEMPT_BYTES_MAX} bytes")
