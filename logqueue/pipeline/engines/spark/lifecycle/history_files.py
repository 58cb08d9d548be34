"""The tables `jobs` and `attempts` as staged files by day, written by tasks of Spark.

Owns: how rows get to the task that writes their day. Must not know: what the rows say, how large
files are (`file_sizes`), how they are published. Tasks run in executors, so pyarrow is imported at
the top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from logqueue.pipeline.lifecycle.publishing import Staging, TableFile
from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.lifecycle.tables import ATTEMPTS, JOBS
from logqueue.pipeline.rows.file_sizes import DayKey, Gathering, by_day
from logqueue.pipeline.rows.history_batches import ROWS_PER_CHUNK, folder
from logqueue.pipeline.rows.job_batches import attempts_in, jobs_in
from logqueue.pipeline.rows.packs import packed_by_part, unpacked
from logqueue.pipeline.rows.shuffle import floors_of, sorted_rows
from logqueue.pipeline.rows.staged_files import stage_by_day
from logqueue.pipeline.stores.continuing import Keys, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTS_DDL: Final = "part INT, pack BINARY"
"""Rows of records and events on their way to who folds them; see `packs.PACKS_SCHEMA`."""
PACKS_DDL: Final = "name STRING, day DATE, pack BINARY"
"""Rows of a table and day on their way to who writes them, as an Arrow stream."""
PACK_COLUMNS: Final = ["name", "day", "pack"]
PACK_ROWS: Final = 50_000
PACK_BYTES: Final = 4 << 20
WRITTEN_DDL: Final = "path STRING, name STRING, rows BIGINT, bytes BIGINT"
"""What a task reports of a file; see `TableFile`."""

DAY_PARTITIONS: Final = 512
"""Days are spread over that many; those with little are put together again."""
ADAPTIVE: Final = "spark.sql.adaptive.enabled"
ADVISORY: Final = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
ADVISORY_BYTES: Final = 192 << 20
"""Of packs for a task: about what gives a file of the size they should have."""

_WRITTEN = pa.schema(
    [("path", pa.string()), ("name", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())]
)

Batches = Iterable[pa.RecordBatch]
Task = Callable[[Batches], Iterator[pa.RecordBatch]]


class Packing:
    """Rows of one task, packed by table and day, to travel to the task that writes that day.

    A pack is opaque to Spark: a few MB of columns are one value of one row, so that a shuffle by
    day costs next to nothing.
    """

    def __init__(self) -> None:
        self._gathering = Gathering(PACK_ROWS, PACK_BYTES)

    def add(self, kind: TableKind, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Take in rows; gives the packs that are full."""
        for key, its in by_day(kind.name, rows):
            for full in self._gathering.add(key, its):
                yield _packed(*full)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is left."""
        for part in self._gathering.rest():
            yield _packed(*part)


def _packed(key: DayKey, rows: pa.Table) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    columns = [[key.name], [key.day], [sink.getvalue().to_pybytes()]]
    return pa.RecordBatch.from_arrays([pa.array(values) for values in columns], PACK_COLUMNS)


def pack_rows(parts: int, jobs: Keys | None) -> Task:
    """The task that packs rows of all jobs or some by part; see `packed_by_part`."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        return packed_by_part(rows_of(batches, jobs), parts)

    return task


def fold_packs(end: int, topics: dict[str, str], first_seqs: dict[str, int]) -> Task:
    """The task that folds the rows of a part of the jobs into both tables.

    Args:
        end, topics: See `history_batches.folder`.
        first_seqs: See `shuffle.floors_of`.
    """
    fold = folder(end, topics)

    def rows(batches: Batches) -> Iterator[pa.RecordBatch]:
        group, floors = unpacked(batches)
        passed = floors_of(floors, first_seqs)
        for share in group.shares():
            its = sorted_rows(share.read(), passed)
            # Few at a time fit in a processor's cache; a job may go on in the next.
            yield from (
                its.slice(first, ROWS_PER_CHUNK) for first in range(0, its.num_rows, ROWS_PER_CHUNK)
            )

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        packing = Packing()
        for folded in fold(rows(batches)):
            yield from packing.add(JOBS, jobs_in(folded))
            yield from packing.add(ATTEMPTS, attempts_in(folded))
        yield from packing.rest()

    return task


def write_packs(staging: Staging, prefix: str) -> Task:
    """The task that writes packs into files by day.

    Each try names its files for itself, and only those of the try that succeeded are reported.
    """

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        for file in stage_by_day(_unpacked(batches), staging, f"{prefix}-{number:05}"):
            yield pa.RecordBatch.from_pylist([msgspec.structs.asdict(file)], _WRITTEN)

    return task


def _unpacked(batches: Batches) -> Iterator[tuple[DayKey, pa.Table]]:
    for batch in batches:
        names, days, packs = batch.columns
        for place, pack in enumerate(packs):
            with pa.ipc.open_stream(pack.as_buffer()) as reader:
                yield DayKey(names[place].as_py(), days[place].as_py()), reader.read_all()


def write_by_day(packs: DataFrame, staging: Staging, prefix: str) -> list[TableFile]:
    """Bring the packs of a day together and stage its files.

    Where Spark plans as it goes, a day of many packs is written by several tasks, and days of few
    by one; elsewhere a day is one task.
    """
    by_day = packs.hint("rebalance", DAY_PARTITIONS, "name", "day")
    conf = packs.sparkSession.conf
    if conf.get(ADAPTIVE, "true") != "true":
        by_day = packs.repartition("name", "day")
    before = conf.get(ADVISORY, None)
    conf.set(ADVISORY, str(ADVISORY_BYTES))
    try:
        rows = by_day.mapInArrow(write_packs(staging, prefix), WRITTEN_DDL).collect()
        return [TableFile(**row.asDict()) for row in rows]
    finally:
        if before is None:
            conf.unset(ADVISORY)
        else:
            conf.set(ADVISORY, before)
