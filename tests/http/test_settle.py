"""Ack, nack and extend: ownership, fencing, delays, deadlines, answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.api import Api, seqs_of
from tests.http.expect import Json, eventually, now_ms, ok, refused

VERBS = ["ack", "nack", "extend"]
COUNTS = {"ack": "acked", "nack": "nacked", "extend": "extended"}


def settle(api: Api, verb: str, topic: str, seqs: object, node: object = "w", **more: Any) -> Any:
    """One of the three calls."""
    return {"ack": api.ack, "nack": api.nack, "extend": api.extend}[verb](topic, seqs, node, **more)


def result(api: Api, verb: str, topic: str, seqs: object, **more: Any) -> tuple[int, list[int]]:
    """How many counted, and which were skipped."""
    body = ok(settle(api, verb, topic, seqs, **more))
    return body[COUNTS[verb]], body["skipped"]


@pytest.fixture
def held(api: Api, queue: str) -> list[Json]:
    """Three jobs leased to w, out of four."""
    api.append(queue, 1, 2, 3, 4)
    return api.claimed(queue, max=3)


# -- answers ------------------------------------------------------------------------------------


def test_ack_removes(api: Api, queue: str, held: list[Json]) -> None:
    """The ack is the delete: counts, state, and no second time."""
    body = ok(api.ack(queue, [1, 3]))
    assert set(body) >= {"topic", "acked", "skipped", "ready", "in_flight", "performance"}
    expected = {"topic": queue, "acked": 2, "skipped": [], "ready": 1, "in_flight": 1}
    assert {name: body[name] for name in expected} == expected
    assert "fsync_ms" not in body["performance"]
    assert api.facts(queue, "count", "earliest_seq", "head_seq") == (2, 2, 4)
    assert result(api, "ack", queue, [1, 3]) == (0, [1, 3])


def test_ack_on_an_fsync_queue_is_synced(api: Api, topic: str) -> None:
    """fsync_ms above zero, only there, and only when something was acked."""
    api.make_queue(topic, durability="fsync")
    api.append(topic, 1)
    api.claimed(topic)
    assert ok(api.ack(topic, [1]))["performance"]["fsync_ms"] > 0
    assert ok(api.ack(topic, [1]))["performance"].get("fsync_ms", 1) > 0


def test_nack_gives_back(api: Api, queue: str, held: list[Json]) -> None:
    """At once claimable, before the fresh one."""
    body = ok(api.nack(queue, [2, 9]))
    assert set(body) >= {"topic", "nacked", "skipped", "ready", "in_flight", "performance"}
    expected = {"topic": queue, "nacked": 1, "skipped": [9], "ready": 2, "in_flight": 2}
    assert {name: body[name] for name in expected} == expected
    assert seqs_of(api.claimed(queue)) == [2]


def test_extend_moves_the_deadline(api: Api, queue: str, held: list[Json]) -> None:
    """Set, not added; the lease keeps its id and its delivery count; no counters."""
    before = now_ms()
    body = ok(api.extend(queue, [1, 3, 9], lease_ms=60_000))
    assert set(body) >= {"topic", "extended", "skipped", "deadlines", "performance"}
    assert not {"ready", "in_flight"} & set(body)
    assert (body["extended"], body["skipped"]) == (2, [9])
    assert set(body["deadlines"]) == {"1", "3"}
    for deadline in body["deadlines"].values():
        assert before + 60_000 - 1 <= deadline <= now_ms() + 60_000 + 1
    token = held[0]["lease_id"]
    assert result(api, "ack", queue, [1], lease_ids=[token]) == (1, [])
    ok(api.nack(queue, [3]))
    [again] = api.claimed(queue)
    assert (again["$seq"], again["deliveries"]) == (3, 2)


@pytest.mark.parametrize(
    ("asked", "lease_ms"),
    [(0, 100), (99, 100), (5000, 5000), (10**12, 86_400_000), (2**64 - 1, 86_400_000)],
)
def test_extend_clamps(api: Api, queue: str, held: list[Json], asked: int, lease_ms: int) -> None:
    """Case 123: from now, so that a shorter time moves the deadline earlier."""
    before = now_ms()
    deadline = ok(api.extend(queue, [1], lease_ms=asked))["deadlines"]["1"]
    assert before + lease_ms - 1 <= deadline <= now_ms() + lease_ms + 1
    assert asked > 30_000 or deadline < held[0]["deadline"]


def test_a_shorter_deadline_counts(api: Api, queue: str, held: list[Json]) -> None:
    """Case 123, case 122: it expires then; and what has expired is not revived."""
    ok(api.extend(queue, [1], lease_ms=100))
    assert eventually(lambda: api.facts(queue, "ready", "in_flight") == (2, 2))
    assert result(api, "extend", queue, [1]) == (0, [1])
    assert ok(api.extend(queue, [1]))["deadlines"] == {}
    assert api.facts(queue, "ready") == (2,)


# -- ownership ----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("seqs", "counted", "skipped"),
    [
        ([], 0, []),  # case 116
        ([0], 0, [0]),  # case 118
        ([77], 0, [77]),  # case 118
        ([2**64 - 1], 0, [2**64 - 1]),
        ([4], 0, [4]),
        ([1], 1, []),
        ([3, 1, 2], 3, []),
        ([77, 1, 0, 2, 4, 77], 2, [77, 0, 4, 77]),
    ],
    ids=str,
)
def test_who_is_skipped(
    api: Api,
    queue: str,
    held: list[Json],
    verb: str,
    seqs: list[int],
    counted: int,
    skipped: list[int],
) -> None:
    """Case 116, case 118: what is not leased is skipped, in input order and as often as named."""
    assert result(api, verb, queue, seqs) == (counted, skipped)


@pytest.mark.parametrize(
    ("verb", "counted", "skipped"),
    [("ack", 1, [1]), ("nack", 1, [1]), ("extend", 2, [])],
)
def test_a_seq_given_twice(
    api: Api, queue: str, held: list[Json], verb: str, counted: int, skipped: list[int]
) -> None:
    """Case 117: the first ends the lease; extending twice counts twice, with one deadline."""
    body = ok(settle(api, verb, queue, [1, 1]))
    assert (body[COUNTS[verb]], body["skipped"]) == (counted, skipped)
    if verb == "extend":
        assert set(body["deadlines"]) == {"1"}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("node", ["other", "W", "w ", "n" * 129])
def test_other_nodes_are_skipped(
    api: Api, queue: str, held: list[Json], verb: str, node: str
) -> None:
    """Case 115: 200, all skipped, nothing changed, however long the name is."""
    assert result(api, verb, queue, [1, 2], node=node) == (0, [1, 2])
    assert api.facts(queue, "ready", "in_flight") == (1, 3)
    tokens = [job["lease_id"] for job in held]
    assert result(api, "ack", queue, [1, 2, 3], lease_ids=tokens) == (3, [])


@pytest.mark.parametrize("verb", VERBS)
def test_after_the_deadline_nothing_is_owned(api: Api, queue: str, verb: str) -> None:
    """Case 121, case 122: skipped although no other worker has claimed, and the job is ready."""
    api.append(queue, 1)
    [job] = api.claimed(queue, lease_ms=100)
    assert eventually(lambda: now_ms() > job["deadline"] + 1)
    assert result(api, verb, queue, [1], lease_ids=[job["lease_id"]]) == (0, [1])
    assert api.facts(queue, "ready", "in_flight", "count") == (1, 0, 1)


# -- fencing ------------------------------------------------------------------------------------


@pytest.fixture
def twice(api: Api, queue: str) -> list[str]:
    """One job leased to w for the second time: the stale token and the good one."""
    api.append(queue, 1)
    [first] = api.claimed(queue)
    ok(api.nack(queue, [1]))
    [second] = api.claimed(queue)
    return [first["lease_id"], second["lease_id"]]


@pytest.mark.parametrize("verb", VERBS)
def test_a_stale_token_is_skipped(api: Api, queue: str, twice: list[str], verb: str) -> None:
    """Case 120: the right node is not enough, and the lease is left as it was."""
    stale, good = twice
    assert result(api, verb, queue, [1], lease_ids=[stale]) == (0, [1])
    assert api.facts(queue, "in_flight") == (1,)
    assert result(api, verb, queue, [1], lease_ids=[good]) == (1, [])


@pytest.mark.parametrize("verb", VERBS)
def test_a_good_token_in_other_hands_is_skipped(
    api: Api, queue: str, twice: list[str], verb: str
) -> None:
    """Case 120: the node must be right as well."""
    assert result(api, verb, queue, [1], node="x", lease_ids=[twice[1]]) == (0, [1])


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("tokens", [[], [""]], ids=str)
def test_no_token_is_no_fence(
    api: Api, queue: str, twice: list[str], verb: str, tokens: list[str]
) -> None:
    """Case 119: an empty list, or an empty text at a seq's place."""
    assert result(api, verb, queue, [1], lease_ids=tokens) == (1, [])


