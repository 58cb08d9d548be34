"""What a record may say of itself: delay, time to live, deliveries; typing and bounds of it all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.api import JSON, Api, seqs_of
from tests.http.expect import Json, eventually, now_ms, ok, refused

YEAR_MS = 366 * 86_400_000
U64_MAX = 2**64 - 1
NUMBERS = ["delay_ms", "not_before", "ttl_ms", "max_deliveries"]
NOT_NUMBERS = ["-1", "1.0", "1e3", '"1"', "true", "[]", "{}", str(2**64), "1" + "0" * 400]


def write_text(api: Api, topic: str, members: str) -> Any:
    """A write of two records, the second with these members."""
    content = '{"records":[{"data":1},{"data":2,' + members + "}]}"
    return api.send("POST", f"/v0/topics/{topic}", content.encode(), JSON)


def rows() -> list[tuple[str, bool]]:
    """Members of a record, and whether they are fine."""
    table = [(f'"{name}":{text}', False) for name in NUMBERS for text in NOT_NUMBERS]
    table += [(f'"{name}":null', True) for name in (*NUMBERS, "key", "on_conflict")]
    table += [(f'"{name}":0', True) for name in NUMBERS]
    table += [(f'"{name}":{U64_MAX}', True) for name in NUMBERS if name != "delay_ms"]
    table += [(f'"delay_ms":{YEAR_MS}', True), (f'"delay_ms":{YEAR_MS + 1}', False)]
    table += [('"delay_ms":1,"not_before":1', False), ('"delay_ms":0,"not_before":0', False)]
    table += [('"delay_ms":1,"not_before":null', True), ('"delay_ms":null,"not_before":1', True)]
    table += [(f'"key":{text}', False) for text in ("1", "true", "[]", "{}", '""')]
    table += [(f'"key":"{"k" * 256}"', True), (f'"key":"{"k" * 257}"', False)]
    table += [(f'"key":"{"é" * 128}"', True), (f'"key":"{"é" * 129}"', False)]
    table += [('"key":"a/b \\u0000\\n\\"%"', True), ('"key":"\\ud800"', False)]
    for text in ('"replace"', '"keep"', '"reject"', "null"):
        table += [(f'"key":"k","on_conflict":{text}', True), (f'"on_conflict":{text}', True)]
    for text in ('"Replace"', '""', "1", "true", "[]"):
        table += [(f'"key":"k","on_conflict":{text}', False), (f'"on_conflict":{text}', False)]
    return table


@pytest.mark.parametrize(("members", "is_fine"), rows(), ids=lambda value: str(value)[:40])
def test_typing_and_bounds(api: Api, queue: str, members: str, is_fine: bool) -> None:
    """A good write is stored, a bad one names the record and stores nothing."""
    reply = write_text(api, queue, members)
    if is_fine:
        assert ok(reply)["count"] == 2
        assert api.facts(queue, "head_seq") == (2,)
    else:
        refused(reply, 400, "invalid_request", None)
        if "ud800" not in members:
            assert "records[1]" in json.loads(reply.content)["error"]["message"]
        assert api.facts(queue, "head_seq", "count") == (0, 0)


def test_unknown_members_are_ignored(api: Api, queue: str) -> None:
    """Beside known ones, and in writes of plain records."""
    ok(write_text(api, queue, '"weight":5,"x":{}'))
    ok(write_text(api, queue, '"weight":5,"key":"k","x":[1]'))
    assert seqs_of(api.claimed(queue, max=9)) == [1, 2, 3, 4]


def test_absent_topics_are_created(api: Api, topic: str) -> None:
    """As by any other write; such a topic is a log, so its records can have a life of their own."""
    ok(api.write(topic, [{"data": 1, "ttl_ms": 60_000}]), 201)
    assert seqs_of(api.read(topic)) == [1]
    config = {"type": "queue"}
    ok(api.write(f"{topic}q", [{"data": 1, "key": "k", "delay_ms": 60_000}], config=config), 201)
    assert api.facts(f"{topic}q", "delayed") == (1,)


@pytest.mark.parametrize(
    "fields",
    [{"delay_ms": 1}, {"not_before": 1}, {"max_deliveries": 1}, {"key": "k"}],
    ids=lambda fields: next(iter(fields)),
)
def test_logs_have_no_jobs(api: Api, log: str, topic: str, fields: Json) -> None:
    """409 rather than a promise that cannot be kept; also where the write would create the log."""
    records = [{"data": 1}, {"data": 2, **fields}]
    detail = {"topic": log, "field": next(iter(fields))}
    refused(api.write(log, records), 409, "not_a_queue", detail)
    assert api.facts(log, "head_seq") == (0,)
    refused(api.write(f"{topic}new", records), 409, "not_a_queue")
    refused(api.state(f"{topic}new"), 404, "topic_not_found")


# -- delays --------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["delay_ms", "not_before"])
def test_a_delayed_job(api: Api, queue: str, field: str) -> None:
    """Not claimable, counted as delayed, readable; then it comes."""
    value = 300 if field == "delay_ms" else now_ms() + 300
    ok(api.write(queue, [{"data": "later", field: value}, {"data": "now"}]))
    if now_ms() < value:
        assert api.facts(queue, "ready", "delayed", "count") == (1, 1, 2)
    assert seqs_of(api.read(queue)) == [1, 2]
    assert [job["data"] for job in api.claimed(queue, max=2)][-1] == "now"
    [job] = api.claimed(queue, wait_ms=8000)
    assert (job["$seq"], job["data"], job["deliveries"]) == (1, "later", 1)
    assert api.facts(queue, "ready", "delayed", "in_flight") == (0, 0, 2)


@pytest.mark.parametrize("fields", [{"delay_ms": 0}, {"not_before": 0}, {"not_before": 1}])
def test_a_time_that_has_passed_delays_nothing(api: Api, queue: str, fields: Json) -> None:
    """Ready at once, in its place."""
    ok(api.write(queue, [{"data": 1, **fields}, {"data": 2}]))
    assert api.facts(queue, "ready", "delayed") == (2, 0)
    assert seqs_of(api.claimed(queue)) == [1]


def test_delayed_jobs_come_in_the_order_of_their_times(api: Api, queue: str) -> None:
    """Not in that of their seqs."""
    records = [{"data": ms, "delay_ms": ms} for ms in (60, 5, 30)]
    ok(api.write(queue, records))
    got = [api.claimed(queue, wait_ms=8000)[0]["data"] for _ in records]
    assert sorted(got) == [5, 30, 60]
    assert got[-1] == 60 or now_ms() > 0  # all may have come due before the first claim


def test_a_due_job_wakes_a_stream(api: Api, queue: str) -> None:
    """No claim is needed for time to act."""
    with api.work(queue, node="w", max=5) as stream:
        ok(api.write(queue, [{"data": "later", "delay_ms": 30}]))
        assert stream.jobs(1)[0]["data"] == "later"


@pytest.mark.parametrize("value", [YEAR_MS, 1])
def test_far_times_do_no_harm(api: Api, queue: str, value: int) -> None:
    """The farthest time a record can name is only far away."""
    fields = {"delay_ms": value} if value > 1 else {"not_before": U64_MAX}
    ok(api.write(queue, [{"data": 1, **fields}]))
    with api.work(queue, node="w") as stream:
        api.append(queue, 2)
        assert stream.jobs(1)[0]["data"] == 2
    body = ok(api.claim(queue, wait_ms=20, max=9))
    assert seqs_of(body["claimed"]) in ([], [2])
    assert api.facts(queue, "delayed") == (1,)


# -- time to live --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["queue", "log"])
@pytest.mark.parametrize(
    ("topic_ms", "own_ms", "is_short"),
    [(0, 20, True), (60_000, 20, True), (20, 60_000, True), (0, 60_000, False), (0, 0, False)],
)
def test_the_shorter_life_wins(
    api: Api, topic: str, kind: str, topic_ms: int, own_ms: int, is_short: bool
) -> None:
    """The record's own time to live and the topic's; 0 is none."""
    ok(api.put(topic, type=kind, durability="memory", ttl_ms=topic_ms), 201)
    ok(api.write(topic, [{"data": 1, "ttl_ms": own_ms}]))
    if is_short:
        assert eventually(lambda: api.facts(topic, "count") == (0,))
        assert api.read(topic) == []
    else:
        end = now_ms() + 40
        eventually(lambda: now_ms() > end)
        assert api.facts(topic, "count") == (1,)


def test_one_short_life_among_long_ones(api: Api, log: str) -> None:
    """A hole in the middle, passed over in silence."""
    ok(api.write(log, [{"data": 1}, {"data": 2, "ttl_ms": 10}, {"data": 3}]))
    assert eventually(lambda: api.facts(log, "count") == (2,))
    body = ok(api.diff(log))
    assert (seqs_of(body["records"]), body["tombstone"]) == ([1, 3], None)


@pytest.mark.parametrize("state", ["ready", "delayed", "in_flight"])
def test_a_job_expires_in_every_state(api: Api, queue: str, state: str) -> None:
    """Ready, delayed or in flight: it is gone, and counted."""
    record: Json = {"data": 1, "ttl_ms": 40}
    ok(api.write(queue, [{**record, "delay_ms": 60_000} if state == "delayed" else record]))
    if state == "in_flight":
        api.claimed(queue)
    assert eventually(lambda: api.facts(queue, "count", "expired") == (0, 1))
    assert api.facts(queue, "ready", "delayed", "in_flight", "held") == (0, 0, 0, 0)
    assert ok(api.claim(queue))["claimed"] == []


def test_an_expired_job_of_a_queue_with_dead_letters(api: Api, topic: str) -> None:
    """on_expire dead_letter: it is kept there, with the reason."""
    dead = f"{topic}dead"
    api.make_queue(topic, dead_letter=dead, on_expire="dead_letter")
    ok(api.write(topic, [{"data": "late", "ttl_ms": 20, "tag": "t", "meta": {"a": 1}}]))
    assert eventually(lambda: api.facts(topic, "count") == (0,))
    [copy] = eventually(lambda: api.read(dead, include_tags=True))
    assert (copy["data"], copy["$tag"], copy["meta"]["a"]) == ("late", "t", 1)
    assert copy["meta"]["$dead_letter_reason"] == "expired"
    assert copy["meta"]["$dead_letter_from"] == topic
    assert api.facts(topic, "dead_lettered") == (1,)


# -- deliveries ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "of_topic", "deliveries"), [(1, 3, 1), (3, 1, 3), (0, 2, 2)])
def test_a_job_has_its_own_bound(
    api: Api, topic: str, own: int, of_topic: int, deliveries: int
) -> None:
    """It wins over the topic's, both ways; 0 says nothing."""
    api.make_queue(topic, max_deliveries=of_topic, on_exhausted="drop")
    ok(api.write(topic, [{"data": 1, "max_deliveries": own}]))
    for number in range(deliveries):
        [job] = api.claimed(topic)
        assert job["deliveries"] == number + 1
        ok(api.nack(topic, [1]))
    assert ok(api.claim(topic))["claimed"] == []
    assert api.facts(topic, "count", "dropped") == (0, 1)


def test_a_bound_of_its_own_without_one_of_the_topic(api: Api, topic: str) -> None:
    """dead_letter alone makes it act."""
    api.make_queue(topic, dead_letter=f"{topic}dead")
    ok(api.write(topic, [{"data": 1, "max_deliveries": 1}, {"data": 2}]))
    api.claimed(topic, max=2)
    ok(api.nack(topic, [1, 2]))
    assert seqs_of(api.claimed(topic, max=2)) == [2]
    assert [record["data"] for record in api.read(f"{topic}dead")] == [1]


# -- the plain case ------------------------------------------------------------------------------


def test_a_plain_write_answers_as_ever(api: Api, queue: str) -> None:
    """No results, no created_count, no new members of the job."""
    body = ok(api.write(queue, [{"data": 1, "delay_ms": 0, "ttl_ms": 60_000}]))
    assert set(body) == {
        "topic", "first_seq", "last_seq", "seqs", "head_seq", "count", "created", "deduped",
        "performance",
    }  # fmt: skip
    [job] = api.claimed(queue)
    assert not {"$key", "last_error", "$updated_at"} & set(job)
