"""Members that the server does not know are named in the reply; a misspelt topic can be refused."""

from __future__ import annotations

import json

import pytest

from logqueue.api.bodies.records import JobsBody
from logqueue.api.bodies.unknown_members import header_text, unknown_members
from tests.http.api import JSON, Api
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import ok, refused
from tests.http.ws import Socket

HEADER = "logqueue-ignored"

BODIES: dict[str, tuple[str, str, dict[str, object], str]] = {
    "put": ("PUT", "", {"type": "queue", "nosuch": 1, "retry_backoff": {"kind": "linear", "x": 1}},
            "nosuch, retry_backoff.x"),
    "patch": ("PATCH", "", {"nosuch": 1, "claim_rate": {"per_s": 9, "x": 1}},
              "nosuch, claim_rate.x"),
    "ensure": ("POST", "/ensure", {"max_delivery": 1}, "max_delivery"),
    "write": ("POST", "", {"records": [{"data": {"free": 1}}], "nosuch": 1}, "nosuch"),
    "record": ("POST", "", {"records": [{"data": 1}, {"data": 1, "delay": 1}, {"data": 1, "a": 1}]},
               "records[].delay, records[].a"),
    "inline config": ("POST", "", {"records": [{"data": 1}], "config": {"typ": "queue"}},
                      "config.typ"),
    "diff": ("POST", "/diff", {"from": 1}, "from"),
    "delete": ("POST", "/delete", {"before_seq": 1, "tag": "x"}, "tag"),
    "claim": ("POST", "/claim", {"node": "w", "seqs": [1]}, "seqs"),
    "ack": ("POST", "/ack", {"node": "w", "seqs": [1], "lease_ms": 5}, "lease_ms"),
    "nack": ("POST", "/nack", {"node": "w", "seqs": [1], "delay": 5}, "delay"),
    "reject": ("POST", "/reject", {"node": "w", "seqs": [1], "reason": "x"}, "reason"),
    "extend": ("POST", "/extend", {"node": "w", "seqs": [1], "lease_ms": 5, "by": 1}, "by"),
    "purge": ("POST", "/purge", {"states": ["held"], "limit": 1}, "limit"),
    "release": ("POST", "/release", {"seqs": [1], "all": True}, "all"),
    "redrive": ("POST", "/redrive", {"too": "x", "dry_run": True}, "too"),
}  # fmt: skip


@pytest.mark.parametrize("case", BODIES)
def test_the_reply_names_unknown_members(api: Api, queue: str, case: str) -> None:
    method, below, body, names = BODIES[case]
    reply = api.json(method, f"/v0/topics/{queue}{below}", body)
    assert reply.status_code == 200, reply.content
    assert reply.headers[HEADER] == names


def test_other_bodies(api: Api, topic: str) -> None:
    api.make_log(topic)
    watched = api.create_watch({topic: {"form_seq": 1}}, max_bytes=1)
    assert watched.headers[HEADER] == "topics.*.form_seq, max_bytes"
    routed = api.put_router(f"{topic}r", source=topic, dest=f"{topic}copy", filters=1)
    assert routed.headers[HEADER] == "filters"
    stage = f"/v0/producers/{topic}p/epochs/1/stage"
    staged = api.json("POST", stage, {"topic": topic, "records": [{"data": 1, "x": 1}], "y": 1})
    assert staged.headers[HEADER] == "records[].x, y"
    part = {"chunks": 1, "rows": 1, "size": 1}
    committed = api.json("POST", f"/v0/producers/{topic}p/epochs/1/commit", {"parts": [part]})
    assert committed.headers[HEADER] == "parts[].size"


def test_a_refusal_names_them_too(api: Api, queue: str) -> None:
    """It may be that the misspelt member is the one that is missing."""
    reply = api.json("POST", f"/v0/topics/{queue}absent/claim", {"node": "w", "nod": "w"})
    refused(reply, 404, "topic_not_found")
    assert reply.headers[HEADER] == "nod"


def test_a_misspelt_filter_is_refused_where_it_would_select_more(api: Api, queue: str) -> None:
    api.append_many(queue, [{"data": 1}] * 3)
    change = {"action": "cancel", "filter": {"tags": "old"}}
    reply = api.json("POST", f"/v0/topics/{queue}/jobs/change", change)
    refused(reply, 400, "invalid_request")
    assert b"`filter.tags` is unknown" in reply.content
    reply = api.json("POST", f"/v0/topics/{queue}/drop", {"mach": "x"})
    refused(reply, 400, "invalid_request")
    assert b"`mach` is unknown" in reply.content
    assert ok(api.state(queue))["queue"]["ready"] == 3


def test_nothing_is_said_where_all_is_known(api: Api, queue: str) -> None:
    records = [{"data": {"x": 1}, "meta": {"y": 1}, "tag": "t"}, {"data": 1, "delay_ms": 1}]
    for reply in (
        api.write(queue, records, node="n"),
        api.write(queue, records[:1], config={"type": "queue"}),
        api.claim(queue, lease_ms=500),
        api.patch(queue, max_in_flight=3),
        api.diff(queue, limit=1),
    ):
        assert ok(reply) and HEADER not in reply.headers