@pytest.mark.parametrize("verb", VERBS)
def test_fences_are_per_seq(api: Api, queue: str, held: list[Json], verb: str) -> None:
    """One token per seq, in the same order."""
    first, second, third = (job["lease_id"] for job in held)
    got = result(api, verb, queue, [2, 1, 3], lease_ids=[second, third, ""])
    assert got == (2, [1])
    got = result(api, verb, queue, [1], lease_ids=[first])
    assert got == (1, [])


@pytest.mark.parametrize("verb", VERBS)
def test_tokens_are_numbers(api: Api, queue: str, held: list[Json], verb: str) -> None:
    """Leading zeros and upper case say the same."""
    digits = held[0]["lease_id"].removeprefix("lease_")
    same = [f"lease_000{digits}", f"lease_{digits.upper()}"]
    assert result(api, "extend", queue, [1, 1], lease_ids=same) == (2, [])
    assert result(api, verb, queue, [1], lease_ids=same[:1]) == (1, [])


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "token",
    ["bogus", "lease_", "lease_xyz", "lease_1 ", " lease_1", "LEASE_1", "lease_-1", "lease_1_2",
     "lease_0x1", "lease", "1", "lease_+1", "lease_\u0661", "lease_1,lease_2", "lease_1,"],
)  # fmt: skip
def test_malformed_tokens(api: Api, queue: str, held: list[Json], verb: str, token: str) -> None:
    """Case 119: 400 for the whole request, even if the topic is absent; nothing is done."""
    tokens = [held[0]["lease_id"], token]
    refused(settle(api, verb, queue, [1, 2], lease_ids=tokens), 400, "invalid_request")
    refused(settle(api, verb, f"{queue}no", [1], lease_ids=[token]), 400, "invalid_request")
    assert api.facts(queue, "in_flight", "count") == (3, 4)


