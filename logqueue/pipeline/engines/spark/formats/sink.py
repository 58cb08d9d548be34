"""Writing rows to topics: the batch and the stream writer of the format `logqueue`.

Owns: what happens in `write` on executors and in `commit` on the driver, and the sentence for each
refusal of the server. Must not know: how rows become records, how options are read.

What each mode promises:

transactional (default)
    Every row of a micro-batch, or of a batch write, becomes visible at once and exactly once. Tasks
    stage chunks, each try under a name of its own; the commit names the tries that won, and a
    digest of all rows that does not depend on their order or their partitions. A repeat of a
    commit is answered `already` when the digest is the same, and refused when it is not. So a
    task that is tried again, an answer that is lost, a driver that dies before or after its commit
    and a shuffle that redistributes rows never double or lose a row. The server remembers producers
    for 30 days of silence, and staged chunks for an hour, or until the write fails; they have 2 GiB
    in all, so much larger batches are written in several.
keyed
    For queues. Column `key` tells jobs apart: while a job with the key *waits* (ready or delayed),
    a row with the same key makes no second one (`onConflict` keep, replace or reject). So each key
    has at most one waiting job, whatever is written again. A repeat that comes after the job was
    claimed makes a new job, unless it is the very same chunk within the topic's
    `idempotency_window_ms`. Rows become visible chunk by chunk.
plain
    At least once. Each chunk has an idempotency key made of its place and its content, so a task
    that is tried again within the topic's `idempotency_window_ms` stores nothing twice as long as
    its rows come in the same order. Rows become visible chunk by chunk.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from logqueue.client import Client, ConnectionFailed, EpochPart
from logqueue.client.backoff import Backoff
from logqueue.client.calls import CallRequest, reading, request
from logqueue.client.endpoints import STAGE_CHUNK, WRITE_RECORDS
from logqueue.errors import (
    EpochConflict,
    Forbidden,
    LogqueueError,
    NotAQueue,
    StorageFull,
    StorageReadOnly,
    Throttled,
    TopicFull,
    Unauthorized,
)
from logqueue.pipeline.engines.spark.formats.sink_bodies import BodyChunk, Chunks, Sum, digest_of
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.writing.sink_options import SinkOptions, read_columns, read_options
from logqueue.shapes import Appended, Committed, Staged

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

EPOCH_PROPERTY = "streaming.sql.batchId"
QUERY_PROPERTY = "sql.streaming.queryId"
CALL_TIMEOUT_S = 60.0


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of `df.write.format("logqueue").mode("append")`.

    Raises:
        PipelineError: An option or a column is wrong, or the save mode is overwrite.
    """
    if overwrite:
        raise PipelineError(
            "a topic is appended to, never overwritten: write .mode('append'); to start over, "
            "delete the topic first"
        )
    given = read_options(options, is_stream=False)
    return BatchWriter(given, read_columns(_columns(schema), given))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> LogqueueStreamWriter:
    """The writer of `df.writeStream.format("logqueue")`.

    Raises:
        PipelineError: An option or a column is wrong, or the output mode is complete.
    """
    if overwrite:
        raise PipelineError(
            "a topic is appended to, never overwritten: use outputMode append or update"
        )
    given = read_options(options, is_stream=True)
    return LogqueueStreamWriter(given, read_columns(_columns(schema), given))


def _columns(schema: StructType) -> list[tuple[str, str]]:
    return [(column.name, column.dataType.simpleString()) for column in schema.fields]


