"""WebSockets: the upgrade, bad messages, scopes and prefixes per message, the end."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from tests.http import rawhttp
from tests.http.api import JSON, Api, numbered
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, ok, refused
from tests.http.process import ServerProcess
from tests.http.test_ws_publish import assert_error
from tests.http.ws import UPGRADE, Socket, data_of, handshake, seqs_of

KEYS = (
    "full,reader:read,writer:write,both:rw,deleter:delete,admin:admin,adminw:admin+write,"
    "tenant:rw:tenant-"
)


@pytest.fixture
def ws(api: Api) -> Iterator[Socket]:
    """A socket to the shared server."""
    with Socket(api.address) as opened:
        yield opened


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server with all keys of this file, and some topics."""
    directory = tmp_path_factory.mktemp("guarded") / "data"
    process = ServerProcess(directory, settings={"API_KEYS": KEYS}).start()
    with Api(process.base_url, key="full") as api:
        for name in ("tenant-a", "other", "open"):
            api.make_log(name)
    yield process
    process.stop()


# -- the upgrade --------------------------------------------------------------------------------


def test_a_request_without_upgrade(api: Api) -> None:
    """400 or 426, in the envelope."""
    reply = api.send("GET", "/v0/ws")
    assert reply.status_code in (400, 426)
    refused(reply, reply.status_code, reply.json()["error"]["code"])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_other_methods(api: Api, method: str) -> None:
    """405."""
    refused(api.send(method, "/v0/ws", b"{}", JSON), 405, "method_not_allowed")


@pytest.mark.parametrize("path", ["/v0/ws/", "/v0/wss", "/ws", "/v0/topics", "/v0/watch/wid_no"])
def test_upgrades_elsewhere(api: Api, path: str) -> None:
    """There is one WebSocket route; an upgrade anywhere else opens none."""
    assert handshake(api.address, path=path).status != 101


@pytest.mark.parametrize(
    "header",
    [None, "Bearer unknown", "bearer full", "Basic full", "", "Bearer "],
)
@pytest.mark.parametrize("path", ["/v0/ws", "/v0/ws?token=full"])
def test_the_upgrade_needs_a_key(guarded: ServerProcess, header: str | None, path: str) -> None:
    """Cases 21, 23: in the header only; 401 in the envelope."""
    headers = {} if header is None else {"authorization": header}
    refused(handshake(guarded.address, headers, path), 401, "unauthorized", None)


def test_without_upgrade_and_key(guarded: ServerProcess) -> None:
    """Case 1: 401 first."""
    refused(rawhttp.exchange(guarded.address, rawhttp.head("GET", "/v0/ws")), 401, "unauthorized")


@pytest.mark.parametrize("key", ["full", "reader", "writer", "deleter", "admin", "tenant"])
def test_any_key_may_connect(guarded: ServerProcess, key: str) -> None:
    """No scope at the upgrade."""
    with Socket(guarded.address, key=key) as ws:
        assert ws.call("ping") == {"op": "pong", "request_id": 1}


def test_dev_mode_looks_at_no_key(api: Api) -> None:
    """Case 21: without keys everything is allowed."""
    with Socket(api.address, key="unknown", path="/v0/ws?token=x") as ws:
        assert ws.call("ping")["op"] == "pong"


# -- bad messages -------------------------------------------------------------------------------

