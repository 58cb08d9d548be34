"""Routers over restarts and kills, and what becomes of them when something is deleted."""

from __future__ import annotations

from functools import partial

import pytest

from tests.http.api import Api, numbered, seqs_of
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, eventually, ok, refused
from tests.http.process import ServerProcess
from tests.http.routed import Route, data, made
from tests.http.test_router_pressure import trimmed


@pytest.fixture
def route(api: Api, topic: str) -> Route:
    """A router between two fresh logs."""
    return made(api, topic)


# -- restart --------------------------------------------------------------------------------------


def killed(server: ServerProcess, api_for: ApiFor) -> Api:
    """A client of the server after a kill and a restart."""
    server.kill()
    return api_for(server.restart())


def holds(api: Api, topic: str, count: int) -> bool:
    """Whether a topic has so many records."""
    return len(data(api, topic)) == count


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_routers_survive(fresh_server: FreshServer, api_for: ApiFor, how: str) -> None:
    """With their options; deleted ones stay gone; nothing is copied twice, nothing left out."""
    server = fresh_server()
    api = api_for(server)
    fsync: Json = {"durability": "fsync"}
    route = made(api, "t", source=fsync, dest=fsync, filter="x")
    changed: Json = {"filter": "a*", "preserve_node": False, "preserve_tag": False}
    ok(api.put_router(route.router, source=route.source, dest=route.dest, **changed))
    api.make_router("gone", route.source, "elsewhere")
    ok(api.delete_router("gone"))
    before = ok(api.router(route.router))
    records = [{"data": n, "tag": "ab"[n % 2]} for n in range(40)]
    ok(api.write(route.source, records[:30]))
    assert len(data(api, route.dest)) == 15
    ok(api.write(route.source, records[30:]))
    if how == "kill":
        server.kill()
    else:
        assert server.terminate() == 0
    again = api_for(server.restart())
    assert data(again, route.dest) == list(range(0, 40, 2))
    after = ok(again.router(route.router))
    for name in (
        "router",
        "source",
        "dest",
        "filter",
        "preserve_node",
        "preserve_tag",
        "guarantee",
    ):
        assert after[name] == before[name]
    refused(again.router("gone"), 404, "router_not_found")
    again.append_many(route.source, [{"data": "more", "tag": "ac"}])
    assert data(again, route.dest)[-2:] == [38, "more"]
    assert seqs_of(again.read(route.dest)) == list(range(1, 22))


@pytest.mark.parametrize(
    ("dest", "guarantee"),
    [("memory", "at_least_once"), ("disk", "at_least_once"), ("fsync", "exactly_once")],
)
def test_killed_while_forwarding(
    fresh_server: FreshServer, api_for: ApiFor, dest: str, guarantee: str
) -> None:
    """Twice: every acked record of an fsync source is in the destination once, in order."""
    server = fresh_server()
    api = api_for(server)
    source: Json = {"durability": "fsync"}
    route = made(api, "t", source=source, dest={"durability": dest}, guarantee=guarantee)
    written = 0
    for _ in range(2):
        for _ in range(15):
            ok(api.write(route.source, numbered(7, written)))
            written += 7
        api = killed(server, api_for)
        assert eventually(partial(holds, api, route.dest, written))
        assert data(api, route.dest) == data(api, route.source) == list(range(written))


