"""Tombstones: loss that a reader could not prevent, told once."""

from __future__ import annotations

import pytest

from tests.http.api import Api, numbered, seqs_of
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, eventually, ok
from tests.http.process import ServerProcess


def gap(body: Json) -> tuple[int, int, str, int, int, int] | None:
    """A tombstone as a row: from, to, reason, estimate, earliest, head."""
    tombstone = body["tombstone"]
    if tombstone is None:
        return None
    assert set(tombstone) >= {
        "gap_from", "gap_to", "reason", "missed_estimate", "earliest_seq", "head_seq",
    }  # fmt: skip
    return (
        tombstone["gap_from"],
        tombstone["gap_to"],
        tombstone["reason"],
        tombstone["missed_estimate"],
        tombstone["earliest_seq"],
        tombstone["head_seq"],
    )


@pytest.mark.parametrize(
    ("from_seq", "expected", "delivered"),
    [
        (0, (1, 3, "cap", 3, 4, 6), [4, 5, 6]),
        (1, (2, 3, "cap", 2, 4, 6), [4, 5, 6]),
        (2, (3, 3, "cap", 1, 4, 6), [4, 5, 6]),
        (3, None, [4, 5, 6]),
        (4, None, [5, 6]),
        (6, None, []),  # case 65
        (7, (1, 6, "recreated", 6, 4, 6), [4, 5, 6]),  # case 66
        (2**64 - 1, (1, 6, "recreated", 6, 4, 6), [4, 5, 6]),  # case 67
    ],
)
def test_a_cap(api: Api, topic: str, from_seq: int, expected: object, delivered: list[int]) -> None:
    """Cases 65, 66, 67: cap 3, six writes; records come with the tombstone."""
    api.make_log(topic, cap_records=3)
    for number in range(6):
        api.append(topic, number)
    body = ok(api.diff(topic, from_seq=from_seq))
    assert (gap(body), seqs_of(body["records"])) == (expected, delivered)
    assert (body["next_from_seq"], body["caught_up"], body["earliest_seq"]) == (6, True, 4)


def test_a_gap_is_told_once(api: Api, topic: str) -> None:
    """next_from_seq lies above it, also when the limit ends the batch."""
    api.make_log(topic, cap_records=3)
    api.append(topic, *range(6))
    body = ok(api.diff(topic, limit=1))
    assert (gap(body), seqs_of(body["records"])) == ((1, 3, "cap", 3, 4, 6), [4])
    body = ok(api.diff(topic, from_seq=body["next_from_seq"], limit=1))
    assert (gap(body), seqs_of(body["records"])) == (None, [5])


def test_caps_of_bytes_and_of_trimmed_batches(api: Api, topic: str) -> None:
    """A byte cap gives the same kind of gap; case 61: one write of five into a cap of three."""
    api.make_log(f"{topic}b", cap_bytes=9)
    api.append(f"{topic}b", *"abcde")
    assert gap(ok(api.diff(f"{topic}b"))) == (1, 2, "cap", 2, 3, 5)
    api.make_log(f"{topic}c", cap_records=3)
    api.append(f"{topic}c", *"abcde")
    assert gap(ok(api.diff(f"{topic}c"))) == (1, 2, "cap", 2, 3, 5)
    api.append(f"{topic}b", "x" * 50)
    body = ok(api.diff(f"{topic}b"))
    assert (gap(body), body["records"]) == ((1, 6, "cap", 6, 7, 6), [])
    assert (body["next_from_seq"], body["caught_up"]) == (6, True)


def test_a_tightened_cap(api: Api, log: str) -> None:
    """Case 35: also under reject; a loosened one brings nothing back."""
    api.append(log, *range(6))
    ok(api.put(log, durability="memory", discard="reject", cap_records=2))
    body = ok(api.diff(log))
    assert (gap(body), seqs_of(body["records"])) == ((1, 4, "cap", 4, 5, 6), [5, 6])
    ok(api.put(log, durability="memory"))
    assert seqs_of(ok(api.diff(log))["records"]) == [5, 6]


def test_a_future_cursor_on_an_empty_topic(api: Api, log: str) -> None:
    """A gap of 1..0, which misses nothing."""
    body = ok(api.diff(log, from_seq=5))
    assert gap(body) == (1, 0, "recreated", 0, 1, 0)
    assert (body["records"], body["next_from_seq"], body["caught_up"]) == ([], 0, True)


def test_an_old_cursor_after_recreation(api: Api, topic: str) -> None:
    """Above the new head it is noticed, and delivery starts over."""
    api.make_log(topic)
    api.append(topic, *range(5))
    ok(api.delete_topic(topic))
    api.make_log(topic)
    api.append(topic, "new", "newer")
    body = ok(api.diff(topic, from_seq=5))
    assert (gap(body), seqs_of(body["records"])) == ((1, 2, "recreated", 2, 1, 2), [1, 2])


