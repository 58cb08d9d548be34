"""Keys, scopes and name prefixes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.http import rawhttp
from tests.http.api import JSON, Api, numbered, seqs_of
from tests.http.expect import ok, plain_ok, refused, status_of
from tests.http.process import ServerProcess
from tests.http.sse import Stream

KEYS = ",".join(
    [
        " full ",
        "full2:",
        "reader:read",
        "writer:write",
        "deleter:delete",
        "admin:admin",
        "both:read+write",
        "short-r:r",
        "short-w:W",
        "short-d:D",
        "short-del:Del",
        "short-a:A",
        "short-rw:RW",
        "",
        "  ",
        "tenant:read+write+delete+admin:tenant-",
        "tenant-colon:rw+a:tenant-a:|shared:",
        "tenant-all::tenant-",
        "tenant-read:read:tenant-",
        "blank-prefix:read: |tenant- | ",
    ]
)


@dataclass
class Guarded:
    """A server with keys, and one client per key that a test asked for."""

    server: ServerProcess
    clients: dict[str | None, Api] = field(default_factory=dict)

    def by(self, key: str | None) -> Api:
        """A client that presents this key."""
        if key not in self.clients:
            self.clients[key] = Api(self.server.base_url, key=key)
        return self.clients[key]

    @property
    def full(self) -> Api:
        """A client that may do anything."""
        return self.by("full")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One server with all keys of this file."""
    directory = tmp_path_factory.mktemp("guarded") / "data"
    process = ServerProcess(directory, settings={"API_KEYS": KEYS}).start()
    found = Guarded(process)
    yield found
    for client in found.clients.values():
        client.close()
    process.stop()


ROUTES = {
    "list": ("GET", "/v0/topics", None, {"read"}),
    "state": ("GET", "/v0/topics/{t}", None, {"read"}),
    "diff": ("POST", "/v0/topics/{t}/diff", b"{}", {"read"}),
    "metrics": ("GET", "/v0/metrics", None, {"read"}),
    "write": ("POST", "/v0/topics/{t}", b'{"records":[{"data":1}]}', {"write"}),
    "ack": ("POST", "/v0/topics/{t}/ack", b'{"node":"w","seqs":[]}', {"write"}),
    "nack": ("POST", "/v0/topics/{t}/nack", b'{"node":"w","seqs":[]}', {"write"}),
    "extend": (
        "POST", "/v0/topics/{t}/extend", b'{"node":"w","seqs":[],"lease_ms":1}', {"write"},
    ),
    "claim": ("POST", "/v0/topics/{t}/claim", b'{"node":"w"}', {"read", "write"}),
    "delete-records": ("POST", "/v0/topics/{t}/delete", b'{"before_seq":0}', {"delete"}),
    "delete-topic": ("DELETE", "/v0/topics/{t}?if_empty=true", None, {"delete"}),
    "put": ("PUT", "/v0/topics/{t}", b'{"type":"queue","durability":"memory"}', {"admin"}),
}  # fmt: skip
SCOPES = {
    "full": {"read", "write", "delete", "admin"},
    "full2": {"read", "write", "delete", "admin"},
    "reader": {"read"},
    "writer": {"write"},
    "deleter": {"delete"},
    "admin": {"admin"},
    "both": {"read", "write"},
    "short-r": {"read"},
    "short-w": {"write"},
    "short-d": {"delete"},
    "short-del": {"delete"},
    "short-a": {"admin"},
    "short-rw": {"read", "write"},
}


@pytest.mark.parametrize("key", list(SCOPES))
@pytest.mark.parametrize("route", list(ROUTES))
def test_scopes(guarded: Guarded, topic: str, route: str, key: str) -> None:
    """Each route needs exactly its scopes; admin implies none; 403 has no detail."""
    guarded.full.make_queue(topic)
    guarded.full.append(topic, 1)
    method, path, body, needed = ROUTES[route]
    headers = JSON if body else {}
    reply = guarded.by(key).send(method, path.format(t=topic), body, headers)
    if not needed <= SCOPES[key]:
        refused(reply, 403, "forbidden", None)
    elif route == "delete-topic":
        refused(reply, 409, "topic_not_empty")
    else:
        assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("key", list(SCOPES))
