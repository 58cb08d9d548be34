"""Cases that need a clock in the test's hand: a real server, started on a clock from a file.

The clock is what the interpreter of the server takes for the time of the machine, so nothing of
the server itself is replaced. Uptime follows it forward; timers run on as ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.api import Api, numbered, seqs_of
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import eventually, ok, refused
from tests.http.process import ServerProcess
from tests.http.watching import drain, refusal, seqs_in

START_MS = 1_900_000_000_000
CLOCK = f"""
import os
import time

uptime = time.monotonic
latest_ms = {START_MS}


def now_ms():
    global latest_ms
    with open(os.environ["WALL_CLOCK_FILE"]) as file:
        now = int(file.read())
    latest_ms = max(latest_ms, now)
    return now


def monotonic():
    now_ms()
    return uptime() + (latest_ms - {START_MS}) / 1000


time.time_ns = lambda: now_ms() * 1_000_000
time.time = lambda: now_ms() / 1000
time.monotonic = monotonic
"""


class WallClock:
    """The time that the server sees; it stands still until it is moved."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.now_ms = START_MS
        self.move(0)

    def move(self, by_ms: int) -> int:
        """Move the clock, also backwards; returns the new time in ms."""
        self.now_ms += by_ms
        fresh = self._path.with_suffix(".new")
        fresh.write_text(str(self.now_ms))
        fresh.replace(self._path)
        return self.now_ms


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WallClock]:
    """A clock for all servers that are started meanwhile."""
    shim = tmp_path_factory.mktemp("shim")
    (shim / "sitecustomize.py").write_text(CLOCK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(shim))
        patch.setenv("WALL_CLOCK_FILE", str(shim / "clock"))
        yield WallClock(shim / "clock")


