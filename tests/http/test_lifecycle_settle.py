"""Nack with error and count, reject, and every verb from every state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.http.api import JSON, Api, seqs_of
from tests.http.expect import Json, eventually, ok, refused

# -- nack: error ---------------------------------------------------------------------------------


def test_the_last_error_goes_with_the_job(api: Api, queue: str) -> None:
    """Shown with the next delivery, to operators, and until the next error."""
    api.append(queue, 1)
    [job] = api.claimed(queue)
    assert "last_error" not in job
    ok(api.nack(queue, [1], error='no "disk"\n'))
    assert ok(api.jobs(queue))["jobs"][0]["last_error"] == 'no "disk"\n'
    [job] = api.claimed(queue)
    assert (job["last_error"], job["deliveries"]) == ('no "disk"\n', 2)
    ok(api.nack(queue, [1]))
    assert api.claimed(queue)[0]["last_error"] == 'no "disk"\n'
    ok(api.nack(queue, [1], error="other"))
    with api.work(queue, node="w") as stream:
        assert stream.jobs(1)[0]["last_error"] == "other"


@pytest.mark.parametrize("verb", ["nack", "reject"])
@pytest.mark.parametrize(
    ("text", "is_fine"),
    [
        ('""', True),
        ("null", True),
        (f'"{"e" * 4096}"', True),
        (f'"{"e" * 4097}"', False),
        (f'"{"é" * 2048}"', True),
        (f'"{"é" * 2049}"', False),
        ("1", False),
        ("true", False),
        ("[]", False),
        ("{}", False),
    ],
    ids=lambda value: str(value)[:12],
)
def test_typing_of_error(api: Api, queue: str, verb: str, text: str, is_fine: bool) -> None:
    """A text of at most 4 KiB, refused before anything is looked at."""
    content = '{"node":"w","seqs":[],"error":' + text + "}"
    reply = api.send("POST", f"/v0/topics/{queue}/{verb}", content.encode(), JSON)
    if is_fine:
        assert ok(reply)["skipped"] == []
    else:
        refused(reply, 400, "invalid_request", None)


# -- nack: count ---------------------------------------------------------------------------------


def test_an_uncounted_hand_back(api: Api, topic: str) -> None:
    """Work that was not begun does not count as a delivery."""
    api.make_queue(topic, max_deliveries=1, on_exhausted="drop")
    api.append(topic, 1)
    for _ in range(3):
        [job] = api.claimed(topic)
        assert job["deliveries"] == 1
        assert ok(api.nack(topic, [1], count=False))["nacked"] == 1
    [job] = api.claimed(topic)
    ok(api.nack(topic, [1], count=True))
    assert api.claimed(topic) == []


def test_an_uncounted_hand_back_is_not_held_off(api: Api, topic: str) -> None:
    """Backoff is for failures."""
    api.make_queue(topic, retry_backoff={"kind": "constant", "base_ms": 60_000})
    api.append(topic, 1)
    api.claimed(topic)
    ok(api.nack(topic, [1], count=False))
    assert api.facts(topic, "ready", "delayed") == (1, 0)
    api.claimed(topic)
    ok(api.nack(topic, [1], count=False, delay_ms=60_000))
    assert api.facts(topic, "ready", "delayed") == (0, 1)


@pytest.mark.parametrize("text", ["null", "0", "1", '"false"', "[]"])
def test_typing_of_count(api: Api, queue: str, text: str) -> None:
    """true or false."""
    content = '{"node":"w","seqs":[],"count":' + text + "}"
    refused(
        api.send("POST", f"/v0/topics/{queue}/nack", content.encode(), JSON), 400, "invalid_request"
    )


# -- reject --------------------------------------------------------------------------------------

REJECTED: list[tuple[str | None, bool, str]] = [
    (None, False, "rejected"),
    (None, True, "dead_lettered"),
    ("drop", False, "rejected"),
    ("drop", True, "dead_lettered"),
    ("hold", False, "held"),
    ("hold", True, "dead_lettered"),
    ("dead_letter", True, "dead_lettered"),
]


@pytest.mark.parametrize(("on_exhausted", "has_dead_letter", "where"), REJECTED)
def test_reject(
    api: Api, topic: str, on_exhausted: str | None, has_dead_letter: bool, where: str
) -> None:
    """Failed for good: dead-lettered if there is a place, else as on_exhausted says."""
    dead = f"{topic}dead"
    api.make_queue(topic, on_exhausted=on_exhausted, dead_letter=dead if has_dead_letter else None)
    api.append(topic, "bad", "good", "better")
    api.claimed(topic, max=2)
    body = ok(api.reject(topic, [1, 9], error="broken"))
    expected = {"topic": topic, "rejected": 1, "skipped": [9], "ready": 1, "in_flight": 1}
    assert {name: body[name] for name in expected} == expected
    assert set(body) == {*expected, "performance"}
    counters = {"rejected": 0, "dead_lettered": 0, "held": 0, "dropped": 0, where: 1}
    assert dict(zip(counters, api.facts(topic, *counters), strict=True)) == counters
    assert api.facts(topic, "count") == (3 if where == "held" else 2,)
    if where == "dead_lettered":
        [copy] = api.read(dead)
        assert copy["data"] == "bad"
        stamps = copy["meta"]
        assert stamps["$dead_letter_reason"] == "rejected"
        assert stamps["$dead_letter_error"] == "broken"
        assert stamps["$dead_letter_from"] == topic
        assert stamps["$dead_letter_deliveries"] == "1"
        assert stamps["$dead_letter_src_seq"] == "1"
        assert "$dead_letter_at" in stamps
    if where == "held":
        [job] = ok(api.jobs(topic, state="held"))["jobs"]
        assert (job["$seq"], job["last_error"], job["deliveries"]) == (1, "broken", 1)


def test_a_dead_letter_by_deliveries_says_so(api: Api, topic: str) -> None:
    """Reason and error are with every dead letter."""
    dead = f"{topic}dead"
    api.make_queue(topic, dead_letter=dead, max_deliveries=1)
    api.append(topic, 1, 2)
    api.claimed(topic, max=2)
    ok(api.nack(topic, [1], error="why"))
    ok(api.nack(topic, [2]))
    assert api.claimed(topic) == []
    first, second = api.read(dead)
    assert first["meta"]["$dead_letter_reason"] == "max_deliveries"
    assert first["meta"]["$dead_letter_error"] == "why"
    assert "$dead_letter_error" not in second["meta"]


def test_reject_is_fenced(api: Api, queue: str) -> None:
    """As every verb that settles: node, lease id, once each."""
    api.append(queue, 1, 2)
    first, second = api.claimed(queue, max=2)
    assert ok(api.reject(queue, [1], "other"))["skipped"] == [1]
    stale = [second["lease_id"]]
    assert ok(api.reject(queue, [1], lease_ids=stale))["skipped"] == [1]
    body = ok(api.reject(queue, [1, 1, 77], lease_ids=[first["lease_id"], "", ""]))
    assert (body["rejected"], body["skipped"]) == (1, [1, 77])
    refused(api.reject(queue, [2], lease_ids=["bogus"]), 400, "invalid_request")
    refused(api.reject(queue, [2], lease_ids=["", ""]), 400, "invalid_request")
    refused(api.reject(queue, [2], ""), 400, "invalid_request")
    refused(api.reject(queue, [0] * 1001), 400, "batch_too_large", {"seqs": 1001, "max": 1000})


def test_reject_refusals(api: Api, topic: str) -> None:
    """404 and 409 after the checks of the body."""
    refused(api.reject(topic, [1]), 404, "topic_not_found", {"topic": topic})
    api.make_log(topic)
    refused(api.reject(topic, [1]), 409, "not_a_queue", {"topic": topic})


def test_a_target_without_room_holds_the_reject_back(api: Api, topic: str) -> None:
    """No job is lost when its dead-letter topic is full: it stays, and moves later."""
    dead = f"{topic}dead"
    api.make_queue(topic, dead_letter=dead)
    api.make_log(dead, cap_records=1, discard="reject")
    api.append(dead, "full")
    api.append(topic, "bad")
    api.claimed(topic)
    api.reject(topic, [1])
    assert api.facts(topic, "count", "dead_lettered") == (1, 0)
    assert len(api.read(dead)) == 1


# -- every verb from every state -----------------------------------------------------------------

Verb = Callable[[Api, str], Json]

STATES = ["ready", "delayed", "in_flight", "held", "acked", "none"]


def bring(api: Api, queue: str, state: str) -> None:
    """One job with seq 1 in a state; held by w when it is in flight."""
    if state == "none":
        return
    ok(api.write(queue, [{"data": 1} | ({"delay_ms": 60_000} if state == "delayed" else {})]))
    if state in ("in_flight", "acked", "held"):
        assert seqs_of(api.claimed(queue)) == [1]
    if state == "acked":
        ok(api.ack(queue, [1]))
    if state == "held":
        ok(api.reject(queue, [1]))


def count(name: str, call: Callable[[Api, str], Any]) -> Callable[[Api, str], int]:
    """How many jobs a call counted."""
    return lambda api, queue: int(ok(call(api, queue))[name])


VERBS: dict[str, tuple[Callable[[Api, str], int], set[str], dict[str, str]]] = {
    # the call, the states it acts on, and what they become ("" for gone)
    "ack": (count("acked", lambda a, q: a.ack(q, [1])), {"in_flight"}, {"in_flight": ""}),
    "nack": (count("nacked", lambda a, q: a.nack(q, [1])), {"in_flight"}, {"in_flight": "ready"}),
    "nack with a delay": (
        count("nacked", lambda a, q: a.nack(q, [1], delay_ms=60_000)),
        {"in_flight"}, {"in_flight": "delayed"},
    ),
    "reject": (
        count("rejected", lambda a, q: a.reject(q, [1])), {"in_flight"}, {"in_flight": "held"}
    ),
    "extend": (
        count("extended", lambda a, q: a.extend(q, [1])), {"in_flight"}, {}
    ),
    "claim": (count("count", lambda a, q: a.claim(q)), {"ready"}, {"ready": "in_flight"}),
    "cancel": (
        count("cancelled", lambda a, q: a.cancel(q, 1)), {"ready", "delayed", "held"},
        {"ready": "", "delayed": "", "held": ""},
    ),
    "forced cancel": (
        count("cancelled", lambda a, q: a.cancel(q, 1, force="true")),
        {"ready", "delayed", "held", "in_flight"},
        {"ready": "", "delayed": "", "held": "", "in_flight": ""},
    ),
    "release": (
        count("released", lambda a, q: a.post(q, "release", seqs=[1])), {"held"}, {"held": "ready"}
    ),
    "delete": (
        count("deleted", lambda a, q: a.delete(q, before_seq=10)),
        {"ready", "delayed", "held", "in_flight"},
        {"ready": "", "delayed": "", "held": "", "in_flight": ""},
    ),
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("verb", VERBS)
def test_verbs_and_states(api: Api, topic: str, verb: str, state: str) -> None:
    """A verb acts on the states it is for, is harmless in all others, and the counters add up."""
    api.make_queue(topic, on_exhausted="hold")
    bring(api, topic, state)
    call, acts_on, becomes = VERBS[verb]
    assert call(api, topic) == int(state in acts_on)
    end = becomes.get(state, "" if state in ("acked", "none") else state)
    names = ("ready", "delayed", "in_flight", "held")
    expected = tuple(int(name == end) for name in names)
    assert api.facts(topic, *names) == expected
    assert api.facts(topic, "count") == (sum(expected),)
    jobs = ok(api.jobs(topic))["jobs"]
    assert [job["state"] for job in jobs] == ([end] if end else [])


def test_a_released_job_begins_anew(api: Api, topic: str) -> None:
    """Its deliveries are reset; without them it would be held again at once."""
    api.make_queue(topic, max_deliveries=1, on_exhausted="hold")
    api.append(topic, 1)
    api.claimed(topic)
    ok(api.nack(topic, [1], error="x"))
    assert api.claimed(topic) == []
    assert eventually(lambda: api.facts(topic, "held") == (1,))
    body = ok(api.post(topic, "release", seqs=[1, 2]))
    assert (body["released"], body["skipped"], body["ready"], body["held"]) == (1, [2], 1, 0)
    [job] = api.claimed(topic)
    assert job["deliveries"] == 1
