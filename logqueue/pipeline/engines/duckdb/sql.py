"""A query over records, job events and tables made of them, on DuckDB.

Owns: which views a query sees, and its rows as Python values. Must not know: how rows are shown.

The dialect is DuckDB's, in UTC. A query reads only the tables that it names, and of a log only the
columns it needs and the segments that may have what it asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from logqueue.pipeline.engines.duckdb.connection import opened
from logqueue.pipeline.engines.duckdb.input import LocalInput
from logqueue.pipeline.engines.duckdb.workers import WorkerPool
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle.stored_tables import StoredTable, tables_at
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.storage.temporary import temporary_folder

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

NUMBER = ("INT", "FLOAT", "DOUBLE", "DECIMAL")
"""What the names of DuckDB's types of numbers have in them, all but INTERVAL."""


class NoTables(PipelineError):
    """A directory of tables holds none."""


class QueryAnswer(NamedTuple):
    """Rows of a query.

    Attributes:
        are_numbers: Of each column, whether it holds numbers.
        rows: At most as many as were asked for.
    """

    columns: list[str]
    are_numbers: list[bool]
    rows: list[tuple[Any, ...]]


def run_query(
    place: InputPlace, query: str, limit: int, folders: Sequence[str] = (), note: Note = silent
) -> QueryAnswer:
    """Run a query.

    Args:
        place: What the tables `records` and `lease_events` hold.
        limit: How many rows to give at most.
        folders: What jobs wrote as Parquet; every table there gets its own name.
        note: Called at each step.

    Raises:
        NoTables: A folder holds none.
        PipelineError: A table cannot be read.
        duckdb.Error: The query is refused.
    """
    note("querying", None)
    with _database(place, query, folders) as connection:
        found: duckdb.DuckDBPyRelation | None = connection.sql(query)
        if found is None:
            return QueryAnswer([], [], [])
        are_numbers = [_is_number(str(kind)) for kind in found.types]
        return QueryAnswer(found.columns, are_numbers, [*_rows(found.limit(limit))])


@contextmanager
def _database(
    place: InputPlace, query: str, folders: Sequence[str]
) -> Iterator[duckdb.DuckDBPyConnection]:
    with (
        temporary_folder() as scratch,
        WorkerPool() as pool,
        opened() as connection,
    ):
        _register_input(connection, LocalInput(place, pool), query)
        for folder in folders:
            tables = tables_at(folder)
            if not tables:
                raise NoTables(f"{folder} holds no table in Parquet")
            for table in tables:
                _register_table(connection, table, scratch)
        yield connection


def _register_input(connection: duckdb.DuckDBPyConnection, local: LocalInput, query: str) -> None:
    from logqueue.pipeline.engines.duckdb.part_dataset import PartDataset
    from logqueue.pipeline.rows.segment_batches import EVENTS_SCHEMA, RECORDS_SCHEMA

    with_events = "lease_events" in query.lower()
    parts = local.record_parts if with_events else local.only_record_parts
    records = partial(parts, "string")
    connection.register("records", PartDataset(RECORDS_SCHEMA(), records, local.read))
    events = PartDataset(EVENTS_SCHEMA, local.event_parts, local.read)
    connection.register("lease_events", events)


def _register_table(
    connection: duckdb.DuckDBPyConnection, table: StoredTable, scratch: str
) -> None:
    files = ", ".join(_text(path) for path in table.local_files(scratch))
    by_day = any(file.day for file in table.files)
    name = table.name.replace('"', '""')
    connection.execute(
        f'CREATE VIEW "{name}" AS SELECT * FROM read_parquet([{files}], union_by_name = true, '
        f"hive_partitioning = {str(by_day).lower()})"
    )


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _is_number(kind: str) -> bool:
    return any(word in kind for word in NUMBER) and "INTERVAL" not in kind and "[" not in kind


def _rows(found: duckdb.DuckDBPyRelation) -> Iterator[tuple[Any, ...]]:
    from logqueue.pipeline.rows.moments import shown

    reader: pa.RecordBatchReader = found.to_arrow_reader(1024)
    # Also times that a query has computed, or that tables of earlier versions hold.
    for batch in shown(reader):
        columns = [map(_plain, column.to_pylist()) for column in batch.columns]
        yield from zip(*columns, strict=True)


def _plain(value: Any) -> Any:
    """Sums are whole numbers of 128 bits, which Arrow has as decimals."""
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
        return int(value)
    return value
