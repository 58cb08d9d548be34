"""Priorities and groups over HTTP: fields, order, reasons, filters, changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.api import JSON, Api, seqs_of
from tests.http.expect import Json, ok, refused

FAIR = {"mode": "fair"}
FIFO = {"mode": "fifo"}


def make(api: Api, queue: str, *records: tuple[int, str | None], **config: Any) -> None:
    """A queue with jobs of some priorities and groups."""
    api.make_queue(queue, **config)
    given = [
        {"data": n, "priority": priority, **({} if group is None else {"group": group})}
        for n, (priority, group) in enumerate(records, 1)
    ]
    ok(api.write(queue, given))


def test_higher_first_then_by_seq(api: Api, topic: str) -> None:
    """A reply lists jobs as they were claimed, with what they are."""
    make(api, topic, (0, None), (5, "a"), (9, None), (5, None), (0, "b"))
    jobs = api.claimed(topic, max=9)
    assert seqs_of(jobs) == [3, 2, 4, 1, 5]
    assert [job["data"] for job in jobs] == [3, 2, 4, 1, 5]
    assert [job.get("priority") for job in jobs] == [9, 5, 5, None, None]
    assert [job.get("group") for job in jobs] == [None, "a", None, None, "b"]
    ok(api.nack(topic, [4, 1, 3]))
    assert seqs_of(api.claimed(topic, max=9)) == [3, 4, 1]


@pytest.mark.parametrize(
    ("members", "is_fine"),
    [
        ('"priority":0', True),
        ('"priority":9', True),
        ('"priority":null,"group":null', True),
        ('"group":"é"', True),
        ('"group":"' + "x" * 128 + '"', True),
        ('"priority":10', False),
        ('"priority":-1', False),
        ('"priority":1.0', False),
        ('"priority":"1"', False),
        ('"group":""', False),
        ('"group":7', False),
        ('"group":"' + "x" * 129 + '"', False),
        ('"group":"' + "é" * 65 + '"', False),
    ],
)
def test_bounds(api: Api, queue: str, members: str, is_fine: bool) -> None:
    """A record is refused as a whole write is."""
    body = f'{{"records":[{{"data":1,{members}}}]}}'
    reply = api.send("POST", f"/v0/topics/{queue}", body.encode(), JSON)
    assert reply.status_code == (200 if is_fine else 400), reply.text


def test_only_jobs_have_them(api: Api, topic: str) -> None:
    """As a key or a delay, they are refused on a log."""
    api.make_log(topic)
    for field, value in (("priority", 3), ("group", "a")):
        reply = api.write(topic, [{"data": 1, field: value}])
        refused(reply, 409, "not_a_queue", {"topic": topic, "field": field})


def test_a_config_shows_them_where_they_are_used(api: Api, topic: str) -> None:
    """The config of another queue, and its version, are what they were."""
    api.make_queue(topic)
    assert not {"groups", "priority_ageing_ms"} & ok(api.state(topic))["config"].keys()
    ok(api.patch(topic, groups={**FAIR, "weights": {"b": 2, "a": 3}}, priority_ageing_ms=500))
    config = ok(api.state(topic))["config"]
    assert config["priority_ageing_ms"] == 500
    assert config["groups"]["weights"] == {"a": 3, "b": 2}
    version = ok(api.state(topic))["config_version"]
    ok(api.patch(topic, groups=None, priority_ageing_ms=None))
    state = ok(api.state(topic))
    assert not {"groups", "priority_ageing_ms"} & state["config"].keys()
    assert state["config_version"] != version
    for wrong in (
        {"mode": "lifo"},
        {},
        {"mode": "fifo", "weights": {"a": 2}},
        {"mode": "fair", "weights": {"a": 0}},
        {"mode": "fair", "weights": {"": 1}},
        {"mode": "fair", "rate_per_group": {"per_s": 0}},
    ):
        refused(api.put(topic, type="queue", groups=wrong), 400, "invalid_request")


def test_groups_take_turns(api: Api, topic: str) -> None:
    """However many jobs one of them has; jobs without a group are one, too."""
    noisy = [(0, "noisy")] * 6
    make(api, topic, *noisy, (0, "quiet"), (0, None), (9, "noisy"), groups=FAIR)
    # Jobs without a group are in the ring from the beginning.
    assert seqs_of(api.claimed(topic, max=9)) == [8, 9, 7, 1, 2, 3, 4, 5, 6]


def test_one_of_a_group_at_a_time(api: Api, topic: str) -> None:
    """The others are ready, and wait; what the queue says of them."""
    make(api, topic, (0, "a"), (9, "a"), (0, "b"), groups=FIFO)
    assert seqs_of(api.claimed(topic, max=9)) == [1, 3]
    empty = ok(api.claim(topic))
    assert (empty["reason"], empty["ready"]) == ("group_busy", 1)
    assert 0 < empty["retry_after_ms"] <= 30_001
    why = ok(api.job(topic, 2))["why"]
    assert why["code"] == "group_busy"
    assert why["text"] == "Ready, but job 1 of its group 'a' goes first, and it is in flight."
    ok(api.nack(topic, [1], delay_ms=60_000))
    assert ok(api.claim(topic))["reason"] == "group_busy"
    ok(edit(api, topic, 1))
    assert seqs_of(api.claimed(topic)) == [1]
    ok(api.ack(topic, [1]))
    assert seqs_of(api.claimed(topic)) == [2]


def edit(api: Api, queue: str, seq: int, **members: Any) -> Any:
    """Change a job; makes it ready if nothing else is said."""
    return api.json("PATCH", f"/v0/topics/{queue}/jobs/{seq}", members or {"retry": True})


def test_a_waiting_claim_gets_what_an_ack_frees(api: Api, topic: str) -> None:
    """And so does a work stream."""
    make(api, topic, (0, "a"), (0, "a"), (0, "a"), groups=FIFO)
    assert seqs_of(api.claimed(topic, max=9)) == [1]
    with api.work(topic, node="streaming", max=5) as stream:
        comment = ""
        while "group_busy" not in comment:
            comment = stream.next_frame().comment or ""
        ok(api.ack(topic, [1]))
        frame = stream.next_frame()
        while frame.event != "job":
            frame = stream.next_frame()
        assert frame.json()["$seq"] == 2


def test_listing_and_changing(api: Api, topic: str) -> None:
    """By group and by priority; one job, and many."""
    make(api, topic, (1, "a"), (2, "a"), (0, "b"), (1, None))

    def listed(**query: Any) -> list[int]:
        return seqs_of(ok(api.jobs(topic, **query))["jobs"])

    assert listed(group="a") == [1, 2]
    assert listed(priority=1) == [1, 4]
    assert listed(priority=0) == [3]
    assert listed(group="a", priority=2) == [2]
    assert listed(group="c") == []
    refused(api.jobs(topic, priority=10), 400, "invalid_request")
    [job] = ok(api.jobs(topic, group="b"))["jobs"]
    assert (job["group"], "priority" in job) == ("b", False)
    ok(edit(api, topic, 3, priority=7))
    refused(edit(api, topic, 3, priority=10), 400, "invalid_request")
    assert ok(api.job(topic, 3))["job"]["priority"] == 7
    body: Json = {"action": "prioritize", "filter": {"priority": 1}, "priority": 8, "wait": True}
    done = ok(api.json("POST", f"/v0/topics/{topic}/jobs/change", body))
    assert done["operation"]["changed"] == 2
    for wrong in ({**body, "priority": None}, {**body, "action": "retry"}):
        reply = api.json("POST", f"/v0/topics/{topic}/jobs/change", wrong)
        refused(reply, 400, "invalid_request")
    jobs = api.claimed(topic, max=9)
    assert [(job["$seq"], job["priority"]) for job in jobs] == [(1, 8), (4, 8), (3, 7), (2, 2)]
    assert [job.get("group") for job in jobs] == ["a", None, "b", "a"]


def test_groups_are_listed(api: Api, topic: str) -> None:
    """By what waits, or by age; a queue without them has none."""
    make(api, topic, (0, "a"), (0, "b"), (5, "b"), (0, None), (0, "c"), groups=FIFO)
    assert seqs_of(api.claimed(topic, max=2)) == [1, 2]

    def listed(**query: Any) -> Json:
        text = "&".join(f"{name}={value}" for name, value in query.items())
        return ok(api.send("GET", f"/v0/topics/{topic}/groups?{text}"))

    found = listed()
    assert (found["count"], found["scanned"]) == (3, 3)
    assert [(g["group"], g["waiting"], g["in_flight"], g["blocked"]) for g in found["groups"]] == [
        ("b", 1, 1, True),
        ("c", 1, 0, False),
        ("a", 0, 1, True),
    ]
    assert [g["group"] for g in listed(order="age", limit=2)["groups"]] == ["a", "b"]
    refused(api.send("GET", f"/v0/topics/{topic}/groups?order=x"), 400, "invalid_request")
    ok(api.patch(topic, groups=None))
    assert listed()["groups"] == []


def test_dead_letters_keep_them(api: Api, topic: str) -> None:
    """In their meta for people, and for a redrive."""
    dead = f"{topic}.dead"
    make(api, topic, (4, "a"), dead_letter=dead)
    api.claimed(topic)
    ok(api.reject(topic, [1]))
    [letter] = api.read(dead)
    meta = letter["meta"]
    assert (meta["$dead_letter_priority"], meta["$dead_letter_group"]) == ("4", "a")
    ok(api.post(dead, "redrive"))
    [job] = api.claimed(topic)
    assert (job["$seq"], job["priority"], job["group"]) == (2, 4, "a")
    assert "meta" not in job


def test_on_a_socket_and_in_an_epoch(api: Api, queue: str) -> None:
    """Wherever jobs are written."""
    chunk: Json = {"topic": queue, "partition": 0, "attempt": "a", "chunk": 0}
    records = [{"data": 1}, {"data": 2, "priority": 3, "group": "g"}]
    where = f"/v0/producers/{queue}/epochs/0"
    ok(api.json("POST", f"{where}/stage", {**chunk, "records": records}))
    parts = [{"partition": 0, "attempt": "a", "chunks": 1, "rows": 2}]
    ok(api.json("POST", f"{where}/commit", {"parts": parts}))
    first, second = api.claimed(queue, max=2)
    assert (first["data"], first["priority"], first["group"]) == (2, 3, "g")
    assert json.dumps(second["data"]) == "1"
