"""Moving dead letters back to work, chosen by SQL.

Owns: reading dead letters, choosing among them, and moving them through the server. Must not know:
how a dead letter becomes a job again; the server does that, copy and removal in one transaction.

A write id is run once. The server remembers under it (see `write_memory`) the last of the dead
letters that the first run chose, so that an interrupted run resumes with those and takes
none that died later, and that it is done, so that another run does nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from logqueue.client import Client
from logqueue.errors import (
    LogqueueError,
    quoted,
)
from logqueue.pipeline.errors import PipelineError, message_of
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.writing.progress_records import WriteMemory, digest
from logqueue.pipeline.writing.sink_options import producer_of
from logqueue.shapes import Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ_AT_ONCE: Final = 50_000
MOVED_AT_ONCE: Final = 1000
COLUMNS: Final = (
    "seq BIGINT, ts TIMESTAMP, tag STRING, node STRING, data STRING, meta STRING, "
    "reason STRING, error STRING, at TIMESTAMP, `from` STRING, source STRING, "
    "src_seq BIGINT, deliveries BIGINT"
)
"""What `where` may ask about. `source` is `from` under a name that needs no quotes."""


def run_redrive(
    spark: SparkSession,
    url: str,
    dead_topic: str,
    write_id: str,
    *,
    where: str | None = None,
    to_topic: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    token: str | None = None,
    note: Note = silent,
) -> dict[str, Any]:
    """Move dead letters back to the queue each came from, or all to one topic.

    Args:
        spark: A session; used when there is a `where`.
        url: Of the server.
        dead_topic: Where the dead letters are.
        write_id: A name for this run; the same name again resumes it, or does nothing.
        where: A SQL condition over `COLUMNS`; all when None.
        to_topic: Where all of them go.
        limit: How many at most, the oldest first.
        dry_run: Only count; nothing is written, and nothing is remembered.
        token: The key to call with.
        note: Called at each step.

    Returns:
        job, dead_topic, write_id, status ("done", "already", "dry_run"), selected, redriven,
        skipped (chosen and still there), remaining (dead letters that are still there), targets.

    Raises:
        PipelineError: The condition is not valid SQL, the write id belongs to something else, or
            the server refuses.
    """
    if limit is not None and limit < 1:
        raise PipelineError(f"limit is {limit}: write how many dead letters to move, from 1")
    settings = digest([dead_topic, where, to_topic, limit])
    try:
        with Client(url, token) as client:
            memory = WriteMemory(client, f"{producer_of(write_id)}>redrive", settings)
            return _Redrive(spark, client, dead_topic, memory, note).run(
                write_id, where, to_topic, limit, dry_run=dry_run
            )
    except LogqueueError as error:
        raise PipelineError(f"dead letters of {dead_topic} were not moved: {error}") from error
    except ValueError as error:
        raise PipelineError(f"url or token: {error}") from error


class _Redrive:
    def __init__(
        self, spark: SparkSession, client: Client, topic: str, memory: WriteMemory, note: Note
    ) -> None:
        self.spark = spark
        self.client = client
        self.topic = topic
        self.memory = memory
        self.note = note
        self.scanned = 0

    def run(
        self,
        write_id: str,
        where: str | None,
        to_topic: str | None,
        limit: int | None,
        *,
        dry_run: bool,
    ) -> dict[str, Any]:
        summary: dict[str, Any] = {"job": "redrive", "dead_topic": self.topic, "write_id": write_id}
        # An even note says: started, up to this seq; the odd one behind it: done.
        marker = None if dry_run else self.memory.last()
        if marker is not None and marker % 2:
            nothing = {"selected": 0, "redriven": 0, "skipped": 0, "targets": []}
            remaining = self.client.topic(self.topic).count
            return {**summary, "status": "already", **nothing, "remaining": remaining}
        chosen = self._chosen(where, limit, None if marker is None else marker // 2)
        if dry_run:
            counts = self._counted(chosen, to_topic)
            return {**summary, "status": "dry_run", **counts, "targets": []}
        if marker is None:
            # Have the server refuse before the write id is bound to this content.
            self._counted(chosen[:1], to_topic)
            marker = 2 * (chosen[-1] if chosen else 0)
            self.memory.note(marker)
        counts, targets = self._moved(chosen, to_topic)
        self.memory.note(marker + 1)
        return {**summary, "status": "done", **counts, "targets": targets}

    def _chosen(self, where: str | None, limit: int | None, last: int | None) -> list[int]:
        """Seqs of the selected dead letters, ascending."""
        found: list[int] = []
        letters = self.client.read(self.topic)
        records = (record for record in letters if isinstance(record, Record))
        while part := [*islice(records, READ_AT_ONCE)]:
            self.scanned += len(part)
            self.note(f"{self.scanned} dead letters read", None)
            if last is not None:
                part = [record for record in part if record.seq <= last]
            found += _matching(self.spark, part, where)
        return found if limit is None else found[:limit]

    def _counted(self, chosen: Sequence[int], to_topic: str | None) -> dict[str, int]:
        """What would be moved."""
        movable = 0
        for part in _parts(chosen):
            movable += self.client.redrive(
                self.topic, to=to_topic, seqs=part, limit=len(part), dry_run=True
            ).redriven
        return {
            "selected": len(chosen),
            "redriven": movable,
            "skipped": len(chosen) - movable,
            "remaining": self.scanned,
        }

    def _moved(
        self, chosen: Sequence[int], to_topic: str | None
    ) -> tuple[dict[str, int], list[str]]:
        """Move them; each is moved once, however often a call has to be made."""
        targets: set[str] = set()
        skipped = done = 0
        for part in _parts(chosen):
            while True:
                # One call moves what fits into a transaction; what it has moved is here no more.
                reply = self.client.redrive(self.topic, to=to_topic, seqs=part, limit=len(part))
                targets.update(reply.targets)
                if not reply.redriven or not reply.remaining:
                    break
            skipped += reply.remaining
            done += len(part)
            self.note(f"{done} of {len(chosen)} moved", done / len(chosen))
        counts = {
            "selected": len(chosen),
            "redriven": len(chosen) - skipped,
            "skipped": skipped,
            "remaining": self.scanned - (len(chosen) - skipped),
        }
        return counts, sorted(targets)


def _parts(seqs: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(seqs), MOVED_AT_ONCE):
        yield seqs[start : start + MOVED_AT_ONCE]


def _matching(spark: SparkSession, records: Sequence[Record], where: str | None) -> list[int]:
    """Seqs of the records that a condition lets through, ascending."""
    if where is None or not records:
        return [record.seq for record in records]
    from pyspark.errors import PySparkException

    try:
        rows = spark.createDataFrame([_row(record) for record in records], COLUMNS)
        return sorted(row["seq"] for row in rows.where(where).select("seq").collect())
    except PySparkException as error:
        raise PipelineError(
            f"invalid condition {quoted(where)}: {message_of(error)}; columns are {COLUMNS}"
        ) from error


def _row(record: Record) -> tuple[Any, ...]:
    meta = record.meta if isinstance(record.meta, dict) else {}

    def stamp(name: str) -> str | None:
        value = meta.get(f"$dead_letter_{name}")
        return value if isinstance(value, str) else None

    def number(name: str) -> int | None:
        value = stamp(name) or ""
        return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None

    at = number("at")
    return (
        record.seq,
        _time(record.ts),
        record.tag,
        record.node,
        _text(record.data),
        None if record.meta is None else _text(record.meta),
        stamp("reason"),
        stamp("error"),
        None if at is None else _time(at),
        stamp("from"),
        stamp("from"),
        number("src_seq"),
        number("deliveries"),
    )


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
