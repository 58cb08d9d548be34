"""Streams: bounds, ends, restarts, losses; the readers by themselves, and Spark on top."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from logqueue.client import Client
from logqueue.pipeline.engines.spark.formats.readers import StreamReader
from logqueue.pipeline.engines.spark.formats.resolving import resolve
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading.offsets import DataLossError
from logqueue.testing import ServerProcess
from tests.spark import written as log
from tests.spark.written import NOTES, ORDERS, SMALL, Written, keys, live, offline, read, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

TOTAL = ORDERS + NOTES


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """A server to which tests only append, to topics of their own."""
    folder = tmp_path_factory.mktemp("shared")
    made = Written(folder / "data", folder / "archive")
    with ServerProcess(made.data, SEGMENT_MAX_BYTES=SMALL) as server:
        log.fill(server, made)
        yield made


def both(shared: Written, **given: str) -> list[dict[str, str]]:
    """The same options for the files and for the server."""
    return [offline(shared.data, **given), live(shared, **given)]


def run(
    reader: StreamReader, start: dict[str, Any] | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Micro-batches until there is nothing more, as AvailableNow makes them."""
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    at = reader.initialOffset() if start is None else start
    while (end := json.loads(json.dumps(reader.latestOffset(at, limit)))) != at:
        again = stream_like(reader)
        rows = read(reader, reader.partitions(at, end))
        # A repeat, by another reader, is the same micro-batch.
        assert keys_of(read(again, again.partitions(at, end))) == keys_of(rows)
        reader.commit(at)
        yield rows
        at = end


def stream_like(reader: StreamReader) -> StreamReader:
    return StreamReader(reader.store, reader.reading)


def keys_of(rows: list[dict[str, Any]]) -> list[Any]:
    if rows and "lseq" in rows[0]:
        return sorted((row["lseq"], row["event"], row["job_seq"]) for row in rows)
    return keys(rows)


# -- bounds and ends -------------------------------------------------------------------------------


def test_bounds_split_a_stream_without_loss_or_repeat(shared: Written) -> None:
    named = {"topics": "orders,notes"}
    for given in both(shared, maxRecordsPerTrigger="250", **named):
        reader = stream(given)
        assert reader.getDefaultReadLimit() == ReadMaxRows(250)
        batches = list(run(reader))
        assert [len(rows) for rows in batches] == [250, 250, 250, 250, 200]
        assert keys(row for rows in batches for row in rows) == sorted(
            key for key in shared.rows if key[0] in ("orders", "notes") and key[1] <= ORDERS
        )
        # The bound is shared fairly, until one of the two has no more.
        assert sum(row["topic"] == "notes" for row in batches[0]) == 125
    for given in both(shared, maxBytesPerTrigger="40k", **named):
        reader = stream(given)
        assert reader.getDefaultReadLimit() == ReadMaxBytes(40 << 10)
        sizes = [sum(row["size"] for row in rows) for rows in run(reader)]
        # Bytes are counted by the average of a segment.
        assert len(sizes) > 2 and all(size < 41 << 10 for size in sizes)
    (whole,) = run(stream(offline(shared.data, **named)))
    assert len(whole) == TOTAL
    assert stream(offline(shared.data)).getDefaultReadLimit() == ReadAllAvailable()


def test_job_events_split_by_transactions(shared: Written) -> None:
    for given in both(shared, topics="orders", events="leases", maxRecordsPerTrigger="10"):
        reader = stream(given)
        if "path" in given:
            # Until both logs have settled, the newest of them are not certain to be complete.
            target = stream(live(shared, topics="orders", events="leases")).reportLatestOffset()
            start = reader.initialOffset()
            rows = read(reader, reader.partitions(start, target))
        else:
            batches = list(run(reader))
            assert len(batches) > 1
            rows = [row for rows in batches for row in rows]
        assert sorted(row["event"] for row in rows) == sorted(
            ["claimed"] * 40 + ["acked"] * 30 + ["released"] * 5
        )


def test_available_now_ends_where_it_began_while_a_writer_goes_on(shared: Written) -> None:
    with Client(shared.url) as client:
        client.append("busy", range(50), create=True)
        for given in both(shared, topics="busy", maxRecordsPerTrigger="20"):
            reader = stream(given)
            expected = client.topic("busy").count
            seen = 0
            for rows in run(reader):
                seen += len(rows)
                client.append("busy", range(10), create=True)
            assert seen == expected


