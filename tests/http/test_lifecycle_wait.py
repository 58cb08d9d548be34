"""Claims that wait for jobs: what wakes them, in which order, what becomes of those who leave."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.http import rawhttp
from tests.http.api import JSON, Api, numbered, seqs_of
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import eventually, now_ms, ok, refused
from tests.http.waiting import REPLY_TIMEOUT_S, Waiters, datas, reply, waiting


@pytest.fixture
def waiters(api: Api) -> Iterator[Waiters]:
    """Waiting claims on the shared server."""
    with Waiters(api) as started:
        yield started


# -- what wakes ----------------------------------------------------------------------------------

Act = Callable[[Api, str], object]


def leased(api: Api, queue: str, **fields: Any) -> None:
    """One job, held by somebody else."""
    api.append(queue, "job")
    assert seqs_of(api.claimed(queue, "other", **fields)) == [1]


def nothing(api: Api, queue: str) -> None:
    """An empty queue."""


def one_ready(api: Api, queue: str) -> None:
    """A job that only the queue's own rules hold back."""
    api.append(queue, "job")


def hold_two(api: Api, queue: str) -> None:
    """All that the queue lets be in flight is."""
    api.append(queue, "first", "job")
    assert seqs_of(api.claimed(queue, "other")) == [1]


WAKES: dict[str, tuple[dict[str, Any], Act, Act]] = {
    "append": ({}, nothing, lambda api, q: api.append(q, "job")),
    "nack": ({}, leased, lambda api, q: ok(api.nack(q, [1], "other"))),
    "nack with a delay": (
        {}, leased, lambda api, q: ok(api.nack(q, [1], "other", delay_ms=30))
    ),
    "lease expiry": (
        {}, lambda api, q: leased(api, q, lease_ms=100), lambda api, q: None
    ),
    "a due delay": (
        {}, nothing, lambda api, q: api.append_many(q, [{"data": "job", "delay_ms": 40}])
    ),
    "resume": ({"paused": True}, one_ready, lambda api, q: ok(api.resume(q))),
    "max_in_flight freed by ack": (
        {"max_in_flight": 1}, hold_two, lambda api, q: ok(api.ack(q, [1], "other"))
    ),
    "max_in_flight raised": (
        {"max_in_flight": 1}, hold_two, lambda api, q: ok(api.patch(q, max_in_flight=2))
    ),
    "rate refill": (
        {"claim_rate": {"per_s": 20, "burst": 1}}, hold_two, lambda api, q: None
    ),
    "rate lifted": (
        {"claim_rate": {"per_s": 1, "burst": 1}},
        hold_two,
        lambda api, q: ok(api.patch(q, claim_rate=None)),
    ),
    "a forced cancel frees max_in_flight": (
        {"max_in_flight": 1}, hold_two, lambda api, q: ok(api.cancel(q, 1, force="true"))
    ),
    "release of a held job": (
        {"max_deliveries": 1, "on_exhausted": "hold"},
        lambda api, q: exhaust(api, q),
        lambda api, q: ok(api.post(q, "release", seqs=[1])),
    ),
}  # fmt: skip


def exhaust(api: Api, queue: str) -> None:
    """One job that is held since it was delivered once too often."""
    leased(api, queue)
    ok(api.nack(queue, [1], "other"))
    assert ok(api.claim(queue))["claimed"] == []


@pytest.mark.parametrize("wake", WAKES)
def test_what_wakes_a_waiting_claim(api: Api, waiters: Waiters, topic: str, wake: str) -> None:
    """The job comes in the answer, long before the patience ends."""
    config, before, act = WAKES[wake]
    api.make_queue(topic, **config)
    before(api, topic)
    started = time.monotonic()
    if wake in ("rate refill", "lease expiry"):  # may happen before anybody could look
        claimed = ok(api.claim(topic, wait_ms=30_000))["claimed"]
    else:
        call = waiters.start(topic)
        act(api, topic)
        claimed = reply(call)["claimed"]
    assert [job["data"] for job in claimed] == ["job"]
    assert time.monotonic() - started < 25


def test_redrive_wakes_the_target(api: Api, waiters: Waiters, topic: str) -> None:
    """A job that comes back from the dead letters is as good as a new one."""
    source, dead = f"{topic}src", f"{topic}dead"
    api.make_queue(source, dead_letter=dead)
    api.make_queue(dead)
    leased(api, source)
    assert ok(api.reject(source, [1], "other"))["rejected"] == 1
    call = waiters.start(source)
    assert ok(api.post(dead, "redrive"))["redriven"] == 1
    assert datas(call) == ["job"]


