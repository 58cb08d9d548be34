"""One world on the server in memory, one on the real server, with the same sentences.

Owns: the fixture `world`, which every test of the suite gets twice. Must not know: the tests.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from logqueue.client import Client
from logqueue.testing import MemoryServer, MemoryWorker, ServerProcess
from logqueue.worker import App, Worker
from logqueue.worker.consuming import Counts

PATIENCE_S = 60.0
LOOK_S = 0.005


class World(Protocol):
    """A server, apps that are attached to it, workers that can be started and stopped."""

    client: Client

    def app(self) -> App:
        """A new app of this server."""
        ...

    def start(self, app: App, **options: Any) -> Any:
        """Start a worker."""
        ...

    def stop(self, worker: Any) -> Counts:
        """Stop it in order."""
        ...

    def until(self, condition: Callable[[], bool]) -> None:
        """Go on until a condition holds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block the calling handler."""
        ...


class MemoryWorld:
    """The server in memory."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.client = server.client

    def app(self) -> App:
        app = App()
        self.server.attach(app)
        return app

    def start(self, app: App, **options: Any) -> MemoryWorker:
        return self.server.start(app, **options)

    def stop(self, worker: MemoryWorker) -> Counts:
        return self.server.stop(worker)

    def until(self, condition: Callable[[], bool]) -> None:
        self.server.run_until(condition)

    def sleep(self, seconds: float) -> None:
        self.server.sleep(seconds)


class _Thread:
    """A worker on an event loop in a thread of its own."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._thread = threading.Thread(target=lambda: asyncio.run(worker.run()))
        self._thread.start()

    def stop(self) -> Counts:
        self.worker.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the worker did not stop"
        return self.worker.counts


class RealWorld:
    """The real server."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.client = Client(server.url, node="test")
        self.apps: list[App] = []
        self.workers: list[_Thread] = []

    def app(self) -> App:
        self.apps.append(App(self.server.url))
        return self.apps[-1]

    def start(self, app: App, **options: Any) -> _Thread:
        self.workers.append(_Thread(Worker(app, **options)))
        return self.workers[-1]

    def stop(self, worker: _Thread) -> Counts:
        self.workers.remove(worker)
        return worker.stop()

    def until(self, condition: Callable[[], bool]) -> None:
        ends = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < ends, "the condition does not hold"
            time.sleep(LOOK_S)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        for worker in self.workers:
            worker.worker.stop()
            worker.stop()
        for app in self.apps:
            app.close()
        self.client.close()


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One real server for the whole suite."""
    with ServerProcess(tmp_path_factory.mktemp("conformance") / "data") as server:
        yield server


@pytest.fixture(params=["memory", "real"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Both worlds, one after the other."""
    if request.param == "memory":
        with MemoryServer() as server:
            yield MemoryWorld(server)
        return
    real = RealWorld(request.getfixturevalue("shared_server"))
    yield real
    real.close()


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue of this test's own."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)
