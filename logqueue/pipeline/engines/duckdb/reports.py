"""The report job on DuckDB: the same SQL as on Spark, in this process.

Owns: the relations of a run, streaming of tables into files. Must not know: what a report says
(`reports/queries`), how files and pages are written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from logqueue.pipeline.engines.duckdb.connection import opened
from logqueue.pipeline.engines.duckdb.lifecycle import History, run_lifecycle
from logqueue.pipeline.engines.duckdb.simulation import Simulation, write_simulation
from logqueue.pipeline.engines.duckdb.workers import WorkerPool
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.lifecycle.publishing import Published
from logqueue.pipeline.lifecycle.report_tables import REPORT_EXPLANATIONS
from logqueue.pipeline.lifecycle.stored_tables import tables_in
from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.reports.explain import explanations
from logqueue.pipeline.reports.export import ROWS_AT_ONCE, formats_of, write_rows
from logqueue.pipeline.reports.production import PAGE_ROWS_MAX, MadeTable, schema_of
from logqueue.pipeline.reports.queries.definitions import Definitions, filled
from logqueue.pipeline.reports.queries.dialect import DUCKDB
from logqueue.pipeline.reports.queries.shorter import shorter
from logqueue.pipeline.reports.queries.sources import SHARED, ReportScope
from logqueue.pipeline.reports.run import DEFAULT_REQUEST, ReportRequest, make_reports
from logqueue.pipeline.reports.selection import ON_DEMAND
from logqueue.pipeline.storage.temporary import temporary_folder
from logqueue.pipeline.storage.tree import FileTree

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

RAW: Final = {"raw_jobs": tables.JOBS, "raw_attempts": tables.ATTEMPTS}


class ReportRun:
    """Reports over the tables of one lifecycle run, in a database."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        scope: ReportScope,
        scratch: str | None = None,
        simulation: Simulation | None = None,
    ) -> None:
        """The database has the relations `raw_jobs` and `raw_attempts`, as the tables `jobs` and
        `attempts` are.

        Args:
            scratch: Directory where tables that are too large for a page are kept for `shorten`;
                None if that is not needed.
            simulation: Scenarios to replay besides.
        """
        self._connection = connection
        self._scope = scope
        self._scratch = scratch
        self._simulation = simulation
        self._definitions = Definitions.of(scope, DUCKDB)
        self._names = {name: name for name in (*RAW, *self._definitions.texts)}

    def prepare(self, names: Iterable[str]) -> None:
        """Make the relations that some reports need."""
        for name, readers in self._definitions.needed(*names).items():
            kind = "TABLE" if name in SHARED and readers > 1 else "VIEW"
            text = self._definitions.text(name, self._names)
            self._connection.execute(f"CREATE OR REPLACE TEMP {kind} {name} AS {text}")

    def ask(self, text: str) -> pa.Table:
        """The few rows of another text over the relations that were prepared."""
        return self._connection.sql(filled(text, self._names)).to_arrow_table()

    def batches(self, kind: TableKind) -> Iterator[pa.RecordBatch]:
        """The rows of a report, sorted, in the schema of its table."""
        if kind is REPORT_EXPLANATIONS:
            yield from explanations(self.ask, self._scope, DUCKDB).to_batches()
            return
        order = ", ".join(f"{DUCKDB.name(name)} NULLS LAST" for name in kind.order)
        text = f"{self._definitions.table(kind, self._names)} ORDER BY {order}"
        schema = kind.arrow()
        for batch in self._connection.sql(text).to_arrow_reader(ROWS_AT_ONCE):
            yield batch.cast(schema)

    def write(self, kind: TableKind, tree: FileTree, formats: Sequence[str]) -> MadeTable:
        """Make a report and write it; its rows pass through, and few of them stay.

        Raises:
            PipelineError: A file cannot be written.
        """
        schema = schema_of(kind, self._scope)
        with _Kept(kind, self._kept_path(kind)) as kept:
            passing = (
                batch.replace_schema_metadata(schema.metadata)
                for batch in kept.passing(self.batches(kind))
            )
            files = write_rows(tree, kind.name, schema, passing, formats_of(kind.name, formats))
        table = kept.table()
        if table is not None:
            table = table.replace_schema_metadata(schema.metadata)
        return MadeTable(kept.rows, files, table)

    def begin(
        self, names: Sequence[str], tree: FileTree, formats: Sequence[str]
    ) -> dict[str, Callable[[], MadeTable]]:
        """One after another, each as it is asked for; see OpenReports."""
        return {name: partial(self.write, tables.BY_NAME[name], tree, formats) for name in names}

    def further(
        self, tree: FileTree, formats: Sequence[str], note: Note
    ) -> tuple[dict[str, MadeTable], dict[str, Any]]:
        """The tables of a simulation; see OpenReports."""
        if self._simulation is None:
            return {}, {}
        made, summary = write_simulation(
            self._connection, self._simulation, self._scope, tree, formats, note
        )
        return made, {**summary, "job": "simulate"}

    def shorten(self, kind: TableKind, bucket: int, rows_max: int) -> pa.Table:
        """The first rows of a report in longer buckets; it was written, and has more than
        `PAGE_ROWS_MAX` rows."""
        path = self._kept_path(kind)
        assert path is not None
        rows = f"read_parquet({_listed([path])}, hive_partitioning = false)"
        text = shorter(kind, rows, self._scope, bucket, DUCKDB)
        return self._connection.sql(f"{text} LIMIT {rows_max}").to_arrow_table()

    def _kept_path(self, kind: TableKind) -> str | None:
        if self._scratch is None or kind.name in ON_DEMAND:
            return None
        return os.path.join(self._scratch, f"{kind.name}.made.parquet")


