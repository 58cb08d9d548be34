"""The pytest plugin, as somebody else's project would use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.house import ROOT

SOMEBODYS_TESTS = """
from logqueue.testing import MemoryServer, ServerProcess
from logqueue.client import Client
from logqueue.worker import App

app = App()
sent = []

@app.task(queue="mail")
async def send_mail(to: str) -> None:
    sent.append(to)

def test_in_memory(logqueue_memory: MemoryServer) -> None:
    logqueue_memory.attach(app)
    send_mail.with_options(delay=3600.0).send("ann")
    logqueue_memory.drain(app)
    assert sent == ["ann"]

def test_for_real(logqueue_server: ServerProcess) -> None:
    with Client(logqueue_server.url) as client:
        assert client.health().status == "ok"
"""

PLUGIN = "logqueue.testing.plugin"


def test_the_fixtures_work_in_a_project_that_installs_us(tmp_path: Path) -> None:
    (tmp_path / "test_mail.py").write_text(SOMEBODYS_TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


def test_the_plugin_costs_nothing_where_it_is_not_used() -> None:
    ask = f"import {PLUGIN}, sys; print('logqueue.server.engine.engine' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True)
    assert said.stdout == "False\n", said.stderr