NOT_PARSED: list[object] = [
    "",
    " ",
    "{",
    "nonsense",
    '{"op":"ping"} {"op":"ping"}',
    '{"op":"ping",}',
    "null",
    "7",
    '"ping"',
    "[]",
    '["ping"]',
    {},
    {"request_id": 1},
    {"op": None},
    {"op": 1},
    {"op": ["ping"]},
    {"op": ""},
    {"op": "Ping"},  # case 102
    {"op": "nosuch", "request_id": 7},  # case 102
    {"op": "ack", "request_id": 7},
    {"op": "subscribe", "topic": 1},
    {"op": "subscribe", "topic": ["t"]},
    {"op": "subscribe", "topics": ["t"]},
    {"op": "subscribe", "topics": {"t": None}},
    {"op": "subscribe", "topics": {"t": 1}},
    {"op": "subscribe", "topics": {"t": {"from_seq": "1"}}},
    {"op": "subscribe", "topics": {"t": {"tail": None}}},
    {"op": "subscribe", "topic": "t", "from_seq": -1},
    {"op": "subscribe", "topic": "t", "from_seq": 1.0},
    {"op": "subscribe", "topic": "t", "from_seq": None},
    {"op": "subscribe", "topic": "t", "from_seq": 2**64},
    {"op": "subscribe", "topic": "t", "tail": "yes"},
    {"op": "subscribe", "topic": "t", "limit": None},
    {"op": "subscribe", "topic": "t", "limit": 2**32},
    {"op": "subscribe", "topic": "t", "max_batch_bytes": -1},
    {"op": "subscribe", "topic": "t", "include_data": None},
    {"op": "subscribe", "topic": "t", "include_tags": 1},
    {"op": "subscribe", "topic": "t", "include_meta": "x"},
    {"op": "subscribe", "topic": "t", "lenient": None},
    {"op": "subscribe", "topic": "t", "node": 1},
    {"op": "subscribe", "topic": "t", "node": [1]},
    {"op": "unsubscribe", "topic": 1},
    {"op": "unsubscribe", "topics": {"t": {}}},
    {"op": "unsubscribe", "topics": [1]},
    {"op": "unsubscribe", "topics": "t"},
    {"op": "publish"},
    {"op": "publish", "topic": "t"},
    {"op": "publish", "records": [{"data": 1}]},
    {"op": "publish", "topic": "t", "records": None},
    {"op": "publish", "topic": "t", "records": {}},
    {"op": "publish", "topic": "t", "records": [1]},
    {"op": "publish", "topic": "t", "records": [{}]},
    {"op": "publish", "topic": "t", "records": [{"data": 1, "tag": 1}]},
    {"op": "publish", "topic": "t", "records": [{"data": 1}], "node": 1},
    {"op": "publish", "topic": "t", "records": [{"data": 1}], "create": "yes"},
    {"op": "publish", "topic": "t", "records": [{"data": 1}], "return_seqs": None},
    {"op": "publish", "topic": "t", "records": [{"data": 1}], "idempotency_key": 1},
    {"op": "publish", "topic": "t", "records": [{"data": 1}], "config": []},
    {"op": "publish", "topic": "t", "records": [{"data": 1}], "config": {"type": "Queue"}},
    {"op": "publish", "topic": "t", "records": [{"data": 1}], "config": {"ttl_ms": -1}},
]


@pytest.mark.parametrize("message", NOT_PARSED, ids=str)
def test_messages_that_cannot_be_read(api: Api, ws: Socket, log: str, message: object) -> None:
    """Case 102: invalid_json, request_id null; the socket stays open."""
    if isinstance(message, dict):
        message = {key: log if value == "t" else value for key, value in message.items()}
    ws.send(message)
    reply = ws.next_message()
    assert_error(reply, "invalid_json")
    assert reply["request_id"] is None
    assert ws.call("ping")["op"] == "pong"
    assert api.facts(log, "head_seq") == (0,)


@pytest.mark.parametrize("content", [b"", b'{"op":"ping"}', b"\x00\xff", b"x" * 100_000])
def test_binary_messages(ws: Socket, content: bytes) -> None:
    """Case 102: unsupported_message, without a request_id; the socket stays open."""
    ws.send(content)
    reply = ws.next_message()
    assert set(reply) == {"op", "code", "message"}
    assert (reply["op"], reply["code"]) == ("error", "unsupported_message")
    assert reply["message"].strip()
    assert ws.call("ping")["op"] == "pong"


