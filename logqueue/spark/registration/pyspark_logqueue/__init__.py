"""Makes Spark know the format `logqueue`: it imports every package named pyspark_* that it finds.

Owns: nothing. Must not know: more than the class; Spark imports this for any Python data source.
"""

from logqueue.pipeline.engines.spark.formats.live_source import LogQueueSource as DefaultSource

__all__ = ["DefaultSource"]
