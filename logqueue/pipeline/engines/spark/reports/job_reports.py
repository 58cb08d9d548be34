"""Reports over jobs: failures, limits, stuck leases, variants, outcomes, retries, waste, poison.

Owns: how each of them is computed from what became of the jobs. Must not know: where tables go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from logqueue.pipeline.engines.spark.reports.report_input import (
    Lives,
    first_line,
    is_failure,
    worst,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EXTENSIONS_MAX = 10
"""A lease that was extended more often looks stuck."""
TIMES_P99 = 3
"""So does one that is held longer than this many times the 99th percentile of runs."""
RETRIES_SHOWN_MAX = 20

_XES = {
    "appended": "schedule",
    "replaced": "schedule",
    "claimed": "start",
    "acked": "complete",
    "released": "ate_abort",
    "expired": "ate_abort",
    "lost": "ate_abort",
    "held": "suspend",
    "unheld": "resume",
    "postponed": "suspend",
    "delayed": "suspend",
    "retried": "resume",
}
"""The transitions of the standard life cycle; whatever else ends a job aborts its case."""


def failures(lives: Lives) -> DataFrame:
    """The table `report_failures`."""
    from pyspark.sql import functions as F

    leases = lives.attempts.where(is_failure()).select(
        "topic",
        "log_id",
        F.col("job_seq").alias("seq"),
        "outcome",
        F.coalesce(first_line(F.col("error")), "reason", F.lit("")).alias("reason"),
        F.col("ended_at").alias("at"),
    )
    end = F.element_at("steps", -1)
    before = F.try_element_at("steps", F.lit(-2))
    under_lease = F.coalesce(before["state"] == "in_flight", F.lit(False))
    ended_badly = (F.col("state") == "expired") | (
        F.col("state").isin("dead_lettered", "rejected", "dropped") & ~under_lease
    )
    without = lives.jobs.where(ended_badly).select(
        "topic",
        "log_id",
        "seq",
        end["activity"].alias("outcome"),
        F.coalesce(first_line(F.col("last_error")), "last_reason", F.lit("")).alias("reason"),
        F.col("finished_at").alias("at"),
    )
    counted = (
        leases.unionAll(without)
        .groupBy("topic", "outcome", "reason")
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.count_distinct("log_id", "seq").alias("jobs"),
            F.min("at").alias("first_at"),
            F.max("at").alias("last_at"),
            F.min("seq").alias("sample_seq"),
        )
    )
    return worst(counted, F.desc("n"), F.asc("outcome"), F.asc("reason"))


# -- limits ----------------------------------------------------------------------------------------


def measured(lives: Lives, rules: Mapping[str, int]) -> DataFrame:
    """What is held against each limit: topic, rule, limit_ms, seq, since (ms) and value_ms. What is
    not over yet has taken as long as until the end of the range."""
    from functools import reduce

    from pyspark.sql import DataFrame as Frame
    from pyspark.sql import functions as F

    def broken_by(rows: DataFrame, rule: str, seq: str, since: str, until: Column) -> DataFrame:
        start = F.unix_millis(since)
        return rows.where(start <= lives.end).select(
            "topic",
            F.lit(rule).alias("rule"),
            F.lit(rules[rule]).cast("long").alias("limit_ms"),
            F.col(seq).alias("seq"),
            start.alias("since"),
            F.greatest(until - start, F.lit(0)).alias("value_ms"),
        )

    end = F.lit(lives.end)
    finished = F.unix_millis("finished_at")
    parts: dict[str, tuple[DataFrame, str, str, tuple[Column, ...]]] = {
        "wait": (lives.jobs, "seq", "ready_at", (F.unix_millis("first_claim_at"), finished)),
        "run": (lives.attempts, "job_seq", "claimed_at", (F.unix_millis("ended_at"),)),
        "e2e": (lives.jobs, "seq", "ready_at", (finished,)),
    }
    frames = [
        broken_by(rows, rule, seq, since, F.coalesce(*until, end))
        for rule, (rows, seq, since, until) in parts.items()
        if rule in rules
    ]
    return reduce(Frame.unionAll, frames)


def breaches(lives: Lives, rules: Mapping[str, int]) -> DataFrame:
    """The table `report_sla`."""
    from pyspark.sql import functions as F

    over = (
        measured(lives, rules)
        .where(F.col("value_ms") > F.col("limit_ms"))
        .withColumn("at", F.timestamp_millis(F.col("since") + F.col("limit_ms")))
    )
    return worst(over, F.desc("value_ms"), F.asc("seq"), F.asc("at"), within=("topic", "rule"))


def kept_limits(lives: Lives, rules: Mapping[str, int]) -> DataFrame:
    """The table `report_sla_summary`."""
    from pyspark.sql import functions as F

    is_over = (F.col("value_ms") > F.col("limit_ms")).cast("long")
    return (
        measured(lives, rules)
        .groupBy("topic", "rule", "limit_ms")
        .agg(
            F.count(F.lit(1)).alias("measured"),
            F.sum(is_over).alias("breaches"),
            F.max("value_ms").alias("worst_ms"),
        )
        .withColumn("kept_share", 1 - F.col("breaches") / F.col("measured"))
    )


def stuck(lives: Lives) -> DataFrame:
    """The table `report_stuck`."""
    from pyspark.sql import functions as F

    usual = (
        lives.attempts.where("outcome = 'acked'")
        .groupBy("topic")
        .agg(lives.percentile("run_ms", 0.99).alias("p99"))
    )
    held = F.coalesce("run_ms", F.lit(lives.end) - F.unix_millis("claimed_at"))
    why = F.concat_ws(
        ",",
        F.when(F.col("extensions") > EXTENSIONS_MAX, "extended"),
        F.when(F.col("held_ms") > TIMES_P99 * F.greatest("p99", F.lit(1)), "long"),
        F.when(F.col("outcome") == "expired", "expired"),
    )
    suspects = (
        lives.attempts.withColumn("held_ms", held)
        .join(F.broadcast(usual), "topic", "left")
        .withColumn("why", why)
        .where(F.col("why") != "")
        .withColumn("open", F.col("outcome") == "open")
    )
    return worst(suspects, F.desc("held_ms"), F.asc("job_seq"), F.asc("claimed_at"))


# -- job outcomes ----------------------------------------------------------------------------------


def variants(lives: Lives) -> DataFrame:
    """The table `report_variants`."""
    from pyspark.sql import functions as F

    counted = lives.jobs.groupBy("topic", "variant").agg(
        F.count(F.lit(1)).alias("n"), lives.percentile("e2e_ms", 0.5).alias("median_e2e_ms")
    )
    return worst(_shared(counted, "n"), F.desc("n"), F.asc("variant"))


def _shared(rows: DataFrame, count: str) -> DataFrame:
    """Rows with the share that each has of its topic."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    whole = F.sum(count).over(Window.partitionBy("topic"))
    return rows.withColumn("share", F.try_divide(F.col(count), whole))


