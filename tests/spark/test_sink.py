"""What the sink takes, refuses and sends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    DataType,
    DateType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from logqueue.pipeline.engines.spark.formats.sink import batch_writer, stream_writer
from logqueue.pipeline.engines.spark.formats.sink_bodies import BodyChunk, Chunks, Sum, digest_of
from logqueue.pipeline.errors import PipelineError, message_of
from logqueue.pipeline.writing.sink_options import SinkOptions, producer_of, read_options
from logqueue.shapes import Record
from tests.spark.sinking import Target, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

URL = "http://127.0.0.1:1"
BATCH = {"url": URL, "topic": "t", "writeId": "w"}
STREAM = {"url": URL, "topic": "t", "producer": "p"}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    yield from Target.opened(tmp_path_factory.mktemp("server"))


# -- options and columns --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": ""}, "option url is missing"),
        ({"url": "localhost:4000"}, "write the server"),
        ({"writeId": ""}, "option writeId is ''"),
        ({"writeId": "a b"}, "use 1 to 190 of"),
        ({"producer": "p"}, "takes writeId instead"),
        ({"topic": "-x"}, "is not a valid topic name"),
        ({"mode": "twice"}, "write transactional, keyed or plain"),
        ({"delivery": "keyed", "mode": "plain"}, "option mode is given twice"),
        ({"onConflict": "x"}, "write keep, replace or reject"),
        ({"chunkRecords": "10001"}, "a number from 1 to 10000"),
        ({"chunkBytes": "many"}, "option chunkBytes is 'many'"),
        ({"epoch": "-1"}, "option epoch is '-1'"),
        ({"token": "a", "tokenFile": "b"}, "contradict each other"),
        ({"path": "x"}, "option path is unknown to writes"),
    ],
    ids=str,
)
def test_options_of_a_batch(given: dict[str, str], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        read_options({**BATCH, **given}, is_stream=False)


def test_names_are_asked_for() -> None:
    """A transactional write needs one, and the message says how to choose it."""
    bare = {"url": URL, "topic": "t"}
    with pytest.raises(PipelineError, match="give the same one when you run the same write again"):
        read_options(bare, is_stream=False)
    with pytest.raises(PipelineError, match="keep it as long as its checkpoint"):
        read_options(bare, is_stream=True)
    with pytest.raises(PipelineError, match="takes producer instead"):
        read_options({**STREAM, "writeId": "w"}, is_stream=True)
    with pytest.raises(PipelineError, match="numbers its own epochs"):
        read_options({**STREAM, "epoch": "1"}, is_stream=True)
    with pytest.raises(PipelineError, match="option producer is 'ä'"):
        read_options({**STREAM, "producer": "ä"}, is_stream=True)
    plain = {**bare, "mode": "plain", "checkpointLocation": "c"}
    assert read_options(plain, is_stream=True).producer is None
    names = {read_options(plain, is_stream=False).producer for _ in range(2)}
    assert len(names) == 2, "two writes without a name are two writes"
    assert producer_of("w") == "w:spark"


def test_the_token(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a file wherever a call is made; never in what Spark may print."""
    monkeypatch.delenv("LOGQUEUE_TOKEN", raising=False)
    path = tmp_path / "key"
    options = read_options({**BATCH, "tokenFile": str(path)}, is_stream=False)
    with pytest.raises(PipelineError, match="at the same path on the driver and on every executor"):
        options.key()
    path.write_text(" \n")
    with pytest.raises(PipelineError, match="is empty"):
        options.key()
    path.write_text("secret-1\n")
    assert options.key() == "secret-1"
    options = read_options({**BATCH, "token": "secret-2"}, is_stream=False)
    assert options.key() == "secret-2" and "secret" not in repr(options)


TEXT, WHOLE = StringType(), IntegerType()
NESTED, MAPPED = StructType(), MapType(TEXT, TEXT)


def schema(**columns: DataType) -> StructType:
    """A schema of these columns."""
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("columns", "given", "message"),
    [
        ({"x": TEXT}, {}, "column x is unknown: a record has data, topic"),
        ({"tag": TEXT}, {}, "column data is missing"),
        ({"data": TEXT, "payload": TEXT}, {}, "two columns say data"),
        ({"data": NESTED}, {}, r"write to_json\(data\)"),
        ({"data": TEXT, "meta": MAPPED}, {}, r"write to_json\(meta\)"),
        ({"data": TEXT, "tag": WHOLE}, {}, r"write tag.cast\('string'\)"),
        ({"data": TEXT, "delay_ms": TEXT}, {}, "must be a whole number"),
        ({"data": TEXT, "not_before": DateType()}, {}, "a timestamp or a whole number"),
        ({"data": TEXT, "key": TEXT}, {}, "column key needs mode=keyed"),
        ({"data": TEXT}, {"mode": "keyed"}, "mode=keyed needs a column key"),
        ({"data": TEXT}, {"topic": None}, "nothing says where to"),
    ],
)
def test_columns(columns: dict[str, DataType], given: dict[str, str | None], message: str) -> None:
    options = {key: value for key, value in {**BATCH, **given}.items() if value is not None}
    with pytest.raises(PipelineError, match=message):
        batch_writer(options, schema(**columns), False)