def test_scopes_of_the_work_stream(guarded: Guarded, topic: str, key: str) -> None:
    """It needs read and write."""
    guarded.full.make_queue(topic)
    with guarded.by(key).work(topic, node="w") as stream:
        assert stream.status == (200 if SCOPES[key] >= {"read", "write"} else 403)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v0/nosuch", 401),  # case 1
        ("POST", "/v0/topics/x/nosuch", 401),
        ("PUT", "/v0/topics/x/diff", 401),  # case 2
        ("OPTIONS", "/v0/topics/x", 401),
        ("POST", "/v0/topics", 401),
        ("GET", "/v0/topics", 401),
        ("GET", "/v0/topics/x", 401),
        ("GET", "/v0/topics/x/work?node=w", 401),
        ("GET", "/v0/metrics", 401),  # case 145
        ("GET", "/v0/health/", 401),
        ("GET", "/v0/health", 200),  # case 145
        ("GET", "/v0/ready", 200),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
    ],
)
@pytest.mark.parametrize("key", [None, "unknown"])
def test_without_a_good_key(
    guarded: Guarded, key: str | None, method: str, path: str, status: int
) -> None:
    """Cases 1, 2, 145: 401 before anything else, open probes apart."""
    reply = guarded.by(key).send(method, path)
    if status == 401:
        refused(reply, 401, "unauthorized", None)
    else:
        plain_ok(reply)


def test_a_large_body_without_a_key(guarded: Guarded) -> None:
    """401 wins over 413 and 415."""
    headers = {"content-length": "99999999999", "content-type": "text/plain"}
    reply = guarded.by(None).raw(rawhttp.head("POST", "/v0/topics/x", headers))
    refused(reply, 401, "unauthorized", None)


@pytest.mark.parametrize(
    ("key", "method", "path", "status", "code"),
    [
        ("reader", "PUT", "/v0/topics/x/diff", 403, "forbidden"),  # case 2
        ("full", "PUT", "/v0/topics/x/diff", 405, "method_not_allowed"),  # case 2
        ("writer", "PUT", "/v0/topics/x/diff", 405, "method_not_allowed"),
        ("reader", "GET", "/v0/topics/x/nosuch", 403, "forbidden"),
        ("writer", "GET", "/v0/topics/x/nosuch", 404, "not_found"),
        ("reader", "OPTIONS", "/v0/topics/x", 403, "forbidden"),
        ("full", "GET", "/v0/nosuch", 404, "not_found"),
        ("deleter", "GET", "/v0/nosuch", 404, "not_found"),
        ("reader", "POST", "/v0/metrics", 405, "method_not_allowed"),
        ("tenant", "PUT", "/v0/topics/other/diff", 403, "forbidden"),
        ("tenant", "PUT", "/v0/topics/tenant-x/diff", 405, "method_not_allowed"),
        ("tenant", "GET", "/v0/topics/other/nosuch", 403, "forbidden"),
    ],
)
def test_scope_before_route(
    guarded: Guarded, key: str, method: str, path: str, status: int, code: str
) -> None:
    """Case 2: anything unknown under a topic needs write; then 404 and 405 as ever."""
    refused(guarded.by(key).send(method, path), status, code, None)


