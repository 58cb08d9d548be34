"""Topics: PUT, state, DELETE, names and config."""

from __future__ import annotations

import string
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.http.api import Api, numbered
from tests.http.expect import eventually, now_ms, ok, refused

DEFAULTS: dict[str, Any] = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}
OTHERS: dict[str, Any] = {
    "ttl_ms": 3_600_000,
    "cap_records": 5,
    "cap_bytes": 5000,
    "discard": "reject",
    "durable": True,
    "durability": "fsync",
    "priority": -3,
    "auto_priority": False,
    "auto_create": False,
    "idempotency_window_ms": 1,
    "dedupe_node": False,
    "lease_ms": 12_345,
    "claim_jitter_ms": 50,
    "max_deliveries": 4,
    "dead_letter": "elsewhere",
    "leases_durable": True,
}


def config_of(api: Api, topic: str) -> dict[str, Any]:
    """The stored config, without keys that the contract does not know."""
    config = ok(api.state(topic))["config"]
    return {name: config[name] for name in DEFAULTS}


def test_put_creates_with_defaults(api: Api, topic: str) -> None:
    """201 and created:true once, the full config in the answer."""
    body = ok(api.send("PUT", f"/v0/topics/{topic}"), 201)
    assert {"topic", "created", "config", "performance"} <= set(body)
    assert (body["topic"], body["created"]) == (topic, True)
    assert {name: body["config"][name] for name in DEFAULTS} == DEFAULTS


def test_put_again_is_not_created(api: Api, topic: str) -> None:
    """200 and created:false, for the same config and for another one."""
    ok(api.put(topic, ttl_ms=9_000_000), 201)
    assert ok(api.put(topic, ttl_ms=9_000_000))["created"] is False
    assert ok(api.put(topic, ttl_ms=8_000_000))["created"] is False
    assert config_of(api, topic)["ttl_ms"] == 8_000_000


def test_every_field_is_stored_and_echoed(api: Api, topic: str) -> None:
    """Queue fields on a log as well, without effect there."""
    body = ok(api.put(topic, **OTHERS), 201)
    assert {name: body["config"][name] for name in OTHERS} == OTHERS
    assert config_of(api, topic) == {**OTHERS, "type": "log"}
    assert "queue" not in ok(api.state(topic))


@pytest.mark.parametrize("field", list(OTHERS))
def test_put_replaces_everything(api: Api, topic: str, field: str) -> None:
    """Case 29: fields that are left out go back to their defaults."""
    ok(api.put(topic, **OTHERS), 201)
    ok(api.put(topic, **{field: OTHERS[field]}))
    expected = {**DEFAULTS, field: OTHERS[field]}
    if field in ("durable", "durability"):
        expected.update(durable=True, durability="fsync")
    assert config_of(api, topic) == expected


@pytest.mark.parametrize(
    ("first", "second", "detail"),
    [
        ("queue", {}, {"existing_type": "queue", "requested_type": "log"}),  # case 28
        ("queue", {"type": "log"}, {"existing_type": "queue", "requested_type": "log"}),
        ("log", {"type": "queue"}, {"existing_type": "log", "requested_type": "queue"}),
    ],
)
def test_the_type_never_changes(
    api: Api, topic: str, first: str, second: dict[str, Any], detail: dict[str, str]
) -> None:
    """Case 28: 409, and the config stays as it was."""
    ok(api.put(topic, type=first, ttl_ms=7_000_000), 201)
    api.append(topic, 1)
    reply = api.put(topic, **second)
    refused(reply, 409, "topic_exists_incompatible", {"topic": topic, **detail})
    assert config_of(api, topic) == {**DEFAULTS, "type": first, "ttl_ms": 7_000_000}


@pytest.mark.parametrize(
    ("given", "durable", "durability"),
    [
        ({}, False, "disk"),
        ({"durable": False}, False, "disk"),
        ({"durable": True}, True, "fsync"),
        ({"durability": None, "durable": True}, True, "fsync"),
        ({"durability": "ephemeral"}, False, "ephemeral"),
        ({"durability": "memory"}, False, "memory"),
        ({"durability": "disk"}, False, "disk"),
        ({"durability": "fsync"}, True, "fsync"),
        ({"durable": True, "durability": "memory"}, False, "memory"),
        ({"durable": True, "durability": "disk"}, False, "disk"),  # case 30
        ({"durable": False, "durability": "fsync"}, True, "fsync"),
    ],
)
def test_durability_is_resolved(
    api: Api, topic: str, given: dict[str, Any], durable: bool, durability: str
) -> None:
    """Case 30: durability wins over durable; answers show both, resolved."""
    config = ok(api.put(topic, **given), 201)["config"]
    assert (config["durable"], config["durability"]) == (durable, durability)
    [entry] = ok(api.topics(prefix=topic))["topics"]
    assert entry["durable"] is durable


