"""The archive job on a real server: what it keeps is what the log told, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from logqueue.pipeline.archive.contents import archive_files
from logqueue.pipeline.engines.spark.archive.job import COLUMNS, read_archive, run_archive
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.opening import open_tree
from tests.spark.sinking import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    yield from Target.opened(tmp_path_factory.mktemp("server"))


def seqs(root: Path) -> dict[str, list[int]]:
    """The seqs of each topic, read without Spark from the files that the manifests name."""
    found: dict[str, list[int]] = {}
    for file in archive_files(str(root), "records"):
        table = pq.read_table(file, columns=["topic", "seq"], partitioning=None)
        for topic, seq in zip(*(column.to_pylist() for column in table.columns), strict=True):
            found.setdefault(topic, []).append(seq)
    return {topic: sorted(places) for topic, places in found.items()}


def test_an_archive_from_first_to_last(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    """Records and lease events; going on; parsed; all of it once."""
    root, said = tmp_path / "an archive %", []
    with target.client() as client:
        client.put_topic("q:1", type="queue")
        client.append("q:1", [{"n": n} for n in range(300)], create=True)
        client.append("log", [{"m": n} for n in range(200)], create=True)
        client.ack("q:1", client.claim("q:1", max=10).jobs)

    def note(text: str, share: float | None) -> None:
        said.append(share)

    source = {"url": target.url}
    first = run_archive(spark, source, str(root), max_records=300, note=note)["tables"]
    assert (first["records"]["rows"], first["records"]["epochs"]) == (500, 2)
    assert first["records"]["topics"] == {
        "log": {"first": 1, "last": 200},
        "q:1": {"first": 1, "last": 300},
    }
    assert first["lease_events"]["rows"] == 20 and said[-1] == 1.0
    with target.client() as client:
        client.append("log", [{"m": n} for n in range(200, 230)], create=True)
    looks = 0

    def look(text: str, share: float | None) -> None:
        nonlocal looks
        looks += share == 0.0
        if looks == 2 and share == 0.0:
            with target.client() as client:
                client.append("log", [{"m": n} for n in range(230, 240)], create=True)

    going: dict[str, Any] = {"once": False, "every_s": 0.1, "tables": ["records"], "variant": True}
    second = run_archive(spark, source, str(root), note=look, is_over=lambda: looks > 2, **going)[
        "tables"
    ]["records"]
    assert (second["rows"], second["first_epoch"]) == (40, "records-0001/2")
    assert seqs(root) == {"log": [*range(1, 241)], "q:1": [*range(1, 301)]}

    records = read_archive(spark, str(root), "records")
    shown = [*COLUMNS["records"]]
    shown.insert(shown.index("log_id"), "segment")
    assert records.columns[:-1] == shown
    parsed = records.selectExpr(
        "topic", "seq", "data", "variant_get(data_variant, '$.m', 'int') AS m", "size", "segment"
    )
    rows = {(row.topic, row.seq): row for row in parsed.collect()}
    assert len(rows) == 540
    assert rows["q:1", 300].data == '{"n":299}' and rows["q:1", 300].m is None
    assert rows["log", 230].m == 229 and rows["log", 230].size == 9
    events = read_archive(spark, str(root), "lease_events").collect()
    assert sorted((row.event, row.job_seq) for row in events) == sorted(
        (event, seq) for event in ("acked", "claimed") for seq in range(1, 11)
    )


def test_what_can_not_be_archived(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    root = tmp_path / "archive"
    source = {"url": target.url}
    with open_tree(str(root)).lock("archive"), pytest.raises(PipelineError, match="is working on"):
        run_archive(spark, source, str(root))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"once": False}, "needs every_s"),
        ({"variant": True, "delta": True}, "no VARIANT"),
        ({"topics": ["a"], "pattern": "a"}, "not both"),
        ({"tables": ["jobs"]}, "no table 'jobs'"),
    ]
    for given, message in cases:
        with pytest.raises(PipelineError, match=message):
            run_archive(spark, source, str(root), **given)
    run_archive(spark, source, str(root), topics=["none"], tables=["records"])
    assert read_archive(spark, str(root), "records").count() == 0
