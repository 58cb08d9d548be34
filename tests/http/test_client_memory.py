"""What a server holds for clients: refused when there is no room, released on every way out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.http import rawhttp
from tests.http.api import JSON, Api
from tests.http.expect import Json, eventually, ok, plain_ok, refused
from tests.http.process import ServerProcess
from tests.http.ws import UPGRADE, Socket

OWN = 8 << 10
"""What a request costs that waits, such as one for the metrics."""
SLACK = 64 << 10
ROOM = (4 << 20) + SLACK
PER_KEY = (3 << 20) + SLACK
KEY = {"authorization": "Bearer k1"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with little room for clients."""
    settings = {
        "API_KEYS": "k1,k2",
        "MAX_CLIENT_BYTES": str(ROOM),
        "MAX_CLIENT_BYTES_PER_KEY": str(PER_KEY),
        "MAX_PRODUCERS": "2",
    }
    directory = tmp_path_factory.mktemp("little") / "data"
    process = ServerProcess(directory, settings=settings, probe_key="k1").start()
    with Api(process.base_url, key="k1") as client:
        client.make_queue("q")
    yield process
    process.stop()


@pytest.fixture
def api(small: ServerProcess) -> Iterator[Api]:
    """A client of it; whatever happens, nothing is held in the end but sessions."""
    with Api(small.base_url, key="k1") as client:
        before = held(client)
        yield client
        assert eventually(lambda: held(client) <= before), held(client)


def held(api: Api) -> int:
    """What is held for clients now."""
    figures = plain_ok(api.send("GET", "/v0/metrics", None, {"accept": "application/json"}))
    return int(figures["client_bytes"]) - OWN


def upload(size: int, sent: int, key: str = "k1") -> bytes:
    """The beginning of a write."""
    headers = {**JSON, "content-length": str(size), "authorization": f"Bearer {key}"}
    return rawhttp.head("POST", "/v0/topics/q", headers) + b" " * sent


def chunks(size: int, sent: int, key: str = "k1") -> bytes:
    """The same in chunks."""
    headers = {**JSON, "transfer-encoding": "chunked", "authorization": f"Bearer {key}"}
    content = b"%x\r\n" % size + b" " * sent
    return rawhttp.head("POST", "/v0/topics/q", headers) + content


@pytest.mark.parametrize("begin", [upload, chunks])
def test_unfinished_bodies(api: Api, begin: Callable[[int, int, str], bytes]) -> None:
    """One key cannot use up the room of all, and the others go on."""
    with ExitStack() as stack:

        def line(key: str) -> rawhttp.Connection:
            opened = stack.enter_context(rawhttp.Connection(api.address))
            opened.send(begin(2 << 20, 1 << 20, key))
            return opened

        lines = [line("k1") for _ in range(3)]
        assert eventually(lambda: held(api) >= PER_KEY - SLACK)
        with rawhttp.Connection(api.address) as over:
            over.send(begin(2 << 20, 1 << 20, "k1"))
            reply = over.read_reply()
            refused(reply, 429, "throttled", {"limit": "max_client_bytes_per_key", "max": PER_KEY})
            assert reply.headers["retry-after"] == "1"
            assert over.closed_by_server()
        line("k2")
        assert eventually(lambda: held(api) >= ROOM - SLACK)
        with rawhttp.Connection(api.address) as over:
            over.send(begin(2 << 20, 1 << 20, "k2"))
            detail = {"limit": "max_client_bytes", "max": ROOM}
            refused(over.read_reply(), 429, "throttled", detail)
        assert api.append("q", 1)
        lines[0].reset()
        lines[1].close()


def test_bodies_that_are_ignored(api: Api) -> None:
    """However many, they cost nothing, key or no key."""
    with ExitStack() as stack:
        before = held(api)
        for _ in range(20):
            line = stack.enter_context(rawhttp.Connection(api.address))
            line.send(rawhttp.head("GET", "/v0/health", {"content-length": str(1 << 20)}))
            line.send(b"x" * 900_000)
        assert held(api) - before <= 0


def test_unfinished_messages(api: Api) -> None:
    """Of one frame or of many; the socket that finds no room is closed."""
    with ExitStack() as stack:
        sockets = []
        for number in range(4):
            line = stack.enter_context(rawhttp.Connection(api.address))
            line.send(rawhttp.head("GET", "/v0/ws", {**UPGRADE, **KEY}))
            assert line.read_head(time.monotonic() + 5.0)[0] == 101
            if number % 2:
                line.send(b"\x81\xff" + (2 << 20).to_bytes(8) + bytes(4) + bytes(1 << 20))
            else:
                part = b"\x01\xff" + (1 << 19).to_bytes(8) + bytes(4) + bytes(1 << 19)
                line.send(part + b"\x00" + part[1:])
            sockets.append(line)
        last = [line for line in sockets if is_closed_with(line, 1013)]
        assert last
        assert held(api) <= PER_KEY


