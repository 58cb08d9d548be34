"""One connection: pipelining, half-closes, offers of other protocols, clients that vanish."""

from __future__ import annotations

import json

from tests.http import rawhttp
from tests.http.api import JSON, Api
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import eventually

APPEND = b'{"records":[{"data":1}]}'


def post(path: str, body: bytes, **headers: str) -> bytes:
    """A POST with a JSON body."""
    return rawhttp.request("POST", path, body, {**JSON, **headers})


def get(path: str) -> bytes:
    """A GET."""
    return rawhttp.request("GET", path, b"", {})


def test_pipelined_requests_are_answered_in_order(api: Api, queue: str) -> None:
    """Short cuts, held replies and the general way in one packet."""
    path = f"/v0/topics/{queue}"
    packet = post(path, APPEND) + get(path) + get("/v0/health") + post(path, APPEND) + get("/nope")
    for size in (len(packet), 7):
        with rawhttp.Connection(api.address) as line:
            for start in range(0, len(packet), size):
                line.send(packet[start : start + size])
            statuses = [line.read_reply().status for _ in range(5)]
        assert statuses == [200, 200, 200, 200, 404]
    assert api.facts(queue, "count") == (4,)


def test_a_stored_append_is_answered_before_garbage_behind_it(api: Api, topic: str) -> None:
    """The client must not read "refused" for a job that exists."""
    api.put(topic, type="queue", durability="fsync")
    with rawhttp.Connection(api.address) as line:
        line.send(post(f"/v0/topics/{topic}", APPEND) + b"\x00\x01garbage\r\n\r\n")
        reply = line.read_reply()
        assert reply.status == 200
        assert line.closed_by_server()
    assert api.facts(topic, "count") == (1,)


def test_a_large_body_does_not_count_as_the_next_head(api: Api, queue: str) -> None:
    """A head is measured from its own first byte."""
    body = json.dumps({"records": [{"data": "x" * 100_000}]}).encode()
    health = get("/v0/health")
    with rawhttp.Connection(api.address) as line:
        line.send(post(f"/v0/topics/{queue}", body) + health[:20])
        assert line.read_reply().status == 200
        line.send(health[20:])
        assert line.read_reply().status == 200


def test_an_offer_of_another_protocol_is_ignored(api: Api, queue: str) -> None:
    """The body is framed by its length, and never taken for a request."""
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMA"}
    with rawhttp.Connection(api.address) as line:
        line.send(post(f"/v0/topics/{queue}", APPEND, **offer))
        assert line.read_reply().status == 200
        smuggled = rawhttp.request("DELETE", f"/v0/topics/{queue}", b"", {})
        head, _, _ = post("/v0/topics/zz", smuggled, **offer).partition(b"\r\n\r\n")
        line.send(head + b"\r\n\r\n")
        line.send(smuggled)
        assert line.read_reply().status == 400
    assert api.facts(queue, "count") == (1,)


def test_a_half_closed_client_gets_its_answer(api: Api, topic: str) -> None:
    """Also one that waits for a sync."""
    api.put(topic, type="queue", durability="fsync")
    with rawhttp.Connection(api.address) as line:
        line.send(post(f"/v0/topics/{topic}", APPEND))
        line.shut_writing()
        assert line.read_reply().status == 200


def test_broken_uploads_free_their_place(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """A key is not locked out by connections that broke before the body was whole."""
    server = fresh_server(API_KEYS="k1", MAX_INFLIGHT_PER_KEY="3")
    api = api_for(server, "k1")
    api.make_queue("q")
    upload = post("/v0/topics/q", APPEND, authorization="Bearer k1")
    for _ in range(6):
        with rawhttp.Connection(server.address) as line:
            line.send(upload[:-4])
    assert eventually(lambda: api.topics().status_code == 200)
    assert api.append("q", 1) == [1]


def test_a_reader_who_does_not_read_costs_no_memory(api: Api, queue: str) -> None:
    """Replies are not piled up for a client that asks and asks and never listens."""
    for _ in range(8):
        api.append(queue, "x" * 1_000_000)
    read = post(f"/v0/topics/{queue}/diff", b'{"max_batch_bytes":8388608}')
    before = api.facts(queue, "count")
    with rawhttp.Connection(api.address) as line:
        line.send(read * 40)
        assert api.facts(queue, "count") == before
        for _ in range(40):
            reply = line.read_reply()
            assert reply.status == 200 and len(reply.body) > 7_000_000


def test_a_vanished_stream_with_a_request_behind_it(api: Api, queue: str) -> None:
    """Its leases are back at once, although a pipelined request hides the disconnect."""
    api.append(queue, 1, 2)
    with rawhttp.Connection(api.address) as line:
        line.send(get(f"/v0/topics/{queue}/work?node=w&max=2") + get("/v0/health"))
        assert eventually(lambda: api.facts(queue, "queue")[0]["in_flight"] == 2)
    assert eventually(lambda: api.facts(queue, "queue")[0]["in_flight"] == 0)


def test_a_vanished_claim_with_a_request_behind_it(api: Api, topic: str) -> None:
    """The jobs of a claimer that left in its window do not stay leased."""
    api.make_queue(topic, claim_jitter_ms=300)
    api.append(topic, 1, 2)
    with rawhttp.Connection(api.address) as line:
        line.send(post(f"/v0/topics/{topic}/claim", b'{"node":"w","max":2}') + get("/v0/health"))
        assert api.facts(topic, "count") == (2,)
    assert api.claimed(topic, node="other", max=2)
