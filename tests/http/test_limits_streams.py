"""Caps on streams of all kinds and on watch sessions, and what the metrics say of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import InvalidStatus

from tests.http import rawhttp
from tests.http.api import Api, numbered
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, eventually, ok, plain_ok, refused
from tests.http.process import ServerProcess
from tests.http.sse import Stream
from tests.http.watching import drain
from tests.http.ws import Socket, handshake

Opened = Stream | Socket
Opener = Callable[[Api, str | None], Opened | None]


def watch(api: Api, key: str | None = None) -> Opened | None:
    """A watch stream on the log; None when it is refused."""
    return admitted(api.watch("l"))


def work(api: Api, key: str | None = None) -> Opened | None:
    """A work stream on the queue; None when it is refused."""
    return admitted(api.work("q", node="w"))


def socket(api: Api, key: str | None = None) -> Opened | None:
    """A WebSocket; None when it is refused."""
    try:
        return Socket(api.address, key=key)
    except InvalidStatus as refusal:
        assert refusal.response.status_code == 429
        return None


def admitted(stream: Stream) -> Stream | None:
    """The stream; None when it was refused for want of a slot."""
    if stream.status == 200:
        return stream
    assert stream.status == 429
    stream.close()
    return None


KINDS: dict[str, Opener] = {"watch": watch, "work": work, "socket": socket}


def prepared(server: ServerProcess, key: str | None = None) -> Api:
    """A client of a server with a log and a queue."""
    api = Api(server.base_url, key=key)
    api.make_log("l")
    api.make_queue("q")
    return api


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server with room for one stream."""
    directory = tmp_path_factory.mktemp("single") / "data"
    process = ServerProcess(directory, settings={"MAX_SSE_CONNECTIONS": "1"}).start()
    with prepared(process) as api:
        yield api
    process.stop()


def opened(opener: Opener, api: Api, key: str | None = None) -> Opened:
    """A stream, as soon as there is room for it."""
    found = eventually(lambda: opener(api, key))
    assert found is not None
    return found


def refusals(api: Api, key: str | None = None) -> list[rawhttp.RawReply]:
    """What an opening of each kind answers when there is no room."""
    wid = ok(api.create_watch({"l": {}}))["wid"]
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    paths = (f"/v0/watch/{wid}", "/v0/topics/q/work?node=w")
    replies = [api.raw(rawhttp.head("GET", path, headers)) for path in paths]
    return [*replies, handshake(api.address, headers)]


