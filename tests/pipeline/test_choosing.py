"""Which engine runs a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from logqueue.pipeline.engines import choosing
from logqueue.pipeline.engines.choosing import choose
from logqueue.pipeline.errors import PipelineError


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the environment says where Spark is."""
    for name in (*choosing.SPARK_VARIABLES, choosing.BYTES_MAX_SETTING):
        monkeypatch.delenv(name, raising=False)


def _with(monkeypatch: pytest.MonkeyPatch, *there: str) -> None:
    """Only these engines are installed."""
    monkeypatch.setattr(choosing, "is_installed", lambda engine: engine in there)


def test_small_input_runs_on_duckdb_and_large_input_on_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with(monkeypatch, "duckdb", "spark")
    (tmp_path / "deep").mkdir()
    for name in ("a", "deep/b"):
        (tmp_path / name).write_bytes(bytes(500))
    inputs = [str(tmp_path), None, "http://127.0.0.1:1"]
    assert choose("auto", inputs=inputs) == "duckdb"
    monkeypatch.setenv(choosing.BYTES_MAX_SETTING, "1000")
    assert choose("auto", inputs=inputs) == "duckdb"
    monkeypatch.setenv(choosing.BYTES_MAX_SETTING, "999")
    assert choose("auto", inputs=inputs) == "spark"
    assert choose("duckdb", inputs=inputs) == "duckdb"
    _with(monkeypatch, "duckdb")
    assert choose("auto", inputs=inputs) == "duckdb"


def test_who_says_where_spark_is_gets_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    _with(monkeypatch, "duckdb", "spark")
    assert choose("auto", names_spark=True) == "spark"
    assert choose("spark") == "spark"
    assert choose("auto", is_wired=False) == "spark"
    with pytest.raises(PipelineError, match="--engine spark"):
        choose("duckdb", names_spark=True)
    with pytest.raises(PipelineError, match="does not run on DuckDB"):
        choose("duckdb", is_wired=False)
    for name in choosing.SPARK_VARIABLES:
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            assert choose("auto") == "spark"


def test_what_is_not_installed_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    _with(monkeypatch, "spark")
    assert choose("auto") == "spark"
    with pytest.raises(PipelineError, match=r"pip install 'logqueue\[reports\]'"):
        choose("duckdb")
    _with(monkeypatch)
    with pytest.raises(PipelineError, match=r"pip install 'logqueue\[reports\]'"):
        choose("auto")


def test_a_size_that_is_not_a_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _with(monkeypatch, "duckdb", "spark")
    monkeypatch.setenv(choosing.BYTES_MAX_SETTING, "8G")
    with pytest.raises(PipelineError, match="LOGQUEUE_DUCKDB_BYTES_MAX '8G'"):
        choose("auto")