def test_a_dead_letter_wakes_those_who_wait_for_dead_letters(
    api: Api, waiters: Waiters, topic: str
) -> None:
    """The other way round."""
    source, dead = f"{topic}src", f"{topic}dead"
    api.make_queue(source, dead_letter=dead)
    api.make_queue(dead)
    leased(api, source)
    call = waiters.start(dead)
    ok(api.reject(source, [1], "other"))
    assert datas(call) == ["job"]


def test_jobs_that_are_there_are_given_at_once(api: Api, queue: str) -> None:
    """Waiting is for an empty queue only."""
    api.append(queue, 1, 2, 3)
    started = time.monotonic()
    assert seqs_of(api.claimed(queue, max=2, wait_ms=30_000)) == [1, 2]
    assert time.monotonic() - started < 25


# -- patience ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_ms", [0, 1, 50])
def test_patience_ends(api: Api, queue: str, wait_ms: int) -> None:
    """200 with the empty answer, not before its time."""
    started = time.monotonic()
    body = ok(api.claim(queue, wait_ms=wait_ms))
    spent_ms = (time.monotonic() - started) * 1000
    assert (body["claimed"], body["count"], body["reason"]) == ([], 0, "empty")
    assert spent_ms < 25_000
    assert body["performance"]["throttle_wait_ms"] >= wait_ms // 2


@pytest.mark.parametrize("text", ["-1", "1.0", '"1"', "true", "[]", str(2**32), "null"])
def test_wait_ms_is_strict(api: Api, queue: str, text: str) -> None:
    """As every other integer; the state of the queue does not matter."""
    content = b'{"node":"w","wait_ms":' + text.encode() + b"}"
    refused(api.send("POST", f"/v0/topics/{queue}/claim", content, JSON), 400, "invalid_request")


@pytest.mark.parametrize("wait_ms", [30_000, 30_001, 2**32 - 1])
def test_wait_ms_is_clamped(api: Api, queue: str, wait_ms: int) -> None:
    """Any u32 is fine."""
    api.append(queue, 1)
    assert len(api.claimed(queue, wait_ms=wait_ms)) == 1


def test_checks_come_before_the_wait(api: Api, topic: str) -> None:
    """A refused claim does not wait."""
    refused(api.claim(topic, wait_ms=30_000), 404, "topic_not_found", {"topic": topic})
    api.make_log(topic)
    refused(api.claim(topic, wait_ms=30_000), 409, "not_a_queue", {"topic": topic})
    api.make_queue(f"{topic}q")
    refused(api.claim(f"{topic}q", "", wait_ms=30_000), 400, "invalid_request")


# -- fairness ------------------------------------------------------------------------------------


def test_first_come_first_served(api: Api, waiters: Waiters, queue: str) -> None:
    """One job at a time, in the order in which the claims came."""
    calls = [waiters.start(queue, f"w{number}") for number in range(4)]
    for number, call in enumerate(calls):
        api.append(queue, number)
        assert datas(call) == [number]
        assert not any(later.done() for later in calls[number + 1 :])


def test_one_write_wakes_as_many_as_it_has_jobs(api: Api, waiters: Waiters, queue: str) -> None:
    """Those who came last go on waiting."""
    calls = [waiters.start(queue, f"w{number}") for number in range(3)]
    api.append(queue, "a", "b")
    assert [datas(call) for call in calls[:2]] == [["a"], ["b"]]
    assert not calls[2].done()
    api.append(queue, "c")
    assert datas(calls[2]) == ["c"]


def test_many_jobs_are_dealt_evenly(api: Api, waiters: Waiters, queue: str) -> None:
    """One to each in turn, as in a coalescing window."""
    calls = [waiters.start(queue, f"w{number}", max=4) for number in range(2)]
    api.append(queue, *range(5))
    assert [datas(call) for call in calls] == [[0, 2, 4], [1, 3]]


def test_a_late_claim_does_not_overtake(api: Api, waiters: Waiters, topic: str) -> None:
    """A job that comes free belongs to who came first, also when a plain claim comes in between."""
    api.make_queue(topic, paused=True)
    call = waiters.start(topic, "first")
    api.append(topic, "job")
    connection = rawhttp.Connection(api.address)
    with connection:
        resume = rawhttp.request("POST", f"/v0/topics/{topic}/resume", b"", {})
        claim = rawhttp.request("POST", f"/v0/topics/{topic}/claim", b'{"node":"late"}', JSON)
        connection.send(resume + claim)
        assert connection.read_reply().status == 200
        late = ok(connection.read_reply())
    assert late["claimed"] == []
    assert datas(call) == ["job"]


