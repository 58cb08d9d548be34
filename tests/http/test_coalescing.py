"""The coalescing window: one pass serves all claimers that came within it, evenly."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.http import rawhttp
from tests.http.api import JSON, Api, numbered
from tests.http.expect import eventually, now_ms, ok, refused

WINDOW_MS = 1500


@pytest.fixture
def windowed(api: Api, topic: str) -> str:
    """A queue that gathers claims for a while."""
    api.make_queue(topic, claim_jitter_ms=WINDOW_MS)
    return topic


def together(*calls: Callable[[], httpx.Response]) -> list[httpx.Response]:
    """Make calls at once, started in this order; their replies in the same order."""
    with ThreadPoolExecutor(len(calls)) as pool:
        waiting: list[Future[httpx.Response]] = [pool.submit(call) for call in calls]
        return [each.result() for each in waiting]


def claimer(api: Api, queue: str, node: str, **fields: Any) -> Callable[[], httpx.Response]:
    """A claim to be made later."""
    return lambda: api.claim(queue, node, **fields)


@pytest.mark.parametrize(
    ("jobs", "demands", "shares"),
    [
        (10, [10, 10, 10, 10], [2, 2, 3, 3]),  # case 140
        (10, [10, 10, 10, 1], [1, 3, 3, 3]),  # case 140
        (2, [5, 5, 5], [0, 1, 1]),
        (50, [10] * 10, [5] * 10),
        (20, [3, 3], [3, 3]),
        (0, [1, 1], [0, 0]),
    ],
)
def test_even_division(
    api: Api, windowed: str, jobs: int, demands: list[int], shares: list[int]
) -> None:
    """Case 140: one job to each in turn, until demand or jobs run out; every job to one."""
    if jobs:
        ok(api.write(windowed, numbered(jobs)))
    calls = [
        claimer(api, windowed, f"w{number}", max=demand) for number, demand in enumerate(demands)
    ]
    bodies = [ok(reply) for reply in together(*calls)]
    assert sorted(body["count"] for body in bodies) == shares
    seqs = [job["$seq"] for body in bodies for job in body["claimed"]]
    assert sorted(seqs) == list(range(1, sum(shares) + 1))
    assert {body["ready"] for body in bodies} == {jobs - sum(shares)}
    if 1 in demands:
        assert bodies[demands.index(1)]["count"] == min(1, jobs)
    for body in bodies:
        listed = [job["$seq"] for job in body["claimed"]]
        assert listed == sorted(listed)


def test_the_window_is_the_delay(api: Api, windowed: str) -> None:
    """A lone claim waits for the window and no longer; the queue without one answers at once."""
    api.append(windowed, 1, 2)
    started = time.monotonic()
    assert len(api.claimed(windowed)) == 1
    waited_ms = (time.monotonic() - started) * 1000
    assert WINDOW_MS * 0.8 <= waited_ms <= WINDOW_MS + 25_000
    ok(api.put(windowed, type="queue", durability="memory"))
    started = time.monotonic()
    assert len(api.claimed(windowed)) == 1
    assert (time.monotonic() - started) * 1000 < WINDOW_MS * 0.8


def test_jobs_written_within_the_window_are_shared(api: Api, windowed: str) -> None:
    """The pass looks at what is there when it runs."""
    calls = [claimer(api, windowed, f"w{number}", max=5) for number in range(2)]
    replies = together(*calls, lambda: api.write(windowed, numbered(4)))
    assert [ok(reply)["count"] for reply in replies[:2]] == [2, 2]


def test_each_claimer_keeps_its_own_lease_time(api: Api, windowed: str) -> None:
    """A cohort does not share the first one's lease_ms."""
    api.append(windowed, 1, 2)
    before = now_ms()
    replies = together(
        claimer(api, windowed, "a", lease_ms=10_000), claimer(api, windowed, "b", lease_ms=90_000)
    )
    left = [ok(reply)["claimed"][0]["deadline"] - before for reply in replies]
    assert 10_000 <= left[0] <= 15_000
    assert 90_000 <= left[1] <= 95_000


