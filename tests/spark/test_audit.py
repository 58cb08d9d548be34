"""The audit on Spark finds what it finds on one machine, down to every word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logqueue.pipeline.engines.duckdb.audit import job as local
from logqueue.pipeline.engines.spark.archive.job import run_archive
from logqueue.pipeline.engines.spark.audit.job import run_audit
from logqueue.pipeline.engines.spark.formats.inputs import Input
from tests.pipeline.audit_faults import QUEUE, Place, write_faults
from tests.spark.crafted import CraftedLog, appended

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def places(to: Path) -> list[Place]:
    rows = [json.loads(line) for line in (to / "audit_findings.json").read_text().splitlines()]
    names = ("rule", "severity", "topic", "first_seq", "last_seq")
    return [tuple(row[name] for name in names) for row in rows]


def test_both_engines_say_the_same(spark: SparkSession, tmp_path: Path) -> None:
    for name, data, last in (("here", "70", 200), ("there", '"70"', 190)):
        with CraftedLog(tmp_path / name) as log:
            log.topic(99, "compared", durability="fsync")
            log.append(99, 1, 69)
            log.log(appended(log.at, 99, 70, 1, data=data))
            log.append(99, 71, last - 70)
            expected = write_faults(log)
            log.roll()
    here, there = Input(path=str(tmp_path / "here")), Input(path=str(tmp_path / "there"))
    expected += [("same_records", "error", "compared", 70, 70)]
    expected += [("same_records", "info", "compared", 191, 200)]
    of_spark = run_audit(spark, here, str(tmp_path / "spark"), against=there)
    of_local = local.run_audit(here, str(tmp_path / "local"), against=there)
    assert sorted(places(tmp_path / "spark"), key=str) == sorted(expected, key=str)
    texts = [(tmp_path / name / "audit_findings.json").read_text() for name in ("spark", "local")]
    assert texts[0] == texts[1]
    del of_spark["output"], of_local["output"]
    assert of_spark == of_local


def test_an_archive_is_the_same_as_its_log_until_somebody_touches_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    with CraftedLog(tmp_path / "data") as log:
        log.topic(1, "orders", **QUEUE)
        for first in range(1, 101, 10):
            log.append(1, first, 10)
        log.claim(1, *range(1, 101))
        log.ack(1, *range(1, 91))
    log_input, root = Input(path=str(tmp_path / "data")), tmp_path / "archive"
    source = {"path": str(tmp_path / "data")}
    run_archive(spark, source, str(root), topics=["orders"], max_records=50)
    archive = Input(archive=str(root))
    summary = run_audit(spark, archive, str(tmp_path / "out"), against=log_input)
    assert places(tmp_path / "out") == []
    assert summary["account"]["acked"] == 90 and summary["account"]["open"] == 10
    part, _ = sorted((root / "records").rglob("*.parquet"))
    kept = part.read_bytes()
    part.write_bytes(kept[:-1] + b"\0")
    run_audit(spark, archive, str(tmp_path / "out"))
    assert places(tmp_path / "out") == [("manifest_files", "error", "orders", 1, 50)]
    part.write_bytes(kept)
    next(root.glob("_manifest/records-*/0000000000.json")).unlink()
    run_audit(spark, archive, str(tmp_path / "out"))
    assert places(tmp_path / "out") == [("manifest_joints", "error", "orders", 1, 50)]
