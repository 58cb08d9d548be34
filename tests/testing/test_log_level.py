"""The log level of a server in memory: what it shows, and that it does not outlive the server."""

from __future__ import annotations

import logging

import pytest

from logqueue.testing import MemoryServer


def test_debug_logs_requests_by_their_route_only(
    server: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    client = server.client
    before = logging.getLogger("logqueue").level
    caplog.set_level(logging.INFO)
    caplog.handler.setLevel(logging.DEBUG)
    client.append("hidden-name", [1], create=True)
    assert not [line for line in caplog.messages if line.startswith("POST")]
    client.set_log_level("debug")
    client.append("hidden-name", [1], create=True)
    client.set_log_level("info")
    client.append("hidden-name", [1], create=True)
    lines = [line for line in caplog.messages if line.startswith("POST")]
    assert len(lines) == 1
    assert "/v0/topics/*" in lines[0]
    assert "hidden-name" not in lines[0]
    server.restart()
    assert logging.getLogger("logqueue").level == before
