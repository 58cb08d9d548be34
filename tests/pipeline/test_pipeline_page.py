"""docs/pipeline.md, what every user does: a report, SQL and an audit, without Spark or Java."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from logqueue.testing import ServerProcess
from tests.house import page
from tests.pipeline.following import PAGE, Follower

EVERYDAY = "\n## Engines\n"
"""Ends what needs no Spark."""


def test_the_first_run_goes_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("pyspark", "py4j"):
        # Importing it is an error, as where it is not installed.
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    text, mark, _ = page(PAGE).partition(EVERYDAY)
    assert mark
    kept = str(tmp_path / "log-archive")
    with ServerProcess(tmp_path / "logqueue-data", ARCHIVE_DIR=kept) as up:
        monkeypatch.setenv("LOGQUEUE_URL", up.url)
        follower = Follower(up.url, tmp_path, capsys)
        follower.follow(text)
    assert follower.commands == 12, "no command is passed over"
    assert follower.summaries["report"]["engine"] == "duckdb"
    assert follower.summaries["audit"]["findings"] == {"error": 0, "warning": 0, "info": 0}
    html = (tmp_path / "reports" / "report.html").read_text(encoding="utf-8")
    assert f"{up.url}/ui/queues/mail/jobs/2" in html
    for name in ("report.md", "report_latency.csv", "report_explanations.parquet"):
        assert (tmp_path / "reports" / name).is_file()
    assert sorted(file.name for file in (tmp_path / "offline").glob("*.csv")) == [
        "report_failures.csv",
        "report_latency.csv",
    ]


def test_its_pictures_are_there() -> None:
    images = Path(PAGE).parent / "images"
    for name in ("report-top", "report-top-dark", "report-speed", "report-speed-dark"):
        assert f"images/{name}.webp" in page(PAGE)
        assert (images / f"{name}.webp").stat().st_size < 200_000