def is_closed_with(line: rawhttp.Connection, code: int) -> bool:
    """Whether the server closes a socket so, soon."""
    try:
        return line.read_some(time.monotonic() + 1.0)[2:4] == code.to_bytes(2)
    except TimeoutError:
        return False


def test_subscriptions(api: Api) -> None:
    """Each costs, and `unsubscribe` or the end of the socket gives it back."""
    names = [f"s.{number}" for number in range(200)]
    for name in names:
        api.make_log(name)
    before = held(api)
    with Socket(api.address, key="k2") as socket:
        topics: Json = {name: {} for name in names}
        assert socket.call("subscribe", topics=topics)["op"] == "subscribed"
        assert held(api) - before > 200 * 300
        assert socket.call("unsubscribe", topics=names)["op"] == "unsubscribed"


def test_requests_that_wait(api: Api) -> None:
    """A long poll holds what it needs until it is answered or left."""
    before = held(api)
    api.make_log("quiet")
    poll = rawhttp.request("POST", "/v0/topics/quiet/diff", b'{"wait_ms":9000}', {**JSON, **KEY})
    with rawhttp.Connection(api.address) as line:
        line.send(poll)
        assert eventually(lambda: held(api) - before >= OWN)


def test_replies_that_are_not_read(api: Api) -> None:
    """They count; a large one is refused while there is no room for it."""
    api.make_log("big")
    for _ in range(2):
        api.append("big", "x" * 900_000)
    read = b'{"max_batch_bytes":8388608}'
    asked = rawhttp.request("POST", "/v0/topics/big/diff", read, {**JSON, **KEY})
    with ExitStack() as stack:
        for _ in range(30):
            line = stack.enter_context(rawhttp.Connection(api.address))
            line.send(asked * 8)
            reply = api.diff("big", max_batch_bytes=8 << 20)
            if reply.status_code == 429:
                break
        detail = {"limit": "max_client_bytes_per_key", "max": PER_KEY}
        refused(reply, 429, "throttled", detail)
        assert held(api) <= ROOM
        assert api.append("q", 1)


def test_a_reply_counts_as_a_whole_however_much_of_it_is_sent(server: ServerProcess) -> None:
    """What the operating system has taken is still in the server's memory: it is one piece."""
    with Api(server.base_url) as api, rawhttp.Connection(api.address) as line:
        api.make_log("whole")
        for _ in range(8):
            api.append("whole", "x" * 900_000)
        before = held(api)
        read = b'{"max_batch_bytes":8388608}'
        line.send(rawhttp.request("POST", "/v0/topics/whole/diff", read, JSON))
        assert eventually(lambda: held(api) - before >= 8 * 900_000), held(api)


def test_producers(api: Api) -> None:
    """A new one is refused when there are all there may be; those that exist go on."""

    def stage(producer: str, epoch: int) -> httpx.Response:
        body = {"topic": "q", "records": [{"data": 1}]}
        return api.json("POST", f"/v0/producers/{producer}/epochs/{epoch}/stage", body)

    ok(stage("a", 1))
    ok(stage("b", 1))
    for _ in range(2):
        refused(stage("c", 1), 429, "throttled", {"limit": "max_producers", "max": 2})
    commit = api.json("POST", "/v0/producers/d/epochs/1/commit", {"parts": []})
    refused(commit, 429, "throttled", {"limit": "max_producers", "max": 2})
    ok(stage("a", 2))


def test_watch_sessions_and_their_filters(small: ServerProcess) -> None:
    """Filters count, and those that cannot match anything cost nothing."""
    with Api(small.base_url, key="k1") as api:
        fill_with_sessions(api)


def fill_with_sessions(api: Api) -> None:
    """Until there is no room for one more. They stay, so this comes last."""
    nodes = [f"{number:0128}" for number in range(1000)]
    refused(api.create_watch({"q": {}}, node=[*nodes, "x"]), 400, "invalid_request")
    before = held(api)
    ok(api.create_watch({"q": {}}, node=["n" * 500_000, "x"]))
    assert held(api) - before < 2000
    kept = 0
    while (reply := api.create_watch({"q": {}}, node=nodes)).status_code == 200:
        kept += 1
        assert kept < 20
    refused(reply, 429, "throttled", {"limit": "max_client_bytes_per_key", "max": PER_KEY})
    assert kept > 5
