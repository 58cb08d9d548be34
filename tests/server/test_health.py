"""The health of the server in words: each finding, its severity, and what it says to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from logqueue.server.health import health_of
from logqueue.server.metrics import DiskSpace
from logqueue.server.service import Phase
from logqueue.shapes import ServerHealthReport
from tests.server.stepped import Stepped, append

GIB = 1 << 30
Break = Callable[[Stepped], object]


def found(break_it: Break, **settings: Any) -> ServerHealthReport:
    """The health of a server after something has happened to it."""

    async def play() -> ServerHealthReport:
        server = Stepped(**settings)
        runtime = server.runtime
        runtime.metrics.disk = lambda: DiskSpace(100 * GIB, 50 * GIB)  # type: ignore[method-assign]
        await server.talk(server.connect(), append())
        break_it(server)
        health = health_of(runtime.service, runtime.metrics)
        if runtime.engine.journal.jobs.failure is None and runtime.service.phase is Phase.READY:
            await server.stop()
        return health

    return asyncio.run(play())


def free(total: int, left: int) -> Break:
    """So much space is left."""

    def act(server: Stepped) -> None:
        server.runtime.metrics.disk = lambda: DiskSpace(total, left)  # type: ignore[method-assign]

    return act


def slow_syncs(server: Stepped) -> None:
    for _ in range(30):
        server.runtime.metrics.fsync(0.25)


def poison(server: Stepped) -> None:
    server.runtime.engine.journal.jobs._committer.poison(OSError(5, "Input/output error"))


def lose_leases_log(server: Stepped) -> None:
    server.runtime.engine.journal.leases._committer.poison(OSError(5, "Input/output error"))


def test_all_is_well() -> None:
    health = found(lambda server: None)
    assert (health.state, health.text, health.findings) == ("ok", "The server is healthy.", [])


@pytest.mark.parametrize(
    ("break_it", "state", "code", "text"),
    [
        (free(100 * GIB, 4 * GIB), "attention", "disk_low", "Little disk space is left: 4,096 MiB"),
        (free(100_000 * GIB, 11 * GIB), "ok", "", ""),
        (free(100_000 * GIB, 9 * GIB), "attention", "disk_low", "9,216 MiB free"),
        (free(GIB // 2, GIB // 4), "ok", "", ""),
        (free(100 * GIB, 1 << 20), "bad", "disk_full", "The disk is full: 1 MiB free"),
        (slow_syncs, "attention", "slow_syncs", "1 of 100 syncs takes 250 ms or longer"),
        (poison, "bad", "read_only", "a write or sync failed ([Errno 5] Input/output error)"),
        (lose_leases_log, "attention", "leases_not_logged", "The leases log has failed"),
        (lambda s: s.runtime.drain(), "bad", "draining", "shutting down"),
        (lambda s: s.runtime.service.lifecycle.note_progress(0.4), "ok", "", ""),
    ],
)
def test_each_finding(break_it: Break, state: str, code: str, text: str) -> None:
    health = found(break_it)
    assert health.state == state, health
    if code:
        finding = health.findings[0]
        assert finding.code == code
        assert text in finding.text
        assert finding.advice.endswith(".")
        assert health.text == finding.text
    else:
        assert not health.findings


def test_the_worst_comes_first() -> None:
    def act(server: Stepped) -> None:
        slow_syncs(server)
        free(100 * GIB, 1 << 20)(server)

    health = found(act, max_topics=1)
    assert [finding.severity for finding in health.findings] == ["bad", "bad", "warn"]
    assert health.text.endswith("(2 more)")
    assert {finding.code for finding in health.findings} == {
        "disk_full",
        "limit_reached",
        "slow_syncs",
    }
