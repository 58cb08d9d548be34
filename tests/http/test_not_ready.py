"""Streams, sockets and routers while the server is still reading its log."""

from __future__ import annotations

from tests.http.api import JSON, Api, numbered
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Reply, ok, refused, status_of
from tests.http.ws import Socket, handshake


def answers(api: Api) -> list[Reply]:
    """One answer of each kind of route."""
    return [
        api.create_watch({"l": {}}),
        api.send("GET", "/v0/watch/wid_no"),
        api.routers(),
        api.router("r"),
        api.send("PUT", "/v0/routers/r", b'{"source":"l","dest":"d"}', JSON),
        handshake(api.address, {"sec-websocket-version": "0"}),
        handshake(api.address),
        api.send("GET", "/v0/topics/l/seq_at?ts=0"),
        api.send("GET", "/v0/log/segments"),
        api.send("GET", "/v0/log/segments/jobs-1"),
    ]


def test_recovery(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """503 not_ready with the progress on every one of them, and then as ever; never half."""
    server = fresh_server()
    api = api_for(server)
    api.make_log("l", durability="fsync")
    api.make_router("r", "l", "d")
    for start in range(0, 200_000, 10_000):
        ok(api.write("l", numbered(10_000, start), query="?return_seqs=false"))
    server.kill()
    server.spawn()
    server.wait_bound()
    again = api_for(server)
    while True:
        found = answers(again)
        waiting = [reply for reply in found if status_of(reply) == 503]
        for reply in waiting:
            assert 0.0 <= refused(reply, 503, "not_ready")["replay_progress"] <= 1.0
        if not waiting:
            break
        assert server.running
    server.wait_ready()
    bulk = [200] * 3
    statuses = [status_of(reply) for reply in answers(again)]
    assert statuses == [200, 404, 200, 200, 200, 400, 101, *bulk]
    assert ok(again.create_watch({"l": {}}))["topics"]["l"]["head_seq"] == 200_000
    with Socket(server.address) as ws:
        assert ws.subscribe("l", tail=True)["l"]["from_seq"] == 200_000
