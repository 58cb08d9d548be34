"""Writing records: answers, limits, creation, atomicity, full topics."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.http.api import Api, numbered
from tests.http.expect import Json, eventually, now_ms, ok, refused

MIB = 1024 * 1024


def test_the_answer(api: Api, log: str) -> None:
    """Every field; count is that of this write."""
    body = ok(api.write(log, numbered(2)))
    assert set(body) >= {
        "topic", "first_seq", "last_seq", "seqs", "head_seq", "count", "created", "deduped",
        "performance",
    }  # fmt: skip
    expected = {
        "topic": log,
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": False,
        "deduped": False,
    }
    assert {name: body[name] for name in expected} == expected
    second = ok(api.write(log, numbered(1)))
    assert (second["first_seq"], second["seqs"], second["count"]) == (3, [3], 1)


@pytest.mark.parametrize(
    ("durability", "synced"),
    [("ephemeral", False), ("memory", False), ("disk", False), ("fsync", True)],
)
def test_performance(api: Api, topic: str, durability: str, synced: bool) -> None:
    """wal_append_ms and fsync_ms; the latter above zero on fsync topics only."""
    ok(api.put(topic, durability=durability), 201)
    performance = ok(api.write(topic, numbered(1)))["performance"]
    assert set(performance) >= {"server_total_ms", "wal_append_ms", "fsync_ms"}
    assert all(isinstance(value, float) for value in performance.values()), performance
    assert (performance["fsync_ms"] > 0.0) is synced


@pytest.mark.parametrize(
    ("query", "listed"),
    [
        ("", True),
        ("?return_seqs=true", True),
        ("?return_seqs=1", True),
        ("?return_seqs=false", False),
        ("?return_seqs=0", False),
        ("?return_seqs=", True),
        ("?return_seqs=FALSE", True),
        ("?return_seqs=no", True),
    ],
)
def test_return_seqs(api: Api, log: str, query: str, listed: bool) -> None:
    """The query decides; the key is left out, and a body field of that name means nothing."""
    body = ok(api.write(log, numbered(3), query=query, return_seqs=not listed))
    assert ("seqs" in body) is listed
    assert (body["first_seq"], body["last_seq"], body["count"]) == (1, 3, 3)


def test_data_comes_back_as_sent(api: Api, queue: str) -> None:
    """Any value, member order, text outside the basic plane, escapes; also null (case 43)."""
    values: list[Any] = [
        None, True, 0, -1, 1.5, "", "é€😀", "\u0000\u001f\"\\/", [], {}, [[], {}, None],
        {"z": 1, "a": {"y": [1, {"x": None}]}, "": 0}, {"$seq": 1, "data": 2},
    ]  # fmt: skip
    api.append(queue, *values)
    reply = api.claim(queue, max=100)
    assert [job["data"] for job in ok(reply)["claimed"]] == values
    assert b'"data":{"z":1,"a":{"y":[1,{"x":null}]},"":0}' in reply.content


def test_one_time_stamp_per_batch(api: Api, queue: str) -> None:
    """$ts is the server's clock at acceptance, the same for the whole batch."""
    before = now_ms()
    api.append(queue, *range(50))
    stamps = {job["$ts"] for job in api.claimed(queue, max=50)}
    [stamp] = stamps
    assert before - 1 <= stamp <= now_ms() + 1


def record_of(size: int) -> Json:
    """A record whose data take exactly this many bytes of JSON."""
    return {"data": "x" * (size - 2)}


