"""What all reports read, as relations: jobs, attempts and steps with times as numbers, and what
several reports share.

Owns: these relations. Must not know: a single report, where the tables `jobs` and `attempts` are.

A text names relations as `$jobs`; who runs it puts in the names that they have in its engine. All
times are ms since the epoch, so that buckets are whole numbers, and a bucket is its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from logqueue.pipeline.lifecycle.job_history import OPEN_STATES
from logqueue.pipeline.reports.queries.dialect import Dialect, broadcast

SHARED = frozenset(
    (
        "flows",
        "latencies",
        "usual_runs",
        "worker_buckets",
        "failed",
        "job_counts",
        "topic_jobs",
        "top_tags",
    )
)
"""Relations that are small beside the jobs, and cost a pass over them: worth to be made once where
reports read them several times. The others are read again; columns make that cheap."""
TAGS_MAX = 50
"""Tags of each topic that breakdowns by tag have rows of."""
SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class ReportScope:
    """What a run reports on.

    Attributes:
        start, end: Of the range, ms since the epoch.
        bucket: Length of a bucket, ms.
        rules: Limits, ms by rule.
    """

    start: int
    end: int
    bucket: int
    rules: Mapping[str, int]

    @property
    def last(self) -> int:
        """The bucket that the range ends in."""
        return self.end - self.end % self.bucket

    @property
    def length(self) -> int:
        """Of the range, ms; at least 1."""
        return max(self.end - self.start, 1)

    def bucket_of(self, at: str) -> str:
        """The bucket of a time."""
        return f"({at} - {at} % {self.bucket})"


def first_line(text: str) -> str:
    """The first line of an error, cut to what can be grouped by."""
    return f"substr(split_part({text}, chr(10), 1), 1, 200)"


def worst(rows: str, within: str, order: str, most: int = 1000) -> str:
    """The first rows of each group in an order.

    Both engines see `row_number` below a limit as a top-N: each task keeps its first rows of a
    group before any rows move, so that no single task sees
    all rows of a hot topic.
    """
    ranked = f"SELECT *, row_number() OVER (PARTITION BY {within} ORDER BY {order}) AS place"
    return f"SELECT * FROM ({ranked} FROM ({rows})) WHERE place <= {most}"


def sources(scope: ReportScope, dialect: Dialect) -> dict[str, str]:
    """Relations by name, from `$raw_jobs` and `$raw_attempts`, the tables as they are stored."""
    return {
        "jobs": _jobs(dialect),
        "attempts": _attempts(dialect),
        "steps": _steps(dialect),
        "flows": _flows(scope),
        "measured": _measured(scope),
        "latencies": _latencies(dialect),
        "usual_runs": _usual_runs(dialect),
        "worker_buckets": _worker_buckets(scope, dialect),
        "failed": _failed(dialect),
        "job_counts": _JOB_COUNTS,
        "topic_jobs": "SELECT topic, sum(jobs) AS jobs FROM $job_counts GROUP BY topic",
        "top_tags": _TOP_TAGS,
    }


def _jobs(dialect: Dialect) -> str:
    times = ", ".join(
        f"{dialect.millis(f'{name}_at')} AS {name}"
        for name in ("appended", "ready", "first_claim", "finished")
    )
    return (
        f"SELECT topic, log_id, seq, tag, key, {times}, state, attempts, wait_ms, e2e_ms, variant "
        "FROM $raw_jobs"
    )


def _attempts(dialect: Dialect) -> str:
    """With `is_failure`: the lease ended, not in an ack, and was not handed back unstarted."""
    return f"""
        SELECT topic, log_id, job_seq AS seq, lease_id, worker, tag, key,
            {dialect.millis("claimed_at")} AS claimed, {dialect.millis("ended_at")} AS ended,
            outcome, reason, {first_line("error")} AS error, extensions, run_ms,
            outcome NOT IN ('acked', 'open') AND coalesce(reason, '') <> 'hand_back' AS is_failure
        FROM $raw_attempts"""


def _steps(dialect: Dialect) -> str:
    """A row per step of a job, exploded once for all reports: what happened (`activity`) when
    (`at_ms`), the job's state after it and until when it was so (`left_ms`), and what happened
    next (`to_step`, `to_ms`). No one causes the end of a delay, so `ready` is not what is next."""
    fields = ["step_activity", "step_at", "step_state", "next_activity", "next_at"]
    fields += ["after_activity", "after_at"]
    passed = "next_activity = 'ready'"
    return f"""
        SELECT topic, {dialect.millis("ready_at")} AS ready, step_activity AS activity,
            {dialect.millis("step_at")} AS at_ms, step_state AS state,
            {dialect.millis("next_at")} AS left_ms,
            CASE WHEN {passed} THEN after_activity ELSE next_activity END AS to_step,
            {dialect.millis(f"CASE WHEN {passed} THEN after_at ELSE next_at END")} AS to_ms
        FROM {dialect.steps("$raw_jobs", "topic, ready_at", fields)}"""


def _flows(scope: ReportScope) -> str:
    """Steps, counted by the bucket in which they happened and the one in which the next did."""
    return f"""
        SELECT topic, {scope.bucket_of("at_ms")} AS bucket, {scope.bucket_of("left_ms")} AS gone,
            activity, state, count(*) AS n, min(least(coalesce(ready, at_ms), at_ms)) AS oldest
        FROM $steps GROUP BY 1, 2, 3, 4, 5"""


def _measured(scope: ReportScope) -> str:
    """What percentiles are of: topic, tag, metric, bucket, ms, and 1 as `waiting` for a job that
    no worker had claimed when the range ended: it has waited so long at least."""
    of_jobs = f"""
        SELECT topic, tag, metric,
            CASE WHEN metric = 'e2e' THEN finished ELSE first_claim END AS at_ms,
            CASE WHEN metric = 'e2e' THEN CASE WHEN state = 'acked' THEN e2e_ms END
                WHEN first_claim IS NOT NULL THEN wait_ms
                WHEN state = 'ready' AND ready <= {scope.end} THEN {scope.end} - ready END AS ms
        FROM $jobs CROSS JOIN (VALUES ('wait'), ('e2e')) AS metrics(metric)"""
    return f"""
        SELECT topic, tag, metric, coalesce({scope.bucket_of("at_ms")}, {scope.last}) AS bucket, ms,
            CASE WHEN at_ms IS NULL THEN 1 ELSE 0 END AS waiting
        FROM ({of_jobs}) WHERE ms IS NOT NULL
        UNION ALL
        SELECT topic, tag, 'run', {scope.bucket_of("ended")}, run_ms, 0
        FROM $attempts WHERE outcome = 'acked' AND run_ms IS NOT NULL"""


def _latencies(dialect: Dialect) -> str:
    """Percentiles by topic, and by tag for the most frequent tags, each by bucket and over the
    whole range, in one pass. All other tags of a topic are one, which no report shows."""
    named = f"""
        SELECT {broadcast("chosen")} m.topic AS topic, m.metric AS metric, m.bucket AS bucket,
            m.ms AS ms, m.waiting AS waiting, chosen.topic IS NOT NULL AS is_top,
            CASE WHEN chosen.topic IS NOT NULL THEN m.tag END AS tag
        FROM $measured AS m LEFT JOIN $top_tags AS chosen
            ON m.topic = chosen.topic AND m.tag IS NOT DISTINCT FROM chosen.tag"""
    return f"""
        SELECT topic, tag, is_top, grouping(tag) = 1 AS is_topic, bucket, metric, count(*) AS n,
            {dialect.quantiles("ms", SHARES)}, max(ms) AS max, sum(waiting) AS waiting
        FROM ({named})
        GROUP BY GROUPING SETS ((topic, metric, bucket), (topic, metric),
            (topic, tag, is_top, metric, bucket), (topic, tag, is_top, metric))"""


def _usual_runs(dialect: Dialect) -> str:
    """How long leases take that end in an ack, by tag and (`is_topic`) by topic."""
    return f"""
        SELECT topic, tag, grouping(tag) = 1 AS is_topic, count(*) AS n,
            {dialect.quantiles("run_ms", {"p90": 0.9, "p99": 0.99})}
        FROM $attempts WHERE outcome = 'acked' AND run_ms IS NOT NULL
        GROUP BY GROUPING SETS ((topic, tag), (topic))"""


def _worker_buckets(scope: ReportScope, dialect: Dialect) -> str:
    """What each worker did in each bucket, and (bucket null) over the whole range.

    A lease counts as busy in every bucket it touches, with the part that falls into it.
    """
    leases = f"""
        SELECT topic, worker, claimed, ended, coalesce(ended, {scope.end}) AS until, outcome,
            is_failure, run_ms
        FROM $attempts"""
    first, last = scope.bucket_of("claimed"), scope.bucket_of("until")
    spread = f"SELECT *, {dialect.series(first, last, scope.bucket)} AS bucket FROM ({leases})"
    is_end = f"(ended IS NOT NULL AND bucket = {last})"
    end_of_bucket = f"bucket + {scope.bucket}"
    return f"""
        SELECT topic, worker, bucket,
            count(CASE WHEN bucket = {first} THEN 1 END) AS claims,
            count(CASE WHEN {is_end} AND outcome = 'acked' THEN 1 END) AS acks,
            count(CASE WHEN {is_end} AND is_failure THEN 1 END) AS failures,
            sum(least(until, {end_of_bucket}) - greatest(claimed, bucket)) AS busy_ms,
            {dialect.quantiles("acked_ms", {"p95_run": 0.95})},
            coalesce(sum(CASE WHEN {is_end} THEN run_ms END), 0) AS run_ms,
            count(CASE WHEN {is_end} THEN 1 END) AS ended
        FROM (SELECT *, CASE WHEN {is_end} AND outcome = 'acked' THEN run_ms END AS acked_ms
            FROM ({spread}))
        GROUP BY GROUPING SETS ((topic, worker, bucket), (topic, worker))"""


def _failed(dialect: Dialect) -> str:
    """Leases that did not end in an ack, and jobs that ended badly without a lease."""
    end, before = (dialect.element("steps", place) for place in (-1, -2))
    return f"""
        SELECT topic, log_id, seq, outcome, coalesce(error, reason, '') AS reason, ended AS at_ms
        FROM $attempts WHERE is_failure
        UNION ALL
        SELECT topic, log_id, seq, ({end}).activity,
            coalesce({first_line("last_error")}, last_reason, ''), {dialect.millis("finished_at")}
        FROM $raw_jobs
        WHERE state = 'expired' OR (state IN ('dead_lettered', 'rejected', 'dropped')
            AND coalesce(({before}).state, '') <> 'in_flight')"""


_JOB_COUNTS = """
    SELECT topic, state, least(attempts, 20) AS shown, count(*) AS jobs, sum(attempts) AS attempts
    FROM $jobs GROUP BY 1, 2, 3"""

_TOP_TAGS = worst(
    "SELECT topic, tag, count(*) AS n FROM $jobs GROUP BY topic, tag",
    "topic",
    "n DESC, tag NULLS FIRST",
    TAGS_MAX,
)

IS_OPEN = ", ".join(f"'{state}'" for state in OPEN_STATES)
"""Open states, as a list in SQL."""