@pytest.mark.parametrize(("key", "status"), [("reader", 403), ("writer", 200), ("full", 200)])
def test_head_needs_write(guarded: Guarded, topic: str, key: str, status: int) -> None:
    """Case 5: HEAD on a topic falls under the fallback scope."""
    guarded.full.make_log(topic)
    reply = guarded.by(key).send("HEAD", f"/v0/topics/{topic}")
    assert (reply.status_code, reply.content) == (status, b"")


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer full", 200),
        ("Bearer  full  ", 200),
        ("bearer full", 401),  # case 21
        ("BEARER full", 401),
        ("Bearer\tfull", 401),
        ("Bearerfull", 401),
        ("Basic full", 401),
        ("full", 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        ("", 401),
        ("Bearer Full", 401),
        ("Bearer full,reader", 401),
        ("Bearer full:", 401),
        ("Bearer reader:read", 401),
        ("Bearer ful", 401),
        ("Bearer fullx", 401),
        ("Bearer \xff", 401),
    ],
)
def test_the_header(guarded: Guarded, header: str, status: int) -> None:
    """Case 21: exactly "Bearer ", then the secret with blanks around it at most."""
    content = rawhttp.head("GET", "/v0/topics", {"authorization": header})
    reply = guarded.by(None).raw(content)
    if status == 200:
        ok(reply)
    else:
        refused(reply, 401, "unauthorized", None)


@pytest.mark.parametrize("header", ["bearer x", "Bearer unknown", "Basic x", ""])
def test_dev_mode_looks_at_no_header(api: Api, header: str) -> None:
    """Case 21: without keys everything is allowed."""
    ok(api.raw(rawhttp.head("GET", "/v0/topics", {"authorization": header})))


@pytest.mark.parametrize(
    ("query", "header", "status"),
    [
        ("&token=both", None, 200),
        ("&token=both", "Bearer both", 200),
        ("&token=unknown", "Bearer both", 200),
        ("&token=both", "Bearer unknown", 401),  # case 22
        ("&token=both&token=unknown", None, 200),
        ("&token=unknown&token=both", None, 401),
        ("&token=%62oth", None, 200),
        ("&token=", None, 401),
        ("&Token=both", None, 401),
        ("&token=reader", None, 403),
        ("&token=tenant", None, 403),
        ("", None, 401),
    ],
)
def test_token_in_the_query_of_work(
    guarded: Guarded, topic: str, query: str, header: str | None, status: int
) -> None:
    """Case 22: taken on the stream route, first one wins, the header wins over it."""
    guarded.full.make_queue(topic)
    headers = {} if header is None else {"authorization": header}
    path = f"/v0/topics/{topic}/work?node=w{query}"
    with Stream(guarded.server.address, path, headers) as stream:
        assert stream.status == status


@pytest.mark.parametrize(
    ("method", "sub", "body"),
    [
        ("POST", "/diff", b"{}"),  # case 23
        ("GET", "", None),
        ("POST", "/claim", b'{"node":"w"}'),
        ("POST", "/work", b"{}"),
        ("DELETE", "", None),
    ],
)
def test_token_in_other_queries(
    guarded: Guarded, topic: str, method: str, sub: str, body: bytes | None
) -> None:
    """Case 23: ignored, 401."""
    path = f"/v0/topics/{topic}{sub}?token=full"
    refused(guarded.by(None).send(method, path, body, JSON), 401, "unauthorized", None)


# -- prefixes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "name", "status"),
    [
        ("tenant-read", "tenant-x", 404),  # case 24
        ("tenant-read", "other", 403),  # case 24
        ("tenant-read", "tenant", 403),
        ("tenant-read", "Tenant-x", 403),
        ("tenant-read", "tenant%2Dx", 404),
        ("tenant-read", "%74enant-x", 404),
        ("tenant-all", "tenant-x", 404),
        ("tenant-all", "other", 403),
        ("tenant-colon", "tenant-a:x", 404),
        ("tenant-colon", "tenant-ab", 403),
        ("tenant-colon", "shared:x", 404),
        ("tenant-colon", "shared", 403),
        ("blank-prefix", "tenant-x", 404),
        ("blank-prefix", "other", 403),
        ("full", "other", 404),
    ],
)
def test_prefixes(guarded: Guarded, key: str, name: str, status: int) -> None:
    """Case 24: bytes of the decoded name; existence is not revealed outside them."""
    reply = guarded.by(key).state(name)
    if status == 403:
        refused(reply, 403, "forbidden", None)
    else:
        refused(reply, 404, "topic_not_found")


