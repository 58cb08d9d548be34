"""Bulk loads: each row once, through crashes, and never other rows under the same name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logqueue.pipeline.engines.spark.copies import slices as cutting
from logqueue.pipeline.engines.spark.copies.backfill import run_backfill
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.writing.progress_records import WriteMemory, digest
from logqueue.shapes import Record
from tests.spark.sinking import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 400


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    yield from Target.opened(tmp_path_factory.mktemp("backfill"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of JSON lines, some rows of which are alike."""
    folder = tmp_path_factory.mktemp("rows")
    for name, start in (("a", 0), ("b", ROWS // 2)):
        rows = [{"n": n % 390, "who": f"w{n % 7}"} for n in range(start, start + ROWS // 2)]
        (folder / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def counted(values: list[Any]) -> Counter[str]:
    return Counter(json.dumps(value, sort_keys=True) for value in values)


def test_rows_come_once_in_order_and_a_repeat_does_nothing(
    spark: SparkSession, target: Target, source: Path
) -> None:
    def load(**changes: Any) -> dict[str, Any]:
        given: dict[str, Any] = {
            "slices": 3,
            "map_sql": "CAST(n AS STRING) AS data, who AS tag",
            "order_by": "tag",
        }
        return run_backfill(
            spark, str(source), "json", target.url, "sorted", "load-1", **(given | changes)
        )

    summary = load()
    assert summary["rows"] == summary["written"] == ROWS
    assert summary["epochs"] == [0, 2] and summary["already"] == 0
    with target.client() as client:
        records = [record for record in client.read("sorted") if isinstance(record, Record)]
    tags = [record.tag or "" for record in records]
    assert tags == sorted(tags)
    assert Counter(record.data for record in records) == Counter(n % 390 for n in range(ROWS))
    again = load()
    assert (again["written"], again["already"], again["epochs"]) == (0, ROWS, None)
    with pytest.raises(PipelineError, match="other content or settings"):
        load(map_sql="CAST(n + 1 AS STRING) AS data, who AS tag")
    with pytest.raises(PipelineError, match="other content or settings"):
        load(slices=2)
    assert len(target.values("sorted")) == ROWS


CHILD = """
    import os, signal, sys
    from logqueue.pipeline.engines.spark.copies import backfill
    from logqueue.pipeline.engines.spark.session import session
    from tests.spark.conftest import SETTINGS

    source, url, dies_before = sys.argv[1], sys.argv[2], int(sys.argv[3])

    def note(text, share):
        if text.startswith(f"slice {dies_before} of"):
            os.killpg(0, signal.SIGKILL)

    spark = session.open_session("local[2]", conf=SETTINGS)
    backfill.run_backfill(
        spark, source, "json", url, "killed", "killed", slices=4, note=note
    )
"""

End = Callable[["SparkSession", Target, Path], None]
ENDED_BEFORE = 3


def killed(spark: SparkSession, target: Target, source: Path) -> None:
    """A load in a process of its own, which is killed."""
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(source), target.url, str(ENDED_BEFORE)],
        start_new_session=True,
        capture_output=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()[-2000:]


def interrupted(spark: SparkSession, target: Target, source: Path) -> None:
    """A load in this session, which is interrupted."""

    def note(text: str, share: float | None) -> None:
        if text.startswith(f"slice {ENDED_BEFORE} of"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_backfill(
            spark,
            str(source),
            "json",
            target.url,
            "interrupted",
            "interrupted",
            slices=4,
            note=note,
        )


@pytest.mark.parametrize("end", [interrupted, pytest.param(killed, marks=pytest.mark.slow)])
def test_a_load_that_was_ended_goes_on_behind_its_last_slice(
    spark: SparkSession, target: Target, source: Path, end: End
) -> None:
    name = end.__name__
    end(spark, target, source)
    before = len(target.values(name))
    assert 0 < before < ROWS
    summary = run_backfill(spark, str(source), "json", target.url, name, name, slices=4)
    assert summary["epochs"] == [2, 3]
    assert summary["already"] == before and summary["written"] == ROWS - before
    expected = [{"n": n % 390, "who": f"w{n % 7}"} for n in range(ROWS)]
    assert counted(target.values(name)) == counted(expected)


def test_the_cut_does_not_depend_on_how_files_are_read(
    spark: SparkSession, target: Target, source: Path, tmp_path: Path
) -> None:
    def load(path: Path, **changes: Any) -> dict[str, Any]:
        return run_backfill(
            spark, str(path), "json", target.url, "cut", "load-3", slices=3, **changes
        )

    load(source)
    lines = [line for path in sorted(source.iterdir()) for line in path.read_text().splitlines()]
    # The same rows in other files and another order are the same load.
    (tmp_path / "one.json").write_text("\n".join(reversed(lines)))
    assert load(tmp_path)["written"] == 0
    assert len(target.values("cut")) == ROWS


def test_csv_and_parquet_and_what_a_record_is_made_of(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("id,name\n1,one\n2,\n")
    done = run_backfill(
        spark, str(tmp_path / "rows.csv"), "csv", target.url, "csv", "load-4", slices=6
    )
    assert (done["epochs"], done["written"]) == ([0, 5], 2), "most of them are empty"
    assert counted(target.values("csv")) == counted(
        [{"id": "1", "name": "one"}, {"id": "2", "name": None}]
    )
    spark.sql(
        "SELECT 'elsewhere' AS topic, named_struct('a', 1) AS Data, 't' AS tag, "
        "map('k', 'v') AS meta"
    ).write.parquet(str(tmp_path / "rows"))
    run_backfill(spark, str(tmp_path / "rows"), "parquet", target.url, "parquet", "load-5")
    with target.client() as client:
        [record] = client.read("parquet")
    assert isinstance(record, Record)
    assert (record.data, record.tag, record.meta) == ({"a": 1}, "t", {"k": "v"})


def test_refusals_say_what_to_do(spark: SparkSession, target: Target, source: Path) -> None:
    def load(**changes: Any) -> None:
        given: dict[str, Any] = {
            "source": str(source),
            "format": "json",
            "url": target.url,
            "to_topic": "refused",
            "write_id": "load-6",
        }
        run_backfill(spark, **(given | changes))

    for changes, says in (
        ({"format": "avro"}, "write parquet, json, csv"),
        ({"slices": 0}, "slices is 0"),
        ({"write_id": "not a name"}, "writeId is 'not a name'"),
        ({"map_sql": "nosuch AS data"}, "which has the columns n, who"),
        ({"map_sql": "n AS data, who AS whom"}, "column whom is not a field of records"),
        ({"order_by": "when"}, "cannot be ordered by when"),
        ({"source": str(source / "nowhere")}, "(?i)path does not exist"),
        ({"url": "nonsense"}, "url is 'nonsense'"),
    ):
        with pytest.raises(PipelineError, match=says):
            load(**changes)
    with target.client() as client:
        assert "refused" not in [topic.topic for topic in client.topics()]


def test_slices_are_cut_by_bytes(
    spark: SparkSession, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of 1 KB to 1 MB, some of them exactly alike: no slice stages much more than it may,
    and what a run that died has staged is discarded first."""
    monkeypatch.setattr(cutting, "SLICE_BYTES", 2 << 20)
    sizes = [1_000] * 60 + [10_000] * 30 + [100_000] * 20 + [1_000_000] * 4
    rows = [{"n": n, "text": "x" * size} for n, size in enumerate(sizes)]
    rows += [{"n": -1, "text": "y" * 50_000}] * 130
    (tmp_path / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with target.client() as client:
        left = client.stage("sized:spark", 0, "sized", ["left over"] * 9).staged_bytes
    reached: list[int] = []

    def staged(text: str, share: float | None) -> None:
        if not text.startswith("slice"):
            return
        with target.client() as client:
            producer = client.producer("sized:spark")
            reached.append(producer.last_epoch if producer.last_epoch is not None else -1)
            assert producer.staged.bytes == 0, "each slice begins with nothing staged"

    summary = run_backfill(spark, str(tmp_path), "json", target.url, "sized", "sized", note=staged)
    assert left and reached == [*range(-1, summary["slices"] - 1)]
    # 6.4 MB that differ and 6.5 MB that are alike, in slices of 2 MiB.
    assert summary["slices"] == 4 + 4
    with target.client() as client:
        records = [record for record in client.read("sized") if isinstance(record, Record)]
    assert counted([record.data for record in records]) == counted(rows)
    by_slice = Counter[int]()
    for record in records:
        by_slice[record.ts] += len(record.data["text"])
    assert max(by_slice.values()) < 5 << 20


def test_the_source_is_read_as_often_for_many_slices_as_for_few(
    spark: SparkSession, target: Target, source: Path
) -> None:
    reads = []
    for name, slices in (("few", 2), ("many", 12)):
        seen = spark.sparkContext.accumulator(0)

        def mark(n: int, seen: Any = seen) -> int:
            seen.add(1)
            return n

        spark.udf.register(f"mark_{name}", mark, "long")
        done = run_backfill(
            spark, str(source), "json", target.url, name, name,
            map_sql=f"CAST(mark_{name}(n) AS STRING) AS data", slices=slices,
        )  # fmt: skip
        assert done["written"] == ROWS == len(target.values(name))
        reads.append(seen.value / ROWS)
    assert reads[0] == reads[1] <= 3


def test_loads_of_the_version_before_are_done_or_refused(
    spark: SparkSession, target: Target, source: Path
) -> None:
    def load(name: str) -> dict[str, Any]:
        return run_backfill(spark, str(source), "json", target.url, name, name, slices=3)

    total = cutting.SliceCut(
        cutting.ordered(
            spark.read.json(str(source)).selectExpr("to_json(struct(*)) AS data"), None
        ),
        3,
        is_hashed=True,
    )
    for name, epochs in (("whole", 3), ("half", 1)):
        content = digest(["json", name, None, None, 3, total.fingerprint])
        with target.client() as client:
            WriteMemory(client, f"{name}:spark>backfill", content).note(0)
            for epoch in range(epochs):
                client.commit(f"{name}:spark", epoch, [])
    assert load("whole")["written"] == 0
    with pytest.raises(PipelineError, match=r"earlier version .* 1 of its 3 slices"):
        load("half")


def test_a_slice_that_can_not_be_staged_is_refused_at_once(
    spark: SparkSession, target: Target, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "SLICE_BYTES_MAX", 1000)
    with pytest.raises(PipelineError, match=r"slices is 2: each would have .* staged at once"):
        run_backfill(spark, str(source), "json", target.url, "large", "large", slices=2)


def test_bounds_give_slices_as_many_bytes() -> None:
    sample = [(n, 1 if n < 900 else 100) for n in range(1000)]
    bounds = [*cutting._bounds(sample, 10)]
    assert len(bounds) == 9 and bounds == sorted(bounds)
    assert bounds[0] >= 900, "the first 900 have less than a tenth of all bytes"
    assert [*cutting._bounds([(1, 50)], 3)] == [] and [*cutting._bounds([], 3)] == []
