"""Why a job waits: each reason, in words, with the time when it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from logqueue.core.decide import claims
from logqueue.core.decide.why import Why, WorkersSeen, explain, lasting
from logqueue.core.job_views import describe_job
from tests.core.world import START_MS, World, wish

NONE = WorkersSeen(0, 0, START_MS)
BUSY = WorkersSeen(1, START_MS, START_MS)


def why(world: World, seq: int, workers: WorkersSeen = BUSY, claimed_at: int = 0) -> Why:
    """What is said of a job now."""
    topic = world.queue()
    job = describe_job(topic, seq)
    assert job is not None
    return explain(world.state, topic, job, world.now, workers, claimed_at=claimed_at)


def write(world: World, *jobs: dict[str, Any]) -> None:
    """Jobs with what each asks for."""
    world.write("q", *(wish(n, **options) for n, options in enumerate(jobs)))


def fail(world: World, times: int, error: str | None = "boom") -> None:
    """A job is given back so often."""
    for _ in range(times):
        (seq,) = world.take()
        world.nack(seq, delay_ms=0, error=error)


def _behind(world: World) -> None:
    world.fill(5)


def _paused(world: World) -> None:
    world.fill(3)
    world.pause()


def _rate(world: World) -> None:
    world.patch(claim_rate={"per_s": 2, "burst": 1})
    world.fill(4)
    world.take()


def _places(world: World) -> None:
    world.patch(max_in_flight=1)
    world.fill(3)
    world.take()


def _delayed(world: World) -> None:
    write(world, {}, {"delay_ms": 90_000})


def _backoff(world: World) -> None:
    world.patch(retry_backoff={"kind": "linear", "base_ms": 5000, "step_ms": 0, "max_ms": 9000})
    world.fill(1)
    world.take()
    world.nack(1, delay_ms=None, error="no  space\nleft")


def _in_flight(world: World) -> None:
    world.fill(1)
    world.take(node="w7")
    world.wait(12_000)


def _held(world: World) -> None:
    world.patch(on_exhausted="hold")
    world.fill(1)
    world.take()
    world.reject(1, error="bad")


def _exhausted(world: World) -> None:
    world.patch(max_deliveries=1, dead_letter="letters")
    world.fill(1)
    fail(world, 1)


def _no_room(world: World) -> None:
    world.put("letters", type="log", cap_records=1, discard="reject")
    world.write("letters", "full")
    _exhausted(world)
    assert world.take() == []


def _dropped(world: World) -> None:
    world.patch(max_deliveries=1, on_exhausted="drop")
    world.fill(1)
    fail(world, 1)
    world.pause()


def _expires(world: World) -> None:
    write(world, {"ttl_ms": 60_000})


def _late(world: World) -> None:
    write(world, {"ttl_ms": 60_000, "delay_ms": 80_000})


@pytest.mark.parametrize(
    ("make", "seq", "code", "text", "until", "ahead"),
    [
        (_behind, 1, "ready", "Ready: the next claim gets it.", None, 0),
        (_behind, 2, "behind", "Ready: 1 job is ahead of it.", None, 1),
        (_behind, 5, "behind", "Ready: 4 jobs are ahead of it.", None, 4),
        (_paused, 2, "paused", "Ready, but the queue is paused: resume it, 1 job is "
            "ahead.", None, 1),
        (_rate, 2, "rate_limited", "Ready, but the queue hands out 2 jobs a second at most: "
            "the next goes in 500 ms.", START_MS + 500, 0),
        (_places, 3, "max_in_flight", "Ready, but the limit of 1 in flight is reached: it "
            "waits until a lease ends, 1 job is ahead.", START_MS + 30_001, 1),
        (_delayed, 2, "delayed", "Delayed: it becomes ready in 90 s.", START_MS + 90_000, None),
        (_backoff, 1, "backoff", "Given back (no space left): it is tried again in 5 s.",
            START_MS + 5000, None),
        (_in_flight, 1, "in_flight", "In flight: w7 has had it; the lease ends in 18 s unless "
            "it is renewed.", START_MS + 30_000, None),
        (_held, 1, "held", "On hold after 1 delivery (bad): it waits until someone releases "
            "or cancels it.", None, None),
        (_exhausted, 1, "exhausted", "Delivered 1 of 1 times (boom): the next claim finds it, "
            "and it moves to letters.", None, None),
        (_no_room, 1, "exhausted", "Delivered 1 of 1 times (boom): it waits for room in "
            "letters.", START_MS + 1000, None),
        (_dropped, 1, "exhausted", "Delivered 1 of 1 times (boom): the next claim finds it, "
            "and it is dropped, and the queue is paused.", None, None),
        (_expires, 1, "ready", "Ready: the next claim gets it; it expires in 60 s.", None, 0),
        (_late, 1, "delayed", "Delayed: it becomes ready in 80 s, but it expires before that.",
            START_MS + 80_000, None),
    ],
)  # fmt: skip
def test_each_reason_is_one_sentence(
    make: Callable[[World], None],
    seq: int,
    code: str,
    text: str,
    until: int | None,
    ahead: int | None,
) -> None:
    world = World()
    world.put()
    make(world)
    assert why(world, seq) == (code, text, until, ahead)


@pytest.mark.parametrize(
    ("workers", "code", "text"),
    [
        (NONE, "ready_no_worker", "Ready, but no worker has asked for jobs since the server "
            "started 4 min ago."),
        (WorkersSeen(0, START_MS + 60_000, START_MS), "ready_no_worker", "Ready, but no worker has "
            "asked for jobs for 3 min."),
        (WorkersSeen(0, START_MS + 239_000, START_MS), "ready", "Ready: the next claim gets it."),
        (WorkersSeen(1, 0, START_MS), "ready", "Ready: the next claim gets it."),
    ],
)  # fmt: skip
def test_without_workers_it_says_for_how_long(workers: WorkersSeen, code: str, text: str) -> None:
    world = World()
    world.put()
    world.fill(1)
    world.wait(240_000)
    assert why(world, 1, workers)[:2] == (code, text)


def test_a_lease_says_since_when() -> None:
    world = World()
    world.put()
    _in_flight(world)
    found = why(world, 1, claimed_at=START_MS)
    assert found.text.startswith("In flight: w7 has had it for 12 s; the lease ends in 18 s")


def test_jobs_ahead_are_counted_over_ten_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.put()
    for _ in range(3):
        world.write("q", *range(400))
    world.ack(*world.take(100))
    assert why(world, 1200).ahead == 1099
    # Where jobs may be passed over, it stops counting; the sentence says so.
    monkeypatch.setattr(claims, "AHEAD_SCANNED_MAX", 50)
    write(world, {"ttl_ms": 10**9})
    assert why(world, 1201)[1:] == ("Ready: at least 50 jobs are ahead of it.", None, 50)
    assert why(world, 120).text == "Ready: 19 jobs are ahead of it."


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1000, "1 s"), (119_999, "119 s"), (120_000, "2 min"),
     (7_199_000, "119 min"), (7_200_000, "2 h"), (172_800_000, "2 days")],
)  # fmt: skip
def test_durations_are_words(ms: int, text: str) -> None:
    assert lasting(ms) == text
