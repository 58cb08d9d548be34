"""The work stream: jobs pushed, slots, disconnects, refusals, end frames."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping

import pytest

from tests.http import rawhttp
from tests.http.api import JSON, Api, numbered, seqs_of
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import eventually, now_ms, ok, refused
from tests.http.observations import Observations
from tests.http.sse import Stream


def open_work(api: Api, queue: str, query: str, headers: Mapping[str, str]) -> rawhttp.RawReply:
    """What an opening attempt gets that is expected to be refused."""
    return api.raw(rawhttp.request("GET", f"/v0/topics/{queue}/work{query}", None, headers))


def test_the_opening(api: Api, queue: str) -> None:
    """Headers of an event stream, retry: 2000, then a heartbeat at once."""
    with api.work(queue, node="w") as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].partition(";")[0] == "text/event-stream"
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-accel-buffering"] == "no"
        first = stream.next_frame()
        assert first.retry == "2000"
        if first.comment is None:
            assert stream.next_frame().comment == "hb"
        else:
            assert first.comment == "hb"
        assert all(frame.event is None for frame in stream.frames)


def test_a_job_frame(api: Api, queue: str) -> None:
    """The streaming form of a claimed entry: id, event, one line of compact JSON."""
    record = {"data": {"a": [1, 2]}, "tag": "t", "meta": {"m": 1}, "node": "producer"}
    api.append_many(queue, [record, {"data": None}])
    before = now_ms()
    with api.work(queue, node="w", max=2) as stream:
        first, second = stream.next_event(), stream.next_event()
    assert (first.event, first.id, second.id) == ("job", "1", "2")
    assert first.data is not None
    assert '"$seq":1' in first.data
    assert '"data":{"a":[1,2]}' in first.data
    job = first.json()
    always = {"topic", "$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}
    assert set(job) == always | {"$tag", "meta"}
    assert set(second.json()) == always
    assert (job["topic"], job["$seq"], job["deliveries"]) == (queue, 1, 1)
    assert (job["$tag"], job["meta"], job["data"]) == ("t", {"m": 1}, {"a": [1, 2]})
    assert before + 29_000 <= job["deadline"] <= now_ms() + 30_001


def test_payloads_with_line_breaks_stay_on_one_line(api: Api, queue: str) -> None:
    """Blanks between tokens of a payload, and breaks inside its text, never split a frame."""
    content = b'{"records":[{"data":{\r\n"a"\n:\n"b\\n\\nc\\u2028"\n}\n}]}'
    ok(api.send("POST", f"/v0/topics/{queue}", content, JSON))
    with api.work(queue, node="w") as stream:
        assert stream.jobs(1)[0]["data"] == {"a": "b\n\nc\u2028"}


def test_jobs_come_as_they_are_written(api: Api, queue: str) -> None:
    """An open stream is woken by appends."""
    with api.work(queue, node="w", max=10) as stream:
        for number in range(3):
            api.append(queue, number)
            assert stream.jobs(1)[0]["data"] == number


@pytest.mark.parametrize(
    ("query", "given"),
    [("", 1), ("&max=0", 1), ("&max=1", 1), ("&max=3", 3), ("&max=5000", 1000)],
)
def test_max(api: Api, queue: str, query: str, given: int) -> None:
    """Case 97: at most so many unacked jobs on the stream; 0 is 1, 5000 is 1000."""
    ok(api.write(queue, numbered(1002)))
    with Stream(api.address, f"/v0/topics/{queue}/work?node=w{query}") as stream:
        assert seqs_of(stream.jobs(given, 10.0)) == list(range(1, given + 1))
        assert stream.quiet(0.3)
        assert api.facts(queue, "in_flight") == (given,)


def test_a_settled_job_frees_its_slot(api: Api, queue: str) -> None:
    """Ack and nack let the next job in; extend does not."""
    ok(api.write(queue, numbered(4)))
    with api.work(queue, node="w", max=2) as stream:
        assert seqs_of(stream.jobs(2)) == [1, 2]
        ok(api.extend(queue, [1, 2]))
        assert stream.quiet(0.3)
        ok(api.ack(queue, [1]))
        assert seqs_of(stream.jobs(1)) == [3]
        ok(api.nack(queue, [2]))
        [again] = stream.jobs(1)
        assert (again["$seq"], again["deliveries"]) == (2, 2)
        ok(api.nack(queue, [3], delay_ms=86_400_000))
        assert seqs_of(stream.jobs(1)) == [4]


def test_ack_from_elsewhere(api: Api, queue: str) -> None:
    """Case 100: any connection with the node's name, with the job's token."""
    api.append(queue, 1, 2)
    with api.work(queue, node="w") as stream:
        [job] = stream.jobs(1)
        assert ok(api.ack(queue, [1], "other"))["acked"] == 0
        assert ok(api.ack(queue, [1], "w", lease_ids=[job["lease_id"]]))["acked"] == 1
        assert seqs_of(stream.jobs(1)) == [2]


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_disconnect_releases(api: Api, queue: str, how: str) -> None:
    """Case 98: all unacked jobs claimable at once, with their counters."""
    api.append(queue, 1, 2, 3, 4)
    stream = api.work(queue, node="w", max=4)
    jobs = stream.jobs(4)
    ok(api.ack(queue, [2]))
    stream.close() if how == "close" else stream.reset()
    assert eventually(lambda: api.facts(queue, "ready", "in_flight") == (3, 0))
    again = api.claimed(queue, "other", max=5)
    assert [(job["$seq"], job["deliveries"]) for job in again] == [(1, 2), (3, 2), (4, 2)]
    assert ok(api.ack(queue, [1], lease_ids=[jobs[0]["lease_id"]]))["skipped"] == [1]


def test_only_this_connection_releases(api: Api, queue: str) -> None:
    """Leases of a claim and of another stream of the same node stay."""
    api.append(queue, 1, 2, 3)
    [polled] = api.claimed(queue, "w")
    with api.work(queue, node="w") as one:
        assert seqs_of(one.jobs(1)) == [2]
        with api.work(queue, node="w") as two:
            assert seqs_of(two.jobs(1)) == [3]
        assert eventually(lambda: api.facts(queue, "ready", "in_flight") == (1, 2))
        assert ok(api.ack(queue, [1], "w", lease_ids=[polled["lease_id"]]))["acked"] == 1
        assert one.quiet(0.3)


def test_a_lease_that_expires_on_the_stream(api: Api, queue: str) -> None:
    """Case 99: the slot frees, and the job may come again under a new lease."""
    api.append(queue, 1)
    with api.work(queue, node="w", lease_ms=150) as stream:
        first, second = stream.jobs(2)
        assert (first["$seq"], second["$seq"], second["deliveries"]) == (1, 1, 2)
        assert first["lease_id"] != second["lease_id"]
        assert second["deadline"] > first["deadline"]


def test_a_delayed_job_comes_when_due(api: Api, queue: str) -> None:
    """Due delays wake the stream without anybody asking."""
    api.append(queue, 1)
    with api.work(queue, node="w") as stream:
        stream.jobs(1)
        before = now_ms()
        ok(api.nack(queue, [1], delay_ms=300))
        assert seqs_of(stream.jobs(1)) == [1]
        assert now_ms() >= before + 300


@pytest.mark.parametrize(
    ("query", "lease_ms"),
    [
        ("", 7000),
        ("&lease_ms=1000", 1000),
        ("&lease_ms=0", 100),
        ("&lease_ms=1000000000000", 86_400_000),
    ],
)
def test_lease_times(api: Api, topic: str, query: str, lease_ms: int) -> None:
    """That of the query, clamped, else the topic's."""
    api.make_queue(topic, lease_ms=7000)
    api.append(topic, 1)
    before = now_ms()
    with Stream(api.address, f"/v0/topics/{topic}/work?node=w{query}") as stream:
        [job] = stream.jobs(1)
    assert before + lease_ms - 1 <= job["deadline"] <= now_ms() + lease_ms + 1


