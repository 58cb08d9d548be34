"""Rows cut into slices, and written one slice after the other from a single pass over them.

Owns: which row is in which slice, how large slices are, how a slice gets to the server. Must not
know: where rows come from, what tells one load from another.

The cut follows from the rows alone: from a hash of each, or from a column and bounds taken from a
sample that is chosen by hash. Slices are bounded in bytes, as all of a slice is staged before it is
committed, and servers bound what is staged. Rows that are alike have one hash; where they are so
many that a slice would be too large, one of them travels with a count, and their copies are spread
over slices of their own.

One shuffle puts each slice into a partition of its own. Partitions are then computed one at a time
(`toLocalIterator`): a task stages its slice and reports in one row, and the driver commits it
before it asks for the next. So the source is read as often for a thousand slices as for one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from logqueue.client import Client
from logqueue.errors import NotFound
from logqueue.pipeline.engines.spark.formats import sink
from logqueue.pipeline.engines.spark.formats.sink_bodies import Sum
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.progress import Note
from logqueue.pipeline.writing.sink_options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SLICE_ROWS: Final = 250_000
SLICE_BYTES: Final = 256 << 20
"""Of what is staged at once, about; tasks that are tried again may stage it several times."""
SLICE_BYTES_MAX: Final = 1 << 30
"""Half of what a server lets all producers stage."""
ALIKE_PARTS: Final = 4
"""Rows that are alike get slices of their own from this part of a slice on."""
ROW_BYTES: Final = 16
"""Of a row besides its texts."""
SLICES_MAX: Final = 10_000
"""That a caller may ask for."""
SAMPLE_PER_SLICE: Final = 100
TURN_POLL_S: Final = 0.2

ORDER: Final = "_order"
HASH: Final = "_hash"
SIZE: Final = "_size"
SLICE: Final = "_slice"
COPIES: Final = "_copies"
_OWN: Final = (ORDER, HASH, SIZE, SLICE, COPIES)
_REPORT_DDL: Final = "slice BIGINT, report BINARY"


def ordered(rows: DataFrame, order_by: str | None) -> DataFrame:
    """Rows with their hash and size, and with what they are ordered by.

    Raises:
        PipelineError: They have no such column.
    """
    from pyspark.sql import functions as F

    if order_by is not None and order_by not in rows.columns:
        raise PipelineError(
            f"rows cannot be ordered by {order_by}: they have {', '.join(rows.columns)}"
        )
    texts = [name for name, kind in rows.dtypes if kind == "string"]
    size = F.lit(ROW_BYTES).cast("long")
    for name in texts:
        size = size + F.coalesce(F.octet_length(F.col(name)), F.lit(0))
    order = [F.col(HASH)] if order_by is None else [F.col(order_by).alias("_first"), F.col(HASH)]
    return (
        rows.withColumn(HASH, F.xxhash64(*rows.columns))
        .withColumn(SIZE, size)
        .withColumn(ORDER, F.struct(*order))
    )


@dataclass(frozen=True)
class Alike:
    """Rows that are alike, and too many for a slice with others.

    Attributes:
        first: Their first slice; they have it and those after it, `slices` in all, to themselves.
    """

    hash: int
    rows: int
    first: int
    slices: int


class SliceCut:
    """Which slice each row is in.

    Attributes:
        count, bytes: Of all rows.
        slices: How many slices there are.
        fingerprint: What tells these rows from any others, whatever their order.
    """

    def __init__(self, rows: DataFrame, slices: int | None, is_hashed: bool) -> None:
        """Look at all rows once.

        Args:
            rows: As `ordered` gives them.
            slices: How many slices rows that differ are cut into; None for as many as are needed.
            is_hashed: They are in the order of their hashes, so no bounds are needed.

        Raises:
            PipelineError: A slice would be larger than a server lets producers stage.
        """
        self.columns = [name for name in rows.columns if name not in _OWN]
        self._rows = rows
        self._is_hashed = is_hashed
        found = _totals(rows)
        self.count: int = found["rows"] or 0
        self.bytes: int = found["bytes"] or 0
        self.fingerprint = [self.columns, self.count, found["xor"], found["sum"]]
        many = [(row["hash"], row["n"], row["size"]) for row in found["many"]] if is_hashed else []
        largest = max((row["size"] for row in found["many"]), default=0)
        if not is_hashed and largest > SLICE_BYTES_MAX:
            raise PipelineError(
                f"{largest} bytes of rows are exactly alike, more than is staged at once "
                f"({SLICE_BYTES_MAX}): load them without --order-by"
            )
        count = self.count - sum(n for _, n, _ in many)
        size = self.bytes - sum(size for _, _, size in many)
        self._plain = slices or max(-(-count // SLICE_ROWS), -(-size // SLICE_BYTES), 1)
        if size // self._plain > SLICE_BYTES_MAX:
            raise PipelineError(
                f"slices is {slices}: each would have {size // self._plain} bytes, more than is "
                f"staged at once ({SLICE_BYTES_MAX}); leave it out, or give "
                f"{-(-size // SLICE_BYTES)} or more"
            )
        self._alike: list[Alike] = []
        self.slices = self._plain
        for code, n, bytes in sorted(many):
            own = max(-(-n // SLICE_ROWS), -(-bytes // SLICE_BYTES), 1)
            self._alike.append(Alike(code, n, self.slices, min(own, n)))
            self.slices += min(own, n)

    def sliced(self, spark: SparkSession, done: int) -> DataFrame:
        """The rows of slices behind `done`, a partition for each slice, in order."""
        from pyspark.sql import functions as F

        rows = self._rows
        if self._alike:
            rows = rows.where(~F.col(HASH).isin([alike.hash for alike in self._alike]))
        rows = self._hashed(rows) if self._is_hashed else self._bounded(spark, rows)
        rows = rows.withColumn(COPIES, F.lit(1).cast("long"))
        if self._alike:
            rows = rows.unionByName(self._copied(spark).select(*rows.columns))
        todo = rows.where(F.col(SLICE) > done)
        parts = todo.repartitionById(
            self.slices - done - 1, (F.col(SLICE) - (done + 1)).cast("int")
        ).sortWithinPartitions(ORDER)
        if self._alike:
            parts = parts.withColumn("_n", F.explode(F.sequence(F.lit(1), COPIES)))
        return parts.select(SLICE, *self.columns)

    def _hashed(self, rows: DataFrame) -> DataFrame:
        """Rows with their slice, by equal ranges of hashes: the upper 32 bits say which."""
        from pyspark.sql import functions as F

        upper = F.shiftright(F.col(HASH), 32) + F.lit(1 << 31)
        return rows.withColumn(SLICE, F.shiftright(upper * F.lit(self._plain), 32).cast("long"))

    def _bounded(self, spark: SparkSession, rows: DataFrame) -> DataFrame:
        """Rows with their slice, by bounds that a sample gives: as many bytes in each."""
        from pyspark.sql import functions as F

        if self._plain == 1:
            return rows.withColumn(SLICE, F.lit(0).cast("long"))
        every = max(self.count // (self._plain * SAMPLE_PER_SLICE), 1)
        # Which rows are looked at follows from the rows themselves, so the bounds do, too.
        sample = rows.where(F.pmod(F.xxhash64(F.lit(1), F.col(HASH)), F.lit(every)) == 0)
        found = [
            (row[ORDER], row[SIZE]) for row in sample.select(ORDER, SIZE).orderBy(ORDER).collect()
        ]
        bounds = [*_bounds(found, self._plain)]
        table = spark.createDataFrame(
            [*enumerate(bounds, 1)], _bounds_schema(rows.schema[ORDER].dataType)
        )
        listed = table.agg(F.sort_array(F.collect_list("bound")).alias("_bounds"))
        place = F.size(F.filter("_bounds", lambda bound: bound <= F.col(ORDER))).cast("long")
        return rows.crossJoin(F.broadcast(listed)).withColumn(SLICE, place).drop("_bounds")

    def _copied(self, spark: SparkSession) -> DataFrame:
        """One row for each slice of rows that are alike, with the number of its copies."""
        from pyspark.sql import functions as F

        codes = [alike.hash for alike in self._alike]
        table = spark.createDataFrame(
            [(alike.hash, alike.first, alike.slices) for alike in self._alike],
            f"{HASH} BIGINT, _first_slice BIGINT, _own BIGINT",
        )
        part, own = F.col("_part"), F.col("_own")
        copies = F.floor(F.col("_n") / own).cast("long") + (part < F.col("_n") % own).cast("long")
        return (
            self._rows.where(F.col(HASH).isin(codes))
            .groupBy(*self.columns, HASH, ORDER)
            .agg(F.count(F.lit(1)).alias("_n"), F.first(SIZE).alias(SIZE))
            .join(F.broadcast(table), HASH)
            .withColumn("_part", F.explode(F.sequence(F.lit(0).cast("long"), own - 1)))
            .withColumn(SLICE, F.col("_first_slice") + part)
            .withColumn(COPIES, copies)
            .where(F.col(COPIES) > 0)
        )


def _totals(rows: DataFrame) -> Any:
    """Counts and digests of all rows, and which hashes have very many."""
    from pyspark.sql import functions as F

    by_hash = rows.groupBy(HASH).agg(F.count(F.lit(1)).alias("n"), F.sum(SIZE).alias("size"))
    low = F.col(HASH).bitwiseAND(F.lit((1 << 31) - 1))
    is_odd = F.col("n") % 2 == 1
    too_many = (F.col("n") > SLICE_ROWS // ALIKE_PARTS) | (
        (F.col("size") > SLICE_BYTES // ALIKE_PARTS) & (F.col("n") > 1)
    )
    return by_hash.agg(
        F.sum("n").alias("rows"),
        F.sum("size").alias("bytes"),
        # Of all rows: a hash that comes twice takes itself away.
        F.when(F.count(F.lit(1)) > 0, F.coalesce(F.bit_xor(F.when(is_odd, F.col(HASH))), F.lit(0)))
        .alias("xor"),
        F.sum(low * F.col("n")).alias("sum"),
        F.collect_list(
            F.when(too_many, F.struct(F.col(HASH).alias("hash"), F.col("n"), F.col("size")))
        ).alias("many"),
    ).collect()[0]  # fmt: skip


def _bounds(sample: list[tuple[Any, int]], slices: int) -> Iterator[Any]:
    """Where slices begin, so that all have about as many bytes of a sorted sample."""
    total = sum(size for _, size in sample)
    reached, number = 0, 1
    for order, size in sample:
        while number < slices and reached * slices >= total * number and reached:
            yield order
            number += 1
        reached += size


def _bounds_schema(kind: Any) -> StructType:
    from pyspark.sql.types import IntegerType, StructField, StructType

    return StructType([StructField("place", IntegerType()), StructField("bound", kind)])


# -- writing: in tasks -----------------------------------------------------------------------------


class SliceReport(msgspec.Struct, frozen=True):
    """What a task has staged; no attempt when the slice was committed before."""

    attempt: str
    chunks: int = 0
    rows: int = 0
    sums: dict[str, Sum] = {}


def stage_slices(
    options: SinkOptions, columns: Mapping[str, int], first: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task that stages a slice.

    Args:
        columns: Places of the columns of records, in rows without the number of the slice.
        first: Number of the slice in the first partition.
    """

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        assert options.producer is not None
        context = TaskContext.get()
        assert context is not None
        number = first + context.partitionId()
        if _waited_for_turn(options, number):
            place = sink.EpochPlace.here(options.producer, number)
            rows = (batch.drop_columns([SLICE]) for batch in batches)
            part = sink.write_part(options, columns, place, rows)
            report = SliceReport(place.attempt, part.chunks, part.rows, part.sums)
        else:
            report = SliceReport("")
        values = [pa.array([number]), pa.array([msgspec.json.encode(report)], pa.binary())]
        yield pa.RecordBatch.from_arrays(values, ["slice", "report"])

    return task


