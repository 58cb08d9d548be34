"""Reading: cursors, filters, projections, budgets, long polls."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.http.api import Api, numbered, seqs_of
from tests.http.expect import Json, now_ms, ok, refused

KEYS = {
    "topic", "records", "next_from_seq", "head_seq", "earliest_seq", "caught_up", "tombstone",
    "lag", "performance",
}  # fmt: skip


def facts(body: Json) -> tuple[list[int], int, bool, int]:
    """Seqs, next_from_seq, caught_up and lag of an answer."""
    return seqs_of(body["records"]), body["next_from_seq"], body["caught_up"], body["lag"]


def test_the_answer(api: Api, log: str) -> None:
    """Every field; absent things of a record are left out, tombstone is null."""
    before = now_ms()
    full = {"data": {"a": 1}, "tag": "t", "node": "n", "meta": {"m": 1}}
    api.append_many(log, [full, {"data": None}])
    body = ok(api.send("POST", f"/v0/topics/{log}/diff"))
    assert set(body) >= KEYS
    assert (body["topic"], body["head_seq"], body["earliest_seq"]) == (log, 2, 1)
    assert (body["tombstone"], facts(body)) == (None, ([1, 2], 2, True, 0))
    assert body["performance"]["records_scanned"] == 2
    first, second = body["records"]
    assert set(first) == {"$seq", "$ts", "$node", "data", "meta"}
    assert (first["$node"], first["data"], first["meta"]) == ("n", {"a": 1}, {"m": 1})
    assert set(second) == {"$seq", "$ts", "data"}
    assert before - 1 <= first["$ts"] == second["$ts"] <= now_ms() + 1


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ({}, ["meta"]),
        ({"include_tags": True}, ["$tag", "meta"]),
        ({"include_meta": False}, []),
        ({"include_tags": True, "include_meta": False}, ["$tag"]),
    ],
    ids=str,
)
def test_projection(api: Api, log: str, fields: Json, keys: list[str]) -> None:
    """Tags on demand, meta unless declined; case 45: an empty meta is there."""
    api.append_many(log, [{"data": 1, "tag": "t", "meta": {}}, {"data": 2}])
    first, second = api.read(log, **fields)
    assert set(first) == {"$seq", "$ts", "data"} | {*keys}
    assert first.get("meta", {}) == {}
    assert set(second) == {"$seq", "$ts", "data"}


def test_an_empty_topic(api: Api, log: str) -> None:
    """Case 68."""
    body = ok(api.diff(log))
    assert (body["head_seq"], body["earliest_seq"], body["tombstone"]) == (0, 1, None)
    assert facts(body) == ([], 0, True, 0)


def test_absent_topics(api: Api, topic: str) -> None:
    """404, and reading creates nothing."""
    refused(api.diff(topic), 404, "topic_not_found", {"topic": topic})
    refused(api.diff(topic, wait_ms=100), 404, "topic_not_found", {"topic": topic})
    refused(api.state(topic), 404, "topic_not_found")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ([1, 2, 3, 4, 5], 5, True, 0)),
        ({"from_seq": 2}, ([3, 4, 5], 5, True, 0)),
        ({"from_seq": 5}, ([], 5, True, 0)),  # case 65
        ({"limit": 2}, ([1, 2], 2, False, 3)),
        ({"from_seq": 2, "limit": 2}, ([3, 4], 4, False, 1)),
        ({"from_seq": 3, "limit": 2}, ([4, 5], 5, True, 0)),
        ({"limit": 0}, ([1, 2, 3, 4, 5], 5, True, 0)),
        ({"max_batch_bytes": 0}, ([1, 2, 3, 4, 5], 5, True, 0)),
        ({"max_batch_bytes": 1}, ([1], 1, False, 4)),  # case 73
        ({"max_batch_bytes": 3}, ([1], 1, False, 4)),
        ({"max_batch_bytes": 6}, ([1, 2], 2, False, 3)),
        ({"max_batch_bytes": 2**64 - 1}, ([1, 2, 3, 4, 5], 5, True, 0)),
    ],
    ids=str,
)
def test_cursors_and_budgets(api: Api, log: str, fields: Json, expected: object) -> None:
    """Case 65, case 73: from_seq is the last one processed; at least one record is delivered."""
    api.append(log, *"abcde")
    body = ok(api.diff(log, **fields))
    assert (facts(body), body["tombstone"]) == (expected, None)


@pytest.mark.parametrize(
    ("limit", "delivered"),
    [(None, 256), (0, 256), (1, 1), (1000, 1000), (1001, 1000), (2**32 - 1, 1000)],  # case 13
)
def test_limits(api: Api, log: str, limit: int | None, delivered: int) -> None:
    """Case 13: 256 by default, never more than 1000."""
    ok(api.write(log, numbered(1100), query="?return_seqs=false"))
    body = ok(api.diff(log) if limit is None else api.diff(log, limit=limit))
    assert facts(body) == (list(range(1, delivered + 1)), delivered, False, 1100 - delivered)


@pytest.mark.parametrize(("budget", "delivered"), [(None, 1), (0, 1), (8 * 2**20, 13), (10**9, 13)])
def test_byte_budgets(api: Api, log: str, budget: int | None, delivered: int) -> None:
    """1 MiB by default, never more than 8 MiB."""
    for _ in range(3):
        api.append(log, *["x" * 600_000] * 5)
    body = ok(api.diff(log) if budget is None else api.diff(log, max_batch_bytes=budget))
    assert len(body["records"]) == delivered
    ok(api.delete_topic(log))


def test_reading_on_and_on(api: Api, log: str) -> None:
    """Feeding next_from_seq back gives every record once."""
    for start in range(0, 300, 7):
        ok(api.write(log, numbered(7, start)))
    found: list[int] = []
    body: Json = {"next_from_seq": 0, "caught_up": False}
    while not body["caught_up"]:
        body = ok(api.diff(log, from_seq=body["next_from_seq"], limit=11))
        assert body["lag"] == body["head_seq"] - body["next_from_seq"]
        found += [record["data"] for record in body["records"]]
    assert found == list(range(301))


NODES: list[str | None] = ["a", "b", None, "a", "", "a"]


@pytest.mark.parametrize(
    ("node", "delivered"),
    [
        (None, [1, 2, 3, 4, 5, 6]),  # case 14
        ([], [1, 2, 3, 4, 5, 6]),  # case 74
        ("a", [2, 3, 5]),
        ("b", [1, 3, 4, 5, 6]),
        ("", [1, 2, 3, 4, 6]),  # case 44
        (["a"], [2, 3, 5]),
        (["a", "b", ""], [3]),
        ("A", [1, 2, 3, 4, 5, 6]),
        ("n" * 1000, [1, 2, 3, 4, 5, 6]),
    ],
    ids=str,
)
def test_the_node_filter(api: Api, log: str, node: object, delivered: list[int]) -> None:
    """Case 74: own records are passed over, records without a node never; no length check."""
    api.append_many(log, [{"data": 1, "node": name} for name in NODES])
    assert facts(ok(api.diff(log, node=node))) == (delivered, 6, True, 0)


def test_the_filter_can_be_switched_off(api: Api, topic: str) -> None:
    """Case 74: dedupe_node false."""
    api.make_log(topic, dedupe_node=False)
    api.append_many(topic, [{"data": 1, "node": "a"}])
    assert seqs_of(api.read(topic, node="a")) == [1]


def test_only_own_records_left(api: Api, log: str) -> None:
    """Case 72: the limit is reached with own records behind; the next call says caught up."""
    api.append_many(log, [{"data": 1}, *[{"data": 2, "node": "me"}] * 3])
    assert facts(ok(api.diff(log, node="me", limit=1))) == ([1], 1, False, 3)
    assert facts(ok(api.diff(log, node="me", limit=1, from_seq=1))) == ([], 4, True, 0)


def test_which_node_a_record_gets(api: Api, log: str) -> None:
    """Case 48: its own, else that of the batch; null is none of its own."""
    records = [{"data": 1, "node": "own"}, {"data": 2}, {"data": 3, "node": None}]
    ok(api.write(log, records, node="batch"))
    ok(api.write(log, [{"data": 4}]))
    assert [record.get("$node") for record in api.read(log)] == ["own", "batch", "batch", None]


def test_a_queue_can_be_read(api: Api, queue: str) -> None:
    """Case 79: ready, leased and delayed jobs alike, without lease data, and without effect."""
    ok(api.write(queue, numbered(3)))
    api.claimed(queue, max=2)
    ok(api.nack(queue, [2], delay_ms=60_000))
    records = api.read(queue)
    assert seqs_of(records) == [1, 2, 3]
    assert all(set(record) == {"$seq", "$ts", "data"} for record in records)
    assert api.facts(queue, "ready", "in_flight", "count") == (1, 1, 3)


def test_reading_is_noted(api: Api, log: str) -> None:
    """last_read_ts, which the state does not touch when told so."""
    assert api.facts(log, "last_read_ts") == (None,)
    before = now_ms()
    ok(api.diff(log))
    assert before - 1 <= api.facts(log, "last_read_ts")[0] <= now_ms() + 1
    assert api.facts(log, "effective_priority")[0] > 400


def test_data_as_sent(api: Api, log: str) -> None:
    """Values and member order; the answer is compact."""
    values: list[Any] = [{"z": 1, "a": [None, {}]}, "é\u2028", 1.5, None, 2**64, -0.0]
    api.append(log, *values)
    reply = api.diff(log)
    assert [record["data"] for record in ok(reply)["records"]] == values
    assert b'"data":{"z":1,"a":[null,{}]}' in reply.content


@pytest.mark.parametrize(
    ("fields", "config"),
    [
        ({}, {}),
        ({"limit": 1}, {}),
        ({"from_seq": 9}, {}),
        ({"node": "x"}, {}),
        ({}, {"cap_records": 1}),
    ],
    ids=str,
)
def test_a_poll_with_something_to_say(api: Api, topic: str, fields: Json, config: Json) -> None:
    """Case 76: backlog or a tombstone is answered at once."""
    api.make_log(topic, **config)
    api.append(topic, 1, 2, 3)
    started = time.monotonic()
    body = ok(api.diff(topic, wait_ms=30_000, **fields))
    assert time.monotonic() - started < 25
    assert body["records"] or body["tombstone"]
