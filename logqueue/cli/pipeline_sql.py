"""`logqueue pipeline sql`: a query over records, lease events and the tables made of them.

Owns: which tables a query sees, and how its rows are printed. Must not know: where rows come from.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from logqueue.cli import exits, output
from logqueue.cli.exits import NothingThere
from logqueue.cli.output import TableColumn
from logqueue.cli.pipeline_jobs import directories, input_of
from logqueue.cli.pipeline_runs import (
    chosen_engine,
    progress,
    refusals,
    session,
    stopped_by_sigterm,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from logqueue.pipeline.progress import Note
    from logqueue.pipeline.reading.place import InputPlace

LIMIT = 1000

NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double"})


def sql(arguments: argparse.Namespace) -> int:
    """Run a query and print its rows."""
    source = input_of(arguments)
    limit = arguments.limit or LIMIT
    # One more than is shown tells whether there are more. The size of the input does not choose the
    # engine: what a query says must not depend on it.
    run = _on_duckdb if chosen_engine(arguments) == "duckdb" else _on_spark
    with stopped_by_sigterm(), progress(arguments) as note:
        columns, are_numbers, rows = run(arguments, source, limit + 1, note)
    _print(arguments, columns, are_numbers, rows[:limit])
    if len(rows) > limit:
        output.say(f"only the first {limit:,} rows; --limit shows more")
    return exits.OK


Answer = tuple[list[str], list[bool], list[tuple[Any, ...]]]


def _on_duckdb(arguments: argparse.Namespace, source: InputPlace, limit: int, note: Note) -> Answer:
    with refusals():
        from logqueue.pipeline.engines.duckdb.pandas_free import import_arrow

        import_arrow()
        from logqueue.pipeline.engines.duckdb.sql import NoTables, run_query

        try:
            return run_query(source, arguments.query, limit, arguments.tables, note)
        except NoTables as error:
            raise NothingThere(error.message) from error


def _on_spark(arguments: argparse.Namespace, source: InputPlace, limit: int, note: Note) -> Answer:
    inputs = (*directories(arguments), *arguments.tables)
    with session(arguments, note, *inputs) as spark:
        register(spark, source, arguments.tables)
        note("querying", None)
        return answer(spark, arguments.query, limit)


def register(spark: SparkSession, source: InputPlace, folders: list[str]) -> None:
    """Make tables known by their names.

    Args:
        folders: What jobs wrote as Parquet; every table in them gets its own name.

    Raises:
        NothingThere: One holds no table.
    """
    from logqueue.pipeline.engines.spark.formats.inputs import Input
    from logqueue.pipeline.engines.spark.formats.stored_files import read_stored
    from logqueue.pipeline.lifecycle.stored_tables import tables_at

    tables = Input.at(source)
    tables.records(spark).createOrReplaceTempView("records")
    tables.events(spark).createOrReplaceTempView("lease_events")
    for folder in folders:
        found = tables_at(folder)
        if not found:
            raise NothingThere(f"{folder} holds no table in Parquet")
        for table in found:
            read_stored(spark, table).createOrReplaceTempView(table.name)


def answer(spark: SparkSession, query: str, limit: int) -> Answer:
    """The rows of a query: names of columns, whether each holds numbers, and rows; times are UTC,
    with or without their zone."""
    found = spark.sql(query)
    are_numbers = [kind in NUMBERS for _, kind in found.dtypes]
    with _in_utc():
        return found.columns, are_numbers, [tuple(row) for row in found.limit(limit).collect()]


@contextmanager
def _in_utc() -> Iterator[None]:
    """Spark gives times without a zone, in that of this process: UTC meanwhile, as in the session.
    In any other, hours that are skipped or come twice would be shifted."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


def _print(
    arguments: argparse.Namespace,
    columns: list[str],
    are_numbers: list[bool],
    rows: list[tuple[Any, ...]],
) -> None:
    form = arguments.format or ("json" if arguments.json else "table")
    if form == "json":
        for row in rows:
            named = dict(zip(columns, map(_plain, row), strict=True))
            output.line(json.dumps(named, ensure_ascii=False))
    elif form == "csv":
        written = csv.writer(sys.stdout, lineterminator="\n")
        written.writerow(columns)
        written.writerows([_cell(value) for value in row] for row in rows)
    else:
        kinds = [
            TableColumn(name, is_number=is_number, is_long=not is_number)
            for name, is_number in zip(columns, are_numbers, strict=True)
        ]
        output.table(kinds, ([_cell(value) for value in row] for row in rows))


def _cell(value: Any) -> Any:
    """A value for a table: text, a number, or None."""
    plain = _plain(value)
    if plain is None or isinstance(plain, (str, int, float)):
        return plain
    return json.dumps(plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """A value as JSON has it; times and bytes become text."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, datetime):
        utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return utc.isoformat(timespec="milliseconds")
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if hasattr(value, "asDict"):  # a struct, which is a tuple too
        value = value.asDict()
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return str(value)
