"""Schedules over HTTP: configure, look, list, pause, run, delete; refusals, caps, keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.http.api import Api, query_text
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, ok, refused
from tests.http.process import ServerProcess

RECORD: Json = {"data": {"task": "report"}}
HOURLY: Json = {"cron": "0 * * * *", "record": RECORD}


def put(api: Api, name: str, query: str = "", **fields: Any) -> httpx.Response:
    return api.json("PUT", f"/v0/schedules/{name}{query}", fields)


def get(api: Api, name: str, query: str = "") -> httpx.Response:
    return api.send("GET", f"/v0/schedules/{name}{query}")


def post(api: Api, name: str, verb: str) -> httpx.Response:
    return api.send("POST", f"/v0/schedules/{name}/{verb}")


def listed(api: Api, **query: Any) -> Json:
    return ok(api.send("GET", f"/v0/schedules{query_text(query)}"))


def names(page: Json) -> list[str]:
    return [entry["schedule"] for entry in page["schedules"]]


def test_the_answers(api: Api, topic: str) -> None:
    """201 and created; 200 for the same again; GET is the same without created."""
    api.make_queue(topic)
    body = ok(put(api, topic, topic=topic, timezone="Europe/Berlin", **HOURLY), 201)
    assert body.pop("created") is True
    body.pop("performance")
    next_at, created_at = body["next_at"], body["created_at"]
    assert next_at % 3_600_000 == 0 and created_at < next_at <= created_at + 3_600_000
    assert body == {
        "schedule": topic,
        "topic": topic,
        "cron": "0 * * * *",
        "every_ms": None,
        "timezone": "Europe/Berlin",
        "jitter_ms": 0,
        "catch_up": "one",
        "paused": False,
        "created_at": created_at,
        "next_at": next_at,
        "last_scheduled_for": None,
        "last_fired_at": None,
        "last_seq": None,
        "last_result": None,
        "last_error": None,
        "fired": 0,
        "skipped": 0,
        "missed": 0,
        "failed": 0,
        "record": RECORD,
        "next": [next_at + hour * 3_600_000 for hour in range(5)],
    }
    again = ok(put(api, topic, topic=topic, timezone="Europe/Berlin", **HOURLY))
    assert again["created"] is False and again["created_at"] == created_at
    shown = ok(get(api, topic))
    shown.pop("performance")
    assert shown == body
    entry = next(e for e in listed(api, prefix=topic)["schedules"])
    assert entry == {k: v for k, v in body.items() if k not in ("record", "next")}


def test_the_record_is_kept_as_it_was_sent(api: Api, topic: str) -> None:
    api.make_queue(topic)
    record = {"data": [1, None], "tag": "t", "meta": {"a": 1}, "key": "k", "delay_ms": 5,
              "on_conflict": "keep", "max_deliveries": 2, "node": "n"}  # fmt: skip
    body = ok(put(api, topic, topic=topic, every_ms=60_000, record=record), 201)
    assert body["record"] == record
    ran = ok(post(api, topic, "run"))
    assert (ran["seq"], ran["result"], ran["topic"]) == (1, "created", topic)
    (read,) = api.read(topic, include_tags=True)
    stamp = {"schedule": topic, "scheduled_for": ran["scheduled_for"]}
    assert read["meta"] == {"a": 1, **stamp}
    assert (read["data"], read["$tag"], read["$node"]) == ([1, None], "t", "n")
    ran = ok(post(api, topic, "run"))
    assert (ran["seq"], ran["result"]) == (1, "kept")
    shown = ok(get(api, topic))
    assert (shown["fired"], shown["skipped"], shown["last_result"]) == (1, 1, "kept")


def test_an_interval_fires(api: Api, topic: str) -> None:
    """On a real server, with its real clock: the first job is there after a second."""
    api.make_queue(topic)
    body = ok(put(api, topic, topic=topic, every_ms=1000, record=RECORD), 201)
    (job,) = api.claimed(topic, wait_ms=30_000)
    assert job["meta"] == {"schedule": topic, "scheduled_for": body["next_at"]}
    assert ok(get(api, topic))["fired"] >= 1
    ok(api.send("DELETE", f"/v0/schedules/{topic}"))


def test_pausing_and_resuming(api: Api, topic: str) -> None:
    api.make_queue(topic)
    ok(put(api, topic, topic=topic, **HOURLY), 201)
    body = ok(post(api, topic, "pause"))
    assert (body["paused"], body["next_at"], body["next"]) == (True, None, [])
    assert ok(put(api, topic, topic=topic, jitter_ms=5, **HOURLY))["paused"] is True
    ok(post(api, topic, "run"))
    body = ok(post(api, topic, "resume"))
    assert body["paused"] is False and len(body["next"]) == 5
    assert ok(put(api, topic, topic=topic, paused=True, **HOURLY))["paused"] is True


def test_if_absent_never_changes(api: Api, topic: str) -> None:
    api.make_queue(topic)
    first = ok(put(api, topic, "?if_absent=true", topic=topic, **HOURLY), 201)
    assert (first["created"], first["differs"]) == (True, {})
    other = {"cron": "5 * * * *", "record": {"data": 2}}
    body = ok(put(api, topic, "?if_absent=1", topic=topic, paused=True, **other))
    assert body["created"] is False and body["cron"] == "0 * * * *" and body["paused"] is False
    assert body["differs"] == {
        "cron": {"have": "0 * * * *", "want": "5 * * * *"},
        "record": {"have": RECORD, "want": {"data": 2}},
    }


def test_how_many_next_firings(api: Api, topic: str) -> None:
    api.make_queue(topic)
    ok(put(api, topic, "?next=0", topic=topic, **HOURLY), 201)
    for query, count in (("?next=0", 0), ("?next=50", 50), ("?next=51", 50), ("", 5)):
        assert len(ok(get(api, topic, query))["next"]) == count
    refused(get(api, topic, "?next=x"), 400, "invalid_request")
    refused(put(api, topic, "?next=-1", topic=topic, **HOURLY), 400, "invalid_request")


def test_firings_before_a_schedule_is_made(api: Api) -> None:
    asked = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "after": 1_774_695_600_000}
    body = ok(api.send("GET", f"/v0/firings{query_text({**asked, 'next': 2})}"))
    # On 29 March 2026 the clock goes from 2 to 3 o'clock.
    assert body["next"] == [1_774_746_000_000, 1_774_830_600_000]
    assert (body["cron"], body["timezone"]) == ("30 2 * * *", "Europe/Berlin")
    for broken in ({}, {"cron": "x"}, {"cron": "* * * * *", "timezone": "x"},
                   {"cron": "* * * * *", "after": "-1"}):  # fmt: skip
        refused(api.send("GET", f"/v0/firings{query_text(broken)}"), 400, "invalid_request")
    far = {"cron": "0 0 1 1 *", "after": 2**63}
    assert ok(api.send("GET", f"/v0/firings{query_text(far)}"))["next"] == []


def test_lists_are_paged_and_filtered(api: Api, topic: str) -> None:
    api.make_queue(f"{topic}a")
    api.make_queue(f"{topic}b")
    for number in range(5):
        ok(put(api, f"{topic}{number}", topic=f"{topic}{'ab'[number % 2]}", **HOURLY), 201)
    page = listed(api, prefix=topic, page_size=2)
    found = names(page)
    while "next_cursor" in page:
        page = listed(api, prefix=topic, page_size=2, cursor=page["next_cursor"])
        found += names(page)
    assert found == [f"{topic}{number}" for number in range(5)]
    assert names(listed(api, topic=f"{topic}b")) == [f"{topic}1", f"{topic}3"]


def test_deleting(api: Api, topic: str) -> None:
    api.make_queue(topic)
    ok(put(api, topic, topic=topic, **HOURLY), 201)
    for deleted in (True, False):
        body = ok(api.send("DELETE", f"/v0/schedules/{topic}"))
        assert (body["schedule"], body["deleted"]) == (topic, deleted)
    detail = {"schedule": topic}
    refused(get(api, topic), 404, "schedule_not_found", detail)
    for verb in ("pause", "resume", "run"):
        refused(post(api, topic, verb), 404, "schedule_not_found", detail)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"cron": "* * * *"}, "has 4 fields"),
        ({"cron": "0 0 30 2 *"}, "bad day-of-month"),
        ({"cron": None}, "either `cron` or `every_ms`"),
        ({"every_ms": 60_000}, "either `cron` or `every_ms`"),
        ({"cron": None, "every_ms": 999}, "`every_ms` must be 1000"),
        ({"cron": None, "every_ms": 2**64}, "every_ms"),
        ({"timezone": "Mars/Olympus"}, "unknown `timezone`"),
        ({"timezone": "../../etc/passwd"}, "unknown `timezone`"),
        ({"jitter_ms": 86_400_001}, "`jitter_ms` must be at most"),
        ({"catch_up": "some"}, "catch_up"),
        ({"topic": "-bad"}, "-bad"),
        ({"record": None}, "record"),
        ({"record": {"tag": "x"}}, "data"),
        ({"record": {"data": 1, "key": ""}}, "record.key is empty"),
        ({"record": {"data": 1, "tag": "x" * 300}}, "record.tag is over"),
        ({"record": {"data": 1, "meta": 5}}, "record.meta must be an object"),
        ({"record": {"data": 1, "meta": {"scheduled_for": 5}}}, "record.meta.scheduled_for"),
        ({"record": {"data": 1, "meta": dict.fromkeys(map(str, range(63)), 1)}}, "62 keys"),
        ({"record": {"data": 1, "meta": {"a": "x" * 16_200}}}, "record.meta is over"),
    ],
)
def test_what_is_invalid(api: Api, topic: str, fields: Json, says: str) -> None:
    api.make_queue(topic)
    sent = {"topic": topic, **HOURLY, **fields}
    reply = put(api, topic, **{k: v for k, v in sent.items() if v is not None})
    refused(reply, 400, "invalid_request")
    assert says in reply.json()["error"]["message"]
    refused(get(api, topic), 404, "schedule_not_found")


def test_what_else_is_refused(api: Api, topic: str) -> None:
    refused(put(api, topic, topic=topic, **HOURLY), 404, "topic_not_found")
    api.make_log(topic)
    keyed = {"data": 1, "key": "k"}
    reply = put(api, topic, topic=topic, cron="0 * * * *", record=keyed)
    refused(reply, 409, "not_a_queue", {"topic": topic, "field": "key"})
    large = {"data": "x" * (64 << 10)}
    reply = put(api, topic, topic=topic, cron="0 * * * *", record=large)
    refused(reply, 400, "record_too_large")
    refused(put(api, "-bad", topic=topic, **HOURLY), 400, "invalid_request")
    refused(api.send("PUT", f"/v0/schedules/{topic}"), 415, "unsupported_media_type")
    refused(api.send("PATCH", f"/v0/schedules/{topic}"), 405, "method_not_allowed")


def test_unknown_members_are_named(api: Api, topic: str) -> None:
    api.make_queue(topic)
    sent = {**HOURLY, "record": {**RECORD, "nosuch": 1}, "other": 2}
    reply = put(api, topic, topic=topic, **sent)
    ok(reply, 201)
    assert reply.headers["logqueue-ignored"] == "record.nosuch, other"


def test_the_cap(fresh_server: FreshServer, api_for: ApiFor) -> None:
    api = api_for(fresh_server(MAX_SCHEDULES="2"))
    api.make_queue("q")
    ok(put(api, "a", topic="q", **HOURLY), 201)
    ok(put(api, "b", topic="q", **HOURLY), 201)
    detail = {"limit": "max_schedules", "max": 2}
    refused(put(api, "c", topic="q", **HOURLY), 429, "throttled", detail)
    ok(put(api, "b", topic="q", cron="1 * * * *", record=RECORD))
    ok(api.send("DELETE", "/v0/schedules/a"))
    ok(put(api, "c", topic="q", **HOURLY), 201)
    metrics = api.send("GET", "/v0/metrics").text
    assert "logqueue_schedules 2.0" in metrics


def test_a_killed_server_fires_each_time_once(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """SIGKILL between and during firings; every nominal time has exactly one job."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q")
    body = ok(put(api, "tick", topic="q", every_ms=1000, record=RECORD, catch_up="all"), 201)
    first = body["next_at"]
    times: set[int] = set()
    while len(times) < 3:
        jobs = api.claimed("q", wait_ms=30_000, max=100)
        times |= {job["meta"]["scheduled_for"] for job in jobs}
        server.kill()
        server.start()
        api = api_for(server)
    written = [record["meta"]["scheduled_for"] for record in api.read("q")]
    assert written == [first + 1000 * place for place in range(len(written))]


