"""Config of the job life cycle: typing, merge patches, pause, limits on handing out, backoff."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.api import JSON, Api, numbered, seqs_of
from tests.http.expect import Json, eventually, now_ms, ok, refused

NEW_DEFAULTS: Json = {
    "retry_backoff": None,
    "on_exhausted": None,
    "on_expire": "drop",
    "claim_rate": None,
    "max_in_flight": 0,
    "paused": False,
    "archive": None,
}


def config_of(api: Api, topic: str) -> Json:
    """The config as the state shows it."""
    config = ok(api.state(topic))["config"]
    assert isinstance(config, dict)
    return config


# -- fields --------------------------------------------------------------------------------------


def test_defaults(api: Api, topic: str) -> None:
    """Off by default, and shown."""
    config = ok(api.put(topic, type="queue"), 201)["config"]
    assert {name: config[name] for name in NEW_DEFAULTS} == NEW_DEFAULTS


GOOD: list[Json] = [
    {"retry_backoff": {"kind": "constant"}},
    {"retry_backoff": {"kind": "linear", "base_ms": 1, "step_ms": 2, "max_ms": 3, "jitter": 0}},
    {"retry_backoff": {"kind": "exponential", "factor": 1.5, "jitter": 1.0, "x": 1}},
    {"retry_backoff": None, "on_exhausted": None, "claim_rate": None, "archive": None},
    {"on_exhausted": "drop"},
    {"on_exhausted": "hold", "max_deliveries": 3},
    {"on_exhausted": "dead_letter", "dead_letter": "dead"},
    {"on_expire": "dead_letter", "dead_letter": "dead"},
    {"claim_rate": {"per_s": 1, "burst": 1}},
    {"claim_rate": {"per_s": 0.5}},
    {"max_in_flight": 2**64 - 1},
    {"archive": "done"},
]

BAD: list[tuple[str, str]] = [
    *(("retry_backoff", text) for text in (
        "1", '"exponential"', "[]", "{}", '{"kind":"Linear"}', '{"kind":null}',
        '{"kind":"linear","base_ms":-1}', '{"kind":"linear","base_ms":1.5}',
        '{"kind":"linear","base_ms":"1"}', '{"kind":"linear","step_ms":-1}',
        '{"kind":"linear","max_ms":-1}', '{"kind":"linear","jitter":1.1}',
        '{"kind":"linear","jitter":-0.1}', '{"kind":"exponential","factor":0.9}',
        '{"kind":"exponential","factor":1001}', '{"kind":"exponential","factor":"2"}',
    )),
    *(("on_exhausted", text) for text in ('"Drop"', '""', "1", "true", "[]")),
    *(("on_expire", text) for text in ('"hold"', '""', "1", "null", "false")),
    *(("claim_rate", text) for text in (
        "1", "[]", "{}", '{"per_s":0}', '{"per_s":-1}', '{"per_s":"1"}', '{"per_s":1,"burst":0}',
        '{"per_s":1,"burst":1.5}', '{"per_s":1000001}', '{"burst":1}',
    )),
    *(("max_in_flight", text) for text in ("-1", "1.0", '"1"', "null", "true", str(2**64))),
    *(("paused", text) for text in ("0", "1", '"true"', "null")),
    *(("archive", text) for text in ("1", "true", '""', '"a b"', '".a"', '"a/b"')),
]  # fmt: skip


@pytest.mark.parametrize("fields", GOOD, ids=str)
def test_good_fields(api: Api, topic: str, fields: Json) -> None:
    """Taken and shown, by PUT and by PATCH alike."""
    api.make_queue(f"{topic}patch")
    for name, config in (
        (f"{topic}put", ok(api.put(f"{topic}put", type="queue", **fields), 201)["config"]),
        (f"{topic}patch", ok(api.patch(f"{topic}patch", **fields))["config"]),
    ):
        for field, value in fields.items():
            shown = config[field]
            if isinstance(value, dict):
                shown = {key: shown[key] for key in value if key != "x"}
                value = {key: value[key] for key in value if key != "x"}
            assert shown == value, field
        assert config_of(api, name) == config


@pytest.mark.parametrize(("field", "text"), BAD, ids=lambda value: str(value)[:40])
def test_bad_fields(api: Api, topic: str, field: str, text: str) -> None:
    """400 by PUT, by PATCH and in a write's config; nothing is created or changed."""
    member = '"%s":%s' % (field, text)  # noqa: UP031
    put = '{"type":"queue",%s}' % member  # noqa: UP031
    refused(api.send("PUT", f"/v0/topics/{topic}", put.encode(), JSON), 400, "invalid_request")
    write = '{"records":[{"data":1}],"config":%s}' % put  # noqa: UP031
    refused(api.send("POST", f"/v0/topics/{topic}", write.encode(), JSON), 400, "invalid_request")
    refused(api.state(topic), 404, "topic_not_found")
    if text == "null":
        return
    api.make_queue(topic, max_in_flight=7)
    before = config_of(api, topic)
    patch = ("{%s}" % member).encode()  # noqa: UP031
    refused(api.send("PATCH", f"/v0/topics/{topic}", patch, JSON), 400, "invalid_request")
    assert config_of(api, topic) == before


