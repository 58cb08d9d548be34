"""Routers under pressure: the destination's own rules, full destinations, sources that forget."""

from __future__ import annotations

from tests.http.api import Api, numbered, seqs_of
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import eventually, ok, refused
from tests.http.routed import Route, data, forwarded, made
from tests.http.watching import data_in, drain
from tests.http.ws import Socket, of_kind

# -- the destination's own rules ------------------------------------------------------------------


def test_a_queue_as_destination(api: Api, topic: str) -> None:
    """Copies are jobs, with counters of their own."""
    source, dest = f"{topic}s", f"{topic}d"
    api.make_queue(dest, max_deliveries=1, dead_letter=f"{topic}dlq")
    api.make_router(topic, source, dest)
    ok(api.write(source, numbered(3)))
    jobs = api.claimed(dest, max=2)
    assert [(job["$seq"], job["data"], job["deliveries"]) for job in jobs] == [(1, 0, 1), (2, 1, 1)]
    assert ok(api.ack(dest, [1]))["acked"] == 1
    ok(api.nack(dest, [2]))
    assert seqs_of(api.claimed(dest, max=5)) == [3]
    assert [record["data"] for record in api.read(f"{topic}dlq")] == [1]
    assert data(api, source) == [0, 1, 2]


def test_caps_of_the_destination(api: Api, topic: str) -> None:
    """Its oldest go; readers there get a cap tombstone, the source is untouched."""
    route = made(api, topic, dest={"cap_records": 3})
    ok(api.write(route.source, numbered(10)))
    body = ok(api.diff(route.dest))
    assert [record["data"] for record in body["records"]] == [7, 8, 9]
    assert body["tombstone"]["reason"] == "cap"
    assert api.facts(route.source, "count") == (10,)
    assert forwarded(api, route.router) == 10


def test_a_full_destination(api: Api, topic: str) -> None:
    """Case 110: the router waits, source writes do not; later it goes on in order."""
    route = made(api, topic, dest={"cap_records": 2, "discard": "reject"})
    for number in range(7):
        ok(api.write(route.source, [{"data": number}]))
    assert data(api, route.dest) == [0, 1]
    assert forwarded(api, route.router) == 2
    refused(api.write(route.dest, numbered(1)), 422, "topic_full")
    ok(api.delete(route.dest, before_seq=2))
    assert eventually(lambda: data(api, route.dest) == [1, 2])
    ok(api.delete(route.dest, before_seq=10**9))
    assert eventually(lambda: data(api, route.dest) == [3, 4])
    ok(api.put(route.dest, durability="memory"))
    assert eventually(lambda: data(api, route.dest) == [3, 4, 5, 6])
    assert seqs_of(api.read(route.dest)) == [4, 5, 6, 7]
    assert forwarded(api, route.router) == 7


def test_a_full_queue_as_destination(api: Api, topic: str) -> None:
    """Case 110: each ack makes room for the next job; one worker stream sees all in order."""
    source, dest = f"{topic}s", f"{topic}d"
    api.make_queue(dest, cap_records=3, discard="reject")
    api.make_router(topic, source, dest)
    ok(api.write(source, numbered(20)))
    found: list[int] = []
    with api.work(dest, node="w", max=2) as stream:
        for _ in range(20):
            [job] = stream.jobs(1)
            found.append(job["data"])
            ok(api.ack(dest, [job["$seq"]]))
    assert found == list(range(20))
    assert api.facts(dest, "count", "head_seq") == (0, 20)


def test_a_full_destination_does_not_hold_up_others(api: Api, topic: str) -> None:
    """Case 110: other routers of the same source go on."""
    route = made(api, topic, dest={"cap_records": 1, "discard": "reject"})
    other = f"{topic}other"
    api.make_router(other, route.source, other)
    ok(api.write(route.source, numbered(5)))
    assert data(api, other) == [0, 1, 2, 3, 4]
    assert data(api, route.dest) == [0]


def test_a_record_that_can_never_fit(api: Api, topic: str) -> None:
    """It is not skipped: the router stands still until there is room."""
    route = made(api, topic, dest={"cap_bytes": 30, "discard": "reject"})
    api.append(route.source, "small", "x" * 50, "later")
    assert data(api, route.dest) == ["small"]
    assert forwarded(api, route.router) == 1
    assert ok(api.state(route.dest))["count"] == 1
    ok(api.put(route.dest, durability="memory", cap_bytes=1000, discard="reject"))
    assert eventually(lambda: data(api, route.dest) == ["small", "x" * 50, "later"])


