"""docs/pipeline.md: its commands and code run on a real server, its tables are complete."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logqueue.client import Client
from logqueue.pipeline.audit.run import RULES
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.reading import options
from logqueue.pipeline.reports.export import FORMATS
from logqueue.pipeline.writing import sink_options
from logqueue.testing import ServerProcess
from tests.house import page
from tests.pipeline.following import FINISHED_RUNS, PAGE, Follower

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.slow
def test_the_page_goes_as_told(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = str(tmp_path / "log-archive")
    with ServerProcess(tmp_path / "logqueue-data", ARCHIVE_DIR=kept) as up:
        monkeypatch.setenv("LOGQUEUE_URL", up.url)
        follower = Follower(up.url, tmp_path, capsys)
        follower.follow(FINISHED_RUNS)
        follower.commands = 0
        follower.follow(page(PAGE))
        with Client(up.url) as client:
            counts = {name: client.topic(name).head_seq for name in ("letters", "letters.copy")}
            orders, mail = client.topic("orders").head_seq, client.topic("mail").head_seq
    assert follower.commands == 28, "no command is passed over"
    assert counts == {"letters": 2, "letters.copy": 2}
    assert (orders, mail) == (1000, 4), "backfilled once; one letter went back"
    assert follower.summaries["audit"]["findings"] == {"error": 0, "warning": 0, "info": 0}
    assert "mail" in (tmp_path / "reports" / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "reports" / "report.md").is_file()
    assert list((tmp_path / "mails").glob("*.parquet"))


def test_every_table_is_documented_as_it_is() -> None:
    text = page(PAGE)
    for kind in tables.ALL:
        columns = "\n".join(f"| `{c.name}` | {c.type} | {c.note} |" for c in kind.columns)
        assert f"### {kind.name}\n\n{kind.note} Built by `{kind.built_by}`.\n" in text
        assert f"| Column | Type | |\n|---|---|---|\n{columns}\n" in text, kind.name


def test_every_rule_option_and_format_is_told() -> None:
    text = page(PAGE)
    for rule in RULES:
        assert f"| `{rule.name}` | {rule.statement} |" in text
    reading, _, rest = text.partition("\n## Streams and offsets")
    writing = rest.partition("\n## Writing")[2].partition("\n## Guarantees")[0]
    for name in {*options.OFFLINE_NAMES, *options.LIVE_NAMES}:
        assert f"`{name}`" in reading, name
    for name in (*sink_options._NAMES, *sink_options.COLUMNS):
        assert f"`{name}`" in writing, name
    for name in (*FORMATS, "html"):
        assert f"| `{name}` |" in text, name
