"""Keyed writes: at most one waiting job per key, and what becomes of the older one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.http.api import Api, seqs_of
from tests.http.expect import Json, eventually, now_ms, ok, refused


def write(api: Api, queue: str, data: Any, key: str | None = "k", **fields: Any) -> Json:
    """Write one keyed record; the answer."""
    record = {"data": data, **fields} | ({} if key is None else {"key": key})
    return ok(api.write(queue, [record]))


def results(body: Json) -> list[tuple[int, str]]:
    """Seq and fate of each record."""
    return [(entry["seq"], entry["result"]) for entry in body["results"]]


def test_the_first_write_of_a_key(api: Api, queue: str) -> None:
    """A new job; the answer says so, and the claim shows the key."""
    body = write(api, queue, 1)
    assert results(body) == [(1, "created")]
    assert (body["seqs"], body["count"], body["created_count"], body["head_seq"]) == ([1], 1, 1, 1)
    [job] = api.claimed(queue)
    assert (job["$key"], job["data"]) == ("k", 1)
    assert "$updated_at" not in job


def test_replace_keeps_the_place(api: Api, queue: str) -> None:
    """Same seq and place; data, meta, tag, delay and TTL become the new ones."""
    write(api, queue, "old", tag="a", meta={"m": 1}, node="producer")
    api.append(queue, "other")
    before = now_ms()
    body = write(api, queue, "new", tag="b", meta={"m": 2})
    assert results(body) == [(1, "replaced")]
    assert (body["seqs"], body["count"], body["created_count"], body["head_seq"]) == ([1], 1, 0, 2)
    assert (body["first_seq"], body["last_seq"]) == (1, 1)
    first, second = api.claimed(queue, max=2)
    assert (first["$seq"], first["data"], first["$tag"], first["meta"]) == (1, "new", "b", {"m": 2})
    assert before - 1 <= first["$updated_at"] <= now_ms() + 1
    assert (second["$seq"], second["data"]) == (2, "other")
    assert api.facts(queue, "count", "in_flight") == (2, 2)


def test_what_the_new_one_leaves_out_is_gone(api: Api, queue: str) -> None:
    """No mixture of old and new."""
    write(api, queue, "old", tag="a", meta={"m": 1}, delay_ms=60_000)
    write(api, queue, "new")
    [job] = api.claimed(queue)
    assert (job["data"], "$tag" in job, "meta" in job) == ("new", False, False)


def test_replace_keeps_the_delivery_counter(api: Api, queue: str) -> None:
    """A job that came back is a waiting job, too."""
    write(api, queue, "old")
    api.claimed(queue)
    ok(api.nack(queue, [1], error="no"))
    assert results(write(api, queue, "new")) == [(1, "replaced")]
    [job] = api.claimed(queue)
    assert (job["data"], job["deliveries"]) == ("new", 2)


def test_replace_sets_and_lifts_a_delay(api: Api, queue: str) -> None:
    """Waiting means ready or delayed."""
    write(api, queue, 1)
    assert results(write(api, queue, 2, delay_ms=60_000)) == [(1, "replaced")]
    assert api.facts(queue, "ready", "delayed") == (0, 1)
    assert results(write(api, queue, 3)) == [(1, "replaced")]
    assert api.facts(queue, "ready", "delayed") == (1, 0)
    assert api.claimed(queue)[0]["data"] == 3


def test_replace_begins_a_new_life(api: Api, queue: str) -> None:
    """The new time to live counts from the new write; the old one no longer matters."""
    write(api, queue, 1, ttl_ms=40)
    write(api, queue, 2)
    end = now_ms() + 60
    eventually(lambda: now_ms() > end)
    assert api.claimed(queue)[0]["data"] == 2


def test_keep_changes_nothing(api: Api, queue: str) -> None:
    """The older job stays as it was."""
    write(api, queue, "old", tag="a")
    body = write(api, queue, "new", on_conflict="keep", tag="b", delay_ms=60_000)
    assert results(body) == [(1, "kept")]
    assert (body["count"], body["created_count"], body["head_seq"]) == (1, 0, 1)
    [job] = api.claimed(queue)
    assert (job["data"], job["$tag"], "$updated_at" in job) == ("old", "a", False)


def test_reject_refuses_the_whole_write(api: Api, queue: str) -> None:
    """409 with key and seq; no record of the write is stored, no seq is used up."""
    write(api, queue, "old")
    records = [{"data": "x"}, {"data": "new", "key": "k", "on_conflict": "reject"}]
    refused(api.write(queue, records), 409, "key_conflict", {"key": "k", "seq": 1})
    assert api.facts(queue, "head_seq", "count") == (1, 1)
    api.claimed(queue)
    assert results(write(api, queue, "new", on_conflict="reject")) == [(2, "created")]


@pytest.mark.parametrize("on_conflict", ["replace", "keep", "reject"])
def test_a_job_in_flight_is_never_touched(api: Api, queue: str, on_conflict: str) -> None:
    """The write makes a new waiting job."""
    write(api, queue, "old")
    [held] = api.claimed(queue)
    assert results(write(api, queue, "new", on_conflict=on_conflict)) == [(2, "created")]
    [job] = ok(api.jobs(queue, state="in_flight"))["jobs"]
    assert (job["$seq"], job["data"]) == (1, "old")
    assert ok(api.ack(queue, [1], lease_ids=[held["lease_id"]]))["acked"] == 1
    assert [job["data"] for job in api.claimed(queue, max=9)] == ["new"]


@pytest.mark.parametrize("end", ["nack", "expiry", "disconnect"])
def test_an_older_job_that_comes_back_is_superseded(api: Api, queue: str, end: str) -> None:
    """The newest state wins, and nothing runs twice for nothing."""
    write(api, queue, "old")
    if end == "disconnect":
        with api.work(queue, node="w") as stream:
            stream.jobs(1)
            write(api, queue, "new")
    else:
        api.claimed(queue, lease_ms=1000)
        write(api, queue, "new")
        if end == "nack":
            ok(api.nack(queue, [1]))
    assert eventually(lambda: api.facts(queue, "count", "superseded") == (1, 1))
    assert [job["data"] for job in api.claimed(queue, max=9)] == ["new"]


def test_coming_back_while_the_newer_one_is_in_flight(api: Api, queue: str) -> None:
    """Only a newer one that waits makes it end."""
    write(api, queue, "old")
    api.claimed(queue, "a")
    write(api, queue, "new")
    api.claimed(queue, "b")
    ok(api.nack(queue, [1], "a"))
    assert api.facts(queue, "superseded", "ready") == (0, 1)
    assert results(write(api, queue, "newest")) == [(1, "replaced")]


def test_after_the_end_of_a_job_its_key_is_free(api: Api, queue: str) -> None:
    """Acked, cancelled, deleted: the next write is a new job."""
    for number, end in enumerate(("ack", "cancel", "cancel_key", "delete"), start=1):
        assert results(write(api, queue, end)) == [(number, "created")]
        if end == "ack":
            api.claimed(queue)
            ok(api.ack(queue, [number]))
        elif end == "cancel":
            assert ok(api.cancel(queue, number))["cancelled"] is True
        elif end == "cancel_key":
            assert ok(api.cancel_key(queue, "k"))["cancelled"] is True
        else:
            assert ok(api.delete(queue, before_seq=number + 1))["deleted"] == 1


@pytest.mark.parametrize(
    ("records", "expected", "seqs"),
    [
        ([("a", 1), ("b", 2), ("a", 3)], [(1, "created"), (2, "created"), (1, "replaced")],
         [1, 2, 1]),
        ([(None, 1), ("a", 2), (None, 3)], [(1, "created"), (2, "created"), (3, "created")],
         [1, 2, 3]),
        ([("old", 1), (None, 2)], [(1, "replaced"), (2, "created")], [1, 2]),
        ([(None, 2), ("old", 1)], [(2, "created"), (1, "replaced")], [2, 1]),
    ],
)  # fmt: skip
def test_several_records_in_one_write(
    api: Api,
    queue: str,
    records: list[tuple[str | None, int]],
    expected: list[tuple[int, str]],
    seqs: list[int],
) -> None:
    """Results and effective seqs in the order of the write."""
    if any(key == "old" for key, _ in records):
        write(api, queue, "first", "old")
    sent = [{"data": data} | ({} if key is None else {"key": key}) for key, data in records]
    body = ok(api.write(queue, sent))
    assert (results(body), body["seqs"]) == (expected, seqs)
    assert body["count"] == len(records)
    assert body["created_count"] == sum(result == "created" for _, result in expected)
    last = {seq: data for (_, data), (seq, _) in zip(records, expected, strict=True)}
    claimed = {job["$seq"]: job["data"] for job in api.claimed(queue, max=9)}
    assert claimed == last


def test_return_seqs_false(api: Api, queue: str) -> None:
    """Leaves out the seqs; the results stay."""
    body = ok(api.write(queue, [{"data": 1, "key": "k"}], query="?return_seqs=false"))
    assert "seqs" not in body
    assert results(body) == [(1, "created")]


@pytest.mark.parametrize("key", ["a b", "ä/ö", "100%", 'q"q', "\n", "k" * 256, "0"])
def test_any_text_is_a_key(api: Api, queue: str, key: str) -> None:
    """It is compared as text, shown as sent, and addressed in a path."""
    write(api, queue, 1, key)
    assert results(write(api, queue, 2, key)) == [(1, "replaced")]
    assert ok(api.jobs(queue, key=key))["jobs"][0]["$key"] == key
    assert ok(api.cancel_key(queue, key)) | {"performance": 0} == {
        "topic": queue, "cancelled": True, "$seq": 1, "state": "ready", "performance": 0,
    }  # fmt: skip


def test_keys_of_other_queues_do_not_matter(api: Api, topic: str) -> None:
    """One waiting job per key in a queue."""
    for name in ("a", "b"):
        api.make_queue(f"{topic}{name}")
        assert results(write(api, f"{topic}{name}", 1)) == [(1, "created")]


def test_caps_count_new_jobs_only(api: Api, topic: str) -> None:
    """A full queue takes a replacement."""
    api.make_queue(topic, cap_records=1, discard="reject")
    write(api, topic, 1)
    assert results(write(api, topic, 2)) == [(1, "replaced")]
    assert results(write(api, topic, 3, on_conflict="keep")) == [(1, "kept")]
    refused(api.write(topic, [{"data": 4, "key": "other"}]), 422, "topic_full")
    assert api.claimed(topic)[0]["data"] == 2


def test_an_idempotent_keyed_write(api: Api, queue: str) -> None:
    """Its repeat gets the first answer again, results and all."""
    write(api, queue, "old")
    records = [{"data": "new", "key": "k"}, {"data": "more"}]
    first = ok(api.write(queue, records, idempotency_key="i"))
    again = ok(api.write(queue, records, idempotency_key="i"))
    assert again["deduped"] is True
    for name in ("seqs", "results", "count", "created_count", "first_seq", "last_seq", "head_seq"):
        assert again[name] == first[name], name
    assert api.facts(queue, "head_seq", "count") == (2, 2)


def test_many_writers_of_one_key(api: Api, queue: str) -> None:
    """One waiting job, with what was written last."""
    with ThreadPoolExecutor(8) as pool:
        bodies = list(pool.map(lambda number: write(api, queue, number), range(40)))
    fates = [results(body)[0] for body in bodies]
    assert fates.count((1, "created")) == 1
    assert fates.count((1, "replaced")) == 39
    assert len(api.claimed(queue, max=9)) == 1


def test_a_replacement_does_not_pass_a_claim(api: Api, queue: str) -> None:
    """Every state written is either seen by a worker or replaced by a later one."""
    seen: list[int] = []
    for number in range(20):
        write(api, queue, number)
        if number % 3 == 2:
            [job] = api.claimed(queue)
            ok(api.ack(queue, [job["$seq"]]))
            seen.append(job["data"])
    assert seen == [2, 5, 8, 11, 14, 17]


def test_a_stream_shows_the_key(api: Api, queue: str) -> None:
    """As a claim does."""
    write(api, queue, 1)
    write(api, queue, 2)
    with api.work(queue, node="w") as stream:
        [job] = stream.jobs(1)
    assert (job["$key"], job["data"], "$updated_at" in job) == ("k", 2, True)


def test_a_reader_sees_the_newest(api: Api, queue: str) -> None:
    """diff shows what is stored now, at its old place, whoever has read the old content before."""
    write(api, queue, "old")
    api.append(queue, "other")
    assert [record["data"] for record in api.read(queue)] == ["old", "other"]
    write(api, queue, "new")
    records = api.read(queue)
    assert [(record["$seq"], record["data"]) for record in records] == [(1, "new"), (2, "other")]
    assert seqs_of(records) == [1, 2]