def test_a_work_stream_and_waiting_claims_share(api: Api, waiters: Waiters, queue: str) -> None:
    """Whoever has waited longest comes first; who was served goes to the end of the line."""
    with api.work(queue, node="stream", max=10) as stream:
        stream.next_frame()
        api.append(queue, "s0")
        assert stream.jobs(1)[0]["data"] == "s0"
        first = waiters.start(queue, "a")
        api.append(queue, "s1")
        assert stream.jobs(1)[0]["data"] == "s1"
        api.append(queue, "a")
        assert datas(first) == ["a"]
        second = waiters.start(queue, "b")
        api.append(queue, "s2", "b")
        assert stream.jobs(1)[0]["data"] == "s2"
        assert datas(second) == ["b"]


def test_waiting_behind_a_coalescing_window(api: Api, waiters: Waiters, topic: str) -> None:
    """The window shares what came in it; who got nothing goes on waiting."""
    api.make_queue(topic, claim_jitter_ms=50)
    calls = [waiters.start(topic, f"w{number}", max=10) for number in range(3)]
    api.append(topic, 1, 2)
    assert [datas(call) for call in calls[:2]] == [[1], [2]]
    api.append(topic, 3, 4)
    assert datas(calls[2]) == [3, 4]


# -- those who leave -----------------------------------------------------------------------------


def hanging_claim(api: Api, queue: str, **fields: object) -> rawhttp.Connection:
    """A waiting claim whose caller can hang up."""
    before = waiting(api, queue)
    connection = rawhttp.Connection(api.address)
    body = b'{"node":"gone","wait_ms":30000,"max":5}'
    connection.send(rawhttp.request("POST", f"/v0/topics/{queue}/claim", body, JSON))
    eventually(lambda: waiting(api, queue) == before + 1)
    return connection


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_who_hangs_up_leaves_the_line(api: Api, waiters: Waiters, queue: str, leave: str) -> None:
    """The wake-up goes to the next one."""
    connection = hanging_claim(api, queue)
    call = waiters.start(queue, "next")
    getattr(connection, leave)()
    assert eventually(lambda: waiting(api, queue) == 1)
    api.append(queue, "job")
    assert datas(call) == ["job"]
    [job] = ok(api.jobs(queue))["jobs"]
    assert (job["node"], job["deliveries"]) == ("next", 1)


def test_hanging_up_in_the_moment_of_service(api: Api, waiters: Waiters, queue: str) -> None:
    """Whoever the job was dealt to, it comes to somebody who is there, and counts once."""
    for number in range(30):
        connection = hanging_claim(api, queue)
        with rawhttp.Connection(api.address) as writer:
            body = b'{"records":[{"data":%d}]}' % number
            writer.send(rawhttp.request("POST", f"/v0/topics/{queue}", body, JSON))
            connection.reset()
            assert writer.read_reply().status == 200

        def given(number: int = number) -> bool:
            """The job is claimable by others, or it was sent before the reset came."""
            jobs = ok(api.jobs(queue))["jobs"]
            return bool(jobs) and (jobs[-1]["state"] == "ready" or jobs[-1].get("node") == "gone")

        assert eventually(given)
        jobs = ok(api.jobs(queue))["jobs"]
        if jobs[-1]["state"] == "ready":
            [job] = api.claimed(queue)
            assert (job["data"], job["deliveries"]) == (number, 1)
        ok(api.delete(queue, before_seq=10**9))


def test_the_next_one_gets_what_a_gone_caller_was_dealt(
    api: Api, waiters: Waiters, queue: str
) -> None:
    """A wake-up is not lost with the caller it was for."""
    for number in range(10):
        gone = hanging_claim(api, queue)
        call = waiters.start(queue, "next")
        with rawhttp.Connection(api.address) as writer:
            body = b'{"records":[{"data":%d}]}' % number
            writer.send(rawhttp.request("POST", f"/v0/topics/{queue}", body, JSON))
            gone.reset()
            assert writer.read_reply().status == 200

        def was_sent_before() -> bool:
            """The job went out to the one who left, a moment before he did."""
            return any(job.get("node") == "gone" for job in ok(api.jobs(queue))["jobs"])

        eventually(lambda call=call: call.done() or was_sent_before())  # type: ignore[misc]
        if not call.done():
            ok(api.delete(queue, before_seq=10**9))
            api.append(queue, number)
        assert datas(call) == [number]
        ok(api.delete(queue, before_seq=10**9))


