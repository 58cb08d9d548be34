"""Claim: what is handed out, in which order, under which lease."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.http.api import Api, numbered, seqs_of
from tests.http.expect import Json, eventually, now_ms, ok, refused

LEASE_ID = re.compile(r"lease_[0-9a-f]+")


def test_the_answer(api: Api, queue: str) -> None:
    """Every field of the answer and of a job; absent things are left out."""
    full = {"data": {"a": 1}, "tag": "t", "node": "producer", "meta": {"m": 1}}
    api.append_many(queue, [full, {"data": None, "meta": {}, "tag": ""}, {"data": 3}])
    before = now_ms()
    body = ok(api.claim(queue, "api-1", max=2))
    after = now_ms()
    assert set(body) >= {"topic", "claimed", "count", "ready", "performance"}
    assert (body["topic"], body["count"], body["ready"]) == (queue, 2, 1)
    assert body["performance"]["throttle_wait_ms"] >= 0
    first, second = body["claimed"]
    always = {"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}
    assert set(first) == always | {"$tag", "meta"}
    assert (first["$tag"], first["meta"], first["data"]) == ("t", {"m": 1}, {"a": 1})
    assert set(second) == always | {"$tag", "meta"}
    assert (second["$tag"], second["meta"], second["data"]) == ("", {}, None)
    [third] = api.claimed(queue)
    assert set(third) == always
    for job in (first, second):
        assert LEASE_ID.fullmatch(job["lease_id"]), job
        assert before + 30_000 - 1 <= job["deadline"] <= after + 30_000 + 1
        assert job["deliveries"] == 1
    assert first["lease_id"] != second["lease_id"]


@pytest.mark.parametrize(
    ("asked", "given"),
    [(None, 1), (0, 1), (1, 1), (3, 3), (1000, 1000), (1001, 1000), (5000, 1000)],
)
def test_max(api: Api, queue: str, asked: int | None, given: int) -> None:
    """Case 112: 0 means 1, more than 1000 means 1000, left out means 1."""
    ok(api.write(queue, numbered(1005)))
    body = ok(api.claim(queue) if asked is None else api.claim(queue, max=asked))
    assert (body["count"], len(body["claimed"])) == (given, given)
    assert body["ready"] == 1005 - given
    assert seqs_of(body["claimed"]) == list(range(1, given + 1))


@pytest.mark.parametrize(
    ("asked", "lease_ms"),
    [
        ({}, 5000),
        ({"lease_ms": None}, 5000),  # case 112
        ({"lease_ms": 0}, 100),  # case 112
        ({"lease_ms": 99}, 100),
        ({"lease_ms": 1234}, 1234),
        ({"lease_ms": 10**12}, 86_400_000),
        ({"lease_ms": 2**64 - 1}, 86_400_000),
    ],
    ids=str,
)
def test_lease_times(api: Api, topic: str, asked: Json, lease_ms: int) -> None:
    """Case 112: that of the call, clamped, else that of the topic; deadline = now + lease."""
    api.make_queue(topic, lease_ms=5000)
    api.append(topic, 1)
    before = now_ms()
    [job] = api.claimed(topic, **asked)
    assert before + lease_ms - 1 <= job["deadline"] <= now_ms() + lease_ms + 1


def test_a_new_default_lease_time_counts_for_new_claims(api: Api, topic: str) -> None:
    """A PUT leaves the deadlines alone that are given already."""
    api.make_queue(topic, lease_ms=50_000)
    api.append(topic, 1, 2)
    [first] = api.claimed(topic)
    ok(api.put(topic, type="queue", durability="memory", lease_ms=10_000))
    [second] = api.claimed(topic)
    assert second["deadline"] < first["deadline"]
    assert api.facts(topic, "in_flight") == (2,)


def test_an_empty_queue(api: Api, queue: str) -> None:
    """Case 113: 200 at once, nothing claimed."""
    body = ok(api.claim(queue, max=10))
    assert (body["claimed"], body["count"], body["ready"]) == ([], 0, 0)


@pytest.mark.parametrize("verb", ["claim", "ack", "nack", "extend", "work"])
def test_queue_calls_on_other_topics(api: Api, log: str, verb: str) -> None:
    """409 on a log, 404 on nothing; nothing is created."""
    body = {"node": "w", "seqs": [1], "lease_ms": 1000}
    for name, status, code in ((log, 409, "not_a_queue"), (f"{log}no", 404, "topic_not_found")):
        path = f"/v0/topics/{name}/{verb}"
        reply = api.send("GET", f"{path}?node=w") if verb == "work" else api.json(
            "POST", path, body
        )  # fmt: skip
        refused(reply, status, code, {"topic": name})
    refused(api.state(f"{log}no"), 404, "topic_not_found")


@pytest.mark.parametrize("node", ["", "n" * 129, "é" * 65])
def test_the_node_is_looked_at_last(api: Api, queue: str, log_beside: str, node: str) -> None:
    """Case 114, case 115: absent 404, log 409, and only then the node, empty or too long."""
    refused(api.claim(f"{queue}no", node), 404, "topic_not_found")
    refused(api.claim(log_beside, node), 409, "not_a_queue")
    refused(api.claim(queue, node), 400, "invalid_request")


@pytest.fixture
def log_beside(api: Api, topic: str) -> str:
    """A log next to the test's queue."""
    api.make_log(f"{topic}log")
    return f"{topic}log"


