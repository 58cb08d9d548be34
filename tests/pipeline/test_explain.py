"""Explanations: what was put into a log is named and nothing else; a uniform log has none."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
import pytest

from logqueue.pipeline.reports.contribution import Contribution
from logqueue.pipeline.reports.explain import explanations, find, width_of
from logqueue.pipeline.reports.page.numbers import DAY, HOUR, MINUTE
from logqueue.pipeline.reports.queries.definitions import Definitions
from logqueue.pipeline.reports.queries.dialect import DUCKDB, Dialect
from logqueue.pipeline.reports.queries.explaining import (
    Stretch,
    contributions,
    presence,
    windows,
)
from logqueue.pipeline.reports.queries.sources import ReportScope
from tests.effort import scaled

START = 1_772_409_600_000
HOURS = 24
END = START + HOURS * HOUR
SCOPE = ReportScope(START, END, MINUTE, {})
WORKERS = tuple(f"w{n}" for n in range(6))
TAGS = ("mail", "invoice", "import", None)
BAD_HOUR = 15


@dataclass
class Job:
    """A job of a log, and what may be changed about it."""

    hour: int
    at: int
    tag: str | None
    key: str | None
    worker: str
    run: float
    wait: float
    fails: float
    error: str = "TimeoutError: no answer"
    fails_with: str | None = None
    """The worker that it fails with; None for any."""


Change = Callable[[Job, random.Random], None]


@dataclass
class Log:
    """A made-up log: jobs arrive at random, all hours alike, and something is changed."""

    seed: int
    change: Change = lambda job, chance: None
    an_hour: int = 150
    more: Callable[[int], int] = lambda hour: 0
    extra_tag: str | None = "import"
    topic: str = "mail"
    jobs: list[dict[str, object]] = field(default_factory=list)
    attempts: list[dict[str, object]] = field(default_factory=list)

    def made(self) -> Log:
        """With its jobs and leases."""
        chance = random.Random(self.seed)
        for hour in range(HOURS):
            extra = self.more(hour)
            for n in range(self.an_hour + chance.randrange(-12, 13) + extra):
                tag = self.extra_tag if n < extra else chance.choice(TAGS)
                job = Job(
                    hour,
                    START + hour * HOUR + chance.randrange(HOUR - 5 * MINUTE),
                    tag,
                    f"customer-{chance.randrange(60)}" if chance.random() < 0.7 else None,
                    chance.choice(WORKERS),
                    chance.lognormvariate(7, 0.5),
                    chance.expovariate(1 / 300),
                    0.03,
                )
                self.change(job, chance)
                self._add(job, chance)
        return self

    def _add(self, job: Job, chance: random.Random) -> None:
        seq = len(self.jobs) + 1
        named = {"topic": self.topic, "log_id": "l", "seq": seq, "tag": job.tag, "key": job.key}
        at = job.at + int(job.wait)
        for attempt in range(3):
            worker = job.worker if attempt == 0 else chance.choice(WORKERS)
            is_likely = job.fails_with is None or worker == job.fails_with
            fails = chance.random() < (job.fails if is_likely else 0.03)
            ended = at + int(job.run)
            self.attempts.append(
                {**named, "worker": worker, "claimed": at, "ended": ended, "run_ms": int(job.run)}
                | {"outcome": "released" if fails else "acked", "reason": "nack" if fails else None}
                | {"error": job.error if fails else None, "is_failure": fails}
            )
            if not fails:
                break
            at = ended + 1000
        self.jobs.append(
            {**named, "appended": job.at, "ready": job.at, "first_claim": job.at + int(job.wait)}
            | {"finished": ended, "state": "acked", "wait_ms": int(job.wait)}
        )


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory."""
    opened = duckdb.connect()
    opened.execute("SET threads=1")
    yield opened
    opened.close()


_JOBS = pa.schema(
    [("topic", pa.string()), ("log_id", pa.string()), ("seq", pa.int64()), ("tag", pa.string())]
    + [("key", pa.string())]
    + [(name, pa.int64()) for name in ("appended", "ready", "first_claim", "finished", "wait_ms")]
    + [("state", pa.string())]
)
_ATTEMPTS = pa.schema(
    [("topic", pa.string()), ("log_id", pa.string()), ("seq", pa.int64()), ("tag", pa.string())]
    + [("key", pa.string()), ("worker", pa.string()), ("outcome", pa.string())]
    + [("reason", pa.string()), ("error", pa.string()), ("is_failure", pa.bool_())]
    + [(name, pa.int64()) for name in ("claimed", "ended", "run_ms")]
)


