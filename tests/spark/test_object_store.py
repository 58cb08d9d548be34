"""Jobs of the pipeline in an object store: nothing is written beside it, nothing else is shared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logqueue.pipeline.engines.duckdb.input import LocalInput
from logqueue.pipeline.engines.duckdb.lifecycle import run_lifecycle as run_on_duckdb
from logqueue.pipeline.engines.spark.archive.job import run_archive
from logqueue.pipeline.engines.spark.formats.inputs import Input
from logqueue.pipeline.engines.spark.lifecycle.job import read_table, run_lifecycle
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.reading.place import InputPlace
from tests.pipeline.histories import table_rows
from tests.replica.s3_servers import BUCKET, moto_server
from tests.spark.sinking import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def bucket(spark: SparkSession) -> Iterator[str]:
    """The URL of a bucket that driver and executors find."""
    pytest.importorskip("obstore")
    given = spark.sparkContext.environment
    before = dict(given)
    with moto_server() as s3, s3.in_environment():
        given.update(s3.environment())
        yield f"s3://{BUCKET}/spark"
    given.clear()
    given.update(before)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    yield from Target.opened(tmp_path)


def test_an_archive_and_its_tables_in_an_object_store(
    spark: SparkSession, target: Target, bucket: str, tmp_path: Path
) -> None:
    """Made, read back, and brought up to date."""
    with target.client() as client:
        client.put_topic("q:1", type="queue")
        client.append("q:1", [{"n": n} for n in range(30)], create=True)
        client.ack("q:1", client.claim("q:1", max=10).jobs)
    before = os.listdir()
    source, archive, to = {"url": target.url}, f"{bucket}/archive", f"{bucket}/tables"
    assert run_archive(spark, source, archive)["tables"]["records"]["rows"] == 30
    first = run_lifecycle(spark, Input(archive=archive), to)
    assert (first["rows"], first["output"]) == ({"jobs": 30, "attempts": 10}, to)
    with target.client() as client:
        client.ack("q:1", client.claim("q:1", max=10).jobs)
    assert run_archive(spark, source, archive)["tables"]["lease_events"]["rows"] == 20
    run_lifecycle(spark, Input(archive=archive), to, since="last")
    jobs = read_table(spark, to, tables.JOBS).groupBy("state").count().collect()
    assert {row["state"]: row["count"] for row in jobs} == {"acked": 20, "ready": 10}
    assert read_table(spark, to, tables.ATTEMPTS).where("date IS NULL").count() == 0
    other = f"{bucket}/tables-of-duckdb"
    local = LocalInput(InputPlace(archive=archive))
    assert run_on_duckdb(local, other)["rows"] == {"jobs": 30, "attempts": 20}
    run_on_duckdb(local, other, since="last")
    for kind in (tables.JOBS, tables.ATTEMPTS):
        assert table_rows(to, kind) == table_rows(other, kind) != []
    assert os.listdir() == before, "no directory is named by a scheme"
