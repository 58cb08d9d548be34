"""Fixtures: those of the testing kit, also where it is not installed, and worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logqueue.client import Client
from logqueue.testing import ServerProcess
from logqueue.testing.plugin import logqueue_server as logqueue_server
from tests.worker.lossy import LossyProxy
from tests.worker.memory import app as app
from tests.worker.memory import logqueue_memory as logqueue_memory
from tests.worker.memory import server as server
from tests.worker.programs import Programs


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests of real workers; each has queues of its own."""
    with ServerProcess(tmp_path_factory.mktemp("worker") / "data") as server:
        yield server


@pytest.fixture
def client(real_server: ServerProcess) -> Iterator[Client]:
    """A client of the real server."""
    with Client(real_server.url, node="test") as client:
        yield client


@pytest.fixture
def programs(real_server: ServerProcess, tmp_path: Path) -> Iterator[Programs]:
    """Starts worker processes; all are killed with the test."""
    with Programs(real_server.url, tmp_path) as programs:
        yield programs


@pytest.fixture
def lossy(real_server: ServerProcess) -> Iterator[LossyProxy]:
    """A way to the real server on which replies get lost when ordered."""
    with LossyProxy(real_server.url) as proxy:
        yield proxy
