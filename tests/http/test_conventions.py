"""Routing, methods, names in paths, framing and the general shape of replies."""

from __future__ import annotations

import contextlib

import httpx
import pytest

from tests.http import rawhttp
from tests.http.api import JSON, Api
from tests.http.expect import ok, plain_ok, refused

KNOWN_PATHS = [
    "/v0/topics",
    "/v0/topics/x",
    "/v0/topics/x/diff",
    "/v0/topics/x/delete",
    "/v0/topics/x/claim",
    "/v0/topics/x/ack",
    "/v0/topics/x/nack",
    "/v0/topics/x/extend",
    "/v0/topics/x/work",
    "/v0/health",
    "/v0/ready",
    "/v0/metrics",
    "/healthz",
    "/readyz",
]

UNKNOWN_PATHS = [
    "/v0",
    "/v0/",
    "/v1/topics",
    "/v0/topic",
    "/V0/topics",
    "/v0/Topics",
    "/v0/topics/",  # case 3
    "/v0/topics/x/",  # case 3
    "/v0/topics//",
    "/v0/topics/x/nosuch",
    "/v0/topics/x/claim/",
    "/v0/topics/x/claim/more",
    "/v0/topics/x/CLAIM",
    "/v0/health/",
    "/v0/ready/",
    "/v0/metrics/",
    "/healthz/",
    "/health",
    "/ready",
    "/metrics",
    "/v0/healthz",
    "/favicon.ico",
]


@pytest.mark.parametrize("path", UNKNOWN_PATHS)
@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE", "OPTIONS"])
def test_an_unknown_path_is_not_found(api: Api, method: str, path: str) -> None:
    """Case 3, and everything else that is not a route."""
    reply = api.raw(rawhttp.request(method, path, b"{}", JSON))
    refused(reply, 404, "not_found", None)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v0/topics"),
        ("PUT", "/v0/topics"),
        ("DELETE", "/v0/topics"),
        ("TRACE", "/v0/topics/x"),
        ("PROPFIND", "/v0/topics/x"),
        ("GET", "/v0/topics/x/diff"),
        ("PUT", "/v0/topics/x/diff"),
        ("GET", "/v0/topics/x/delete"),
        ("DELETE", "/v0/topics/x/delete"),
        ("GET", "/v0/topics/x/claim"),
        ("PUT", "/v0/topics/x/claim"),
        ("GET", "/v0/topics/x/ack"),
        ("DELETE", "/v0/topics/x/ack"),
        ("GET", "/v0/topics/x/nack"),
        ("PATCH", "/v0/topics/x/nack"),
        ("GET", "/v0/topics/x/extend"),
        ("PUT", "/v0/topics/x/extend"),
        ("POST", "/v0/topics/x/work"),
        ("PUT", "/v0/topics/x/work"),
        ("POST", "/v0/health"),
        ("DELETE", "/v0/ready"),
        ("POST", "/v0/metrics"),
        ("POST", "/healthz"),
        ("PUT", "/readyz"),
        ("HEAD", "/v0/topics/x/claim"),
        ("HEAD", "/v0/topics/x/diff"),
    ],
)
def test_a_wrong_method_is_not_allowed(api: Api, method: str, path: str) -> None:
    """Known path, wrong method: 405 in the envelope; it wins over the missing content type."""
    reply = api.raw(rawhttp.request(method, path, None), method=method)
    if method == "HEAD":
        assert (reply.status, reply.body) == (405, b"")
    else:
        refused(reply, 405, "method_not_allowed", None)


@pytest.mark.parametrize("path", KNOWN_PATHS)
def test_options_is_not_allowed(api: Api, path: str) -> None:
    """Case 4."""
    reply = api.send("OPTIONS", path)
    refused(reply, 405, "method_not_allowed", None)
    assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(
    "path", ["/v0/topics", "/v0/health", "/v0/ready", "/v0/metrics", "/healthz", "/readyz"]
)
def test_head_answers_like_get_without_a_body(api: Api, path: str) -> None:
    """HEAD has GET's status and content type, no body, and leaves the connection usable."""
    got = api.send("GET", path)
    with rawhttp.Connection(api.address) as connection:
        connection.send(rawhttp.request("HEAD", path))
        reply = connection.read_reply(method="HEAD")
        assert reply.status == got.status_code == 200
        assert reply.headers["content-type"] == got.headers["content-type"]
        connection.send(rawhttp.request("GET", "/v0/health"))
        plain_ok(connection.read_reply())


def test_head_of_a_topic(api: Api, log: str) -> None:
    """Case 5: like GET, and an absent topic is 404 without a body."""
    reply = api.send("HEAD", f"/v0/topics/{log}")
    assert (reply.status_code, reply.content) == (200, b"")
    assert reply.headers["content-type"] == "application/json"
    absent = api.send("HEAD", f"/v0/topics/{log}absent")
    assert (absent.status_code, absent.content) == (404, b"")