@pytest.mark.parametrize(
    ("field", "given", "stored"),
    [
        ("lease_ms", 0, 100),  # case 31
        ("lease_ms", 99, 100),
        ("lease_ms", 100, 100),
        ("lease_ms", 86_400_000, 86_400_000),
        ("lease_ms", 86_400_001, 86_400_000),
        ("lease_ms", 10**12, 86_400_000),  # case 31
        ("claim_jitter_ms", 5000, 5000),
        ("claim_jitter_ms", 60_000, 5000),  # case 31
        ("priority", 5000, 5000),  # case 32
        ("priority", -5000, -5000),
    ],
)
def test_clamps_are_stored(api: Api, topic: str, field: str, given: int, stored: int) -> None:
    """Case 31, case 32: what is clamped on entry is echoed clamped; priority is not."""
    assert ok(api.put(topic, **{field: given}), 201)["config"][field] == stored
    assert config_of(api, topic)[field] == stored


@pytest.mark.parametrize(
    ("config", "effective"),
    [
        ({"priority": 5000}, 1000),  # case 32
        ({"priority": -5000}, -1000),
        ({"priority": 7}, 7),
        ({"priority": 0}, 0),
        ({"priority": 7, "auto_priority": False}, 7),
        ({"auto_priority": False}, 0),
        ({}, 0),  # never read
    ],
)
def test_effective_priority(api: Api, topic: str, config: dict[str, Any], effective: int) -> None:
    """Case 32: clamped in effect; without a priority it follows the last read."""
    ok(api.put(topic, **config), 201)
    assert ok(api.state(topic, touch="false"))["effective_priority"] == effective


def test_effective_priority_of_a_topic_just_read(api: Api, topic: str) -> None:
    """It starts at 500 and halves every 30 s."""
    ok(api.put(topic), 201)
    assert 450 <= ok(api.state(topic))["effective_priority"] <= 500


LONG = "n" * 255


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("a", True),
        ("Z9", True),
        ("0", True),
        ("a.b_c:d-e", True),
        ("a..b", True),
        ("a-", True),
        (LONG, True),  # case 25
        (LONG + "n", False),  # case 25
        ("-a", False),  # case 26
        (".a", False),  # case 26
        (":a", False),  # case 26
        ("_a", False),
        ("a%2Fb", False),  # case 26
        ("a%3Eb", False),  # case 26, good for routers only
        ("%C3%A4", False),  # case 26
        ("a%20b", False),
        ("a%00b", False),
        ("a%0Ab", False),
        ("a%0A", False),
        ("a+b", False),
        ("a@b", False),
        ("a%25b", False),
        ("%E2%91%A0", False),  # a digit, but no ASCII digit
        ("a%F0%9F%98%80", False),
    ],
)
def test_names(api: Api, name: str, valid: bool) -> None:
    """Case 25, case 26, case 27: checked where something could be created, else just absent."""
    if valid:
        ok(api.put(name), 201)
        ok(api.state(name))
        assert ok(api.delete_topic(name))["deleted"] is True
        return
    refused(api.put(name), 400, "invalid_request")
    refused(api.state(name), 404, "topic_not_found")
    refused(api.claim(name), 404, "topic_not_found")
    refused(api.ack(name, []), 404, "topic_not_found")
    assert ok(api.delete_topic(name))["deleted"] is False


@pytest.mark.parametrize("name", ["a%2Fb", "-a", LONG + "n"])
def test_invalid_names_of_reading_routes(api: Api, name: str) -> None:
    """Case 27: diff and delete-records on an invalid name."""
    refused(api.diff(name), 404, "topic_not_found")
    refused(api.delete(name, before_seq=1), 404, "topic_not_found")


def test_names_are_case_sensitive(api: Api, topic: str) -> None:
    """Two spellings, two topics."""
    ok(api.put(f"{topic}A"), 201)
    ok(api.put(f"{topic}a"), 201)


@pytest.mark.parametrize(
    ("kind", "target", "accepted"),
    [
        ("queue", "{self}", False),  # case 33
        ("log", "{self}", True),  # case 33
        ("queue", "-bad", False),
        ("log", "-bad", False),
        ("log", "", False),
        ("queue", "a/b", False),
        ("queue", LONG, True),
        ("queue", LONG + "n", False),
        ("queue", "{self}absent", True),
        ("queue", None, True),
    ],
)
def test_dead_letter_names(
    api: Api, topic: str, kind: str, target: str | None, accepted: bool
) -> None:
    """Case 33: a valid name, not the queue itself; it need not exist, nor is it created."""
    name = None if target is None else target.format(self=topic)
    reply = api.put(topic, type=kind, dead_letter=name)
    if accepted:
        assert ok(reply, 201)["config"]["dead_letter"] == name
    else:
        detail = refused(reply, 400, "invalid_request")
        assert name == topic or detail["dead_letter"] == name
        refused(api.state(topic), 404, "topic_not_found")
    refused(api.state(f"{topic}absent"), 404, "topic_not_found")