@pytest.fixture(scope="module")
def timed(clock: WallClock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server on that clock."""
    process = ServerProcess(tmp_path_factory.mktemp("timed") / "data").start()
    with Api(process.base_url) as api:
        yield api
    process.stop()


def test_the_clock_of_the_server(timed: Api, clock: WallClock, topic: str) -> None:
    """It is the one in the test's hand."""
    timed.make_log(topic)
    timed.append(topic, 1)
    clock.move(1234)
    timed.append(topic, 2)
    assert [record["$ts"] for record in timed.read(topic)] == [clock.now_ms - 1234, clock.now_ms]


def test_a_wall_clock_that_goes_back(timed: Api, clock: WallClock, topic: str) -> None:
    """Case 64: $ts may decrease; the order of seqs still rules."""
    timed.make_log(f"{topic}l")
    started = clock.now_ms
    for _ in range(3):
        timed.append(f"{topic}l", 1)
        clock.move(-3_600_000)
    records = timed.read(f"{topic}l")
    assert seqs_of(records) == [1, 2, 3]
    assert [started - record["$ts"] for record in records] == [0, 3_600_000, 7_200_000]
    timed.make_queue(f"{topic}q")
    timed.append(f"{topic}q", 1)
    [job] = timed.claimed(f"{topic}q")
    clock.move(-3_600_000)
    timed.append(f"{topic}q", 2)
    assert seqs_of(timed.claimed(f"{topic}q", max=5)) == [2]
    assert ok(timed.ack(f"{topic}q", [1], lease_ids=[job["lease_id"]]))["acked"] == 1
    clock.move(started - clock.now_ms)


def test_the_age_of_a_record(timed: Api, clock: WallClock, topic: str) -> None:
    """Case 75: exactly ttl_ms old it is still there; one ms more and it is gone."""
    timed.make_log(topic, ttl_ms=1000)
    timed.append(topic, "old")
    clock.move(600)
    timed.append(topic, "young")
    clock.move(400)
    assert seqs_of(timed.read(topic)) == [1, 2]
    with timed.watch(topic) as stream:
        assert seqs_in(drain(stream)) == [1, 2]
    clock.move(1)
    body = ok(timed.diff(topic))
    assert seqs_of(body["records"]) == [2]
    gap = body["tombstone"]
    assert (gap["reason"], gap["gap_from"], gap["gap_to"]) == ("ttl", 1, 1)


def test_the_age_of_a_job(timed: Api, clock: WallClock, topic: str) -> None:
    """Case 75: claims hold to the same millisecond, and so do counters of leased jobs."""
    timed.make_queue(topic, ttl_ms=1000)
    timed.append(topic, 1, 2)
    clock.move(1000)
    assert seqs_of(timed.claimed(topic)) == [1]
    clock.move(1)
    assert timed.claimed(topic) == []
    assert timed.facts(topic, "ready", "in_flight", "count") == (0, 0, 0)


def test_an_expired_record_is_not_forwarded(timed: Api, clock: WallClock, topic: str) -> None:
    """A source that lost records by their age leaves a hole in the destination."""
    timed.make_log(f"{topic}s", ttl_ms=1000)
    timed.make_log(f"{topic}d", cap_records=1, discard="reject")
    timed.make_router(f"{topic}r", f"{topic}s", f"{topic}d")
    timed.append(f"{topic}s", 1)
    assert seqs_of(timed.read(f"{topic}d")) == [1]
    timed.append(f"{topic}s", 2, 3)
    clock.move(1001)
    timed.append(f"{topic}s", 4)
    assert seqs_of(timed.read(f"{topic}s")) == [4]
    ok(timed.put(f"{topic}d", durability="memory"))
    assert eventually(lambda: timed.facts(f"{topic}d", "head_seq") == (4,))
    body = ok(timed.diff(f"{topic}d", from_seq=1))
    gap = body["tombstone"]
    assert (gap["reason"], gap["gap_from"], gap["gap_to"]) == ("source_trim", 2, 3)
    assert [record["data"] for record in body["records"]] == [4]


def test_a_session_that_is_never_opened(timed: Api, clock: WallClock, topic: str) -> None:
    """Case 95: it can be opened for 300 s, counted anew from the end of each stream; then 404."""
    timed.make_log(topic)
    wids = [ok(timed.create_watch({topic: {}}))["wid"] for _ in range(2)]

    def no_streams() -> bool:
        found = timed.send("GET", "/v0/metrics", None, {"accept": "application/json"}).json()
        return bool(found["sse_connections"] == 0)

    for _ in range(3):
        clock.move(290_000)
        with timed.open_watch(wids[0]) as stream:
            assert stream.status == 200
        assert eventually(no_streams)
    refused(refusal(timed, wids[1]), 404, "not_found", None)
    clock.move(301_000)
    refused(refusal(timed, wids[0]), 404, "not_found", None)


def test_a_session_with_an_open_stream(timed: Api, clock: WallClock, topic: str) -> None:
    """Case 95: it lives for hours."""
    timed.make_log(topic)
    wid = ok(timed.create_watch({topic: {}}))["wid"]
    with timed.open_watch(wid) as stream:
        drain(stream)
        clock.move(10 * 3_600_000)
        timed.append(topic, 1)
        assert seqs_in(drain(stream)) == [1]
        with timed.open_watch(wid) as second:
            assert second.status == 200


def test_expired_sessions_make_room(
    clock: WallClock, fresh_server: FreshServer, api_for: ApiFor
) -> None:
    """Case 95: they are collected before the cap is looked at."""
    api = api_for(fresh_server(MAX_WATCH_SESSIONS="1"))
    api.make_log("l")
    ok(api.create_watch({"l": {}}))
    clock.move(290_000)
    refused(api.create_watch({"l": {}}), 429, "throttled")
    clock.move(11_000)
    ok(api.create_watch({"l": {}}))


def test_an_effective_priority_fades(timed: Api, clock: WallClock, topic: str) -> None:
    """Half of it every 30 s without a reader, none after 300 s."""
    timed.make_log(topic)
    ok(timed.diff(topic))
    found: list[int] = []
    for _ in range(3):
        found += timed.facts(topic, "effective_priority")
        clock.move(30_000)
    assert found == [500, 250, 125]
    clock.move(300_000)
    assert timed.facts(topic, "effective_priority") == (0,)


def test_a_lease_to_the_millisecond(timed: Api, clock: WallClock, topic: str) -> None:
    """Case 121: an ack at the deadline works, one ms later it is skipped and the job is ready."""
    timed.make_queue(topic, lease_ms=1000)
    ok(timed.write(topic, numbered(2)))
    first, second = timed.claimed(topic, max=2)
    assert first["deadline"] == clock.now_ms + 1000
    clock.move(1000)
    assert ok(timed.ack(topic, [first["$seq"]]))["acked"] == 1
    clock.move(1)
    assert ok(timed.ack(topic, [second["$seq"]]))["skipped"] == [2]
    assert timed.facts(topic, "ready", "in_flight") == (1, 0)


def test_an_idempotency_key_to_the_millisecond(timed: Api, clock: WallClock, topic: str) -> None:
    """Case 59: the window's last millisecond still knows the key."""
    timed.make_log(topic, idempotency_window_ms=1000)
    ok(timed.write(topic, numbered(1), idempotency_key="k"))
    clock.move(1000)
    assert ok(timed.write(topic, numbered(1), idempotency_key="k"))["deduped"] is True
    clock.move(1)
    assert ok(timed.write(topic, numbered(1), idempotency_key="k"))["deduped"] is False


def test_a_delay_to_the_millisecond(timed: Api, clock: WallClock, topic: str) -> None:
    """Case 125: at the due millisecond, and before fresh jobs."""
    timed.make_queue(topic)
    ok(timed.write(topic, numbered(2)))
    timed.claimed(topic)
    ok(timed.nack(topic, [1], delay_ms=5000))
    assert timed.facts(topic, "ready") == (1,)
    clock.move(4999)
    assert timed.facts(topic, "ready") == (1,)
    clock.move(1)
    assert timed.facts(topic, "ready") == (2,)
    assert seqs_of(timed.claimed(topic)) == [1]
