"""Deleting records: selectors, the predicate grammar, silence towards readers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.api import Api, numbered, seqs_of
from tests.http.expect import Json, ok, refused

TAGS: list[str | None] = [None, "", "a", "ab", "abc", "a*", "a*b", "b", "A", "é"]


def tagged(tags: list[str | None]) -> list[Json]:
    """One record per tag; None is not a tag."""
    return [{"data": number, **({"tag": tag} if tag is not None else {})}
            for number, tag in enumerate(tags)]  # fmt: skip


def test_the_answer(api: Api, log: str) -> None:
    """Counts of now; earliest_seq advances over a deleted prefix; again deletes nothing."""
    api.append(log, *"abcde")
    body = ok(api.delete(log, before_seq=3))
    assert set(body) >= {
        "topic", "deleted", "earliest_seq", "head_seq", "count", "bytes", "performance",
    }  # fmt: skip
    expected = {
        "topic": log,
        "deleted": 2,
        "earliest_seq": 3,
        "head_seq": 5,
        "count": 3,
        "bytes": 9,
    }
    assert {name: body[name] for name in expected} == expected
    again = ok(api.delete(log, before_seq=3))
    assert (again["deleted"], again["earliest_seq"]) == (0, 3)


@pytest.mark.parametrize(
    ("before_seq", "deleted", "earliest"),
    [
        (0, 0, 1),  # case 81
        (1, 0, 1),  # case 81
        (2, 1, 2),
        (6, 5, 6),
        (10**18, 5, 6),  # case 81
        (2**64 - 1, 5, 6),
    ],
)
def test_before_seq(api: Api, log: str, before_seq: int, deleted: int, earliest: int) -> None:
    """Case 81: seqs strictly below; never future records."""
    api.append(log, *range(5))
    body = ok(api.delete(log, before_seq=before_seq))
    assert (body["deleted"], body["earliest_seq"], body["head_seq"]) == (deleted, earliest, 5)
    assert api.append(log, "later") == [6]
    assert seqs_of(api.read(log)) == list(range(deleted + 1, 7))


@pytest.mark.parametrize(
    ("match", "gone"),
    [
        ("a", ["a"]),
        ("a*", ["a", "ab", "abc", "a*", "a*b"]),
        ("ab*", ["ab", "abc"]),
        ("a**", ["a*", "a*b"]),
        ("a*b", ["a*b"]),  # case 82
        ("*", ["", "a", "ab", "abc", "a*", "a*b", "b", "A", "é"]),  # case 82
        ("", [""]),  # case 82
        ("A", ["A"]),
        ("é", ["é"]),
        ("zzz", []),
        ("zzz*", []),
        (["tag", "Eq", "a"], ["a"]),
        (["tag", "Eq", "a*"], ["a*"]),
        (["tag", "Eq", ""], [""]),
        (["tag", "Glob", "a*"], ["a", "ab", "abc", "a*", "a*b"]),
        (["tag", "Glob", "a**"], ["a*", "a*b"]),  # case 83
        (["tag", "Glob", "*"], ["", "a", "ab", "abc", "a*", "a*b", "b", "A", "é"]),
    ],
    ids=str,
)
def test_match(api: Api, log: str, match: object, gone: list[str]) -> None:
    """Case 82, case 83: equality or prefix, byte by byte; untagged records never match."""
    api.append_many(log, tagged(TAGS))
    assert ok(api.delete(log, match=match))["deleted"] == len(gone)
    left = [record.get("$tag") for record in api.read(log, include_tags=True)]
    assert left == [tag for tag in TAGS if tag is None or tag not in gone]


@pytest.mark.parametrize(
    "match",
    [
        ["tag", "Eq"],  # case 84
        ["node", "Eq", "x"],  # case 84
        ["tag", "eq", "x"],  # case 84
        [1, 2, 3],  # case 84
        {},  # case 84
        ["tag", "Eq", "x", "y"],
        ["tag", "Eq", 1],
        ["tag", "Eq", None],
        ["tag", "Glob", "x"],
        ["tag", "Glob", ""],
        ["tag", "Glob", "*x"],
        ["Tag", "Eq", "x"],
        ["tag", "GLOB", "x*"],
        [],
        1,
        True,
        {"tag": "x"},
        [["tag", "Eq", "x"]],
    ],
    ids=str,
)
def test_bad_predicates(api: Api, log: str, match: object) -> None:
    """Case 84: 400, also beside a good before_seq, and nothing is deleted."""
    api.append_many(log, tagged(TAGS))
    refused(api.delete(log, match=match), 400, "invalid_request")
    refused(api.delete(log, match=match, before_seq=5), 400, "invalid_request")
    assert api.facts(log, "count") == (len(TAGS),)


@pytest.mark.parametrize(
    "fields", [{}, {"before_seq": None, "match": None}, {"before_seq": None}, {"other": 1}]
)
def test_no_selector(api: Api, log: str, fields: dict[str, Any]) -> None:
    """Case 80: 400, on an absent topic as well."""
    refused(api.delete(log, **fields), 400, "invalid_request")
    refused(api.delete(f"{log}no", **fields), 400, "invalid_request")
    refused(api.delete(f"{log}no", before_seq=1), 404, "topic_not_found", {"topic": f"{log}no"})


def test_both_selectors(api: Api, log: str) -> None:
    """Both must hold; null is not a selector."""
    api.append_many(log, tagged(["x", "y", "x", "x"]))
    assert ok(api.delete(log, before_seq=4, match="x"))["deleted"] == 2
    assert seqs_of(api.read(log)) == [2, 4]
    assert ok(api.delete(log, before_seq=None, match="y"))["deleted"] == 1
    assert ok(api.delete(log, before_seq=9, match=None))["deleted"] == 1


def test_holes_and_prefixes(api: Api, log: str) -> None:
    """A hole in the middle lowers the count only; the front moves when it is reached."""
    api.append_many(log, tagged(["a", "b", "a", "b", "c"]))
    body = ok(api.delete(log, match="b"))
    assert (body["count"], body["earliest_seq"]) == (3, 1)
    body = ok(api.delete(log, before_seq=2))
    assert (body["count"], body["earliest_seq"]) == (2, 3)
    body = ok(api.delete(log, match="a"))
    assert (body["count"], body["earliest_seq"]) == (1, 5)


def test_only_what_is_there(api: Api, log: str) -> None:
    """Point in time: later records of the same tag stay."""
    api.append_many(log, tagged(["x", "x"]))
    assert ok(api.delete(log, match="x"))["deleted"] == 2
    api.append_many(log, tagged(["x"]))
    assert seqs_of(api.read(log)) == [3]


def test_everything_deleted(api: Api, log: str) -> None:
    """Case 40, case 86: an empty topic that has had six records; then seqs go on."""
    api.append(log, *range(6))
    assert ok(api.delete(log, before_seq=7))["deleted"] == 6
    names = ("head_seq", "earliest_seq", "count", "next_seq", "bytes")
    assert api.facts(log, *names) == (6, 7, 0, 7, 0)
    assert ok(api.delete_topic(log, if_empty="true"))["deleted"] is True
    api.make_log(log)
    api.append(log, *range(6))
    ok(api.delete(log, before_seq=7))
    assert api.append(log, "next") == [7]
    assert api.facts(log, "earliest_seq", "count") == (7, 1)


def test_deletes_are_silent(api: Api, log: str) -> None:
    """Cursors pass over what was deleted; there is no tombstone."""
    api.append(log, *range(6))
    ok(api.delete(log, before_seq=5))
    body = ok(api.diff(log))
    assert (seqs_of(body["records"]), body["tombstone"]) == ([5, 6], None)
    ok(api.delete(log, before_seq=99))
    body = ok(api.diff(log, from_seq=2))
    assert (body["records"], body["tombstone"], body["next_from_seq"]) == ([], None, 6)
    assert body["caught_up"] is True


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_a_large_topic(api: Api, topic: str, durability: str) -> None:
    """By tag among many, in one call."""
    api.make_log(topic, durability=durability)
    for start in range(0, 20_000, 5000):
        records = [{"data": n, "tag": f"t{n % 10}"} for n in range(start, start + 5000)]
        ok(api.write(topic, records, query="?return_seqs=false"))
    body = ok(api.delete(topic, match="t3"))
    assert (body["deleted"], body["count"]) == (2000, 18_000)
    body = ok(api.delete(topic, match="t*", before_seq=10_001))
    assert (body["deleted"], body["count"], body["earliest_seq"]) == (9000, 9000, 10_001)


# -- on queues ----------------------------------------------------------------------------------


def test_jobs_of_every_state(api: Api, queue: str) -> None:
    """Ready, delayed and leased jobs alike; none of them is handed out again."""
    ok(api.write(queue, numbered(6)))
    api.claimed(queue, max=3)
    ok(api.nack(queue, [2], delay_ms=50))
    ok(api.nack(queue, [3]))
    assert ok(api.delete(queue, before_seq=5))["deleted"] == 4
    assert api.facts(queue, "ready", "in_flight", "count", "earliest_seq") == (2, 0, 2, 5)
    assert seqs_of(api.claimed(queue, max=10)) == [5, 6]


@pytest.mark.parametrize(
    ("verb", "counted"), [("ack", "acked"), ("nack", "nacked"), ("extend", "extended")]
)
def test_a_leased_job_deleted_under_its_holder(
    api: Api, queue: str, verb: str, counted: str
) -> None:
    """Case 133: in_flight drops at once; settling counts; it never comes back."""
    ok(api.write(queue, numbered(2)))
    api.claimed(queue)
    ok(api.delete(queue, before_seq=2))
    assert api.facts(queue, "in_flight", "ready", "count") == (0, 1, 1)
    call = {"ack": api.ack, "nack": api.nack, "extend": api.extend}[verb]
    body = ok(call(queue, [1]))
    assert (body[counted], body["skipped"]) == (1, [])
    assert seqs_of(api.claimed(queue, max=10)) == [2]


def test_an_ack_is_a_silent_delete(api: Api, queue: str) -> None:
    """Case 136: a reader that has seen the job does not hear of it again."""
    ok(api.write(queue, numbered(3)))
    assert seqs_of(api.read(queue)) == [1, 2, 3]
    ok(api.ack(queue, seqs_of(api.claimed(queue, max=2))[1:]))
    body = ok(api.diff(queue))
    assert (seqs_of(body["records"]), body["tombstone"]) == ([1, 3], None)


def test_a_delete_under_a_work_stream(api: Api, queue: str) -> None:
    """The holder still works on the deleted job; its ack counts, and the next job comes."""
    ok(api.write(queue, numbered(2)))
    with api.work(queue, node="w") as stream:
        [job] = stream.jobs(1)
        ok(api.delete(queue, before_seq=2))
        assert ok(api.ack(queue, [1], lease_ids=[job["lease_id"]]))["acked"] == 1
        assert seqs_of(stream.jobs(1)) == [2]
