"""Resource limits: 429 with Retry-After, exact counts, capacity that comes back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.http import rawhttp
from tests.http.api import Api, numbered, seqs_of
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import eventually, ok, plain_ok, refused
from tests.http.sse import Stream

TWO_TOPICS = {"limit": "max_topics", "max": 2}


def test_topics(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Case 36: new topics by PUT or write are refused at the cap, known ones are not."""
    api = api_for(fresh_server(MAX_TOPICS="2"))
    api.make_log("a")
    ok(api.write("b", numbered(1)), 201)
    refused(api.put("c"), 429, "throttled", TWO_TOPICS)
    refused(api.write("c", numbered(1)), 429, "throttled", TWO_TOPICS)
    refused(api.state("c"), 404, "topic_not_found")
    assert ok(api.put("a", durability="memory", ttl_ms=9_000_000))["created"] is False
    ok(api.write("b", numbered(1)))
    # checks that come before the cap
    refused(api.put("-c"), 400, "invalid_request")
    refused(api.put("b", type="queue"), 409, "topic_exists_incompatible")
    refused(api.write("c", numbered(1), config={"dead_letter": "-"}), 400, "invalid_request")
    refused(api.write("c", numbered(1), create=False), 404, "topic_not_found")
    ok(api.delete_topic("a"))
    ok(api.write("c", numbered(1)), 201)


