"""No key reads or changes anything outside its prefixes: every operation, from the table.

A tenant's key sends each route well-formed requests that touch, or lead to, names of others. No
reply may hold a name that is not the tenant's and that the request itself did not hold; nothing of
others may change; and whether something of others exists must make no difference. A new route is
in the matrix with its row in logqueue/api/operations; its body is made of the row's type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec import inspect

from logqueue.api.operations import BY_NAME, OPERATIONS, Body, Kind, Operation
from tests.http.api import JSON, Api
from tests.http.expect import Json, ok
from tests.http.process import ServerProcess
from tests.http.sse import Stream
from tests.http.ws import Socket

FOREIGN = re.compile(rb"zz[.>][a-z0-9]+")
TOPICS = ("zz.log", "zz.queue", "zz.dead", "zz.arch", "zz.src", "zz.dst", "zz.mid")
ROUTERS = ("zz.r1", "zz.r2", "zz.r3", "zz.r4")
PRODUCER = "zz.etl"
NEVER = ["tag", "Eq", "never"]
KEYS = "full,tenant::mine.,idle"

FREE = {
    "node", "tag", "meta", "key", "error", "attempt", "content", "idempotency_key", "data",
    "filter", "match",
}  # fmt: skip
"""Members whose text the tenant may choose, and reads again: no names."""


class Sent(NamedTuple):
    """One request of the tenant."""

    method: str
    path: str
    body: Any = None
    accept: str = "*/*"

    @property
    def text(self) -> bytes:
        """All that the request says."""
        return f"{self.path} {json.dumps(self.body)}".encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with keys on which the tenant's topics hang together with those of others."""
    directory = tmp_path_factory.mktemp("foreign") / "data"
    process = ServerProcess(directory, settings={"API_KEYS": KEYS}).start()
    with Api(process.base_url, key="full") as full:
        set_up(full)
    yield process
    process.stop()


@pytest.fixture(scope="module")
def full(server: ServerProcess) -> Iterator[Api]:
    """A key for everything."""
    with Api(server.base_url, key="full") as api:
        yield api


@pytest.fixture(scope="module")
def tenant(server: ServerProcess) -> Iterator[Api]:
    """A key with all scopes and one prefix."""
    with Api(server.base_url, key="tenant") as api:
        yield api


def set_up(api: Api) -> None:
    """Topics, routers and a producer of others, and what leads from the tenant's to them."""
    for name in TOPICS:
        kind = api.make_queue if name == "zz.queue" else api.make_log
        kind(name, cap_records=1, discard="reject")
        api.append(name, name)
    # Whatever ends here finds no room where its copy goes.
    copies = {"dead_letter": "zz.dead", "archive": "zz.arch", "max_deliveries": 1}
    for name in ("mine.q", "mine.copies"):
        api.make_queue(name, cap_records=3, **copies)
        api.append(name, 1, 2, 3)
        api.claimed(name, lease_ms=60_000)
    api.make_queue("mine.held", on_exhausted="hold", max_deliveries=1)
    for name in ("mine.log", "mine.in", "mine.a", "mine.c", "mine.e", "mine.full"):
        api.make_log(name)
    api.make_log("mine.forged")
    for name in ("zz.queue", "zz.absent"):
        api.append_many("mine.forged", [{"data": 1, "meta": {"$dead_letter_from": name}}])
    api.make_router("mine.in", "zz.src", "mine.in", filter=NEVER)
    api.make_router("zz.r1", "mine.e", "zz.dst", filter=NEVER)
    api.make_router("zz.r2", "mine.a", "zz.mid", filter=NEVER)
    api.make_router("zz.r3", "zz.mid", "mine.c", filter=NEVER)
    api.make_router("zz.r4", "zz.log", "zz.queue", filter=NEVER)
    record = {"cron": "0 0 29 2 *", "record": {"data": 1}}
    for name, topic in (("mine.s", "zz.log"), ("zz.s", "mine.log")):
        ok(api.json("PUT", f"/v0/schedules/{name}", {"topic": topic, **record}), 201)
    for name, topic in (("mine.b", "zz.log"), ("zz.b", "mine.log")):
        callback = {"topic": topic, "record": {"data": 1}}
        ok(api.json("POST", "/v0/batches", {"name": name, "on_done": callback}), 201)
    for producer in (PRODUCER, "mine.mixed"):
        stage = f"/v0/producers/{producer}/epochs/1/stage"
        ok(api.json("POST", stage, {"topic": "zz.log", "records": [{"data": 1}]}))


