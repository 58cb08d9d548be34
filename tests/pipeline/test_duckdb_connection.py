"""A database of a job: how much memory it may use, what happens when that is too little."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from logqueue.pipeline.engines.duckdb import connection
from logqueue.pipeline.engines.duckdb.connection import MEMORY_SETTING, memory_mb, opened
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reports.queries.dialect import DUCKDB
from logqueue.pipeline.reports.queries.explaining import windows


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


def test_explanations_keep_no_copy_of_all_that_they_count() -> None:
    with opened() as database:
        database.execute(
            "CREATE TABLE jobs AS SELECT 'a' AS topic, NULL::VARCHAR AS tag, NULL::VARCHAR AS key,"
            "1::BIGINT AS appended, 1::BIGINT AS ready, 1::BIGINT AS first_claim,"
            "1::BIGINT AS finished, 'acked' AS state, 0::BIGINT AS wait_ms"
        )
        database.execute(
            "CREATE TABLE attempts AS SELECT 'a' AS topic, NULL::VARCHAR AS tag,"
            "NULL::VARCHAR AS key, 'w' AS worker, 1::BIGINT AS claimed, 1::BIGINT AS ended,"
            "'acked' AS outcome, NULL::VARCHAR AS error, 1::BIGINT AS run_ms, FALSE AS is_failure"
        )
        text = windows(3_600_000, 10, DUCKDB).replace("$", "")
        (plan,) = database.execute(f"EXPLAIN {text}").fetchall()
    assert "CTE Name" in plan[1] and not re.search(r"CTE Name:\s+events", plan[1]), plan[1]