def meta_of(size: int) -> Json:
    """A meta object of exactly this many bytes of JSON."""
    return {"m": "x" * (size - len('{"m":""}'))}


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ({"data": None}, None),  # case 43
        ({}, "invalid_request"),  # case 43
        ({"tag": "x", "meta": {}}, "invalid_request"),
        ({"data": 1, "tag": ""}, None),  # case 44
        ({"data": 1, "node": ""}, None),  # case 44
        ({"data": 1, "tag": "t" * 256}, None),
        ({"data": 1, "tag": "t" * 257}, "invalid_request"),
        ({"data": 1, "tag": "é" * 128}, None),
        ({"data": 1, "tag": "é" * 128 + "t"}, "invalid_request"),
        ({"data": 1, "node": "n" * 128}, None),
        ({"data": 1, "node": "n" * 129}, "invalid_request"),
        ({"data": 1, "node": "é" * 65}, "invalid_request"),
        ({"data": 1, "meta": {}}, None),  # case 45
        ({"data": 1, "meta": None}, None),  # case 45
        ({"data": 1, "meta": [1]}, None),  # case 45
        ({"data": 1, "meta": meta_of(16_384)}, None),
        ({"data": 1, "meta": meta_of(16_385)}, "invalid_request"),
        ({"data": 1, "meta": "x" * 16_382}, None),
        ({"data": 1, "meta": "x" * 16_383}, "invalid_request"),
        ({"data": 1, "meta": {str(n): n for n in range(64)}}, None),
        ({"data": 1, "meta": {str(n): n for n in range(65)}}, "invalid_request"),  # case 46
        ({"data": 1, "meta": {"a": {str(n): n for n in range(65)}}}, None),  # case 46
        ({"data": 1, "meta": [{str(n): n for n in range(65)}]}, None),
        (record_of(MIB), None),  # case 47
        (record_of(MIB + 1), "record_too_large"),  # case 47
        ({**record_of(MIB - 8), "meta": meta_of(8)}, None),
        ({**record_of(MIB - 8), "meta": meta_of(9)}, "record_too_large"),
        ({**record_of(MIB), "tag": "t" * 256, "node": "n" * 128}, None),
    ],
    ids=[str(number) for number in range(28)],
)
def test_record_limits(api: Api, log: str, record: Json, code: str | None) -> None:
    """Cases 43 to 47; a refused record takes its whole batch with it."""
    reply = api.write(log, [{"data": 0}, record, {"data": 2}])
    if code is None:
        assert ok(reply)["seqs"] == [1, 2, 3]
    else:
        refused(reply, 400, code)
        assert api.facts(log, "head_seq", "count") == (0, 0)


@pytest.mark.parametrize(
    ("data", "size"),
    [(b"[ 1 ,  2 ]", 5), (b'{\n\t"a" : " "\r\n}', 9), (b" null ", 4), (b'"\xc3\xa9"', 4)],
)
def test_sizes_are_those_of_compact_json(api: Api, log: str, data: bytes, size: int) -> None:
    """Blanks between tokens do not count; text counts in bytes."""
    content = b'{"records":[{"data":' + data + b"}]}"
    ok(api.send("POST", f"/v0/topics/{log}", content, {"content-type": "application/json"}))
    assert api.facts(log, "bytes") == (size,)


@pytest.mark.parametrize(
    ("count", "code"),
    [(0, "invalid_request"), (1, None), (10_000, None), (10_001, "batch_too_large")],
)
def test_batch_sizes(api: Api, log: str, count: int, code: str | None) -> None:
    """1 to 10 000 records."""
    reply = api.write(log, numbered(count))
    if code is None:
        assert ok(reply)["count"] == count
    else:
        refused(reply, 400, code)
        assert api.facts(log, "head_seq") == (0,)


def test_one_bad_record_of_ten_thousand(api: Api, topic: str) -> None:
    """Case 42: nothing is appended, no topic is created."""
    records = [*numbered(9_999), {"data": 1, "tag": "t" * 257}]
    refused(api.write(topic, records), 400, "invalid_request")
    refused(api.state(topic), 404, "topic_not_found", {"topic": topic})


LONG_KEY = "k" * 257
BAD_TAG = {"data": 1, "tag": "t" * 257}
BAD_NODE = {"data": 1, "node": "n" * 129}
BAD_META = {"data": 1, "meta": meta_of(16_385)}
TOO_LARGE = record_of(MIB + 1)


@pytest.mark.parametrize(
    ("records", "fields", "code"),
    [
        ([], {"idempotency_key": LONG_KEY}, "invalid_request"),
        (numbered(10_001), {"idempotency_key": LONG_KEY}, "batch_too_large"),
        ([TOO_LARGE], {"idempotency_key": LONG_KEY}, "invalid_request"),
        ([{**TOO_LARGE, "tag": "t" * 257}], {}, "invalid_request"),
        ([{**TOO_LARGE, "node": "n" * 129}], {}, "invalid_request"),
        ([{**TOO_LARGE, "meta": meta_of(16_385)}], {}, "invalid_request"),
        ([TOO_LARGE, BAD_TAG], {}, "record_too_large"),
        ([BAD_TAG, TOO_LARGE], {}, "invalid_request"),
        ([BAD_NODE, TOO_LARGE], {}, "invalid_request"),
        ([BAD_META, TOO_LARGE], {}, "invalid_request"),
        ([TOO_LARGE], {"create": False}, "record_too_large"),
        ([BAD_TAG], {"create": False}, "invalid_request"),
        ([], {"create": False}, "invalid_request"),
    ],
    ids=[str(number) for number in range(13)],
)
def test_order_of_checks(
    api: Api, topic: str, records: list[Json], fields: Json, code: str
) -> None:
    """Empty, batch size, key length, then record by record; all before the topic is looked up."""
    refused(api.write(topic, records, **fields), 400, code)
    refused(api.state(topic), 404, "topic_not_found", {"topic": topic})


