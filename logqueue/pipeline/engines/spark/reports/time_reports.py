"""Reports over time: throughput, latency, workers, capacity, backlog.

Owns: how each of them is computed from what became of the jobs. Must not know: where tables go.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.engines.spark.reports.report_input import Lives, as_bucket, is_failure
from logqueue.pipeline.lifecycle import report_tables as kinds
from logqueue.pipeline.lifecycle.job_history import OPEN_STATES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_COUNTED = {
    "appended": ("appended",),
    "claimed": ("claimed",),
    "acked": ("acked",),
    "released": ("released",),
    "expired": ("expired", "lost"),
    "dead": ("dead_lettered", "rejected"),
    "dropped": ("dropped", "superseded", "cancelled", "deleted", "redriven", "ttl_expired"),
    "held": ("held",),
}
"""Columns of the throughput report, and the steps each of them counts."""


def throughput(lives: Lives) -> DataFrame:
    """The table `report_throughput`."""
    from pyspark.sql import functions as F

    counted = (
        lives.steps()
        .groupBy("topic", lives.bucket_of(F.col("at")).alias("bucket"), "activity")
        .agg(F.count(F.lit(1)).alias("n"))
    )
    sums = (
        F.sum(F.when(F.col("activity").isin(*steps), F.col("n")).otherwise(0)).alias(name)
        for name, steps in _COUNTED.items()
    )
    return (
        counted.groupBy("topic", "bucket")
        .agg(*sums)
        .withColumn("bucket", as_bucket(F.col("bucket")))
    )


def latency(lives: Lives) -> DataFrame:
    """The table `report_latency`."""
    from pyspark.sql import functions as F

    def measured(rows: DataFrame, metric: str, at: str, value: str) -> DataFrame:
        return rows.where(F.col(value).isNotNull()).select(
            "topic",
            F.lit(metric).alias("metric"),
            lives.bucket_of(F.unix_millis(at)).alias("bucket"),
            F.col(value).alias("value"),
        )

    values = (
        measured(lives.jobs, "wait", "first_claim_at", "wait_ms")
        .unionAll(measured(lives.attempts.where("outcome = 'acked'"), "run", "ended_at", "run_ms"))
        .unionAll(measured(lives.jobs.where("state = 'acked'"), "e2e", "finished_at", "e2e_ms"))
    )
    shares = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
    measures = (
        F.count(F.lit(1)).alias("n"),
        *lives.percentiles("value", shares),
        F.max("value").alias("max"),
    )
    # Not as grouping sets: percentiles of many groups are made by sorting, those of few are not.
    whole = values.groupBy("topic", "metric").agg(*measures)
    grouped = (
        values.groupBy("topic", "metric", "bucket")
        .agg(*measures)
        .unionByName(whole.withColumn("bucket", F.lit(None).cast("long")))
    )
    return grouped.withColumn("bucket", as_bucket(F.col("bucket"))).select(
        *kinds.REPORT_LATENCY.names
    )


# -- workers and capacity --------------------------------------------------------------------------


def worker_buckets(lives: Lives) -> DataFrame:
    """What each worker did in each bucket, and (bucket null) over the whole range: the columns of
    `report_workers` without utilisation, with `run_ms` and `ended` of leases that ended here.

    A lease counts as busy in every bucket it touches, with the part that falls into it.
    """
    from pyspark.sql import functions as F

    width = F.lit(lives.bucket)
    leases = lives.attempts.select(
        "topic",
        "worker",
        F.unix_millis("claimed_at").alias("claimed"),
        F.unix_millis("ended_at").alias("ended"),
        F.coalesce(F.unix_millis("ended_at"), F.lit(lives.end)).alias("until"),
        (F.col("outcome") == "acked").alias("is_ack"),
        is_failure().alias("is_failure"),
        "run_ms",
    )
    first, last = lives.bucket_of(F.col("claimed")), lives.bucket_of(F.col("until"))
    spread = leases.select("*", F.explode(F.sequence(first, last, width)).alias("bucket"))
    is_end = F.col("ended").isNotNull() & (F.col("bucket") == lives.bucket_of(F.col("until")))
    busy = F.least(F.col("until"), F.col("bucket") + width) - F.greatest("claimed", "bucket")
    parts = spread.select(
        "topic",
        "worker",
        "bucket",
        (F.col("bucket") == lives.bucket_of(F.col("claimed"))).cast("long").alias("is_claim"),
        (is_end & F.col("is_ack")).cast("long").alias("is_ack"),
        (is_end & F.col("is_failure")).cast("long").alias("is_failure"),
        is_end.cast("long").alias("is_end"),
        busy.alias("busy"),
        F.when(is_end, F.col("run_ms")).alias("run_ms"),
        F.when(is_end & F.col("is_ack"), F.col("run_ms")).alias("acked_ms"),
    )
    return parts.groupingSets(
        [["topic", "worker", "bucket"], ["topic", "worker"]], "topic", "worker", "bucket"
    ).agg(
        F.sum("is_claim").alias("claims"),
        F.sum("is_ack").alias("acks"),
        F.sum("is_failure").alias("failures"),
        F.sum("busy").alias("busy_ms"),
        lives.percentile("acked_ms", 0.95).alias("p95_run"),
        F.coalesce(F.sum("run_ms"), F.lit(0)).alias("run_ms"),
        F.sum("is_end").alias("ended"),
    )


def workers(lives: Lives, counted: DataFrame) -> DataFrame:
    """The table `report_workers`, from `worker_buckets`."""
    from pyspark.sql import functions as F

    length = F.when(F.col("bucket").isNull(), _whole(lives)).otherwise(lives.bucket)
    return counted.select(
        "topic",
        "worker",
        as_bucket(F.col("bucket")).alias("bucket"),
        "claims",
        "acks",
        "failures",
        "busy_ms",
        (F.col("busy_ms") / length).alias("utilisation"),
        "p95_run",
    )


def capacity(lives: Lives, counted: DataFrame) -> DataFrame:
    """The table `report_capacity`, from `worker_buckets`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    arrived = F.unix_millis("appended_at")
    arrivals = (
        lives.jobs.where(F.col("appended_at").isNotNull())
        .groupBy("topic", lives.bucket_of(arrived).alias("bucket"))
        .agg(F.count(F.lit(1)).alias("arrivals"))
    )
    none = F.lit(0).cast("long")
    parts = arrivals.select(
        "topic", "bucket", "arrivals", none.alias("busy_ms"), none.alias("run_ms"),
        none.alias("ended"), F.lit(None).cast("string").alias("worker"),
    ).unionAll(
        counted.where(F.col("bucket").isNotNull()).select(
            "topic", "bucket", none.alias("arrivals"), "busy_ms", "run_ms", "ended", "worker"
        )
    )  # fmt: skip
    summed = parts.groupingSets([["topic", "bucket"], ["topic"]], "topic", "bucket").agg(
        *(F.sum(name).alias(name) for name in ("arrivals", "busy_ms", "run_ms", "ended")),
        F.count_distinct("worker").alias("seen_workers"),
    )
    is_whole = F.col("bucket").isNull()
    topic = Window.partitionBy("topic")
    mean_run = F.try_divide("run_ms", "ended")
    # Where no lease ended in a bucket, the mean of the whole range is used.
    overall = F.max(F.when(is_whole, mean_run)).over(topic)
    needed = F.col("arrival_rate") * F.coalesce(mean_run, overall) / 1000
    return (
        summed.withColumn("length", F.when(is_whole, _whole(lives)).otherwise(lives.bucket))
        .withColumn("arrival_rate", F.col("arrivals") * 1000 / F.col("length"))
        .withColumn("mean_run_ms", mean_run)
        .withColumn("needed_workers", needed)
        .withColumn("peak", F.max(F.when(~is_whole, F.col("needed_workers"))).over(topic))
        .withColumn("peak_workers", F.when(is_whole, F.col("peak")))
        .withColumn("utilisation", F.try_divide("busy_ms", F.col("seen_workers") * F.col("length")))
        .withColumn("bucket", as_bucket(F.col("bucket")))
    )