@pytest.mark.parametrize("leave", ["close", "reset"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_slot_comes_back(single: Api, kind: str, leave: str) -> None:
    """Case 141: polite close and reset free it for a stream of any kind; 429 until then."""
    held = opened(KINDS[kind], single)
    for reply in refusals(single):
        refused(reply, 429, "throttled", None)
    held.close() if leave == "close" else held.reset()
    for opener in KINDS.values():
        opened(opener, single).close()


def test_refusals_use_nothing_up(single: Api) -> None:
    """Case 141: neither those of the cap nor any other."""
    held = opened(watch, single)
    for _ in range(3):
        for reply in refusals(single):
            assert reply.status == 429
    held.close()
    eventually(lambda: opened(watch, single)).close()
    for _ in range(3):
        assert single.send("GET", "/v0/watch/wid_no").status_code == 404
        assert single.send("GET", "/v0/topics/no/work?node=w").status_code == 404
        assert single.send("GET", "/v0/topics/l/work?node=w").status_code == 409
        assert single.send("GET", "/v0/ws").status_code in (400, 426)
    opened(socket, single).close()


def test_a_stream_that_ends_by_itself(single: Api) -> None:
    """A watch whose topics are all gone gives its slot back."""
    for _ in range(3):
        single.make_log("brief")
        stream = eventually(lambda: admitted(single.watch("brief")))
        assert stream is not None
        with stream:
            drain(stream)
            ok(single.delete_topic("brief"))
            assert stream.next_event().event == "topic-deleted"
            assert stream.ended()
            opened(work, single).close()


def test_a_lenient_stream_with_no_topics(single: Api) -> None:
    """Case 89: it ends at once and holds nothing."""
    wid = ok(single.create_watch({"absent": {}}, query="?lenient=1"))["wid"]
    opened(work, single).close()
    for _ in range(3):
        stream = eventually(lambda: admitted(single.open_watch(wid)))
        assert stream is not None
        with stream:
            assert stream.ended()
    opened(socket, single).close()


def test_making_a_session_needs_no_slot(single: Api) -> None:
    """Nor does anything else that is not a stream."""
    with opened(socket, single) as held:
        assert isinstance(held, Socket)
        ok(single.create_watch({"l": {}}))
        ok(single.write("l", numbered(1)))
        assert held.call("ping")["op"] == "pong"


def test_all_kinds_count_together(fresh_server: FreshServer) -> None:
    """Case 141: watch, work and sockets share one cap."""
    with prepared(fresh_server(MAX_SSE_CONNECTIONS="3")) as api, ExitStack() as held:
        for opener in KINDS.values():
            held.enter_context(opened(opener, api))
        for reply in refusals(api):
            refused(reply, 429, "throttled", None)


def test_each_key_has_its_own_count(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """All kinds together, per key."""
    server = fresh_server(key="k1", API_KEYS="k1,k2", MAX_SSE_CONNECTIONS_PER_KEY="3")
    with prepared(server, "k1") as one, ExitStack() as held:
        two = api_for(server, "k2")
        for opener in KINDS.values():
            held.enter_context(opened(opener, one, "k1"))
        for reply in refusals(one, "k1"):
            refused(reply, 429, "throttled", None)
        for opener in KINDS.values():
            held.enter_context(opened(opener, two, "k2"))
        held.close()
        for opener in KINDS.values():
            opened(opener, one, "k1").close()


def test_the_cap_of_the_server_holds_for_all_keys(
    fresh_server: FreshServer, api_for: ApiFor
) -> None:
    """Whichever cap is reached first; a refusal by one takes no place in the other."""
    settings = {"MAX_SSE_CONNECTIONS": "2", "MAX_SSE_CONNECTIONS_PER_KEY": "1"}
    server = fresh_server(key="k1", API_KEYS="k1,k2,k3", **settings)
    with prepared(server, "k1") as one, ExitStack() as held:
        two, three = api_for(server, "k2"), api_for(server, "k3")
        held.enter_context(opened(socket, one, "k1"))
        for _ in range(3):
            assert watch(one) is None
        held.enter_context(opened(watch, two, "k2"))
        for _ in range(3):
            assert work(three) is None
        held.close()
        opened(work, three, "k3").close()


def test_no_caps_per_key_without_keys(fresh_server: FreshServer) -> None:
    """Case 142: in dev mode there are no keys to count for."""
    server = fresh_server(MAX_SSE_CONNECTIONS_PER_KEY="1", MAX_INFLIGHT_PER_KEY="1")
    with prepared(server) as api, ExitStack() as held:
        for opener in (*KINDS.values(), *KINDS.values()):
            held.enter_context(opened(opener, api))


def test_streams_are_no_requests_in_progress(fresh_server: FreshServer) -> None:
    """Case 142: neither watch streams nor sockets count, nor what is published over them."""
    server = fresh_server(key="k", API_KEYS="k", MAX_INFLIGHT_PER_KEY="1")
    with prepared(server, "k") as api, ExitStack() as held:
        for opener in KINDS.values():
            held.enter_context(opened(opener, api, "k"))
        with Socket(api.address, key="k") as ws:
            ws.subscribe("l")
            ok(api.write("l", numbered(1)))
            assert ws.publish("l", 1)["seqs"] == [2]
        ok(api.topics())


def test_watch_sessions(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Sessions count whether open or not; 400 and 404 come before the cap."""
    server = fresh_server(MAX_WATCH_SESSIONS="2")
    with prepared(server) as api:
        wids = [ok(api.create_watch({"l": {}}))["wid"] for _ in range(2)]
        detail = {"limit": "max_watch_sessions", "max": 2}
        refused(api.create_watch({"l": {}}), 429, "throttled", detail)
        refused(api.create_watch({"no": {}}, query="?lenient=1"), 429, "throttled", detail)
        refused(api.create_watch({"no": {}}), 404, "topic_not_found")
        refused(api.create_watch({}), 400, "invalid_request")
        for wid in wids:
            with api.open_watch(wid) as stream:
                drain(stream)
                refused(api.create_watch({"l": {}}), 429, "throttled", detail)
        with Socket(api.address) as ws:
            ws.subscribe("l")
    again = api_for(server.restart())
    again.make_log("new")
    ok(again.create_watch({"new": {}}))


def test_watch_sessions_under_a_race(fresh_server: FreshServer) -> None:
    """Never more than the cap."""
    with prepared(fresh_server(MAX_WATCH_SESSIONS="5")) as api, ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: api.create_watch({"l": {}}), range(20)))
    assert sorted(reply.status_code for reply in replies) == [200] * 5 + [429] * 15


def test_quotas_hold_for_what_is_published(fresh_server: FreshServer) -> None:
    """Refused with the engine's code; the socket goes on."""
    with (
        prepared(fresh_server(MAX_TOPICS="2", MAX_TOTAL_BYTES="10")) as api,
        Socket(api.address) as ws,
    ):
        assert ws.call("publish", topic="n", records=numbered(1))["code"] == "throttled"
        assert ws.publish("l", "x" * 8)["seqs"] == [1]
        assert ws.call("publish", topic="l", records=numbered(1))["code"] == "throttled"
        ok(api.delete("l", before_seq=2))
        assert ws.publish("l", 1)["seqs"] == [2]


def test_zero_is_no_limit(fresh_server: FreshServer) -> None:
    """For sessions, streams and routers."""
    names = [
        "MAX_ROUTERS",
        "MAX_WATCH_SESSIONS",
        "MAX_SSE_CONNECTIONS",
        "MAX_SSE_CONNECTIONS_PER_KEY",
        "MAX_INFLIGHT_PER_KEY",
    ]
    server = fresh_server(key="k", API_KEYS="k", **dict.fromkeys(names, "0"))
    with prepared(server, "k") as api, ExitStack() as held:
        for opener in (*KINDS.values(), *KINDS.values()):
            held.enter_context(opened(opener, api, "k"))
        api.make_router("r", "l", "d")


# -- metrics --------------------------------------------------------------------------------------


def metrics(api: Api) -> Json:
    """The JSON form of the metrics."""
    return plain_ok(api.send("GET", "/v0/metrics", None, {"accept": "application/json"}))


def gauge(api: Api, *words: str) -> list[float]:
    """Values of the unlabelled gauges whose name has all these words."""
    text = api.send("GET", "/v0/metrics").text
    return [
        sample.value
        for family in text_string_to_metric_families(text)
        if family.type == "gauge" and all(word in family.name for word in words)
        for sample in family.samples
        if not sample.labels
    ]


def shows(api: Api, expected: dict[str, Any]) -> bool:
    """Whether both forms of the metrics have these values."""
    found = metrics(api)
    return {name: found[name] for name in expected} == expected


def test_metrics(fresh_server: FreshServer) -> None:
    """Open streams of all kinds, sessions, routers; down again when they end."""
    with prepared(fresh_server()) as api:
        assert shows(api, {"sse_connections": 0, "watch_sessions": 0, "routers": 0})
        api.make_router("r1", "l", "d1")
        api.make_router("r2", "l", "d2")
        with ExitStack() as held:
            for count, opener in enumerate(KINDS.values(), 1):
                held.enter_context(opened(opener, api))
                assert eventually(partial(shows, api, {"sse_connections": count}))
            ok(api.create_watch({"l": {}}))
            assert shows(api, {"sse_connections": 3, "watch_sessions": 2, "routers": 2})
            assert 3.0 in gauge(api, "sse", "connections")
            assert 2.0 in gauge(api, "watch", "sessions")
            assert 2.0 in gauge(api, "routers")
        assert eventually(lambda: shows(api, {"sse_connections": 0}))
        assert shows(api, {"watch_sessions": 2})
        ok(api.delete_router("r1"))
        ok(api.delete_topic("d2"))
        assert shows(api, {"routers": 0})
        assert plain_ok(api.send("GET", "/v0/ready"))["topics"] == 3
