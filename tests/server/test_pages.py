"""Pages: what is in them, who may see them, and ASGI applications behind a connection."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterator
from hashlib import sha256
from typing import Any

import pytest

from logqueue.api.openapi import document
from logqueue.api.operations import OPERATIONS
from logqueue.api.operations.row import Body
from logqueue.model.scopes import NO_SCOPE
from logqueue.server.app import http_api, routes
from logqueue.server.auth import parse_keys
from logqueue.server.http.api import HttpApi
from logqueue.server.http.asgi import Application, AsgiHandler
from logqueue.server.http.routing import Route, RouteTable
from logqueue.server.metrics import Metrics
from logqueue.server.service import Service
from logqueue.server.settings import Settings
from logqueue.testing.core import Exchange
from tests.server.lines import Line, turns
from tests.server.memory import Memory

GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    """One server for all."""
    server = Memory()
    yield server
    server.close()


def ask(
    memory: Memory, path: bytes, *headers: tuple[bytes, bytes], method: str = "GET"
) -> Exchange:
    """Send a request."""
    exchange = Exchange(method, path, b"", list(headers))
    memory.core.submit(exchange, b"")
    assert exchange.is_over
    return exchange


def test_the_root_leads_to_the_reference(memory: Memory) -> None:
    exchange = ask(memory, b"/")
    assert (exchange.status, dict(exchange.headers)[b"location"]) == (307, b"/docs")


def test_the_reference_is_complete_in_itself(memory: Memory) -> None:
    exchange = ask(memory, b"/docs")
    page = exchange.take().decode()
    assert exchange.status == 200
    described = document(OPERATIONS)
    for path, item in described["paths"].items():
        assert path.replace("&", "&amp;") in page
        assert all(f'id="{entry["operationId"]}"' in page for entry in item.values())
    anchors = set(re.findall(r'id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= anchors
    assert {f"schema-{name}" for name in described["components"]["schemas"]} <= anchors
    # Text may name a URL; nothing may be loaded from one.
    elsewhere = r"<(script|link|img|iframe)|(src|href)=.?https?://|url\(|@import| on\w+=| style="
    assert not re.search(elsewhere, page)


def test_a_browser_may_load_nothing_but_its_style(memory: Memory) -> None:
    exchange = ask(memory, b"/docs")
    style = re.search("<style>(.*)</style>", exchange.take().decode(), re.DOTALL)
    assert style is not None
    digest = b64encode(sha256(style[1].encode()).digest())
    policy = dict(exchange.headers)[b"content-security-policy"]
    assert b"default-src 'none'; style-src 'sha256-%b';" % digest in policy
    assert b"frame-ancestors 'none'" in policy and b"unsafe" not in policy


@pytest.mark.parametrize(
    ("path", "header", "status"),
    [
        (b"/docs", (b"host", b"evil.example"), 403),
        (b"/docs", (b"origin", b"http://evil.example"), 403),
        (b"/docs/x", (b"x", b"y"), 404),
        (b"/DOCS", (b"x", b"y"), 404),
        (b"//docs", (b"x", b"y"), 404),
        (b"/%64ocs", (b"x", b"y"), 200),
    ],
)
def test_pages_keep_the_rules_of_the_api(
    memory: Memory, path: bytes, header: tuple[bytes, bytes], status: int
) -> None:
    exchange = ask(memory, path, header)
    assert exchange.status == status
    if status != 200:
        assert exchange.take().startswith(b'{"error":{"code":')


def test_methods_of_pages(memory: Memory) -> None:
    refused = ask(memory, b"/docs", method="POST")
    assert (refused.status, dict(refused.headers)[b"allow"]) == (405, b"GET, HEAD")
    head = ask(memory, b"/docs", method="HEAD")
    assert (head.status, head.take()) == (200, b"")


# -- on a loop of its own ----------------------------------------------------------------------


def served(application: Application | None = None, **settings: Any) -> HttpApi:
    """What answers requests; an application stands at `/app`."""
    service = Service(Settings(data_dir=".", **settings))
    metrics = Metrics(service)
    if application is None:
        return http_api(service, metrics)
    handler = AsgiHandler(application).answer
    row = Route("GET", "/app", NO_SCOPE, Body.IGNORED, handler, late_key=True)
    return HttpApi(service, RouteTable([*routes(service, metrics), row]), metrics)


def on_a_loop(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario."""
    asyncio.run(scenario())


def test_the_reference_needs_no_key() -> None:
    async def scenario() -> None:
        line = Line(served(api_keys=parse_keys("secret")))
        line.send(GET % b"/docs")
        for _ in range(1000):
            await asyncio.sleep(0.001)
            if line.written:
                break
        assert line.read().startswith(b"HTTP/1.1 200 ")
        line.send(GET % b"/nope")
        assert line.read().startswith(b"HTTP/1.1 401 ")
        line.hang_up()

    on_a_loop(scenario)


def test_an_application_that_streams_is_held_up_by_its_reader() -> None:
    sent = 0
    ended: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"b")]})
        try:
            while True:
                message = {"type": "http.response.body", "body": b"y" * 1000, "more_body": True}
                await send(message)
                sent += 1
        finally:
            ended.append("")

    async def scenario() -> None:
        api = served(application)
        line = Line(api)
        line.is_read = False
        line.send(GET % b"/app")
        await turns(2000)
        reached = sent
        assert 60 <= reached <= 80 and api.service.streams == 1
        await turns()
        assert sent == reached
        assert line.read().startswith(b"HTTP/1.1 200 OK\r\nx-a: b\r\ntransfer-encoding: chunked")
        await turns()
        assert sent > reached and not ended
        line.hang_up()
        await turns()
        assert ended and api.service.streams == 0 and not line.tasks
        assert api.service.memory.used == 0

    on_a_loop(scenario)


@pytest.mark.parametrize("when", ["before", "head", "middle"])
def test_an_application_that_fails(when: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is a 500 while that can be said; later the body breaks off."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if when != "before":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        if when == "middle":
            await send({"type": "http.response.body", "body": b"part", "more_body": True})
        raise RuntimeError("broken page")

    async def scenario() -> None:
        api = served(application)
        line = Line(api)
        line.send(GET % b"/app")
        await turns(50)
        if when == "middle":
            assert line.is_aborted and not line.written.endswith(b"0\r\n\r\n")
        else:
            assert line.read().startswith(b"HTTP/1.1 500 ")
            line.hang_up()
        assert api.service.streams == 0 and not line.tasks

    on_a_loop(scenario)
    assert "broken page" in caplog.text


def test_an_application_that_ends_and_a_request_behind_it() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"one", b"", b"two"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    async def scenario() -> None:
        line = Line(served(application))
        line.send(GET % b"/app" + GET % b"/v0/health")
        await turns(50)
        replies = line.read()
        assert b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n" in replies
        assert replies.count(b"HTTP/1.1 200 ") == 2
        line.hang_up()

    on_a_loop(scenario)


def test_an_application_learns_that_its_client_left() -> None:
    heard: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        heard.append((await receive())["type"])

    async def scenario() -> None:
        line = Line(served(application))
        line.send(GET % b"/app")
        await turns()
        line.hang_up()
        await turns()
        assert heard == ["http.disconnect"] and not line.tasks

    on_a_loop(scenario)