@pytest.mark.parametrize("config", [{"dead_letter": "x"}, {"max_deliveries": 3}])
def test_dead_letter_and_max_deliveries_alone(api: Api, topic: str, config: dict[str, Any]) -> None:
    """Case 34: each without the other is accepted."""
    ok(api.put(topic, type="queue", **config), 201)


def test_order_of_checks_of_put(api: Api, topic: str) -> None:
    """Case 37: name, then dead letter name, then self, then type."""
    ok(api.put(topic), 201)
    refused(api.put(topic, type="queue", dead_letter=topic), 400, "invalid_request")
    refused(api.put(topic, type="queue", dead_letter="-"), 400, "invalid_request")
    reply = api.put("-bad", type="queue", dead_letter="-bad")
    assert "dead_letter" not in refused(reply, 400, "invalid_request")
    reply = api.json("PUT", "/v0/topics/-bad", {"ttl_ms": -1})
    refused(reply, 400, "invalid_request")


def test_concurrent_creation(api: Api, topic: str) -> None:
    """Exactly one of many creators gets 201."""
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda _: api.put(topic).status_code, range(16)))
    assert sorted(statuses) == [200] * 15 + [201]


def test_state_of_a_fresh_log(api: Api, log: str) -> None:
    """Every field, and no queue part."""
    body = ok(api.state(log, touch="false"))
    assert set(body) >= {
        "topic", "type", "head_seq", "earliest_seq", "next_seq", "count", "bytes", "config",
        "effective_priority", "last_write_ts", "last_read_ts", "performance",
    }  # fmt: skip
    expected = {
        "topic": log,
        "type": "log",
        "head_seq": 0,
        "earliest_seq": 1,
        "next_seq": 1,
        "count": 0,
        "bytes": 0,
        "last_write_ts": None,
        "last_read_ts": None,
    }
    assert {name: body[name] for name in expected} == expected
    assert "queue" not in body


def test_state_of_a_queue(api: Api, queue: str) -> None:
    """The queue part counts ready, leased and dead-lettered jobs."""
    body = ok(api.state(queue))
    assert body["type"] == "queue"
    counters = {name: body["queue"][name] for name in ("ready", "in_flight", "dead_lettered")}
    assert counters == {"ready": 0, "in_flight": 0, "dead_lettered": 0}
    api.append(queue, 1, 2, 3)
    api.claimed(queue, max=2)
    assert api.facts(queue, "ready", "in_flight", "count") == (1, 2, 3)


def test_state_after_writes(api: Api, log: str) -> None:
    """Seqs, counts and times; bytes are those of compact data and meta, not tag and node."""
    before = now_ms()
    record = {"data": {"a": [1, 2]}, "meta": {"m": "é"}, "tag": "t" * 50, "node": "n" * 50}
    api.append_many(log, [record, {"data": None}])
    size = len('{"a":[1,2]}') + len('{"m":"é"}'.encode()) + len("null")
    names = ("head_seq", "earliest_seq", "next_seq", "count", "bytes")
    assert api.facts(log, *names) == (2, 1, 3, 2, size)
    [written] = api.facts(log, "last_write_ts")
    assert before - 1 <= written <= now_ms() + 1


def test_stats_are_the_counters_of_the_state(api: Api, log: str) -> None:
    """The same figures without the config; asking is not reading, and creates nothing."""
    queue = f"{log}q"
    api.make_queue(queue)
    for topic in (log, queue):
        api.append(topic, 1, 2, 3)
        if topic == queue:
            api.claimed(topic)
        stats = ok(api.send("GET", f"/v0/topics/{topic}/stats"))
        state = ok(api.state(topic, touch="false"))
        counted = {"topic", "type", "head_seq", "earliest_seq", "count", "bytes"}
        assert stats.keys() - {"performance", "queue"} == counted
        assert {name: stats[name] for name in counted} == {name: state[name] for name in counted}
        ages = ("oldest_ready_ms",)
        left, right = ({**body.get("queue", {})} for body in (stats, state))
        assert left.keys() == right.keys()
        assert all(left[name] == right[name] for name in left if name not in ages)
        assert state["last_read_ts"] is None
    refused(api.send("GET", f"/v0/topics/{log}-absent/stats"), 404, "topic_not_found")