def test_head_of_work_ends_at_once_and_leases_nothing(api: Api, queue: str) -> None:
    """HEAD on the stream route must neither hang nor hand out a job."""
    api.append(queue, 1)
    with rawhttp.Connection(api.address) as connection:
        connection.send(rawhttp.request("HEAD", f"/v0/topics/{queue}/work?node=w"))
        reply = connection.read_reply(method="HEAD")
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        connection.send(rawhttp.request("GET", "/v0/health"))
        plain_ok(connection.read_reply())
        assert api.facts(queue, "ready", "in_flight") == (1, 0)


@pytest.mark.parametrize(
    ("escaped", "plain"),
    [("%2E", "."), ("%2d", "-"), ("%3A", ":"), ("%5F", "_"), ("%61%62", "ab"), ("%30", "0")],
)
def test_names_are_percent_decoded(api: Api, topic: str, escaped: str, plain: str) -> None:
    """A segment is decoded once before it is used as a name."""
    body = ok(api.put(f"{topic}{escaped}"), 201)
    assert body["topic"] == f"{topic}{plain}"
    assert ok(api.state(f"{topic}{plain}"))["topic"] == f"{topic}{plain}"
    ok(api.send("POST", f"/v0/topics/{topic}{escaped}/diff"))


def test_names_are_decoded_only_once(api: Api, topic: str) -> None:
    """%252E is the text %2E, which no topic can be called."""
    ok(api.put(f"{topic}.x"), 201)
    absent = {"topic": f"{topic}%2Ex"}
    refused(api.state(f"{topic}%252Ex"), 404, "topic_not_found", absent)
    refused(api.put(f"{topic}%252Ex"), 400, "invalid_request")


def test_an_escaped_slash_is_part_of_the_name(api: Api, queue: str) -> None:
    """Case 26: %2F does not route; such a name is invalid where it could be created."""
    refused(api.state("a%2Fb"), 404, "topic_not_found", {"topic": "a/b"})
    refused(api.put("a%2Fb"), 400, "invalid_request")
    api.append(queue, 1)
    reply = api.json("POST", f"/v0/topics/{queue}%2Fclaim", {"node": "w"})
    refused(reply, 400, "invalid_request")  # a write without records, not a claim
    assert api.facts(queue, "in_flight") == (0,)
    refused(api.send("GET", f"/v0/topics%2F{queue}"), 404, "not_found", None)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v0/topics/%ff"),
        ("PUT", "/v0/topics/%ff"),
        ("DELETE", "/v0/topics/%c3%28"),
        ("POST", "/v0/topics/%ff"),
        ("POST", "/v0/topics/%ff/claim"),
        ("GET", "/v0/topics/%e2%82/work?node=w"),
        ("GET", "/v0/topics?prefix=%ff"),
        ("GET", "/v0/topics?cursor=%ff"),
        ("GET", "/v0/topics/x/work?node=%ff"),
    ],
)
def test_an_undecodable_path_or_query_is_refused(api: Api, method: str, path: str) -> None:
    """Bad UTF-8 behind the escapes: 400, always in the envelope."""
    body = b'{"records":[{"data":1}],"node":"w"}'
    refused(api.raw(rawhttp.request(method, path, body, JSON)), 400, "invalid_request")


def test_a_name_with_other_letters_is_only_invalid(api: Api) -> None:
    """Case 26, case 27: good UTF-8 that is not a topic name."""
    refused(api.put("%C3%A4"), 400, "invalid_request")
    refused(api.state("%C3%A4"), 404, "topic_not_found", {"topic": "ä"})


@pytest.mark.parametrize(
    "path",
    ["/v0/topics?no_such=1", "/v0/health?x=%20", "/v0/ready?x", "/v0/metrics?a=b", "/healthz?="],
)
def test_unknown_query_parameters_are_ignored(api: Api, path: str) -> None:
    """Also empty ones and ones without a value."""
    assert api.raw(rawhttp.request("GET", path)).status == 200


@pytest.mark.parametrize("value", ["maybe", "", "TRUE", "yes", "2", "true%20", "01"])
def test_any_other_text_for_a_boolean_is_its_default(api: Api, log: str, value: str) -> None:
    """Case 17: the default of touch on a state is true."""
    body = ok(api.send("GET", f"/v0/topics/{log}?touch={value}"))
    assert body["last_read_ts"] is not None


