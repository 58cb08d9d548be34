"""Fixtures: both kinds of client, a shared server, names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logqueue.client import Client
from tests.client.either import KINDS, Kind, Naps, Opened
from tests.client.proxy import Proxy
from tests.http.conftest import fresh_server, server, topic
from tests.http.process import ServerProcess

__all__ = ["fresh_server", "server", "topic"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each client in turn."""
    named: Kind = request.param
    return named


@pytest.fixture
def opened(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """Opens clients of this kind, free of the tester's environment."""
    monkeypatch.delenv("LOGQUEUE_URL", raising=False)
    monkeypatch.delenv("LOGQUEUE_TOKEN", raising=False)
    clients = Opened(kind)
    yield clients
    clients.close()


@pytest.fixture
def naps(opened: Opened) -> Naps:
    """How long clients slept."""
    return opened.naps


@pytest.fixture
def client(opened: Opened, server: ServerProcess) -> Client:
    """A client of the shared server."""
    assert server.running, server.log()
    return opened(server.base_url)


@pytest.fixture
def proxy(server: ServerProcess) -> Iterator[Proxy]:
    """A proxy in front of the shared server."""
    with Proxy(server.address) as between:
        yield between


@pytest.fixture
def far_client(opened: Opened, proxy: Proxy) -> Client:
    """A client that reaches the shared server through the proxy only."""
    return opened(proxy.url)


@pytest.fixture
def queue(client: Client, topic: str) -> str:
    """A fresh queue."""
    client.put_topic(topic, type="queue")
    return topic
