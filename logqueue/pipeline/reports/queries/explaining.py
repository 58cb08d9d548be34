"""The SQL of explanations: what was counted in stretches of time, and what single values bring.

Owns: these texts. Must not know: what is unusual, how a text is run.

Texts name the relations `$jobs` and `$attempts`, and those of `slow_runs`: these are made once, so
that engines know how small they are when they join them, and keep no rows but theirs. Topics are
named by their place among the busiest, so that no name is ever part of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logqueue.pipeline.reports.queries.dialect import Dialect

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


def slow_runs(dialect: Dialect) -> dict[str, str]:
    """How long the slowest tenth of the acked runs takes at least, by topic and by tag."""
    p90 = dialect.quantiles("run_ms", {"slow": 0.9})
    acked = "FROM $attempts WHERE outcome = 'acked' AND run_ms IS NOT NULL"
    return {
        "slow_of_topic": f"SELECT topic, {p90} {acked} GROUP BY topic",
        "slow_of_tag": f"""
            SELECT topic, tag, {p90} {acked} AND tag IS NOT NULL
            GROUP BY topic, tag HAVING count(*) >= {RUNS_OF_TAG_MIN}""",
    }


def windows(width: int, end: int, dialect: Dialect) -> str:
    """How many there are, how many of them are bad, and their ms: by topic, metric and stretch."""
    return f"""
        {_events(end, dialect)}
        SELECT e.place, max(e.topic) AS topic, e.metric, e.at_ms - e.at_ms % {width} AS win,
            count(*) AS n, CAST(sum(e.bad) AS BIGINT) AS bad, CAST(sum(e.ms) AS BIGINT) AS ms
        FROM events e GROUP BY 1, 3, 4"""


def contributions(chosen: Sequence[Stretch], end: int, dialect: Dialect) -> str:
    """Of each stretch, the values with the most of what is bad: id, dim, value, what was counted in
    the stretch (n, bad, ms) and in the whole range (n_all, bad_all, ms_all); the error that most
    of its failures in the stretch have, and how many."""
    inside = "d.at_ms >= c.since AND d.at_ms < c.until"
    return f"""
        {_events(end, dialect)},
        chosen AS ({_values(chosen)}),
        {dialect.streamed("dims", _dims())},
        hits AS (
            SELECT c.id, c.place, c.metric, c.since, c.until, d.dim, d.value, count(*) AS hits
            FROM dims d JOIN chosen c ON d.place = c.place AND d.metric = c.metric
            WHERE d.bad = 1 AND {inside}
            GROUP BY 1, 2, 3, 4, 5, 6, 7),
        candidates AS (
            SELECT * FROM (SELECT *, row_number() OVER (
                PARTITION BY id, dim ORDER BY hits DESC, value) AS nth FROM hits)
            WHERE nth <= {VALUES_MAX}),
        by_error AS (
            SELECT c.id, c.dim, c.value, d.error,
                count(CASE WHEN {inside} THEN 1 END) AS n,
                CAST(coalesce(sum(CASE WHEN {inside} THEN d.bad END), 0) AS BIGINT) AS bad,
                CAST(coalesce(sum(CASE WHEN {inside} THEN d.ms END), 0) AS BIGINT) AS ms,
                count(*) AS n_all, CAST(sum(d.bad) AS BIGINT) AS bad_all,
                CAST(sum(d.ms) AS BIGINT) AS ms_all
            FROM dims d JOIN candidates c
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
            SELECT c.id, e.worker AS value, count(CASE WHEN {inside} THEN 1 END) AS n,
                count(*) AS n_all
            FROM events e JOIN chosen c ON e.place = c.place AND e.metric = c.metric
            WHERE e.worker IS NOT NULL GROUP BY 1, 2)
        SELECT id, value, n, n_all FROM (SELECT *, row_number() OVER (
            PARTITION BY id ORDER BY n_all DESC, value) AS nth FROM counted)
        WHERE nth <= 50 ORDER BY 1, 2"""


def _values(chosen: Sequence[Stretch]) -> str:
    return " UNION ALL ".join(
        f"SELECT {one.id} AS id, {one.place} AS place, '{one.metric}' AS metric, "
        f"CAST({one.since} AS BIGINT) AS since, CAST({one.until} AS BIGINT) AS until"
        for one in chosen
    )


def _dims() -> str:
    """A row per event and kind of value that it has."""
    kinds = {
        "worker": ("failures", "runs"),
        "tag": ("failures", "runs", "arrivals"),
        "key": ("failures", "runs", "arrivals"),
        "error": ("failures",),
        "outcome": ("failures",),
    }
    return " UNION ALL ".join(
        f"SELECT place, metric, at_ms, '{dim}' AS dim, {dim} AS value, error, bad, "
        "ms FROM events "
        f"WHERE {dim} IS NOT NULL AND metric IN ({', '.join(repr(one) for one in metrics)})"
        for dim, metrics in kinds.items()
    )


def _events(end: int, dialect: Dialect) -> str:
    """All that is counted: place, topic, metric, at_ms, worker, tag, key, error, outcome (of
    failures without an error), bad, ms.

    A run is bad when it takes as long as the slowest tenth of the runs with its tag.
    """
    return f"""
        WITH busiest AS (
            SELECT topic, CAST(row_number() OVER (ORDER BY n DESC, topic) AS INT) AS place
            FROM (SELECT topic, count(*) AS n FROM $jobs GROUP BY topic
                ORDER BY n DESC, topic LIMIT {TOPICS_MAX})),
        {dialect.streamed("events", _counted(end))}"""


def _counted(end: int) -> str:
    """Rows of all that is counted; far more than any other relation here has."""
    no = "CAST(NULL AS STRING)"
    of_job = f"{no} AS worker, j.tag AS tag, j.key AS key, {no} AS error, {no} AS outcome"
    of_lease = "a.worker AS worker, a.tag AS tag, a.key AS key"
    return f"""
        SELECT b.place, b.topic, 'failures' AS metric, a.ended AS at_ms, {of_lease},
            CASE WHEN a.is_failure THEN a.error END AS error,
            CASE WHEN a.is_failure AND a.error IS NULL THEN a.outcome END AS outcome,
            CASE WHEN a.is_failure THEN 1 ELSE 0 END AS bad, CAST(0 AS BIGINT) AS ms
        FROM $attempts a JOIN busiest b ON a.topic = b.topic
        WHERE a.ended IS NOT NULL AND (a.outcome = 'acked' OR a.is_failure)
        UNION ALL
        SELECT b.place, b.topic, 'runs', a.ended, {of_lease}, {no}, {no},
            CASE WHEN a.run_ms >= coalesce(t.slow, s.slow) THEN 1 ELSE 0 END, a.run_ms
        FROM $attempts a JOIN busiest b ON a.topic = b.topic
            JOIN $slow_of_topic s ON a.topic = s.topic
            LEFT JOIN $slow_of_tag t ON a.topic = t.topic AND a.tag = t.tag
        WHERE a.outcome = 'acked' AND a.run_ms IS NOT NULL AND a.ended IS NOT NULL
        UNION ALL
        SELECT b.place, b.topic, 'claims', a.claimed, {of_lease}, {no}, {no}, 0,
            CAST(0 AS BIGINT)
        FROM $attempts a JOIN busiest b ON a.topic = b.topic WHERE a.claimed IS NOT NULL
        UNION ALL
        SELECT b.place, b.topic, 'arrivals', j.appended, {of_job}, 1, CAST(0 AS BIGINT)
        FROM $jobs j JOIN busiest b ON j.topic = b.topic WHERE j.appended IS NOT NULL
        UNION ALL
        SELECT b.place, b.topic, 'ended', j.finished, {of_job}, 0, CAST(0 AS BIGINT)
        FROM $jobs j JOIN busiest b ON j.topic = b.topic WHERE j.finished IS NOT NULL
        UNION ALL
        SELECT b.place, b.topic, 'waits', j.first_claim, {of_job}, 0, j.wait_ms
        FROM $jobs j JOIN busiest b ON j.topic = b.topic
        WHERE j.first_claim IS NOT NULL AND j.wait_ms IS NOT NULL
        UNION ALL
        SELECT b.place, b.topic, 'waits', CAST({end} AS BIGINT), {of_job}, 0, {end} - j.ready
        FROM $jobs j JOIN busiest b ON j.topic = b.topic
        WHERE j.state = 'ready' AND j.first_claim IS NULL AND j.ready <= {end}"""