@pytest.mark.parametrize("verb", VERBS)
def test_a_token_with_a_huge_number_is_no_server_error(
    api: Api, queue: str, held: list[Json], verb: str
) -> None:
    """Hex beyond any counter: malformed or just not the lease, but never 500."""
    for digits in ("f" * 16, "f" * 17, "f" * 5000):
        reply = settle(api, verb, queue, [1], lease_ids=[f"lease_{digits}"])
        if reply.status_code == 400:
            refused(reply, 400, "invalid_request")
        else:
            assert ok(reply)["skipped"] == [1]


# -- order of checks ----------------------------------------------------------------------------

MANY = list(range(1, 1002))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("node", "seqs", "tokens", "status", "code"),
    [
        ("", MANY, ["bogus"], 400, "invalid_request"),  # case 119
        ("", MANY, ["lease_1"], 400, "invalid_request"),  # case 114
        ("", [], [], 400, "invalid_request"),
        ("w", MANY, ["lease_1"], 400, "batch_too_large"),  # case 116
        ("w", MANY, [], 400, "batch_too_large"),
        ("w", [1, 2], ["lease_1"], 400, "invalid_request"),  # case 119
        ("w", [1], ["lease_1", "lease_2"], 400, "invalid_request"),
        ("w", [], ["lease_1"], 400, "invalid_request"),
        ("w", [1], ["lease_1"], 0, ""),
        ("w", MANY[:1000], [], 0, ""),
    ],
    ids=[str(number) for number in range(10)],
)
@pytest.mark.parametrize("where", ["queue", "absent", "log"])
def test_order_of_checks(
    api: Api,
    topic: str,
    verb: str,
    where: str,
    node: str,
    seqs: list[int],
    tokens: list[str],
    status: int,
    code: str,
) -> None:
    """Case 114, case 116, case 119: token, node, size, lengths; then 404, then 409."""
    if where == "queue":
        api.make_queue(topic)
    if where == "log":
        api.make_log(topic)
    reply = settle(api, verb, topic, seqs, node, lease_ids=tokens)
    if status and code == "batch_too_large":
        refused(reply, status, code, {"seqs": 1001, "max": 1000})
    elif status:
        refused(reply, status, code)
    elif where == "absent":
        refused(reply, 404, "topic_not_found", {"topic": topic})
    elif where == "log":
        refused(reply, 409, "not_a_queue", {"topic": topic})
    else:
        assert ok(reply)["skipped"] == seqs


