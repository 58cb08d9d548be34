"""Reports over jobs: failures, limits, stuck leases, variants, outcomes, retries, waste, poison.

Owns: the SQL of each, from the relations of `sources`. Must not know: who runs it.
"""

from __future__ import annotations

from logqueue.pipeline.reports.queries.dialect import Dialect, broadcast
from logqueue.pipeline.reports.queries.sources import ReportScope, worst

EXTENSIONS_MAX = 10
"""A lease that was extended more often looks stuck."""
TIMES_P99 = 3
"""So does one that is held longer than this many times the 99th percentile of runs."""
WAYS_OVER_TIME = 20
"""Ways to fail of each topic that have rows of their own in `report_failures_over_time`."""

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


def of_jobs(scope: ReportScope, dialect: Dialect) -> dict[str, str]:
    """The SQL of each report over jobs, by the name of its table."""
    made = {
        "report_failures": _failures(),
        "report_failures_over_time": _failures_over_time(scope),
        "report_stuck": _stuck(scope, dialect),
        "report_variants": _variants(dialect),
        "report_dfg": _follows(dialect),
        "report_outcomes": _OUTCOMES,
        "report_retries": _RETRIES,
        "report_waste": _waste(scope),
        "report_poison": _poison(),
        "event_log": _event_log(dialect),
    }
    if scope.rules:
        made["report_sla"] = _breaches(scope, dialect)
        made["report_sla_summary"] = _kept_limits(scope)
    return made


def _failures() -> str:
    # First by job: so jobs are counted without keeping them all in one place.
    counted = """
        SELECT topic, outcome, reason, sum(n) AS n, count(*) AS jobs, min(first_at) AS first_at,
            max(last_at) AS last_at, min(seq) AS sample_seq
        FROM (SELECT topic, outcome, reason, log_id, seq, count(*) AS n, min(at_ms) AS first_at,
                max(at_ms) AS last_at
            FROM $failed GROUP BY 1, 2, 3, 4, 5)
        GROUP BY 1, 2, 3"""
    return worst(counted, "topic", "n DESC, outcome, reason")


def _failures_over_time(scope: ReportScope) -> str:
    ways = worst(
        "SELECT topic, outcome, reason, count(*) AS n FROM $failed GROUP BY 1, 2, 3",
        "topic",
        "n DESC, outcome, reason",
        WAYS_OVER_TIME,
    )
    return f"""
        SELECT counted.topic AS topic, counted.bucket AS bucket, ways.outcome AS outcome,
            ways.reason AS reason, sum(counted.n) AS n
        FROM (SELECT topic, {scope.bucket_of("at_ms")} AS bucket, outcome, reason, count(*) AS n
            FROM $failed GROUP BY 1, 2, 3, 4) AS counted
        LEFT JOIN ({ways}) AS ways ON counted.topic = ways.topic
            AND counted.outcome = ways.outcome AND counted.reason = ways.reason
        GROUP BY 1, 2, 3, 4"""


# -- limits ----------------------------------------------------------------------------------------


def _held_against(scope: ReportScope) -> str:
    """What is held against each limit: topic, rule, limit_ms, seq, since (ms) and value_ms. What is
    not over yet has taken as long as until the end of the range."""
    parts = {
        "wait": ("$jobs", "ready", "first_claim, finished"),
        "run": ("$attempts", "claimed", "ended"),
        "e2e": ("$jobs", "ready", "finished"),
    }
    return " UNION ALL ".join(
        f"""
        SELECT topic, '{rule}' AS rule, {scope.rules[rule]} AS limit_ms, seq, {since} AS since,
            greatest(coalesce({until}, {scope.end}) - {since}, 0) AS value_ms
        FROM {rows} WHERE {since} <= {scope.end}"""
        for rule, (rows, since, until) in parts.items()
        if rule in scope.rules
    )


def _breaches(scope: ReportScope, dialect: Dialect) -> str:
    at = dialect.name("at")
    over = f"""
        SELECT *, since + limit_ms AS {at} FROM ({_held_against(scope)})
        WHERE value_ms > limit_ms"""
    return worst(over, "topic, rule", f"value_ms DESC, seq, {at}")


def _kept_limits(scope: ReportScope) -> str:
    return f"""
        SELECT *, 1 - CAST(breaches AS DOUBLE) / measured AS kept_share
        FROM (SELECT topic, rule, limit_ms, count(*) AS measured,
                count(CASE WHEN value_ms > limit_ms THEN 1 END) AS breaches,
                max(value_ms) AS worst_ms
            FROM ({_held_against(scope)}) GROUP BY 1, 2, 3)"""


def _stuck(scope: ReportScope, dialect: Dialect) -> str:
    suspects = f"""
        SELECT {broadcast("usual")} held.topic AS topic, seq AS job_seq, lease_id, worker,
            claimed AS claimed_at, held_ms, extensions, outcome = 'open' AS {dialect.name("open")},
            concat_ws(',',
                CASE WHEN extensions > {EXTENSIONS_MAX} THEN 'extended' END,
                CASE WHEN held_ms > {TIMES_P99} * greatest(p99, 1) THEN 'long' END,
                CASE WHEN outcome = 'expired' THEN 'expired' END) AS why
        FROM (SELECT *, coalesce(run_ms, {scope.end} - claimed) AS held_ms FROM $attempts) AS held
        LEFT JOIN (SELECT topic, p99 FROM $usual_runs WHERE is_topic) AS usual
            ON held.topic = usual.topic"""
    found = f"SELECT * FROM ({suspects}) WHERE why <> ''"
    return worst(found, "topic", "held_ms DESC, job_seq, claimed_at")


