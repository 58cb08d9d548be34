"""What is remembered of the last durations and of slow requests."""

from __future__ import annotations

import asyncio

import pytest

from logqueue.server import metrics
from logqueue.server.http import api
from logqueue.server.recent import SLOWEST_MAX, Durations, SlowRequests, quantile
from tests.server.lines import turns
from tests.server.stepped import Stepped, append, request


def test_the_last_durations_are_kept_in_place_of_the_oldest() -> None:
    recent = Durations(4)
    for milliseconds in range(6):
        recent.add(milliseconds / 1000)
    assert recent.count == 6
    assert recent.in_order() == [0.002, 0.003, 0.004, 0.005]


def test_quantiles_are_values_that_there_were() -> None:
    ordered = [float(value) for value in range(1, 101)]
    assert [quantile(ordered, share) for share in (0, 0.5, 0.99, 1)] == [1, 50, 99, 100]
    assert quantile([7.0], 0.5) == quantile([7.0], 1.0) == 7.0


def test_each_minute_keeps_its_slowest_and_an_hour_later_they_are_gone() -> None:
    now = 0.0
    slow = SlowRequests(lambda: now)
    for took in range(1, 31):
        slow.note("GET", "/a", "", 200, float(took))
    assert [noted.took_s for noted in slow.slowest()] == [float(took) for took in range(30, 20, -1)]
    for minute in range(1, 60):
        now = minute * 60.0
        for _ in range(20):
            slow.note("GET", "/b", "n" * 1000, 200, 1.0)
    found = slow.slowest()
    assert len(found) == SLOWEST_MAX
    assert [noted.route for noted in found[:10]] == ["/a"] * 10
    assert max(len(noted.name) for noted in found) == 200
    now += 61.0
    assert {noted.route for noted in slow.slowest()} == {"/b"}
    now += 3600.0
    assert slow.slowest() == []


def test_calls_are_noted_but_not_what_clients_wait_for_or_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here every request counts as slow. Of a download the time until its beginning counts."""

    async def play() -> None:
        for module in (metrics, api):
            monkeypatch.setattr(module, "SLOW_FROM_S", 0.0)
        server = Stepped()
        server.runtime.metrics.watch_requests()
        line = server.connect()
        await server.talk(line, request("PUT", "/v0/topics/q", b'{"type":"queue"}'), append())
        claim = b'{"node":"w","max":1,"wait_ms":1}'
        await server.talk(line, request("POST", "/v0/topics/empty", b'{"records":[{"data":1}]}'))
        await server.talk(line, request("PUT", "/v0/topics/idle", b'{"type":"queue"}'))
        line.send(request("POST", "/v0/topics/idle/claim", claim))
        while not line.written:
            await asyncio.sleep(0.001)
        assert b'"claimed":[]' in line.read()
        await server.talk(line, request("GET", "/healthz"), request("GET", "/nothing"))
        line.send(request("GET", "/v0/backup"))
        await turns(200)
        line.read()
        slow = server.runtime.metrics.slow_requests.slowest()
        await server.stop()
        assert {(noted.method, noted.route, noted.name) for noted in slow} == {
            ("PUT", "/v0/topics/*", "q"),
            ("PUT", "/v0/topics/*", "idle"),
            ("POST", "/v0/topics/*", "q"),
            ("POST", "/v0/topics/*", "empty"),
            ("GET", "/v0/backup", ""),
        }

    asyncio.run(play())
