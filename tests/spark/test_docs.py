"""docs/pipeline.md: its commands and code run on a real server, its tables are complete."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logqueue.cli.main import main
from logqueue.client import Client
from logqueue.pipeline.audit.run import RULES
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.reading import options
from logqueue.pipeline.reports.export import FORMATS
from logqueue.pipeline.writing import sink_options
from logqueue.testing import ServerProcess
from tests import readme
from tests.house import page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = "docs/pipeline.md"
ADDRESS = "http://127.0.0.1:4000"
ELSEWHERE = ("pip install", "logqueue serve")
"""Commands that the test stands in for."""

DIRECTORY_FLAGS = frozenset(
    {"--to", "--archive", "--tables", "--from", "--path", "--against", "--py-files", "-o"}
)
DIRECTORIES = (
    "archive",
    "reports",
    "slow",
    "mails",
    "orders.parquet",
    "logqueue-data",
    "log-archive",
)
"""What Python names relative to where it runs. The Java of a session that is shared by all tests
runs elsewhere, so the test makes them absolute, and so it does with checkpoints."""

_STEP = re.compile(r"^```(?P<language>sh|python)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


class Follower:
    """Somebody who does what the page says, in the order in which it says it."""

    def __init__(self, address: str, folder: Path, said: pytest.CaptureFixture[str]) -> None:
        self.address = address
        self.folder = folder
        self.summaries: dict[str, dict[str, object]] = {}
        self.commands = 0
        self._said = said
        self._names: dict[str, object] = {}

    def follow(self, text: str) -> None:
        """Run every block."""
        for step in _STEP.finditer(text):
            if step["language"] == "python":
                code = re.sub(r'"([\w./,-]+)"', self._placed, step["code"])
                code = code.replace(ADDRESS, self.address)
                exec(compile(code, PAGE, "exec"), self._names)
            else:
                for command in readme.Block(0, step["code"]).commands():
                    if not command.startswith(ELSEWHERE):
                        self._run(command.replace(ADDRESS, self.address))

    def _placed(self, quoted: re.Match[str]) -> str:
        names = quoted[1].split(",")
        if all(name in DIRECTORIES or name.startswith("checkpoints/") for name in names):
            return f'"{",".join(str(self.folder / name) for name in names)}"'
        return quoted[0]

    def _run(self, command: str) -> None:
        words = shlex.split(command)
        assert words[0] == "logqueue", command
        for n, word in enumerate(words[:-1]):
            if word in DIRECTORY_FLAGS and words[1] == "pipeline":
                words[n + 1] = ",".join(str(self.folder / name) for name in words[n + 1].split(","))
        self._said.readouterr()
        status = main(words[1:])
        printed = self._said.readouterr()
        assert status == 0, f"{command}\n{printed.out}{printed.err}"
        self.commands += 1
        if printed.out.startswith('{"job"'):
            summary = json.loads(printed.out.splitlines()[-1])
            self.summaries[summary["job"]] = summary


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
        follower.follow(page(PAGE))
        with Client(up.url) as client:
            counts = {name: client.topic(name).head_seq for name in ("letters", "letters.copy")}
            orders, mail = client.topic("orders").head_seq, client.topic("mail").head_seq
    assert follower.commands == 20, "no command is passed over"
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