def _waited_for_turn(options: SinkOptions, number: int) -> bool:
    """Wait until the slice before is committed, where several tasks run at once; false when this
    one is committed itself.

    Raises:
        PipelineError: No slice was committed for too long.
    """
    assert options.producer is not None
    known, since = -2, time.monotonic()
    with sink.client_of(options) as client:
        while True:
            last = last_epoch(client, options.producer)
            if last >= number - 1:
                return last < number
            if last > known:
                known, since = last, time.monotonic()
            if time.monotonic() - since > options.retry_s:
                raise PipelineError(
                    f"slice {number} waits for slice {last + 1}, and for {options.retry_s} s no "
                    "slice was committed; run this again to continue"
                )
            time.sleep(TURN_POLL_S)


def last_epoch(client: Client, producer: str) -> int:
    """The last slice that is in the topic; -1 when none is."""
    last = None
    with suppress(NotFound):
        last = client.producer(producer).last_epoch
    return -1 if last is None else last


# -- writing: on the driver ------------------------------------------------------------------------


def write_slices(
    rows: DataFrame,
    options: SinkOptions,
    columns: Mapping[str, int],
    slices: int,
    done: int,
    note: Note,
) -> int:
    """Write the slices behind `done`, one after the other; returns how many rows they have.

    Args:
        rows: As `SliceCut.sliced` gives them.
    """
    assert options.producer is not None
    written = 0
    # What a run that was killed has staged takes room that this one needs.
    sink.discard(options, options.producer, done + 1)
    reports = rows.mapInArrow(stage_slices(options, columns, done + 1), _REPORT_DDL)
    arriving = reports.toLocalIterator()
    for number in range(done + 1, slices):
        note(f"slice {number + 1} of {slices}", number / slices)
        try:
            row = next(arriving)
            assert row["slice"] == number, "partitions come in order"
            report = msgspec.json.decode(row["report"], type=SliceReport)
            if report.attempt:
                part = sink.PartWritten(
                    number - done - 1, report.attempt, report.chunks, report.rows, report.sums
                )
                sink.commit_parts(options, options.producer, number, [part])
        except BaseException:
            sink.discard(options, options.producer, number)
            raise
        written += report.rows
    return written
