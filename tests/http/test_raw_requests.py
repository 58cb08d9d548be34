"""Requests as bytes: every form that the grammar has, and those that it has not.

Whatever comes, the answer is a well-formed reply or a closed connection, and the server says
little of it in its log.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator

import pytest

from logqueue.api.operations import OPERATIONS
from tests.http import rawhttp
from tests.http.api import Api
from tests.http.expect import eventually, plain_ok
from tests.http.process import ServerProcess

EFFORT = int(os.environ.get("LOGQUEUE_TEST_EFFORT", "1"))
HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"
WRITE = b'{"records":[{"data":1}]}'
LOG_BYTES_MAX = 2000


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without keys, whose log stays short and free of tracebacks."""
    process = ServerProcess(tmp_path_factory.mktemp("raw") / "data").start()
    with Api(process.base_url) as api:
        api.make_queue("q")
        began = process.log_bytes
        yield process
        plain_ok(api.send("GET", "/v0/health"))
    assert process.running, process.log()
    assert process.log_bytes - began < LOG_BYTES_MAX, process.log()
    process.stop()


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a key."""
    directory = tmp_path_factory.mktemp("raw-keyed") / "data"
    process = ServerProcess(directory, settings={"API_KEYS": "k1"}, probe_key="k1").start()
    yield process
    process.stop()


NO_RECORDS = b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
WAITS = (
    b'content-type: application/json\r\ncontent-length: 31\r\n\r\n{"from_seq":0,"wait_ms": 30000}'
)


def statuses(
    process: ServerProcess, content: bytes, *, method: str = "GET", pieces: int = 1
) -> list[int]:
    """What the server answers to bytes behind which the client sends no more."""
    found = []
    with rawhttp.Connection(process.address, 20.0) as line:
        size = -(-len(content) // pieces)
        for at in range(0, len(content), size):
            line.send(content[at : at + size])
        line.shut_writing()
        with contextlib.suppress(rawhttp.Closed):
            while True:
                found.append(line.read_reply(method=method).status)
    return found


def get(target: bytes = b"/v0/health", *headers: bytes, version: bytes = b"1.1") -> bytes:
    """A GET; the headers given without their line ends."""
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"GET %b HTTP/%b\r\n%b%b\r\n" % (target, version, HOST, lines)


def post(*headers: bytes, body: bytes = WRITE, host: bytes = HOST) -> bytes:
    """A write; the headers given without their line ends."""
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"POST /v0/topics/q HTTP/1.1\r\n%b%b%b\r\n%b" % (host, JSON, lines, body)


def length(body: bytes = WRITE) -> bytes:
    """The header that says how long a body is."""
    return b"Content-Length: %d" % len(body)


CHUNKED = b"Transfer-Encoding: chunked"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(WRITE), WRITE)

TARGETS = {
    "path": (get(), [200]),
    "line-break-before": (b"\r\n\r\n" + get(), [200]),
    "query": (get(b"/v0/health?x=1"), [200]),
    "absolute": (get(b"http://localhost/v0/health"), [200]),
    "absolute-upper-case": (get(b"HTTP://LOCALHOST:4000/v0/health?x"), [200]),
    "absolute-without-path": (get(b"http://localhost"), [307]),
    "absolute-with-user": (get(b"http://me@localhost/v0/health"), [400]),
    "asterisk": (get(b"*"), [404]),
    "authority": (get(b"localhost:4000"), [400]),
    "no-slash": (get(b"v0/health"), [400]),
    "other-scheme": (get(b"ftp://localhost/v0/health"), [400]),
    "two-slashes": (get(b"//v0/health"), [404]),
    "dots": (get(b"/v0/../v0/health"), [404]),
    "nul": (get(b"/v0/\x00health"), [400]),
    "not-ascii": (get(b"/v0/\xffhealth"), [400]),
    "blank": (get(b"/v0/health x"), [400]),
    "http-0.9": (b"GET /v0/health\r\n", [400]),
    "http-0.9-and-headers": (b"GET /v0/health\r\n" + HOST + b"\r\n", [400]),
    "http-1.0": (b"GET /v0/health HTTP/1.0\r\n\r\n", [200]),
    "http-1.0-two": (b"GET /v0/health HTTP/1.0\r\n\r\n" * 2, [200]),
    "http-1.2": (get(version=b"1.2"), [400]),
    "http-2.0": (get(version=b"2.0"), [400]),
    "lower-case-version": (b"GET /v0/health http/1.1\r\n" + HOST + b"\r\n", [400]),
    "rtsp": (b"DESCRIBE /v0/health RTSP/1.0\r\n\r\n", [400]),
    "two-blanks": (b"GET  /v0/health HTTP/1.1\r\n" + HOST + b"\r\n", [400]),
    "tab": (b"GET\t/v0/health HTTP/1.1\r\n" + HOST + b"\r\n", [400]),
    "bare-lf": (b"GET /v0/health HTTP/1.1\nHost: localhost\n\n", [400]),
    "bare-cr": (b"GET /v0/health HTTP/1.1\rHost: localhost\r\r", [400]),
    "tls": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", [400]),
    "cut-off": (b"GET /v0/hea", [400]),
    "cut-off-headers": (b"GET /v0/health HTTP/1.1\r\nHos", [400]),
}

HEADERS = {
    "no-host": (b"GET /v0/health HTTP/1.1\r\n\r\n", [400]),
    "two-hosts": (get(b"/v0/health", b"Host: localhost"), [400]),
    "folded": (get(b"/v0/health", b"X-A: 1", b" 2"), [400]),
    "folded-first": (b"GET /v0/health HTTP/1.1\r\n Host: localhost\r\n\r\n", [400]),
    "blank-before-colon": (get(b"/v0/health", b"X-A : 1"), [400]),
    "no-colon": (get(b"/v0/health", b"X-A"), [400]),
    "no-name": (get(b"/v0/health", b": 1"), [400]),
    "nul-in-name": (get(b"/v0/health", b"X\x00A: 1"), [400]),
    "nul-in-value": (get(b"/v0/health", b"X-A: \x00"), [400]),
    "lf-in-value": (get(b"/v0/health", b"X-A: 1\nX-B: 2"), [400]),
    "cr-in-value": (get(b"/v0/health", b"X-A: 1\rX-B: 2"), [400]),
    "delete-in-value": (get(b"/v0/health", b"X-A: \x7f"), [400]),
    "latin-1": (get(b"/v0/health", b"X-A: \xe9"), [200]),
    "empty-value": (get(b"/v0/health", b"X-A:"), [200]),
    "many": (get(b"/v0/health", *[b"X-%d: 1" % n for n in range(200)]), [200]),
    "too-many": (get(b"/v0/health", *[b"X-%d: 1" % n for n in range(300)]), [400]),
    "long": (get(b"/v0/health", b"X-A: " + b"a" * 60_000), [200]),
    "too-long": (get(b"/v0/health", b"X-A: " + b"a" * 70_000), [400]),
    "endless": (b"GET /v0/health HTTP/1.1\r\nX-A: " + b"a" * 200_000, [400]),
    "endless-target": (b"GET /" + b"a" * 200_000, [400]),
    "connection-close": (get(b"/v0/health", b"Connection: close") + get(), [200]),
    "connection-list": (get(b"/v0/health", b"Connection: x, Close") + get(), [200]),
    "keep-alive": (get(b"/v0/health", b"Connection: keep-alive") + get(), [200, 200]),
}

BODIES = {
    "length": (post(length()), [200]),
    "chunked": (post(CHUNKED, body=CHUNKS), [200]),
    "chunked-upper-case": (post(b"Transfer-Encoding: CHUNKED", body=CHUNKS), [200]),
    "extension": (post(CHUNKED, body=CHUNKS.replace(b"\r\n{", b";a=b\r\n{")), [200]),
    "trailers": (post(CHUNKED, body=CHUNKS[:-2] + b"X-A: 1\r\n\r\n") + get(), [200, 200]),
    "bad-trailer": (post(CHUNKED, body=CHUNKS[:-2] + b"X A\r\n\r\n") + get(), [400]),
    "endless-trailers": (post(CHUNKED, body=CHUNKS[:-2] + b"X-A: 1\r\n" * 9000), [400]),
    "no-body": (post(body=b""), [400]),
    "cut-off": (post(b"Content-Length: 99"), [400]),
    "cut-off-chunk": (post(CHUNKED, body=CHUNKS[:-1]), [400]),
    "chunk-2^64": (post(CHUNKED, body=b"10000000000000000\r\n" + WRITE), [400]),
    "chunk-2^64-1": (post(CHUNKED, body=b"ffffffffffffffff\r\n" + WRITE), [413]),
    "chunk-2^63": (post(CHUNKED, body=b"8000000000000000\r\n" + WRITE), [413]),
    "negative-chunk": (post(CHUNKED, body=b"-1\r\n" + WRITE), [400]),
    "chunk-0x": (post(CHUNKED, body=b"0x18\r\n" + CHUNKS), [400]),
    "blank-chunk-size": (post(CHUNKED, body=b" 18\r\n" + CHUNKS), [400]),
    "no-chunk-size": (post(CHUNKED, body=b"\r\n" + CHUNKS), [400]),
    "chunk-too-short": (post(CHUNKED, body=b"2\r\nabc\r\n0\r\n\r\n"), [400]),
    "chunks-with-lf": (post(CHUNKED, body=CHUNKS.replace(b"\r\n", b"\n")), [400]),
    "long-extension": (post(CHUNKED, body=b"1;" + b"x" * 9000 + b"\r\n"), [400]),
    "lengths-alike": (post(length(), length()), [400]),
    "lengths-apart": (post(length(), b"Content-Length: 5"), [400]),
    "length-list": (post(b"Content-Length: 24, 24"), [400]),
    "length-plus": (post(b"Content-Length: +24"), [400]),
    "length-minus": (post(b"Content-Length: -1"), [400]),
    "length-hex": (post(b"Content-Length: 0x18"), [400]),
    "length-exponent": (post(b"Content-Length: 1e3"), [400]),
    "length-empty": (post(b"Content-Length:"), [400]),
    "length-2^64": (post(b"Content-Length: 18446744073709551616"), [413]),
    "length-long": (post(b"Content-Length: " + b"9" * 5000), [413]),
    "length-zeros": (post(b"Content-Length: 0000000024"), [200]),
    "both": (post(length(), CHUNKED, body=CHUNKS), [400]),
    "both-other-order": (post(CHUNKED, length(), body=CHUNKS), [400]),
    "chunked-twice": (post(CHUNKED, CHUNKED, body=CHUNKS), [400]),
    "chunked-list": (post(b"Transfer-Encoding: chunked, chunked", body=CHUNKS), [400]),
    "identity": (post(b"Transfer-Encoding: identity", body=WRITE), [400]),
    "gzip": (post(b"Transfer-Encoding: gzip, chunked", body=CHUNKS), [400]),
    "xchunked": (post(b"Transfer-Encoding: xchunked", body=CHUNKS), [400]),
    "chunked-tab": (post(b"Transfer-Encoding:\tchunked", body=CHUNKS), [200]),
    "chunked-vertical-tab": (post(b"Transfer-Encoding: \x0bchunked", body=CHUNKS), [400]),
    "chunked-1.0": (post(CHUNKED, body=CHUNKS).replace(b"HTTP/1.1", b"HTTP/1.0"), [400]),
    "get": (get(b"/v0/health", b"Content-Length: 5") + b"abcde" + get(), [200, 200]),
    "get-chunked": (get(b"/v0/health", CHUNKED) + CHUNKS + get(), [200, 200]),
    "get-cut-off": (get(b"/v0/health", b"Content-Length: 5") + b"abc", [400]),
    "refused-and-next": (
        b"POST /nosuch HTTP/1.1\r\n" + HOST + length() + b"\r\n\r\n" + WRITE + get(),
        [404, 200],
    ),
    "pipelined": (post(length()) * 3 + get() * 100, [200] * 103),
}

OFFERS = {
    "h2c": (post(length(), b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c"), [200]),
    "h2c-close": (
        post(length(), b"Connection: Upgrade, close", b"Upgrade: h2c") + get(),
        [200],
    ),
    "h2c-close-apart": (
        get(b"/v0/health", b"Connection: close", b"Connection: upgrade", b"Upgrade: h2c") + get(),
        [200],
    ),
    "h2c-1.0": (
        get(b"/v0/health", b"Connection: Upgrade", b"Upgrade: h2c", version=b"1.0") + get(),
        [200],
    ),
    "unknown": (get(b"/v0/health", b"Connection: Upgrade", b"Upgrade: x/1") + get(), [200, 200]),
    "websocket-elsewhere": (
        get(b"/v0/health", b"Connection: Upgrade", b"Upgrade: websocket") + get(),
        [200, 200],
    ),
    "websocket-nowhere": (
        get(b"/nosuch", b"Connection: Upgrade", b"Upgrade: websocket") + get(),
        [404, 200],
    ),
    "websocket-without-connection": (get(b"/v0/ws", b"Upgrade: websocket"), [400]),
    "websocket-without-key": (
        get(b"/v0/ws", b"Connection: Upgrade", b"Upgrade: websocket"),
        [400],
    ),
    "smuggled": (
        post(b"Connection: Upgrade", b"Upgrade: h2c", length(get()), body=get()),
        [400],
    ),
}

TABLE = {
    f"{part}-{name}": row
    for part, rows in (
        ("target", TARGETS),
        ("header", HEADERS),
        ("body", BODIES),
        ("offer", OFFERS),
    )
    for name, row in rows.items()
}


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("pieces", [1, 3])
def test_requests_by_hand(plain: ServerProcess, name: str, pieces: int) -> None:
    """In one packet and in several."""
    content, expected = TABLE[name]
    assert statuses(plain, content, pieces=pieces) == expected


METHODS = [
    "CONNECT", "OPTIONS", "TRACE", "PATCH", "PROPFIND", "LINK", "PRI", "SOURCE", "M-SEARCH",
    "get", "Get", "GETT", "G", "BREW", "!#$%&'*+-.^_`|~", "A" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_methods_that_no_route_has(plain: ServerProcess, keyed: ServerProcess, method: str) -> None:
    """405 with what is allowed, 404 off the routes, and 401 before both."""
    for path, expected in ((b"/v0/topics", 405), (b"/nosuch", 404), (b"*", 404)):
        content = b"%b %b HTTP/1.1\r\n%b\r\n" % (method.encode(), path, HOST)
        with rawhttp.Connection(plain.address) as line:
            line.send(content)
            reply = line.read_reply()
            assert reply.status == expected
            assert (reply.headers.get("allow") == "GET, HEAD") == (expected == 405)
        assert statuses(keyed, content) == [401]


def test_every_path_says_which_methods_it_takes(plain: ServerProcess) -> None:
    """In `Allow`, for every route there is and every method it has not."""
    known: dict[str, set[str]] = {}
    for row in OPERATIONS:
        known.setdefault(row.pattern, set()).add(row.method)
    methods = ("GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE")
    with rawhttp.Connection(plain.address) as line:
        for pattern, taken in known.items():
            allowed = taken | ({"HEAD"} if "GET" in taken else set())
            for method in set(methods) - allowed:
                line.send(rawhttp.head(method, pattern.replace("*", "x")))
                reply = line.read_reply(method=method)
                assert reply.status == 405, (method, pattern)
                assert set(reply.headers["allow"].split(", ")) == allowed


def test_a_method_that_cannot_be_one(plain: ServerProcess) -> None:
    """Separators are in no token."""
    for method in (b"GE(T", b"G\x00T", b'"GET"', b"G\xc3\x84T", b"A" * 70_000):
        assert statuses(plain, b"%b / HTTP/1.1\r\n%b\r\n" % (method, HOST)) == [400]


def test_connect_costs_one_short_reply(plain: ServerProcess) -> None:
    """It ends its connection, as whoever asks for a tunnel expects."""
    before = plain.log_bytes
    for target in (b"example.com:443", b"/v0/topics/q", b"/"):
        content = b"CONNECT %b HTTP/1.1\r\n%b\r\n" % (target, HOST)
        assert statuses(plain, content * 3) == [404 if b"example" in target else 405]
    assert statuses(plain, b"CONNECT a:1 HTTP/1.0\r\n\r\n") == [404]
    assert plain.log_bytes == before


@pytest.mark.parametrize("path", [b"/v0/health", b"/v0/topics/q", b"/v0/metrics", b"/v0/ready"])
def test_head_is_get_without_a_body(plain: ServerProcess, path: bytes) -> None:
    """And the next request is answered behind it."""
    content = get(path).replace(b"GET", b"HEAD")
    assert statuses(plain, content * 2, method="HEAD") == [200, 200]


@pytest.mark.parametrize("path", [b"/v0/metrics", b"/v0/topics", b"/v0/log/segments"])
def test_who_sends_no_more_is_answered(plain: ServerProcess, path: bytes) -> None:
    """Also where the answer is made in steps."""
    # More metrics than one step writes.
    for name in range(40):
        topic = b"PUT /v0/topics/many%d HTTP/1.1\r\n%b" % (name, HOST)
        topic += b"content-type: application/json\r\ncontent-length: 16\r\n\r\n"
        assert statuses(plain, topic + b'{"type":"queue"}')[0] in (200, 201)
    assert statuses(plain, get(path)) == [200]
    assert statuses(plain, get(path) * 3) == [200] * 3


def test_who_sends_no_more_does_not_wait_long(plain: ServerProcess) -> None:
    """Most who do that while they wait for records have hung up altogether."""
    assert statuses(plain, b"PUT /v0/topics/idle HTTP/1.1\r\n%b%b" % (HOST, NO_RECORDS)) == [201]
    assert statuses(plain, b"POST /v0/topics/idle/diff HTTP/1.1\r\n%b%b" % (HOST, WAITS)) == []


def test_a_body_is_asked_for(plain: ServerProcess) -> None:
    """100 only where the body is wanted, and the final status either way."""
    expecting = (b"Expect: 100-continue", length())
    with rawhttp.Connection(plain.address) as line:
        line.send(post(*expecting, body=b""))
        assert line.read_some(time.monotonic() + 5.0) == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.send(WRITE)
        assert line.read_reply().status == 200
    refused = post(*expecting, body=b"").replace(b"topics/q", b"nosuch")
    assert statuses(plain, refused) == [404]
    assert statuses(plain, post(*expecting, body=b"")) == [400]
    assert statuses(plain, get(b"/v0/health", b"Expect: 100-continue")) == [200]
    assert statuses(plain, post(b"Expect: the-unexpected", length())) == [200]


def test_a_refused_upload_can_be_read(plain: ServerProcess) -> None:
    """The reply is not lost on a client that sends its whole body first."""
    body = b"x" * (4 << 20)
    head = b"POST /nosuch HTTP/1.1\r\n" + HOST + length(body) + b"\r\n\r\n"
    assert statuses(plain, head + body) == [404]


def test_many_requests_at_once_do_not_pile_up(plain: ServerProcess) -> None:
    """All are answered, in order."""
    assert statuses(plain, get() * 3000) == [200] * 3000


# -- anything ------------------------------------------------------------------------------------


def mutated(chance: random.Random) -> bytes:
    """A request with some of its bytes changed, lost, doubled, or mixed with another's."""
    seeds = [content for content, _ in TABLE.values() if len(content) < 5000]
    content = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(content) + 1)
        kind = chance.randrange(5)
        if kind == 0:
            content[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            del content[at : at + chance.randint(1, 9)]
        elif kind == 2:
            content[at:at] = content[at : at + chance.randint(1, 30)]
        elif kind == 3:
            content[at:at] = chance.choice(
                [b"\r\n", b"\r", b"\n", b"\x00", b" ", b":", b"\t", b","]
            )
        else:
            content[at:] = chance.choice(seeds)
    return bytes(content)


def test_mutated_requests(plain: ServerProcess) -> None:
    """Every answer is a whole reply below 500, or the connection closes; every time the same."""
    chance = random.Random(7)
    for number in range(300 * EFFORT):
        content = mutated(chance)
        found = statuses(plain, content, pieces=chance.choice([1, 1, 2, 5]))
        assert all(status < 500 for status in found), (number, content, found)
    with Api(plain.base_url) as api:
        assert eventually(lambda: api.send("GET", "/v0/health").status_code == 200)


def test_a_length_with_leading_zeros_is_a_length(plain: ServerProcess) -> None:
    head = (
        b"POST /v0/topics/zeros HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    )
    body = b'{"records":[{"data":1}]}'
    with rawhttp.Connection(plain.address) as line:
        line.send(head + b"content-length: " + b"0" * 40 + b"24\r\n\r\n" + body)
        assert line.read_reply().status == 201