def further_relations(dialect: Dialect) -> dict[str, str]:
    """The relations besides these two that explanations are made from, each after those that it
    needs itself."""
    texts = Definitions.of(SCOPE, dialect).texts
    counts = {"job_counts": "SELECT topic, count(*) AS jobs FROM $jobs GROUP BY topic"}
    return counts | {name: texts[name] for name in ("topic_jobs", "usual_runs")}


def ask_of(connection: duckdb.DuckDBPyConnection, *logs: Log) -> Callable[[str], pa.Table]:
    """Answers questions about these logs."""
    jobs = [job for log in logs for job in log.jobs]
    attempts = [attempt for log in logs for attempt in log.attempts]
    connection.register("jobs", pa.Table.from_pylist(jobs, schema=_JOBS))
    connection.register("attempts", pa.Table.from_pylist(attempts, schema=_ATTEMPTS))
    for name, text in further_relations(DUCKDB).items():
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {text.replace('$', '')}")
    return lambda text: connection.sql(text.replace("$", "")).to_arrow_table()


def found(connection: duckdb.DuckDBPyConnection, *logs: Log) -> list[Contribution]:
    return find(ask_of(connection, *logs), START, END, DUCKDB)


def causes(findings: list[Contribution]) -> set[tuple[str, str]]:
    return {(one.cause, one.value) for one in findings}


@pytest.mark.parametrize("seed", range(scaled(3, 6)))
def test_nothing_is_said_of_a_uniform_log(connection: duckdb.DuckDBPyConnection, seed: int) -> None:
    assert found(connection, Log(seed).made()) == []


def test_each_text_reads_each_table_once() -> None:
    chosen = [Stretch(0, 1, "runs", START, END)]
    texts = (
        windows(HOUR, END, DUCKDB),
        contributions(chosen, END, DUCKDB),
        presence(chosen, END, DUCKDB),
    )
    for text in texts:
        assert (text.count("$attempts"), text.count("$jobs")) == (1, 1)


def always_slow(job: Job, chance: random.Random) -> None:
    job.run *= 4 if job.worker == "w3" else 1


def slow_for_an_hour(job: Job, chance: random.Random) -> None:
    job.run *= 5 if job.worker == "w3" and job.hour == BAD_HOUR else 1


def failing_tag(job: Job, chance: random.Random) -> None:
    if job.tag == "invoice" and job.hour == BAD_HOUR:
        job.fails, job.error = 0.8, "ValueError: no such invoice"


def always_failing_tag(job: Job, chance: random.Random) -> None:
    job.fails = 0.5 if job.tag == "invoice" else 0.02


def poisoned_key(job: Job, chance: random.Random) -> None:
    if job.hour == BAD_HOUR and chance.random() < 0.15:
        job.key, job.fails, job.error = "customer-88", 1.0, "KeyError: address"


def outage(job: Job, chance: random.Random) -> None:
    if job.hour == BAD_HOUR:
        job.fails, job.error = 0.7, "ConnectionError: mail server is down"


def failing_worker(job: Job, chance: random.Random) -> None:
    if job.hour == BAD_HOUR:
        job.fails, job.fails_with = 0.7, "w1"


@pytest.mark.parametrize("seed", range(scaled(2, 3)))
@pytest.mark.parametrize(
    ("change", "cause", "name"),
    [
        (always_slow, "worker", "w3"),
        (slow_for_an_hour, "worker", "w3"),
        (failing_tag, "tag", "invoice"),
        (always_failing_tag, "tag", "invoice"),
        (poisoned_key, "key", "customer-88"),
        (outage, "error", "ConnectionError: mail server is down"),
        (failing_worker, "worker", "w1"),
    ],
)
def test_what_was_put_in_is_named_and_nothing_else(
    connection: duckdb.DuckDBPyConnection, change: Change, cause: str, name: str, seed: int
) -> None:
    logs = Log(seed, change).made(), Log(seed + 100, topic="quiet", an_hour=40).made()
    findings = found(connection, *logs)
    assert causes(findings) == {(cause, name)}, findings
    assert {one.question.topic for one in findings} == {"mail"}
    table = explanations(ask_of(connection, *logs), SCOPE, DUCKDB)
    said = table["sentence"][0].as_py()
    assert name in said and said.startswith("mail: ") and said.endswith("."), said


