"""Jobs and attempts as data frames, as the lifecycle job folds them.

Owns: the fold without the files that the job writes. Must not know: what histories say.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from logqueue.pipeline.engines.spark.lifecycle import job as lifecycle
from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.lifecycle.tables import ATTEMPTS, JOBS
from logqueue.pipeline.rows.history_batches import folder
from logqueue.pipeline.rows.job_batches import ATTEMPT_FIELDS

ATTEMPT_DDL = "STRUCT<" + ", ".join(f"{c.name}:{c.type}" for c in ATTEMPT_FIELDS) + ">"
HISTORY_DDL = JOBS.ddl + f", `leases` ARRAY<{ATTEMPT_DDL}>"


class Folded(NamedTuple):
    """Both tables."""

    jobs: DataFrame
    attempts: DataFrame


def fold(records: DataFrame, events: DataFrame, span: Span) -> Folded:
    """The tables `jobs` and `attempts` of a range."""
    topics = {queue.log_id: queue.topic for queue in span.queues}
    rows = lifecycle._sorted_rows(records, events, span)
    folded = rows.mapInArrow(folder(span.end, topics), HISTORY_DDL).persist()
    of_job = ("topic", "seq", "tag", "key", "date", "log_id")
    names = [F.col("seq" if name == "job_seq" else name).alias(name) for name in ATTEMPTS.names]
    attempts = folded.select(*of_job, F.inline("leases")).select(*names)
    return Folded(folded.select(*JOBS.names), attempts)
