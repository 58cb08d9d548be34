"""Which tables are found at a place: by the manifest where there is one."""

from __future__ import annotations

import os
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logqueue.pipeline.lifecycle.publishing import opened_target
from logqueue.pipeline.lifecycle.stored_tables import tables_at

DAY = date(2026, 1, 31)


@pytest.mark.parametrize("in_bucket", [False, True])
def test_the_newest_version_alone(tmp_path: Path, in_bucket: bool) -> None:
    to = f"memory://{tmp_path.name}-{os.getpid()}/to" if in_bucket else str(tmp_path / "to")
    for mark in (1, 2):
        with opened_target(to) as target:
            rows = pa.table({"mark": [mark]})
            files = [
                target.staging.write("jobs", DAY, rows),
                target.staging.write("jobs", DAY, rows),
            ]
            one = target.staging.put("report_x.parquet", partial(pq.write_table, rows))
            target.publish([*files, one], tables=("jobs", "attempts"))
    found = {table.name: table for table in tables_at(to)}
    assert {name: len(table.files) for name, table in found.items()} == {
        "attempts": 0,
        "jobs": 2,
        "report_x": 1,
    }
    with TemporaryDirectory() as folder:
        paths = found["jobs"].local_files(folder)
        assert all(path.split("/")[-2:-1] == ["date=2026-01-31"] for path in paths)
        marks = [pq.ParquetFile(path).read()["mark"].to_pylist() for path in paths]
    assert marks == [[2], [2]]


def test_files_of_no_version(tmp_path: Path) -> None:
    for name in (
        "a.parquet",
        "b/date=2026-01-31/x.parquet",
        "_c/y.parquet",
        "d.csv",
        "e/.f.parquet",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        pq.write_table(pa.table({"mark": [1]}), path)
    with opened_target(str(tmp_path / "lifecycle")) as target:
        target.publish([target.staging.write("jobs", DAY, pa.table({"mark": [1]}))])
    assert [table.name for table in tables_at(str(tmp_path))] == ["a", "b"]
    assert tables_at(str(tmp_path / "none")) == []
