"""Reports over time: throughput, latency, heatmap, workers, capacity, backlog.

Owns: the SQL of each, from the relations of `sources`. Must not know: who runs it.
"""

from __future__ import annotations

from logqueue.pipeline.lifecycle.job_history import OPEN_STATES
from logqueue.pipeline.reports.queries.dialect import Dialect
from logqueue.pipeline.reports.queries.sources import IS_OPEN, ReportScope

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


def over_time(scope: ReportScope, dialect: Dialect) -> dict[str, str]:
    """The SQL of each report over time, by the name of its table."""
    return {
        "report_throughput": _throughput(),
        "report_latency": "SELECT * FROM $latencies WHERE is_topic",
        "report_heatmap": _heatmap(dialect),
        "report_workers": _workers(scope),
        "report_backlog": _backlog(scope, dialect),
        "report_capacity": _capacity(scope),
    }


def _throughput() -> str:
    sums = ", ".join(
        f"sum(CASE WHEN activity IN ({', '.join(map(repr, steps))}) THEN n ELSE 0 END) AS {name}"
        for name, steps in _COUNTED.items()
    )
    return f"SELECT topic, bucket, {sums} FROM $flows GROUP BY topic, bucket"


def _heatmap(dialect: Dialect) -> str:
    """Each power of two in four parts; the exponent is found with room for rounding."""
    octave = "CAST(floor(ln(ms) / ln(2) + 1e-9) AS INT)"
    power = "CAST(power(2, octave) AS BIGINT)"
    # Below four, there are fewer whole numbers than quarters.
    return f"""
        SELECT topic, bucket, metric, from_ms,
            CASE WHEN from_ms < 4 THEN from_ms + 1
                ELSE from_ms + {dialect.whole("power", 4)} END AS to_ms,
            sum(n) AS n
        FROM (
            SELECT *, CASE WHEN octave IS NULL THEN 0 WHEN octave < 2 THEN ms
                ELSE {dialect.whole(f"{dialect.whole('ms * 4', 'power')} * power", 4)} END
                AS from_ms
            FROM (
                SELECT *, {power} AS power
                FROM (
                    SELECT topic, bucket, metric, ms, CASE WHEN ms > 0 THEN {octave} END AS octave,
                        n
                    FROM (SELECT topic, bucket, metric, ms, count(*) AS n FROM $measured
                        GROUP BY 1, 2, 3, 4))))
        GROUP BY topic, bucket, metric, from_ms, power"""


def _workers(scope: ReportScope) -> str:
    return f"""
        SELECT *,
            CAST(busy_ms AS DOUBLE)
                / CASE WHEN bucket IS NULL THEN {scope.length} ELSE {scope.bucket} END
                AS utilisation
        FROM $worker_buckets"""


def _capacity(scope: ReportScope) -> str:
    """Where no lease ended in a bucket, the mean of the whole range is used."""
    parts = f"""
        SELECT topic, {scope.bucket_of("appended")} AS bucket, count(*) AS arrivals, 0 AS busy_ms,
            0 AS run_ms, 0 AS ended, CAST(NULL AS STRING) AS worker
        FROM $jobs WHERE appended IS NOT NULL GROUP BY 1, 2
        UNION ALL
        SELECT topic, bucket, 0, busy_ms, run_ms, ended, worker FROM $worker_buckets
        WHERE bucket IS NOT NULL"""
    summed = f"""
        SELECT topic, bucket, sum(arrivals) AS arrivals, sum(busy_ms) AS busy_ms,
            CAST(sum(run_ms) AS DOUBLE) / nullif(sum(ended), 0) AS mean_run_ms,
            count(DISTINCT worker) AS seen_workers,
            CASE WHEN bucket IS NULL THEN {scope.length} ELSE {scope.bucket} END AS length
        FROM ({parts})
        GROUP BY GROUPING SETS ((topic, bucket), (topic))"""
    rates = f"""
        SELECT *, arrivals * CAST(1000 AS DOUBLE) / length AS arrival_rate,
            max(CASE WHEN bucket IS NULL THEN mean_run_ms END) OVER (PARTITION BY topic)
                AS overall_ms
        FROM ({summed})"""
    needs = f"""
        SELECT *, arrival_rate * coalesce(mean_run_ms, overall_ms) / 1000 AS needed_workers
        FROM ({rates})"""
    return f"""
        SELECT *,
            CASE WHEN bucket IS NULL THEN
                max(CASE WHEN bucket IS NOT NULL THEN needed_workers END)
                    OVER (PARTITION BY topic) END AS peak_workers,
            CAST(busy_ms AS DOUBLE) / nullif(seen_workers * length, 0) AS utilisation
        FROM ({needs})"""


