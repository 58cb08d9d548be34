"""Makes Spark know the format `logqueue-wal`: it imports every package named pyspark_* it finds.

Owns: nothing. Must not know: more than the class; Spark imports this for any Python data source.
"""

from logqueue.pipeline.engines.spark.formats.wal_source import LogQueueWalSource as DefaultSource

__all__ = ["DefaultSource"]