# -- delays -------------------------------------------------------------------------------------


def test_a_delayed_nack(api: Api, queue: str) -> None:
    """Cases 124, 125: invisible until due, then before fresh jobs; the counter goes on."""
    api.append(queue, 1)
    [job] = api.claimed(queue)
    before = now_ms()
    body = ok(api.nack(queue, [1], delay_ms=300))
    assert (body["nacked"], body["ready"], body["in_flight"]) == (1, 0, 0)
    empty = ok(api.claim(queue))
    assert (empty["claimed"], empty["ready"]) == ([], 0)
    assert api.facts(queue, "ready", "in_flight", "count") == (0, 0, 1)
    for verb in VERBS:
        assert result(api, verb, queue, [1], lease_ids=[job["lease_id"]]) == (0, [1])
        assert result(api, verb, queue, [1]) == (0, [1])
    api.append(queue, "fresh")
    [again] = eventually(
        lambda: [jobs[0] for jobs in [api.claimed(queue)] if give_back_fresh(api, queue, jobs)]
    )
    assert now_ms() >= before + 300
    assert (again["$seq"], again["deliveries"]) == (1, 2)


def give_back_fresh(api: Api, queue: str, jobs: list[Json]) -> bool:
    """True when the delayed job came; the fresh one is put back by letting it be nacked."""
    if seqs_of(jobs) == [2]:
        ok(api.nack(queue, [2], delay_ms=1))
    return seqs_of(jobs) == [1]


def test_a_long_delay_is_clamped(api: Api, queue: str, held: list[Json]) -> None:
    """Case 126: a delay beyond 24 h is taken, and the job is away."""
    for seq, delay in ((1, 10**12), (2, 2**64 - 1)):
        assert result(api, "nack", queue, [seq], delay_ms=delay) == (1, [])
    assert api.facts(queue, "ready", "in_flight", "count") == (1, 1, 4)


def test_a_delay_of_zero_is_none(api: Api, queue: str, held: list[Json]) -> None:
    """Claimable at once."""
    ok(api.nack(queue, [1], delay_ms=0))
    assert seqs_of(api.claimed(queue)) == [1]