# -- backlog ---------------------------------------------------------------------------------------


def _backlog(scope: ReportScope, dialect: Dialect) -> str:
    """Jobs come into a state in one bucket and leave it in another; how many are in it is the sum
    of all that came, less those that left. A row for each bucket in which anything happened, and
    one for the end of the range."""
    came = ", ".join(f"CASE WHEN state = '{s}' THEN n ELSE 0 END AS {s}" for s in OPEN_STATES)
    left = ", ".join(f"CASE WHEN state = '{s}' THEN -n ELSE 0 END" for s in OPEN_STATES)
    none = ", ".join("0" for _ in OPEN_STATES)
    moves = f"""
        SELECT topic, bucket, {came} FROM $flows
        UNION ALL
        SELECT topic, gone, {left} FROM $flows WHERE gone IS NOT NULL AND state IN ({IS_OPEN})
        UNION ALL
        SELECT DISTINCT topic, {scope.last}, {none} FROM $flows"""
    sums = ", ".join(f"sum({s}) AS {s}" for s in OPEN_STATES)
    so_far = ", ".join(
        f"sum({s}) OVER (PARTITION BY topic ORDER BY bucket "
        f"ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS {s}"
        for s in OPEN_STATES
    )
    moment = f"least(bucket + {scope.bucket}, {scope.end})"
    depth = ", ".join(f"max({s}) AS {s}" for s in OPEN_STATES)
    block = dialect.whole(dialect.whole("depths.bucket", scope.bucket), "widths.width")
    return f"""
        WITH moves AS (SELECT topic, bucket, {sums} FROM ({moves}) GROUP BY topic, bucket),
            depths AS (SELECT topic, bucket, {so_far} FROM moves),
            {_blocks(scope, dialect)}
        SELECT *, coalesce(greatest({moment} - oldest, 0), 0) AS oldest_age_ms
        FROM (SELECT depths.topic AS topic, depths.bucket AS bucket, {depth},
                min(CASE WHEN ready > 0 THEN blocks.oldest END) AS oldest
            FROM depths JOIN widths ON widths.width = 1 OR depths.ready > 0
            LEFT JOIN blocks ON depths.topic = blocks.topic AND widths.width = blocks.width
                AND {block} = blocks.block
            GROUP BY 1, 2)"""


def _blocks(scope: ReportScope, dialect: Dialect) -> str:
    """The relations `widths`, and `blocks`: since when the oldest of the jobs could have been
    claimed that are ready at the ends of all buckets of a block.

    A job that is ready at the ends of many buckets is not a row in each of them: a stretch of
    buckets is taken apart into blocks of 1, 2, 4, … buckets that begin at multiples of their
    width, at most two of each width, as in a segment tree. A bucket is in one block of each width.
    """
    stretch = max(scope.last - (scope.start - scope.start % scope.bucket), 0) // scope.bucket + 2
    widths = ", ".join(f"({1 << level})" for level in range(stretch.bit_length()))
    number, gone = dialect.whole("bucket", scope.bucket), dialect.whole("gone", scope.bucket)
    behind = scope.last // scope.bucket + 1
    low = dialect.whole("low + width - 1", "width")
    return f"""
            widths AS (SELECT width FROM (VALUES {widths}) AS listed(width)),
            sides AS (SELECT side FROM (VALUES (0), (1)) AS listed(side)),
            stays AS (
                SELECT topic, {number} AS low, coalesce({gone}, {behind}) AS high,
                    min(oldest) AS oldest
                FROM $flows WHERE state = 'ready' AND (gone IS NULL OR gone > bucket)
                GROUP BY 1, 2, 3),
            ends AS (
                SELECT topic, width, oldest, {low} AS low, {dialect.whole("high", "width")} AS high
                FROM stays JOIN widths ON width <= high - low),
            blocks AS (
                SELECT topic, width, CASE WHEN side = 0 THEN low ELSE high - 1 END AS block,
                    min(oldest) AS oldest
                FROM ends CROSS JOIN sides
                WHERE low < high AND CASE WHEN side = 0 THEN low ELSE high END % 2 = 1
                GROUP BY 1, 2, 3)"""