@pytest.mark.parametrize("field", ["on_exhausted", "on_expire"])
def test_dead_letters_need_a_place(api: Api, topic: str, field: str) -> None:
    """Asking for dead letters without naming their topic is a mistake."""
    refused(api.put(topic, type="queue", **{field: "dead_letter"}), 400, "invalid_request")


def test_an_archive_is_another_topic(api: Api, topic: str) -> None:
    """A queue cannot archive into itself."""
    detail = {"archive": topic}
    refused(api.put(topic, type="queue", archive=topic), 400, "invalid_request", detail)


def test_fields_on_a_log(api: Api, topic: str) -> None:
    """Accepted and shown, as all queue fields."""
    api.make_log(topic, paused=True, max_in_flight=3)
    assert config_of(api, topic)["max_in_flight"] == 3
    assert [record["data"] for record in (api.append(topic, 1), api.read(topic))[1]] == [1]


# -- PATCH ---------------------------------------------------------------------------------------


def test_patch_changes_the_named_fields_only(api: Api, topic: str) -> None:
    """What PUT resets, PATCH leaves."""
    api.make_queue(topic, ttl_ms=60_000, cap_records=5, max_deliveries=3)
    before = config_of(api, topic)
    body = ok(api.patch(topic, cap_records=9))
    assert (body["topic"], body["created"]) == (topic, False)
    assert body["config"] == before | {"cap_records": 9}
    assert config_of(api, topic) == before | {"cap_records": 9}


def test_patch_merges_objects(api: Api, topic: str) -> None:
    """A merge patch goes into objects, and null takes away."""
    api.make_queue(topic, retry_backoff={"kind": "linear", "base_ms": 7, "step_ms": 3})
    backoff = ok(api.patch(topic, retry_backoff={"step_ms": 4}))["config"]["retry_backoff"]
    assert (backoff["kind"], backoff["base_ms"], backoff["step_ms"]) == ("linear", 7, 4)
    assert ok(api.patch(topic, retry_backoff=None))["config"]["retry_backoff"] is None
    assert ok(api.patch(topic, lease_ms=None))["config"]["lease_ms"] == 30_000


@pytest.mark.parametrize("patch", [{}, {"unknown": 1}, {"type": "queue"}])
def test_a_patch_that_changes_nothing(api: Api, topic: str, patch: Json) -> None:
    """200 with the config as it is."""
    api.make_queue(topic, cap_records=5)
    before = config_of(api, topic)
    assert ok(api.patch(topic, **patch))["config"] == before


def test_patch_clamps_and_resolves(api: Api, topic: str) -> None:
    """As PUT does."""
    api.make_queue(topic)
    assert ok(api.patch(topic, lease_ms=1))["config"]["lease_ms"] == 100
    config = ok(api.patch(topic, durable=True))["config"]
    assert (config["durability"], config["durable"]) == ("fsync", True)
    config = ok(api.patch(topic, durability="memory"))["config"]
    assert (config["durability"], config["durable"]) == ("memory", False)


def test_patch_refusals(api: Api, topic: str) -> None:
    """404 absent, never created; 409 a change of type; 400 its own dead letter."""
    refused(api.patch(topic, cap_records=1), 404, "topic_not_found", {"topic": topic})
    refused(api.state(topic), 404, "topic_not_found")
    api.make_queue(topic)
    detail = {"topic": topic, "existing_type": "queue", "requested_type": "log"}
    refused(api.patch(topic, type="log"), 409, "topic_exists_incompatible", detail)
    refused(api.patch(topic, type=None), 409, "topic_exists_incompatible", detail)
    refused(api.patch(topic, dead_letter=topic), 400, "invalid_request", {"dead_letter": topic})


