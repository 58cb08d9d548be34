"""HTTP/2 with prior knowledge over sockets: a whole life of jobs by a client that others wrote."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived

from tests.http.api import Api
from tests.http.conftest import FreshServer
from tests.http.expect import eventually


@pytest.fixture
def h2(api: Api) -> Iterator[httpx.Client]:
    """A client that speaks nothing but HTTP/2."""
    with httpx.Client(
        base_url=api.base_url, http1=False, http2=True, timeout=60, trust_env=False
    ) as client:
        yield client


def frames(lines: Iterator[str], event: str) -> Iterator[Any]:
    """The data of events of one kind."""
    kind = ""
    for line in lines:
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: ") and kind == event:
            yield json.loads(line.removeprefix("data: "))


def test_a_job_from_append_to_ack(h2: httpx.Client, topic: str) -> None:
    path = f"/v0/topics/{topic}"
    made = h2.put(path, json={"type": "queue", "durability": "fsync"})
    assert (made.http_version, made.status_code) == ("HTTP/2", 201)
    assert h2.post(path, json={"records": [{"data": 1}]}).json()["seqs"] == [1]
    (job,) = h2.post(f"{path}/claim", json={"node": "w"}).json()["claimed"]
    acked = h2.post(f"{path}/ack", json={"node": "w", "seqs": [job["$seq"]]})
    assert acked.status_code == 200 and acked.json()["acked"] == 1
    assert h2.head(path).status_code == 200
    assert h2.get("/v0/topics/absent").json()["error"]["code"] == "topic_not_found"
    assert "text/html" in h2.get("/docs").headers["content-type"]


def test_large_bodies_in_both_directions(h2: httpx.Client, queue: str) -> None:
    path = f"/v0/topics/{queue}"
    records = [{"data": "x" * 900_000} for _ in range(6)]
    assert h2.post(path, json={"records": records}).status_code == 200
    page = h2.post(f"{path}/diff", json={"max_batch_bytes": 8 << 20}).json()
    assert [len(record["data"]) for record in page["records"]] == [900_000] * 6


def test_streams_beside_requests(h2: httpx.Client, api: Api, queue: str) -> None:
    """A work stream and a watch stream on the connection that also appends."""
    path = f"/v0/topics/{queue}"
    session = h2.post("/v0/watch", json={"topics": {queue: {"from_seq": 0}}}).json()
    with (
        h2.stream("GET", f"{path}/work?node=w&max=2") as work,
        h2.stream("GET", session["stream_url"]) as watch,
    ):
        assert work.http_version == watch.http_version == "HTTP/2"
        assert work.headers["content-type"] == "text/event-stream"
        jobs, pages = frames(work.iter_lines(), "job"), frames(watch.iter_lines(), "record")
        for number in (1, 2, 3):
            assert h2.post(path, json={"records": [{"data": number}]}).status_code == 200
            job = next(jobs)
            assert (job["$seq"], job["data"]) == (number, number)
            assert next(pages)["records"][0]["data"] == number
            assert h2.post(f"{path}/ack", json={"node": "w", "seqs": [number]}).status_code == 200


def test_a_stream_that_is_reset_gives_its_jobs_back(api: Api, queue: str) -> None:
    """Its connection goes on."""
    api.append(queue, 1)
    url = httpx.URL(api.base_url)
    client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    client.initiate_connection()
    head = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost")]

    def send(*more: tuple[str, str]) -> int:
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, [*head, *more], end_stream=True)
        connection.sendall(client.data_to_send())
        return stream

    def receive(stream: int) -> bytes:
        while True:
            for event in client.receive_data(connection.recv(65536)):
                if not isinstance(event, DataReceived) or event.stream_id != stream:
                    continue
                if b"retry:" not in event.data:
                    return event.data

    with socket.create_connection((url.host, url.port or 80), timeout=60) as connection:
        work = send((":path", f"/v0/topics/{queue}/work?node=w&max=2"))
        assert b'"$seq":1' in receive(work)
        assert api.facts(queue, "queue")[0]["in_flight"] == 1
        client.reset_stream(work, 8)
        connection.sendall(client.data_to_send())
        assert eventually(lambda: api.facts(queue, "queue")[0]["in_flight"] == 0)
        assert b'"ok"' in receive(send((":path", "/v0/health")))


def test_an_orderly_stop(fresh_server: FreshServer) -> None:
    """Streams end with the frame that says why, and the connection ends behind them."""
    server = fresh_server()
    with httpx.Client(base_url=server.base_url, http1=False, http2=True, timeout=60) as client:
        assert client.put("/v0/topics/q", json={"type": "queue"}).status_code == 201
        with client.stream("GET", "/v0/topics/q/work?node=w&max=1") as work:
            lines = work.iter_lines()
            assert next(lines).startswith("retry:")
            server.send_signal(signal.SIGTERM)
            assert next(frames(lines, "error"))["code"] == "server_shutting_down"
            assert list(lines) in ([], [""])
    assert server.wait() == 0


def test_a_refused_upload_has_its_reply(fresh_server: FreshServer) -> None:
    """Also when the reply is ready before the body has come."""
    server = fresh_server(API_KEYS="k1")
    with httpx.Client(base_url=server.base_url, http1=False, http2=True, timeout=60) as client:
        for _ in range(20):
            refused = client.post("/v0/topics/q", json={"records": [{"data": "x" * 200_000}]})
            assert refused.status_code == 401
