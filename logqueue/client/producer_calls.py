"""Calls about transactional appends: stage chunks, commit or abort an epoch, look at a producer.

Owns: their parameters and what they mean. Must not know: how a call is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from logqueue.client.appending import CHUNK_MAX, check_records, new_record
from logqueue.client.calls import Call, call, given
from logqueue.client.endpoints import ABORT_EPOCH, COMMIT_EPOCH, GET_PRODUCER, STAGE_CHUNK
from logqueue.shapes import Aborted, Committed, Producer, Staged


class EpochPart(msgspec.Struct, frozen=True):
    """The attempt of one partition that a commit is to make visible.

    Attributes:
        chunks: How many it staged, numbered from 0.
        rows: How many records they hold in all.
    """

    chunks: int
    rows: int
    partition: int = 0
    attempt: str = ""


def stage(
    producer: str,
    epoch: int,
    topic: str,
    records: Iterable[Any],
    *,
    partition: int = 0,
    attempt: str = "",
    chunk: int = 0,
    node: str | None = None,
) -> Call[Staged]:
    """Stage records that become visible when the epoch is committed.

    Doing it again with the same records is fine.

    Args:
        producer: As router names: ASCII letters, digits and `. _ : - >`, 255 at most.
        epoch: The one behind the last committed; any for a producer's first.
        topic: Where to; created when it is absent.
        records: Up to 10 000 as of `append`, without keys.
        partition: Who of those that write the epoch this is; it orders the records.
        attempt: Tells one try of a partition from another, up to 128 bytes.
        chunk: Number of these records within the attempt, from 0.
        node: The producer of the records that name none.

    Raises:
        EpochConflict: Another epoch is due, or other records were staged in this place.
        RecordTooLarge, InvalidRequest: A record is out of bounds, or has a key.
        Throttled: Too much is staged.
    """
    check_records(records, CHUNK_MAX)
    body = given(
        topic=topic,
        partition=partition,
        attempt=attempt,
        chunk=chunk,
        records=[new_record(record) for record in records],
        node=node,
    )
    return call(STAGE_CHUNK, producer, str(epoch), body=body)


def commit(
    producer: str, epoch: int, parts: Iterable[EpochPart], *, content: str | None = None
) -> Call[Committed]:
    """Make an epoch visible: everything that its parts have staged, in the order of partitions.

    Doing it again is answered as the first time, with the status `already`.

    Args:
        parts: One attempt of each partition; chunks staged by other attempts are discarded. May be
            empty.
        content: A digest of what the epoch holds, up to 128 bytes: a repeat with another one is
            refused. Without it a repeat is recognized by the number of records only.

    Raises:
        EpochConflict: Another epoch is due, what is staged is not what the parts say, or the epoch
            was committed with other content.
        TopicFull: A topic refuses more, and did so until retries ran out.
    """
    body = given(parts=[*parts], content=content)
    return call(COMMIT_EPOCH, producer, str(epoch), body=body)


def abort(producer: str, epoch: int) -> Call[Aborted]:
    """Discard everything that is staged for an epoch and earlier ones, so that its room is free.

    An epoch that was committed stays; the status says so. Doing it again is fine.

    Raises:
        EpochConflict: An epoch before this one is due, so nothing can be staged for it.
    """
    return call(ABORT_EPOCH, producer, str(epoch))


def producer(producer: str) -> Call[Producer]:
    """A producer's state: its last committed epoch, and the staged chunks that await a commit.

    Raises:
        NotFound: Unknown or expired producer.
    """
    return call(GET_PRODUCER, producer)