@pytest.mark.parametrize("node", ["n" * 128, "é" * 64, " ", "a/b", "\u0000", "😀"])
def test_good_nodes(api: Api, queue: str, node: str) -> None:
    """Any text of 1 to 128 bytes; it is the holder's name exactly."""
    api.append(queue, 1)
    [job] = api.claimed(queue, node)
    assert ok(api.ack(queue, [job["$seq"]], f"{node}x"))["acked"] == 0
    assert ok(api.ack(queue, [job["$seq"]], node))["acked"] == 1


def test_claiming_again_gives_other_jobs(api: Api, queue: str) -> None:
    """A claim is not idempotent, and one node may hold many leases."""
    api.append(queue, 1, 2, 3)
    given = [api.claimed(queue)[0]["$seq"] for _ in range(3)]
    assert given == [1, 2, 3]
    assert api.claimed(queue) == []
    assert api.facts(queue, "ready", "in_flight") == (0, 3)


def test_fresh_jobs_come_in_seq_order(api: Api, queue: str) -> None:
    """Across batches and across claims of different size."""
    for start in range(0, 40, 8):
        ok(api.write(queue, numbered(8, start)))
    taken = []
    for size in (1, 5, 13, 21, 7):
        jobs = api.claimed(queue, max=size)
        taken += [(job["$seq"], job["data"]) for job in jobs]
    assert taken == [(number + 1, number) for number in range(40)]


def test_reclaimed_jobs_come_before_fresh_ones(api: Api, queue: str) -> None:
    """Case 128: 5 and 2 come back; with fresh 9 the answer lists 2, 5, 9."""
    api.append(queue, *range(10))
    api.claimed(queue, max=8)
    ok(api.nack(queue, [5]))
    ok(api.nack(queue, [2]))
    assert seqs_of(api.claimed(queue, max=1)) == [2]
    ok(api.nack(queue, [2]))
    jobs = api.claimed(queue, max=3)
    assert seqs_of(jobs) == [2, 5, 9]
    assert [job["deliveries"] for job in jobs] == [3, 2, 1]


def test_reclaimed_jobs_are_selected_first_even_if_higher(api: Api, queue: str) -> None:
    """The selection prefers reclaimed jobs; only the listing is by seq."""
    api.append(queue, *range(6))
    ok(api.write(queue, numbered(1)))
    api.claimed(queue, max=6)
    ok(api.nack(queue, [3, 6]))
    jobs = api.claimed(queue, max=2)
    assert seqs_of(jobs) == [3, 6]
    assert seqs_of(api.claimed(queue, max=2)) == [7]


