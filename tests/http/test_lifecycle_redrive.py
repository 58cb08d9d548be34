"""Redrive: dead letters go back, each once, whatever happens in between."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.http.api import JSON, Api, numbered, seqs_of
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, eventually, ok, refused


def dead_lettered(api: Api, topic: str, count: int = 3, **config: Any) -> tuple[str, str]:
    """A queue whose jobs were all rejected, and the log they went to; tags t0, t1 in turn."""
    source, dead = f"{topic}src", f"{topic}dead"
    api.make_queue(source, dead_letter=dead, **config)
    api.make_log(dead)
    reject_some(api, source, count)
    return source, dead


def reject_some(api: Api, source: str, count: int) -> None:
    """Write jobs and reject them all."""
    records = [{"data": n, "tag": f"t{n % 2}", "node": "p", "meta": {"m": n}} for n in range(count)]
    ok(api.write(source, records))
    for start in range(0, count, 1000):
        seqs = seqs_of(api.claimed(source, max=min(count - start, 1000)))
        assert ok(api.reject(source, seqs, error="broken"))["rejected"] == len(seqs)


def redrive(api: Api, dead: str, **fields: Any) -> tuple[int, int, int]:
    """Redriven, skipped, remaining."""
    body = ok(api.post(dead, "redrive", **fields))
    assert body["topic"] == dead
    return body["redriven"], body["skipped"], body["remaining"]


def test_back_to_where_they_came_from(api: Api, topic: str) -> None:
    """Data, tag, producer and meta as they were; the stamps go; deliveries begin anew."""
    source, dead = dead_lettered(api, topic)
    assert redrive(api, dead) == (3, 0, 0)
    assert api.facts(dead, "count") == (0,)
    jobs = api.claimed(source, max=9)
    assert [(job["data"], job["$tag"], job["meta"]) for job in jobs] == [
        (0, "t0", {"m": 0}), (1, "t1", {"m": 1}), (2, "t0", {"m": 2}),
    ]  # fmt: skip
    assert {job["deliveries"] for job in jobs} == {1}
    assert [record["$node"] for record in api.read(source)] == ["p"] * 3
    assert redrive(api, dead) == (0, 0, 0)


def test_meta_that_was_none_is_none_again(api: Api, topic: str) -> None:
    """Also meta that was no object."""
    source, dead = f"{topic}src", f"{topic}dead"
    api.make_queue(source, dead_letter=dead)
    ok(api.write(source, [{"data": 1}, {"data": 2, "meta": "text"}, {"data": 3, "meta": {}}]))
    ok(api.reject(source, seqs_of(api.claimed(source, max=3))))
    assert redrive(api, dead) == (3, 0, 0)
    first, second, third = api.claimed(source, max=3)
    assert "meta" not in first
    assert second["meta"] == "text"
    assert third.get("meta", {}) == {}


@pytest.mark.parametrize("to_log", [True, False])
def test_to_another_topic(api: Api, topic: str, to_log: bool) -> None:
    """Wherever the caller says."""
    source, dead = dead_lettered(api, topic)
    other = f"{topic}other"
    (api.make_log if to_log else api.make_queue)(other)
    assert redrive(api, dead, to=other) == (3, 0, 0)
    assert api.facts(source, "count") == (0,)
    assert [record["data"] for record in api.read(other)] == [0, 1, 2]
    assert all("$dead_letter_from" not in record.get("meta", {}) for record in api.read(other))


@pytest.mark.parametrize(
    ("fields", "data"),
    [
        ({}, [0, 1, 2, 3]),
        ({"seqs": [2, 4]}, [1, 3]),
        ({"seqs": [4, 2, 2, 99]}, [1, 3]),
        ({"seqs": []}, []),
        ({"match": "t0"}, [0, 2]),
        ({"match": ["tag", "Glob", "t*"]}, [0, 1, 2, 3]),
        ({"before_seq": 3}, [0, 1]),
        ({"reason": "rejected"}, [0, 1, 2, 3]),
        ({"reason": "expired"}, []),
        ({"match": "t1", "before_seq": 3}, [1]),
        ({"limit": 3}, [0, 1, 2]),
        ({"seqs": None, "match": None, "before_seq": None, "reason": None, "limit": None},
         [0, 1, 2, 3]),
    ],
    ids=str,
)  # fmt: skip
def test_selection(api: Api, topic: str, fields: Json, data: list[int]) -> None:
    """Filters add up; what is not selected stays."""
    source, dead = dead_lettered(api, topic, 4)
    planned, skipped, _ = redrive(api, dead, dry_run=True, **fields)
    assert (planned, skipped) == (len(data), 0)
    assert (api.facts(dead, "count"), api.facts(source, "count")) == ((4,), (0,))
    done, skipped, remaining = redrive(api, dead, **fields)
    assert (done, skipped) == (len(data), 0)
    assert [job["data"] for job in api.claimed(source, max=9)] == data
    assert api.facts(dead, "count") == (4 - len(data),)
    if fields.get("limit"):
        assert remaining == 1


def test_what_has_no_source_is_skipped(api: Api, topic: str) -> None:
    """Records that are not dead letters, and those whose queue is gone."""
    source, dead = dead_lettered(api, topic, 2)
    api.append(dead, "no dead letter")
    api.append_many(dead, [{"data": "odd", "meta": {"$dead_letter_from": 5}}])
    ok(api.delete_topic(source))
    done, _, _ = redrive(api, dead)
    assert done == 0
    assert api.facts(dead, "count") == (4,)
    api.make_queue(source)
    done, _, _ = redrive(api, dead)
    assert done == 2
    assert api.facts(dead, "count") == (2,)


def test_a_target_without_room(api: Api, topic: str) -> None:
    """Stays where it is; the rest is moved."""
    source, dead = dead_lettered(api, topic, 3)
    ok(api.patch(source, cap_records=1, discard="reject"))
    done, skipped, remaining = redrive(api, dead)
    assert done + api.facts(dead, "count")[0] == 3
    assert (done, remaining) == (1, 2) or (done, skipped) == (0, 3)


def test_a_keyed_job_comes_back_although_its_key_waits(api: Api, topic: str) -> None:
    """Redrive ignores the uniqueness of keys rather than fail on it."""
    source, dead = f"{topic}src", f"{topic}dead"
    api.make_queue(source, dead_letter=dead)
    ok(api.write(source, [{"data": "old", "key": "k"}]))
    api.claimed(source)
    ok(api.reject(source, [1]))
    ok(api.write(source, [{"data": "new", "key": "k"}]))
    assert redrive(api, dead) == (1, 0, 0)
    assert sorted(job["data"] for job in api.claimed(source, max=9)) == ["new", "old"]


def test_dead_letters_in_a_queue(api: Api, topic: str) -> None:
    """Those that somebody works on stay with him."""
    source, dead = f"{topic}src", f"{topic}dead"
    api.make_queue(source, dead_letter=dead)
    api.make_queue(dead)
    reject_some(api, source, 3)
    assert seqs_of(api.claimed(dead)) == [1]
    done, _, _ = redrive(api, dead)
    assert done == 2
    assert ok(api.ack(dead, [1]))["acked"] == 1
    assert [job["data"] for job in api.claimed(source, max=9)] == [1, 2]


def test_more_than_one_call_takes(api: Api, topic: str) -> None:
    """limit says how many; remaining says when to call again."""
    source, dead = dead_lettered(api, topic, 2500)
    assert redrive(api, dead) == (1000, 0, 1500)
    assert redrive(api, dead, limit=10_001)[0] == 1500
    assert api.facts(source, "ready") == (2500,)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b'{"to":1}', "invalid_request"), (b'{"seqs":1}', "invalid_request"),
        (b'{"seqs":[-1]}', "invalid_request"), (b'{"seqs":[1.0]}', "invalid_request"),
        (b'{"match":1}', "invalid_request"), (b'{"match":["tag","eq","x"]}', "invalid_request"),
        (b'{"before_seq":"1"}', "invalid_request"), (b'{"reason":"Expired"}', "invalid_request"),
        (b'{"reason":1}', "invalid_request"), (b'{"limit":-1}', "invalid_request"),
        (b'{"limit":1.5}', "invalid_request"), (b'{"limit":"1"}', "invalid_request"),
        (b'{"dry_run":1}', "invalid_request"), (b'{"dry_run":null}', "invalid_request"),
        (b"[]", "invalid_request"), (b"{", "invalid_request"),
        (b'{"seqs":[' + b"1," * 10_000 + b"1]}", "batch_too_large"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_bad_bodies(api: Api, topic: str, content: bytes, code: str) -> None:
    """400 before anything is moved."""
    source, dead = dead_lettered(api, topic, 1)
    refused(api.send("POST", f"/v0/topics/{dead}/redrive", content, JSON), 400, code)
    assert (api.facts(dead, "count"), api.facts(source, "count")) == ((1,), (0,))


def test_refusals(api: Api, topic: str) -> None:
    """404 for an absent topic here; nothing creates one."""
    refused(api.post(topic, "redrive"), 404, "topic_not_found", {"topic": topic})
    _, dead = dead_lettered(api, topic, 1)
    reply = api.post(dead, "redrive", to=f"{topic}none")
    if reply.status_code == 200:
        assert ok(reply)["redriven"] == 0
    else:
        refused(reply, 404, "topic_not_found", {"topic": f"{topic}none"})
    refused(api.state(f"{topic}none"), 404, "topic_not_found")
    assert api.facts(dead, "count") == (1,)


@pytest.mark.parametrize(("source_class", "dead_class"), [("memory", "fsync"), ("fsync", "memory")])
def test_killed_in_the_middle(
    fresh_server: FreshServer, api_for: ApiFor, source_class: str, dead_class: str
) -> None:
    """kill -9 while redrives run: each job is in exactly one place, and a repeat doubles none."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("src", dead_letter="dead", durability=source_class)
    api.make_log("dead", durability=dead_class)
    count = 300
    reject_some(api, "src", count)
    for _ in range(4):
        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(redrive_until_gone, api, "dead") for _ in range(2)]
            some_are_back(api, "src")
            server.kill()
            for run in runs:
                run.result(20)
        server.start()
        api = api_for(server)
        here = [record["data"] for record in all_records(api, "dead")]
        there = [record["data"] for record in all_records(api, "src")]
        assert sorted(here + there) == list(range(count))
        if not here:
            break
    while redrive(api, "dead", limit=50)[0]:
        pass
    assert sorted(record["data"] for record in all_records(api, "src")) == list(range(count))
    assert api.facts("dead", "count") == (0,)


def some_are_back(api: Api, source: str) -> None:
    """Return once a redrive has begun to move jobs."""
    eventually(lambda: api.facts(source, "count")[0] > 0)


def redrive_until_gone(api: Api, dead: str) -> None:
    """One small step after the other, until the server is gone."""
    try:
        while ok(api.post(dead, "redrive", limit=3))["redriven"]:
            pass
    except Exception:
        return


def all_records(api: Api, topic: str) -> list[Json]:
    """Everything that a topic holds."""
    records: list[Json] = []
    at = 0
    while True:
        body = ok(api.diff(topic, from_seq=at, limit=1000))
        records += body["records"]
        at = body["next_from_seq"]
        if body["caught_up"]:
            return records


def test_plain_dead_letters_are_untouched(api: Api, log: str) -> None:
    """A log of ordinary records has nothing to redrive."""
    ok(api.write(log, numbered(3)))
    assert redrive(api, log)[0] == 0
    assert api.facts(log, "count") == (3,)