def _whole(lives: Lives) -> Any:
    """The length of the range, ms."""
    from pyspark.sql import functions as F

    return F.lit(max(lives.end - lives.start, 1))


# -- backlog ---------------------------------------------------------------------------------------


def backlog(lives: Lives) -> DataFrame:
    """The table `report_backlog`."""
    from pyspark.sql import functions as F

    number = F.floor(F.col("at") / lives.bucket).cast("long")
    left = F.coalesce(F.floor(F.col("next_at") / lives.bucket).cast("long"), F.lit(-1))
    stays = (
        lives.steps(ahead=1)
        .where(F.col("state").isin(*OPEN_STATES))
        .groupBy("topic", "state", number.alias("came"), left.alias("left"))
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.min(F.least(F.coalesce("ready_at", "at"), F.col("at"))).alias("oldest"),
        )
    )
    end, bucket = lives.end, lives.bucket

    def sweep(stays: pa.Table) -> pa.Table:
        return depths(stays, end, bucket)

    return stays.groupBy("topic").applyInArrow(sweep, kinds.REPORT_BACKLOG.ddl)


def depths(stays: pa.Table, end: int, bucket: int) -> pa.Table:
    """How deep one queue was at the end of each bucket, from its first one to the range's end.

    Args:
        stays: (topic, state, came, left, n, oldest): how many jobs came into a state in a bucket
            and left it in another (-1: not yet), by numbers of buckets, and since when the oldest
            of them could have been claimed.
        end: Of the range, ms since the epoch.
        bucket: Its length, ms.
    """
    import pyarrow as pa

    comes: dict[int, list[tuple[str, int, int, int]]] = {}
    for row in stays.to_pylist():
        comes.setdefault(row["came"], []).append(
            (row["state"], row["left"], row["n"], row["oldest"])
        )
    first, last = min(comes), end // bucket
    goes: dict[int, list[tuple[str, int]]] = {}
    depth = dict.fromkeys(OPEN_STATES, 0)
    waiting: list[tuple[int, int]] = []
    columns: dict[str, list[Any]] = {name: [] for name in kinds.REPORT_BACKLOG.names}
    for number in range(first, last + 1):
        for state, left, n, oldest in comes.get(number, ()):
            if left == number:
                continue
            depth[state] += n
            if left > 0:
                goes.setdefault(left, []).append((state, n))
            if state == "ready":
                heappush(waiting, (oldest, left))
        for state, n in goes.pop(number, ()):
            depth[state] -= n
        while waiting and 0 < waiting[0][1] <= number:
            heappop(waiting)
        moment = min((number + 1) * bucket, end)
        columns["bucket"].append(number * bucket)
        for state in OPEN_STATES:
            columns[state].append(depth[state])
        columns["oldest_age_ms"].append(max(moment - waiting[0][0], 0) if waiting else 0)
    columns["topic"] = [stays["topic"][0].as_py()] * len(columns["bucket"])
    schema = kinds.REPORT_BACKLOG.arrow()
    times = pa.array(columns.pop("bucket"), pa.timestamp("ms", tz="UTC"))
    arrays = {name: pa.array(values) for name, values in columns.items()} | {"bucket": times}
    return pa.table([arrays[name].cast(schema.field(name).type) for name in schema.names], schema)
