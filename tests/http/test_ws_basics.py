"""WebSockets and their connections: handshakes, fragments, limits, slow readers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect

from tests.http import rawhttp
from tests.http.api import Api
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import refused
from tests.http.ws import Socket, seqs_of

UPGRADE = {
    "connection": "keep-alive, Upgrade",
    "upgrade": "WebSocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}
PING = b'{"op":"ping"}'
PONG = b'{"op":"pong","request_id":null}'


def client(address: rawhttp.Address) -> ClientConnection:
    """A client that can send what no polite one does."""
    opened = connect(f"ws://{address[0]}:{address[1]}/v0/ws", proxy=None, max_size=None)
    assert isinstance(opened, ClientConnection)
    return opened


def without(name: str) -> Mapping[str, str]:
    """A handshake that lacks one header."""
    return {key: value for key, value in UPGRADE.items() if key != name}


@pytest.mark.parametrize(
    "headers",
    [
        without("sec-websocket-key"),
        without("sec-websocket-version"),
        without("connection"),
        without("upgrade"),
        {**UPGRADE, "sec-websocket-version": "12"},
        {**UPGRADE, "sec-websocket-key": "short"},
        {**UPGRADE, "upgrade": "h2c"},
    ],
)
def test_handshakes_that_are_none(api: Api, headers: Mapping[str, str]) -> None:
    """400 in the envelope."""
    reply = rawhttp.exchange(api.address, rawhttp.head("GET", "/v0/ws", headers))
    refused(reply, 400, "invalid_request", None)


def test_an_impatient_client(api: Api) -> None:
    """Its first message comes in the packet of its handshake, in the key of zeros."""
    masked = bytes([0x81, 0x80 | len(PING), 0, 0, 0, 0]) + PING
    with rawhttp.Connection(api.address) as line:
        line.send(rawhttp.head("GET", "/v0/ws", UPGRADE) + masked)
        deadline = time.monotonic() + rawhttp.READ_TIMEOUT_S
        status, headers = line.read_head(deadline)
        assert (status, headers["upgrade"]) == (101, "websocket")
        assert headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        answer = b""
        while len(answer) < len(PONG) + 2:
            answer += line.read_some(deadline)
    assert answer == Frame(Opcode.TEXT, PONG).serialize(mask=False)


def test_a_message_in_fragments(api: Api, log: str) -> None:
    """With a ping of the protocol between them."""
    text = json.dumps({"op": "publish", "topic": log, "records": [{"data": "äöü€" * 9}]})
    with client(api.address) as ws:
        ws.send(text[start : start + 7] for start in range(0, len(text), 7))
        assert json.loads(ws.recv(5))["op"] == "ack"
        assert ws.ping().wait(60)
    assert api.read(log)[0]["data"] == "äöü€" * 9


def test_blanks_in_a_message_are_not_stored(api: Api, log: str) -> None:
    """What readers get has none, and never a line break."""
    message = {"op": "publish", "topic": log, "records": [{"data": {"a": [1, 2]}}]}
    text = json.dumps(message, indent=2)
    with client(api.address) as ws:
        ws.send(text)
        assert json.loads(ws.recv(5))["op"] == "ack"
    reply = api.diff(log)
    assert b'"data":{"a":[1,2]}' in reply.content


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([Frame(Opcode.TEXT, b"\xff\xfe")], 1007),
        ([Frame(Opcode.TEXT, b"x" * 2000)], 1009),
        ([Frame(Opcode.TEXT, b"x" * 600, fin=False), Frame(Opcode.CONT, b"x" * 600)], 1009),
        ([Frame(Opcode.CONT, b"x")], 1002),
    ],
    ids=["no UTF-8", "too long", "too long in parts", "no beginning"],
)
def test_frames_that_end_the_connection(
    fresh_server: FreshServer, api_for: ApiFor, frames: list[Frame], code: int
) -> None:
    """With the code of RFC 6455 that says why; everything is released."""
    server = fresh_server(MAX_BODY_BYTES="1000", MAX_SSE_CONNECTIONS="1")
    for _ in range(2):
        with client(server.address) as ws:
            ws.send(PING.decode())
            assert json.loads(ws.recv(5))["op"] == "pong"
            for frame in frames:
                ws.socket.sendall(frame.serialize(mask=True))
            with pytest.raises(ConnectionClosed) as closed:
                ws.recv(5)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == code
    assert api_for(server).send("GET", "/v0/health").status_code == 200


def test_a_slow_reader_slows_only_itself(api: Api, log: str) -> None:
    """What it did not read is still there for it when it does, in order and once."""
    with Socket(api.address) as slow, Socket(api.address) as quick:
        slow.subscribe(log)
        quick.subscribe(log)
        quick.drain()
        for _ in range(30):
            api.append(log, "x" * 500_000)
            quick.receive(1)
        asked = slow.post("ping")
        slow.drain()
        assert seqs_of(slow.receive(30)) == [*range(1, 31)]
        assert slow.reply_to(asked)["op"] == "pong"


def test_many_commands_at_once(api: Api, log: str) -> None:
    """More than may wait to be answered: all are, in order, each ack before its record."""
    with Socket(api.address) as ws:
        ws.subscribe(log)
        ws.drain()
        asked = [ws.post("publish", topic=log, records=[{"data": n}]) for n in range(200)]
        replies = [ws.reply_to(request_id) for request_id in asked]
        assert [reply["seqs"] for reply in replies] == [[seq] for seq in range(1, 201)]
        assert seqs_of(ws.receive(200)) == [*range(1, 201)]
