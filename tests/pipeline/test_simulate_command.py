"""`logqueue pipeline simulate`: from a log to a table for people, files and a page."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from logqueue.cli.main import main
from logqueue.pipeline.lifecycle.publishing import opened_target
from logqueue.pipeline.lifecycle.simulation_tables import SIMULATED
from logqueue.pipeline.lifecycle.span import QueueSpan, Span, publish_tables
from logqueue.pipeline.lifecycle.tables import ATTEMPTS, JOBS
from tests.pipeline.queue_truth import Truth, TruthHistory, history


def store(to: Path, made: TruthHistory) -> str:
    """A history as a finished lifecycle run; its directory."""
    span = Span(made.start, made.end, (QueueSpan("L", "q", 1, made.jobs.num_rows, 0, 0),))
    day = date(2023, 11, 14)
    with opened_target(str(to)) as target:
        files = [
            target.staging.write(kind.name, day, rows.drop_columns(["date"]))
            for kind, rows in ((JOBS, made.jobs), (ATTEMPTS, made.attempts))
        ]
        publish_tables(target, span, files, [])
    return str(to)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tables of jobs and attempts of a queue that was short of workers."""
    return store(tmp_path_factory.mktemp("tables"), history(Truth(jobs=400, takes=450)))


def test_scenarios_are_shown_written_and_on_the_page(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pipeline", "simulate", "--lifecycle", folder, "--what-if", "workers=x2", "--seeds"]
    code = main([*words, "5", "--to", str(tmp_path), "--format", "html,parquet,csv"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert "workers=x2" in printed.err and "as measured" in printed.err
    assert "back-test" in printed.err and "% off" in printed.err
    summary = json.loads(printed.out)
    assert summary["job"] == "simulate"
    waits = {
        row["scenario"]: row["mid"] for row in summary["what_if"] if row["metric"] == "wait_p95"
    }
    assert waits["workers=x2"] < waits["as measured"] / 4
    for kind in SIMULATED:
        rows = pq.read_table(tmp_path / f"{kind.name}.parquet")
        assert rows.schema.equals(kind.arrow()) and rows.num_rows == summary["rows"][kind.name]
        assert (tmp_path / f"{kind.name}.csv").is_file()
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="what-if"' in page and "workers=x2" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--what-if", "wrkers=2"], "use one of"),
        (["--what-if", "workers=0"], "from 1 to"),
        (["--seeds", "0"], "at least 1"),
        (["--zone", "Nowhere/Else"], "time zone"),
        (["--format", "xls"], "format"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    try:
        code = main(["pipeline", "simulate", "--lifecycle", folder, "--to", str(tmp_path), *words])
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code in (1, 2)
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_queue_with_too_few_runs_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = store(tmp_path / "t", history(Truth(jobs=3)))
    words = ["--lifecycle", few, "--to", str(tmp_path / "w")]
    assert main(["pipeline", "simulate", *words]) == 1
    assert "10 finished runs" in capsys.readouterr().err
