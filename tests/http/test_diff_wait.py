"""Long polls: diff with wait_ms, when there is nothing to say yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.http import rawhttp
from tests.http.api import JSON, Api, seqs_of
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import eventually, ok, refused
from tests.http.observations import Observations
from tests.http.test_diff import facts


def woken(
    api: Api, topic: str, wake: Callable[[], object], **fields: Any
) -> tuple[float, httpx.Response]:
    """Start a long poll, do something, and say how long the poll took after it."""
    fields = {"wait_ms": 30_000, **fields}
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(api.diff, topic, **fields)
        eventually(poll.running)
        touched = eventually(lambda: api.facts(topic, "last_read_ts")[0])
        assert touched
        wake()
        woken_at = time.monotonic()
        reply = poll.result()
        return time.monotonic() - woken_at, reply


def test_woken_by_a_write(api: Api, log: str) -> None:
    """The answer holds what was written, soon."""
    spent, reply = woken(api, log, lambda: api.append(log, "new"))
    assert facts(ok(reply)) == ([1], 1, True, 0)
    assert spent < 25


def test_woken_by_a_delete_of_the_topic(api: Api, log: str) -> None:
    """404 at once, not an empty answer at the end."""
    spent, reply = woken(api, log, lambda: api.delete_topic(log))
    refused(reply, 404, "topic_not_found", {"topic": log})
    assert spent < 25


def test_own_records_wake_no_reader_for_nothing(api: Api, log: str) -> None:
    """Case 78: the poll goes on, or answers empty with an advanced cursor."""

    def wake() -> None:
        api.append_many(log, [{"data": 1, "node": "me"}])

    spent, reply = woken(api, log, wake, node="me", wait_ms=1000)
    assert facts(ok(reply)) == ([], 1, True, 0)
    assert spent < 25


def test_an_own_record_does_not_hide_the_next(api: Api, log: str) -> None:
    """The poll ends with what can be delivered."""

    def wake() -> None:
        api.append_many(log, [{"data": 1, "node": "me"}])
        api.append_many(log, [{"data": 2, "node": "you"}])

    _, reply = woken(api, log, wake, node="me", wait_ms=5000)
    body = ok(reply)
    assert seqs_of(body["records"]) == [2] or body["next_from_seq"] == 1


@pytest.mark.parametrize("wait_ms", [300])
def test_a_poll_that_sees_nothing(api: Api, log: str, wait_ms: int) -> None:
    """200 with the empty answer after the wait."""
    api.append(log, 1)
    started = time.monotonic()
    body = ok(api.diff(log, from_seq=1, wait_ms=wait_ms))
    spent_ms = (time.monotonic() - started) * 1000
    assert facts(body) == ([], 1, True, 0)
    assert wait_ms * 0.9 <= spent_ms <= wait_ms + 25_000


def test_many_polls_at_once(api: Api, log: str) -> None:
    """All of them hear of one write."""
    with ThreadPoolExecutor(16) as pool:
        polls = [pool.submit(api.diff, log, wait_ms=30_000) for _ in range(16)]
        eventually(lambda: all(poll.running() for poll in polls))
        api.append(log, "new")
        assert {tuple(seqs_of(ok(poll.result())["records"])) for poll in polls} == {(1,)}


def test_a_dropped_poll_frees_its_place(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Case 142: a waiting poll counts for its key, a dropped one no longer does."""
    server = fresh_server(API_KEYS="k1", MAX_INFLIGHT_PER_KEY="1")
    api = api_for(server, "k1")
    api.make_log("l")
    headers = {"authorization": "Bearer k1", **JSON}
    with rawhttp.Connection(server.address) as poll:
        poll.send(rawhttp.request("POST", "/v0/topics/l/diff", b'{"wait_ms":30000}', headers))
        assert eventually(lambda: api.topics().status_code == 429)
    assert eventually(lambda: api.topics().status_code == 200)


def test_the_longest_poll(observations: Observations) -> None:
    """Case 77: wait_ms 60 000 waits 30 s, then 200 with nothing."""
    spent, reply = observations.long_poll()
    assert 29 <= spent <= 60
    assert facts(ok(reply)) == ([], 0, True, 0)
