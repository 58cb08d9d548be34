"""The report job on Spark: the same SQL as on DuckDB, as many reports at a time as keep cores busy.

Owns: the relations of a run as views, which of them are kept. Must not know: what a report says
(`reports/queries`), how files and pages are written.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from logqueue.pipeline.engines.spark.formats.stored_files import read_files
from logqueue.pipeline.engines.spark.lifecycle.history_source import HistorySource
from logqueue.pipeline.engines.spark.lifecycle.job import rows_of, run_lifecycle
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.lifecycle.publishing import Published
from logqueue.pipeline.lifecycle.report_tables import REPORT_EXPLANATIONS
from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.reports.explain import explanations
from logqueue.pipeline.reports.export import formats_of
from logqueue.pipeline.reports.page_options import PLAIN_PAGE, PageOptions
from logqueue.pipeline.reports.production import MadeTable, schema_of, write_table
from logqueue.pipeline.reports.queries.definitions import Definitions, filled
from logqueue.pipeline.reports.queries.dialect import SPARK
from logqueue.pipeline.reports.queries.shorter import shorter
from logqueue.pipeline.reports.queries.sources import SHARED, ReportScope
from logqueue.pipeline.reports.run import ReportRequest, make_reports
from logqueue.pipeline.storage.tree import FileTree

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

AT_ONCE: Final = 3
"""Reports that are made at the same time: planning is done by one thread each, and the cores would
be idle in between."""
GROUPS_MAX: Final = 1024
"""Groups with sketches that a task has in memory at once, of 32 KB each; with more, it sorts its
rows first. Spark's own limit of 128 is for larger ones."""
SETTINGS: Final = {
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": str(GROUPS_MAX),
    # Else each relation that is kept has as many parts as a shuffle can have, most of them empty,
    # and each reader has a task for each part.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    # A row of a job is a few bytes in a file, so a file of some MB is work for all cores: a task
    # per row group, of about 100,000 rows, as long as there are fewer of them than cores.
    "spark.sql.files.openCostInBytes": str(256 << 10),
}
"""Of the session, while reports are made."""


class SparkReports:
    """Reports over the tables of one lifecycle run, in a session."""

    def __init__(self, spark: SparkSession, scope: ReportScope) -> None:
        """See `opened_reports`."""
        self._spark = spark
        self._scope = scope
        self._definitions = Definitions.of(scope, SPARK)
        self._run = uuid.uuid4().hex[:8]
        # Views are seen by all of a session, which may have others by plain names.
        known = ("raw_jobs", "raw_attempts", *self._definitions.texts)
        self._names = {name: f"logqueue_{self._run}_{name}" for name in known}
        self.kept: list[DataFrame] = []
        self._large: dict[str, tuple[FileTree, list[str]]] = {}
        self._spare: list[tuple[FileTree, list[str]]] = []
        self._threads = ThreadPoolExecutor(AT_ONCE, "report")

    def add(self, name: str, rows: DataFrame) -> None:
        """Make a relation known."""
        rows.createOrReplaceTempView(self._names[name])

    def prepare(self, names: Iterable[str]) -> None:
        """Make the relations that some reports need known; nothing runs yet."""
        for name, readers in self._definitions.needed(*names).items():
            rows = self._spark.sql(self._definitions.text(name, self._names))
            if readers > 1 and name in SHARED:
                rows = rows.persist()
                self.kept.append(rows)
            self.add(name, rows)

    def close(self) -> None:
        """Nothing of the run is left in the session, nor of files that were not asked for."""
        self._threads.shutdown(cancel_futures=True)
        for tree, files in self._spare:
            tree.remove(files)
        for rows in self.kept:
            rows.unpersist()
        for name in self._names.values():
            self._spark.catalog.dropTempView(name)

    def rows(self, kind: TableKind) -> DataFrame:
        """A report, in the columns of its table, in no order."""
        return self._spark.sql(self._definitions.table(kind, self._names))

    def ask(self, text: str) -> pa.Table:
        """The few rows of another text over the relations that were prepared."""
        return self.query(text).toArrow()

    def query(self, text: str) -> DataFrame:
        """Another text over the relations that were prepared."""
        return self._spark.sql(filled(text, self._names))

    def write(self, kind: TableKind, tree: FileTree, formats: Sequence[str]) -> MadeTable:
        """Make a report and write it.

        Raises:
            PipelineError: A file cannot be written.
        """
        from logqueue.pipeline.engines.spark.reports import report_parts as parts

        if kind is REPORT_EXPLANATIONS:
            table = explanations(self.ask, self._scope, SPARK)
            return write_table(tree, kind, table, self._scope, formats)
        schema = schema_of(kind, self._scope)
        asked = [*dict.fromkeys(["parquet", *formats_of(kind.name, formats)])]
        task = parts.write_part(tree, kind.name, schema, asked, self._run)
        rows = self.rows(kind).sortWithinPartitions(*kind.order)
        kept: list[str] = []
        try:
            reported = rows.mapInArrow(task, parts.PART_DDL).collect()
            made, kept = parts.gathered(tree, kind, schema, formats, reported, self._run)
        finally:
            parts.clear_up(tree, self._run, kind, kept)
        self._large[kind.name] = (tree, kept)
        if "parquet" not in formats_of(kind.name, formats):
            self._spare.append((tree, kept))
        return made

    def begin(
        self, names: Sequence[str], tree: FileTree, formats: Sequence[str]
    ) -> dict[str, Callable[[], MadeTable]]:
        """Some at a time; see OpenReports."""
        # What is last in order asks several questions, one after another, so it begins first.
        running = {
            name: self._threads.submit(self.write, tables.BY_NAME[name], tree, formats)
            for name in reversed(names)
        }
        return {name: running[name].result for name in names}

    def further(
        self, tree: FileTree, formats: Sequence[str], note: Note
    ) -> tuple[dict[str, MadeTable], dict[str, Any]]:
        """Nothing; see OpenReports."""
        return {}, {}

    def shorten(self, kind: TableKind, bucket: int, rows_max: int) -> pa.Table:
        """The first rows of a report in longer buckets; it was written, and has more than
        `PAGE_ROWS_MAX` rows."""
        tree, files = self._large[kind.name]
        columns = {column.name: column.type for column in kind.columns}
        self.add(kind.name, read_files(self._spark, tree, files, columns))
        text = shorter(kind, self._names[kind.name], self._scope, bucket, SPARK)
        return self._spark.sql(f"{text} LIMIT {rows_max}").toArrow()