@pytest.mark.parametrize(
    ("content", "content_type", "status", "code"),
    [
        (b"{}", "application/json", 200, ""),
        (b"{}", "application/merge-patch+json", 200, ""),
        (b"{}", "text/plain", 415, "unsupported_media_type"),
        (b"", "text/plain", 415, "unsupported_media_type"),
        (b"", "application/json", 400, "invalid_request"),
        (b"[]", "application/json", 400, "invalid_request"),
        (b"null", "application/json", 400, "invalid_request"),
        (b"{", "application/json", 400, "invalid_request"),
        (b'{"ttl_ms":1.0}', "application/json", 400, "invalid_request"),
        (b'{"ttl_ms":1e3}', "application/json", 400, "invalid_request"),
        (b'{"ttl_ms":true}', "application/json", 400, "invalid_request"),
        (b'{"ttl_ms":18446744073709551616}', "application/json", 400, "invalid_request"),
        (b'{"ttl_ms":-1}', "application/json", 400, "invalid_request"),
        (b'{"type":"Queue"}', "application/json", 400, "invalid_request"),
    ],
)
def test_patch_bodies(
    api: Api, queue: str, content: bytes, content_type: str, status: int, code: str
) -> None:
    """The order of checks of every body, and strict types."""
    reply = api.send("PATCH", f"/v0/topics/{queue}", content, {"content-type": content_type})
    if status == 200:
        ok(reply)
    else:
        refused(reply, status, code)


def test_the_second_of_two_editors_is_refused(api: Api, topic: str) -> None:
    """Both have read the same version; PUT and PATCH alike."""
    first = ok(api.put(topic, type="queue", dead_letter="dead"), 201)["config_version"]
    assert ok(api.state(topic))["config_version"] == first
    path = f"/v0/topics/{topic}?if_version="
    changed = ok(api.json("PATCH", path + first, {"max_deliveries": 3}))
    second = changed["config_version"]
    assert second != first == ok(api.put(topic, type="queue", dead_letter="dead"))["config_version"]
    ok(api.patch(topic, max_deliveries=3))
    for method in ("PUT", "PATCH"):
        reply = api.json(method, path + first, {"type": "queue", "max_deliveries": 9})
        detail = refused(reply, 412, "config_changed")
        assert (detail["topic"], detail["config_version"]) == (topic, second)
        assert detail["config"] == config_of(api, topic) == changed["config"]
    third = ok(api.json("PUT", path + second, {"type": "queue"}))["config_version"]
    assert third not in (first, second)
    assert ok(api.json("POST", f"/v0/topics/{topic}/ensure", {}))["config_version"] == third


def test_pausing_is_not_a_change_of_config(api: Api, queue: str) -> None:
    version = ok(api.state(queue))["config_version"]
    ok(api.pause(queue))
    assert ok(api.state(queue))["config_version"] == version
    path = f"/v0/topics/{queue}?if_version={version}"
    ok(api.json("PATCH", path, {"max_deliveries": 3}))
    assert config_of(api, queue)["paused"] is True


def test_a_version_of_a_topic_that_is_gone(api: Api, topic: str) -> None:
    path = f"/v0/topics/{topic}?if_version=5d8f0c41b6a2e973"
    detail = refused(api.json("PUT", path, {}), 412, "config_changed")
    assert detail == {"topic": topic, "config_version": None, "config": None}
    refused(api.json("PATCH", path, {}), 404, "topic_not_found", {"topic": topic})


def test_a_tighter_cap_acts_at_once(api: Api, topic: str) -> None:
    """Also by PATCH."""
    api.make_log(topic)
    ok(api.write(topic, numbered(5)))
    ok(api.patch(topic, cap_records=2))
    assert api.facts(topic, "count", "earliest_seq") == (2, 4)


# -- pause ---------------------------------------------------------------------------------------


def test_pause_and_resume(api: Api, queue: str) -> None:
    """Nothing is handed out, everything else goes on."""
    api.append(queue, 1, 2)
    assert seqs_of(api.claimed(queue)) == [1]
    body = ok(api.pause(queue))
    assert (body["topic"], body["paused"]) == (queue, True)
    assert api.facts(queue, "paused", "ready", "in_flight") == (True, 1, 1)
    assert ok(api.claim(queue))["reason"] == "paused"
    api.append(queue, 3)
    assert ok(api.extend(queue, [1]))["extended"] == 1
    assert ok(api.nack(queue, [1]))["nacked"] == 1
    assert ok(api.claim(queue))["claimed"] == []
    body = ok(api.resume(queue))
    assert (body["topic"], body["paused"]) == (queue, False)
    assert seqs_of(api.claimed(queue, max=9)) == [1, 2, 3]
    assert api.facts(queue, "paused") == (False,)