@pytest.mark.parametrize(
    ("accept", "opened"),
    [
        (None, True),
        ("", True),
        ("text/event-stream", True),
        ("*/*", True),
        ("text/html, text/event-stream;q=0.5", True),
        ("text/html, */*;q=0.1", True),
        ("text/*", False),
        ("application/json", False),
        ("text/html", False),
    ],
)
def test_accept(api: Api, queue: str, accept: str | None, opened: bool) -> None:
    """Absent, empty, event-stream or anything; else 406."""
    headers = {} if accept is None else {"accept": accept}
    content = rawhttp.head("GET", f"/v0/topics/{queue}/work?node=w", headers)
    with rawhttp.Connection(api.address) as connection:
        connection.send(content)
        if not opened:
            refused(connection.read_reply(), 406, "not_acceptable", None)
            return
        status, answered = connection.read_head(time.monotonic() + 5.0)
        assert (status, answered["content-type"][:17]) == (200, "text/event-stream")


BAD_QUERIES = [
    "",  # case 97
    "?",
    "?node=",
    "?max=1",
    "?node=" + "n" * 129,
    "?node=w&max=abc",  # case 97
    "?node=w&max=-1",
    "?node=w&max=1.0",
    "?node=w&max=",
    "?node=w&max=4294967296",
    "?node=w&max=1e3",
    "?node=w&lease_ms=abc",
    "?node=w&heartbeat_ms=soon",
    "?node=w&lease_ms=-1",
    "?node=w&lease_ms=",
    "?node=w&lease_ms=1.5",
    "?node=w&lease_ms=18446744073709551616",
]


@pytest.mark.parametrize("query", BAD_QUERIES)
def test_bad_queries(api: Api, queue: str, query: str) -> None:
    """Case 97: 400, also on an absent topic; but 406 comes first."""
    refused(open_work(api, queue, query, {}), 400, "invalid_request")
    refused(open_work(api, f"{queue}no", query, {}), 400, "invalid_request")
    html = {"accept": "text/html"}
    refused(open_work(api, queue, query, html), 406, "not_acceptable", None)
    assert api.facts(queue, "in_flight") == (0,)


