"""The format `logqueue-wal`: records and job events from the files of a log, without a server.

Owns: the class that Spark makes. Must not know: where the files are and how they are read.

    spark.read.format("logqueue-wal").option("topics", "orders").load("/var/lib/logqueue")

`path` is a data directory, an archive directory, copies of them, or several of these with commas
between them; or the URL of a replica. A server may be writing there. What it has not written whole
yet is not there yet. On a cluster every executor must see directories at the same paths; a replica
is fetched by the executors themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from logqueue.pipeline.engines.spark.formats import readers
from logqueue.pipeline.reading import options
from logqueue.pipeline.reading.options import OfflineOptions
from logqueue.pipeline.stores.wal_store import WalStore

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class LogQueueWalSource(DataSource):
    """The format `logqueue-wal`."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` names."""
        return "logqueue-wal"

    def schema(self) -> str:
        """The columns; nothing is opened for them."""
        return readers.ddl(self._given().reading)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch."""
        given = self._given()
        return readers.reader(WalStore(given), given.reading)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a stream."""
        given = self._given()
        return readers.StreamReader(WalStore(given), given.reading)

    def _given(self) -> OfflineOptions:
        plain: dict[str, Any] = dict(self.options)
        return options.offline(plain)