def test_pausing_twice(api: Api, queue: str) -> None:
    """Is the same as once."""
    for call, paused in ((api.pause, True), (api.resume, False)):
        for _ in range(2):
            assert ok(call(queue))["paused"] is paused


def test_only_pause_and_resume_change_paused(api: Api, topic: str) -> None:
    """A declaration at the start of a program neither resumes nor pauses."""
    api.make_queue(topic, paused=True)
    assert config_of(api, topic)["paused"] is True
    fields = {"type": "queue", "durability": "memory"}
    for paused, switch in ((True, api.pause), (False, api.resume)):
        ok(switch(topic))
        for sent in ({}, {"paused": True}, {"paused": False}):
            assert ok(api.put(topic, **fields, **sent))["config"]["paused"] is paused
            assert ok(api.patch(topic, max_in_flight=7, **sent))["config"]["paused"] is paused
            assert ok(api.post(topic, "ensure", **fields, **sent))["config"]["paused"] is paused
        assert ok(api.patch(topic, paused=None))["config"]["paused"] is paused
        assert config_of(api, topic)["paused"] is paused


# -- ensure --------------------------------------------------------------------------------------


def test_ensure_creates_what_is_missing(api: Api, topic: str) -> None:
    """As PUT does, once."""
    fields = {"type": "queue", "max_deliveries": 5, "durability": "memory", "paused": True}
    created = ok(api.post(topic, "ensure", **fields), 201)
    assert (created["topic"], created["created"], created["differs"]) == (topic, True, {})
    assert created["config"] == config_of(api, topic)
    assert config_of(api, topic)["paused"] is True
    again = ok(api.post(topic, "ensure", **fields))
    assert (again["created"], again["differs"]) == (False, {})
    empty = api.send("POST", f"/v0/topics/{topic}log/ensure")
    assert ok(empty, 201)["config"]["type"] == "log"


def test_ensure_changes_nothing_and_reports_what_was_sent(api: Api, topic: str) -> None:
    """Members that were not sent are not compared; values are compared as PUT stores them."""
    backoff = {"kind": "linear", "base_ms": 5}
    api.make_queue(topic, max_deliveries=5, dead_letter="dead", retry_backoff=backoff)
    before = config_of(api, topic)
    assert ok(api.post(topic, "ensure", max_deliveries=5, retry_backoff=backoff))["differs"] == {}
    reply = ok(
        api.post(
            topic, "ensure",
            type="queue", max_deliveries=4, dead_letter=None, lease_ms=1, nosuch=1, durable=True,
            retry_backoff={"kind": "linear"},
        )
    )  # fmt: skip
    assert reply["config"] == before == config_of(api, topic)
    defaults = {"step_ms": 0, "factor": 2.0, "max_ms": 300_000, "jitter": 0.0, "kind": "linear"}
    assert reply["differs"] == {
        "max_deliveries": {"have": 5, "want": 4},
        "dead_letter": {"have": "dead", "want": None},
        "lease_ms": {"have": 30_000, "want": 100},
        "durable": {"have": False, "want": True},
        "retry_backoff": {
            "have": {**defaults, "base_ms": 5}, "want": {**defaults, "base_ms": 1000},
        },
    }  # fmt: skip


def test_ensure_refuses_as_put_does(api: Api, topic: str) -> None:
    """Another type, a bad config, a bad name."""
    api.make_log(topic)
    refused(api.post(topic, "ensure", type="queue"), 409, "topic_exists_incompatible")
    ok(api.post(topic, "ensure", ttl_ms=0))
    refused(api.post(topic, "ensure", ttl_ms=-1), 400, "invalid_request")
    refused(api.post(topic, "ensure", archive=".a"), 400, "invalid_request")
    refused(api.post("-", "ensure"), 400, "invalid_request")
    refused(api.send("POST", f"/v0/topics/{topic}/ensure", b"{}"), 415, "unsupported_media_type")


def test_only_a_log_never_written_to_becomes_a_queue(api: Api, topic: str) -> None:
    """A mistyped first declaration is not a dead end; records are never taken for jobs."""
    for change in ("put", "patch"):
        name = f"{topic}{change}"
        api.make_log(name)
        call = api.put if change == "put" else api.patch
        ok(call(name, type="queue", durability="memory", paused=False))
        api.append(name, 1)
        assert seqs_of(api.claimed(name)) == [1]
        refused(api.put(name), 409, "topic_exists_incompatible")
    api.make_log(topic)
    api.append(topic, 1)
    ok(api.delete(topic, match=None, before_seq=9))
    refused(api.put(topic, type="queue"), 409, "topic_exists_incompatible")


