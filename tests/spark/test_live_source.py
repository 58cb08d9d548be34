"""Reading a running server: segments, pages, keys, losses. Without Spark but for one table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logqueue.client import Client
from logqueue.pipeline.engines.spark.formats.inputs import Input
from logqueue.pipeline.engines.spark.formats.live_source import LogQueueSource
from logqueue.pipeline.engines.spark.formats.resolving import resolve
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading import options
from logqueue.pipeline.reading.offsets import DataLossError
from logqueue.pipeline.reading.planning import SegmentTask
from logqueue.pipeline.rows.fetching import SegmentGone, read_task
from logqueue.pipeline.stores.live_store import LiveSegments, PagesTask
from logqueue.segments.plan import SegmentRead
from logqueue.testing import ServerProcess
from tests.spark import written as log
from tests.spark.written import NOTES, ORDERS, SMALL, Written, batch, keys, live, read, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEYS = "root,tenant:read+write:notes|brief,writer:write"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """A server that no test changes, with an ephemeral topic."""
    folder = tmp_path_factory.mktemp("running")
    made = Written(folder / "data", folder / "archive")
    with ServerProcess(made.data, SEGMENT_MAX_BYTES=SMALL) as server:
        log.fill(server, made)
        with Client(server.url) as client:
            client.put_topic("brief", durability="ephemeral")
            client.append("brief", ["a", "b", "c"], create=True)
        yield made


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with keys and one record in each of two topics."""
    folder = tmp_path_factory.mktemp("guarded")
    with ServerProcess(folder / "data", API_KEYS=KEYS) as server:
        with Client(server.url, "root") as client:
            client.append("notes", [1], create=True)
            client.append("orders", [2], create=True)
        yield server.url


# -- rows ------------------------------------------------------------------------------------------


def test_segments_bring_every_record_and_pages_the_live_ones(running: Written) -> None:
    everything = [*running.rows, *(("brief", seq) for seq in (1, 2, 3))]
    auto = log.rows_of(live(running))
    assert keys(auto) == sorted(everything)
    by_segments = log.rows_of(live(running, topicPattern="o.*|n.*", transport="segments"))
    assert keys(by_segments) == sorted(running.rows)
    by_pages = log.rows_of(live(running, transport="pages"))
    alive = [key for key in everything if key[0] != "orders" or key[1] not in running.acked]
    assert keys(by_pages) == sorted(alive)
    # What both tell, they tell alike.
    shown = ("topic", "seq", "ts", "tag", "node", "meta", "data", "size", "log_id")
    whole = {(row["topic"], row["seq"]): [row[name] for name in shown] for row in auto}
    for row in by_pages:
        assert [row[name] for name in shown] == whole[row["topic"], row["seq"]]
        assert (row["segment"], row["not_before"], row["key"]) == (None, None, None)


def test_files_and_server_tell_the_same(running: Written) -> None:
    def sorted_rows(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)

    named = {"topics": "orders,notes"}
    assert sorted_rows(log.rows_of(live(running, **named))) == sorted_rows(
        log.rows_of(log.offline(running.data, **named))
    )
    events = log.rows_of(live(running, events="leases"))
    assert len(events) == 75
    assert {row["event"] for row in events} == {"claimed", "acked", "released"}


def test_pages_come_in_the_types_that_are_asked_for(running: Written) -> None:
    given = {"topics": "brief", "startingOffsets": '{"brief": 2}'}
    assert [row["data"] for row in log.rows_of(live(running, **given))] == ['"b"', '"c"']
    binary = log.rows_of(live(running, data="binary", **given))
    assert [row["data"] for row in binary] == [b'"b"', b'"c"']
    assert [row["data"] for row in log.rows_of(live(running, data="none", **given))] == [None] * 2


def test_pages_are_split_into_tasks_that_cover_everything(running: Written) -> None:
    given = live(running, topics="orders", transport="pages", minPartitions="4")
    reader = batch(given)
    partitions = reader.partitions()
    assert len(partitions) == 4
    assert all(isinstance(partition.value, PagesTask) for partition in partitions)
    assert len(read(reader, partitions)) == ORDERS - len(running.acked)


def test_starts_by_time_and_resolved_offsets(running: Written) -> None:
    rows = log.rows_of(live(running, topics="orders"))
    moments = sorted({row["ts"] for row in rows})
    for moment in (moments[0], moments[2], moments[-1]):
        first = min(row["seq"] for row in rows if row["ts"] >= moment)
        found = log.rows_of(live(running, topics="orders", startingTimestamp=moment.isoformat()))
        assert min(row["seq"] for row in found) == first
        start = json.loads(resolve(moment.isoformat(), url=running.url, topics="orders"))
        assert start["topics"]["orders"]["next"] == first
    latest = json.loads(resolve("latest", url=running.url, topics="orders,brief"))
    assert {name: place["next"] for name, place in latest["topics"].items()} == {
        "orders": ORDERS + 1,
        "brief": 4,
    }
    events = json.loads(resolve("latest", url=running.url, topics="orders", events="leases"))
    assert events["next"] > 1
    begin = stream(live(running, topics="orders", startingOffsets=json.dumps(latest)))
    with pytest.raises(PipelineError, match=r"names topic 'brief', which topics"):
        begin.initialOffset()


