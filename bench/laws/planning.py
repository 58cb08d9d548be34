"""What it takes to plan a read of a log with many topics.

Owns: indexes of such a log, and the time of one plan. Must not know: how plans are made.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.spark_logs import LogWriter
from logqueue.pipeline.reading import options
from logqueue.pipeline.stores.store import batch_tasks
from logqueue.pipeline.stores.wal_store import WalStore


def planned_s(topics: int) -> float:
    """Processor seconds to look at a log of so many topics and to plan a read of all of it."""
    with tempfile.TemporaryDirectory(prefix="logqueue-laws-") as directory:
        place = Path(directory) / "log"
        with LogWriter(place) as log:
            for topic in range(1, topics + 1):
                log.topic(topic, f"queue-{topic}", type="queue")
                log.append(topic, 1, 2)
        given = options.offline({"path": str(place), "topicPattern": ".*"})
        snapshot = WalStore(given).snapshot()
        batch_tasks(snapshot, given.reading)  # indexes are made once, whatever is planned
        began = time.process_time()
        batch_tasks(WalStore(given).snapshot(), given.reading)
        return time.process_time() - began