def test_order_of_checks(api: Api, log: str) -> None:
    """406, 400, 404, 409."""
    html = {"accept": "text/html"}
    refused(open_work(api, f"{log}no", "?node=w", html), 406, "not_acceptable", None)
    refused(open_work(api, f"{log}no", "?node=w", {}), 404, "topic_not_found")
    refused(open_work(api, log, "?max=x", {}), 400, "invalid_request")
    refused(open_work(api, log, "?node=w", {}), 409, "not_a_queue", {"topic": log})


def test_what_the_stream_ignores(api: Api, queue: str) -> None:
    """Last-Event-ID, unknown parameters, a token in dev mode; the node is decoded."""
    api.append(queue, 1)
    query = "?node=a%20b%2B%C3%A9+c&no_such=1&token=xyz"
    headers = {"last-event-id": "17"}
    with Stream(api.address, f"/v0/topics/{queue}/work{query}", headers) as stream:
        assert seqs_of(stream.jobs(1)) == [1]
        assert ok(api.ack(queue, [1], "a b+é c"))["acked"] == 1


def test_streams_and_claims_share_a_queue(api: Api, queue: str) -> None:
    """Every job goes to exactly one of them."""
    with api.work(queue, node="a", max=50) as one, api.work(queue, node="b", max=50) as two:
        ok(api.write(queue, numbered(90)))
        assert eventually(lambda: api.facts(queue, "in_flight") == (90,))
        taken: list[int] = []
        for stream in (one, two):
            while not stream.quiet(0.3):
                taken.append(stream.frames[-1].json()["$seq"])
        assert sorted(taken) == list(range(1, 91))


def test_a_deleted_queue_ends_the_stream(api: Api, queue: str) -> None:
    """With a 409 error frame or without a word."""
    with api.work(queue, node="w") as stream:
        stream.next_frame()
        ok(api.delete_topic(queue))
        assert_over(stream)


def test_a_queue_recreated_as_a_log_ends_the_stream(api: Api, queue: str) -> None:
    """The error frame names 409 and the topic."""
    api.append(queue, 1)
    with api.work(queue, node="w") as stream:
        stream.jobs(1)
        ok(api.delete_topic(queue))
        api.make_log(queue)
        api.append(queue, 2)
        assert_over(stream, queue)


def assert_over(stream: Stream, topic: str | None = None) -> None:
    """The stream ends, after at most one error frame of the terminal kind."""
    try:
        frame = stream.next_event()
    except rawhttp.Closed:
        return
    assert frame.event == "error", frame
    body = frame.json()
    assert body["code"] == 409
    assert body["error"]
    if topic is not None:
        assert body["topic"] == topic
    assert stream.ended()


def test_shutdown_ends_streams_with_a_frame(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """The error frame tells the reason and the stream ends; durable leases stay."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", leases_durable=True, durability="disk")
    api.append("q", 1, 2)
    [polled] = api.claimed("q", "poller", lease_ms=600_000)
    with api.work("q", node="w", lease_ms=600_000) as stream:
        [pushed] = stream.jobs(1)
        server.send_signal(signal.SIGTERM)
        frame = stream.next_event()
        assert frame.event == "error"
        body = frame.json()
        assert (body["code"], body["topic"]) == ("server_shutting_down", "q")
        assert body["error"]
        assert stream.ended()
    assert server.wait() == 0
    again = api_for(server.restart())
    assert again.facts("q", "ready", "in_flight") == (0, 2)
    assert ok(again.ack("q", [1], "poller", lease_ids=[polled["lease_id"]]))["acked"] == 1
    again.append("q", 3)
    with again.work("q", node="w") as stream:
        assert stream.quiet(0.3)
        assert ok(again.ack("q", [2], "w", lease_ids=[pushed["lease_id"]]))["acked"] == 1
        assert seqs_of(stream.jobs(1)) == [3]


def test_heartbeats(observations: Observations) -> None:
    """A bare comment after each 15 s of silence."""
    waits = observations.heartbeat_waits_s()
    assert len(waits) == 2
    assert waits[0] < 2.0
    assert 13.0 <= waits[1] <= 17.0, json.dumps(waits)


def test_a_worker_that_stops_gets_no_more(api: Api, queue: str) -> None:
    """What is handed back with `last` makes no room on the node's streams."""
    api.append(queue, *range(6))
    with api.work(queue, node="w", max=2) as stream, api.work(queue, node="other", max=1) as other:
        held = seqs_of(stream.jobs(2))
        other.jobs(1)
        ok(api.nack(queue, held, node="w", count=False, last=True))
        assert api.facts(queue, "in_flight") == (1,)
        jobs = api.claimed(queue, "third", max=9)
        assert [job["deliveries"] for job in jobs] == [1] * 5


def test_how_often_a_silent_stream_shows_that_it_lives(api: Api, queue: str) -> None:
    """Clamped as that of a watch; 15 s when not given is tested above."""
    with api.work(queue, node="w", heartbeat_ms=1) as stream:
        seen = [stream.next_frame(10.0).comment for _ in range(3)]
    assert seen.count("hb") >= 2, "long before 15 s"