def test_refusals_do_not_wait(api: Api, windowed: str) -> None:
    """Node, 404 and 409 are checked before the window."""
    started = time.monotonic()
    refused(api.claim(windowed, ""), 400, "invalid_request")
    refused(api.claim(f"{windowed}no"), 404, "topic_not_found")
    assert (time.monotonic() - started) * 1000 < WINDOW_MS * 0.8


def test_a_topic_deleted_within_the_window(api: Api, topic: str) -> None:
    """404 for all who wait."""
    api.make_queue(topic, claim_jitter_ms=1000)
    api.append(topic, 1, 2)
    with ThreadPoolExecutor(3) as pool:
        claims = [pool.submit(api.claim, topic, f"w{number}") for number in range(2)]
        eventually(lambda: all(claim.running() for claim in claims))
        eventually(lambda: api.facts(topic, "ready", "in_flight") == (2, 0))
        ok(api.delete_topic(topic))
        for claim in claims:
            refused(claim.result(), 404, "topic_not_found", {"topic": topic})


@pytest.mark.parametrize("how", ["close", "reset"])
def test_an_opener_that_goes_away_wedges_no_claim(api: Api, windowed: str, how: str) -> None:
    """Its cohort is served all the same, and the jobs meant for it are free at once."""
    api.append(windowed, 1, 2)
    body = b'{"node":"gone","max":10,"lease_ms":60000}'
    opener = rawhttp.Connection(api.address)
    opener.send(rawhttp.request("POST", f"/v0/topics/{windowed}/claim", body, JSON))
    with ThreadPoolExecutor(1) as pool:
        joiner = pool.submit(api.claim, windowed, "stays", max=1)
        eventually(joiner.running)
        opener.close() if how == "close" else opener.reset()
        assert ok(joiner.result())["count"] == 1
    assert eventually(lambda: api.facts(windowed, "ready", "in_flight") == (1, 1))
    assert ok(api.claim(windowed, "later", max=5))["count"] == 1


def test_a_lone_opener_that_goes_away(api: Api, windowed: str) -> None:
    """Later claims are served; no job stays with a claimer that never got its answer."""
    api.append(windowed, 1)
    body = b'{"node":"gone","lease_ms":60000}'
    with rawhttp.Connection(api.address) as opener:
        opener.send(rawhttp.request("POST", f"/v0/topics/{windowed}/claim", body, JSON))
        eventually(lambda: api.facts(windowed, "in_flight") == (0,))
    assert eventually(lambda: api.claimed(windowed, "later"))


def test_streams_share_with_claims(api: Api, windowed: str) -> None:
    """A work stream takes part in the same pass as the claims."""
    with api.work(windowed, node="s", max=10) as stream:
        assert stream.next_frame().retry == "2000"
        calls = [claimer(api, windowed, "p", max=10), lambda: api.write(windowed, numbered(10))]
        claim, _ = together(*calls)
        polled = ok(claim)["count"]
        assert polled == 5
        assert len(stream.jobs(5)) == 5
        assert api.facts(windowed, "ready", "in_flight") == (0, 10)


def test_reclaimed_jobs_are_shared_first(api: Api, topic: str) -> None:
    """The pass drains what came back before fresh jobs."""
    api.make_queue(topic)
    ok(api.write(topic, numbered(6)))
    api.claimed(topic, max=4)
    ok(api.nack(topic, [2, 4]))
    ok(api.put(topic, type="queue", durability="memory", claim_jitter_ms=WINDOW_MS))
    replies = together(claimer(api, topic, "a", max=1), claimer(api, topic, "b", max=1))
    seqs = [job["$seq"] for reply in replies for job in ok(reply)["claimed"]]
    assert sorted(seqs) == [2, 4]
