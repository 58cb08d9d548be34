"""What web pages in a browser on this machine can do to a server without keys: nothing."""

from __future__ import annotations

import pytest

from logqueue.api.operations import OPERATIONS, Operation
from tests.http import rawhttp
from tests.http.api import Api
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import ok, plain_ok, refused
from tests.http.ws import handshake

PAGE = {"origin": "http://evil.example"}

LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row.name)
def test_no_route_answers_a_foreign_host_or_page(api: Api, row: Operation) -> None:
    """Not by a name that resolves to this machine, a link, a form or a script."""
    path = row.pattern.replace("*", "x")
    foreign = rawhttp.head(row.method, path).replace(b"localhost", b"evil.example")
    absolute = rawhttp.head(row.method, "http://evil.example" + path)
    for content in (
        foreign,
        absolute,
        rawhttp.head(row.method, path, PAGE),
        rawhttp.head(row.method, path, {"origin": "null"}),
        rawhttp.head(row.method, path, {"sec-fetch-site": "cross-site"}),
    ):
        refused(api.raw(content), 403, "forbidden", None)
    twice = rawhttp.head(row.method, path, {**PAGE, "Origin": "http://localhost"})
    refused(api.raw(twice), 400, "invalid_request", None)


def test_no_page_opens_a_websocket(api: Api) -> None:
    _, port = api.address
    refused(handshake(api.address, PAGE), 403, "forbidden", None)
    own = {"origin": f"http://localhost:{port}"}
    refused(handshake(api.address, own), 403, "forbidden", None)
    assert handshake(api.address, {"origin": "http://localhost"}).status == 101


def test_no_form_pauses_a_queue(api: Api, queue: str) -> None:
    """A form needs no content type, and the route no body."""
    form = {**PAGE, "content-type": "text/plain", "content-length": "0"}
    refused(api.raw(rawhttp.head("POST", f"/v0/topics/{queue}/pause", form)), 403, "forbidden")
    assert not ok(api.state(queue))["config"].get("paused")


def test_a_message_says_how_to_allow_a_host(fresh_server: FreshServer, api_for: ApiFor) -> None:
    server = fresh_server(ALLOW_HOST="queue.internal")
    api = api_for(server)
    allowed = rawhttp.head("GET", "/v0/health").replace(b"localhost", b"queue.internal:1")
    plain_ok(api.raw(allowed))
    reply = api.raw(allowed.replace(b"queue.", b"other."))
    refused(reply, 403, "forbidden", None)
    assert b"--allow-host" in reply.body and b"'other.internal:1'" in reply.body
    page = rawhttp.head("GET", "/v0/health", {"origin": "https://queue.internal"})
    plain_ok(api.raw(page))


def test_keys_keep_pages_out_by_themselves(fresh_server: FreshServer) -> None:
    """A page cannot send the key, and nothing else is in its way."""
    server = fresh_server(key="k1", API_KEYS="k1")
    page = rawhttp.head("GET", "/v0/topics", {**PAGE})
    refused(rawhttp.exchange(server.address, page), 401, "unauthorized", None)
    with_key = rawhttp.head("GET", "/v0/topics", {**PAGE, "authorization": "Bearer k1"})
    ok(rawhttp.exchange(server.address, with_key))


@pytest.mark.parametrize("path", ["/", "/docs", "/ui", "/ui/", "/ui/main.js", "/ui/queues/q"])
def test_no_page_for_people_answers_a_foreign_host_or_page(api: Api, path: str) -> None:
    """But for links: those a browser may follow from everywhere."""
    for content in (
        rawhttp.head("GET", path).replace(b"localhost", b"evil.example"),
        rawhttp.head("GET", path, PAGE),
        rawhttp.head("GET", path, {"sec-fetch-site": "cross-site"}),
        rawhttp.head("GET", path, {**LINK, "sec-fetch-dest": "iframe"}),
        rawhttp.head("POST", path, LINK),
    ):
        refused(api.raw(content), 403, "forbidden", None)
    assert api.raw(rawhttp.head("GET", path, LINK)).status < 400
    foreign = rawhttp.head("GET", path, LINK).replace(b"localhost", b"evil.example")
    refused(api.raw(foreign), 403, "forbidden", None)