@contextmanager
def opened_reports(
    spark: SparkSession, scope: ReportScope, jobs: DataFrame, attempts: DataFrame
) -> Iterator[SparkReports]:
    """Reports over the tables `jobs` and `attempts`, while the context lasts."""
    made = SparkReports(spark, scope)
    with changed(spark, SETTINGS):
        try:
            made.add("raw_jobs", jobs)
            made.add("raw_attempts", attempts)
            yield made
        finally:
            made.close()


@dataclass(frozen=True)
class _OnSpark:
    """Spark, as the report job sees it.

    Attributes:
        spark: The session.
        input: Where records and events come from; None where tables are there.
    """

    spark: SparkSession
    input: HistorySource | None

    def make_lifecycle(self, to: str, note: Note) -> object:
        """See ReportEngine."""
        assert self.input is not None
        return run_lifecycle(self.spark, self.input, to, note=note)

    @contextmanager
    def opened(
        self, scope: ReportScope, tree: FileTree, version: Published, *, is_shown: bool
    ) -> Iterator[SparkReports]:
        """See ReportEngine."""
        jobs, attempts = (
            rows_of(self.spark, tree, version, kind) for kind in (tables.JOBS, tables.ATTEMPTS)
        )
        with opened_reports(self.spark, scope, jobs, attempts) as reports:
            yield reports


def run_report(
    spark: SparkSession,
    input: HistorySource | str,
    to: str,
    *,
    names: Sequence[str] = ("all",),
    bucket: str = "1m",
    sla: str | None = None,
    formats: Iterable[str] = ("parquet",),
    page: PageOptions = PLAIN_PAGE,
    note: Note = silent,
) -> dict[str, Any]:
    """Make reports and write them, with a page that shows them.

    Args:
        input: Where records and events come from, or the directory of a finished lifecycle run.
            From records and events, `jobs` and `attempts` are made first, into `to/lifecycle`.
        to: Directory or URL for the tables and the page.
        names, bucket, sla: As `select_reports` takes them.
        formats: Of the files: parquet, csv, json, md and html.
        page: How the page is shown.
        note: Called at each step.

    Raises:
        PipelineError: There is no such report or format, or nothing to report on.
    """
    history, folder = (None, input) if isinstance(input, str) else (input, None)
    request = ReportRequest(names, bucket, sla, formats, page)
    return make_reports(_OnSpark(spark, history), folder, to, request, note)


@contextmanager
def changed(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session, as long as the context lasts."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)