@pytest.mark.parametrize("route", [name for name in ROUTES if name not in ("list", "metrics")])
def test_prefixes_hold_on_every_route(guarded: Guarded, topic: str, route: str) -> None:
    """Scope alone is not enough, and nothing happens."""
    guarded.full.make_queue(topic)
    guarded.full.append(topic, 1)
    method, path, body, _ = ROUTES[route]
    reply = guarded.by("tenant").send(method, path.format(t=topic), body, JSON if body else {})
    refused(reply, 403, "forbidden", None)
    assert guarded.full.facts(topic, "count", "in_flight") == (1, 0)


def test_lists_are_filtered_before_pages_are_cut(guarded: Guarded) -> None:
    """Pages are full although foreign names lie between."""
    mine = [f"tenant-list{number}" for number in range(5)]
    for name in [*mine, "aaa", "tenant", "zzz"]:
        assert status_of(guarded.full.put(name)) in (200, 201)
    tenant = guarded.by("tenant-read")
    body = ok(tenant.topics(prefix="tenant-list", page_size=3))
    assert [entry["topic"] for entry in body["topics"]] == mine[:3]
    body = ok(tenant.topics(prefix="tenant-list", page_size=3, cursor=body["next_cursor"]))
    assert [entry["topic"] for entry in body["topics"]] == mine[3:]
    assert "next_cursor" not in body
    seen = {entry["topic"] for entry in ok(tenant.topics(page_size=1000))["topics"]}
    assert seen and all(name.startswith("tenant-") for name in seen)
    assert ok(tenant.topics(prefix="zzz"))["topics"] == []


@pytest.mark.parametrize(
    ("key", "fields", "status"),
    [
        ("both", {}, 201),
        ("both", {"config": None}, 201),
        ("both", {"config": {}}, 403),
        ("both", {"config": {"type": "queue"}}, 403),
        ("full", {"config": {"type": "queue"}}, 201),
    ],
    ids=str,
)
def test_inline_config_needs_admin(
    guarded: Guarded, topic: str, key: str, fields: dict[str, Any], status: int
) -> None:
    """Plain creation by a write needs write only; with config it needs admin."""
    reply = guarded.by(key).write(topic, numbered(1), **fields)
    if status == 201:
        ok(reply, 201)
        return
    refused(reply, 403, "forbidden", {"topic": topic})
    refused(guarded.by(key).write(topic, [], **fields), 403, "forbidden", {"topic": topic})
    bad = guarded.by(key).json("POST", f"/v0/topics/{topic}", {"records": 1, **fields})
    refused(bad, 400, "invalid_request")
    refused(guarded.full.state(topic), 404, "topic_not_found")


def test_config_on_an_existing_topic_needs_nothing(guarded: Guarded, topic: str) -> None:
    """It is ignored anyway."""
    guarded.full.make_log(topic)
    ok(guarded.by("both").write(topic, numbered(1), config={"type": "queue"}))


@pytest.mark.parametrize(
    ("target", "allowed"), [("tenant-dlq", True), ("other", False), (None, True)]
)
def test_dead_letter_names_are_checked_too(
    guarded: Guarded, target: str | None, allowed: bool
) -> None:
    """A key cannot reach foreign topics through a dead letter."""
    reply = guarded.by("tenant").put("tenant-source", type="queue", dead_letter=target)
    if allowed:
        assert status_of(reply) in (200, 201)
    else:
        refused(reply, 403, "forbidden")


def test_settling_with_a_write_key(guarded: Guarded, topic: str) -> None:
    """A job claimed by one key may be acked by another one: the node is the holder."""
    guarded.full.make_queue(topic)
    guarded.by("writer").append(topic, 1)
    assert seqs_of(guarded.by("both").claimed(topic, "w")) == [1]
    assert ok(guarded.by("writer").ack(topic, [1], "w"))["acked"] == 1
