"""Dead letters: when a job is moved, what the copy says, what happens when it cannot be moved."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.api import Api, seqs_of
from tests.http.expect import Json, eventually, ok
from tests.http.test_topics import DEFAULTS


def poisoned(api: Api, topic: str, deliveries: int = 1, **config: Any) -> tuple[str, str]:
    """A queue with a queue for its dead letters."""
    source, target = f"{topic}src", f"{topic}dlq"
    api.make_queue(source, max_deliveries=deliveries, dead_letter=target, **config)
    api.make_queue(target)
    return source, target


def fail(api: Api, queue: str, times: int = 1, seqs: tuple[int, ...] = (1,)) -> None:
    """Claim and give back these jobs, so often."""
    for _ in range(times):
        assert seqs_of(api.claimed(queue, max=len(seqs))) == list(seqs)
        ok(api.nack(queue, list(seqs)))


@pytest.mark.parametrize("deliveries", [1, 3])
def test_the_next_claim_diverts(api: Api, topic: str, deliveries: int) -> None:
    """Case 129: delivered so many times, then moved, and the next job is delivered instead."""
    source, target = poisoned(api, topic, deliveries)
    api.append(source, "bad", "good")
    fail(api, source, deliveries)
    assert api.facts(source, "ready", "dead_lettered", "count") == (2, 0, 2)
    body = ok(api.claim(source))
    assert [job["data"] for job in body["claimed"]] == ["good"]
    assert body["ready"] == 0
    assert api.facts(source, "ready", "in_flight", "dead_lettered", "count") == (0, 1, 1, 1)
    [copy] = api.claimed(target)
    assert (copy["$seq"], copy["data"], copy["deliveries"]) == (1, "bad", 1)


def test_an_expired_lease_counts_as_a_delivery(api: Api, topic: str) -> None:
    """Case 129 by expiry: the visibility timeout leads to the dead letter as well."""
    source, target = poisoned(api, topic)
    api.append(source, "bad")
    api.claimed(source, lease_ms=100)
    assert eventually(lambda: api.facts(source, "ready") == (1,))
    assert ok(api.claim(source))["claimed"] == []
    assert api.facts(target, "count") == (1,)


def test_extending_is_no_delivery(api: Api, topic: str) -> None:
    """However often a lease is extended, the next claim still delivers."""
    source, _ = poisoned(api, topic, 2)
    api.append(source, 1)
    api.claimed(source)
    for _ in range(3):
        ok(api.extend(source, [1]))
    ok(api.nack(source, [1]))
    [job] = api.claimed(source)
    assert job["deliveries"] == 2


def test_a_claim_of_nothing_but_dead_letters(api: Api, topic: str) -> None:
    """Case 130: 200 and empty; all of them are moved in order, the counter says how many."""
    source, target = poisoned(api, topic)
    api.append(source, *range(5))
    fail(api, source, 1, (1, 2, 3, 4, 5))
    body = ok(api.claim(source, max=1))
    assert (body["claimed"], body["count"], body["ready"]) == ([], 0, 0)
    assert api.facts(source, "count", "dead_lettered", "earliest_seq") == (0, 5, 6)
    assert [job["data"] for job in api.claimed(target, max=9)] == [0, 1, 2, 3, 4]


def test_what_the_copy_says(api: Api, topic: str) -> None:
    """Data, tag and meta are kept, provenance is added as text."""
    source, target = poisoned(api, topic, 2)
    record = {"data": {"a": [1]}, "tag": "t", "meta": {"m": {"n": 1}}}
    api.append_many(source, [{"data": 0}, record])
    ok(api.ack(source, seqs_of(api.claimed(source))))
    fail(api, source, 2, (2,))
    api.claimed(source)
    [copy] = api.claimed(target)
    assert (copy["data"], copy["$tag"]) == ({"a": [1]}, "t")
    wanted = {
        "m": {"n": 1},
        "$dead_letter_from": source,
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": "2",
    }
    assert {name: copy["meta"][name] for name in wanted} == wanted


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {},
        {"$dead_letter_from": "liar", "$dead_letter_src_seq": 9},  # case 132
        [1, 2],
        "text",
        5,
        {str(number): number for number in range(64)},
        {"m": "x" * 16_376},
    ],
    ids=lambda value: type(value).__name__,
)
def test_provenance_whatever_the_meta(api: Api, topic: str, meta: object) -> None:
    """Case 132: own keys are overwritten, other kinds of meta give way, limits do not apply."""
    source, target = poisoned(api, topic)
    api.append_many(source, [{"data": 1, "meta": meta}])
    fail(api, source)
    api.claimed(source)
    [copy] = api.claimed(target)
    stamped = {
        "$dead_letter_from": source,
        "$dead_letter_deliveries": "1",
        "$dead_letter_src_seq": "1",
    }
    assert {name: copy["meta"][name] for name in stamped} == stamped
    if isinstance(meta, dict):
        kept = {name: value for name, value in meta.items() if name not in stamped}
        assert {name: copy["meta"][name] for name in kept} == kept


def test_an_absent_target_is_created(api: Api, topic: str) -> None:
    """Case 131: a log with the default config, whatever auto_create says."""
    source, target = f"{topic}src", f"{topic}dlq"
    api.make_queue(source, max_deliveries=1, dead_letter=target, auto_create=False)
    api.append(source, "bad")
    fail(api, source)
    assert api.state(target).status_code == 404
    api.claimed(source)
    state = ok(api.state(target))
    assert (state["type"], state["count"]) == ("log", 1)
    assert {name: state["config"][name] for name in DEFAULTS} == DEFAULTS


def test_a_target_that_is_a_log_keeps_the_node(api: Api, topic: str) -> None:
    """The copy read by diff: same node and tag, new seq and time, provenance in meta."""
    source, target = f"{topic}src", f"{topic}dlq"
    api.make_queue(source, max_deliveries=1, dead_letter=target)
    api.make_log(target)
    api.append(target, "first")
    api.append_many(source, [{"data": 1, "node": "producer", "tag": "t"}])
    fail(api, source)
    api.claimed(source)
    [copy] = api.read(target, from_seq=1, include_tags=True)
    assert (copy["$seq"], copy["$node"], copy["$tag"], copy["data"]) == (2, "producer", "t", 1)
    assert copy["meta"]["$dead_letter_from"] == source


@pytest.mark.parametrize(
    "config", [{"max_deliveries": 1}, {"dead_letter": "no-such-target"}, {"max_deliveries": 0}]
)
def test_half_a_dead_letter_config_never_diverts(api: Api, queue: str, config: Json) -> None:
    """Case 34: redelivered for ever."""
    ok(api.put(queue, type="queue", durability="memory", **config))
    api.append(queue, 1)
    fail(api, queue, 5)
    [job] = api.claimed(queue)
    assert job["deliveries"] == 6
    assert api.facts(queue, "dead_lettered") == (0,)


def test_a_new_limit_counts_at_the_next_claim(api: Api, topic: str) -> None:
    """Case 139: below the counters of now, such jobs divert; the copy says how often."""
    source, target = poisoned(api, topic, 0)
    api.append(source, 1)
    fail(api, source, 4)
    ok(api.put(source, type="queue", durability="memory", max_deliveries=2, dead_letter=target))
    assert api.claimed(source) == []
    [copy] = api.claimed(target)
    assert copy["meta"]["$dead_letter_deliveries"] == "4"


def test_a_raised_limit_saves_a_job(api: Api, topic: str) -> None:
    """The config of the claim decides, not that of the delivery."""
    source, target = poisoned(api, topic, 1)
    api.append(source, 1)
    fail(api, source)
    ok(api.put(source, type="queue", durability="memory", max_deliveries=5, dead_letter=target))
    assert seqs_of(api.claimed(source)) == [1]


def test_chains(api: Api, topic: str) -> None:
    """A dead letter is an ordinary job: it may die again, also back into where it came from."""
    one, two = f"{topic}1", f"{topic}2"
    api.make_queue(one, max_deliveries=1, dead_letter=two)
    api.make_queue(two, max_deliveries=1, dead_letter=one)
    api.append(one, "bad")
    fail(api, one)
    assert api.claimed(one) == []
    fail(api, two)
    assert api.claimed(two) == []
    [job] = api.claimed(one)
    assert (job["$seq"], job["data"], job["deliveries"]) == (2, "bad", 1)
    assert job["meta"]["$dead_letter_from"] == two
    assert api.facts(one, "dead_lettered") == (1,)
    assert api.facts(two, "dead_lettered") == (1,)


def test_a_full_target_keeps_the_job_in_the_source(api: Api, topic: str) -> None:
    """Target full with reject: nothing is lost, and with room the job moves after all."""
    source, target = f"{topic}src", f"{topic}dlq"
    api.make_queue(source, max_deliveries=1, dead_letter=target)
    api.make_queue(target, discard="reject", cap_records=1)
    api.append(target, "in the way")
    api.append(source, "bad", "good")
    fail(api, source)
    assert [job["data"] for job in api.claimed(source, max=5)] == ["good"]
    assert api.facts(source, "count", "dead_lettered") == (2, 0)
    assert api.facts(target, "count") == (1,)
    ok(api.ack(target, seqs_of(api.claimed(target))))

    def moved() -> bool:
        assert api.claimed(source, max=5) == []
        return api.facts(target, "count") == (1,)

    assert eventually(moved)
    assert api.facts(source, "count", "dead_lettered") == (1, 1)
    assert api.claimed(target)[0]["data"] == "bad"


def test_dead_letters_over_a_work_stream(api: Api, topic: str) -> None:
    """The stream passes over them as a claim does."""
    source, target = poisoned(api, topic)
    api.append(source, "bad")
    with api.work(source, node="w") as stream:
        assert stream.jobs(1)[0]["data"] == "bad"
        ok(api.nack(source, [1]))
        assert eventually(lambda: api.facts(target, "count") == (1,))
        api.append(source, "good")
        assert stream.jobs(1)[0]["data"] == "good"
