"""Spark's daemon that forks Python workers, with what they need imported before the first fork.

Owns: which modules those are. Must not know: any test. Without it each worker imports them again,
which takes longer than what a test asks of it. Sessions of users have Spark's own daemon, and so
have those that README's tour starts.
"""

from __future__ import annotations

import gc

import pyarrow.compute
import pyarrow.parquet
import pyspark.worker
from pyspark.daemon import manager

from logqueue.pipeline.engines.spark.formats import live_source, wal_source

__all__ = ["live_source", "pyarrow", "pyspark", "wal_source"]

if __name__ == "__main__":
    gc.freeze()
    manager()