def test_topics_appear_later_and_offsets_say_so(shared: Written) -> None:
    for number, given in enumerate(both(shared, topicPattern="late-.*")):
        reader = stream(given)
        name = f"late-{number}"
        start = reader.initialOffset()
        assert name not in start["topics"]
        with Client(shared.url) as client:
            client.append(name, ["first"], create=True)
        end = reader.latestOffset(start, ReadAllAvailable())
        assert end["topics"][name]["next"] == 2
        assert end == reader.reportLatestOffset()
        assert (name, 1) in keys(read(reader, reader.partitions(start, end)))
        assert list(end["topics"]) == sorted(end["topics"])


def test_an_offset_goes_from_the_server_to_its_files_and_back(shared: Written) -> None:
    server = stream(live(shared, topics="notes"))
    files = stream(offline(shared.data, topics="notes"))
    start = server.initialOffset()
    half = server.latestOffset(start, ReadMaxRows(100))
    assert half == files.latestOffset(start, ReadMaxRows(100))
    rest = files.latestOffset(half, ReadAllAvailable())
    assert len(read(files, files.partitions(half, rest))) == NOTES - 100


@pytest.mark.parametrize("start", ["latest", '{"orders": -1}'])
def test_starts_that_move_are_refused(shared: Written, start: str) -> None:
    for given in both(shared, topics="orders", startingOffsets=start):
        with pytest.raises(PipelineError, match=r"logqueue\.spark\.resolve"):
            stream(given)


# -- losses ----------------------------------------------------------------------------------------


def test_retention_past_an_offset_fails_or_is_reported(
    shared: Written, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = shared.copy(tmp_path / "copy")
    given = offline(copy, topics="orders", maxRecordsPerTrigger="50")
    reader = stream(given)
    start = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert start["topics"]["orders"]["next"] == 51
    sorted((copy / "jobs").glob("*.wal"))[0].unlink()
    end = reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLossError, match=r"seqs 51 to .* of topic 'orders' are gone"):
        reader.partitions(start, end)
    going_on = stream({**given, "failOnDataLoss": "false"})
    rows = read(going_on, going_on.partitions(start, end))
    assert keys(rows)[-1] == ("orders", ORDERS) and 0 < len(rows) < ORDERS - 50
    assert f"seqs 51 to {ORDERS - len(rows)} of topic 'orders' are gone" in caplog.text
    # A stream that begins only now finds what there is.
    later = stream(given)
    begin = later.initialOffset()
    assert begin["topics"]["orders"]["told"] == ORDERS - len(rows) + 1
    assert len(read(later, later.partitions(begin, end))) == len(rows)


def test_a_topic_that_was_created_again_is_read_to_its_end_and_from_its_beginning(
    shared: Written,
) -> None:
    """What was read to its end is no loss; an instance of which the log knows nothing may be."""
    with Client(shared.url) as client:
        for given in both(shared, topics="anew"):
            client.append("anew", ["a", "b", "c"], create=True)
            reader = stream(given)
            first = reader.initialOffset()
            start = reader.latestOffset(first, ReadAllAvailable())
            client.drop_topic("anew")
            client.append("anew", ["d"], create=True)
            rest = reader.latestOffset(first, ReadAllAvailable())
            assert rest == start
            end = reader.latestOffset(start, ReadAllAvailable())
            rows = read(reader, reader.partitions(start, end))
            assert [row["data"] for row in rows] == ['"d"']
            gone = {"v": 1, "topics": {"anew": {"log": "none-1", "next": 4}}}
            with pytest.raises(DataLossError, match=r"topic 'anew' is another one now"):
                reader.latestOffset(gone, ReadAllAvailable())
            going_on = stream({**given, "failOnDataLoss": "false"})
            assert going_on.latestOffset(gone, ReadAllAvailable()) == end
            client.drop_topic("anew")


