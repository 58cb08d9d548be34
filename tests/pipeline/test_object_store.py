"""Jobs without Spark in an object store: read there, written there."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq

from logqueue.pipeline.audit import findings
from logqueue.pipeline.engines.duckdb.lifecycle import run_lifecycle
from logqueue.pipeline.engines.duckdb.reports import run_report
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.lifecycle.publishing import published
from logqueue.pipeline.reports.run import ReportRequest
from logqueue.pipeline.storage.opening import open_tree
from tests.pipeline.histories import table_rows
from tests.pipeline.test_lifecycle import history


def test_tables_reports_and_findings_in_an_object_store(tmp_path: Path) -> None:
    url, before = f"memory://{tmp_path.name}-{os.getpid()}", os.listdir()
    told, to, here = history(6), f"{url}/tables", str(tmp_path / "tables")
    for place in (to, here):
        run_lifecycle(told, place)
        assert run_lifecycle(told, place, since="last")["output"] == place
    for kind in (tables.JOBS, tables.ATTEMPTS):
        assert table_rows(to, kind) == table_rows(here, kind) != []
    reports = open_tree(f"{url}/reports")
    names = ("latency", "throughput")
    for source in (here, to):
        done = run_report(source, reports.url, ReportRequest(names, formats=("parquet", "html")))
        wanted = ["report.html", *(f"report_{name}.parquet" for name in names)]
        assert sorted(done["files"]) == [reports.path(name) for name in wanted]
        assert reports.read("report.html").startswith(b"<!DOCTYPE html>")
        rows = pq.read_table(reports.source("report_throughput.parquet")).num_rows
        assert rows == done["rows"]["report_throughput"] > 0
    version = published(reports)
    assert version is not None and len(version.files) == 3
    written = findings.write(f"{url}/audit", "id", [])
    assert open_tree(f"{url}/audit").read("audit_findings.json") == b""
    assert written["parquet"] == f"{url}/audit/audit_findings/findings.parquet"
    assert os.listdir() == before, "no directory is named by a scheme"