def test_a_paused_queue_and_streams(api: Api, queue: str) -> None:
    """A stream goes on with the first job after the resume."""
    with api.work(queue, node="w") as stream:
        ok(api.pause(queue))
        api.append(queue, "later")
        assert api.facts(queue, "ready", "in_flight") == (1, 0)
        ok(api.resume(queue))
        assert stream.jobs(1)[0]["data"] == "later"


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_pause_refusals(api: Api, topic: str, verb: str) -> None:
    """404 absent, 409 a log, 405 other methods; a body is ignored."""
    path = f"/v0/topics/{topic}/{verb}"
    refused(api.send("POST", path), 404, "topic_not_found", {"topic": topic})
    api.make_log(topic)
    refused(api.send("POST", path), 409, "not_a_queue", {"topic": topic})
    refused(api.send("GET", path), 405, "method_not_allowed")
    api.make_queue(f"{topic}q")
    ok(api.send("POST", f"/v0/topics/{topic}q/{verb}", b"not json"))


# -- limits on handing out -----------------------------------------------------------------------


def test_max_in_flight(api: Api, topic: str) -> None:
    """A claim gets fewer; every lease that ends makes room."""
    api.make_queue(topic, max_in_flight=3)
    ok(api.write(topic, numbered(6)))
    assert seqs_of(api.claimed(topic, "a", max=2)) == [1, 2]
    body = ok(api.claim(topic, "b", max=5))
    assert seqs_of(body["claimed"]) == [3]
    assert ok(api.claim(topic, "b"))["reason"] == "max_in_flight"
    ok(api.ack(topic, [1], "a"))
    assert seqs_of(api.claimed(topic, "b", max=5)) == [4]
    ok(api.nack(topic, [2], "a"))
    assert seqs_of(api.claimed(topic, "b", max=5)) == [2]
    ok(api.patch(topic, max_in_flight=0))
    assert seqs_of(api.claimed(topic, "b", max=5)) == [5, 6]


def test_max_in_flight_and_streams(api: Api, topic: str) -> None:
    """Streams get no more either, and go on when there is room."""
    api.make_queue(topic, max_in_flight=1)
    ok(api.write(topic, numbered(3)))
    with api.work(topic, node="w", max=10) as stream:
        for seq in (1, 2, 3):
            assert stream.jobs(1)[0]["$seq"] == seq
            assert api.facts(topic, "in_flight") == (1,)
            ok(api.ack(topic, [seq]))


def test_claim_rate(api: Api, topic: str) -> None:
    """The burst at once, the rest as it is refilled; fewer, never an error."""
    api.make_queue(topic, claim_rate={"per_s": 100, "burst": 3})
    ok(api.write(topic, numbered(6)))
    started = now_ms()
    assert len(api.claimed(topic, max=5)) in (3, 4)
    got = api.facts(topic, "in_flight")[0]
    while got < 6:
        got += len(api.claimed(topic, max=1, wait_ms=8000))
    assert now_ms() - started >= 25


def test_claim_rate_and_streams(api: Api, topic: str) -> None:
    """A stream gets the next job as soon as the rate allows it."""
    api.make_queue(topic, claim_rate={"per_s": 100, "burst": 1})
    ok(api.write(topic, numbered(4)))
    with api.work(topic, node="w", max=10) as stream:
        assert seqs_of(stream.jobs(4)) == [1, 2, 3, 4]
        ok(api.patch(topic, claim_rate={"per_s": 1000}))
        ok(api.write(topic, numbered(4)))
        assert seqs_of(stream.jobs(4)) == [5, 6, 7, 8]


# -- what happens to the exhausted ---------------------------------------------------------------

EXHAUSTED: list[tuple[str | None, bool, str]] = [
    (None, False, "ready"),
    (None, True, "dead_lettered"),
    ("dead_letter", True, "dead_lettered"),
    ("drop", False, "dropped"),
    ("drop", True, "dropped"),
    ("hold", False, "held"),
    ("hold", True, "held"),
]


