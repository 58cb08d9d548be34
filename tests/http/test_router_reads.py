"""Who sees copies, and when: every read of the destination lets its routers catch up first."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.http import rawhttp
from tests.http.api import JSON, Api, numbered
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import eventually, ok
from tests.http.routed import Route, forwarded, made
from tests.http.watching import data_in, drain, receive
from tests.http.ws import Socket, data_of


@pytest.fixture
def route(api: Api, topic: str) -> Route:
    """A router between two fresh logs."""
    return made(api, topic)


def seen_by_diff(api: Api, dest: str) -> list[Any]:
    """Reading."""
    return [record["data"] for record in api.read(dest)]


def seen_by_state(api: Api, dest: str) -> list[Any]:
    """As many as it counts."""
    return ["new"] * int(ok(api.state(dest))["count"])


def seen_by_watch(api: Api, dest: str) -> list[Any]:
    """A new watch stream, up to its caught-up."""
    with api.watch(dest) as stream:
        return data_in(drain(stream))


def seen_by_websocket(api: Api, dest: str) -> list[Any]:
    """A new subscription, up to its caught_up."""
    with Socket(api.address) as ws:
        ws.subscribe(dest)
        return data_of(ws.drain())


def seen_by_claim(api: Api, dest: str) -> list[Any]:
    """One claim."""
    return [job["data"] for job in api.claimed(dest)]


def seen_by_work(api: Api, dest: str) -> list[Any]:
    """A new work stream."""
    with api.work(dest, node="w") as stream:
        return [job["data"] for job in stream.jobs(1)]


@pytest.mark.parametrize(
    "look",
    [seen_by_diff, seen_by_state, seen_by_watch, seen_by_websocket, seen_by_claim, seen_by_work],
    ids=lambda look: look.__name__,
)
def test_reading_the_destination_right_away(
    api: Api, topic: str, look: Callable[[Api, str], list[Any]]
) -> None:
    """Every kind of read lets the router catch up first; again and again."""
    for number in range(10):
        source, dest = f"{topic}s{number}", f"{topic}d{number}"
        api.make_queue(dest)
        api.make_router(f"{topic}{number}", source, dest)
        api.append(source, "new")
        assert look(api, dest) == ["new"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v0/topics/{d}/diff", b"{}"),
        ("POST", "/v0/topics/{d}/claim", b'{"node":"w"}'),
        ("GET", "/v0/topics/{d}", None),
        ("GET", "/v0/routers/{r}", None),
    ],
    ids=["diff", "claim", "state", "router"],
)
def test_reading_in_the_same_breath(
    api: Api, topic: str, method: str, path: str, body: bytes | None
) -> None:
    """Write to the source and read of the destination in one piece of a connection."""
    source, dest = f"{topic}s", f"{topic}d"
    api.make_queue(dest)
    api.make_router(topic, source, dest)
    write = rawhttp.request("POST", f"/v0/topics/{source}", b'{"records":[{"data":1}]}', JSON)
    read = rawhttp.request(method, path.format(d=dest, r=topic), body, JSON)
    with rawhttp.Connection(api.address) as connection:
        for number in range(1, 11):
            connection.send(write + read)
            ok(connection.read_reply())
            found = ok(connection.read_reply(method=method))
            seen = found.get("head_seq", found.get("forwarded_total", number))
            assert (seen, found.get("claimed")) != (number, [])
            assert seen == number


def test_the_router_itself_catches_up(api: Api, route: Route) -> None:
    """GET counts what was written before it."""
    for number in range(1, 20):
        api.append(route.source, number)
        assert forwarded(api, route.router) == number


def test_forwarding_needs_no_reader(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """It goes on in the background: metrics see the copies, which no request has read."""
    api = api_for(fresh_server())
    route = made(api, "t")

    def live() -> int:
        found = api.send("GET", "/v0/metrics", None, {"accept": "application/json"}).json()
        return int(found["records_live"])

    ok(api.write(route.source, numbered(5)))
    assert eventually(lambda: live() == 10)


def test_those_who_wait_at_the_destination(api: Api, topic: str) -> None:
    """A long poll, a watch stream, a socket and a work stream hear of copies."""
    source, dest = f"{topic}s", f"{topic}d"
    api.make_queue(dest)
    api.make_router(topic, source, dest)
    with (
        ThreadPoolExecutor(1) as pool,
        api.watch(dest) as watcher,
        Socket(api.address) as ws,
        api.work(dest, node="w") as worker,
    ):
        poll = pool.submit(api.diff, dest, wait_ms=8000)
        drain(watcher)
        ws.subscribe(dest)
        ws.drain()
        api.append(source, "news")
        assert data_in(receive(watcher, 1)) == ["news"]
        assert data_of(ws.receive(1)) == ["news"]
        assert [job["data"] for job in worker.jobs(1)] == ["news"]
        assert [record["data"] for record in ok(poll.result())["records"]] == ["news"]