def follows(lives: Lives) -> DataFrame:
    """The table `report_dfg`."""
    from pyspark.sql import functions as F

    # No one causes the end of a delay, so it is not a step of a job's way.
    passed = F.col("next") == "ready"
    pairs = lives.steps(ahead=2).where(F.col("activity") != "ready").select(
        "topic",
        F.col("activity").alias("from_step"),
        F.when(passed, F.col("after")).otherwise(F.col("next")).alias("to_step"),
        (F.when(passed, F.col("after_at")).otherwise(F.col("next_at")) - F.col("at")).alias("gap"),
    )  # fmt: skip
    return (
        pairs.where(F.col("to_step").isNotNull())
        .groupBy("topic", "from_step", "to_step")
        .agg(
            F.count(F.lit(1)).alias("n"),
            lives.percentile("gap", 0.5).alias("median_gap_ms"),
        )
    )


def event_log(lives: Lives) -> DataFrame:
    """The table `event_log`."""
    from pyspark.sql import functions as F

    transitions = F.create_map(*(F.lit(part) for pair in _XES.items() for part in pair))
    return (
        lives.steps()
        .where(F.col("activity") != "ready")
        .select(
            F.concat_ws("/", "topic", "log_id", "seq").alias("case_id"),
            "activity",
            F.coalesce(F.try_element_at(transitions, F.col("activity")), F.lit("pi_abort")).alias(
                "lifecycle"
            ),
            F.timestamp_millis(F.col("at")).alias("timestamp"),
            F.col("worker").alias("resource"),
            "topic",
            "seq",
        )
    )


# -- totals ----------------------------------------------------------------------------------------


def outcomes(lives: Lives) -> DataFrame:
    """The table `report_outcomes`."""
    from pyspark.sql import functions as F

    counted = lives.jobs.groupBy("topic", "state").agg(
        F.count(F.lit(1)).alias("jobs"), F.avg("attempts").alias("mean_attempts")
    )
    return _shared(counted, "jobs")


def retries(lives: Lives) -> DataFrame:
    """The table `report_retries`."""
    from pyspark.sql import functions as F

    attempts_shown = F.least("attempts", F.lit(RETRIES_SHOWN_MAX)).alias("attempts")
    is_acked = (F.col("state") == "acked").cast("long")
    return lives.jobs.groupBy("topic", attempts_shown).agg(
        F.count(F.lit(1)).alias("jobs"), F.sum(is_acked).alias("acked")
    )


def waste(lives: Lives) -> DataFrame:
    """The table `report_waste`."""
    from pyspark.sql import functions as F

    ran = F.coalesce("run_ms", F.lit(lives.end) - F.unix_millis("claimed_at"))
    counted = lives.attempts.groupBy("topic", "outcome").agg(
        F.count(F.lit(1)).alias("attempts"), F.sum(ran).alias("run_ms")
    )
    return _shared(counted, "run_ms")


def poison(lives: Lives) -> DataFrame:
    """The table `report_poison`."""
    from pyspark.sql import functions as F

    def named(rows: DataFrame) -> DataFrame:
        kinds = F.array(
            F.struct(F.lit("key").alias("kind"), F.col("key").alias("value")),
            F.struct(F.lit("tag").alias("kind"), F.col("tag").alias("value")),
        )
        return (
            rows.where(F.col("key").isNotNull() | F.col("tag").isNotNull())
            .select("*", F.inline(kinds))
            .where(F.col("value").isNotNull())
        )

    # A job has one key and one tag, so jobs are counted before these are taken apart.
    failed_jobs = (
        lives.attempts.where(is_failure())
        .groupBy("topic", "key", "tag", "log_id", "job_seq")
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.max("ended_at").alias("at"),
            F.max(first_line(F.col("error"))).alias("first_line"),
        )
    )
    names = ["topic", "kind", "value"]
    failing = (
        named(failed_jobs)
        .groupBy(*names)
        .agg(
            F.sum("n").alias("failures"),
            F.count(F.lit(1)).alias("jobs"),
            F.max("at").alias("last_at"),
            F.max("first_line").alias("sample_error"),
        )
        .where("jobs >= 2")
    )
    bad = worst(failing, F.desc("failures"), F.asc("kind"), F.asc("value"))
    acked = lives.attempts.where("outcome = 'acked'").groupBy("topic", "key", "tag")
    acks = (
        named(acked.agg(F.count(F.lit(1)).alias("n"))).groupBy(*names).agg(F.sum("n").alias("acks"))
    )
    return bad.join(acks, names, "left").fillna(0, subset=["acks"])