# -- keys and refusals -----------------------------------------------------------------------------


def test_keys_decide_what_is_read_and_how(guarded: str, tmp_path: Path) -> None:
    everything = {"url": guarded, "topicPattern": ".*"}
    key = tmp_path / "key"
    key.write_text("root\n")
    assert keys(log.rows_of({**everything, "tokenFile": str(key)})) == [("notes", 1), ("orders", 1)]
    # A key limited to prefixes may not see the log: what it may see comes by pages.
    assert keys(log.rows_of({**everything, "token": "tenant"})) == [("notes", 1)]
    for further in ({"transport": "segments"}, {"events": "leases"}):
        with pytest.raises(PipelineError, match=r"the key may not do this"):
            batch({**everything, "token": "tenant", **further}).partitions()
    with pytest.raises(PipelineError, match=r"the key may not do this"):
        batch({**everything, "token": "writer"}).partitions()
    with pytest.raises(PipelineError, match=r"option token or tokenFile"):
        batch({**everything, "token": "unknown"}).partitions()


def test_what_can_not_be_read_is_refused_with_a_sentence(
    running: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PipelineError, match=r"'brief' is of the class ephemeral.*transport=auto"):
        batch(live(running, topics="brief", transport="segments")).partitions()
    with pytest.raises(PipelineError, match=r"there is no topic 'absent' in http"):
        batch(live(running, topics="absent")).partitions()
    monkeypatch.setattr("logqueue.pipeline.stores.live_store.Client", _impatient)
    with pytest.raises(PipelineError, match=r"option url: http://127.0.0.1:9 cannot be reached"):
        batch({"url": "http://127.0.0.1:9", "topics": "a"}).partitions()


def _impatient(url: str, token: str) -> Client:
    from logqueue.client import Backoff

    return Client(url, token, backoff=Backoff(attempts=1))


def test_no_server_is_asked_for_columns() -> None:
    source = LogQueueSource({"url": "http://127.0.0.1:9", "topics": "a"})
    assert source.schema().startswith("topic STRING, seq BIGINT, ts TIMESTAMP")


# -- segments that go ------------------------------------------------------------------------------


class Forgetful(LiveSegments):
    """Segments of a server that had just let go of one."""

    def __init__(self, client: Client, given: options.LiveOptions, times: int) -> None:
        super().__init__(client, given)
        self.left = times
        self.looks = 0

    def fetch(self, log: str, segment: int, length: int) -> bytes:
        if segment == 1 and self.left:
            self.left -= 1
            raise SegmentGone(f"{log}-1")
        return super().fetch(log, segment, length)

    def indexes(self, log: Any) -> Any:
        self.looks += 1
        return super().indexes(log)


def reread(running: Written, times: int, **given: str) -> tuple[list[tuple[str, int]], int]:
    """Read orders while segment 1 is away so many times; the rows, and how often was looked."""
    asked = options.live(live(running, topics="orders", transport="segments", **given))
    (partition,) = batch(live(running, topics="orders", transport="segments")).partitions()
    task = partition.value
    assert isinstance(task, SegmentTask) and isinstance(task.reads[0], SegmentRead)
    with Client(running.url) as client:
        segments = Forgetful(client, asked, times)
        rows = [
            row for rows in read_task(task, segments, asked.reading) for row in rows.to_pylist()
        ]
        return keys(rows), segments.looks


def test_a_segment_that_is_back_costs_one_look(running: Written) -> None:
    everything = [("orders", seq) for seq in range(1, ORDERS + 1)]
    assert reread(running, 0) == (everything, 0)
    assert reread(running, 1) == (everything, 1)


def test_a_segment_that_goes_twice_is_a_loss_but_for_what_lives(running: Written) -> None:
    with pytest.raises(DataLossError, match=r"of topic 'orders' are gone: segment jobs-1 was"):
        reread(running, 2)
    rows, _ = reread(running, 2, failOnDataLoss="false")
    assert rows == [("orders", seq) for seq in range(1, ORDERS + 1) if seq not in running.acked]


# -- Spark -----------------------------------------------------------------------------------------


def test_spark_reads_a_server(spark: SparkSession, running: Written) -> None:
    source = Input(url=running.url, topics=["notes", "brief"])
    rows = source.records(spark).select("topic", "seq", "tag").collect()
    assert keys(row.asDict() for row in rows) == [
        *(("brief", seq) for seq in (1, 2, 3)),
        *(("notes", seq) for seq in range(1, NOTES + 1)),
    ]
