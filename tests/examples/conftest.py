"""A server for the examples, and their programs as a user starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logqueue.client import Client
from logqueue.testing.process import ServerProcess
from tests.house import ROOT

END_S = 60.0


class Example:
    """A copy of one example's folder, and what is run in it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.started: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """That of a user: our programs are on the path, the server is named."""
        kept = {n: value for n, value in os.environ.items() if not n.startswith("LOGQUEUE_")}
        path = f"{self.folder / '.bin'}:{os.environ['PATH']}"
        return {**kept, "PATH": path, "LOGQUEUE_URL": self.url, "PYTHONPATH": str(ROOT)}

    def run(self, *command: str, status: int = 0) -> str:
        """Run a command to its end, which must have this status; returns what it says on stdout."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=END_S,
        )
        assert done.returncode == status, (
            f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a command that runs until it is told to stop."""
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.started.append(process)
        return process


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of this test's own."""
    with ServerProcess(tmp_path / "data", SQS="1") as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    """A client of it."""
    with Client(server.url) as connected:
        yield connected


@pytest.fixture
def example(
    request: pytest.FixtureRequest, server: ServerProcess, tmp_path: Path
) -> Iterator[Example]:
    """The example that the test is marked with: `@pytest.mark.parametrize("example", ["name"],
    indirect=True)`."""
    folder = tmp_path / request.param
    shutil.copytree(ROOT / "examples" / request.param, folder)
    made = Example(folder, server.url)
    binaries = folder / ".bin"
    binaries.mkdir()
    for name, module in (
        ("logqueue", "logqueue"),
        ("uvicorn", "uvicorn"),
        ("celery", "celery"),
        ("python", ""),
    ):
        program = binaries / name
        arguments = f"-m {module} " if module else ""
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments}"$@"\n')
        program.chmod(0o755)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()
