"""The SQL of explanations: what was counted in stretches of time, and what single values bring.

Owns: these texts. Must not know: what is unusual, how a text is run.

Texts name the relations `$jobs` and `$attempts`, and `$topic_jobs` and `$usual_runs`; these two are
made once, so that engines know how small they are when they join them, and keep no rows but theirs.
Topics are named by their place among the busiest, so that no name is ever part of a text. What is
counted of a row are rows of a small relation beside it, so that each table is read once for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logqueue.pipeline.reports.queries.dialect import Dialect, broadcast

READS = 3 * "$jobs $attempts $topic_jobs $usual_runs "
"""What the three texts read."""
TOPICS_MAX = 100
VALUES_MAX = 12
"""Candidates of each kind that are looked at, those with the most of what is bad."""
RUNS_OF_TAG_MIN = 100
"""Runs from which on a tag has its own idea of slow."""


@dataclass(frozen=True)
class Stretch:
    """A stretch of time of a topic.

    Attributes:
        id: Named in the result.
        place: Of the topic among the busiest.
        metric: What is counted.
        since, until: When it begins and ends (exclusive), ms.
    """

    id: int
    place: int
    metric: str
    since: int
    until: int


def windows(width: int, end: int, dialect: Dialect) -> str:
    """How many there are, how many of them are bad, and their ms: by topic, metric and stretch."""
    return f"""
        {_events(end, dialect)}
        SELECT e.place, e.topic, e.metric, e.at_ms - e.at_ms % {width} AS win,
            count(*) AS n, CAST(sum(e.bad) AS BIGINT) AS bad, CAST(sum(e.ms) AS BIGINT) AS ms
        FROM events e GROUP BY 1, 2, 3, 4"""


def contributions(chosen: Sequence[Stretch], end: int, dialect: Dialect) -> str:
    """Of each stretch, the values with the most of what is bad: id, dim, value, what was counted in
    the stretch (n, bad, ms) and in the whole range (n_all, bad_all, ms_all); the error that most
    of its failures in the stretch have, and how many."""
    inside = "at_ms >= c.since AND at_ms < c.until"
    asked = f"""
        SELECT {broadcast("c")} e.*, c.id, c.since, c.until FROM events e
        JOIN chosen c ON e.place = c.place AND e.metric = c.metric
        WHERE e.bad = 1 AND {inside}"""
    return f"""
        {_events(end, dialect)},
        chosen AS ({_values(chosen)}),
        hits AS (
            SELECT id, place, metric, since, until, dim, value, count(*) AS hits
            FROM ({_by_value(f"({asked})")}) GROUP BY 1, 2, 3, 4, 5, 6, 7),
        candidates AS (
            SELECT * FROM (SELECT *, row_number() OVER (
                PARTITION BY id, dim ORDER BY hits DESC, value) AS nth FROM hits)
            WHERE nth <= {VALUES_MAX}),
        by_error AS (
            SELECT {broadcast("c")} c.id, c.dim, c.value, d.error,
                count(CASE WHEN {inside} THEN 1 END) AS n,
                CAST(coalesce(sum(CASE WHEN {inside} THEN d.bad END), 0) AS BIGINT) AS bad,
                CAST(coalesce(sum(CASE WHEN {inside} THEN d.ms END), 0) AS BIGINT) AS ms,
                count(*) AS n_all, CAST(sum(d.bad) AS BIGINT) AS bad_all,
                CAST(sum(d.ms) AS BIGINT) AS ms_all
            FROM ({_by_value("events")}) d JOIN candidates c
                ON d.place = c.place AND d.metric = c.metric AND d.dim = c.dim
                AND d.value = c.value
            GROUP BY 1, 2, 3, 4),
        ordered AS (SELECT *, row_number() OVER (
            PARTITION BY id, dim, value ORDER BY bad DESC, error) AS nth FROM by_error)
        SELECT id, dim, value, CAST(sum(n) AS BIGINT) AS n, CAST(sum(bad) AS BIGINT) AS bad,
            CAST(sum(ms) AS BIGINT) AS ms, CAST(sum(n_all) AS BIGINT) AS n_all,
            CAST(sum(bad_all) AS BIGINT) AS bad_all, CAST(sum(ms_all) AS BIGINT) AS ms_all,
            max(CASE WHEN nth = 1 THEN error END) AS error,
            CAST(max(CASE WHEN nth = 1 THEN bad END) AS BIGINT) AS error_bad
        FROM ordered GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""


def presence(chosen: Sequence[Stretch], end: int, dialect: Dialect) -> str:
    """Claims of each worker in a stretch (n) and in the whole range (n_all), of the busiest 50."""
    inside = "e.at_ms >= c.since AND e.at_ms < c.until"
    return f"""
        {_events(end, dialect)},
        chosen AS ({_values(chosen)}),
        counted AS (
            SELECT {broadcast("c")} c.id, e.worker AS value,
                count(CASE WHEN {inside} THEN 1 END) AS n, count(*) AS n_all
            FROM events e JOIN chosen c ON e.place = c.place AND e.metric = c.metric
            WHERE e.worker IS NOT NULL GROUP BY 1, 2)
        SELECT id, value, n, n_all FROM (SELECT *, row_number() OVER (
            PARTITION BY id ORDER BY n_all DESC, value) AS nth FROM counted)
        WHERE nth <= 50 ORDER BY 1, 2"""


