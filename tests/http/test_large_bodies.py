"""Large bodies: what is refused, and that the others do not wait for them."""

from __future__ import annotations

import pytest

from tests.http import rawhttp
from tests.http.api import JSON, Api
from tests.http.expect import ok, refused
from tests.http.ws import Socket

MIB = 1 << 20
LARGE = [{"data": "x" * 900, "tag": "t"} for _ in range(3000)]


def test_a_large_write_is_a_write(api: Api, queue: str) -> None:
    """Read in steps, with everything a small one may say."""
    body = ok(api.write(queue, LARGE, node="n", idempotency_key="once", nosuch=1))
    assert body["count"] == 3000 and not body["deduped"]
    again = api.write(queue, LARGE, node="n", idempotency_key="once", nosuch=1)
    assert ok(again)["deduped"]
    assert again.headers["logqueue-ignored"] == "nosuch"
    jobs = api.claimed(queue, max=2)
    assert [job["data"] for job in jobs] == ["x" * 900] * 2


def test_a_large_chunk_and_a_large_message(api: Api, log: str) -> None:
    stage = {"topic": log, "records": LARGE}
    producer = f"{log}p".replace(".", "-")
    ok(api.json("POST", f"/v0/producers/{producer}/epochs/1/stage", stage))
    with Socket(api.address) as socket:
        assert socket.call("publish", topic=log, records=LARGE)["op"] == "ack"
        assert socket.call("ping")["op"] == "pong"
    assert api.facts(log, "count") == (3000,)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b" " * (4 * MIB), 400, "invalid_request"),
        (b"[" * (4 * MIB), 400, "invalid_request"),
        (b'{"records":[' + b'{"data":1},' * 400_000 + b'{"data":1}]}', 400, "batch_too_large"),
        (b'{"records":[{"data":"' + b"x" * (4 * MIB) + b'"}]}', 400, "record_too_large"),
    ],
    ids=["blanks", "nested", "many", "long"],
)
def test_large_bodies_that_are_refused(
    api: Api, queue: str, body: bytes, status: int, code: str
) -> None:
    refused(api.send("POST", f"/v0/topics/{queue}", body, JSON), status, code, None)


def test_only_writes_may_be_large(api: Api, queue: str) -> None:
    """Every other body has room for what a call may name, and is decoded in one step."""
    seqs = list(range(2**63, 2**63 + 1000))
    tokens = ["lease_" + "f" * 64] * 1000
    ok(api.ack(queue, seqs, lease_ids=tokens))
    path = f"/v0/topics/{queue}/ack"
    refused(api.send("POST", path, b" " * 1_100_000, JSON), 413, "payload_too_large", None)


def test_a_large_write_of_a_half_closed_client(api: Api, queue: str) -> None:
    """It is stored, so it is answered."""
    content = b'{"records":[' + b",".join([b'{"data":"%b"}' % (b"x" * 900)] * 3000) + b"]}"
    with rawhttp.Connection(api.address) as line:
        line.send(rawhttp.request("POST", f"/v0/topics/{queue}", content, JSON))
        line.shut_writing()
        assert line.read_reply().status == 200
