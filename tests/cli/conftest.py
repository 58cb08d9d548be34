"""Commands in this process and in one of their own, against a server that the tests share."""

from __future__ import annotations

import io
import itertools
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from logqueue.cli import main
from logqueue.client import Client
from logqueue.testing.process import ServerProcess
from tests.house import ROOT

END_S = 60.0

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Ended:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its one JSON object."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def lines(self) -> list[Any]:
        """Its JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class Cli(Protocol):
    """Runs a command."""

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Ended: ...


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Commands can be ended by Ctrl-C, even where the tests were started to ignore it (nohup)."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests that do not stop it."""
    with ServerProcess(tmp_path_factory.mktemp("cli") / "data") as process:
        yield process


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[Client]:
    """A client of it."""
    with Client(server.url) as connected:
        yield connected


@pytest.fixture
def environment(server: ServerProcess) -> dict[str, str]:
    """The environment of commands: the server, and nothing else of ours."""
    kept = {n: value for n, value in os.environ.items() if not n.startswith("LOGQUEUE_")}
    return {**kept, "LOGQUEUE_URL": server.url, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def cli(
    server: ServerProcess,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Cli:
    """Runs commands in this process."""
    monkeypatch.setenv("LOGQUEUE_URL", server.url)
    monkeypatch.delenv("LOGQUEUE_TOKEN", raising=False)

    def run(*arguments: str, stdin: bytes = b"") -> Ended:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with logging_kept():
            try:
                status = main(arguments)
            except SystemExit as ended:  # argparse ends the program itself
                status = ended.code if isinstance(ended.code, int) else 1
        said = capsys.readouterr()
        return Ended(status, said.out, said.err)

    return run


@contextmanager
def logging_kept() -> Iterator[None]:
    """What a command logs, and where, ends with it: its stderr is closed after the test."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


class Shell:
    """Commands in processes of their own, as a shell starts them."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.environment = environment
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def run(self, *arguments: str, stdin: bytes = b"", timeout_s: float = END_S) -> Ended:
        """Run a command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "logqueue", *arguments],
            env=self.environment,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str, stdin: Any = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a command that runs on; ended with the test."""
        process = subprocess.Popen(
            [sys.executable, "-m", "logqueue", *arguments],
            env=self.environment,
            cwd=self.folder,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        """End what still runs."""
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def shell(environment: dict[str, str], tmp_path: Path) -> Iterator[Shell]:
    """Runs commands as a shell would."""
    made = Shell(environment, tmp_path)
    yield made
    made.close()


def finish(process: subprocess.Popen[bytes]) -> Ended:
    """Wait for the end of a command."""
    out, err = process.communicate(timeout=END_S)
    return Ended(process.returncode, (out or b"").decode(), err.decode())


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{words[:60]}.{next(_numbers)}"


@pytest.fixture
def queue(client: Client, topic: str) -> str:
    """A fresh queue."""
    client.put_topic(topic, type="queue")
    return topic
