"""The format `logqueue`: records and job events from a running server, and rows to it.

Owns: the data source registered with Spark. Must not know: how a server is read, how rows are
written.

    spark.read.format("logqueue").option("url", "http://127.0.0.1:4000").option("topics", "orders")

See `logqueue.pipeline.stores.live_store` for what is read by segments and what by pages. The key
travels with the tasks, not in Spark's plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

from logqueue.pipeline.engines.spark.formats import readers
from logqueue.pipeline.reading import options
from logqueue.pipeline.reading.options import LiveOptions
from logqueue.pipeline.stores.live_store import LiveStore

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class LogQueueSource(DataSource):
    """The format `logqueue`."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` names."""
        return "logqueue"

    def schema(self) -> str:
        """The columns; no server is asked for them."""
        return readers.ddl(self._given().reading)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch."""
        given = self._given()
        return readers.reader(LiveStore(given), given.reading)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a stream."""
        given = self._given()
        return readers.StreamReader(LiveStore(given), given.reading)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer of a batch; see `logqueue.pipeline.engines.spark.formats.sink`."""
        from logqueue.pipeline.engines.spark.formats import sink

        return sink.batch_writer(self._plain(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The writer of a stream; see `logqueue.pipeline.engines.spark.formats.sink`."""
        from logqueue.pipeline.engines.spark.formats import sink

        return sink.stream_writer(self._plain(), schema, overwrite)

    def _plain(self) -> dict[str, Any]:
        return dict(self.options)

    def _given(self) -> LiveOptions:
        return options.live(self._plain())
