"""The report job on one machine: files in every format, tables of any size on one page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from logqueue.pipeline.engines.duckdb import connection, reports
from logqueue.pipeline.engines.duckdb.lifecycle import run_lifecycle
from logqueue.pipeline.engines.duckdb.reports import ReportRun, run_report
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.reports import production
from logqueue.pipeline.reports.production import MadeTable, page_tables
from logqueue.pipeline.reports.queries.sources import ReportScope
from logqueue.pipeline.reports.run import ReportRequest
from logqueue.pipeline.reports.selection import select_reports
from logqueue.pipeline.storage.opening import open_tree
from tests.pipeline.histories import History
from tests.pipeline.told_history import truth_of
from tests.spark.reference import START, plays

END = START + 260_000_000
HOUR = 3_600_000
FORMATS = ("parquet", "csv", "json", "md", "html")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A finished lifecycle run over random histories."""
    to = str(tmp_path_factory.mktemp("tables"))
    played = plays(30)
    told = History(
        [row for play in played for row in play.records],
        [row for play in played for row in play.events],
    )
    run_lifecycle(told, to, end=str(END))
    return to


def test_all_formats_are_written(folder: str, tmp_path: Path) -> None:
    asked = ReportRequest(bucket="1h", sla="wait=10s", formats=FORMATS)
    summary = run_report(folder, str(tmp_path), asked)
    assert summary["job"] == "report" and len(summary["topics"]) == 7
    names = [kind.name for kind in tables.REPORTS if kind.name != "event_log"]
    assert list(summary["rows"]) == names
    assert len(summary["files"]) == 3 * len(names) + 2
    assert all(Path(file).is_file() for file in summary["files"])
    assert {entry.name for entry in tmp_path.iterdir() if entry.name[0] != "_"} == {
        os.path.basename(file) for file in summary["files"]
    }
    for name in names:
        found = pq.read_table(tmp_path / f"{name}.parquet")
        assert found.num_rows == summary["rows"][name]
        assert found.schema.equals(tables.BY_NAME[name].arrow()), name
    assert "queue-3" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_neither_pyspark_nor_java_is_needed(folder: str, tmp_path: Path) -> None:
    command = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from logqueue.cli.main import main\n"
        f"sys.exit(main(['pipeline', 'report', '--lifecycle', {folder!r}, '--to', "
        f"{str(tmp_path)!r}, '--name', 'latency', '--format', 'csv', '--json']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": "", "JAVA_HOME": ""},
    )
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert (summary["job"], summary["engine"]) == ("report", "duckdb")
    assert (tmp_path / "report_latency.csv").is_file()


def test_what_cannot_be_made_is_refused(folder: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"no format 'xlsx'; there are .* and html"):
        run_report(folder, str(tmp_path), ReportRequest(formats=["xlsx"]))
    with pytest.raises(PipelineError, match="holds no finished tables"):
        run_report(str(tmp_path), str(tmp_path / "to"))
    assert not any(tmp_path.iterdir())


def made_with_limit(most: int, monkeypatch: pytest.MonkeyPatch, to: Path) -> dict[str, Any]:
    """Tables of random histories where no more than so many rows may be in memory; with the
    tables for the page, and the length of their buckets."""
    jobs, attempts = truth_of([play for play in plays(20) if play.events], END)
    scope = ReportScope(START, END, 60_000, {})
    monkeypatch.setattr(production, "PAGE_ROWS_MAX", most)
    monkeypatch.setattr(reports, "PAGE_ROWS_MAX", most)
    names = select_reports().names
    made: dict[str, MadeTable] = {}
    to.mkdir(exist_ok=True)
    with connection.opened() as database, TemporaryDirectory(dir=to) as scratch:
        database.register("raw_jobs", jobs)
        database.register("raw_attempts", attempts)
        run = ReportRun(database, scope, scratch)
        run.prepare(names)
        for name in names:
            made[name] = run.write(tables.BY_NAME[name], open_tree(str(to)), ["parquet"])
        # Nothing is computed again: what was made is all that is read.
        database.unregister("raw_jobs")
        database.unregister("raw_attempts")
        shown, length = page_tables(made, scope, 7, run.shorten)
    return {"made": made, "shown": shown, "length": length}


def test_large_tables_are_shortened_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(production, "PAGE_ROWS_MAX", 100)
    scope = ReportScope(0, 4096 * 60_000, 60_000, {})
    names = ["report_throughput", "report_workers", "report_capacity", "report_tags"]
    made = {name: MadeTable(3200, [], None) for name in names}
    asked: list[tuple[str, int]] = []

    def shorten(kind: TableKind, bucket: int, rows_max: int) -> pa.Table:
        asked.append((kind.name, bucket // 60_000))
        return kind.arrow().empty_table() if bucket >= 256 * 60_000 else of_rows(kind, rows_max)

    shown, length = page_tables(made, scope, 1, shorten)
    assert length == 256 * 60_000 and [*shown] == names
    assert asked == [(names[0], n) for n in (32, 64, 128, 256)] + [(n, 256) for n in names[1:]]


def of_rows(kind: TableKind, count: int) -> pa.Table:
    schema = kind.arrow()
    return pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)


def test_a_page_of_large_tables_has_longer_buckets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    large = made_with_limit(1_000_000, monkeypatch, tmp_path)
    small = made_with_limit(400, monkeypatch, tmp_path)
    assert large["length"] == 60_000
    times = small["length"] // 60_000
    assert times > 1 and times & (times - 1) == 0
    assert {name for name, table in small["made"].items() if table.table is None}
    for name, shown in small["shown"].items():
        every = large["shown"][name]
        assert shown.num_rows <= 400, name
        for column in ("appended", "acked", "claims", "n", "arrivals", "failures"):
            if column in shown.column_names and "bucket" in shown.column_names:
                assert pc.sum(shown[column]) == pc.sum(every[column]), (name, column)
        for column in ("p99", "max", "oldest_age_ms", "ready", "in_flight", "utilisation"):
            if column in shown.column_names:
                assert pc.max(shown[column]) == pc.max(every[column]), (name, column)
    assert highest(large["shown"]["report_backlog"], small["length"]) == highest(
        small["shown"]["report_backlog"], small["length"]
    )


def highest(backlog: pa.Table, length: int) -> dict[tuple[str, int], list[int]]:
    """The highest depth in each of longer buckets."""
    found: dict[tuple[str, int], list[int]] = {}
    for row in backlog.to_pylist():
        at = round(row["bucket"].timestamp() * 1000)
        depths = [row[n] for n in ("ready", "delayed", "in_flight", "held", "oldest_age_ms")]
        key = (row["topic"], at - at % length)
        found[key] = [max(pair) for pair in zip(found.get(key, depths), depths, strict=True)]
    return found