def test_the_place_in_the_cap_comes_free(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """A waiting claim counts for its key while it waits, and no longer."""
    server = fresh_server(API_KEYS="k1", MAX_INFLIGHT_PER_KEY="1")
    api = api_for(server, "k1")
    api.make_queue("q")
    headers = {"authorization": "Bearer k1", **JSON}
    with rawhttp.Connection(server.address) as poll:
        body = b'{"node":"w","wait_ms":30000}'
        poll.send(rawhttp.request("POST", "/v0/topics/q/claim", body, headers))
        assert eventually(lambda: api.topics().status_code == 429)
    assert eventually(lambda: api.topics().status_code == 200)


# -- ends ----------------------------------------------------------------------------------------


def test_the_queue_is_deleted(api: Api, waiters: Waiters, queue: str) -> None:
    """404 for all who wait, at once."""
    calls = [waiters.start(queue, f"w{number}") for number in range(2)]
    ok(api.delete_topic(queue))
    for call in calls:
        refused(call.result(REPLY_TIMEOUT_S), 404, "topic_not_found", {"topic": queue})


def test_the_queue_is_deleted_and_made_again(api: Api, waiters: Waiters, queue: str) -> None:
    """A claim waits for the queue it knew."""
    call = waiters.start(queue)
    ok(api.delete_topic(queue))
    api.make_queue(queue)
    api.append(queue, "other")
    refused(call.result(REPLY_TIMEOUT_S), 404, "topic_not_found", {"topic": queue})


def test_the_server_stops(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """503 for all who wait, at once, and the stop does not wait for them."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q")
    with Waiters(api) as waiters:
        calls = [waiters.start("q", f"w{number}", wait_ms=30_000) for number in range(3)]
        server.send_signal(signal.SIGTERM)
        for call in calls:
            refused(call.result(REPLY_TIMEOUT_S), 503, "shutting_down")
        assert server.wait() == 0


# -- why there is nothing ------------------------------------------------------------------------

REASONS: dict[str, tuple[dict[str, Any], Act, tuple[int, int] | None]] = {
    "empty": ({}, nothing, None),
    "delayed": (
        {}, lambda api, q: api.append_many(q, [{"data": 1, "delay_ms": 60_000}]), (50_000, 60_000)
    ),
    "in_flight": ({}, lambda api, q: leased(api, q, lease_ms=60_000), (50_000, 60_001)),
    "paused": ({"paused": True}, one_ready, None),
    "rate_limited": ({"claim_rate": {"per_s": 1, "burst": 1}}, hold_two, (1, 1000)),
    "max_in_flight": ({"max_in_flight": 1}, hold_two, (20_000, 30_001)),
}  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_an_empty_claim_says_why(api: Api, topic: str, reason: str) -> None:
    """The reason, and when time alone will change it."""
    config, before, expected = REASONS[reason]
    api.make_queue(topic, **config)
    before(api, topic)
    body = ok(api.claim(topic))
    assert (body["claimed"], body["reason"]) == ([], reason)
    if expected is None:
        assert "retry_after_ms" not in body
    else:
        low, high = expected
        assert low <= body["retry_after_ms"] <= high


def test_a_good_claim_gives_no_reason(api: Api, queue: str) -> None:
    """Also when it got less than it asked for."""
    api.append_many(queue, numbered(2))
    body = ok(api.claim(queue, max=5))
    assert body["count"] == 2
    assert not {"reason", "retry_after_ms"} & set(body)


def test_retry_after_is_when_it_says(api: Api, queue: str) -> None:
    """A claim after that time finds the job."""
    api.append_many(queue, [{"data": 1, "delay_ms": 40}])
    body = ok(api.claim(queue))
    if not body["claimed"]:
        due = now_ms() + body["retry_after_ms"]
        eventually(lambda: now_ms() > due)
        body = ok(api.claim(queue))
    assert seqs_of(body["claimed"]) == [1]


def test_an_idle_stream_says_why_in_a_comment(api: Api, topic: str) -> None:
    """Comments are what every client of event streams skips."""
    api.make_queue(topic, paused=True)
    api.append(topic, 1)
    with api.work(topic, node="w") as stream:
        comments: list[str] = []
        while len(comments) < 2:
            frame = stream.next_frame()
            assert frame.event is None
            if frame.comment is not None:
                comments.append(frame.comment)
        assert comments == ["hb", "idle reason=paused"]
        ok(api.resume(topic))
        assert stream.jobs(1)[0]["data"] == 1
