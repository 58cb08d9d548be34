"""`logqueue pipeline sql`: a query over records, lease events and the tables made of them.

Owns: which tables a query sees, and how its rows are printed. Must not know: where rows come from.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logqueue.cli import exits, output
from logqueue.cli.exits import NothingThere
from logqueue.cli.output import TableColumn
from logqueue.cli.pipeline_jobs import directories, input_of
from logqueue.cli.pipeline_runs import chosen_engine, progress, session, stopped_by_sigterm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from logqueue.pipeline.reading.place import InputPlace

LIMIT = 1000

NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double"})


def sql(arguments: argparse.Namespace) -> int:
    """Run a query and print its rows."""
    source = input_of(arguments)
    chosen_engine(arguments, is_wired=False)
    inputs = (*directories(arguments), *arguments.tables)
    with (
        stopped_by_sigterm(),
        progress(arguments) as note,
        session(arguments, note, *inputs) as spark,
    ):
        register(spark, source, arguments.tables)
        note("querying", None)
        found = spark.sql(arguments.query)
        columns = found.columns
        are_numbers = [kind in NUMBERS for _, kind in found.dtypes]
        limit = arguments.limit or LIMIT
        # One more than is shown tells whether there are more.
        rows = [tuple(row) for row in found.limit(limit + 1).collect()]
    shown = list(islice(rows, limit))
    _print(arguments, columns, are_numbers, shown)
    if len(rows) > limit:
        output.say(f"only the first {limit:,} rows; --limit shows more")
    return exits.OK


def register(spark: SparkSession, source: InputPlace, folders: list[str]) -> None:
    """Make tables known by their names.

    Args:
        folders: What jobs wrote as Parquet; every table in them gets its own name.

    Raises:
        NothingThere: One holds no table.
    """
    from logqueue.pipeline.engines.spark.formats.inputs import Input

    tables = Input.at(source)
    tables.records(spark).createOrReplaceTempView("records")
    tables.events(spark).createOrReplaceTempView("lease_events")
    for folder in folders:
        found = dict(_tables(spark, Path(folder)))
        if not found:
            raise NothingThere(f"{folder} holds no table in Parquet")
        for name, table in found.items():
            table.createOrReplaceTempView(name)


def _tables(spark: SparkSession, folder: Path) -> Iterator[tuple[str, DataFrame]]:
    for entry in sorted(folder.iterdir()) if folder.is_dir() else []:
        if entry.name.startswith(("_", ".")):
            continue
        if entry.suffix == ".parquet" or (entry.is_dir() and next(entry.rglob("*.parquet"), None)):
            yield entry.stem, spark.read.parquet(str(entry))


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
        # Sessions run in UTC, but rows come with this machine's time and no zone.
        return value.astimezone(UTC).isoformat(timespec="milliseconds")
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if hasattr(value, "asDict"):  # a struct, which is a tuple too
        value = value.asDict()
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return str(value)
