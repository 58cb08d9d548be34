"""No step of the event loop grows with what the server holds, or with what a request asks.

What is counted are lines of the server that one step runs, never time. Each operation is made at
two sizes, both far over what one step may do; the longest step of the larger one must be as long as
that of the smaller one. Limits are a tenth of the real ones, so that sizes can be small.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from logqueue.core import commands as cmd
from logqueue.core import tags
from logqueue.core.apply import elapse, replacing
from logqueue.core.invariants import check
from logqueue.core.job_filter import JobFilter, JobFilterRun, indexed_parts, selected
from logqueue.core.job_views import list_jobs
from logqueue.core.queue_state import QueueState
from logqueue.model import limits
from logqueue.model.tag_predicate import Predicate
from logqueue.server.engine import engine as engines
from logqueue.server.engine.portions import portions
from logqueue.server.storage import compaction
from tests.core.world import World, job, keyed, pack, wish

SMALL, LARGE = 1000, 4000
GROWTH_MAX = 1.3
"""A step over four times as much may be longer by this: bisections, chunks, a fuller last part."""

SCALED = {
    "FINISHED_PER_PASS_MAX": 400,
    "INDEXED_PER_PASS_MAX": 100,
    "COPIED_PER_PASS_MAX": 50,
    "SCANNED_PER_PASS_MAX": 200,
    "DIVERTED_PER_PASS_MAX": 50,
    "CLAIMED_PER_PASS_MAX": 100,
    "FORWARDED_PER_PASS_MAX": 100,
    "JOBS_SCANNED_MAX": 200,
    "RECLAIMED_SCANNED_MAX": 200,
    "LAPSED_PER_PASS_MAX": 100,
}

Steps = Iterator[object]
"""One step of the event loop for each item."""


@pytest.fixture(autouse=True)
def _scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SCALED.items():
        monkeypatch.setattr(limits, name, value)
    monkeypatch.setattr(QueueState.elapse, "__defaults__", (None, 100))
    monkeypatch.setattr(elapse.elapse, "__defaults__", (100,))
    monkeypatch.setattr(replacing.go_on, "__defaults__", (25, 100))
    monkeypatch.setattr(engines, "FORWARDED_PER_TURN_MAX", 100)
    monkeypatch.setattr(engines, "CATCH_UP_RECORDS_MAX", 400)
    monkeypatch.setattr(compaction, "FREED_PER_STEP", 200)
    monkeypatch.setattr(tags, "RUN_TAGS_MAX", 100)


class Counter:
    """Counts the lines of the server that are run."""

    def __init__(self) -> None:
        self.lines = 0

    def __enter__(self) -> Counter:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if "/logqueue/" in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        self.lines += event == "line"
        return self._line


def longest_step(steps: Steps) -> tuple[int, int]:
    """Lines of the longest step, and how many steps there were."""
    longest = count = 0
    while True:
        with Counter() as counter:
            done = next(steps, steps) is steps
        longest = max(longest, counter.lines)
        if done:
            return longest, count
        count += 1


def fill(world: World, count: int, **fields: Any) -> None:
    """Write jobs, a hundred at a time."""
    for start in range(0, count, 100):
        some = range(start, min(start + 100, count))
        world.write("q", *[job(n, **{k: v(n) for k, v in fields.items()}) for n in some])


def claim(world: World, count: int, **options: Any) -> None:
    """Lease jobs, a hundred at a time."""
    for _ in range(0, count, 100):
        world.take(100, **options)


def elapsing(world: World) -> Steps:
    """Looks at the queue, then what time has left to do."""
    world.engine.topic_now("q")
    yield None
    while world.engine.lagging:
        world.engine.elapse_more()
        yield None


def command(world: World, wanted: cmd.Command[Any]) -> Steps:
    """The portions of a command."""
    yield from portions(world.engine, wanted)


# -- operations ------------------------------------------------------------------------------------


def delete_all(world: World, n: int) -> Steps:
    fill(world, n)
    return command(world, cmd.DeleteRecords("q", None))


def delete_archived(world: World, n: int) -> Steps:
    world.patch(archive="done")
    fill(world, n)
    return command(world, cmd.DeleteRecords("q", None))


def delete_tag(world: World, n: int) -> Steps:
    fill(world, n, tag=lambda n: "a" if n % 2 else "b")
    return command(world, cmd.DeleteRecords("q", None, Predicate.parse("a")))


def delete_any_tag(world: World, n: int) -> Steps:
    fill(world, n, tag=lambda n: f"t{n}")
    return command(world, cmd.DeleteRecords("q", None, Predicate.parse("*")))


def purge(world: World, n: int) -> Steps:
    fill(world, n)
    claim(world, n // 2)
    return command(world, cmd.Purge("q", frozenset(("ready", "in_flight"))))


def purge_of_nothing(world: World, n: int) -> Steps:
    fill(world, n)
    claim(world, n)
    return command(world, cmd.Purge("q", frozenset(("ready",))))


def redrive(world: World, n: int) -> Steps:
    world.patch(dead_letter="dead")
    fill(world, n)
    claim(world, n)
    for first in range(1, n + 1, 50):
        world.reject(*range(first, first + 50))
    return command(world, cmd.Redrive("dead", reason="rejected", limit=100))


def ack_archived(world: World, n: int) -> Steps:
    world.patch(archive="done")
    fill(world, n)
    claim(world, n)
    return command(world, cmd.AckJobs("q", "w", range(1, n + 1)))


def leases_run_out(world: World, n: int) -> Steps:
    fill(world, n)
    claim(world, n)
    world.wait(2000)
    return elapsing(world)


def leases_run_out_with_backoff(world: World, n: int) -> Steps:
    world.patch(retry_backoff={"kind": "constant", "base_ms": 60_000})
    return leases_run_out(world, n)


def delays_end(world: World, n: int) -> Steps:
    for _ in range(0, n, 100):
        world.write("q", *[wish(k, delay_ms=1000) for k in range(100)])
    world.wait(1000)
    return elapsing(world)


def ttl_of_leased(world: World, n: int) -> Steps:
    fill(world, n)
    claim(world, n, lease_ms=60_000)
    world.patch(ttl_ms=10)
    world.wait(100)
    return elapsing(world)


def ttl_archived(world: World, n: int) -> Steps:
    world.patch(archive="done", ttl_ms=1000)
    fill(world, n)
    world.wait(2000)
    return elapsing(world)


def own_ttl(world: World, n: int) -> Steps:
    for start in range(0, n, 100):
        world.write("q", *[wish(k, ttl_ms=1000, key=f"k{start + k}") for k in range(100)])
    world.wait(2000)
    return elapsing(world)


def cap_archived(world: World, n: int) -> Steps:
    world.patch(archive="done")
    fill(world, n)

    def steps() -> Steps:
        world.patch(cap_records=10)
        yield None
        yield from elapsing(world)

    return steps()


def routers(world: World, n: int) -> Steps:
    world.put("source", type="log", durability="ephemeral")
    for k in range(5):
        world.put_router(f"r{k}", "source", f"d{k}", guarantee="exactly_once")
    for _ in range(0, n, 50):
        world.write("source", *range(50))

    def steps() -> Steps:
        while world.engine.is_far_behind("d4"):
            world.engine.catch_up("d4")
            yield None
        world.engine.topic_now("d4")
        yield None
        while world.engine.behind:
            world.engine.forward()
            yield None

    return steps()


def claims(world: World, n: int) -> Steps:
    fill(world, n)
    cohort = tuple(cmd.Claimer(f"w{k}", 3) for k in range(min(n // 10, 100)))

    def steps() -> Steps:
        for _ in range(10):
            world.engine.execute(cmd.ClaimJobs("q", cohort))
            yield None

    return steps()


def claims_past_expired(world: World, n: int) -> Steps:
    world.put("full", type="log", durability="ephemeral", cap_records=1, discard="reject")
    world.write("full", 1)
    world.patch(archive="full", ttl_ms=1000)
    fill(world, n)
    claim(world, n // 2)
    world.nack(*range(1, n // 2 + 1))
    world.wait(2000)

    def steps() -> Steps:
        for _ in range(5):
            world.engine.execute(cmd.ClaimJobs("q", (cmd.Claimer("w", 10),)))
            yield None

    return steps()


def passed_over(world: World, n: int) -> None:
    """Have a claim pass over jobs that are too old and have nowhere to go."""
    world.put("full", type="log", durability="ephemeral", cap_records=1, discard="reject")
    world.write("full", 1)
    world.patch(archive="full", ttl_ms=1000)
    fill(world, n)
    world.wait(2000)
    world.write("q", "fresh")
    assert world.take(1) == [n + 1]


def longer_ttl(world: World, n: int) -> Steps:
    passed_over(world, n)

    def steps() -> Steps:
        world.patch(ttl_ms=60_000)
        yield None
        yield from elapsing(world)
        assert len(world.queue("q").queue.reclaim) == n

    return steps()


def replaced(world: World, n: int) -> Steps:
    for start in range(0, n, 100):
        world.write("q", *[wish(k, key=f"k{start + k}") for k in range(100)])
    world.engine.execute(keyed_write(range(0, n, 2)))
    while world.engine.lagging:
        world.engine.elapse_more()
    world.engine.execute(keyed_write(range(n)))
    return elapsing_more(world)


def replaced_here_and_there(world: World, n: int) -> Steps:
    world.engine.execute(keyed_write(range(n)))
    world.engine.execute(keyed_write(range(0, n, 2)))
    return elapsing_more(world)


def keyed_write(keys: range) -> cmd.Append:
    records = [wish("x", key=f"k{k}") for k in keys]
    return cmd.Append("q", pack(records), len(records), keyed=keyed(records))


def elapsing_more(world: World) -> Steps:
    """What is left of a write, and what time has left to do."""
    assert world.state.replacing
    while world.engine.lagging:
        world.engine.elapse_more()
        yield None
    assert not world.state.replacing


def pages(world: World, n: int) -> Steps:
    fill(world, n)
    claim(world, n // 2)

    def steps() -> Steps:
        topic = world.engine.queue_now("q")
        for states in (("held",), ("in_flight",), ("delayed",), ()):
            wanted = JobFilter(states=frozenset(states), match=Predicate.parse("none"))
            list_jobs(topic, JobFilterRun(topic, wanted, 0), limit=100)
            for _ in selected(
                topic, JobFilterRun(topic, wanted, 0), indexed_parts(topic, wanted, n), n
            ):
                yield None
            yield None

    return steps()


def drop(world: World, n: int) -> Steps:
    fill(world, n // 2, tag=lambda n: f"t{n}")
    claim(world, n // 2)
    for start in range(0, n // 2, 100):
        world.write("q", *[wish(k, delay_ms=5000, key=f"k{start + k}") for k in range(100)])

    def steps() -> Steps:
        world.drop()
        yield None
        yield from compaction.free(world.state)

    return steps()


OPERATIONS: list[Callable[[World, int], Steps]] = [
    delete_all, delete_archived, delete_tag, delete_any_tag, purge, purge_of_nothing, redrive,
    ack_archived, leases_run_out, leases_run_out_with_backoff, delays_end, ttl_of_leased,
    ttl_archived, own_ttl, cap_archived, routers, claims, claims_past_expired, longer_ttl, replaced,
    replaced_here_and_there, pages, drop,
]  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_no_step_grows_with_the_size(operation: Callable[[World, int], Steps]) -> None:
    longest = {}
    for size in (SMALL, LARGE):
        world = World()
        world.put(durability="ephemeral", lease_ms=1000)
        longest[size], steps = longest_step(operation(world, size))
        check(world.state)
        assert steps > 0
    assert longest[LARGE] <= GROWTH_MAX * longest[SMALL], longest


def test_what_is_counted_grows_where_nothing_bounds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SCALED:
        monkeypatch.setattr(limits, name, 10**6)
    with pytest.raises(AssertionError):
        test_no_step_grows_with_the_size(delete_archived)


def test_claims_wait_for_jobs_that_are_still_to_come_back() -> None:
    world = World()
    world.put(durability="ephemeral", lease_ms=1000)
    passed_over(world, 2000)
    world.patch(ttl_ms=60_000)
    queue = world.queue("q").queue
    assert 0 < len(queue.reclaim) < 500
    assert world.queue("q").ready == 2000, "those that are to come back count"
    while world.engine.is_far_behind("q"):
        world.engine.catch_up("q")
    assert world.take(300) == [*range(1, 101)]
    check(world.state)
    while world.engine.lagging:
        world.engine.elapse_more()
    taken = [*range(1, 101)]
    for _ in range(25):
        taken += world.take(300)
    assert taken == [*range(1, 2001)]
    check(world.state)


def test_a_claim_that_a_replay_meets_finds_jobs_that_had_not_come_back_yet() -> None:
    world = World()
    world.put(durability="fsync", lease_ms=60_000, leases_durable=True)
    passed_over(world, 1000)
    world.patch(ttl_ms=60_000)
    world.take(100)
    world.step()
    world.kill()
    queue = world.queue("q").queue
    assert queue.leased == 101 and not queue.returning
    assert world.queue("q").ready == 900 == len(queue.reclaim)
