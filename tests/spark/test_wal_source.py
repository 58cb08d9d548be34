"""Reading files: rows, ranges, filters, losses, without Spark but for its schema and one table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from logqueue import events as ev
from logqueue.pipeline.archive.contents import archive_files
from logqueue.pipeline.audit.log import findings, read_history
from logqueue.pipeline.engines.spark.archive.job import run_archive
from logqueue.pipeline.engines.spark.formats.inputs import Input
from logqueue.pipeline.engines.spark.formats.readers import PushingReader
from logqueue.pipeline.engines.spark.formats.resolving import resolve
from logqueue.pipeline.engines.spark.formats.wal_source import LogQueueWalSource
from logqueue.pipeline.engines.spark.lifecycle.job import read_table, run_lifecycle
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.progress import silent
from logqueue.pipeline.reading import options
from logqueue.pipeline.reading.offsets import DataLossError
from logqueue.pipeline.rows.segment_batches import EVENTS_SCHEMA, RECORDS_SCHEMA
from logqueue.pipeline.stores.audited_segments import segments_of
from logqueue.pipeline.stores.wal_store import LEASES_SETTLED_MS, WalStore
from logqueue.testing import ServerProcess
from tests.spark import written as log
from tests.spark.crafted import CraftedLog, appended
from tests.spark.written import NOTES, ORDERS, SMALL, Written, batch, keys, offline, planned, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """A log whose server has stopped."""
    folder = tmp_path_factory.mktemp("stopped")
    made = Written(folder / "data", folder / "archive")
    url = replica_of(made)
    with ServerProcess(made.data, SEGMENT_MAX_BYTES=SMALL, REPLICA=url) as server:
        log.fill(server, made)
    made.keep_sealed()
    yield made


def replica_of(written: Written) -> str:
    """Where its server kept a replica."""
    return f"file://{written.data.parent}/replica"


# -- rows ------------------------------------------------------------------------------------------


def test_every_record_is_a_row_acked_ones_too(stopped: Written) -> None:
    rows = log.rows_of(offline(stopped.data))
    assert len(rows) == ORDERS + NOTES
    assert {
        (row["topic"], row["seq"]): (row["tag"], row["node"], row["meta"], row["data"])
        for row in rows
    } == stopped.rows
    for row in rows:
        meta = row["meta"] or ""
        assert row["size"] == len(row["data"]) + len(meta)
        assert row["segment"].startswith("jobs-")
        assert (row["key"], row["not_before"]) == (None, None)
    assert len({row["log_id"] for row in rows}) == 2
    assert len({row["segment"] for row in rows}) > 2


def test_data_comes_as_text_as_bytes_or_not_at_all(stopped: Written) -> None:
    given = {"topics": "notes", "startingOffsets": '{"notes": 299}'}
    assert [row["data"] for row in log.rows_of(offline(stopped.data, **given))] == ["299", "300"]
    binary = log.rows_of(offline(stopped.data, data="binary", **given))
    assert [row["data"] for row in binary] == [b"299", b"300"]
    none = log.rows_of(offline(stopped.data, payload="none", **given))
    assert [row["data"] for row in none] == [None, None]


def test_an_archive_alone_and_both_together(stopped: Written) -> None:
    both = log.rows_of(offline(f"{stopped.data},{stopped.archive}"))
    assert keys(both) == sorted(stopped.rows)
    archive = keys(log.rows_of(offline(stopped.archive)))
    assert 0 < len(archive) <= len(stopped.rows)
    assert set(archive) < set(stopped.rows) or archive == sorted(stopped.rows)
    given = {"path": str(stopped.data), "archive": str(stopped.archive), "topics": "notes"}
    assert len(log.rows_of(given)) == NOTES


def test_a_replica_has_the_same_rows(stopped: Written) -> None:
    url = replica_of(stopped)
    for given in ({}, {"events": "leases"}, {"topics": "orders", "data": "binary"}):
        assert log.rows_of(offline(url, **given)) == log.rows_of(offline(stopped.data, **given))
    # A directory may be written as a URL, too.
    assert len(log.rows_of(offline(f"file://{stopped.data}"))) == ORDERS + NOTES


def test_an_audit_reads_the_segments_of_a_replica(stopped: Written, tmp_path: Path) -> None:
    segments, places = segments_of(replica_of(stopped))
    history = read_history(segments, places, map, silent)
    assert list(findings(history, places)) == []
    assert sum(source.file.log == "jobs" for source in segments) > 1
    with pytest.raises(PipelineError, match=r"option path: .* is not a replica"):
        segments_of(f"memory://{tmp_path.name}")
    _, places = segments_of(f"{stopped.data},{stopped.archive}")
    assert places == [str(stopped.data), str(stopped.archive)]


def test_a_replica_and_directories_are_read_as_one(stopped: Written, tmp_path: Path) -> None:
    url = replica_of(stopped)
    segments = sorted((stopped.data / "jobs").glob("*.wal"))
    for names, end in ((segments[:1], "a"), (segments[-1:], "b")):
        part = tmp_path / end
        (part / "jobs").mkdir(parents=True)
        for segment in names:
            shutil.copy(segment, part / "jobs")
        assert keys(log.rows_of(offline(f"{url},{part}"))) == sorted(stopped.rows)


def test_what_is_not_a_replica_is_named(stopped: Written, tmp_path: Path) -> None:
    replica_of(stopped)
    with pytest.raises(PipelineError, match=r"option path: .*'ftp://': use file:///PATH"):
        batch(offline("ftp://somewhere")).partitions()
    copy = tmp_path / "replica"
    shutil.copytree(f"{stopped.data.parent}/replica", copy)
    chunk = sorted(copy.glob("chunks/*"))[-1]
    chunk.write_bytes(chunk.read_bytes()[:-100])
    with pytest.raises(PipelineError, match=f"chunks/{chunk.name} is damaged"):
        log.rows_of(offline(f"file://{copy}"))


def test_a_torn_tail_is_passed_over(stopped: Written, tmp_path: Path) -> None:
    copy = stopped.copy(tmp_path / "copy")
    last = sorted((copy / "jobs").glob("*.wal"))[-1]
    with last.open("ab") as file:
        file.write(b"\x59\xc1\xa3\xf7" + b"half a frame" * 3)
    assert keys(log.rows_of(offline(copy))) == sorted(stopped.rows)


def test_ranges_and_times(stopped: Written) -> None:
    given = {
        "topics": "orders,notes",
        "startingOffsets": '{"orders": 100}',
        "endingOffsets": '{"orders": 150, "notes": 11}',
    }
    assert keys(log.rows_of(offline(stopped.data, **given))) == [
        *(("notes", seq) for seq in range(1, 11)),
        *(("orders", seq) for seq in range(100, 150)),
    ]
    rows = log.rows_of(offline(stopped.data, topics="orders"))
    moments = sorted({row["ts"] for row in rows})
    start, end = moments[len(moments) // 3], moments[-1]
    times = {"startingTimestamp": start.isoformat(), "endingTimestamp": str(_ms(end))}
    expected = keys(row for row in rows if start <= row["ts"] < end)
    assert keys(log.rows_of(offline(stopped.data, topics="orders", **times))) == expected
    resolved = json.loads(resolve(start.isoformat(), path=str(stopped.data), topics="orders"))
    assert resolved["topics"]["orders"]["next"] == expected[0][1]
    latest = json.loads(resolve("latest", path=str(stopped.data), topics="orders"))
    assert latest["topics"]["orders"]["next"] == ORDERS + 1
    late = json.loads(resolve(_ms(end) + 1, path=str(stopped.data), topics="orders"))
    assert late == latest


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def test_job_events_of_both_logs(stopped: Written) -> None:
    rows = log.rows_of(offline(stopped.data, events="leases"))
    by_event: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        assert row["topic"] == "orders"
        by_event.setdefault(row["event"], []).append(row)
    assert {event: len(found) for event, found in by_event.items()} == {
        "claimed": 40,
        "acked": 30,
        "released": 5,
    }
    assert sorted(row["job_seq"] for row in by_event["acked"]) == stopped.acked
    assert {row["worker"] for row in rows} == {"maker"}
    assert all(row["lease_id"].startswith("lease_") for row in by_event["claimed"])
    orders = sorted({row["lseq"] for row in rows})
    later = log.rows_of(offline(stopped.data, events="leases", startingOffsets=str(orders[1])))
    assert sorted({row["lseq"] for row in later}) == orders[1:]
    first = min(row["ts"] for row in rows)
    none = log.rows_of(offline(stopped.data, events="leases", endingTimestamp=str(_ms(first))))
    assert none == []


def test_the_end_of_job_events_waits_for_both_logs(
    stopped: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server that stopped in good order has written everything, however lately.
    everything = WalStore(options.offline(offline(stopped.data, events="leases"))).snapshot()
    whole = everything.available_events(settled=False)
    assert everything.available_events(settled=True) == whole
    with CraftedLog(tmp_path / "data") as crafted:
        crafted.topic(1, "q", type="queue")
        crafted.append(1, 1, 5)
        crafted.claim(1, 1, 2)
        claimed = crafted.order
        crafted.log(ev.RecordsRemoved(crafted.at, 1, [3]))
        store = WalStore(options.offline(offline(tmp_path / "data", events="leases")))

        def end_at(now_ms: int) -> int:
            monkeypatch.setattr(
                "logqueue.pipeline.stores.wal_store.time.time",
                lambda: now_ms / 1000,
            )
            return store.snapshot().available_events(settled=True).next

        assert end_at(crafted.at + 100) == claimed + 1
        assert end_at(crafted.at + LEASES_SETTLED_MS) == crafted.order + 1 == claimed + 2


def test_older_instances_of_a_topic_come_with_a_batch_from_the_earliest(tmp_path: Path) -> None:
    with CraftedLog(tmp_path / "data") as crafted:
        crafted.topic(1, "a")
        crafted.append(1, 1, 5)
        crafted.topic(2, "a")
        crafted.append(2, 1, 3)
    rows = log.rows_of(offline(tmp_path / "data"))
    assert keys(rows) == [("a", seq) for seq in (1, 1, 2, 2, 3, 3, 4, 5)]
    assert len({(row["log_id"], row["seq"]) for row in rows}) == 8
    newest = log.rows_of(offline(tmp_path / "data", startingOffsets='{"a": 1}'))
    assert [row["log_id"][-2:] for row in newest] == ["-2"] * 3


# -- filters ---------------------------------------------------------------------------------------


def test_filters_give_the_same_rows_from_fewer_bytes(stopped: Written) -> None:
    everything = log.rows_of(offline(stopped.data))
    moments = sorted({row["ts"] for row in everything if row["topic"] == "orders"})
    late = moments[-3]
    cases: list[tuple[list[Filter], int, Any]] = [
        ([EqualTo(("topic",), "notes")], 0, lambda r: r["topic"] == "notes"),
        ([In(("topic",), ("notes", "x"))], 0, lambda r: r["topic"] == "notes"),
        (
            [EqualTo(("topic",), "orders"), GreaterThan(("seq",), 700), LessThan(("seq",), 750)],
            0,
            lambda r: r["topic"] == "orders" and 700 < r["seq"] < 750,
        ),
        (
            [GreaterThanOrEqual(("seq",), 850), LessThanOrEqual(("seq",), 860)],
            0,
            lambda r: 850 <= r["seq"] <= 860,
        ),
        ([EqualTo(("seq",), 7)], 0, lambda r: r["seq"] == 7),
        (
            [EqualTo(("topic",), "orders"), GreaterThanOrEqual(("ts",), late)],
            1,
            lambda r: r["topic"] == "orders" and r["ts"] >= late,
        ),
        ([LessThan(("seq",), 1)], 0, lambda r: False),
    ]
    whole = planned(batch(offline(stopped.data)))
    for filters, left_to_spark, keeps in cases:
        reader = batch(offline(stopped.data, pushdown="true"))
        assert isinstance(reader, PushingReader)
        others = [IsNotNull(("topic",)), EqualTo(("tag",), "t1")]
        left = list(reader.pushFilters([*filters, *others]))
        # Those that Spark must look at itself come back by reference.
        assert [id(filter) for filter in left[-2:]] == [id(filter) for filter in others]
        assert len(left) == 2 + left_to_spark
        rows = read(reader, reader.partitions())
        assert keys(filter(keeps, rows)) == keys(filter(keeps, everything))
        if not left_to_spark:
            assert len(rows) == len([*filter(keeps, everything)])
        assert planned(reader) < whole


def test_filters_on_job_events(stopped: Written) -> None:
    rows = log.rows_of(offline(stopped.data, events="leases"))
    middle = sorted(row["lseq"] for row in rows)[45]
    reader = batch(offline(stopped.data, events="leases", pushdown="true"))
    assert isinstance(reader, PushingReader)
    pushed: list[Filter] = [EqualTo(("topic",), "orders"), GreaterThanOrEqual(("lseq",), middle)]
    assert list(reader.pushFilters(pushed)) == []
    found = read(reader, reader.partitions())
    assert len(found) == sum(row["lseq"] >= middle for row in rows) < len(rows)


# -- refusals and losses ---------------------------------------------------------------------------


def test_what_is_no_log_is_refused_with_a_sentence(stopped: Written, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"option path: .*is not a directory"):
        batch(offline(tmp_path / "nowhere")).partitions()
    with pytest.raises(PipelineError, match=r"there is no log"):
        batch(offline(tmp_path)).partitions()
    with pytest.raises(PipelineError, match=r"there is no topic 'absent' in .*topicPattern"):
        batch(offline(stopped.data, topics="absent,orders")).partitions()


def test_damage_is_told_with_its_place(stopped: Written, tmp_path: Path) -> None:
    copy = stopped.copy(tmp_path / "copy")
    first = sorted((copy / "jobs").glob("*.wal"))[0]
    reader = batch(offline(copy, topics="orders"))
    partitions = reader.partitions()
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 0xFF
    first.write_bytes(data)
    with pytest.raises(PipelineError, match=r"damaged at byte \d+: .*logqueue check"):
        read(reader, partitions)
    # Somebody who wants the bytes as they are can have them.
    copy = stopped.copy(tmp_path / "other")
    reader = batch(offline(copy, topics="orders", verify="none"))
    partitions = reader.partitions()
    first = sorted((copy / "jobs").glob("*.wal"))[0]
    content = first.read_bytes()
    first.write_bytes(content.replace(b"xxxx", b"yyyy", 1))
    assert sum("yyyy" in row["data"] for row in read(reader, partitions)) == 1


def test_dropped_segments_are_a_loss_for_who_names_their_seqs(
    stopped: Written, tmp_path: Path
) -> None:
    copy = stopped.copy(tmp_path / "copy", dropped=1)
    rest = keys(log.rows_of(offline(copy, topics="orders")))
    first = rest[0][1]
    assert first > 1 and rest == [("orders", seq) for seq in range(first, ORDERS + 1)]
    named = {"topics": "orders", "startingOffsets": '{"orders": 5}'}
    with pytest.raises(DataLossError, match=f"seqs 5 to {first - 1} of topic 'orders' are gone"):
        batch(offline(copy, **named)).partitions()
    accepted = log.rows_of(offline(copy, failOnDataLoss="false", **named))
    assert keys(accepted) == rest
    whole = log.rows_of(offline(f"{copy},{stopped.archive}", **named))
    assert keys(whole) == [("orders", seq) for seq in range(5, ORDERS + 1)]


def test_a_segment_that_goes_between_planning_and_reading(stopped: Written, tmp_path: Path) -> None:
    def vanish(path: str, to: Path, **given: str) -> list[tuple[str, int]]:
        reader = batch(offline(path, topics="orders", **given))
        partitions = reader.partitions()
        for gone in sorted((to / "jobs").glob("*.wal"))[:1]:
            gone.unlink()
        return keys(read(reader, partitions))

    one, two, three = (stopped.copy(tmp_path / name) for name in ("one", "two", "three"))
    with pytest.raises(DataLossError, match=r"seqs 1 to .* of topic 'orders' are gone"):
        vanish(str(one), one)
    assert len(vanish(f"{two},{stopped.archive}", two)) == ORDERS
    rest = vanish(str(three), three, failOnDataLoss="false")
    assert 0 < len(rest) < ORDERS


def test_job_events_of_a_segment_that_went(stopped: Written, tmp_path: Path) -> None:
    copy = stopped.copy(tmp_path / "copy")
    reader = batch(offline(copy, events="leases"))
    partitions = reader.partitions()
    shutil.rmtree(copy / "leases")
    with pytest.raises(DataLossError, match=r"the job events of segment leases-1 are gone"):
        read(reader, partitions)


def test_options_are_checked_before_anything_is_opened() -> None:
    with pytest.raises(PipelineError, match=r"option topik is unknown"):
        LogQueueWalSource({"path": "/nowhere", "topik": "a"}).schema()
    with pytest.raises(PipelineError, match=r"exactly one"):
        LogQueueWalSource({"path": "/nowhere"}).schema()
    assert "data BINARY" in LogQueueWalSource(offline("/nowhere", data="binary")).schema()


def test_an_input_names_one_place() -> None:
    with pytest.raises(PipelineError, match=r"name one place"):
        Input(path="/data", url="http://127.0.0.1:1")
    with pytest.raises(PipelineError, match=r"names of topics or a pattern"):
        Input(path="/data", topics=["a"], pattern="b")
    with pytest.raises(PipelineError, match=r"takes no options of a source"):
        Input(archive="/archive", options={"verify": "none"})
    with pytest.raises(PipelineError, match=r"option verify"):
        Input(path="/data", options={"verify": "perhaps"})


# -- Spark -----------------------------------------------------------------------------------------


def test_spark_sees_the_columns_that_arrow_makes(spark: SparkSession, stopped: Written) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    for data in ("string", "binary", "none"):
        table = Input(path=str(stopped.data)).records(spark, data)
        made = to_arrow_schema(table.schema, timezone="UTC")
        assert made == RECORDS_SCHEMA(data)
    events = Input(path=str(stopped.data)).events(spark)
    assert to_arrow_schema(events.schema, timezone="UTC") == EVENTS_SCHEMA


def test_spark_reads_what_was_written(spark: SparkSession, stopped: Written) -> None:
    source = Input(path=str(stopped.data), topics=["orders", "notes"])
    rows = source.records(spark).where("seq >= 200 and topic = 'notes' or seq > 890").collect()
    assert keys(row.asDict() for row in rows) == [
        *(("notes", seq) for seq in range(200, NOTES + 1)),
        *(("orders", seq) for seq in range(891, ORDERS + 1)),
    ]
    replica = Input(path=replica_of(stopped), topics=["orders", "notes"]).records(spark)
    assert replica.exceptAll(source.records(spark)).isEmpty()
    assert replica.count() == ORDERS + NOTES
    moment = rows[0]["ts"].replace(tzinfo=UTC)
    assert abs(moment.timestamp() - datetime.now(UTC).timestamp()) < 3600
    events = source.events(spark)
    counts = events.groupBy("event").count().collect()
    assert {row["event"]: row["count"] for row in counts} == {
        "claimed": 40,
        "acked": 30,
        "released": 5,
    }


def test_spark_hands_filters_over_when_both_sides_allow_it(
    spark: SparkSession, stopped: Written
) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    try:
        for allowed in ("true", "false"):
            spark.conf.set(setting, allowed)
            rows = Input(path=str(stopped.data)).records(spark)
            found = rows.where("topic = 'orders' and seq between 3 and 5").select("seq")
            assert sorted(row["seq"] for row in found.collect()) == [3, 4, 5]
    finally:
        spark.conf.set(setting, before or "false")


def test_a_job_that_waits_beyond_the_calendar(spark: SparkSession, tmp_path: Path) -> None:
    """Its time is null in what is shown; it waits nevertheless."""
    with CraftedLog(tmp_path / "data") as crafted:
        crafted.topic(1, "q", type="queue")
        for seq, due in enumerate((253_402_300_799_999, 253_402_300_800_000, 2**64 - 1), 1):
            crafted.log(appended(crafted.at, 1, seq, 1, not_before=due))
        crafted.append(1, 4, 1)
        crafted.claim(1, 4)
    run_archive(spark, {"path": str(tmp_path / "data")}, str(tmp_path / "kept"), topics=["q"])
    for source in (
        Input(path=str(tmp_path / "data"), topics=("q",)),
        Input(archive=str(tmp_path / "kept"), topics=("q",)),
    ):
        shown = [row["not_before"] for row in source.records(spark).orderBy("seq").collect()]
        assert [moment and moment.year for moment in shown] == [9999, None, None, None]
        run_lifecycle(spark, source, str(tmp_path / "tables"))
        jobs = read_table(spark, str(tmp_path / "tables"), tables.JOBS).orderBy("seq").collect()
        assert [(row["state"], row["ready_at"] is None) for row in jobs] == [
            ("delayed", False), ("delayed", True), ("delayed", True), ("in_flight", False),
        ]  # fmt: skip
    # Any reader of Parquet can show what is in the files.
    assert [row for file in archive_files(str(tmp_path / "kept"), "records")
            for row in pq.read_table(file, partitioning=None).to_pylist()]  # fmt: skip