def test_stalled_over_a_kill(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Case 110: the place is kept, and the rest comes when there is room."""
    server = fresh_server()
    api = api_for(server)
    route = made(
        api,
        "t",
        source={"durability": "fsync"},
        dest={"durability": "fsync", "cap_records": 2, "discard": "reject"},
    )
    ok(api.write(route.source, numbered(6)))
    assert data(api, route.dest) == [0, 1]
    again = killed(server, api_for)
    assert data(again, route.dest) == [0, 1]
    ok(again.delete(route.dest, before_seq=3))
    assert eventually(lambda: data(again, route.dest) == [2, 3])
    ok(again.put(route.dest, durability="fsync"))
    assert eventually(lambda: data(again, route.dest) == [2, 3, 4, 5])


@pytest.mark.parametrize("dest", ["memory", "disk", "fsync"])
@pytest.mark.parametrize("source", ["ephemeral", "memory", "disk"])
def test_a_source_that_promises_less(
    fresh_server: FreshServer, api_for: ApiFor, source: str, dest: str
) -> None:
    """Copies that were read from an fsync destination stay; what is written later is copied."""
    server = fresh_server()
    api = api_for(server)
    route = made(api, "t", source={"durability": source}, dest={"durability": dest})
    for start in range(0, 300, 100):
        ok(api.write(route.source, numbered(100, start)))
    assert data(api, route.dest) == list(range(300))
    again = killed(server, api_for)
    kept = data(again, route.dest)
    assert kept == list(range(len(kept)))
    if dest == "fsync":
        assert len(kept) == 300
    for number in range(5):
        again.append(route.source, f"later {number}")
    assert data(again, route.dest) == [*kept, *(f"later {number}" for number in range(5))]


def test_copies_outlive_the_log_of_their_source(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """When the source is gone and its part of the log was given back, copies are still whole."""
    server = fresh_server(SEGMENT_MAX_BYTES=str(1 << 20))
    api = api_for(server)
    route = made(api, "t", source={"durability": "disk"}, dest={"durability": "disk"})
    expected = [f"{number}:" + "x" * 500 for number in range(100)]
    for start in range(0, 100, 10):
        api.append(route.source, *expected[start : start + 10])
    assert data(api, route.dest) == expected
    first = min((server.data_dir / "jobs").iterdir())
    ok(api.delete_topic(route.source))
    ok(api.put("junk", durability="disk", cap_records=1), 201)
    for _ in range(14):
        api.append("junk", "j" * 1_000_000)
    assert eventually(lambda: not first.exists())
    assert data(api, route.dest) == expected
    again = killed(server, api_for)
    assert data(again, route.dest) == expected


def test_acked_copies_stay_acked_over_a_kill(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """A job that came by a router and was acked on an fsync queue never comes again."""
    server = fresh_server()
    api = api_for(server)
    ok(api.put("q", type="queue", durability="fsync"), 201)
    ok(api.put("s", durability="fsync"), 201)
    api.make_router("r", "s", "q")
    ok(api.write("s", numbered(10)))
    jobs = api.claimed("q", max=4)
    ok(api.ack("q", seqs_of(jobs)))
    again = killed(server, api_for)
    assert [job["data"] for job in again.claimed("q", max=100)] == [4, 5, 6, 7, 8, 9]


def test_a_hole_survives_a_kill(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Readers are told after a restart as before."""
    server = fresh_server()
    api = api_for(server)
    route = trimmed(api, "t")
    assert eventually(lambda: api.facts(route.dest, "head_seq") == (10,))
    ok(api.put(route.dest, durability="fsync"))
    api.append(route.dest, "anchor")
    again = killed(server, api_for)
    behind = ok(again.diff(route.dest, from_seq=2))
    gap = behind["tombstone"]
    assert (gap["gap_from"], gap["gap_to"], gap["reason"]) == (3, 7, "source_trim")
    assert [record["data"] for record in behind["records"]] == [8, 9, 10, "anchor"]


# -- deletion -------------------------------------------------------------------------------------


def test_a_deleted_router_copies_no_more(api: Api, route: Route) -> None:
    """Past copies stay."""
    api.append(route.source, 1)
    assert data(api, route.dest) == [1]
    ok(api.delete_router(route.router))
    api.append(route.source, 2)
    assert data(api, route.dest) == [1]
    assert data(api, route.source) == [1, 2]


def test_a_deleted_source(api: Api, topic: str) -> None:
    """Case 111: what was not copied is lost with it; the router is gone, its copies stay."""
    route = made(api, topic, dest={"cap_records": 1, "discard": "reject"})
    ok(api.write(route.source, numbered(3)))
    assert data(api, route.dest) == [0]
    assert ok(api.delete_topic(route.source))["routers_removed"] == [route.router]
    refused(api.router(route.router), 404, "router_not_found")
    ok(api.put(route.dest, durability="memory"))
    assert data(api, route.dest) == [0]
    api.make_log(route.source)
    api.append(route.source, "new life")
    assert data(api, route.dest) == [0]


def test_a_deleted_destination(api: Api, route: Route) -> None:
    """Case 39: it is not made again by a later write to the source."""
    api.append(route.source, 1)
    assert ok(api.delete_topic(route.dest))["routers_removed"] == [route.router]
    api.append(route.source, 2)
    refused(api.diff(route.dest), 404, "topic_not_found")
    api.make_router(route.router, route.source, route.dest)
    api.append(route.source, 3)
    assert data(api, route.dest) == [3]
    assert seqs_of(api.read(route.dest)) == [1]


def test_deletion_over_a_kill(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Routers removed with a topic stay removed."""
    server = fresh_server()
    api = api_for(server)
    one, two = made(api, "a"), made(api, "b")
    ok(api.delete_topic(one.source))
    ok(api.delete_topic(two.dest))
    again = killed(server, api_for)
    assert ok(again.routers())["routers"] == []
    assert [entry["topic"] for entry in ok(again.topics())["topics"]] == ["ad", "bs"]
