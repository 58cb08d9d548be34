"""An audit whose processes are killed: an error that says so, or nothing; never a wrong answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from logqueue.pipeline.engines.duckdb.audit.engine import LocalAuditEngine
from logqueue.pipeline.engines.duckdb.audit.job import run_audit
from logqueue.pipeline.engines.duckdb.workers import WorkerPool
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading.place import InputPlace
from tests.pipeline.audit_faults import write_faults
from tests.spark.crafted import CraftedLog

PROGRAM = """
import os, signal, sys
from logqueue.pipeline.engines.duckdb.audit.job import run_audit
from logqueue.pipeline.reading.place import InputPlace

def note(what, share):
    if what.startswith(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

run_audit(InputPlace(path=sys.argv[1]), sys.argv[2], note=note)
"""


def die(seq: int) -> int:
    """Kills the process that it runs in, in the middle of its work."""
    if seq == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return seq


def test_a_worker_that_is_killed_ends_the_audit_with_an_error(tmp_path: Path) -> None:
    with WorkerPool(2, worthwhile=0) as pool:
        engine = LocalAuditEngine(InputPlace(path=str(tmp_path)), pool, str(tmp_path))
        with pytest.raises(PipelineError, match="a worker process ended unexpectedly"):
            list(engine.run_tasks(die, range(6)))


def test_an_audit_that_is_killed_leaves_no_findings(tmp_path: Path) -> None:
    with CraftedLog(tmp_path / "data") as log:
        expected = write_faults(log)
    to = tmp_path / "out"
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "data"), str(to), "checking lease"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert not to.exists()
    summary = run_audit(InputPlace(path=str(tmp_path / "data")), str(to))
    assert summary["findings"]["error"] == len(expected)