def test_topics_under_a_race(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Never more than the cap, however many try at once."""
    api = api_for(fresh_server(MAX_TOPICS="5"))
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda number: api.put(f"t{number}"), range(20)))
    statuses = sorted(reply.status_code for reply in replies)
    assert statuses == [201] * 5 + [429] * 15
    assert len(ok(api.topics())["topics"]) == 5


def test_no_room_for_a_dead_letter_topic(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Case 131: the job stays ready in the source, with its counter, and moves later."""
    api = api_for(fresh_server(MAX_TOPICS="2"))
    api.make_queue("q", max_deliveries=1, dead_letter="dlq")
    api.make_log("other")
    api.append("q", "bad")
    api.claimed("q")
    ok(api.nack("q", [1]))
    assert ok(api.claim("q"))["claimed"] == []
    assert api.facts("q", "count", "in_flight", "dead_lettered") == (1, 0, 0)
    refused(api.state("dlq"), 404, "topic_not_found")
    ok(api.delete_topic("other"))

    def moved() -> bool:
        assert api.claimed("q") == []
        return api.state("dlq").status_code == 200

    assert eventually(moved)
    assert api.facts("dlq", "count") == (1,)
    assert api.facts("q", "count", "dead_lettered") == (0, 1)


def test_total_bytes(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Case 143, case 55: live bytes of all topics; 422 comes first, a retry needs no room."""
    api = api_for(fresh_server(MAX_TOTAL_BYTES="100"))
    detail = {"limit": "max_total_bytes", "max": 100}
    api.make_queue("q", discard="reject", cap_records=2)
    api.make_log("l")
    first = ok(api.write("q", [{"data": "x" * 48}], idempotency_key="k"))
    ok(api.write("l", [{"data": "x" * 38}]))
    refused(api.write("l", [{"data": "x" * 9}]), 429, "throttled", detail)
    assert api.facts("l", "head_seq") == (1,)
    ok(api.write("l", [{"data": "x" * 8}]))
    refused(api.write("l", [{"data": 1}]), 429, "throttled", detail)
    again = ok(api.write("q", [{"data": "x" * 48}], idempotency_key="k"))
    assert (again["deduped"], again["seqs"]) == (True, first["seqs"])
    ok(api.delete_topic("l"))
    ok(api.write("q", [{"data": "x" * 48}]))
    refused(api.write("q", [{"data": "x" * 10}]), 422, "topic_full")
    ok(api.ack("q", seqs_of(api.claimed("q"))))
    refused(api.write("q", [{"data": "x" * 49}]), 429, "throttled", detail)
    assert ok(api.write("q", [{"data": "x" * 48}]))["seqs"] == [3]


def test_eviction_gives_bytes_back(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """A topic with a cap and discard old gives back what it evicts."""
    api = api_for(fresh_server(MAX_TOTAL_BYTES="100"))
    api.make_log("l", cap_records=1)
    for _ in range(5):
        ok(api.write("l", [{"data": "x" * 38}]))
    assert api.facts("l", "bytes", "head_seq") == (40, 5)


def test_open_streams(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Case 141: the cap counts open streams only; closing one frees a slot at once."""
    api = api_for(fresh_server(MAX_SSE_CONNECTIONS="2"))
    api.make_queue("q")
    api.make_log("l")

    def attempt() -> rawhttp.RawReply:
        return api.raw(rawhttp.request("GET", "/v0/topics/q/work?node=w"))

    with api.work("q", node="a") as one, api.work("q", node="b") as two:
        one.next_frame()
        two.next_frame()
        refused(attempt(), 429, "throttled", None)
        # checks that come before the cap
        for path, status in (
            ("q/work?node=", 400),
            ("no/work?node=w", 404),
            ("l/work?node=w", 409),
        ):
            assert api.send("GET", f"/v0/topics/{path}").status_code == status
        ok(api.write("q", numbered(1)))
        two.close()
        assert eventually(lambda: opens(api))
        one.reset()
    assert eventually(lambda: opens(api))


def opens(api: Api, key: str | None = None) -> bool:
    """True when a stream can be opened now; it is closed again."""
    with api.work("q", node="x", key=key) as stream:
        return stream.status == 200


@pytest.mark.parametrize("ending", ["close", "reset", "delete"])
def test_slots_come_back_however_a_stream_ends(
    fresh_server: FreshServer, api_for: ApiFor, ending: str
) -> None:
    """Polite close, reset, deleted queue: the slot is free, again and again."""
    api = api_for(fresh_server(MAX_SSE_CONNECTIONS="1"))
    for _ in range(3):
        api.make_queue("q")
        assert eventually(lambda: opens(api))
        [stream] = eventually(lambda: usable(api))
        if ending == "delete":
            ok(api.delete_topic("q"))
            stream.close()
            continue
        stream.close() if ending == "close" else stream.reset()
        ok(api.delete_topic("q"))


def usable(api: Api) -> list[Stream]:
    """An open stream, or nothing after a refusal."""
    stream = api.work("q", node="x")
    if stream.status == 200:
        return [stream]
    stream.close()
    return []


def test_open_streams_per_key(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Each key has its own count."""
    server = fresh_server(API_KEYS="k1,k2", MAX_SSE_CONNECTIONS_PER_KEY="1")
    one, two = api_for(server, "k1"), api_for(server, "k2")
    one.make_queue("q")
    with one.work("q", node="a") as held:
        held.next_frame()
        with one.work("q", node="b") as refusal:
            assert refusal.status == 429
            assert refusal.headers["retry-after"] == "1"
        assert opens(two)
    assert eventually(lambda: opens(one))


def test_requests_in_progress_per_key(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Case 142: waiting claims count, streams do not; each key by itself."""
    server = fresh_server(API_KEYS="k1,k2", MAX_INFLIGHT_PER_KEY="2")
    one, two = api_for(server, "k1"), api_for(server, "k2")
    one.make_queue("slow", claim_jitter_ms=2000)
    one.make_queue("q")
    with one.work("q", node="s") as stream, ThreadPoolExecutor(2) as pool:
        stream.next_frame()
        waiting = [
            pool.submit(one.claim, "slow", "w"),
            pool.submit(one.claim, "slow", "x"),
        ]
        assert eventually(lambda: one.topics().status_code == 429)
        refused(one.topics(), 429, "throttled", None)
        refused(one.send("GET", "/v0/nosuch"), 429, "throttled", None)  # before the route
        refused(one.send("GET", "/v0/metrics"), 429, "throttled", None)
        plain_ok(one.send("GET", "/v0/health"))
        ok(two.topics())
        assert opens(two)
        for each in waiting:
            ok(each.result())
    assert eventually(lambda: one.topics().status_code == 200)


def test_no_caps_per_key_without_keys(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Case 142: in dev mode there are no keys to count for."""
    api = api_for(fresh_server(MAX_INFLIGHT_PER_KEY="1", MAX_SSE_CONNECTIONS_PER_KEY="1"))
    api.make_queue("q", claim_jitter_ms=300)
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda number: api.claim("q", f"w{number}"), range(4)))
    assert [reply.status_code for reply in replies] == [200] * 4
    with api.work("q", node="a") as held:
        held.next_frame()
        assert opens(api)


def test_zero_is_no_limit(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """For every quota."""
    names = [
        "MAX_TOPICS",
        "MAX_ROUTERS",
        "MAX_WATCH_SESSIONS",
        "MAX_SSE_CONNECTIONS",
        "MAX_SSE_CONNECTIONS_PER_KEY",
        "MAX_INFLIGHT_PER_KEY",
        "MAX_TOTAL_BYTES",
    ]
    server = fresh_server(API_KEYS="k", **dict.fromkeys(names, "0"))
    api = api_for(server, "k")
    api.make_queue("q")
    ok(api.write("q", numbered(10)))
    assert opens(api)