@pytest.mark.parametrize(("value", "touched"), [("0", False), ("1", True), ("false", False)])
def test_boolean_query_values(api: Api, log: str, value: str, touched: bool) -> None:
    """true and 1, false and 0."""
    body = ok(api.send("GET", f"/v0/topics/{log}?touch={value}"))
    assert (body["last_read_ts"] is not None) is touched


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 1000, b"hello"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_body_that_means_nothing_is_ignored(api: Api, log: str, method: str, body: bytes) -> None:
    """Case 20: and it is read off the connection, so that the next request is understood."""
    with rawhttp.Connection(api.address) as connection:
        headers = {"content-type": "text/plain"}
        connection.send(rawhttp.request(method, f"/v0/topics/{log}", body, headers))
        connection.send(rawhttp.request("GET", "/v0/health"))
        ok(connection.read_reply())
        plain_ok(connection.read_reply())


def test_pipelined_requests_are_answered_in_order(api: Api, queue: str) -> None:
    """Several requests in one segment; each answer belongs to its question."""
    writes = [
        rawhttp.request("POST", f"/v0/topics/{queue}", b'{"records":[{"data":%d}]}' % n, JSON)
        for n in range(20)
    ]
    with rawhttp.Connection(api.address) as connection:
        connection.send(b"".join(writes))
        seqs = [ok(connection.read_reply())["last_seq"] for _ in writes]
    assert seqs == list(range(1, 21))


def test_a_request_may_come_in_single_bytes(api: Api, queue: str) -> None:
    """The framing does not depend on how the bytes are cut."""
    content = rawhttp.request(
        "POST",
        f"/v0/topics/{queue}",
        b'{"records":[{"data":1}]}',
        {"Content-Type": "application/json"},
    )
    with rawhttp.Connection(api.address) as connection:
        for index in range(len(content)):
            connection.send(content[index : index + 1])
        assert ok(connection.read_reply())["seqs"] == [1]


def test_a_chunked_body_is_a_body(api: Api, queue: str) -> None:
    """No content-length, chunks cut anywhere, also inside a character."""
    text = '{"records":[{"data":"é"}]}'.encode()
    parts = [text[index : index + 1] for index in range(len(text))]
    headers = {**JSON, "transfer-encoding": "chunked"}
    content = rawhttp.head("POST", f"/v0/topics/{queue}", headers) + rawhttp.chunked(parts)
    assert ok(api.raw(content))["seqs"] == [1]
    assert api.claimed(queue)[0]["data"] == "é"


def test_a_truncated_body_changes_nothing(api: Api, queue: str) -> None:
    """The client goes away before the promised length has come."""
    text = b'{"records":[{"data":1}]}'
    headers = {**JSON, "content-length": str(len(text) + 1)}
    with rawhttp.Connection(api.address) as connection:
        connection.send(rawhttp.head("POST", f"/v0/topics/{queue}", headers) + text)
        connection.shut_writing()
        assert connection.closed_by_server()
    assert api.facts(queue, "head_seq", "count") == (0, 0)


@pytest.mark.parametrize(
    "content",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /v0/health\r\n\r\n",
        b"GET /v0/health HTTP/9.9\r\n\r\n",
        b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\nbad header\r\n\r\n",
        b"POST /v0/topics/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /v0/topics/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1e3\r\n\r\n",
        b"POST /v0/topics/x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_bytes_that_are_no_http_do_no_harm(api: Api, content: bytes) -> None:
    """A refusal below 500 or a closed connection; the server lives on."""
    with rawhttp.Connection(api.address) as connection:
        connection.send(content)
        connection.shut_writing()
        with contextlib.suppress(rawhttp.Closed):
            assert connection.read_reply().status < 500
    plain_ok(api.send("GET", "/v0/health"))


def test_replies_are_plain_json(api: Api, log: str) -> None:
    """Exact content type, no compression, no cross-origin headers."""
    asked = {"accept-encoding": "gzip, br", "origin": api.base_url}
    reply = api.send("GET", f"/v0/topics/{log}", None, asked)
    ok(reply)
    assert reply.headers["content-type"] == "application/json"
    assert "content-encoding" not in reply.headers
    assert not [name for name in reply.headers if name.startswith("access-control")]


def test_one_connection_serves_many_requests(server_url: str) -> None:
    """Keep-alive, also after refusals."""
    limits = httpx.Limits(max_connections=1)
    with httpx.Client(base_url=server_url, limits=limits, trust_env=False) as client:
        ports = set()
        for path in ("/v0/health", "/v0/none", "/v0/topics/none", "/v0/topics?cursor=%25"):
            reply = client.get(path)
            ports.add(reply.extensions["network_stream"].get_extra_info("client_addr"))
    assert len(ports) == 1


@pytest.fixture
def server_url(api: Api) -> str:
    """Address of the shared server."""
    host, port = api.address
    return f"http://{host}:{port}"