def test_the_default_node_is_limited_too(api: Api, log: str) -> None:
    """A batch node of 129 bytes is one for every record that uses it."""
    refused(api.write(log, numbered(1), node="n" * 129), 400, "invalid_request")
    ok(api.write(log, numbered(1), node="n" * 128))


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({}, 201, ""),
        ({"create": None}, 201, ""),
        ({"create": True}, 201, ""),
        ({"create": False}, 404, "topic_not_found"),
        ({"config": {}}, 201, ""),
        ({"config": None}, 201, ""),
        ({"config": {"auto_create": True}}, 201, ""),
        ({"config": {"auto_create": False}}, 404, "topic_not_found"),  # case 50
        ({"config": {"auto_create": False}, "create": None}, 404, "topic_not_found"),
        ({"config": {"auto_create": False}, "create": True}, 201, ""),  # case 50
        ({"config": {"auto_create": True}, "create": False}, 404, "topic_not_found"),
        ({"config": {"dead_letter": "-bad"}}, 400, "invalid_request"),  # case 52
        ({"config": {"type": "queue", "dead_letter": "{self}"}}, 400, "invalid_request"),
    ],
    ids=str,
)
def test_creation_by_a_write(api: Api, topic: str, fields: Json, status: int, code: str) -> None:
    """Case 50, case 52: who may create an absent topic."""
    config = dict(fields.get("config") or {})
    if config.get("dead_letter") == "{self}":
        fields = {"config": {**config, "dead_letter": topic}}
    reply = api.write(topic, numbered(1), **fields)
    if status == 201:
        body = ok(reply, 201)
        assert (body["created"], body["seqs"]) == (True, [1])
        assert ok(api.write(topic, numbered(1), **fields))["created"] is False
        return
    refused(reply, status, code)
    refused(api.state(topic), 404, "topic_not_found", {"topic": topic})


@pytest.mark.parametrize(
    ("create", "status", "code"),
    [
        (False, 404, "topic_not_found"),  # case 49
        (True, 400, "invalid_request"),  # case 49
        (None, 400, "invalid_request"),
    ],
)
@pytest.mark.parametrize("name", ["-bad", "a%2Fb", "%C3%A4", "n" * 256])
def test_an_invalid_absent_name(
    api: Api, name: str, create: bool | None, status: int, code: str
) -> None:
    """Case 49: absent is said only to those who would not create it."""
    refused(api.write(name, numbered(1), create=create), status, code)


def test_a_topic_made_by_a_write_has_its_config(api: Api, topic: str) -> None:
    """Inline config, with the same clamps as PUT."""
    inline = {"type": "queue", "durability": "memory", "lease_ms": 0, "cap_records": 9}
    ok(api.write(topic, numbered(1), config=inline), 201)
    config = ok(api.state(topic))["config"]
    assert {name: config[name] for name in inline} == {**inline, "lease_ms": 100}
    assert len(api.claimed(topic)) == 1


def test_config_of_an_existing_topic_is_ignored(api: Api, log: str) -> None:
    """Case 51: also with another type, also with create:true."""
    inline = {"type": "queue", "cap_records": 1, "dead_letter": log}
    body = ok(api.write(log, numbered(3), config=inline, create=True))
    assert body["created"] is False
    state = ok(api.state(log))
    assert (state["type"], state["count"], state["config"]["cap_records"]) == ("log", 3, 0)


def test_a_first_write_above_its_own_cap(api: Api, topic: str) -> None:
    """Case 53: record_too_large; whether the empty topic remains is not promised."""
    inline = {"discard": "reject", "cap_records": 2}
    reply = api.write(topic, numbered(3), config=inline)
    refused(reply, 400, "record_too_large")
    state = api.state(topic)
    assert state.status_code == 404 or ok(state)["head_seq"] == 0


def test_concurrent_first_writes(api: Api, topic: str) -> None:
    """One of them creates; all of them append, each a contiguous run."""
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: api.write(topic, numbered(3)), range(16)))
    assert sorted(reply.status_code for reply in replies) == [200] * 15 + [201]
    bodies = [reply.json() for reply in replies]
    assert sorted(seq for body in bodies for seq in body["seqs"]) == list(range(1, 49))
    for body in bodies:
        assert body["seqs"] == list(range(body["first_seq"], body["first_seq"] + 3))
        assert body["head_seq"] >= body["last_seq"] == body["first_seq"] + 2


