"""A database of a job: how much memory it may use, what happens when that is too little."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logqueue.pipeline.engines.duckdb import connection
from logqueue.pipeline.engines.duckdb.connection import MEMORY_SETTING, memory_mb, opened
from logqueue.pipeline.engines.duckdb.reports import ReportRun
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reports.queries.dialect import DUCKDB
from logqueue.pipeline.reports.queries.explaining import Stretch, contributions, windows
from logqueue.pipeline.reports.queries.sources import ReportScope


def test_memory_is_limited_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MEMORY_SETTING, raising=False)
    assert 0 < memory_mb() <= 8192


@pytest.mark.parametrize(
    ("of_container", "limit"), [(2 << 30, 1024), (1 << 30, 512), (512 << 20, 256)]
)
def test_a_container_has_less_memory_than_its_machine(
    of_container: int, limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(MEMORY_SETTING, raising=False)
    files = [tmp_path / "unlimited", tmp_path / "limited", tmp_path / "missing"]
    files[0].write_text("max\n")
    files[1].write_text(f"{of_container}\n")
    monkeypatch.setattr(connection, "CONTAINER_LIMITS", tuple(map(str, files)))
    assert memory_mb() == limit


def test_a_job_that_needs_more_memory_than_it_may_use_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(MEMORY_SETTING, "64")
    with (
        pytest.raises(PipelineError, match=f"than the 64MiB.*{MEMORY_SETTING}"),
        opened() as database,
    ):
        database.execute("SELECT length(string_agg(repeat('x', 1000), '')) FROM range(200000)")
        database.execute("SELECT list(repeat('x', 1000) || range) FROM range(200000)")


@pytest.mark.parametrize("asked", ["8G", "63", "-100", "٣٣٣٣", str(1 << 32)])
def test_an_amount_of_memory_that_is_none_is_refused(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MEMORY_SETTING, asked)
    with pytest.raises(PipelineError, match=MEMORY_SETTING), opened():
        pass


MADE_JOBS = 60_000
KEPT_BYTES_MAX = 24 << 20
"""Of so many jobs and of many more; a copy of them takes twice as much."""


def test_explanations_keep_no_copy_of_what_they_count(tmp_path: Path) -> None:
    """What passes through a query is not kept: neither what is counted, nor the leases that are
    compared with what is usual for their tag."""
    profile = tmp_path / "profile.json"
    at = "to_timestamp(n // 100)::TIMESTAMP"
    named = f"'a' AS topic, '1' AS log_id, n AS seq, 'tag ' || n % 9 AS tag, NULL AS key, {at} AS"
    peaks = []
    with opened() as database:
        database.execute(
            f"CREATE VIEW raw_jobs AS SELECT {named} appended_at, {at} AS ready_at,"
            f"{at} AS first_claim_at, {at} AS finished_at, 'acked' AS state, 1 AS attempts,"
            f"n % 50 AS wait_ms, 1 AS e2e_ms, 'v' AS variant FROM range({MADE_JOBS}) AS r(n)"
        )
        database.execute(
            f"CREATE VIEW raw_attempts AS SELECT {named} claimed_at, n AS job_seq, "
            f"'l' AS lease_id, 'w' AS worker, {at} AS ended_at, 'acked' AS outcome, NULL AS reason,"
            f"NULL AS error, 0 AS extensions, n % 99 AS run_ms FROM range({MADE_JOBS}) AS r(n)"
        )
        run = ReportRun(database, ReportScope(0, 10 * MADE_JOBS, 60_000, {}))
        run.prepare(["report_explanations"])
        database.execute(
            f"SET enable_profiling = 'json'; SET profiling_output = '{profile}'; SET threads = 1"
        )
        whole = [
            Stretch(0, 1, "runs", 0, 10 * MADE_JOBS),
            Stretch(1, 1, "arrivals", 0, 10 * MADE_JOBS),
        ]
        for text in (
            windows(60_000, 10 * MADE_JOBS, DUCKDB),
            contributions(whole, 10 * MADE_JOBS, DUCKDB),
        ):
            assert run.ask(text).num_rows > 0
            peaks.append(json.loads(profile.read_text())["system"]["peak_buffer_memory"])
    assert max(peaks) < KEPT_BYTES_MAX, peaks
