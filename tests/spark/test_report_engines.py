"""Both engines say the same in every report, row by row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logqueue.pipeline.engines.duckdb.reports import build
from logqueue.pipeline.engines.spark.reports import report_parts
from logqueue.pipeline.engines.spark.reports.job import SparkReports, changed, opened_reports
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.reports.explain import explanations
from logqueue.pipeline.reports.queries.definitions import filled
from logqueue.pipeline.reports.queries.dialect import DUCKDB, SPARK
from logqueue.pipeline.reports.queries.explaining import windows
from logqueue.pipeline.reports.queries.sources import ReportScope
from logqueue.pipeline.storage.directory_tree import DirectoryTree
from tests.effort import scaled
from tests.pipeline.test_explain import (
    SCOPE,
    Log,
    always_slow,
    ask_of,
    failing_tag,
    further_relations,
)
from tests.pipeline.told_history import truth_of
from tests.spark.reference import START, plays

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BUCKET = 3_600_000
EVERY = [kind.name for kind in tables.REPORTS]
LARGE = {"report_throughput": ["parquet", "csv"], "report_backlog": ["csv"]}
"""Tables that go the way of the large ones: their tasks write the files, in these formats."""
WRITTEN = {"report_sla", "report_explanations", *LARGE}
"""Tables that are written, too; a small one, one that is made of answers, and large ones."""


def test_both_engines_say_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = START + 260_000_000
    found = truth_of([p for p in plays(scaled(25, 400), steps=40) if p.events], end)
    scope = ReportScope(START, end, BUCKET, {"wait": 10_000, "run": 2_000, "e2e": 60_000})
    expected = build(found.jobs, found.attempts, scope, EVERY)
    tree = DirectoryTree(tmp_path)
    # Of rows that a plan has in itself, Spark knows that they are few.
    with changed(spark, {"spark.sql.execution.arrow.localRelationThreshold": "0"}):
        frames = [spark.createDataFrame(table) for table in found]
    with opened_reports(spark, scope, *frames) as reports:
        reports.prepare(EVERY)
        for name in EVERY:
            kind = tables.BY_NAME[name]
            if name in WRITTEN:
                rows = written(reports, kind, tree, expected[name].num_rows, monkeypatch)
            else:
                rows = reports.rows(kind).toArrow().cast(kind.arrow())
            # Random histories have nothing to explain; see the test below.
            assert rows.num_rows > 0 or name == "report_explanations", name
            assert in_order(rows, name) == in_order(expected[name], name), name
        plan = reports.rows(tables.BY_NAME["report_failures"])._jdf.queryExecution().optimizedPlan()
        assert "WindowGroupLimit" in plan.toString(), "each task keeps its worst first"
        counted = reports.query(windows(BUCKET, end, SPARK))._jdf.queryExecution().sparkPlan()
        assert not re.search("SortAggregate|SortMergeJoin", counted.toString()), "rows are sorted"
        assert reports.shorten(tables.BY_NAME["report_backlog"], 86_400_000, 1).num_rows == 1
    left = {file.name.partition("/")[0] for file in tree.files()}
    assert "report_backlog.parquet" not in left and not [n for n in left if n[0] == "_"]
    assert not spark.sql("SHOW VIEWS LIKE 'logqueue_*'").collect()


def written(
    reports: SparkReports,
    kind: TableKind,
    tree: DirectoryTree,
    rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> pa.Table:
    """What the files of a table say that was written, with so many rows."""
    if kind.name not in LARGE:
        made = reports.write(kind, tree, ["parquet"])
        assert made.rows == rows
        assert made.table == pq.read_table(tree.path(f"{kind.name}.parquet"))
        return made.table
    with monkeypatch.context() as context:
        context.setattr(report_parts, "PACK_BYTES", 0)
        context.setattr(report_parts, "PAGE_ROWS_MAX", 1)
        made = reports.write(kind, tree, LARGE[kind.name])
    assert made.rows == rows and made.table is None
    parents = [Path(file).parent.name for file in made.files]
    assert parents == [f"{kind.name}.{name}" for name in LARGE[kind.name]]
    # In buckets of the same length, these are all rows as they are in the files.
    found = reports.shorten(kind, BUCKET, rows + 1)
    return found.select(kind.names).cast(kind.arrow())


def test_what_is_kept_has_no_empty_parts(spark: SparkSession) -> None:
    found = truth_of([p for p in plays(10, steps=20) if p.events], START + 1_000_000)
    frames = (spark.createDataFrame(table) for table in found)
    settings = {"spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": "8"}
    scope = ReportScope(START, START + 1_000_000, 3_600_000, {})
    with changed(spark, settings), opened_reports(spark, scope, *frames) as reports:
        reports.prepare(["report_throughput", "report_backlog"])
        (kept,) = reports.kept
        assert kept._jdf.rdd().getNumPartitions() == 1, "each costs each reader a task"


def in_order(rows: pa.Table, name: str) -> list[dict[str, object]]:
    order = [(column, "ascending") for column in tables.BY_NAME[name].order]
    return list(rows.sort_by(order).to_pylist())


@pytest.mark.slow
def test_both_engines_explain_the_same(spark: SparkSession) -> None:
    logs = Log(1, failing_tag).made(), Log(2, always_slow, an_hour=40, topic="it's").made()
    with duckdb.connect() as connection:
        ask = ask_of(connection, *logs)
        jobs, attempts = ask("SELECT * FROM $jobs"), ask("SELECT * FROM $attempts")
        expected = explanations(ask, SCOPE, DUCKDB)
    further = further_relations(SPARK)
    names = {name: f"explained_{name}" for name in ("jobs", "attempts", *further)}
    for name, table in (("jobs", jobs), ("attempts", attempts)):
        spark.createDataFrame(table).createOrReplaceTempView(names[name])
    for name, text in further.items():
        spark.sql(filled(text, names)).createOrReplaceTempView(names[name])
    found = explanations(lambda text: spark.sql(filled(text, names)).toArrow(), SCOPE, SPARK)
    assert found.to_pylist() == expected.to_pylist()
    assert found["name"].to_pylist() == ["invoice", "w3"]
