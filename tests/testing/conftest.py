"""Fixtures of the testing kit, also where the package is not installed."""

from __future__ import annotations

from logqueue.testing.plugin import logqueue_memory as logqueue_memory
from logqueue.testing.plugin import logqueue_server as logqueue_server
from tests.worker.memory import app as app
from tests.worker.memory import server as server