@pytest.mark.parametrize(
    ("op", "fields", "code"),
    [
        ("subscribe", {}, "invalid_request"),
        ("subscribe", {"topic": None}, "invalid_request"),
        ("subscribe", {"topics": {}}, "invalid_request"),
        ("unsubscribe", {}, "invalid_request"),
        ("unsubscribe", {"topics": []}, "invalid_request"),
        ("subscribe", {"topic": "no-such"}, "topic_not_found"),
        ("subscribe", {"topic": ""}, "topic_not_found"),
        ("subscribe", {"topic": "-bad/"}, "topic_not_found"),
        ("subscribe", {"topics": {"no-such": {}}}, "topic_not_found"),
        ("subscribe", {"topics": {f"t{n}": {} for n in range(257)}}, "invalid_request"),
        ("subscribe", {"topics": {f"t{n}": {} for n in range(256)}}, "topic_not_found"),
        ("subscribe", {"topic": "t0", "topics": {f"t{n}": {} for n in range(256)}},
         "topic_not_found"),
        ("subscribe", {"topic": "x", "topics": {f"t{n}": {} for n in range(256)}},
         "invalid_request"),
        ("subscribe", {"topics": {f"t{n}": {} for n in range(257)}, "lenient": True},
         "invalid_request"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_refusals(ws: Socket, op: str, fields: Json, code: str) -> None:
    """With the request's id; the socket stays open."""
    assert_error(ws.call(op, **fields), code)
    assert ws.call("ping")["op"] == "pong"


def test_messages_in_fragments(ws: Socket) -> None:
    """A text message may come in parts, cut anywhere."""
    ws.send_parts('{"op":"ping",', '"request_id":"', "é", '"}')
    assert ws.next_message() == {"op": "pong", "request_id": "é"}


@pytest.mark.parametrize(
    "content",
    [
        b"\x81\x02{}",  # not masked
        b"\x83\x80\0\0\0\0",  # unknown opcode
        b"\xf1\x82\0\0\0\0{}",  # reserved bits
        b"\x80\x82\0\0\0\0{}",  # continues nothing
        b"\x09\x80\0\0\0\0",  # a ping in parts
        b"\x89\xfe\0\x7e\0\0\0\0" + b"x" * 126,  # a ping that is too long
        b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",  # 2^63 - 1 bytes to come
        b"\x88\x81\0\0\0\0x",  # a close of one byte
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
    ids=lambda content: content[:8].hex(),
)
def test_what_is_no_websocket_frame(api: Api, content: bytes) -> None:
    """The server closes that socket, and nothing else happens."""
    with rawhttp.Connection(api.address) as connection:
        connection.send(rawhttp.head("GET", "/v0/ws", UPGRADE))
        assert connection.read_head(time.monotonic() + 5.0)[0] == 101
        connection.send(content)
        assert connection.closed_by_server(5.0)
    with Socket(api.address) as ws:
        assert ws.call("ping")["op"] == "pong"


def test_text_that_is_no_utf8(api: Api, ws: Socket) -> None:
    """Closed as the protocol has it, or answered as a message that cannot be read."""
    with rawhttp.Connection(api.address) as connection:
        connection.send(rawhttp.head("GET", "/v0/ws", UPGRADE))
        deadline = time.monotonic() + 5.0
        assert connection.read_head(deadline)[0] == 101
        connection.send(b"\x81\x82\0\0\0\0\xff\xff")
        answer = connection.read_some(deadline)
        assert answer[:1] in (b"", b"\x88") or b'"code":"invalid_json"' in answer
    assert ws.call("ping")["op"] == "pong"


def test_a_refused_subscribe_subscribes_to_nothing(api: Api, ws: Socket, log: str) -> None:
    """All or nothing; what was subscribed before goes on as it was."""
    topics: Json = {log: {}, f"{log}no": {}}
    assert_error(ws.call("subscribe", topics=topics), "topic_not_found")
    api.append(log, 1)
    assert ws.quiet(0.2)
    ws.subscribe(log, from_seq=1)
    ws.drain()
    assert_error(ws.call("subscribe", topics=topics), "topic_not_found")
    api.append(log, 2)
    assert seqs_of(ws.drain()) == [2]


def test_unknown_fields(ws: Socket, log: str) -> None:
    """Case 15: ignored, and named."""
    pong = {"op": "pong", "request_id": 1, "ignored": ["no_such"]}
    assert ws.call("ping", no_such=1) == pong
    assert ws.subscribe(log, no_such={}).keys() == {log}


def test_an_error_for_one_among_many(api: Api, ws: Socket, log: str) -> None:
    """Commands before and after it work; answers keep the order."""
    first = ws.post("publish", topic=log, records=numbered(1))
    ws.send("{")
    third = ws.post("publish", topic=log, records=numbered(1))
    ws.send(b"\x00")
    last = ws.post("ping")
    replies = [ws.next_message() for _ in range(5)]
    found = [reply.get("request_id", "none") for reply in replies]
    assert found == [first, None, third, "none", last]
    assert api.facts(log, "count") == (2,)


# -- scopes and prefixes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "subscribes", "publishes", "configures"),
    [
        ("full", True, True, True),
        ("reader", True, False, False),
        ("writer", False, True, False),
        ("both", True, True, False),
        ("deleter", False, False, False),
        ("admin", False, False, False),
        ("adminw", False, True, True),
    ],
)
def test_scopes(
    guarded: ServerProcess, key: str, subscribes: bool, publishes: bool, configures: bool
) -> None:
    """Case 101: read, write, and admin whenever there is a config, even if the topic exists."""
    with Socket(guarded.address, key=key) as ws:
        tries: list[tuple[str, Json, bool]] = [
            ("subscribed", {"op": "subscribe", "topic": "open", "tail": True}, subscribes),
            ("ack", {"op": "publish", "topic": "open", "records": numbered(1)}, publishes),
            (
                "ack",
                {"op": "publish", "topic": "open", "records": numbered(1), "config": {}},
                configures,
            ),
            ("unsubscribed", {"op": "unsubscribe", "topic": "open"}, True),
            ("pong", {"op": "ping"}, True),
        ]
        for answer, message, allowed in tries:
            reply = ws.call(**message)
            if allowed:
                assert reply["op"] == answer, reply
            else:
                assert_error(reply, "forbidden")


def test_config_null_is_no_config(guarded: ServerProcess) -> None:
    """Case 101: null equals absent."""
    with Socket(guarded.address, key="writer") as ws:
        assert ws.publish("open", 1, config=None)["op"] == "ack"


def test_creating_without_config_needs_write_only(guarded: ServerProcess, topic: str) -> None:
    """As over HTTP."""
    with Socket(guarded.address, key="writer") as ws:
        assert ws.publish(topic, 1)["created"] is True
        reply = ws.call("publish", topic=f"{topic}b", records=numbered(1), config={})
        assert_error(reply, "forbidden")
        reply = ws.call("publish", topic=f"{topic}b", records=numbered(1), create=False)
        assert_error(reply, "topic_not_found")


@pytest.mark.parametrize(
    ("op", "fields", "code"),
    [
        ("subscribe", {"topic": "tenant-a"}, None),
        ("subscribe", {"topic": "other"}, "forbidden"),
        ("subscribe", {"topics": {"tenant-a": {}, "other": {}}}, "forbidden"),
        ("subscribe", {"topics": {"absent": {}}}, "forbidden"),
        ("subscribe", {"topics": {"absent": {}}, "lenient": True}, "forbidden"),
        ("subscribe", {"topic": "tenant-absent"}, "topic_not_found"),
        ("publish", {"topic": "tenant-a", "records": [{"data": 1}]}, None),
        ("publish", {"topic": "other", "records": [{"data": 1}]}, "forbidden"),
        ("publish", {"topic": "absent", "records": [{"data": 1}]}, "forbidden"),
        ("publish", {"topic": "other", "records": []}, "forbidden"),
        ("unsubscribe", {"topic": "other"}, None),
    ],
    ids=str,
)
def test_prefixes(guarded: ServerProcess, op: str, fields: Json, code: str | None) -> None:
    """Case 24: names outside the key's prefixes are forbidden, whether they exist or not."""
    with Socket(guarded.address, key="tenant") as ws:
        reply = ws.call(op, **fields)
        if code is None:
            assert reply["op"] != "error", reply
        else:
            assert_error(reply, code)
        assert ws.call("ping")["op"] == "pong"


def test_a_refused_publish_leaves_nothing(guarded: ServerProcess, topic: str) -> None:
    """No topic, no record."""
    with Socket(guarded.address, key="tenant") as ws, Api(guarded.base_url, key="full") as api:
        assert_error(ws.call("publish", topic=topic, records=numbered(1)), "forbidden")
        refused(api.state(topic), 404, "topic_not_found")


# -- the end ------------------------------------------------------------------------------------


def test_pings_of_the_protocol(ws: Socket, log: str) -> None:
    """Answered with a pong frame, also while deliveries are on their way."""
    assert ws.pong(b"1")
    ws.subscribe(log)
    assert ws.pong(b"2")
    assert ws.call("ping")["op"] == "pong"


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_a_client_that_leaves_harms_no_other(api: Api, log: str, leave: str) -> None:
    """Others go on."""
    with Socket(api.address) as other:
        other.subscribe(log)
        other.drain()
        socket = Socket(api.address)
        socket.subscribe(log)
        socket.close() if leave == "close" else socket.reset()
        api.append(log, 1)
        assert data_of(other.receive(1)) == [1]


def test_shutdown(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """An error says why, then the socket is closed; the server stops in good order."""
    server = fresh_server()
    api = api_for(server)
    api.make_log("l")
    with Socket(server.address) as idle, Socket(server.address) as reader:
        reader.subscribe("l")
        reader.drain()
        assert idle.call("ping")["op"] == "pong"
        server.send_signal(signal.SIGTERM)
        for each in (idle, reader):
            message = each.next_message()
            assert (message["op"], message["code"]) == ("error", "server_shutting_down")
            assert message["message"].strip()
            assert each.ended()
        assert server.wait() == 0


def test_publishing_still_works_after_many_errors(api: Api, ws: Socket, log: str) -> None:
    """Errors use nothing up."""
    for _ in range(200):
        ws.send("nonsense")
    replies = [ws.next_message() for _ in range(200)]
    assert {reply["code"] for reply in replies} == {"invalid_json"}
    assert ws.publish(log, 1)["seqs"] == [1]
    assert ok(api.state(log))["count"] == 1