def foreign_state(api: Api) -> Json:
    """All of others that could change."""
    volatile = {"performance", "last_read_ts", "effective_priority", "queue"}
    found: Json = {}
    for name in TOPICS:
        state = ok(api.state(name, touch="false"))
        found[name] = {k: v for k, v in state.items() if k not in volatile}
    for name in ROUTERS:
        found[name] = ok(api.router(name)) | {"performance": None}
    for name in ("mine.s", "zz.s"):
        found[name] = ok(api.send("GET", f"/v0/schedules/{name}")) | {"performance": None}
    found["zz.b"] = ok(api.send("GET", "/v0/batches/zz.b")) | {"performance": None}
    for name in (PRODUCER, "mine.mixed"):
        found[name] = ok(api.send("GET", f"/v0/producers/{name}")) | {"performance": None}
    return found


# -- the matrix ----------------------------------------------------------------------------------


def texts_of(kind: inspect.Type, within: tuple[type, ...] = ()) -> Iterator[object]:
    """Values with a foreign name in them that a member of this type takes, which is within some
    structs; none of these twice."""
    if isinstance(kind, inspect.StrType):
        yield "zz.queue"
    elif isinstance(kind, inspect.AnyType):
        yield ["tag", "Eq", "zz.queue"]
    elif isinstance(kind, inspect.CollectionType):
        yield from ([one] for one in texts_of(kind.item_type, within))
    elif isinstance(kind, inspect.DictType):
        yield {"zz.queue": {}, "mine.log": {}}
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from texts_of(one, within)
    elif isinstance(kind, inspect.StructType) and kind.cls not in within:
        for field in kind.fields:
            for text in texts_of(field.type, (*within, kind.cls)):
                if field.encode_name not in FREE:
                    yield {field.encode_name: text}


def bodies(row: Operation) -> Iterator[Any]:
    """Bodies that are well-formed or nearly so, with names of the tenant and of others."""
    if row.body_policy is Body.IGNORED:
        yield None
        return
    assert row.body is not None and row.asks is not None, f"{row.name} needs an example body"
    asks = json.loads(json.dumps(row.asks).replace("transcode", "mine.q"))
    asks = {**asks, **({"wait_ms": 0} if "wait_ms" in asks else {})}
    yield asks
    yield json.loads(json.dumps(asks).replace("mine.q", "zz.queue"))
    struct = msgspec.inspect.type_info(row.body)
    assert isinstance(struct, inspect.StructType)
    for field in struct.fields:
        for value in texts_of(field.type):
            if field.encode_name not in FREE:
                yield {**asks, field.encode_name: value}
    yield from MORE_BODIES.get(row.name, ())


MORE_BODIES: dict[str, list[Json]] = {
    "put_router": [
        {"source": "mine.q", "dest": "mine.in", "filter": NEVER},
        {"source": "mine.c", "dest": "mine.a", "filter": NEVER},
        {"source": "zz.src", "dest": "mine.in", "filter": NEVER},
        {"source": "mine.in", "dest": "zz.src", "filter": NEVER},
        {"source": "mine.log", "dest": "zz.absent", "filter": NEVER},
    ],
    "ack_jobs": [{"node": "w", "seqs": [1, 2, 3]}],
    "reject_jobs": [{"node": "w", "seqs": [1]}],
    "nack_jobs": [{"node": "w", "seqs": [1], "delay_ms": 0}],
    "delete_records": [{"before_seq": 99}],
    "purge_jobs": [{"states": ["ready", "in_flight", "held", "delayed"]}],
    "commit_epoch": [{"parts": []}, {"parts": [{"chunks": 1, "rows": 1}]}],
    "abort_epoch": [{}],
    "put_topic": [{"type": "queue", "archive": "mine.full"}, {"type": "log"}],
    "ensure_topic": [{"type": "queue", "dead_letter": None, "archive": None}],
}

NAMES = {
    "topics": ("mine.q", "mine.held", "mine.log", "mine.in", "zz.queue", "zz.log", "zz.absent"),
    "schedules": ("mine.s", "mine.new", "zz.s", "zz.absent"),
    "batches": ("mine.b", "mine.new", "zz.b", "zz.absent"),
    "routers": ("mine.in", "mine.new", "zz.r1", "zz.absent"),
    "producers": ("mine.mixed", "mine.new", PRODUCER, "zz.absent"),
    "segments": ("jobs-1",),
    "jobs": ("1", "2"),
    "keys": ("zz.key",),
    "epochs": ("1", "2"),
    "watch": ("wid_unknown",),
    "operations": ("op_unknown",),
}


def paths(pattern: str) -> list[str]:
    """The paths of a route, with names of the tenant and of others."""
    found = [""]
    before = ""
    for segment in pattern.split("/")[1:]:
        names = NAMES[before] if segment == "*" else (segment,)
        found = [f"{path}/{name}" for path in found for name in names]
        before = segment
    return found


