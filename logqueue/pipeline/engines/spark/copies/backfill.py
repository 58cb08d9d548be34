"""Bulk loads: files into a topic, each row once, whatever breaks on the way.

Owns: what rows become records, how they are cut into slices, and which slice is next. Must not
know: how rows reach the server; that is the sink's part.

A load is cut into slices, and each is one epoch of a producer named after the write id: it becomes
visible at once, and the server remembers the last. A run that was interrupted continues after it.
For that to be right, the cut must be the same each time, on any cluster, so it follows from the
rows alone: they are ordered by a column, or else by a hash of themselves, and the bounds between
slices are taken from a sample that is chosen by hash, too. The server also remembers a digest of
all rows and settings, and refuses to go on with others (see `write_memory`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from logqueue.client import Client
from logqueue.errors import (
    LogqueueError,
    NotFound,
    quoted,
)
from logqueue.pipeline.errors import PipelineError, as_pipeline_error
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.writing.progress_records import WriteMemory, digest
from logqueue.pipeline.writing.sink_options import COLUMNS, producer_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMATS: Final = ("parquet", "json", "csv")
SLICE_ROWS: Final = 250_000
SLICES_MAX: Final = 10_000
SAMPLE_PER_SLICE: Final = 100
VIEW: Final = "input"
_ORDER: Final = "_order"
_HASH: Final = "_hash"
_STATEMENT: Final = re.compile(r"\s*(select|with)\b", re.IGNORECASE)


def run_backfill(
    spark: SparkSession,
    source: str,
    format: str,
    url: str,
    to_topic: str,
    write_id: str,
    *,
    token: str | None = None,
    map_sql: str | None = None,
    slices: int | None = None,
    order_by: str | None = None,
    note: Note = silent,
) -> dict[str, Any]:
    """Load files into a topic.

    Rows need a column `data` (a text of JSON, or anything else, which is made JSON); without one
    all columns become one JSON object. Further columns are those of the sink: tag, node, meta,
    delay_ms, not_before, ttl_ms, max_deliveries. A column `topic` is left out: all go to one.

    Args:
        spark: A session.
        source: Path of files, as Spark reads it.
        format: "parquet", "json" (an object per line) or "csv" (with a header).
        url: Of the server.
        to_topic: Where to.
        write_id: A name for this load; the same name again resumes it, or does nothing.
        token: The key to call with.
        map_sql: A SELECT over the view `input`, or the list of one.
        slices: How many epochs; by the number of rows when None, about 250 000 in each.
        order_by: Column that rows are written in the order of; by a hash when None.
        note: Called at each step.

    Returns:
        job, write_id, producer, to_topic, rows, slices, written (rows of this run), already (rows
        of runs before), epochs (first and last of this run, or null).

    Raises:
        PipelineError: Something cannot be read or written, or the write id belongs to other rows
            or settings.
    """
    if format not in FORMATS:
        raise PipelineError(f"format is {quoted(format)}: write {', '.join(FORMATS)}")
    if slices is not None and not 1 <= slices <= SLICES_MAX:
        raise PipelineError(f"slices is {slices}: write 1 to {SLICES_MAX}")
    producer = producer_of(write_id)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        rows = _ordered(_records(_read(spark, source, format), map_sql), order_by)
        load = _Load(spark, rows, slices, note)
        settings = [format, to_topic, map_sql, order_by, load.slices, load.fingerprint]
        with Client(url, token) as client:
            memory = WriteMemory(client, f"{producer}>backfill", digest(settings))
            memory.note(0)
            done = _last_epoch(client, producer)
        summary = {"job": "backfill", "write_id": write_id, "producer": producer}
        options = {"url": url, "topic": to_topic, "writeId": write_id}
        if token is not None:
            options["token"] = token
        return {**summary, "to_topic": to_topic, **load.write(options, done)}
    except (PySparkException, Py4JError) as error:
        raise as_pipeline_error(error) from error
    except LogqueueError as error:
        raise PipelineError(f"{to_topic} was not loaded: {error}") from error
    except ValueError as error:
        raise PipelineError(f"url or token: {error}") from error


def _last_epoch(client: Client, producer: str) -> int:
    """The last slice that is in the topic; -1 when none is."""
    try:
        last = client.producer(producer).last_epoch
    except NotFound:
        return -1
    return -1 if last is None else last


def _read(spark: SparkSession, source: str, format: str) -> DataFrame:
    reader = spark.read.format(format)
    if format == "csv":
        reader = reader.option("header", True)
    return reader.load(source)


def _records(rows: DataFrame, map_sql: str | None) -> DataFrame:
    """Rows with the columns of the sink."""
    if map_sql is not None:
        rows = _mapped(rows, map_sql)
    from pyspark.sql import functions as F

    names = {name.lower(): name for name in rows.columns}
    if "data" not in names:
        return rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("data"))
    columns: list[Column] = []
    for low, name in names.items():
        if low == "topic":
            continue
        if low not in COLUMNS:
            raise PipelineError(
                f"column {name} is not a field of records ({', '.join(COLUMNS)}): choose columns "
                "with --map, or leave out data: then all columns become one JSON object"
            )
        is_text = rows.schema[name].dataType.simpleString() == "string"
        as_json = low in ("data", "meta") and not is_text
        columns.append((F.to_json(name) if as_json else F.col(name)).alias(low))
    return rows.select(*columns)


def _mapped(rows: DataFrame, map_sql: str) -> DataFrame:
    """The rows that a statement over the view `input` gives."""
    from pyspark.errors import PySparkException

    statement = map_sql if _STATEMENT.match(map_sql) else f"SELECT {map_sql} FROM {VIEW}"
    rows.createOrReplaceTempView(VIEW)
    try:
        mapped = rows.sparkSession.sql(statement)
        mapped.schema  # noqa: B018 - over Spark Connect a statement is looked at only now
    except PySparkException as error:
        raise PipelineError(
            f"--map does not work: {as_pipeline_error(error).message}; it is a SELECT over the "
            f"view {VIEW}, which has the columns {', '.join(rows.columns)}"
        ) from error
    return mapped


def _ordered(rows: DataFrame, order_by: str | None) -> DataFrame:
    """Rows with what they are ordered by; rows that are alike in that fall into one slice."""
    from pyspark.sql import functions as F

    hashed = F.xxhash64(*rows.columns)
    if order_by is None:
        return rows.withColumn(_HASH, hashed).withColumn(_ORDER, F.struct(_HASH))
    if order_by not in rows.columns:
        raise PipelineError(
            f"rows cannot be ordered by {order_by}: they have {', '.join(rows.columns)}"
        )
    order = F.struct(F.col(order_by).alias("_first"), F.col(_HASH))
    return rows.withColumn(_HASH, hashed).withColumn(_ORDER, order)


class _Load:
    """Rows that are cut into slices.

    Attributes:
        slices: How many.
        fingerprint: What tells these rows from any others, whatever their order.
    """

    def __init__(
        self, spark: SparkSession, rows: DataFrame, slices: int | None, note: Note
    ) -> None:
        from pyspark.sql import functions as F

        self.spark = spark
        self.note = note
        note("reading", None)
        total = rows.select(
            F.count(F.lit(1)).alias("rows"),
            F.bit_xor(_HASH).alias("xor"),
            F.sum(F.col(_HASH).bitwiseAND(F.lit((1 << 31) - 1))).alias("sum"),
        ).collect()[0]
        self.count: int = total["rows"]
        self.columns = [name for name in rows.columns if name not in (_HASH, _ORDER)]
        self.slices = slices or max(-(-self.count // SLICE_ROWS), 1)
        self.fingerprint = [self.columns, self.count, total["xor"], total["sum"]]
        self.rows = self._cut(rows)

    def _cut(self, rows: DataFrame) -> DataFrame:
        """Rows with the number of their slice."""
        from pyspark.sql import functions as F

        if self.slices == 1:
            return rows.withColumn("_slice", F.lit(0))
        every = max(self.count // (self.slices * SAMPLE_PER_SLICE), 1)
        # Which rows are looked at follows from the rows themselves, so the bounds do, too.
        sample = rows.where(F.pmod(F.xxhash64(F.lit(1), F.col(_HASH)), F.lit(every)) == 0)
        kind = rows.schema[_ORDER].dataType
        found = [row[_ORDER] for row in sample.select(_ORDER).orderBy(_ORDER).collect()]
        bounds = [
            found[len(found) * place // self.slices] for place in range(1, self.slices) if found
        ]
        table = self.spark.createDataFrame(
            [(place, bound) for place, bound in enumerate(bounds, 1)], _bounds_schema(kind)
        )
        listed = table.agg(F.sort_array(F.collect_list("bound")).alias("_bounds"))
        order = F.col(_ORDER)
        place = F.size(F.filter("_bounds", lambda bound: bound <= order))
        return rows.crossJoin(F.broadcast(listed)).withColumn("_slice", place).drop("_bounds")

    def write(self, options: dict[str, str], done: int) -> dict[str, Any]:
        """Write the slices behind `done`, one after the other."""
        from pyspark.sql import functions as F

        todo = range(done + 1, self.slices)
        kept = self.rows.persist() if len(todo) > 1 else self.rows
        try:
            sizes = {
                row["_slice"]: row["n"]
                for row in kept.groupBy("_slice").agg(F.count(F.lit(1)).alias("n")).collect()
            }
            for number in todo:
                self.note(f"slice {number + 1} of {self.slices}", number / self.slices)
                self._write_slice(kept.where(F.col("_slice") == number), options, number)
        finally:
            if len(todo) > 1:
                kept.unpersist()
        written = sum(sizes.get(number, 0) for number in todo)
        return {
            "rows": self.count,
            "slices": self.slices,
            "written": written,
            "already": self.count - written,
            "epochs": [todo[0], todo[-1]] if todo else None,
        }

    def _write_slice(self, rows: DataFrame, options: dict[str, str], number: int) -> None:
        ordered = rows.repartitionByRange(_ORDER).sortWithinPartitions(_ORDER)
        writer = ordered.select(*self.columns).write.format("logqueue").mode("append")
        writer.options(**options, epoch=str(number)).save()


def _bounds_schema(kind: Any) -> StructType:
    from pyspark.sql.types import IntegerType, StructField, StructType

    return StructType([StructField("place", IntegerType()), StructField("bound", kind)])
