"""Publishing over a WebSocket: acks, options, refusals, and what others see of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.http.api import Api, numbered
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, now_ms, ok, refused
from tests.http.watching import data_in, receive
from tests.http.ws import Socket, data_of, seqs_of

ACK_KEYS = {
    "op", "request_id", "topic", "first_seq", "last_seq", "seqs", "head_seq", "count", "created",
    "deduped", "performance",
}  # fmt: skip


@pytest.fixture
def ws(api: Api) -> Iterator[Socket]:
    """A socket to the shared server."""
    with Socket(api.address) as opened:
        yield opened


def facts(ack: Json) -> tuple[Any, ...]:
    """The numbers of an ack."""
    return tuple(ack[name] for name in ("first_seq", "last_seq", "seqs", "head_seq", "count"))


def assert_error(reply: Json, code: str) -> None:
    """An error reply in its form: no detail, a message for humans."""
    assert set(reply) == {"op", "request_id", "code", "message"}, reply
    assert (reply["op"], reply["code"]) == ("error", code), reply
    assert isinstance(reply["message"], str) and reply["message"].strip()


def test_the_ack(api: Api, ws: Socket, log: str) -> None:
    """The answer of a write, and the record as it was sent."""
    before = now_ms()
    record = {"data": {"a": [1]}, "tag": "t", "node": "n", "meta": {"m": 1}}
    ack = ws.call("publish", topic=log, records=[record, {"data": None}])
    assert set(ack) == ACK_KEYS
    assert (ack["op"], ack["topic"], ack["created"], ack["deduped"]) == ("ack", log, False, False)
    assert facts(ack) == (1, 2, [1, 2], 2, 2)
    spent = ack["performance"]
    assert spent["server_total_ms"] >= 0
    assert {"wal_append_ms", "fsync_ms"} <= set(spent)
    first, second = api.read(log, include_tags=True)
    assert {name: first[name] for name in ("data", "meta")} == {
        "data": {"a": [1]},
        "meta": {"m": 1},
    }
    assert (first["$tag"], first["$node"]) == ("t", "n")
    assert before - 1 <= first["$ts"] == second["$ts"] <= now_ms() + 1
    assert set(second) == {"$seq", "$ts", "data"}


@pytest.mark.parametrize(
    ("fields", "seqs"),
    [({}, [1, 2]), ({"return_seqs": True}, [1, 2]), ({"return_seqs": False}, None)],
    ids=str,
)
def test_return_seqs(ws: Socket, log: str, fields: Json, seqs: object) -> None:
    """null when they are declined; the key is there."""
    ack = ws.publish(log, 1, 2, **fields)
    assert facts(ack) == (1, 2, seqs, 2, 2)


def test_creating(api: Api, ws: Socket, topic: str) -> None:
    """As over HTTP: by default, unless create is false; config counts only then."""
    absent = ws.call("publish", topic=topic, records=numbered(1), create=False)
    assert_error(absent, "topic_not_found")
    assert ws.publish(topic, 1)["created"] is True
    assert ws.publish(topic, 1, create=True)["created"] is False
    config = {"type": "queue", "lease_ms": 4321}
    assert ws.publish(f"{topic}q", 1, config=config)["created"] is True
    assert ok(api.state(f"{topic}q"))["config"]["lease_ms"] == 4321
    assert ws.publish(topic, 1, config=config)["created"] is False
    assert ok(api.state(topic))["type"] == "log"
    never = ws.call(
        "publish", topic=f"{topic}n", records=numbered(1), config={"auto_create": False}
    )
    assert_error(never, "topic_not_found")
    refused(api.state(f"{topic}n"), 404, "topic_not_found")


def test_nodes(api: Api, ws: Socket, log: str) -> None:
    """Case 48: that of the record, else that of the message."""
    records = [{"data": 1, "node": "own"}, {"data": 2}, {"data": 3, "node": None}]
    assert ws.call("publish", topic=log, records=records, node="batch")["op"] == "ack"
    ws.publish(log, 4, node=None)
    assert [record.get("$node") for record in api.read(log)] == ["own", "batch", "batch", None]


def test_idempotency(api: Api, ws: Socket, log: str) -> None:
    """Case 54: the old answer; one table with writes over HTTP."""
    first = ws.publish(log, 1, idempotency_key="k")
    ws.publish(log, 2)
    again = ws.publish(log, "other", idempotency_key="k")
    assert (again["deduped"], facts(again)) == (True, facts(first))
    over_http = ok(api.write(log, numbered(1), idempotency_key="k"))
    assert (over_http["deduped"], over_http["seqs"]) == (True, [1])
    ok(api.write(log, [{"data": "http"}], idempotency_key="h"))
    assert ws.publish(log, 5, idempotency_key="h")["deduped"] is True
    assert ws.publish(log, 6, idempotency_key=None)["deduped"] is False
    assert [record["data"] for record in api.read(log)] == [1, 2, "http", 6]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"records": []}, "invalid_request"),
        ({"records": [{"data": 1, "tag": "t" * 257}]}, "invalid_request"),
        ({"records": [{"data": 1, "node": "n" * 129}]}, "invalid_request"),
        ({"records": [{"data": 1, "meta": {str(n): 1 for n in range(65)}}]}, "invalid_request"),
        ({"records": [{"data": 1}], "idempotency_key": "k" * 257}, "invalid_request"),
        ({"records": [{"data": "x" * (1 << 20)}]}, "record_too_large"),
        ({"records": [{"data": 1}] * 10_001}, "batch_too_large"),
        ({"records": [{"data": 1}], "topic": "-bad"}, "invalid_request"),
        ({"records": [{"data": 1}], "topic": "-bad", "create": False}, "topic_not_found"),
        ({"records": [{"data": 1}], "topic": "new.", "config": {"dead_letter": "-"}},
         "invalid_request"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_refusals(api: Api, ws: Socket, log: str, fields: Json, code: str) -> None:
    """The codes of a write; nothing is appended, the socket goes on."""
    assert_error(ws.call("publish", **{"topic": log, **fields}), code)
    assert api.facts(log, "head_seq") == (0,)
    assert ws.publish(log, 1)["seqs"] == [1]


def test_a_full_topic(api: Api, ws: Socket, topic: str) -> None:
    """topic_full, and record_too_large for what can never fit."""
    api.make_log(topic, cap_records=2, discard="reject")
    ws.publish(topic, 1)
    assert_error(ws.call("publish", topic=topic, records=numbered(2)), "topic_full")
    assert_error(ws.call("publish", topic=topic, records=numbered(3)), "record_too_large")
    assert ws.publish(topic, 2)["seqs"] == [2]
    assert api.facts(topic, "count") == (2,)


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_the_ack_comes_before_the_own_record(
    api: Api, ws: Socket, topic: str, durability: str
) -> None:
    """A subscriber sees what it published itself, after its ack."""
    api.make_log(topic, durability=durability)
    ws.subscribe(topic)
    ws.drain()
    for number in range(10):
        request_id = ws.post("publish", topic=topic, records=[{"data": number}])
        assert ws.next_message()["request_id"] == request_id
        assert ws.next_message()["records"][0]["data"] == number
        assert ws.next_message()["op"] == "caught_up"


def test_the_node_filter_hides_own_records(api: Api, ws: Socket, log: str) -> None:
    """Those published with the same node."""
    ws.subscribe(log, node="me")
    ws.drain()
    ws.publish(log, "mine", node="me")
    ws.publish(log, "yours", node="you")
    assert data_of(ws.receive(1)) == ["yours"]


def test_commands_are_answered_in_order(api: Api, ws: Socket, topic: str) -> None:
    """Also when many are sent at once, to topics that sync and topics that do not."""
    api.make_log(f"{topic}fsync", durability="fsync")
    api.make_log(f"{topic}memory")
    sent = []
    for number in range(60):
        name = f"{topic}{'fsync' if number % 3 == 0 else 'memory'}"
        sent.append(ws.post("publish", topic=name, records=[{"data": number}]))
        if number % 10 == 0:
            sent.append(ws.post("ping"))
    answered = [ws.next_message()["request_id"] for _ in sent]
    assert answered == sent
    expected = [number for number in range(60) if number % 3 == 0]
    assert [record["data"] for record in api.read(f"{topic}fsync")] == expected


def test_acks_and_own_records_of_many(ws: Socket, log: str) -> None:
    """Sent all at once: acks keep their order, each before its record; nothing is missing."""
    ws.subscribe(log)
    ws.drain()
    sent = [ws.post("publish", topic=log, records=[{"data": n}]) for n in range(200)]
    acked: list[object] = []
    found: list[int] = []
    while len(found) < 200:
        message = ws.next_message()
        if message["op"] == "ack":
            acked.append(message["request_id"])
        elif message["op"] == "record":
            found += [record["data"] for record in message["records"]]
            assert len(found) <= len(acked)
    assert (acked, found) == (sent, list(range(200)))


def test_many_publishers(api: Api, log: str) -> None:
    """Every ack has its own seqs; nothing is lost or doubled."""

    def publish(name: int) -> list[int]:
        with Socket(api.address) as socket:
            return [socket.publish(log, [name, number])["seqs"][0] for number in range(25)]

    with ThreadPoolExecutor(4) as pool:
        seqs = [seq for part in pool.map(publish, range(4)) for seq in part]
    assert sorted(seqs) == list(range(1, 101))
    found = [tuple(record["data"]) for record in api.read(log)]
    for name in range(4):
        assert [number for who, number in found if who == name] == list(range(25))


def test_publishers_and_readers_of_all_kinds(api: Api, ws: Socket, queue: str) -> None:
    """A publish wakes subscribers, watchers and work streams."""
    with (
        Socket(api.address) as reader,
        api.watch(queue) as watcher,
        api.work(queue, node="w", max=10) as worker,
    ):
        reader.subscribe(queue)
        ws.publish(queue, 1, 2, 3)
        assert seqs_of(reader.receive(3)) == [1, 2, 3]
        assert data_in(receive(watcher, 3)) == [1, 2, 3]
        assert [job["data"] for job in worker.jobs(3)] == [1, 2, 3]


@pytest.mark.parametrize("value", [True, False])
def test_back_pressure_can_be_disabled_in_name(ws: Socket, log: str, value: bool) -> None:
    """Accepted, without effect; unknown fields are ignored."""
    assert ws.publish(log, 1, disable_backpressure=value, no_such=[1])["seqs"] == [1]


def test_a_large_batch(api: Api, ws: Socket, log: str) -> None:
    """10 000 records in one message, and one of a whole MiB."""
    ack = ws.call("publish", topic=log, records=numbered(10_000), return_seqs=False)
    assert facts(ack) == (1, 10_000, None, 10_000, 10_000)
    assert ws.publish(log, "x" * ((1 << 20) - 2))["seqs"] == [10_001]
    assert api.facts(log, "count") == (10_001,)
    ok(api.delete_topic(log))


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_published_records_survive_a_kill(
    fresh_server: FreshServer, api_for: ApiFor, durability: str
) -> None:
    """Case 146: the ack is the same promise as a 200."""
    server = fresh_server()
    api = api_for(server)
    api.make_log("l", durability=durability)
    with Socket(server.address) as ws:
        for number in range(30):
            ack = ws.publish("l", number)
            assert (ack["performance"]["fsync_ms"] > 0) == (durability == "fsync")
        server.send_signal(signal.SIGKILL)
        server.wait()
        assert ws.ended()
    again = api_for(server.restart())
    assert [record["data"] for record in again.read("l")] == list(range(30))


def test_writes_that_replace_jobs_here_and_there_come_one_behind_the_other(
    api: Api, ws: Socket, queue: str
) -> None:
    """Each is put into its place bit by bit; the next one waits for it."""

    def write(value: int, step: int) -> None:
        records = [{"data": value, "key": f"k{n}"} for n in range(0, 200, step)]
        ws.send({"op": "publish", "topic": queue, "records": records, "request_id": value})

    for value, step in enumerate((1, 2, 2, 4)):
        write(value, step)
    acks = [ws.next_message() for _ in range(4)]
    assert [(ack["op"], ack["request_id"]) for ack in acks] == [("ack", n) for n in range(4)]
    expected = [3 if n % 4 == 0 else 2 if n % 2 == 0 else 0 for n in range(200)]
    assert [record["data"] for record in api.read(queue)] == expected
