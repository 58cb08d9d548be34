"""The audit on Spark finds what it finds on one machine, down to every word."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logqueue.pipeline.engines.duckdb.audit import job as local
from logqueue.pipeline.engines.spark.audit.engine import SparkAuditEngine
from logqueue.pipeline.engines.spark.audit.job import run_audit
from logqueue.pipeline.engines.spark.formats.inputs import Input
from tests.pipeline.audit_faults import Place, write_faults
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


def squared(mark: str, number: int) -> int:
    """Kills the process that it runs in, the first time."""
    if number == 3 and not os.path.exists(mark):
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def test_a_task_whose_process_is_killed_runs_again(spark: SparkSession, tmp_path: Path) -> None:
    engine = SparkAuditEngine(spark, Input(path=str(tmp_path)))
    found = engine.run_tasks(partial(squared, str(tmp_path / "mark")), range(6))
    assert list(found) == [0, 1, 4, 9, 16, 25]
