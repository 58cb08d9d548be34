"""Tables from before there were versions: `jobs/`, `attempts/` and `_range.json` in a directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from logqueue.pipeline.engines.duckdb.lifecycle import run_lifecycle
from logqueue.pipeline.engines.duckdb.reports import run_report
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.reports.run import ReportRequest
from tests.pipeline.histories import table_rows
from tests.pipeline.test_lifecycle import history

QUEUE_FIELDS = ("log_id", "topic", "first_seq", "records", "events", "floors")


def test_they_are_read_and_continued(tmp_path: Path) -> None:
    told, new, old = history(20), tmp_path / "new", tmp_path / "old"
    run_lifecycle(told, str(new))
    noted = json.loads((new / "_range.json").read_text())
    queues = [{name: queue[name] for name in QUEUE_FIELDS} for queue in noted["span"]["queues"]]
    span = {"start": noted["span"]["start"], "end": noted["span"]["end"], "others": 0}
    for table in ("jobs", "attempts"):
        shutil.copytree(new / table, old / table)
    noted["span"] = {**span, "queues": queues}
    (old / "_range.json").write_text(json.dumps(noted))
    for kind in (tables.JOBS, tables.ATTEMPTS):
        assert table_rows(str(old), kind) == table_rows(str(new), kind)
    reports = [
        run_report(str(place), str(tmp_path / "reports"), ReportRequest(("latency",)))["rows"]
        for place in (old, new)
    ]
    assert reports[0] == reports[1]
    run_lifecycle(told, str(old), since="last")
    assert (old / "jobs").is_symlink()
    for kind in (tables.JOBS, tables.ATTEMPTS):
        assert table_rows(str(old), kind) == table_rows(str(new), kind)