def test_touch(api: Api, log: str) -> None:
    """Case 41: touch is the default, shows in the same answer, and false leaves it alone."""
    assert ok(api.state(log, touch="false"))["last_read_ts"] is None
    before = now_ms()
    first = ok(api.state(log))["last_read_ts"]
    assert before - 1 <= first <= now_ms() + 1
    assert ok(api.state(log, touch="false"))["last_read_ts"] == first
    assert eventually(lambda: ok(api.state(log, touch="true"))["last_read_ts"] > first)


def test_state_never_creates(api: Api, topic: str) -> None:
    """404 with the name, again and again."""
    for _ in range(2):
        refused(api.state(topic), 404, "topic_not_found", {"topic": topic})


def test_a_shorter_ttl_acts_at_once(api: Api, topic: str) -> None:
    """A config change is enforced on what is stored already."""
    api.make_log(topic)
    api.append(topic, 1, 2)
    [written] = api.facts(topic, "last_write_ts")
    eventually(lambda: now_ms() > written + 30)
    ok(api.put(topic, durability="memory", ttl_ms=20))
    assert api.facts(topic, "count", "head_seq", "earliest_seq") == (0, 2, 3)


@pytest.mark.parametrize("discard", ["old", "reject"])
def test_a_tighter_cap_acts_at_once(api: Api, log: str, discard: str) -> None:
    """Case 35: also under reject; loosening it brings nothing back."""
    api.append(log, *range(6))
    ok(api.put(log, durability="memory", cap_records=2, discard=discard))
    assert api.facts(log, "count", "head_seq", "earliest_seq") == (2, 6, 5)
    ok(api.put(log, durability="memory", discard=discard))
    assert api.facts(log, "count", "earliest_seq") == (2, 5)


def test_delete_topic(api: Api, topic: str) -> None:
    """The answer, the absence afterwards, and deleting what is not there."""
    api.make_log(topic)
    body = ok(api.delete_topic(topic))
    assert set(body) >= {"topic", "deleted", "routers_removed", "performance"}
    assert (body["topic"], body["deleted"], body["routers_removed"]) == (topic, True, [])
    refused(api.state(topic), 404, "topic_not_found", {"topic": topic})
    again = ok(api.delete_topic(topic))
    assert (again["deleted"], again["routers_removed"]) == (False, [])


@pytest.mark.parametrize(
    ("query", "refuses"),
    [("true", True), ("1", True), ("false", False), ("0", False), ("", False), ("TRUE", False)],
)
def test_delete_if_empty(api: Api, log: str, query: str, refuses: bool) -> None:
    """409 on live records, and nothing is removed; other texts mean the default, false."""
    api.append(log, 1, 2)
    reply = api.delete_topic(log, if_empty=query)
    if refuses:
        refused(reply, 409, "topic_not_empty", {"topic": log, "count": 2})
        assert api.facts(log, "count") == (2,)
    else:
        assert ok(reply)["deleted"] is True


def test_delete_if_empty_of_nothing(api: Api, topic: str) -> None:
    """Case 38: absent, never written, all expired, all acked."""
    assert ok(api.delete_topic(topic, if_empty="true"))["deleted"] is False
    api.make_log(topic)
    assert ok(api.delete_topic(topic, if_empty="true"))["deleted"] is True
    api.make_log(topic, ttl_ms=1)
    api.append(topic, 1)
    assert eventually(lambda: api.delete_topic(topic, if_empty="true").status_code == 200)
    api.make_queue(topic)
    api.append(topic, 1)
    ok(api.ack(topic, [job["$seq"] for job in api.claimed(topic)]))
    assert ok(api.delete_topic(topic, if_empty="true"))["deleted"] is True


def test_a_recreated_topic_is_a_new_one(api: Api, topic: str) -> None:
    """Seqs from 1, no leases, counters or keys of the old instance; the type may differ."""
    api.make_queue(topic, max_deliveries=9)
    ok(api.write(topic, numbered(3), idempotency_key="k"))
    [old] = api.claimed(topic)
    ok(api.delete_topic(topic))
    ok(api.put(topic, type="queue", durability="memory"), 201)
    assert config_of(api, topic)["max_deliveries"] == 0
    body = ok(api.write(topic, numbered(1), idempotency_key="k"))
    assert (body["deduped"], body["seqs"]) == (False, [1])
    [new] = api.claimed(topic)
    assert (new["$seq"], new["deliveries"]) == (1, 1)
    assert new["lease_id"] != old["lease_id"]
    ok(api.delete_topic(topic))
    ok(api.put(topic, type="log"), 201)


def test_all_ascii_name_characters(api: Api) -> None:
    """Every character that a name may hold, in one name."""
    name = "A" + string.ascii_letters + string.digits + "._:-"
    assert ok(api.put(name), 201)["topic"] == name
    assert ok(api.delete_topic(name))["deleted"] is True
