"""Fixtures: a shared server, private servers, clients and topic names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.http.api import Api
from tests.http.observations import Observations
from tests.http.process import ServerProcess

_numbers = itertools.count(1)


class FreshServer(Protocol):
    """Starts a server with its own data directory; settings as keyword arguments."""

    def __call__(self, *flags: str, key: str | None = None, **settings: str) -> ServerProcess: ...


class ApiFor(Protocol):
    """Opens a client to a server; closed at the end of the test."""

    def __call__(self, server: ServerProcess, key: str | None = None) -> Api: ...


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests that do not need their own; without keys."""
    process = ServerProcess(tmp_path_factory.mktemp("shared") / "data").start()
    yield process
    process.stop()


@pytest.fixture(scope="session")
def shared_api(server: ServerProcess) -> Iterator[Api]:
    """One client of the shared server, connections kept."""
    with Api(server.base_url) as client:
        yield client


@pytest.fixture
def api(shared_api: Api, server: ServerProcess) -> Api:
    """The client of the shared server, which must be alive."""
    assert server.running, server.log()
    return shared_api


@pytest.fixture
def fresh_server(tmp_path: Path) -> Iterator[FreshServer]:
    """Servers of this test alone; all ended with it."""
    started: list[ServerProcess] = []

    def start(*flags: str, key: str | None = None, **settings: str) -> ServerProcess:
        directory = tmp_path / f"data{len(started)}"
        process = ServerProcess(directory, settings=settings, flags=flags, probe_key=key)
        started.append(process)
        return process.start()

    yield start
    for process in started:
        process.stop()


@pytest.fixture
def api_for() -> Iterator[ApiFor]:
    """Clients of private servers; all closed with the test."""
    opened: list[Api] = []

    def connect(server: ServerProcess, key: str | None = None) -> Api:
        opened.append(Api(server.base_url, key=key))
        return opened[-1]

    yield connect
    for client in opened:
        client.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; it may be a prefix of further names."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{words[:60]}.{next(_numbers)}."


@pytest.fixture
def queue(api: Api, topic: str) -> str:
    """A fresh queue on the shared server."""
    api.make_queue(topic)
    return topic


@pytest.fixture
def log(api: Api, topic: str) -> str:
    """A fresh log on the shared server."""
    api.make_log(topic)
    return topic


@pytest.fixture(scope="session")
def observations(server: ServerProcess) -> Iterator[Observations]:
    """Slow things, seen in the background."""
    seen = Observations(server)
    yield seen
    seen.stop()


@pytest.fixture(scope="session", autouse=True)
def early_observations(request: pytest.FixtureRequest) -> None:
    """Start the slow observations first, if any selected test asks for them."""
    wanted = [getattr(item, "fixturenames", ()) for item in request.session.items]
    if any("observations" in names for names in wanted):
        request.getfixturevalue("observations")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that look at slow observations come last."""
    items.sort(key=lambda item: "observations" in getattr(item, "fixturenames", ()))