def test_pages_tell_of_records_that_went_by_a_cap(shared: Written) -> None:
    given = live(shared, topics="capped", transport="pages")
    with Client(shared.url) as client:
        client.put_topic("capped", cap_records=10)
        client.append("capped", range(10), create=True)
        reader = stream(given)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        client.append("capped", range(5), create=True)
        with pytest.raises(
            DataLossError,
            match=r"seqs 1 to 5 of topic 'capped' are gone: they were removed by a cap",
        ):
            read(reader, reader.partitions(start, end))
        going_on = stream({**given, "failOnDataLoss": "false"})
        rows = read(going_on, going_on.partitions(start, end))
        assert keys(rows) == [("capped", seq) for seq in range(6, 11)]
        # Who comes only now has lost nothing.
        late = stream(given)
        for begin in (late.initialOffset(), {"v": 1, "topics": {}}):
            now = late.latestOffset(begin, ReadAllAvailable())
            rows = read(late, late.partitions(begin, now))
            assert keys(rows) == [("capped", seq) for seq in range(6, 16)]
        # The log itself still has them all.
        by_segments = stream(live(shared, topics="capped"))
        assert len(read(by_segments, by_segments.partitions(start, end))) == 10


def test_a_log_from_an_older_backup_is_noticed(shared: Written, tmp_path: Path) -> None:
    copy = shared.copy(tmp_path / "copy")
    reader = stream(offline(copy, topics="notes"))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    last = sorted((copy / "jobs").glob("*.wal"))[1:]
    for path in last:
        path.unlink()
    with pytest.raises(DataLossError, match=r"of topic 'notes' are gone.*older backup"):
        reader.latestOffset(end, ReadAllAvailable())


# -- Spark -----------------------------------------------------------------------------------------


def start_query(
    spark: SparkSession,
    given: dict[str, str],
    checkpoint: str,
    take: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    """A query that ends at the end there is now, with all its rows given to `take`."""
    format = "logqueue" if "url" in given else "logqueue-wal"
    writer = spark.readStream.format(format).options(**given).load().writeStream
    query = writer.foreachBatch(take).option("checkpointLocation", checkpoint)
    return query.trigger(availableNow=True).start()


def test_spark_streams_in_bounds_and_goes_on_after_a_restart(
    spark: SparkSession, shared: Written, checkpoint: str
) -> None:
    batches: list[list[tuple[str, int]]] = []

    def take(rows: DataFrame, number: int) -> None:
        batches.append(keys(row.asDict() for row in rows.select("topic", "seq").collect()))
        # Whatever comes meanwhile is for the next run.
        client.append("streamed", range(5), create=True)

    with Client(shared.url) as client:
        client.append("streamed", range(50), create=True)
        given = live(shared, topics="streamed,notes", maxRecordsPerTrigger="200")
        start_query(spark, given, checkpoint, take).awaitTermination()
        assert [len(rows) for rows in batches] == [200, 150]
        # Other options, and the files in place of the server.
        given = offline(shared.data, topics="streamed,notes", partitionBytes="1m")
        start_query(spark, given, checkpoint, take).awaitTermination()
        assert len(batches) == 3
        everything = sorted(key for rows in batches for key in rows)
        assert everything == [
            *(("notes", seq) for seq in range(1, NOTES + 1)),
            *(("streamed", seq) for seq in range(1, 61)),
        ]
        assert client.topic("streamed").head_seq == 65


def test_spark_shows_the_sentence_of_a_loss(
    spark: SparkSession, shared: Written, checkpoint: str, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    from logqueue.pipeline.errors import message_of

    copy = shared.copy(tmp_path / "copy")
    given = offline(copy, topics="notes")
    start_query(spark, given, checkpoint, lambda rows, _: None).awaitTermination()
    for path in sorted((copy / "jobs").glob("*.wal"))[1:]:
        path.unlink()
    with pytest.raises(StreamingQueryException) as caught:
        start_query(spark, given, checkpoint, lambda rows, _: None).awaitTermination()
    assert "of topic 'notes' are gone" in message_of(caught.value)


def test_resolved_offsets_start_a_stream(shared: Written, tmp_path: Path) -> None:
    start = resolve("latest", url=shared.url, topics="begun,notes")
    assert json.loads(start)["topics"].keys() == {"notes"}
    with Client(shared.url) as client:
        client.append("begun", ["x"], create=True)
    # The topic came later, so it begins at its earliest.
    reader = stream(live(shared, topics="begun,notes", startingOffsets=start))
    (rows,) = run(reader)
    assert ("begun", 1) in keys(rows)
    shutil.rmtree(tmp_path)