def test_overwriting_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"never overwritten: write .mode"):
        batch_writer(BATCH, schema(data=TEXT), True)
    with pytest.raises(PipelineError, match="outputMode append or update"):
        stream_writer(STREAM, schema(data=TEXT), True)


# -- bodies ---------------------------------------------------------------------------------------


def cut(
    columns: dict[str, Any], *, partition: int = 3, **given: str
) -> tuple[list[BodyChunk], Chunks]:
    """Chunks of rows that come as one batch."""
    batch = pa.record_batch(columns)
    options = read_options({**BATCH, **given}, is_stream=False)
    places = {name: place for place, name in enumerate(columns)}
    chunks = Chunks(options, places, partition)
    return [*chunks.take(batch), *chunks.rest()], chunks


def test_a_record_says_what_its_row_says() -> None:
    """Texts are escaped, JSON goes out as it is, null says nothing."""
    columns = {
        "data": ['{"a": 1.50}', "null"],
        "tag": ['q"\n', None],
        "key": ["ä", "k"],
        "meta": [None, '{"m":[]}'],
        "delay_ms": pa.array([5, None], pa.int32()),
        "not_before": pa.array([None, 1_700_000_000_123_999], pa.timestamp("us", "UTC")),
    }
    (chunk,), _ = cut(columns, mode="keyed", onConflict="replace")
    assert [text.decode() for text in chunk.records] == [
        '{"data":{"a": 1.50},"tag":"q\\"\\n","key":"ä","on_conflict":"replace","delay_ms":5}',
        '{"data":null,"key":"k","on_conflict":"replace","meta":{"m":[]},'
        '"not_before":1700000000123}',
    ]


def test_chunks_end_by_rows_or_bytes_whatever_the_batches() -> None:
    options = read_options({**BATCH, "chunkRecords": "4", "chunkBytes": "100"}, is_stream=False)
    chunks = Chunks(options, {"data": 0}, 0)
    found: list[BodyChunk] = []
    for texts in (["1"] * 3, ["2"] * 6, [json.dumps("x" * 200)], ["3"] * 2):
        found += chunks.take(pa.record_batch({"data": texts}))
    found += chunks.rest()
    assert [(chunk.first_row, len(chunk.records)) for chunk in found] == [
        (0, 4),
        (4, 4),
        (8, 2),
        (10, 2),
    ]
    assert chunks.rows == 12 and chunks.sums["t"].rows == 12


def test_rows_go_to_the_topics_they_name() -> None:
    """In their order; those that name none to that of the option."""
    columns = {"data": ["1", "2", "3", "4"], "topic": ["a", "b", "a", None]}
    found, chunks = cut(columns)
    got = {chunk.topic: [*map(bytes.decode, chunk.records)] for chunk in found}
    assert got == {"a": ['{"data":1}', '{"data":3}'], "b": ['{"data":2}'], "t": ['{"data":4}']}
    assert {topic: one.rows for topic, one in chunks.sums.items()} == {
        "a": 2,
        "b": 1,
        "t": 1,
    }
    many = {"data": [json.dumps("x" * 40)] * 40, "topic": [f"t{n}" for n in range(40)]}
    found, _ = cut(many, chunkBytes="100")
    assert sorted(chunk.topic for chunk in found) == sorted(many["topic"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"data": ["1", None]}, "row 1 of partition 3 is not a record: data is null"),
        ({"data": ["1", "plain text"]}, "row 1 .* data is not valid JSON .*'plain text'"),
        ({"data": ['1,"tag":"x"']}, "data is not valid JSON"),
        ({"data": ["1},{"]}, "data is not valid JSON"),
        ({"data": ["[1", "2]"]}, "row 0"),
        ({"data": ["1,[2", "3]"]}, "row 0"),
        ({"data": ["1", "", "2"]}, "row 1"),
        ({"data": [b"1", b'"\xff"']}, "row 1"),
        ({"data": ["[" * 100_000]}, "data is not valid JSON"),
        ({"data": ["1", "2"], "meta": [None, "{"]}, "row 1 .* meta is not valid JSON"),
        ({"data": ["1", "2"], "ttl_ms": [1, -4]}, "row 1 .* its ttl_ms is -4"),
        ({"data": ["1", "2"], "key": ["a", None]}, "row 1 .* key is null"),
    ],
)
def test_what_is_no_record(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message) as refusal:
        cut(columns, mode="keyed" if "key" in columns else "plain")
    assert "\n" not in refusal.value.message and len(refusal.value.message) < 500


def test_a_row_without_a_topic() -> None:
    options = SinkOptions(URL, None, None, None, "plain", "p", 1)
    chunks = Chunks(options, {"data": 0, "topic": 1}, 0)
    with pytest.raises(PipelineError, match=r"row 1 of partition 0 .* topic is null"):
        [*chunks.take(pa.record_batch({"data": ["1", "2"], "topic": ["a", None]}))]


