"""What tests of the sink share: a server, a proxy before it, and what topics hold in the end.

Owns: the format under test. Must not know: any single test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logqueue.client import Client
from logqueue.shapes import Record
from logqueue.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT = "logqueue"


class Target:
    """A running server, and the options to write to it."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.url = server.url

    @classmethod
    def opened(cls, folder: Path) -> Iterator[Target]:
        """A server of its own on a new directory."""
        with ServerProcess(folder / "data") as server:
            yield cls(server)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.server.url.removeprefix("http://").partition(":")
        return host, int(port)

    def client(self) -> Client:
        """A client of it."""
        return Client(self.server.url)

    def values(self, topic: str) -> list[Any]:
        """The data of all records, in order of seq."""
        with self.client() as client:
            return [record.data for record in client.read(topic) if isinstance(record, Record)]

    def write(self, rows: DataFrame, topic: str, **options: Any) -> None:
        """Write a DataFrame as one batch."""
        told = {"url": self.url, "topic": topic, **{k: str(v) for k, v in options.items()}}
        rows.write.format(FORMAT).options(**told).mode("append").save()

    def stream(
        self, rows: DataFrame, topic: str, checkpoint: str, **options: Any
    ) -> StreamingQuery:
        """Write a stream up to what there is now; ends when all of it is written."""
        told = {"url": self.url, "topic": topic, **{k: str(v) for k, v in options.items()}}
        writer = rows.writeStream.format(FORMAT).options(**told)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    """Rows whose data is {"n": 0}, {"n": 1}, ..."""
    rows = spark.range(0, count, 1, partitions)
    return rows.selectExpr("to_json(named_struct('n', id)) AS data")


def files(folder: Path, first: int, count: int, rows: int = 20) -> None:
    """Put JSON text files into a directory, each with the next numbers, in order of their names."""
    folder.mkdir(exist_ok=True)
    for number in range(first, first + count):
        lines = [json.dumps({"n": number * rows + row}) for row in range(rows)]
        # Renamed, so that a stream that is running never sees half of it.
        path = folder / f".{number:05d}"
        path.write_text("\n".join(lines) + "\n")
        path.rename(folder / f"{number:05d}.json")


def texts(spark: SparkSession, folder: Path, per_batch: int = 1) -> DataFrame:
    """A stream of the lines of such files."""
    lines = spark.readStream.schema("value STRING").option("maxFilesPerTrigger", per_batch)
    return lines.text(str(folder)).selectExpr("value AS data")