@pytest.mark.parametrize(("on_exhausted", "has_dead_letter", "where"), EXHAUSTED)
@pytest.mark.parametrize("end", ["nack", "expiry"])
def test_on_exhausted(
    api: Api, topic: str, on_exhausted: str | None, has_dead_letter: bool, where: str, end: str
) -> None:
    """What happens instead of one delivery too many."""
    config: dict[str, Any] = {"max_deliveries": 1, "on_exhausted": on_exhausted}
    if has_dead_letter:
        config["dead_letter"] = f"{topic}dead"
    api.make_queue(topic, **config)
    api.append(topic, "bad")
    api.claimed(topic, lease_ms=100)
    if end == "nack":
        ok(api.nack(topic, [1]))
    else:
        assert eventually(lambda: api.facts(topic, "in_flight") == (0,))
    claimed = api.claimed(topic)
    if where == "ready":
        assert claimed[0]["deliveries"] == 2
        return
    assert claimed == []
    expected = {"dead_lettered": 0, "dropped": 0, "held": 0, where: 1}
    assert dict(zip(expected, api.facts(topic, *expected), strict=True)) == expected
    assert api.facts(topic, "count", "ready") == (int(where == "held"), 0)


# -- backoff -------------------------------------------------------------------------------------

BACKOFFS: list[tuple[Json, list[int]]] = [
    ({"kind": "constant", "base_ms": 60_000}, [60_000, 60_000, 60_000]),
    ({"kind": "linear", "base_ms": 60_000, "step_ms": 5000}, [60_000, 65_000, 70_000]),
    ({"kind": "exponential", "base_ms": 60_000, "factor": 2}, [60_000, 120_000, 240_000]),
    ({"kind": "exponential", "base_ms": 60_000, "max_ms": 100_000}, [60_000, 100_000, 100_000]),
]


@pytest.mark.parametrize(("backoff", "delays"), BACKOFFS, ids=str)
def test_retry_backoff(api: Api, topic: str, backoff: Json, delays: list[int]) -> None:
    """The delay of a plain nack follows from the delivery count."""
    api.make_queue(topic, retry_backoff=backoff)
    for deliveries, delay in enumerate(delays, start=1):
        [seq] = api.append(topic, 1)
        for _ in range(deliveries - 1):
            api.claimed(topic)
            ok(api.nack(topic, [seq], delay_ms=0))
        [job] = api.claimed(topic)
        assert job["deliveries"] == deliveries
        before = now_ms()
        ok(api.nack(topic, [seq]))
        shown = ok(api.job(topic, seq))["job"]
        assert shown["state"] == "delayed"
        assert before + delay - 1 <= shown["not_before"] <= now_ms() + delay + 1


def test_jitter_makes_it_shorter_only(api: Api, topic: str) -> None:
    """Jobs of one nack do not come back all at once."""
    backoff = {"kind": "constant", "base_ms": 60_000, "jitter": 1.0}
    api.make_queue(topic, retry_backoff=backoff)
    ok(api.write(topic, numbered(20)))
    seqs = seqs_of(api.claimed(topic, max=20))
    before = now_ms()
    ok(api.nack(topic, seqs))
    after = now_ms()
    jobs = ok(api.jobs(topic))["jobs"]
    dues = {job["not_before"] for job in jobs if job["state"] == "delayed"}
    assert len(dues) > 5
    assert before <= min(dues) and max(dues) <= after + 60_000


@pytest.mark.parametrize("delay_ms", [0, 30_000])
def test_an_explicit_delay_wins(api: Api, topic: str, delay_ms: int) -> None:
    """Also the explicit zero."""
    api.make_queue(topic, retry_backoff={"kind": "constant", "base_ms": 300_000})
    api.append(topic, 1)
    api.claimed(topic)
    before = now_ms()
    ok(api.nack(topic, [1], delay_ms=delay_ms))
    if delay_ms:
        [job] = ok(api.jobs(topic))["jobs"]
        assert before + delay_ms - 1 <= job["not_before"] <= now_ms() + delay_ms + 1
    else:
        assert api.facts(topic, "ready", "delayed") == (1, 0)


def test_backoff_after_an_expired_lease(api: Api, topic: str) -> None:
    """A worker that vanished is a failure as well."""
    api.make_queue(topic, retry_backoff={"kind": "constant", "base_ms": 60_000})
    api.append(topic, 1)
    [job] = api.claimed(topic, lease_ms=100)
    assert eventually(lambda: api.facts(topic, "ready", "delayed") == (0, 1))
    [shown] = ok(api.jobs(topic))["jobs"]
    assert abs(shown["not_before"] - (job["deadline"] + 60_000)) <= 1
