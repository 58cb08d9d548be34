"""Idempotency keys: what is answered, how long a key is known, what it does not do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.http.api import Api, numbered
from tests.http.expect import Json, eventually, ok, refused


def test_a_retry_gets_the_first_answer(api: Api, log: str) -> None:
    """Case 54: the old seqs and the old head, although the topic has moved on."""
    first = ok(api.write(log, numbered(2), idempotency_key="k"))
    assert (first["deduped"], first["head_seq"]) == (False, 2)
    api.append(log, 8, 9)
    again = ok(api.write(log, numbered(2), idempotency_key="k"))
    old = ("topic", "first_seq", "last_seq", "seqs", "head_seq", "count")
    assert {name: again[name] for name in old} == {name: first[name] for name in old}
    assert (again["deduped"], again["created"]) == (True, False)
    assert set(again["performance"]) == {"server_total_ms"}
    assert api.facts(log, "head_seq", "count") == (4, 4)


def test_a_retry_of_the_write_that_created(api: Api, topic: str) -> None:
    """created:false and 200 the second time."""
    assert ok(api.write(topic, numbered(1), idempotency_key="k"), 201)["created"] is True
    again = ok(api.write(topic, numbered(1), idempotency_key="k"))
    assert (again["created"], again["deduped"]) == (False, True)


def test_a_retry_may_leave_out_the_seqs(api: Api, log: str) -> None:
    """return_seqs is that of the retry."""
    ok(api.write(log, numbered(2), idempotency_key="k", query="?return_seqs=false"))
    assert ok(api.write(log, numbered(2), idempotency_key="k"))["seqs"] == [1, 2]
    again = ok(api.write(log, numbered(2), idempotency_key="k", query="?return_seqs=false"))
    assert "seqs" not in again


def test_the_payload_is_not_compared(api: Api, log: str) -> None:
    """Case 56: same key, other records, first answer."""
    ok(api.write(log, numbered(2), idempotency_key="k"))
    again = ok(api.write(log, [{"data": "other"}], idempotency_key="k"))
    assert (again["deduped"], again["seqs"], again["count"]) == (True, [1, 2], 2)
    assert api.facts(log, "count") == (2,)


def test_keys_belong_to_one_topic(api: Api, topic: str) -> None:
    """Case 57."""
    for name in (f"{topic}a", f"{topic}b"):
        assert ok(api.write(name, numbered(1), idempotency_key="k"), 201)["deduped"] is False


@pytest.mark.parametrize(
    ("first", "second", "deduped"),
    [
        ({"body": "k"}, {"body": "k"}, True),
        ({"body": "k"}, {"header": "k"}, True),
        ({"header": "k"}, {"header": "k"}, True),
        ({"header": "k"}, {"body": "K"}, False),
        ({"body": "k"}, {"body": "k", "header": "other"}, True),  # case 58
        ({"body": "k"}, {"body": "other", "header": "k"}, False),  # case 58
        ({"header": "k"}, {"body": None, "header": "k"}, True),
        ({"body": ""}, {"body": ""}, True),
        ({"body": ""}, {}, False),
        ({"header": "k"}, {"body": "", "header": "k"}, False),
        ({}, {}, False),
        ({"body": None}, {"body": None}, False),
        ({"body": "é"}, {"body": "é"}, True),
    ],
    ids=str,
)
def test_where_the_key_comes_from(
    api: Api, log: str, first: dict[str, Any], second: dict[str, Any], deduped: bool
) -> None:
    """Case 58: the body's text, else the header's; an empty text is a key."""
    replies = []
    for given in (first, second):
        headers = {"idempotency-key": given["header"]} if "header" in given else {}
        fields = {"idempotency_key": given["body"]} if "body" in given else {}
        replies.append(ok(api.write(log, numbered(1), headers=headers, **fields)))
    assert [body["deduped"] for body in replies] == [False, deduped]


@pytest.mark.parametrize(
    ("key", "accepted"),
    [("k" * 256, True), ("k" * 257, False), ("é" * 128, True), ("é" * 128 + "k", False)],
)
@pytest.mark.parametrize("place", ["body", "header"])
def test_key_lengths(api: Api, log: str, place: str, key: str, accepted: bool) -> None:
    """256 bytes, not characters, from either place."""
    if place == "header" and not key.isascii():
        pytest.skip("header text beyond ASCII has no agreed encoding")
    headers = {"idempotency-key": key} if place == "header" else {}
    fields = {"idempotency_key": key} if place == "body" else {}
    reply = api.write(log, numbered(1), headers=headers, **fields)
    if accepted:
        ok(reply)
    else:
        refused(reply, 400, "invalid_request")


def test_the_request_is_checked_first(api: Api, log: str) -> None:
    """A known key does not save a request that is wrong in itself."""
    ok(api.write(log, numbered(1), idempotency_key="k"))
    refused(api.write(log, [], idempotency_key="k"), 400, "invalid_request")
    bad: Json = {"data": 1, "tag": "t" * 257}
    refused(api.write(log, [bad], idempotency_key="k"), 400, "invalid_request")
    refused(api.write(log, numbered(10_001), idempotency_key="k"), 400, "batch_too_large")


def test_a_failed_write_records_no_key(api: Api, topic: str) -> None:
    """The retry of a refused write appends once there is room."""
    api.make_queue(topic, discard="reject", cap_records=1)
    api.append(topic, 1)
    refused(api.write(topic, numbered(1), idempotency_key="k"), 422, "topic_full")
    ok(api.ack(topic, [job["$seq"] for job in api.claimed(topic)]))
    assert ok(api.write(topic, numbered(1), idempotency_key="k"))["deduped"] is False


def test_a_hit_needs_no_room(api: Api, topic: str) -> None:
    """Case 55: a full topic answers a retry as before."""
    api.make_log(topic, discard="reject", cap_records=2)
    ok(api.write(topic, numbered(2), idempotency_key="k"))
    refused(api.write(topic, numbered(1)), 422, "topic_full")
    assert ok(api.write(topic, numbered(2), idempotency_key="k"))["deduped"] is True
    above_cap = ok(api.write(topic, numbered(3), idempotency_key="k"))
    assert above_cap["deduped"] is True


def test_the_window_ends(api: Api, topic: str) -> None:
    """Case 59: after the window the same key appends again."""
    api.make_log(topic, idempotency_window_ms=150)
    ok(api.write(topic, numbered(1), idempotency_key="k"))
    again = eventually(
        lambda: [
            body
            for body in [ok(api.write(topic, numbered(1), idempotency_key="k"))]
            if not body["deduped"]
        ]
    )
    assert again[0]["seqs"] == [2]


def test_a_shorter_window_forgets_at_once(api: Api, topic: str) -> None:
    """The window is read from the config of now."""
    api.make_log(topic, idempotency_window_ms=3_600_000)
    ok(api.write(topic, numbered(1), idempotency_key="k"))
    ok(api.put(topic, durability="memory", idempotency_window_ms=1))
    assert eventually(lambda: not ok(api.write(topic, numbered(1), idempotency_key="k"))["deduped"])


@pytest.mark.parametrize("window", [2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_huge_windows_are_very_long(api: Api, topic: str, window: int) -> None:
    """Not negative, not wrapped."""
    api.make_log(topic, idempotency_window_ms=window)
    ok(api.write(topic, numbered(1), idempotency_key="k"))
    assert ok(api.write(topic, numbered(1), idempotency_key="k"))["deduped"] is True


@pytest.mark.parametrize("durability", ["memory", "fsync"])
def test_concurrent_writes_with_one_key(api: Api, topic: str, durability: str) -> None:
    """Case 60: one of them appends, all get its seqs."""
    ok(api.put(topic, durability=durability), 201)

    def write(_: int) -> Json:
        return ok(api.write(topic, numbered(3), idempotency_key="k"))

    with ThreadPoolExecutor(8) as pool:
        bodies = list(pool.map(write, range(16)))
    assert sorted(body["deduped"] for body in bodies) == [False] + [True] * 15
    assert {tuple(body["seqs"]) for body in bodies} == {(1, 2, 3)}
    assert api.facts(topic, "count") == (3,)