def requests() -> list[Sent]:
    """All requests but those that delete whole topics, and those for streams."""
    found = []
    for row in OPERATIONS:
        if row.kind in (Kind.STREAM, Kind.EVENTS) or row.name == "delete_topic":
            continue
        for path in paths(row.pattern):
            for body in bodies(row):
                found.append(Sent(row.method, path, body))
    for query in ("", "?prefix=zz", "?source=zz.log", "?topic=zz.log", "?log=leases"):
        for path in ("/v0/topics", "/v0/routers", "/v0/log/segments", "/v0/topics/mine.q/jobs"):
            found.append(Sent("GET", path + query))
    for below, name in (("ack", "ack_jobs"), ("reject", "reject_jobs"), ("purge", "purge_jobs"),
                        ("delete", "delete_records"), ("", "write_records")):  # fmt: skip
        for body in (BY_NAME[name].asks, *MORE_BODIES.get(name, ())):
            found.append(Sent("POST", f"/v0/topics/mine.copies/{below}".rstrip("/"), body))
    found.append(Sent("DELETE", "/v0/topics/mine.copies/jobs/2"))
    for body in ({}, {"dry_run": True}, {"seqs": [1]}, {"seqs": [2]}):
        found.append(Sent("POST", "/v0/topics/mine.forged/redrive", body))
    found.append(Sent("GET", "/v0/metrics", accept="application/json"))
    found.append(Sent("GET", "/v0/metrics", accept="application/openmetrics-text"))
    for name in ("zz.queue", "zz.absent", "mine.q"):
        found += [Sent("HEAD", f"/v0/topics/{name}"), Sent("POST", f"/v0/topics/{name}/nosuch", {})]
    return found


def ask(api: Api, sent: Sent) -> tuple[int, bytes]:
    """The status of a reply, and all that it says."""
    content = None if sent.body is None else json.dumps(sent.body).encode()
    headers = {**({} if sent.body is None else JSON), "accept": sent.accept}
    reply = api.send(sent.method, sent.path, content, headers)
    return reply.status_code, repr(sorted(reply.headers.items())).encode() + reply.content


def leaked(sent: bytes, said: bytes) -> set[bytes]:
    """The names of others that were said, but not sent."""
    return {*FOREIGN.findall(said)} - {*FOREIGN.findall(sent)}


def test_no_reply_names_others_and_nothing_of_theirs_changes(full: Api, tenant: Api) -> None:
    before = foreign_state(full)
    statuses: dict[str, set[int]] = {}
    for sent in requests():
        status, said = ask(tenant, sent)
        assert status < 500 or b"storage" in said, (sent, status, said)
        assert not leaked(sent.text, said), (sent, status, said)
        statuses.setdefault(f"{sent.method} {sent.path}", set()).add(status)
    assert foreign_state(full) == before
    # The matrix bites: conflicts with others and full topics of others were met.
    assert 409 in statuses["PUT /v0/routers/mine.in"] & statuses["PUT /v0/routers/mine.new"]
    for below in ("/ack", "/delete", "/jobs/2"):
        method = "DELETE" if below == "/jobs/2" else "POST"
        assert {400, 422} & statuses[f"{method} /v0/topics/mine.copies{below}"], below
    assert 403 in statuses["POST /v0/producers/mine.mixed/epochs/1/commit"]


def test_it_makes_no_difference_whether_others_exist(tenant: Api) -> None:
    """403 for what is there and what is not, in paths and in bodies."""
    for sent in requests():
        text = sent.text.replace(b"zz.absent", b"")
        if not FOREIGN.search(text) or "zz.absent" in sent.path:
            continue
        told = json.loads(FOREIGN.sub(b"zz.nothing", json.dumps(sent.body).encode()))
        other = Sent(sent.method, FOREIGN.sub(b"zz.nothing", sent.path.encode()).decode(), told)
        ask(tenant, sent)  # What it creates is there for both.
        status, said = ask(tenant, sent)
        other_status, other_said = ask(tenant, other._replace(accept=sent.accept))
        assert status == other_status, (sent, said, other_said)
        if status >= 400:
            shown, other_shown = (FOREIGN.sub(b"*", one[one.rindex(b"]") + 1 :]) for one in
                                  (said, other_said))  # fmt: skip
            assert shown == other_shown, sent


# -- what is pushed ------------------------------------------------------------------------------


def test_a_batch_that_is_not_named_is_within_reach(tenant: Api) -> None:
    """The key that opens it can have jobs join it, and close and delete it."""
    name = ok(tenant.json("POST", "/v0/batches", {}), 201)["batch"]
    assert name.startswith("mine.batch-")
    assert ok(tenant.send("POST", f"/v0/batches/{name}/close"))["batch"] == name
    assert ok(tenant.send("DELETE", f"/v0/batches/{name}"))["deleted"] is True


