"""Bulk loads: files into a topic, each row once, whatever breaks on the way.

Owns: which rows become records, what tells one load from another, and which slice is next. Must not
know: how rows are cut and written (`slices`).

A load is cut into slices, and each is one epoch of a producer named after the write id: it becomes
visible at once, and the server remembers the last. A run that was interrupted continues after it.
For that to be right, the cut must be the same each time, on any cluster, so it follows from the
rows alone. The server also remembers a digest of all rows and settings, and refuses to go on with
others (see `progress_records`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from logqueue.client import Client
from logqueue.errors import LogqueueError, quoted
from logqueue.pipeline.engines.spark.copies.slices import (
    SLICE_ROWS,
    SLICES_MAX,
    SliceCut,
    last_epoch,
    ordered,
    write_slices,
)
from logqueue.pipeline.errors import PipelineError, as_pipeline_error
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.writing.progress_records import WriteMemory, digest
from logqueue.pipeline.writing.sink_options import (
    COLUMNS,
    producer_of,
    read_columns,
    read_options,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FORMATS: Final = ("parquet", "json", "csv")
VIEW: Final = "input"
CUT: Final = 2
"""Version of the cut: loads that were begun with another one are not continued."""
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
    group, delay_ms, not_before, ttl_ms, max_deliveries, priority. A column `topic` is left out: all
    go to one.

    Args:
        spark: A session.
        source: Path of files, as Spark reads it.
        format: "parquet", "json" (an object per line) or "csv" (with a header).
        url: Of the server.
        to_topic: Where to.
        write_id: A name for this load; the same name again resumes it, or does nothing.
        token: The key to call with.
        map_sql: A SELECT over the view `input`, or the list of one.
        slices: How many epochs; when None as many as make about 250 000 rows or 256 MiB each,
            whichever is less. Very many rows that are exactly alike get more of their own.
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
        rows = ordered(_records(_read(spark, source, format), map_sql), order_by)
        note("reading", None)
        cut = SliceCut(rows, slices, is_hashed=order_by is None)
        settings = [format, to_topic, map_sql, order_by]
        given = {"url": url, "topic": to_topic, "writeId": write_id}
        options = read_options(given | ({} if token is None else {"token": token}), is_stream=False)
        columns = read_columns([kind for kind in rows.dtypes if kind[0] in cut.columns], options)
        with Client(url, token) as client:
            done = _done(client, producer, cut, settings, slices)
        written = 0
        if done + 1 < cut.slices:
            parts = cut.sliced(spark, done)
            written = write_slices(parts, options, columns, cut.slices, done, note)
        return {
            "job": "backfill",
            "write_id": write_id,
            "producer": producer,
            "to_topic": to_topic,
            "rows": cut.count,
            "slices": cut.slices,
            "written": written,
            "already": cut.count - written,
            "epochs": [done + 1, cut.slices - 1] if done + 1 < cut.slices else None,
        }
    except (PySparkException, Py4JError) as error:
        raise as_pipeline_error(error) from error
    except LogqueueError as error:
        raise PipelineError(f"{to_topic} was not loaded: {error}") from error
    except ValueError as error:
        raise PipelineError(f"url or token: {error}") from error


def _done(
    client: Client, producer: str, cut: SliceCut, settings: list[str | None], slices: int | None
) -> int:
    """The last slice that is in the topic; -1 when none is.

    Raises:
        PipelineError: The write id belongs to other rows or settings, or to a load that an earlier
            version has begun and not completed.
    """
    name = f"{producer}>backfill"
    try:
        content = digest([CUT, *settings, cut.slices, cut.fingerprint])
        WriteMemory(client, name, content).note(0)
    except PipelineError as conflict:
        before = slices or max(-(-cut.count // SLICE_ROWS), 1)
        try:
            content = digest([*settings, before, cut.fingerprint])
            WriteMemory(client, name, content).note(0)
        except PipelineError:
            raise conflict from None
        done = last_epoch(client, producer)
        if done + 1 < before:
            raise PipelineError(
                f"an earlier version of logqueue has begun this load, and {done + 1} of its "
                f"{before} slices are in the topic; this version cuts rows into other slices, so "
                "nothing was written. Complete it with that version, or delete what it has "
                "written and choose another write id"
            ) from conflict
        return cut.slices - 1
    return last_epoch(client, producer)


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
