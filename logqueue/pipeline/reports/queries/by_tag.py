"""Reports that take topics apart by tag, and workers by tag.

Owns: the SQL of each, from the relations of `sources`. Must not know: who runs it.
"""

from __future__ import annotations

from logqueue.pipeline.reports.queries.dialect import Dialect, broadcast
from logqueue.pipeline.reports.queries.sources import ReportScope, worst

_OF_RUNS = {"p50_run": 0.5, "p95_run": 0.95}


def by_tag(scope: ReportScope, dialect: Dialect) -> dict[str, str]:
    """The SQL of each report by tag, by the name of its table."""
    return {
        "report_latency_by_tag": "SELECT * FROM $latencies WHERE is_top",
        "report_tags": _tags(scope),
        "report_workers_by_tag": _workers(dialect),
    }


def _of_top_tags(rows: str) -> str:
    """Those rows whose tag is one of the topic's most frequent."""
    return f"""
        SELECT {broadcast("chosen")} given.* FROM ({rows}) AS given JOIN $top_tags AS chosen
        ON given.topic = chosen.topic AND given.tag IS NOT DISTINCT FROM chosen.tag"""


def _tags(scope: ReportScope) -> str:
    counted = f"""
        SELECT topic, tag, {scope.bucket_of("appended")} AS bucket, count(*) AS appended,
            0 AS claims, 0 AS acks, 0 AS failures, 0 AS run_ms
        FROM $jobs WHERE appended IS NOT NULL GROUP BY 1, 2, 3
        UNION ALL
        SELECT topic, tag, bucket, 0, count(CASE WHEN is_claim THEN 1 END),
            count(CASE WHEN NOT is_claim AND outcome = 'acked' THEN 1 END),
            count(CASE WHEN NOT is_claim AND is_failure THEN 1 END),
            sum(CASE WHEN NOT is_claim THEN run_ms END)
        FROM (SELECT *, CASE WHEN is_claim THEN {scope.bucket_of("claimed")}
                ELSE {scope.bucket_of("ended")} END AS bucket
            FROM $attempts CROSS JOIN (VALUES (true), (false)) AS ends(is_claim))
        WHERE bucket IS NOT NULL GROUP BY 1, 2, 3"""
    sums = ", ".join(
        f"sum({name}) AS {name}" for name in ("appended", "claims", "acks", "failures", "run_ms")
    )
    return f"""
        SELECT topic, tag, bucket, {sums} FROM ({_of_top_tags(counted)})
        GROUP BY GROUPING SETS ((topic, tag, bucket), (topic, tag))"""


def _workers(dialect: Dialect) -> str:
    counted = f"""
        SELECT topic, worker, tag, count(*) AS claims,
            count(CASE WHEN outcome = 'acked' THEN 1 END) AS acks,
            count(CASE WHEN is_failure THEN 1 END) AS failures,
            coalesce(sum(run_ms), 0) AS run_ms, {dialect.quantiles("acked_ms", _OF_RUNS)}
        FROM (SELECT *, CASE WHEN outcome = 'acked' THEN run_ms END AS acked_ms FROM $attempts)
        GROUP BY 1, 2, 3"""
    return worst(counted, "topic", "claims DESC, worker NULLS FIRST, tag NULLS FIRST")
