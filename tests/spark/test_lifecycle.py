"""The lifecycle job on Spark makes the tables that it makes on DuckDB, where rows are tested."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from logqueue.pipeline.engines.duckdb.lifecycle import run_lifecycle as run_on_duckdb
from logqueue.pipeline.engines.spark.lifecycle import job as lifecycle
from logqueue.pipeline.engines.spark.lifecycle.history_source import Function, of_parts
from logqueue.pipeline.errors import PipelineError, message_of
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.lifecycle.publishing import opened_target
from logqueue.pipeline.lifecycle.span import Span
from tests.pipeline.histories import History, table_rows
from tests.spark.reference import START, plays

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class Told(History):
    """A history whose parts tasks read."""

    def fold_rows(
        self, spark: SparkSession, span: Span, function: Function, ddl: str, **which: Any
    ) -> DataFrame:
        return of_parts(spark, self.fold_parts(span, **which), function, ddl)


def test_both_engines_make_the_same_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of random histories; on Spark in two runs, of which the second goes on from the first, and
    in several parts."""
    played = plays(60)
    monkeypatch.setattr(lifecycle, "ROWS_PER_TASK", 1000)
    told = Told([r for p in played for r in p.records], [e for p in played for e in p.events])
    local, other = str(tmp_path / "local"), str(tmp_path / "other")
    times = sorted(event["ts"] for event in told.event_rows)
    early = told.as_of(times[-len(times) // 3])
    first = lifecycle.run_lifecycle(spark, Told(early.record_rows, early.event_rows), other)
    assert first["rows"]["jobs"] > 0
    last = lifecycle.run_lifecycle(spark, told, other, since="last")
    complete = run_on_duckdb(told, local)
    assert 0 < last["rows"]["jobs"] < complete["rows"]["jobs"]
    same = {"since": None, "rows": complete["rows"], "output": local}
    assert last | same == complete
    for kind in (tables.JOBS, tables.ATTEMPTS):
        rows = table_rows(other, kind)
        assert rows and rows == table_rows(local, kind)
        assert lifecycle.read_table(spark, other, kind).count() == len(rows)
    assert Span.read(local) == Span.read(other)


def test_directories_are_local_whatever_the_session_takes_paths_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As where `fs.defaultFS` is HDFS; and names mean themselves, not patterns."""
    played = plays(2)
    told = Told([r for p in played for r in p.records], [e for p in played for e in p.events])
    to = str(tmp_path / "a [b] {c,d}*? %20")
    spark.conf.set("fs.defaultFS", "viewfs://nowhere/")
    try:
        rows = lifecycle.run_lifecycle(spark, told, to)["rows"]
        assert lifecycle.read_table(spark, to, tables.JOBS).count() == rows["jobs"] > 0
        again = lifecycle.run_lifecycle(spark, told, f"file://{to}", since="last")
        assert again["output"] == to
    finally:
        spark.conf.unset("fs.defaultFS")
    assert pq.read_table(Path(to) / "jobs").num_rows == rows["jobs"]
    # Another file system of Hadoop, that shows the same files.
    spark.conf.set("fs.viewfs.mounttable.cluster.link./data", f"file://{tmp_path}")
    elsewhere = f"viewfs://cluster/data/{Path(to).name}"
    assert lifecycle.read_table(spark, elsewhere, tables.JOBS).count() == rows["jobs"]
    with pytest.raises(PipelineError, match="nothing is written to viewfs://cluster/data"):
        lifecycle.run_lifecycle(spark, told, elsewhere)
    with pytest.raises(PipelineError, match="holds no finished tables"):
        lifecycle.read_table(spark, "viewfs://cluster/data/none", tables.JOBS)


def test_a_place_that_tasks_cannot_write_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """And what was there stays."""
    played = plays(1)
    told = Told([*played[0].records], [*played[0].events])
    with opened_target(str(tmp_path)) as target, pytest.raises(Exception) as failed:
        (tmp_path / "_staging").write_text("in the way")
        lifecycle._write_folded(spark, told, told.span(None), target)
    assert "cannot be written on" in message_of(failed.value)
    assert "executors share" in message_of(failed.value)


def test_a_day_is_few_files_however_many_tasks_fold_it(spark: SparkSession, tmp_path: Path) -> None:
    """Files by table and day, of their size; not one for each task, table and day."""
    day = 86_400_000
    told = Told(
        [
            {"topic": "t", "log_id": "l", "seq": 1 + seq, "ts": START + seq * day // 100}
            for seq in range(600)
        ],
        [
            {"topic": "t", "log_id": "l", "lseq": seq, "ts": START + seq * day // 100 + 1,
             "event": "claimed", "job_seq": 1 + seq, "worker": "w", "lease_id": f"{seq}"}
            for seq in range(600)
        ],
    )  # fmt: skip
    before = lifecycle.ROWS_PER_TASK
    lifecycle.ROWS_PER_TASK = 200
    try:
        done = lifecycle.run_lifecycle(spark, told, str(tmp_path))
    finally:
        lifecycle.ROWS_PER_TASK = before
    assert done["rows"] == {"jobs": 600, "attempts": 600}
    for kind in (tables.JOBS, tables.ATTEMPTS):
        days = [*(tmp_path / kind.name).iterdir()]
        assert 6 <= len(days) <= 7
        assert [len([*found.iterdir()]) for found in days] == [1] * len(days)