@dataclass(frozen=True)
class PartWritten(WriterCommitMessage):
    """What one task has written.

    Attributes:
        chunks: How many it staged; 0 when it appended at once.
    """

    partition: int
    attempt: str
    chunks: int
    rows: int
    sums: dict[str, Sum]


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of one DataFrame. See the module for what each mode promises."""

    def __init__(self, options: SinkOptions, columns: Mapping[str, int]) -> None:
        self._options = options
        self._columns = dict(columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartWritten:
        """Write one partition. Runs in an executor."""
        assert self._options.producer is not None and self._options.epoch is not None
        place = EpochPlace.here(self._options.producer, self._options.epoch)
        return write_part(self._options, self._columns, place, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all of it visible. Runs on the driver when every task has succeeded.

        Raises:
            PipelineError: This write was committed with other content, or the server refuses it.
        """
        assert self._options.producer is not None and self._options.epoch is not None
        if self._options.delivery == "transactional":
            commit_parts(self._options, self._options.producer, self._options.epoch, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard what was staged. Runs on the driver when a task or the commit has failed."""
        if self._options.delivery == "transactional":
            assert self._options.producer is not None and self._options.epoch is not None
            discard(self._options, self._options.producer, self._options.epoch)


class LogqueueStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches: batch number n of the query is epoch n of the producer."""

    def __init__(self, options: SinkOptions, columns: Mapping[str, int]) -> None:
        self._options = options
        self._columns = dict(columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartWritten:
        """Write one partition of a micro-batch. Runs in an executor."""
        producer = self._options.producer or f"spark:{_property(QUERY_PROPERTY)}"
        place = EpochPlace.here(producer, int(_property(EPOCH_PROPERTY)))
        return write_part(self._options, self._columns, place, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make a micro-batch visible. Runs on the driver, in another process than the last one.

        Raises:
            PipelineError: The producer has come further than the checkpoint, or the batch was
                committed with other content, or the server refuses it. The query stops.
        """
        if self._options.delivery == "transactional":
            assert self._options.producer is not None
            commit_parts(self._options, self._options.producer, batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Discard what was staged. Runs on the driver when a task or the commit has failed."""
        if self._options.delivery == "transactional":
            assert self._options.producer is not None
            discard(self._options, self._options.producer, batchId)


# -- in a task ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EpochPlace:
    """Which try of which partition of which epoch a task is."""

    producer: str
    epoch: int
    partition: int
    attempt: str

    @classmethod
    def here(cls, producer: str, epoch: int) -> EpochPlace:
        """That of the running task."""
        context = TaskContext.get()
        if context is None:
            raise PipelineError("rows are written by tasks of Spark only: call save() or start()")
        attempt = f"{context.attemptNumber()}-{uuid.uuid4().hex}"
        return cls(producer, epoch, context.partitionId(), attempt)


def _property(name: str) -> str:
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if value is None:
        raise PipelineError(
            f"this Spark does not tell tasks its property {name}, which tells a micro-batch from "
            "its repeat; without it rows may be stored twice, so nothing is written. Use a tested "
            "version (logqueue pipeline doctor names them)"
        )
    return str(value)


def write_part(
    options: SinkOptions,
    columns: Mapping[str, int],
    place: EpochPlace,
    batches: Iterator[pa.RecordBatch],
) -> PartWritten:
    """Write the rows of one partition, in a task.

    Raises:
        PipelineError: A row is not a record, or the server refuses one.
    """
    chunks = Chunks(options, columns, place.partition)
    send = _stage if options.delivery == "transactional" else _append
    count = 0
    with client_of(options) as client:
        for chunk in _each(chunks, batches):
            send(client, place, count, chunk)
            count += 1
    staged = count if options.delivery == "transactional" else 0
    return PartWritten(place.partition, place.attempt, staged, chunks.rows, chunks.sums)


def _each(chunks: Chunks, batches: Iterator[pa.RecordBatch]) -> Iterator[BodyChunk]:
    for batch in batches:
        yield from chunks.take(batch)
    yield from chunks.rest()


def client_of(options: SinkOptions, *, retry_s: float | None = None) -> Client:
    """A client of the server, which waits as long as the options say for a server that is busy.

    Raises:
        PipelineError: The URL or the key is malformed.
    """
    total_s = float(options.retry_s) if retry_s is None else retry_s
    patience = Backoff(attempts=None, total_s=total_s)
    try:
        return Client(options.url, options.key(), timeout_s=CALL_TIMEOUT_S, backoff=patience)
    except ValueError as error:
        raise PipelineError(f"option url or token: {error}") from error


def _stage(client: Client, place: EpochPlace, number: int, chunk: BodyChunk) -> None:
    head = b'{"topic":%s,"partition":%d,"attempt":"%s","chunk":%d,"records":[' % (
        msgspec.json.encode(chunk.topic),
        place.partition,
        place.attempt.encode(),
        number,
    )
    body = b"".join((head, b",".join(chunk.records), b"]}"))
    call = request(STAGE_CHUNK, place.producer, str(place.epoch), body=body)
    _send(client, call, Staged, place, number, chunk)


def _append(client: Client, place: EpochPlace, number: int, chunk: BodyChunk) -> None:
    records = b",".join(chunk.records)
    # The content is part of the key: after a shuffle other rows may come in the same place, and
    # they must not be taken for a repeat.
    content = hashlib.blake2b(records, digest_size=16).hexdigest()
    # The whole place may be longer than a key; its digest is as good.
    text = f"{place.producer} {place.epoch} {place.partition} {number} {content}"
    key = hashlib.blake2b(text.encode(), digest_size=24).hexdigest()
    body = b"".join((b'{"idempotency_key":"%s","records":[' % key.encode(), records, b"]}"))
    call = request(WRITE_RECORDS, chunk.topic, query={"return_seqs": False}, body=body)
    _send(client, call, Appended, place, number, chunk)


def _send(
    client: Client,
    call: CallRequest,
    shape: type[Any],
    place: EpochPlace,
    number: int,
    chunk: BodyChunk,
) -> None:
    try:
        client.perform(reading(call, shape))
    except LogqueueError as error:
        rows = f"rows from {chunk.first_row} on, {len(chunk.records)} of topic {chunk.topic}"
        what = f"partition {place.partition}, chunk {number} ({rows})"
        raise PipelineError(_explained(error, what, place.producer, place.epoch)) from error


# -- on the driver --------------------------------------------------------------------------------


def discard(options: SinkOptions, producer: str, epoch: int) -> None:
    """Have the server discard what is staged for an epoch, so that others can use the room.

    Spark also aborts a write whose commit was applied and whose answer was lost: the server
    discards nothing of an epoch that was committed. Where that fails, the chunks are discarded by
    the next commit, or after an hour; and what a task that is still running stages afterwards.
    """
    with suppress(LogqueueError, PipelineError), client_of(options, retry_s=0.0) as client:
        client.abort(producer, epoch)


def commit_parts(
    options: SinkOptions, producer: str, epoch: int, messages: list[WriterCommitMessage | None]
) -> Committed:
    """Commit an epoch: what tasks report to have staged, on the driver.

    Raises:
        PipelineError: A task has not reported, or the server refuses the commit.
    """
    sums: dict[str, Sum] = {}
    parts = []
    for message in messages:
        if not isinstance(message, PartWritten):
            raise PipelineError("a task gave no answer, so nothing is committed; run it again")
        if message.chunks:
            parts.append(
                EpochPart(message.chunks, message.rows, message.partition, message.attempt)
            )
        for topic, part in message.sums.items():
            sums.setdefault(topic, Sum()).add(part)
    with client_of(options) as client:
        try:
            done = client.commit(producer, epoch, parts, content=digest_of(sums))
        except LogqueueError as error:
            raise PipelineError(_explained(error, "the commit", producer, epoch)) from error
        if done.status == "already" and not done.topics and any(s.rows for s in sums.values()):
            raise _behind(client, producer, epoch)
    return done


def _behind(client: Client, producer: str, epoch: int) -> PipelineError:
    """The refusal of an epoch before the last: what it held is no longer known.

    Spark repeats the last micro-batch of a checkpoint and none before it.
    """
    last = "a later one"
    with suppress(LogqueueError):
        last = f"epoch {client.producer(producer).last_epoch}"
    return PipelineError(
        f"producer {producer} has committed {last} already, and this is epoch {epoch}: the "
        "checkpoint was lost or is an older one, or another query uses this name. Nothing was "
        "stored. Go on with the right checkpoint; or choose a new producer (writeId) and start "
        "behind what the topic holds already, as all that is read again is stored again"
    )


_CONFLICTS: dict[object, str] = {
    "gap": "another epoch is due. The checkpoint (or the epoch of a batch write) is ahead of the "
    "server, which may have been restored from a backup, or another query uses this name. Nothing "
    "was stored. Choose a new producer (writeId) and start behind what the topic holds already",
    "content": "it was committed with other rows. Nothing was stored. Another write needs a writeId"
    " (producer) of its own; if it should be the same write, its rows must not depend on chance or "
    "the time (rand, uuid, current_timestamp)",
    "missing": "what was staged is no longer there: it waited over an hour, or its topic was "
    "deleted. Run it again; a batch that takes so long should be smaller",
    "rows": "a task staged another number of rows than it counted. Run it again",
}


def _explained(error: LogqueueError, what: str, producer: str, epoch: int) -> str:
    """A refusal as one sentence that says what to do."""
    detail = error.detail or {}
    if isinstance(error, EpochConflict):
        advice = _CONFLICTS.get(detail.get("reason"), "see docs/protocol.md, Conflicts")
        return f"epoch {epoch} of producer {producer} was refused: {error.message}; {advice}"
    return f"{what} was not written: {error.message}{_advice(error)}"


_ADVICE: tuple[tuple[type[LogqueueError], str], ...] = (
    (StorageFull, "; the server was asked again until option patienceSeconds ran out"),
    (StorageReadOnly, "; then run this again: what was stored is not stored twice"),
    (TopicFull, "; raise the topic's caps, or let its consumers catch up and run this again"),
    (Throttled, "; the server was asked again until option patienceSeconds ran out"),
    (ConnectionFailed, "; is option url right, and does the server run? Then run this again"),
    (Unauthorized, "; give a key with option tokenFile (or token)"),
    (Forbidden, "; the key needs the scope write, and prefixes that take in the topics"),
    (NotAQueue, "; make the topic a queue first, or leave that column out"),
)


def _advice(error: LogqueueError) -> str:
    return next((text for kind, text in _ADVICE if isinstance(error, kind)), "")