class _Kept:
    """What stays of a report's rows as they pass: up to `PAGE_ROWS_MAX` of them in memory, more in
    a file."""

    def __init__(self, kind: TableKind, path: str | None) -> None:
        """No file without a path: then more rows are not kept at all."""
        self._kind = kind
        self._path = path
        self._few: list[pa.RecordBatch] = []
        self._file: pq.ParquetWriter | None = None
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same rows."""
        for batch in batches:
            self.rows += batch.num_rows
            self._few.append(batch)
            if self.rows > PAGE_ROWS_MAX:
                self._to_file()
            yield batch

    def _to_file(self) -> None:
        batches, self._few = self._few, []
        if self._path is None:
            return
        if self._file is None:
            import pyarrow.parquet as pq

            self._file = pq.ParquetWriter(self._path, self._kind.arrow(), compression="lz4")
        for batch in batches:
            self._file.write_batch(batch)

    def table(self) -> pa.Table | None:
        """All rows; None when they are too many."""
        import pyarrow as pa

        if self.rows > PAGE_ROWS_MAX:
            return None
        return pa.Table.from_batches(self._few, self._kind.arrow())


def build(
    jobs: pa.Table, attempts: pa.Table, scope: ReportScope, names: Sequence[str]
) -> dict[str, pa.Table]:
    """Reports over tables in memory, by name, sorted and in their schemas."""
    import pyarrow as pa

    made = {}
    with opened() as connection:
        connection.register("raw_jobs", jobs)
        connection.register("raw_attempts", attempts)
        run = ReportRun(connection, scope)
        run.prepare(names)
        for name in names:
            kind = tables.BY_NAME[name]
            rows = pa.Table.from_batches(run.batches(kind), kind.arrow())
            made[name] = rows.cast(schema_of(kind, scope))
    return made


@dataclass(frozen=True)
class _OnDuckDb:
    """DuckDB, as the report job sees it.

    Attributes:
        input: Where records and events come from; None where tables are there.
        pool: See `run_report`.
        simulation: Scenarios to replay.
    """

    input: History | None
    pool: WorkerPool | None
    simulation: Simulation | None

    def make_lifecycle(self, to: str, note: Note) -> object:
        """See ReportEngine."""
        assert self.input is not None
        return run_lifecycle(self.input, to, note=note, pool=self.pool)

    @contextmanager
    def opened(
        self, scope: ReportScope, tree: FileTree, version: Published, *, is_shown: bool
    ) -> Iterator[ReportRun]:
        """See ReportEngine."""
        with opened() as connection, temporary_folder() as scratch:
            stored = {table.name: table.local_files(scratch) for table in tables_in(tree, version)}
            _register(connection, {name: stored.get(kind.name, []) for name, kind in RAW.items()})
            yield ReportRun(connection, scope, scratch if is_shown else None, self.simulation)


def run_report(
    input: History | str,
    to: str,
    request: ReportRequest = DEFAULT_REQUEST,
    *,
    simulation: Simulation | None = None,
    note: Note = silent,
    pool: WorkerPool | None = None,
) -> dict[str, Any]:
    """Make reports and write them, with a page that shows them.

    Args:
        input: Where records and events come from, or the directory of a finished lifecycle run.
            From records and events, `jobs` and `attempts` are made first, into `to/lifecycle`.
        to: Directory or URL for the tables and the page.
        request: Which reports, and how.
        simulation: Scenarios to replay; their tables are written, too.
        note: Called at each step.
        pool: Worker processes for the lifecycle; None for one per core, for this run.

    Raises:
        PipelineError: There is no such report or format, or nothing to report on.
    """
    history, folder = (None, input) if isinstance(input, str) else (input, None)
    return make_reports(_OnDuckDb(history, pool, simulation), folder, to, request, note)


def _register(connection: duckdb.DuckDBPyConnection, files: Mapping[str, list[str]]) -> None:
    """Make tables of Parquet files known by name."""
    for name, paths in files.items():
        if paths:
            source = f"read_parquet({_listed(paths)}, hive_partitioning = false)"
            connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM {source}")
        else:
            connection.register(name, RAW[name].arrow().empty_table())


def _listed(paths: Iterable[str]) -> str:
    """Paths as a list in SQL; names mean themselves, not patterns."""
    plain = (re.sub(r"([*?\[])", r"[\1]", path) for path in paths)
    return "[" + ", ".join("'" + path.replace("'", "''") + "'" for path in plain) + "]"