def long_waits(job: Job, chance: random.Random) -> None:
    job.wait *= 40 if job.hour == BAD_HOUR else 1


@pytest.mark.parametrize("tag", ["import", "rare"])
def test_a_burst_of_arrivals_is_why_jobs_wait(
    connection: duckdb.DuckDBPyConnection, tag: str
) -> None:
    log = Log(5, long_waits, more=lambda hour: 900 * (hour == BAD_HOUR), extra_tag=tag).made()
    findings = found(connection, log)
    assert causes(findings) == {("tag", tag)}
    assert findings[0].question.metric == "arrivals"
    assert findings[0].share > 0.8


def test_a_burst_of_all_tags_is_no_single_tag(connection: duckdb.DuckDBPyConnection) -> None:
    def mixed(job: Job, chance: random.Random) -> None:
        long_waits(job, chance)
        job.tag = chance.choice(TAGS)

    log = Log(6, mixed, more=lambda hour: 900 * (hour == BAD_HOUR)).made()
    assert causes(found(connection, log)) == {("arrivals", "")}


def test_what_is_named_comes_before_mere_arrivals(connection: duckdb.DuckDBPyConnection) -> None:
    def mixed(job: Job, chance: random.Random) -> None:
        long_waits(job, chance)
        job.tag = chance.choice(TAGS)

    burst = Log(6, mixed, more=lambda hour: 900 * (hour == BAD_HOUR), topic="burst").made()
    findings = found(connection, burst, Log(0, failing_tag, an_hour=60).made())
    assert [one.cause for one in findings] == ["tag", "arrivals"]
    assert findings[0].weight < findings[1].weight


def test_missing_workers_are_why_jobs_wait(connection: duckdb.DuckDBPyConnection) -> None:
    def gone(job: Job, chance: random.Random) -> None:
        long_waits(job, chance)
        if job.hour == BAD_HOUR and job.worker in ("w0", "w1", "w2"):
            job.worker = "w5"
        job.fails = 0.0

    findings = found(connection, Log(7, gone).made())
    assert causes(findings) == {("missing", "w0, w1, w2")}


def test_failures_without_an_error_are_named_by_how_they_ended(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    log = Log(3, outage).made()
    for attempt in log.attempts:
        if attempt["is_failure"]:
            attempt |= {"error": None, "outcome": "expired"}
    assert causes(found(connection, log)) == {("outcome", "expired")}


def test_a_few_failures_are_no_evidence(connection: duckdb.DuckDBPyConnection) -> None:
    def few(job: Job, chance: random.Random) -> None:
        job.fails = 1.0 if job.hour == BAD_HOUR and job.key == "customer-1" else 0.0

    assert found(connection, Log(8, few, an_hour=60).made()) == []


def test_texts_of_a_log_are_never_part_of_sql(connection: duckdb.DuckDBPyConnection) -> None:
    def quoted(job: Job, chance: random.Random) -> None:
        failing_tag(job, chance)
        job.tag = "it's; DROP TABLE \\'" if job.tag == "invoice" else job.tag

    log = Log(9, quoted, topic="a'; --").made()
    assert causes(found(connection, log)) == {("tag", "it's; DROP TABLE \\'")}


def test_an_empty_log_says_nothing(connection: duckdb.DuckDBPyConnection) -> None:
    table = explanations(ask_of(connection, Log(1)), ReportScope(0, 0, MINUTE, {}), DUCKDB)
    assert table.num_rows == 0 and "sentence" in table.column_names


@pytest.mark.parametrize(
    ("length", "width"),
    [
        (0, 1000),
        (MINUTE, 5000),
        (10 * MINUTE, 30_000),
        (HOUR, 5 * MINUTE),
        (13 * HOUR, HOUR),
        (28 * DAY, HOUR),
        (90 * DAY, 6 * HOUR),
    ],
)
def test_stretches_are_an_hour_or_what_the_range_has_some_of(length: int, width: int) -> None:
    assert width_of(START, START + length) == width