def _values(chosen: Sequence[Stretch]) -> str:
    rows = ", ".join(
        f"({one.id}, {one.place}, '{one.metric}', {one.since}, {one.until})" for one in chosen
    )
    return (
        "SELECT id, place, metric, CAST(since AS BIGINT) AS since, CAST(until AS BIGINT) AS until "
        f"FROM (VALUES {rows}) AS listed(id, place, metric, since, until)"
    )


_KINDS = {
    "failures": ("worker", "tag", "key", "error", "outcome"),
    "runs": ("worker", "tag", "key"),
    "arrivals": ("tag", "key"),
}
"""Of what is counted, the kinds of values that may account for it."""


def _by_value(events: str) -> str:
    """A row per event and kind of value that it has: those of the event, `dim` and `value`."""
    kinds = ", ".join(f"('{metric}', '{dim}')" for metric, dims in _KINDS.items() for dim in dims)
    value = " ".join(f"WHEN '{dim}' THEN e.{dim}" for dim in _KINDS["failures"])
    return f"""
        SELECT * FROM (
            SELECT {broadcast("k")} e.*, k.dim, CASE k.dim {value} END AS value
            FROM {events} e JOIN (VALUES {kinds}) AS k(metric, dim) ON e.metric = k.metric)
        WHERE value IS NOT NULL"""


def _events(end: int, dialect: Dialect) -> str:
    """All that is counted: place, topic, metric, at_ms, worker, tag, key, error, outcome (of
    failures without an error), bad, ms.

    A run is bad when it takes as long as the slowest tenth of the runs with its tag.
    """
    return f"""
        WITH busiest AS (
            SELECT ranked.topic AS topic, place, usual.p90 AS slow
            FROM (SELECT topic, CAST(row_number() OVER (ORDER BY jobs DESC, topic) AS INT) AS place
                FROM (SELECT topic, jobs FROM $topic_jobs
                    ORDER BY jobs DESC, topic LIMIT {TOPICS_MAX})) AS ranked
            LEFT JOIN $usual_runs AS usual ON ranked.topic = usual.topic AND usual.is_topic),
        slow_tags AS (SELECT topic, tag, p90 AS slow FROM $usual_runs
            WHERE NOT is_topic AND n >= {RUNS_OF_TAG_MIN}),
        {dialect.streamed("events", f"SELECT * FROM ({_counted(end)}) WHERE at_ms IS NOT NULL")}"""


def _counted(end: int) -> str:
    """Rows of all that is counted, and of what is not, without `at_ms`; far more than any other
    relation here has."""
    no = "CAST(NULL AS STRING)"
    return f"""
        SELECT {broadcast("b", "t", "m")} b.place, b.topic, m.metric,
            CASE WHEN m.metric = 'claims' THEN a.claimed
                WHEN m.metric = 'runs' THEN
                    CASE WHEN a.outcome = 'acked' AND a.run_ms IS NOT NULL THEN a.ended END
                WHEN a.outcome = 'acked' OR a.is_failure THEN a.ended END AS at_ms,
            a.worker, a.tag, a.key,
            CASE WHEN m.metric = 'failures' AND a.is_failure THEN a.error END AS error,
            CASE WHEN m.metric = 'failures' AND a.is_failure AND a.error IS NULL
                THEN a.outcome END AS outcome,
            CASE WHEN m.metric = 'failures' AND a.is_failure
                OR m.metric = 'runs' AND a.run_ms >= coalesce(t.slow, b.slow)
                THEN 1 ELSE 0 END AS bad,
            CASE WHEN m.metric = 'runs' THEN a.run_ms ELSE 0 END AS ms
        FROM $attempts a JOIN busiest b ON a.topic = b.topic
            LEFT JOIN slow_tags t ON a.topic = t.topic AND a.tag = t.tag
            CROSS JOIN (VALUES ('failures'), ('runs'), ('claims')) AS m(metric)
        UNION ALL
        SELECT {broadcast("b", "m")} b.place, b.topic, m.metric,
            CASE WHEN m.metric = 'arrivals' THEN j.appended
                WHEN m.metric = 'ended' THEN j.finished
                WHEN j.first_claim IS NOT NULL THEN
                    CASE WHEN j.wait_ms IS NOT NULL THEN j.first_claim END
                WHEN j.state = 'ready' AND j.ready <= {end} THEN {end} END,
            {no}, j.tag, j.key, {no}, {no}, CASE WHEN m.metric = 'arrivals' THEN 1 ELSE 0 END,
            CASE WHEN m.metric <> 'waits' THEN 0
                WHEN j.first_claim IS NOT NULL THEN j.wait_ms ELSE {end} - j.ready END
        FROM $jobs j JOIN busiest b ON j.topic = b.topic
            CROSS JOIN (VALUES ('arrivals'), ('ended'), ('waits')) AS m(metric)"""