def test_everything_expired(api: Api, topic: str) -> None:
    """Case 69."""
    api.make_log(topic, ttl_ms=40)
    api.append(topic, 1, 2, 3)
    assert eventually(lambda: api.facts(topic, "count") == (0,))
    body = ok(api.diff(topic))
    assert (gap(body), body["records"]) == ((1, 3, "ttl", 3, 4, 3), [])
    assert (body["next_from_seq"], body["caught_up"], body["lag"]) == (3, True, 0)


def test_expired_records_are_never_returned(api: Api, topic: str) -> None:
    """Old ones go, young ones stay; the gap ends between them."""
    api.make_log(topic, ttl_ms=250)
    api.append(topic, "old")
    assert eventually(lambda: api.facts(topic, "count") == (0,))
    api.append(topic, "young")
    body = ok(api.diff(topic))
    assert (gap(body), seqs_of(body["records"])) == ((1, 1, "ttl", 1, 2, 2), [2])


def test_both_causes(api: Api, topic: str) -> None:
    """Cap and TTL floors above the cursor: mixed; only one of them: that one."""
    api.make_log(topic, cap_records=4, ttl_ms=60)
    api.append(topic, *range(6))
    assert eventually(lambda: api.facts(topic, "count") == (0,))
    body = ok(api.diff(topic))
    assert gap(body) == (1, 6, "mixed", 6, 7, 6)
    body = ok(api.diff(topic, from_seq=2))
    assert gap(body) == (3, 6, "ttl", 4, 7, 6)


def test_deletes_below_a_cap(api: Api, topic: str) -> None:
    """Case 70: one tombstone from the cursor on, also over seqs that were deleted."""
    api.make_log(topic)
    api.append(topic, *range(4))
    ok(api.delete(topic, before_seq=3))
    ok(api.put(topic, durability="memory", cap_records=1))
    body = ok(api.diff(topic))
    assert (gap(body), seqs_of(body["records"])) == ((1, 3, "cap", 3, 4, 4), [4])


def test_deletes_beyond_a_cap(api: Api, topic: str) -> None:
    """Case 71: the tombstone ends at the floor, delivery starts behind what was deleted."""
    api.make_log(topic, cap_records=4)
    api.append(topic, *range(6))
    ok(api.delete(topic, before_seq=5))
    body = ok(api.diff(topic))
    assert (gap(body), seqs_of(body["records"])) == ((1, 2, "cap", 2, 3, 6), [5, 6])
    assert body["earliest_seq"] == 5


def test_caps_count_live_records(api: Api, topic: str) -> None:
    """Records that were acked or deleted use up no room, under either kind of discard."""
    api.make_queue(topic, cap_records=3)
    ok(api.write(topic, numbered(3)))
    api.claimed(topic, max=3)
    ok(api.ack(topic, [2, 3]))
    ok(api.write(topic, numbered(2)))
    assert seqs_of(ok(api.diff(topic))["records"]) == [1, 4, 5]
    ok(api.write(topic, numbered(1)))
    body = ok(api.diff(topic))
    assert (gap(body), seqs_of(body["records"])) == ((1, 1, "cap", 1, 2, 6), [4, 5, 6])


def test_acks_leave_no_tombstone(api: Api, queue: str) -> None:
    """However much of the front is acked."""
    ok(api.write(queue, numbered(5)))
    api.claimed(queue, max=4)
    ok(api.ack(queue, [1, 2, 3, 4]))
    body = ok(api.diff(queue))
    assert (gap(body), seqs_of(body["records"]), body["earliest_seq"]) == (None, [5], 5)


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_floors_survive(fresh_server: FreshServer, api_for: ApiFor, how: str) -> None:
    """The same gaps, with the same reasons, after a restart; deletes stay silent."""
    server = fresh_server()
    api = api_for(server)
    api.make_log("cap", durability="fsync", cap_records=2)
    api.append("cap", *range(5))
    api.make_log("ttl", durability="fsync", ttl_ms=50)
    api.append("ttl", 1, 2)
    api.make_log("deleted", durability="fsync")
    api.append("deleted", 1, 2, 3)
    ok(api.delete("deleted", before_seq=3))
    assert eventually(lambda: api.facts("ttl", "count") == (0,))
    wanted = {name: gap(ok(api.diff(name))) for name in ("cap", "ttl", "deleted")}
    assert wanted == {
        "cap": (1, 3, "cap", 3, 4, 5),
        "ttl": (1, 2, "ttl", 2, 3, 2),
        "deleted": None,
    }
    stop(server, how)
    again = api_for(server.restart())
    assert {name: gap(ok(again.diff(name))) for name in wanted} == wanted
    assert again.facts("deleted", "earliest_seq", "count") == (3, 1)


def stop(server: ServerProcess, how: str) -> None:
    """Kill, or end politely."""
    server.kill() if how == "kill" else server.terminate()
