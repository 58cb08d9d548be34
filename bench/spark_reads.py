"""How fast Spark reads a log, from files and from a server, and writes to a server.

Owns: the rows spark-read, spark-parquet, spark-live, spark-write and spark-append-p99.
"""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import uvloop

from bench.load import (
    LoadFailed,
    LoneConnection,
    append_request,
    expect_count,
    fill,
    job,
    queue_request,
)
from bench.machine import Spread
from bench.rows import Row, Target
from bench.session import Session
from bench.spark_session import RECORDS_TOPIC, records_log, spark_of, timed
from logqueue.demo.server import DemoServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PER_REQUEST = 1000
CONNECTIONS = 4
APPENDED = "bench.beside"
WRITTEN = "bench.written"


def spark_read(session: Session) -> list[Row]:
    """Count the records in the files of a log."""
    records = session.scale.spark_records
    row = Row(
        "spark-read",
        "Spark: count the records in files of a log",
        "rows/s",
        Target(1_300_000, at_most=False),
    )
    spark, directory = spark_of(session), str(records_log(session))
    _expect(_offline(spark, directory), records)
    for _ in range(session.scale.repeats):
        timed(session, row, lambda: _expect(_offline(spark, directory), records), records)
    return [row]


def spark_parquet(session: Session) -> list[Row]:
    """Copy the files of a log into Parquet."""
    records = session.scale.spark_records
    row = Row(
        "spark-parquet",
        "Spark: files of a log into Parquet",
        "rows/s",
        Target(600_000, at_most=False),
    )
    spark, directory = spark_of(session), str(records_log(session))
    to = session.directory / "spark-parquet"
    for _ in range(session.scale.repeats):
        written = _offline(spark, directory).write.mode("overwrite")
        timed(session, row, lambda: written.parquet(str(to)), records)  # noqa: B023
        _expect(spark.read.parquet(str(to)), records)
        shutil.rmtree(to)
    return [row]


def spark_live(session: Session) -> list[Row]:
    """Count the records of a running server."""
    records = session.scale.spark_live_records
    row = Row(
        "spark-live",
        "Spark: count the records of a running server",
        "rows/s",
        Target(800_000, at_most=False),
    )
    spark = spark_of(session)
    with session.server() as server:
        _fill(server, records)
        _expect(_live(spark, server), records)
        for _ in range(session.scale.repeats):
            timed(session, row, lambda: _expect(_live(spark, server), records), records)
    return [row]


def spark_write(session: Session) -> list[Row]:
    """Write rows to a server, each exactly once."""
    rows = session.scale.spark_written
    row = Row(
        "spark-write",
        "Spark: rows to a server, transactional",
        "rows/s",
        Target(150_000, at_most=False),
    )
    spark = spark_of(session)
    values = spark.range(rows).selectExpr("to_json(struct(id, 'transcode' AS type)) AS data")
    for number in range(session.scale.repeats):
        with session.server() as server:
            told = {"url": server.url, "topic": WRITTEN, "writeId": f"bench-{number}"}
            writer = values.write.format("logqueue").options(**told).mode("append")
            timed(session, row, writer.save, rows)
            _expect(_live(spark, server, WRITTEN), rows)
    return [row]


def spark_append_p99(session: Session) -> list[Row]:
    """What a lone writer waits while Spark reads all that the server has, again and again."""
    ratio = Row(
        "spark-append-ratio",
        "append p99 while Spark reads it all, over p99 without",
        "times",
        Target(2.0, at_most=True),
    )
    idle = Row("spark-append-idle-p99", "append, 1 per request, p99, no Spark", "ms")
    busy = Row("spark-append-busy-p99", "append, 1 per request, p99, while Spark reads", "ms")
    spark = spark_of(session)
    with session.server() as server:
        _fill(server, session.scale.spark_live_records)
        _live(spark, server).count()
        connection = LoneConnection(server.address)
        try:
            connection.call(queue_request(APPENDED))
            for _ in range(session.scale.repeats):
                alone = _appends(connection, session.scale.spark_appends)
                beside, reads = _appends_beside(spark, server, connection, session)
                idle.values.append(alone.p99_ms)
                busy.values.append(beside.p99_ms)
                ratio.values.append(beside.p99_ms / alone.p99_ms)
                ratio.notes.append(f"{reads} reads")
                session.tell(
                    f"  spark-append: p99 {alone.p99_ms:.2f} ms alone, {beside.p99_ms:.2f} ms "
                    f"beside {reads} reads"
                )
        finally:
            connection.close()
    return [ratio, idle, busy]


def _appends_beside(
    spark: SparkSession, server: DemoServer, connection: LoneConnection, session: Session
) -> tuple[Spread, int]:
    """Appends while a thread of its own keeps Spark reading; how many reads there were."""
    is_over, is_reading = threading.Event(), threading.Event()
    reads = 0

    def read_on() -> None:
        nonlocal reads
        while not is_over.is_set():
            is_reading.set()
            _live(spark, server).count()
            reads += 1

    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        is_reading.wait()
        spread = _appends(connection, session.scale.spark_appends)
    finally:
        is_over.set()
        reader.join()
    return spread, reads


def _appends(connection: LoneConnection, count: int) -> Spread:
    took = []
    for number in range(count):
        seconds, body = connection.call(append_request(APPENDED, [job(number)]))
        expect_count(body, 1)
        took.append(seconds)
    return Spread.of(took)


def _fill(server: DemoServer, records: int) -> None:
    connection = LoneConnection(server.address)
    connection.call(queue_request(RECORDS_TOPIC))
    connection.close()
    uvloop.run(fill(server.address, RECORDS_TOPIC, records, PER_REQUEST, CONNECTIONS))


def _offline(spark: SparkSession, directory: str) -> DataFrame:
    return spark.read.format("logqueue-wal").option("topics", RECORDS_TOPIC).load(directory)


def _live(spark: SparkSession, server: DemoServer, topic: str = RECORDS_TOPIC) -> DataFrame:
    return spark.read.format("logqueue").options(url=server.url, topics=topic).load()


def _expect(rows: DataFrame, count: int) -> None:
    found = rows.count()
    if found != count:
        raise LoadFailed(f"{count:,} rows were expected, Spark counts {found:,}")