# -- ways through the queue ------------------------------------------------------------------------


def _variants(dialect: Dialect) -> str:
    counted = f"""
        SELECT topic, variant, count(*) AS n,
            {dialect.quantiles("e2e_ms", {"median_e2e_ms": 0.5})}
        FROM $jobs GROUP BY 1, 2"""
    return f"""
        SELECT most.topic AS topic, variant, n, CAST(n AS DOUBLE) / topics.jobs AS share,
            median_e2e_ms
        FROM ({worst(counted, "topic", "n DESC, variant")}) AS most
        JOIN $topic_jobs AS topics ON most.topic = topics.topic"""


def _follows(dialect: Dialect) -> str:
    return f"""
        SELECT topic, activity AS from_step, to_step, count(*) AS n,
            {dialect.quantiles("gap", {"median_gap_ms": 0.5})}
        FROM (SELECT topic, activity, to_step, to_ms - at_ms AS gap FROM $steps
            WHERE activity <> 'ready' AND to_step IS NOT NULL)
        GROUP BY 1, 2, 3"""


def _event_log(dialect: Dialect) -> str:
    cases = " ".join(f"WHEN '{step}' THEN '{transition}'" for step, transition in _XES.items())
    fields = ("step_activity", "step_at", "step_worker")
    return f"""
        SELECT concat_ws('/', topic, log_id, CAST(seq AS STRING)) AS case_id,
            step_activity AS activity, CASE step_activity {cases} ELSE 'pi_abort' END AS lifecycle,
            {dialect.millis("step_at")} AS {dialect.name("timestamp")}, step_worker AS resource,
            topic, seq
        FROM {dialect.steps("$raw_jobs", "topic, log_id, seq", fields)}
        WHERE step_activity <> 'ready'"""


# -- totals ----------------------------------------------------------------------------------------

_OUTCOMES = """
    SELECT *, CAST(jobs AS DOUBLE) / in_topic AS share
    FROM (SELECT counts.topic AS topic, state, sum(counts.jobs) AS jobs,
            max(whole.jobs) AS in_topic,
            CAST(sum(attempts) AS DOUBLE) / sum(counts.jobs) AS mean_attempts
        FROM $job_counts AS counts JOIN $topic_jobs AS whole ON counts.topic = whole.topic
        GROUP BY 1, 2)"""

_RETRIES = """
    SELECT topic, shown AS attempts, sum(jobs) AS jobs,
        sum(CASE WHEN state = 'acked' THEN jobs ELSE 0 END) AS acked
    FROM $job_counts GROUP BY 1, 2"""


def _waste(scope: ReportScope) -> str:
    return f"""
        SELECT *, CAST(run_ms AS DOUBLE) / nullif(sum(run_ms) OVER (PARTITION BY topic), 0) AS share
        FROM (SELECT topic, outcome, count(*) AS attempts,
                sum(coalesce(run_ms, {scope.end} - claimed)) AS run_ms
            FROM $attempts GROUP BY 1, 2)"""


def _poison() -> str:
    def named(rows: str, columns: str) -> str:
        return " UNION ALL ".join(
            f"SELECT topic, '{kind}' AS kind, {kind} AS value, {columns} FROM ({rows}) AS {kind}s "
            f"WHERE {kind} IS NOT NULL"
            for kind in ("key", "tag")
        )

    # A job has one key and one tag, so jobs are counted before these are taken apart.
    failed_jobs = """
        SELECT topic, key, tag, log_id, seq, count(*) AS n, max(ended) AS at_ms,
            max(error) AS error
        FROM $attempts WHERE is_failure AND (key IS NOT NULL OR tag IS NOT NULL)
        GROUP BY 1, 2, 3, 4, 5"""
    failing = f"""
        SELECT * FROM (
            SELECT topic, kind, value, sum(n) AS failures, count(*) AS jobs, max(at_ms) AS last_at,
                max(error) AS sample_error
            FROM ({named(failed_jobs, "n, at_ms, error")}) GROUP BY 1, 2, 3)
        WHERE jobs >= 2"""
    acked = """
        SELECT topic, key, tag, count(*) AS n FROM $attempts
        WHERE outcome = 'acked' AND (key IS NOT NULL OR tag IS NOT NULL) GROUP BY 1, 2, 3"""
    return f"""
        SELECT bad.topic AS topic, bad.kind AS kind, bad.value AS value, failures, jobs,
            coalesce(acks, 0) AS acks, last_at, sample_error
        FROM ({worst(failing, "topic", "failures DESC, kind, value")}) AS bad
        LEFT JOIN (SELECT topic, kind, value, sum(n) AS acks FROM ({named(acked, "n")})
            GROUP BY 1, 2, 3) AS good
            ON bad.topic = good.topic AND bad.kind = good.kind AND bad.value = good.value"""
