"""Fixtures: a server in memory, and an app that is attached to it."""

from __future__ import annotations

import pytest

from logqueue.testing import MemoryServer
from logqueue.testing.plugin import logqueue_memory as logqueue_memory
from logqueue.worker import App


@pytest.fixture
def server(logqueue_memory: MemoryServer) -> MemoryServer:
    """A server in memory."""
    return logqueue_memory


@pytest.fixture
def app(server: MemoryServer) -> App:
    """An app that sends to it, and whose workers work for it."""
    app = App()
    server.attach(app)
    return app
