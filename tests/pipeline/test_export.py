"""Report files: the same rows in every format, whole or not at all, safe in a spreadsheet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reports.export import (
    FORMATS,
    ROWS_AT_ONCE,
    checked_formats,
    description_of,
    formats_of,
    write_markdown,
    write_rows,
)
from logqueue.pipeline.storage.opening import open_tree
from tests.spark.sample_report import MONDAY, Rows, busy_week, tables

RANGE = {
    b"logqueue.range": json.dumps({"v": 1, "start_ms": 0, "end_ms": 7, "bucket_ms": 1}).encode()
}
NASTY = (
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "'quoted",
    'a "b", c\r\nd',
    "| ` * <b>",
    "ß€😀",
)


def write_tables(
    tables: Mapping[str, pa.Table], to: str, formats: Iterable[str] = ("parquet",)
) -> list[str]:
    """Tables as a report writes them."""
    chosen = checked_formats(formats)
    tree = open_tree(to)
    files: list[str] = []
    for name, rows in tables.items():
        batches = rows.to_batches(ROWS_AT_ONCE)
        files += write_rows(tree, name, rows.schema, batches, formats_of(name, chosen))
    if "md" in chosen:
        files.append(write_markdown(tables, tree))
    return files


def from_csv(path: Path, schema: pa.Schema) -> Rows:
    """The rows of a CSV file, typed as the schema says."""
    with open(path, encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened, strict=True))
    return [{name: _typed(row[name], schema.field(name).type) for name in row} for row in rows]


def _typed(cell: str, kind: pa.DataType) -> Any:
    if cell == "":
        return None
    if pa.types.is_string(kind):
        return cell.removeprefix("'")
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(cell)
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[cell]
    return int(cell) if pa.types.is_integer(kind) else float(cell)


def from_json(path: Path, schema: pa.Schema) -> Rows:
    """The rows of a JSON document, times as times."""
    times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    rows: Rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    for row in rows:
        for name in times:
            row[name] = None if row[name] is None else datetime.fromisoformat(row[name])
    return rows


def test_all_formats_hold_the_same(tmp_path: Path) -> None:
    made = busy_week(("mail", "thumbnails"), buckets=30)
    files = write_tables(made, str(tmp_path), FORMATS)
    assert len(files) == 3 * len(made) + 1 and all(Path(file).is_file() for file in files)
    for name, table in made.items():
        rows = table.to_pylist()
        assert pq.read_table(tmp_path / f"{name}.parquet").to_pylist() == rows
        assert from_csv(tmp_path / f"{name}.csv", table.schema) == rows
        assert from_json(tmp_path / f"{name}.json", table.schema) == rows
    document = (tmp_path / "report.md").read_text(encoding="utf-8")
    for row in made["report_latency"].to_pylist():
        if row["bucket"] is None:
            columns = ("topic", "metric", "n", "p50", "p90", "p95", "p99", "max")
            assert f"| {' | '.join(str(row[name]) for name in columns)} |" in document
    for row in made["report_outcomes"].to_pylist():
        state = row["state"].replace("_", "\\_")
        assert f"| {row['topic']} | {state} | {row['jobs']} | {row['share']!r} |" in document


def test_the_range_goes_along(tmp_path: Path) -> None:
    made = {n: t.replace_schema_metadata(RANGE) for n, t in tables().items()}
    write_tables(made, str(tmp_path), FORMATS)
    read = pq.read_table(tmp_path / "report_dfg.parquet")
    assert description_of(read)["range"]["end_ms"] == 7
    assert pq.ParquetFile(tmp_path / "report_dfg.parquet").schema_arrow.names[0] == "topic"
    assert json.loads((tmp_path / "report_dfg.json").read_text())["range"]["end_ms"] == 7
    assert "1970-01-01 00:00" in (tmp_path / "report.md").read_text()


def test_no_text_becomes_a_formula(tmp_path: Path) -> None:
    rows = [{"topic": "t", "reason": text, "n": -5, "last_at": MONDAY} for text in NASTY]
    made = tables(report_failures=rows)
    write_tables({"report_failures": made["report_failures"]}, str(tmp_path), ["csv", "md"])
    raw = (tmp_path / "report_failures.csv").read_bytes()
    assert raw.endswith(b"\r\n") and raw.startswith(b"topic,outcome,reason,n,")
    with open(tmp_path / "report_failures.csv", encoding="utf-8", newline="") as opened:
        written = list(csv.DictReader(opened))
    assert [row["reason"][0] for row in written[:7]] == ["'"] * 7
    assert [row["reason"].removeprefix("'") for row in written] == list(NASTY)
    assert {row["n"] for row in written} == {"-5"}, "numbers stay numbers"
    document = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert r"\| \` \* &lt;b&gt;" in document and "<b>" not in document
    body = [line for line in document.splitlines() if line.startswith("| t ")]
    assert len(body) == len(NASTY), "no text breaks out of its row"


def test_the_event_log_is_always_csv(tmp_path: Path) -> None:
    made = busy_week(buckets=2)
    write_tables({"event_log": made["event_log"]}, str(tmp_path), ["parquet"])
    lines = (tmp_path / "event_log.csv").read_text().splitlines()
    assert lines[0] == "case_id,activity,lifecycle,timestamp,resource,topic,seq"
    assert lines[1] == "mail-1,appended,complete,2026-03-02T00:00:00.250000Z,w1,mail,1"


def test_what_is_not_a_number_is_null(tmp_path: Path) -> None:
    made = {"t": pa.table({"x": [1.5, float("nan"), float("inf"), None], "when": [None] * 4})}
    write_tables(made, str(tmp_path), ["csv", "json"])
    assert (tmp_path / "t.csv").read_bytes() == b"x,when\r\n1.5,\r\n,\r\n,\r\n,\r\n"
    rows = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert [row["x"] for row in rows] == [1.5, None, None, None]


def test_nested_columns_are_json_in_csv(tmp_path: Path) -> None:
    at = datetime(2026, 3, 2, tzinfo=UTC)
    made = {"t": pa.table({"steps": [[{"at": at, "name": "acked"}], None]})}
    write_tables(made, str(tmp_path), ["csv", "json", "parquet"])
    with open(tmp_path / "t.csv", newline="") as opened:
        (row, nothing) = csv.DictReader(opened)
    assert json.loads(row["steps"]) == [{"at": "2026-03-02T00:00:00+00:00", "name": "acked"}]
    assert nothing["steps"] == ""


def test_files_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    made = {"t": pa.table({"x": [1]})}
    (tmp_path / "t.json" / "in the way").mkdir(parents=True)
    with pytest.raises(PipelineError, match=r"t\.json cannot be written"):
        write_tables(made, str(tmp_path), ["csv", "json"])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["t.csv", "t.json"]


def test_refusals_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"no format 'xlsx'; there are parquet, csv, json, md"):
        write_tables({}, str(tmp_path), ["xlsx"])
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PipelineError, match=r"choose another directory"):
        write_tables({"t": pa.table({"x": [1]})}, str(tmp_path / "file"), ["csv"])