# -- jobs that went away while leased -------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("cause", ["cap", "ttl"])
def test_a_leased_job_that_is_gone(api: Api, topic: str, cause: str, verb: str) -> None:
    """Case 133: out of the counters at once; settling still counts, nothing comes back."""
    api.make_queue(topic, **({"cap_records": 1} if cause == "cap" else {"ttl_ms": 80}))
    api.append(topic, 1)
    api.claimed(topic)
    if cause == "cap":
        api.append(topic, 2)
    left = 1 if cause == "cap" else 0
    assert eventually(lambda: api.facts(topic, "in_flight", "count") == (0, left))
    assert result(api, verb, topic, [1]) == (1, [])
    assert [job["$seq"] for job in api.claimed(topic, max=5)] == [2] * left


def test_a_deleted_queue_under_a_worker(api: Api, queue: str, held: list[Json]) -> None:
    """Case 135: 404; after recreation the old tokens fit no lease."""
    ok(api.delete_topic(queue))
    refused(api.ack(queue, [1]), 404, "topic_not_found", {"topic": queue})
    api.make_queue(queue)
    tokens = [job["lease_id"] for job in held]
    assert result(api, "ack", queue, [1, 2, 3], lease_ids=tokens) == (0, [1, 2, 3])
    api.append(queue, 1, 2, 3)
    fresh = api.claimed(queue, max=3)
    assert not {job["lease_id"] for job in fresh} & set(tokens)
    assert result(api, "ack", queue, [1, 2, 3], lease_ids=tokens) == (0, [1, 2, 3])
    assert api.facts(queue, "in_flight", "count") == (3, 3)


# -- what follows -------------------------------------------------------------------------------


def follow_up(topic: str, *data: object, **more: object) -> Json:
    """One write of an ack."""
    return {"topic": topic, "records": [{"data": each} for each in data], **more}


def test_ack_writes_what_follows(api: Api, queue: str, held: list[Json]) -> None:
    """One reply says what ended and what came of each write; blanks are taken out as in a write."""
    target = f"{queue}.next"
    api.make_queue(target)
    append = [follow_up(target, {"a": [1, 2]}, 7), follow_up(f"{queue}.log", "x")]
    body = ok(
        api.send(
            "POST",
            f"/v0/topics/{queue}/ack",
            json.dumps({"node": "w", "seqs": [1, 3], "append": append}, indent=1).encode(),
            {"content-type": "application/json"},
        )
    )
    assert (body["acked"], body["skipped"], body["in_flight"]) == (2, [], 1)
    assert body["appended"] == [
        {"topic": target, "first_seq": 1, "last_seq": 2, "seqs": [1, 2], "head_seq": 2, "count": 2,
         "created": False, "deduped": False},
        {"topic": f"{queue}.log", "first_seq": 1, "last_seq": 1, "seqs": [1], "head_seq": 1,
         "count": 1, "created": True, "deduped": False},
    ]  # fmt: skip
    assert [job["data"] for job in api.claimed(target, max=9)] == [{"a": [1, 2]}, 7]
    assert api.facts(target, "bytes") == (len(b'{"a":[1,2]}7'),)


def test_a_worker_without_the_lease_writes_nothing(api: Api, queue: str, held: list[Json]) -> None:
    """It learns which of its jobs are not its own; a plain ack has no `appended`."""
    body = ok(api.ack(queue, [1, 4], append=[follow_up(queue, 5)]))
    assert (body["acked"], body["skipped"], body["appended"]) == (0, [4], [])
    assert api.facts(queue, "count", "head_seq") == (4, 4)
    assert "appended" not in ok(api.ack(queue, [1]))


