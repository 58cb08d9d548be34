"""Parquet files at any place as a DataFrame: read by Spark, or fetched by tasks.

Owns: how a path is written so that Spark takes it for what it is, and tasks that read objects. Must
not know: which files count, what they say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from logqueue.pipeline.engines.spark.formats.hadoop_tree import HadoopTree
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle.stored_tables import StoredTable
from logqueue.pipeline.lifecycle.tables import BY_NAME
from logqueue.pipeline.storage.opening import reach_hadoop
from logqueue.pipeline.storage.tree import FileTree

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

FILES_PER_TASK: Final = 4
"""Objects that a task fetches, one after the other."""
TASKS_MAX: Final = 10_000

_PATTERN = re.compile(r"([{}\[\]*?\\])")


def local_path(path: str) -> str:
    """A path as Spark reads it: of this file system, whatever else the session takes paths for,
    and the very name, whatever is in it."""
    return "file:" + _PATTERN.sub(r"\\\1", path)


def _spark_path(tree: FileTree, name: str) -> str:
    if tree.directory is None:
        return _PATTERN.sub(r"\\\1", tree.path(name))
    return local_path(tree.path(name))


def read_files(
    spark: SparkSession,
    tree: FileTree,
    files: Sequence[str],
    columns: Mapping[str, str],
    days: Mapping[str, date] | None = None,
) -> DataFrame:
    """The rows of Parquet files.

    Args:
        files: Names in the tree.
        columns: Names and types as Spark says them; what a file lacks is null.
        days: The day of each file, where that is the column `date` and not in the files; they are
            all files of a table in one version then.
    """
    schema = ", ".join(f"`{column}` {kind}" for column, kind in columns.items())
    if not files:
        return spark.createDataFrame([], schema)
    if tree.directory is None and not isinstance(tree, HadoopTree):
        return _fetched(spark, tree, files, columns, days or {})
    places = [_spark_path(tree, file) for file in files]
    if days is not None:
        # Directories are named by the day; in the folder of a version are the files of it alone.
        places = [_spark_path(tree, files[0].rpartition("/date=")[0])]
    rows = spark.read.schema(schema).parquet(*places)
    return rows.select(*(f"`{column}`" for column in columns))


def read_stored(spark: SparkSession, table: StoredTable) -> DataFrame:
    """A table in Parquet, in the columns that its files have."""
    known = BY_NAME.get(table.name)
    if known is not None and (table.tree.directory is None or not table.files):
        columns = {column.name: column.type for column in known.columns}
        days = {file.path: file.day for file in table.files if file.day is not None}
        return read_files(spark, table.tree, [file.path for file in table.files], columns, days)
    if table.tree.directory is None and not isinstance(table.tree, HadoopTree):
        raise PipelineError(
            f"table {table.name} in {table.tree.url} is not one of the pipeline's: copy it to a "
            "directory, or query it with --engine duckdb"
        )
    first = table.files[0]
    whole = first.path.removesuffix(first.name) + first.name.partition("/")[0]
    return spark.read.parquet(_spark_path(table.tree, whole))


def _fetched(
    spark: SparkSession,
    tree: FileTree,
    files: Sequence[str],
    columns: Mapping[str, str],
    days: Mapping[str, date],
) -> DataFrame:
    # Spark cannot take in a VARIANT from Arrow; it parses the text again.
    plain = {name: kind for name, kind in columns.items() if kind != "VARIANT"}
    schema = ", ".join(f"`{column}` {kind}" for column, kind in plain.items())
    tasks = min(TASKS_MAX, -(-len(files) // FILES_PER_TASK))
    named = [(name, days.get(name)) for name in files]
    rows = spark.createDataFrame(named, "name STRING, day DATE").repartition(tasks)
    found = rows.mapInArrow(_reading(tree, tuple(plain.items())), schema)
    shown = (
        f"`{name}`" if name in plain else f"try_parse_json(data) AS `{name}`" for name in columns
    )
    return found.selectExpr(*shown)


def _reading(
    tree: FileTree, columns: Sequence[tuple[str, str]]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task that reads the files named in its rows."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        for batch in batches:
            names, days = batch.columns
            for name, day in zip(names.to_pylist(), days, strict=True):
                with pq.ParquetFile(tree.source(name)) as file:
                    for rows in file.iter_batches():
                        yield _in_columns(rows, columns, day)

    return task


def _in_columns(rows: Any, columns: Sequence[tuple[str, str]], day: Any) -> Any:
    """Rows in the columns that are asked for; what the file lacks is null."""
    import pyarrow as pa

    from logqueue.pipeline.lifecycle.table_kind import arrow_type

    made = []
    for name, kind in columns:
        place = rows.schema.get_field_index(name)
        if place >= 0:
            made.append(rows.column(place).cast(arrow_type(kind)))
        elif name == "date":
            made.append(pa.repeat(day, rows.num_rows))
        else:
            made.append(pa.nulls(rows.num_rows, arrow_type(kind)))
    return pa.RecordBatch.from_arrays(made, names=[name for name, _ in columns])


reach_hadoop(HadoopTree)
