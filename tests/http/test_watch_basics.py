"""Watch streams and their connections: slow readers, many readers, old and impatient clients."""

from __future__ import annotations

import time
from contextlib import ExitStack

from tests.http import rawhttp
from tests.http.api import Api
from tests.http.expect import ok
from tests.http.sse import Stream
from tests.http.watching import drain, receive, seqs_in

LARGE = "x" * 500_000


def opening(api: Api, topic: str, version: str = "1.1") -> bytes:
    """The request that opens a new session's stream."""
    wid = ok(api.create_watch({topic: {}}))["wid"]
    return f"GET /v0/watch/{wid} HTTP/{version}\r\nhost: localhost\r\n\r\n".encode()


def test_a_slow_reader_slows_only_itself(api: Api, log: str) -> None:
    """What it did not read is still there for it when it does, in order and once."""
    with api.watch(log) as slow, api.watch(log) as quick:
        drain(quick)
        for _ in range(40):
            api.append(log, LARGE)
            receive(quick, 1)
        assert seqs_in(quick.frames) == [*range(1, 41)]
        assert seqs_in(receive(slow, 40)) == [*range(1, 41)]


def test_a_reader_who_never_reads(api: Api, log: str) -> None:
    """It can go at any time; the server notices."""
    with rawhttp.Connection(api.address) as line:
        line.send(opening(api, log))
        for _ in range(20):
            api.append(log, LARGE)
        line.reset()
    with api.watch(log) as other:
        receive(other, 20)


def test_many_readers_of_one_topic(api: Api, log: str) -> None:
    """Each of them gets every record once and in order, whenever it came."""
    with ExitStack() as opened:
        streams: list[Stream] = []
        for number in range(40):
            if number % 4 == 0:
                api.append(log, number)
            streams.append(opened.enter_context(api.watch(log)))
        for number in range(20):
            api.append(log, number)
        for stream in streams:
            assert seqs_in(receive(stream, 30)) == [*range(1, 31)]


def test_a_client_of_http_1_0(api: Api, log: str) -> None:
    """No chunks: the end of the connection is the end of the stream."""
    api.append(log, 7)
    with rawhttp.Connection(api.address) as line:
        line.send(opening(api, log, "1.0"))
        deadline = time.monotonic() + rawhttp.READ_TIMEOUT_S
        status, headers = line.read_head(deadline)
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        assert "transfer-encoding" not in headers
        text = b""
        while b"event: caught-up" not in text:
            text += line.read_some(deadline)
        ok(api.delete_topic(log))
        while part := line.read_some(deadline):
            text += part
    assert text.startswith(b"retry: 2000\n\nid: ")
    assert [text.count(b"event: " + kind) for kind in (b"record", b"topic-deleted")] == [1, 1]
    assert b'"data":7' in text


def test_a_stream_behind_another_request(api: Api, log: str) -> None:
    """Both in one packet, and one more request behind the end of the stream."""
    health = rawhttp.head("GET", "/v0/health")
    with rawhttp.Connection(api.address) as line:
        line.send(health + opening(api, log))
        assert line.read_reply().status == 200
        deadline = time.monotonic() + rawhttp.READ_TIMEOUT_S
        assert line.read_head(deadline)[0] == 200
        text = b""
        while b"event: caught-up" not in text:
            text += line.read_chunk(deadline)
        ok(api.delete_topic(log))
        while part := line.read_chunk(deadline):
            text += part
        assert b"event: topic-deleted" in text
        line.send(health)
        assert line.read_reply().status == 200


def test_an_offer_of_another_protocol(api: Api, log: str) -> None:
    """Ignored: the stream is opened over HTTP/1.1."""
    wid = ok(api.create_watch({log: {}}))["wid"]
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMA"}
    with Stream(api.address, f"/v0/watch/{wid}", offer) as stream:
        drain(stream)


def test_head(api: Api, log: str) -> None:
    """The head of the stream, and no more; the session's cursors stay."""
    api.append(log, 1)
    wid = ok(api.create_watch({log: {}}))["wid"]
    for _ in range(2):
        reply = api.send("HEAD", f"/v0/watch/{wid}")
        assert (reply.status_code, reply.content) == (200, b"")
        assert reply.headers["content-type"] == "text/event-stream"
    with api.open_watch(wid) as stream:
        assert seqs_in(receive(stream, 1)) == [1]


def test_readers_while_others_write_and_delete(api: Api, log: str) -> None:
    """What is deleted before it is read is passed over; nothing else is."""
    with api.watch(log, node="own") as stream:
        drain(stream)
        for number in range(30):
            api.append_many(log, [{"data": number, "node": "own"}, {"data": number}])
        found = seqs_in(receive(stream, 30))
        assert found == [*range(2, 61, 2)]
        ok(api.delete(log, before_seq=61))
        api.append(log, "last")
        assert seqs_in(receive(stream, 1)) == [61]