def test_paused_in_vain_is_named(api: Api, queue: str) -> None:
    assert api.patch(queue, paused=False).headers.get(HEADER) is None
    assert api.patch(queue, paused=True, nosuch=1).headers[HEADER] == "nosuch, paused"
    assert api.put(queue, type="queue", paused=True).headers[HEADER] == "paused"
    assert api.put(f"{queue}new", type="queue", paused=True).headers.get(HEADER) is None


def test_a_socket_names_them(api: Api, topic: str) -> None:
    api.make_log(topic)
    with Socket(api.address) as socket:
        subscribed = socket.call("subscribe", topics={topic: {"x": 1}}, nosuch=1)
        assert subscribed["ignored"] == ["topics.*.x", "nosuch"]
        published = socket.call("publish", topic=topic, records=[{"data": 1, "dely_ms": 1}])
        assert published["op"] == "ack" and published["ignored"] == ["records[].dely_ms"]
        assert socket.call("ping", x=1)["ignored"] == ["x"]
        assert socket.call("publish", topic="-", records=[], y=1)["ignored"] == ["y"]
        for op, fields in (("ping", {}), ("unsubscribe", {"topic": topic})):
            assert "ignored" not in socket.call(op, **fields)


def test_the_header_is_safe_and_short() -> None:
    """Whatever clients call their members."""
    hostile = {"a\r\nset-cookie: x": 1, "ä,": 1, "x" * 999: 1, **{f"n{i}": 1 for i in range(99)}}
    names = unknown_members(JobsBody, json.dumps({"records": [], **hostile}).encode())
    assert len(names) == 16
    text = header_text(names)
    assert text.startswith(b"a%0D%0Aset-cookie%3A%20x, %C3%A4%2C, xxx") and len(text) < 16 * 200
    assert text.isascii() and not {*text} & {*b"\r\n\0"}


def test_only_the_beginning_of_long_arrays_is_examined() -> None:
    """So that a body of 64 MiB costs no more than it must."""
    known = b'{"data":"%s"}' % (b"x" * 1000)
    records = b",".join([known] * 2000 + [b'{"data":1,"late":1}'])
    assert unknown_members(JobsBody, b'{"records":[%s]}' % records) == []
    records = b",".join([b'{"data":1,"early":1}'] + [known] * 2000)
    assert unknown_members(JobsBody, b'{"records":[%s]}' % records) == ["records[].early"]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_have(api: Api, queue: str, text: str) -> None:
    for path, body in (
        ("", '{"records":[{"data":%s}]}'),
        ("", '{"records":[{"data":[{"a":%s}]}]}'),
        ("", '{"records":[{"data":1,"meta":{"a":%s}}]}'),
        ("/claim", '{"node":"w","max":%s}'),
        ("/delete", '{"match":%s}'),
        ("/ensure", '{"claim_rate":{"per_s":%s}}'),
    ):
        reply = api.send("POST", f"/v0/topics/{queue}{path}", (body % text).encode(), JSON)
        refused(reply, 400, "invalid_request")
    patch = b'{"claim_rate":{"per_s":%s}}' % text.encode()
    refused(api.send("PATCH", f"/v0/topics/{queue}", patch, JSON), 400, "invalid_request")
    for big in (b'{"claim_rate":{"per_s":1e999}}', b'{"x":1e999}'):
        refused(api.send("PATCH", f"/v0/topics/{queue}", big, JSON), 400, "invalid_request")


def test_auto_create_off(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """A write to a misspelt topic is refused; one that says so creates it."""
    api = api_for(fresh_server("--auto-create", "off"))
    stage = {"topic": "typo", "records": [{"data": 1}]}
    for reply in (
        api.write("typo", [{"data": 1}]),
        api.write("typo", [{"data": 1}], create=False),
        api.json("POST", "/v0/producers/p/epochs/1/stage", stage),
    ):
        refused(reply, 404, "topic_not_found", {"topic": "typo"})
        assert "create" in reply.json()["error"]["message"]
    with Socket(api.address) as socket:
        said = socket.call("publish", topic="typo", records=[{"data": 1}])
        assert said["code"] == "topic_not_found"
    refused(api.state("typo"), 404, "topic_not_found")
    ok(api.write("wanted", [{"data": 1}], create=True), 201)
    ok(api.write("wanted", [{"data": 1}]))
    ok(api.write("jobs", [{"data": 1}], config={"type": "queue", "max_deliveries": 1}), 201)
    ok(api.post("declared", "ensure"), 201)
    api.make_queue("strict", dead_letter="strict.dead", archive="strict.done")
    ok(api.write("strict", [{"data": 1}]))
    api.claimed("strict")
    ok(api.reject("strict", [1]))
    assert len(api.read("strict.dead")) == 1