KEYS = {
    "full": {"read", "write", "delete", "admin"},
    "reader:read": {"read"},
    "writer:write": {"write"},
    "tenant::tenant-": {"read", "write", "delete", "admin"},
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Api]]:
    """A server with keys and schedules, and one client per key."""
    directory = tmp_path_factory.mktemp("guarded") / "data"
    process = ServerProcess(directory, settings={"API_KEYS": ",".join(KEYS)}).start()
    clients = {key: Api(process.base_url, key=key) for key in (k.partition(":")[0] for k in KEYS)}
    full = clients["full"]
    for name in ("tenant-q", "other-q"):
        full.make_queue(name)
    ok(put(full, "tenant-s", topic="tenant-q", **HOURLY), 201)
    ok(put(full, "tenant-x", topic="other-q", **HOURLY), 201)
    ok(put(full, "other-s", topic="tenant-q", **HOURLY), 201)
    yield clients
    for client in clients.values():
        client.close()
    process.stop()


def test_scopes(guarded: dict[str, Api]) -> None:
    reader, writer = guarded["reader"], guarded["writer"]
    assert names(listed(reader)) == ["other-s", "tenant-s", "tenant-x"]
    ok(get(reader, "tenant-s"))
    refused(get(writer, "tenant-s"), 403, "forbidden")
    for api in (reader, writer):
        refused(put(api, "tenant-s", topic="tenant-q", **HOURLY), 403, "forbidden")
        refused(api.send("DELETE", "/v0/schedules/tenant-s"), 403, "forbidden")
        for verb in ("pause", "resume", "run", "nosuch"):
            refused(post(api, "tenant-s", verb), 403, "forbidden")


def test_prefixes_of_the_name_and_of_the_topic(guarded: dict[str, Api]) -> None:
    tenant = guarded["tenant"]
    assert names(listed(tenant)) == ["tenant-s"]
    ok(get(tenant, "tenant-s"))
    for name in ("tenant-x", "other-s"):
        replies = [
            get(tenant, name),
            put(tenant, name, topic="tenant-q", **HOURLY),
            api_delete(tenant, name),
            *(post(tenant, name, verb) for verb in ("pause", "resume", "run")),
        ]
        for reply in replies:
            refused(reply, 403, "forbidden")
            assert "other-q" not in json.dumps(reply.json())
    refused(
        put(tenant, "tenant-new", topic="other-q", **HOURLY), 403, "forbidden", {"topic": "other-q"}
    )
    ok(put(tenant, "tenant-new", topic="tenant-q", **HOURLY), 201)
    ok(api_delete(tenant, "tenant-new"))


def api_delete(api: Api, name: str) -> httpx.Response:
    return api.send("DELETE", f"/v0/schedules/{name}")