# -- full topics --------------------------------------------------------------------------------


def test_old_keeps_the_newest(api: Api, topic: str) -> None:
    """Case 61: a batch above the cap is accepted with all its seqs and trimmed."""
    inline = {"discard": "old", "cap_records": 3, "durability": "memory"}
    body = ok(api.write(topic, numbered(5), config=inline), 201)
    assert (body["seqs"], body["count"]) == ([1, 2, 3, 4, 5], 5)
    assert api.facts(topic, "count", "head_seq", "earliest_seq") == (3, 5, 3)
    for _ in range(3):
        ok(api.write(topic, numbered(1)))
    assert api.facts(topic, "count", "head_seq", "earliest_seq") == (3, 8, 6)


def test_old_by_bytes(api: Api, topic: str) -> None:
    """The oldest go until the bytes fit; a record above the cap is gone at once."""
    api.make_log(topic, cap_bytes=30)
    api.append(topic, *["x" * 8] * 4)
    assert api.facts(topic, "count", "bytes", "earliest_seq") == (3, 30, 2)
    body = ok(api.write(topic, [{"data": "y" * 100}]))
    assert (body["seqs"], body["head_seq"]) == ([5], 5)
    assert api.facts(topic, "count", "bytes", "head_seq", "earliest_seq") == (0, 0, 5, 6)


@pytest.mark.parametrize(
    ("live", "more", "status", "code"),
    [
        (2, 1, 200, ""),
        (2, 2, 422, "topic_full"),  # case 62
        (2, 4, 400, "record_too_large"),  # case 62
        (3, 1, 422, "topic_full"),
        (3, 3, 422, "topic_full"),
        (0, 3, 200, ""),
        (0, 4, 400, "record_too_large"),
    ],
)
def test_reject_by_count(
    api: Api, topic: str, live: int, more: int, status: int, code: str
) -> None:
    """Case 62: no room is 422, never room is 400; no seq is used up."""
    api.make_log(topic, discard="reject", cap_records=3)
    if live:
        api.append(topic, *range(live))
    reply = api.write(topic, numbered(more))
    if status == 200:
        assert ok(reply)["last_seq"] == live + more
        return
    wanted = {
        "topic": topic,
        "cap_records": 3,
        "cap_bytes": 0,
        "head_seq": live,
        "earliest_seq": 1,
    }
    if status == 422:
        refused(reply, status, code, wanted)
    else:
        refused(reply, status, code)
    assert api.facts(topic, "count", "head_seq", "earliest_seq") == (live, live, 1)


def test_reject_by_bytes(api: Api, topic: str) -> None:
    """The same with the sum of sizes."""
    api.make_log(topic, discard="reject", cap_bytes=20)
    api.append(topic, "x" * 8)
    refused(api.write(topic, [{"data": "x" * 9}]), 422, "topic_full")
    refused(api.write(topic, [{"data": "x" * 19}]), 400, "record_too_large")
    assert ok(api.write(topic, [{"data": "x" * 8}]))["seqs"] == [2]
    refused(api.write(topic, [{"data": 1}]), 422, "topic_full")
    assert api.facts(topic, "count", "bytes") == (2, 20)


def test_an_ack_makes_room(api: Api, topic: str) -> None:
    """Case 134: a full reject queue of leased jobs is 422 until an ack; nothing is evicted."""
    api.make_queue(topic, discard="reject", cap_records=3)
    api.append(topic, 1, 2, 3)
    jobs = api.claimed(topic, max=3)
    refused(api.write(topic, numbered(1)), 422, "topic_full")
    ok(api.ack(topic, [jobs[1]["$seq"]]))
    assert ok(api.write(topic, numbered(1)))["seqs"] == [4]
    refused(api.write(topic, numbered(1)), 422, "topic_full")
    assert api.facts(topic, "count", "in_flight", "ready", "earliest_seq") == (3, 2, 1, 1)


def test_expired_records_make_room(api: Api, topic: str) -> None:
    """Case 63: they are dropped before the cap is looked at."""
    api.make_log(topic, discard="reject", cap_records=2, ttl_ms=20)
    api.append(topic, 1, 2)
    assert eventually(lambda: api.write(topic, numbered(2)).status_code == 200)
    assert api.facts(topic, "head_seq") == (4,)