def test_blanks_around_json_are_fine() -> None:
    (chunk,), _ = cut({"data": [" 1 ", '{"a": [1, 2]}\n']})
    assert json.loads(chunk.records[0]) == {"data": 1}


def test_the_digest_knows_no_order() -> None:
    def digest(*partitions: list[str]) -> str:
        sums: dict[str, Sum] = {}
        for texts in partitions:
            _, chunks = cut({"data": texts}, chunkRecords="2")
            for topic, part in chunks.sums.items():
                sums.setdefault(topic, Sum()).add(part)
        return digest_of(sums)

    assert digest(["1", "2", "3"]) == digest(["3"], ["2", "1"], [])
    assert digest(["1", "2", "3"]) != digest(["1", "2", "4"])
    assert digest(["1"]) != digest(["1", "1"])
    assert digest() == digest([])


# -- with Spark and a server ----------------------------------------------------------------------


@pytest.mark.spark
def test_all_columns_arrive(spark: SparkSession, target: Target) -> None:
    """Into two topics by one write; each becomes visible whole, and a repeat stores nothing."""
    with target.client() as client:
        client.put_topic("jobs", type="queue")
    rows = spark.sql(
        """SELECT to_json(named_struct('n', id)) AS payload, IF(id < 3, 'jobs', NULL) AS topic,
        concat('t', id) AS tag, IF(id = 1, 'me', NULL) AS node,
        IF(id = 1, '{"m":1}', NULL) AS meta, IF(id = 2, 60000L, NULL) AS ttl_ms,
        CAST(NULL AS BIGINT) AS max_deliveries FROM range(0, 5, 1, 2)"""
    )
    for _ in range(2):
        target.write(rows, "rest", writeId="all", chunkRecords=2)
    with target.client() as client:
        read = [record for record in client.read("jobs") if isinstance(record, Record)]
        jobs = [*client.jobs("jobs")]
        assert client.producer("all:spark").last_epoch == 1
    assert [(r.data, r.tag, r.node, r.meta) for r in read] == [
        ({"n": 0}, "t0", None, None),
        ({"n": 1}, "t1", "me", {"m": 1}),
        ({"n": 2}, "t2", None, None),
    ]
    assert [job.expires_at is not None for job in jobs] == [False, False, True]
    assert target.values("rest") == [{"n": 3}, {"n": 4}]


@pytest.mark.spark
def test_keyed_rows(spark: SparkSession, target: Target) -> None:
    """One waiting job per key, whatever is written again and in which order."""
    with target.client() as client:
        client.put_topic("keyed", type="queue")
    keyed = ("data", "concat('k', get_json_object(data, '$.n')) AS key")
    rows = numbers(spark, 40, 1).selectExpr(*keyed)
    for again in (rows.union(rows), rows.sortWithinPartitions(rows.key.desc())):
        target.write(again, "keyed", mode="keyed", chunkRecords=7)
    assert sorted(value["n"] for value in target.values("keyed")) == [*range(40)]
    with pytest.raises(Exception, match="PipelineError") as refusal:
        target.write(rows, "a-log", mode="keyed")
    assert "make the topic a queue first" in message_of(refusal.value)


@pytest.mark.spark
def test_plain_rows_and_refusals(spark: SparkSession, target: Target) -> None:
    """Without a name two writes are two; refusals come as one sentence."""
    for _ in range(2):
        target.write(numbers(spark, 3), "plain", mode="plain")
    assert len(target.values("plain")) == 6
    with pytest.raises(Exception, match="PipelineError") as refusal:
        target.write(
            numbers(spark, 3, 1).selectExpr("concat(data, ',') AS data"), "plain", writeId="b"
        )
    assert "of partition" in message_of(refusal.value) and "not valid JSON" in message_of(
        refusal.value
    )
    with pytest.raises(Exception, match="PipelineError") as refusal:
        target.write(numbers(spark, 3).selectExpr("data AS other"), "plain", writeId="c")
    assert message_of(refusal.value).startswith("column other is unknown")


@pytest.mark.spark
def test_a_write_that_fails_leaves_nothing_staged(spark: SparkSession, target: Target) -> None:
    """Its room is free at once; and an abort after a commit takes nothing away."""
    rows = numbers(spark, 50, 1).selectExpr(
        "CASE WHEN data LIKE '%49%' THEN 'not JSON' ELSE data END AS data"
    )
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        with pytest.raises(Exception, match="PipelineError"):
            target.write(rows, "failed", writeId="failed", chunkRecords=5)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    with target.client() as client:
        assert client.producer("failed:spark").staged.bytes == 0
    target.write(numbers(spark, 50, 1), "failed", writeId="failed", chunkRecords=5)
    given = {"url": target.url, "topic": "failed", "writeId": "failed"}
    batch_writer(given, StructType([StructField("data", StringType())]), False).abort([])
    assert len(target.values("failed")) == 50