def test_event_streams(full: Api, tenant: Api) -> None:
    """Frames of a topic reach only keys that may read it."""
    for name in ("zz.queue", "zz.absent"):
        with tenant.work(name, node="w") as refused_stream:
            assert refused_stream.status == 403
            assert not leaked(name.encode(), refused_stream.reply().body)
    session = ok(full.create_watch({"zz.log": {}, "mine.log": {}}))["wid"]
    with tenant.open_watch(session) as foreign_watch:
        assert foreign_watch.status == 401
        assert not leaked(b"", foreign_watch.reply().body)
    full.make_queue("mine.pushed", archive="zz.arch")
    full.append("mine.pushed", 1)
    with tenant.work("mine.pushed", node="w") as work:
        work.jobs(1)
        ok(full.delete_topic("mine.pushed"))
        _no_leak_until_the_end(work)
    full.make_log("mine.watched")
    full.append("mine.watched", 1)
    with tenant.watch("mine.watched") as watch:
        watch.until("caught-up")
        ok(full.delete_topic("mine.watched"))
        _no_leak_until_the_end(watch)


def _no_leak_until_the_end(stream: Stream) -> None:
    assert stream.ended() or stream.ended()
    assert not leaked(b"", "".join(frame.text for frame in stream.frames).encode())


def test_socket_messages(full: Api, tenant: Api) -> None:
    full.make_log("mine.bounded", archive="zz.arch", cap_records=1)
    full.append("mine.bounded", 1)
    before = foreign_state(full)
    messages: list[Json] = []
    for name in ("zz.log", "zz.queue", "zz.absent", "mine.log", "mine.bounded", "mine.absent"):
        records = [{"data": 1}]
        config = {"archive": "zz.arch"}
        messages += [
            {"op": "subscribe", "topic": name},
            {"op": "subscribe", "topics": {"mine.q": {}, name: {}}},
            {"op": "subscribe", "topics": {name: {}}, "lenient": True},
            {"op": "publish", "topic": name, "records": records},
            {"op": "publish", "topic": name, "records": [{**records[0], "key": "zz.key"}]},
            {"op": "publish", "topic": name, "records": records, "config": config},
            {"op": "unsubscribe", "topic": name},
        ]
    with Socket(tenant.address, key="tenant") as socket:
        for message in messages:
            said = socket.call(**message)
            assert not leaked(json.dumps(message).encode(), json.dumps(said).encode()), message
            if message.get("topic") in ("zz.log", "zz.queue", "zz.absent"):
                assert message["op"] == "unsubscribe" or said["code"] == "forbidden"
    assert foreign_state(full) == before


# -- what is left to the end: it takes the world apart -------------------------------------------


def test_metrics_show_a_key_its_own_labels(full: Api, tenant: Api) -> None:
    """And a key without prefixes all of them."""
    for accept in ("text/plain", "application/openmetrics-text"):
        _, said = ask(tenant, Sent("GET", "/v0/metrics", accept=accept))
        assert b'topic="mine.q"' in said and not leaked(b"", said)
        _, said = ask(full, Sent("GET", "/v0/metrics", accept=accept))
        assert leaked(b"", said) >= {b"zz.log", b"zz.r4"}


def test_hidden_names_of_a_config(full: Api, tenant: Api) -> None:
    """That there is a dead-letter topic is told, which one is not; a change of another member
    keeps it."""
    full.make_queue("mine.configured", dead_letter="zz.dead", archive="zz.arch")
    for config in (
        ok(tenant.state("mine.configured"))["config"],
        ok(tenant.patch("mine.configured", max_deliveries=7))["config"],
        ok(tenant.post("mine.configured", "ensure"))["config"],
    ):
        assert (config["dead_letter"], config["archive"]) == ("<hidden>", "<hidden>")
    kept = ok(full.state("mine.configured"))["config"]
    assert (kept["dead_letter"], kept["archive"], kept["max_deliveries"]) == (
        "zz.dead", "zz.arch", 7,
    )  # fmt: skip
    status, said = ask(tenant, Sent("PUT", "/v0/topics/mine.configured", kept))
    assert status == 403 and b"zz.dead" in said
    ok(full.patch("mine.configured", sqs={"redrive_sources": ["zz.queue", "mine.q"]}))
    shown = ok(tenant.state("mine.configured"))["config"]["sqs"]
    assert shown == {"redrive_sources": ["<hidden>", "mine.q"]}


def test_deleted_topics(full: Api, tenant: Api) -> None:
    """Take routers of others with them, which are not named."""
    for name in ("mine.e", "mine.a", "mine.c", "mine.in", "zz.log", "zz.absent"):
        sent = Sent("DELETE", f"/v0/topics/{name}")
        status, said = ask(tenant, sent)
        assert (status, leaked(sent.text, said)) == (200 if name[0] == "m" else 403, set())
        assert name != "mine.in" or b'"routers_removed":["mine.in"]' in said
    assert ok(full.state("zz.log"))["count"] == 1
