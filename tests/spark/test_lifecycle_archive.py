"""The lifecycle job on an archive: what it costs and gives when little is new."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logqueue.client import Client
from logqueue.pipeline.archive.manifests import Table
from logqueue.pipeline.engines.spark.formats.inputs import Input
from logqueue.pipeline.engines.spark.lifecycle import job as lifecycle
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.stores.archive_store import ArchiveStore
from logqueue.testing import ServerProcess
from tests.pipeline.archiving import archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def rows(spark: SparkSession, to: Path, kind: tables.TableKind) -> list[Any]:
    frame = lifecycle.read_table(spark, str(to), kind)
    return sorted(tuple(row) for row in frame.drop("steps").collect())


def test_what_is_new_is_read_and_no_more(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten runs of an archive the files of the last one; a queue without workers is in it."""
    root = tmp_path / "archive"
    place = Input(archive=str(root))
    with ServerProcess(tmp_path / "data") as server, Client(server.url, node="w") as client:
        for queue in ("work", "idle"):
            client.put_topic(queue, type="queue")

        def run(jobs: int) -> None:
            client.append("work", [*range(jobs)])
            client.ack("work", client.claim("work", max=jobs).jobs)
            archive({"url": server.url}, root)

        for _ in range(9):
            run(2)
        client.append("idle", [1, 2, 3])
        archive({"url": server.url}, root)
        first = lifecycle.run_lifecycle(spark, place, str(tmp_path / "tables"))
        run(3)
    assert first["topics"] == ["idle", "work"] and first["rows"]["jobs"] == 21
    asked: list[tuple[Table, int]] = []
    entries = ArchiveStore.entries

    def counted(self: ArchiveStore, table: Table, **filters: Any) -> Any:
        found = entries(self, table, **filters)
        asked.append((table, len(found)))
        return found

    monkeypatch.setattr(ArchiveStore, "entries", counted)
    monkeypatch.setattr("logqueue.pipeline.stores.archive_store.BUCKET_SEQS", 1)
    monkeypatch.setattr("logqueue.pipeline.stores.continuing.BUCKET_SEQS", 1)
    again = lifecycle.run_lifecycle(spark, place, str(tmp_path / "tables"), since="last")
    # Of work the last run; of idle its open jobs.
    assert sorted(asked) == [
        ("lease_events", 1),
        ("lease_events", 1),
        ("records", 2),
        ("records", 2),
    ]
    assert again["rows"]["jobs"] == 6
    # Files in a file system of Hadoop are read by Spark itself.
    spark.conf.set("fs.viewfs.mounttable.archives.link./data", f"file://{tmp_path}")
    in_hadoop = Input(archive="viewfs://archives/data/archive")
    lifecycle.run_lifecycle(spark, in_hadoop, str(tmp_path / "whole"))
    for kind in (tables.JOBS, tables.ATTEMPTS):
        assert rows(spark, tmp_path / "tables", kind) == rows(spark, tmp_path / "whole", kind)
    jobs = rows(spark, tmp_path / "whole", tables.JOBS)
    assert [row[0] for row in jobs].count("idle") == 3