def test_a_repeated_ack_is_answered_as_the_first(api: Api, queue: str, held: list[Json]) -> None:
    """With idempotency keys."""
    append = [follow_up(queue, 5, idempotency_key="k")]
    first = ok(api.ack(queue, [1], append=append))
    again = ok(api.ack(queue, [1], append=append))
    assert (again["acked"], again["skipped"]) == (1, [])
    assert again["appended"] == [{**first["appended"][0], "deduped": True}]


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"append": [{"topic": "t"}]}, 400, "invalid_request"),
        ({"append": [{"records": [{"data": 1}]}]}, 400, "invalid_request"),
        ({"append": [follow_up("t")]}, 400, "invalid_request"),
        ({"append": [follow_up("a b", 1)]}, 400, "invalid_request"),
        ({"append": [follow_up("t", 1), follow_up("t", 2)]}, 400, "invalid_request"),
        ({"append": [follow_up("t", 1)], "seqs": []}, 400, "invalid_request"),
        ({"append": [follow_up(f"t{n}", 1) for n in range(33)]}, 400, "batch_too_large"),
        ({"append": [follow_up("t", *[0] * 501), follow_up("u", *[0] * 500)]}, 400,
         "batch_too_large"),
        ({"append": [follow_up("t", 1, create=False)]}, 404, "topic_not_found"),
    ],
)  # fmt: skip
def test_what_follows_must_be_valid(
    api: Api, queue: str, held: list[Json], fields: Json, status: int, code: str
) -> None:
    """The documented refusals; the jobs stay leased."""
    body = {"node": "w", "seqs": [1], **fields}
    reply = api.json("POST", f"/v0/topics/{queue}/ack", body)
    refused(reply, status, code)
    assert api.facts(queue, "in_flight") == (3,)


def test_unknown_members_of_what_follows_are_named(api: Api, queue: str, held: list[Json]) -> None:
    """As those of a write."""
    append = [{**follow_up(queue, 5), "nosuch": 1}]
    reply = api.ack(queue, [1], append=append)
    assert ok(reply)["acked"] == 1
    assert "append[].nosuch" in reply.headers["logqueue-ignored"]


def test_a_chain_over_http(api: Api, queue: str) -> None:
    """What is written comes back with the job, and with what it is looked at."""
    then = [{"topic": f"{queue}.b", "record": {"data": [1, 2], "tag": "t"}}]
    ok(api.write(queue, [{"data": 1, "then": [*then, {"topic": queue, "record": {"data": 3}}]}]))
    (job,) = api.claimed(queue)
    assert job["then"] == [*then, {"topic": queue, "record": {"data": 3}}]
    assert ok(api.send("GET", f"/v0/topics/{queue}/jobs/1"))["job"]["then"] == job["then"]
    assert ok(api.ack(queue, [1]))["acked"] == 1
    (job,) = api.claimed(f"{queue}.b")
    assert (job["data"], job["$tag"], job["meta"]) == ([1, 2], "t", {"$input": None})
    assert job["then"] == [{"topic": queue, "record": {"data": 3}}]
    (record,) = ok(api.diff(f"{queue}.b"))["records"]
    assert "then" not in record


def test_unknown_members_of_steps_are_named(api: Api, queue: str) -> None:
    """Wherever they are."""
    step = {"topic": queue, "record": {"data": 1, "nosuch": 1}, "other": 2}
    reply = api.write(queue, [{"data": 1, "then": [step]}])
    ok(reply)
    assert set(reply.headers["logqueue-ignored"].split(", ")) == {
        "records[].then[].other",
        "records[].then[].record.nosuch",
    }


def test_results_have_no_blanks_in_what_comes_next(api: Api, queue: str) -> None:
    """Not even where nothing else is written: a line break would break an event stream."""
    ok(api.write(queue, [{"data": 1, "then": [{"topic": queue, "record": {"data": 2}}]}]))
    api.claimed(queue)
    body = b'{"node":"w","seqs":[1],"results":[{"a" :\n [1,\n2]}]}'
    path, headers = f"/v0/topics/{queue}/ack", {"content-type": "application/json"}
    assert ok(api.send("POST", path, body, headers))["acked"] == 1
    reply = api.claim(queue)
    assert b'"meta":{"$input":{"a":[1,2]}}' in reply.content