def test_nack_then_claim_by_the_same_node(api: Api, queue: str) -> None:
    """Case 127: the same job, a new lease, one delivery more."""
    api.append(queue, 1)
    [first] = api.claimed(queue)
    ok(api.nack(queue, [1]))
    [second] = api.claimed(queue)
    assert (second["$seq"], second["deliveries"]) == (1, 2)
    assert second["lease_id"] != first["lease_id"]


def test_an_expired_lease_is_claimable_again(api: Api, queue: str) -> None:
    """The visibility timeout: the job comes first, with a new lease and one delivery more."""
    api.append(queue, "slow", "fresh")
    [first] = api.claimed(queue, lease_ms=100)
    assert seqs_of(api.claimed(queue, "other", max=5)) == [2]
    [again] = eventually(lambda: api.claimed(queue, "other"))
    assert now_ms() > first["deadline"]
    assert (again["$seq"], again["deliveries"], again["data"]) == (1, 2, "slow")
    assert again["lease_id"] != first["lease_id"]
    assert ok(api.ack(queue, [1]))["skipped"] == [1]


def test_expiry_shows_in_the_counters_without_a_claim(api: Api, queue: str) -> None:
    """State turns expired leases into ready jobs by itself."""
    api.append(queue, 1)
    api.claimed(queue, lease_ms=100)
    assert api.facts(queue, "ready", "in_flight") == (0, 1)
    assert eventually(lambda: api.facts(queue, "ready", "in_flight") == (1, 0))


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_no_job_goes_to_two_claimers(api: Api, topic: str, durability: str) -> None:
    """Many claimers at once share the jobs without a double or a gap."""
    api.make_queue(topic, durability=durability)
    ok(api.write(topic, numbered(400)))

    def drain(worker: int) -> list[Json]:
        mine: list[Json] = []
        while jobs := api.claimed(topic, f"w{worker}", max=7):
            mine += jobs
        return mine

    with ThreadPoolExecutor(8) as pool:
        taken = [job for jobs in pool.map(drain, range(8)) for job in jobs]
    assert sorted(seqs_of(taken)) == list(range(1, 401))
    assert len({job["lease_id"] for job in taken}) == 400
    assert {job["deliveries"] for job in taken} == {1}


def test_a_claim_sees_what_was_just_written(api: Api, topic: str) -> None:
    """Produced jobs are claimable at once, also on a queue that its first write made."""
    inline = {"type": "queue", "durability": "memory"}
    ok(api.write(topic, numbered(1), config=inline), 201)
    assert seqs_of(api.claimed(topic, max=5)) == [1]
    api.append(topic, 2)
    assert seqs_of(api.claimed(topic, max=5)) == [2]


def test_jobs_past_their_time_are_not_handed_out(api: Api, topic: str) -> None:
    """TTL removes waiting jobs; the cursor passes over them."""
    api.make_queue(topic, ttl_ms=60)
    api.append(topic, 1, 2)
    assert eventually(lambda: api.facts(topic, "count", "ready") == (0, 0))
    assert api.claimed(topic, max=5) == []
    api.append(topic, 3)
    assert api.facts(topic, "head_seq") == (3,)


def test_evicted_jobs_are_not_handed_out(api: Api, topic: str) -> None:
    """A full queue with discard old loses its oldest jobs, leased ones too."""
    api.make_queue(topic, cap_records=3)
    ok(api.write(topic, numbered(3)))
    api.claimed(topic, max=2)
    ok(api.write(topic, numbered(2, 3)))
    assert api.facts(topic, "count", "ready", "in_flight", "earliest_seq") == (3, 3, 0, 3)
    assert seqs_of(api.claimed(topic, max=10)) == [3, 4, 5]


def test_a_node_may_claim_its_own_jobs(api: Api, queue: str) -> None:
    """The producer's node plays no part in claims."""
    api.append_many(queue, [{"data": 1, "node": "w"}])
    assert len(api.claimed(queue, "w")) == 1