def test_delete_does_not_catch_up(api: Api, topic: str) -> None:
    """Case 85: copies that had not arrived are not deleted by a delete at the destination."""
    route = made(api, topic, dest={"cap_records": 2, "discard": "reject"})
    api.append(route.dest, "x", "y")
    api.append(route.source, "a", "b")
    assert ok(api.delete(route.dest, before_seq=10**18))["deleted"] == 2
    assert eventually(lambda: data(api, route.dest) == ["a", "b"])


def test_total_bytes_hold_up_copies(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """The quota of the server is back-pressure too: nothing is lost, it goes on when there is
    room."""
    api = api_for(fresh_server(MAX_TOTAL_BYTES="100"))
    api.make_log("ballast")
    route = made(api, "t")
    api.append("ballast", "x" * 58)
    api.append(route.source, "y" * 28)
    assert data(api, route.dest) == []
    refused(api.write(route.source, [{"data": "z" * 20}]), 429, "throttled")
    ok(api.delete_topic("ballast"))
    assert eventually(lambda: data(api, route.dest) == ["y" * 28])


# -- a source that forgets ------------------------------------------------------------------------


def trimmed(api: Api, topic: str) -> Route:
    """Ten records, of which two were copied and five trimmed before they could be."""
    route = made(
        api,
        topic,
        source={"cap_records": 3},
        dest={"cap_records": 2, "discard": "reject"},
    )
    ok(api.write(route.source, numbered(2, 1)))
    assert data(api, route.dest) == [1, 2]
    for number in range(3, 11):
        api.append(route.source, number)
    assert data(api, route.source) == [8, 9, 10]
    ok(api.put(route.dest, durability="memory"))
    return route


def test_a_hole(api: Api, topic: str) -> None:
    """As long as what was trimmed; records before it come first, then it is told and passed."""
    route = trimmed(api, topic)
    assert eventually(lambda: api.facts(route.dest, "head_seq") == (10,))
    before = ok(api.diff(route.dest))
    assert ([record["data"] for record in before["records"]], before["tombstone"]) == ([1, 2], None)
    assert (before["next_from_seq"], before["caught_up"]) == (2, False)
    behind = ok(api.diff(route.dest, from_seq=2))
    gap = behind["tombstone"]
    told = {name: gap[name] for name in ("gap_from", "gap_to", "reason", "missed_estimate")}
    assert told == {"gap_from": 3, "gap_to": 7, "reason": "source_trim", "missed_estimate": 5}
    assert seqs_of(behind["records"]) == [8, 9, 10]
    assert [record["data"] for record in behind["records"]] == [8, 9, 10]
    assert (behind["next_from_seq"], behind["caught_up"]) == (10, True)
    assert ok(api.diff(route.dest, from_seq=7))["tombstone"] is None
    assert forwarded(api, route.router) == 5


def test_a_hole_on_streams(api: Api, topic: str) -> None:
    """A watch says it in its place; a socket gives the true reason at once."""
    route = trimmed(api, topic)
    assert eventually(lambda: api.facts(route.dest, "head_seq") == (10,))
    with api.watch(route.dest) as stream:
        frames = drain(stream)
    events = [frame.event for frame in frames]
    assert data_in(frames) == [1, 2, 8, 9, 10]
    place = events.index("tombstone")
    assert data_in(frames[:place]) == [1, 2]
    gap = frames[place].json()
    assert (gap["gap_from"], gap["gap_to"]) == (3, 7)
    with Socket(api.address) as ws:
        ws.subscribe(route.dest)
        [gap] = of_kind(ws.drain(), "tombstone")
    assert (gap["reason"], gap["gap_from"], gap["gap_to"]) == ("source_trim", 3, 7)


def test_a_hole_in_a_queue(api: Api, topic: str) -> None:
    """Claims pass over it."""
    source, dest = f"{topic}s", f"{topic}d"
    api.make_log(source, cap_records=2)
    api.make_queue(dest, cap_records=1, discard="reject")
    api.make_router(topic, source, dest)
    api.append(source, 1)
    [job] = api.claimed(dest)
    for number in range(2, 7):
        api.append(source, number)
    ok(api.ack(dest, [job["$seq"]]))
    found: list[tuple[int, int]] = []
    for _ in range(2):
        [job] = eventually(lambda: api.claimed(dest))
        found.append((job["$seq"], job["data"]))
        ok(api.ack(dest, [job["$seq"]]))
    assert found == [(5, 5), (6, 6)]
    assert api.facts(dest, "count", "ready", "in_flight") == (0, 0, 0)
