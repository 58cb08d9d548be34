"""Results beside the model: a log that fails, what is never logged, bounded steps."""

from __future__ import annotations

import pytest

from logqueue.core import commands as cmd
from logqueue.core.ended_jobs import FORGOTTEN_PER_STEP, EndedJobs
from logqueue.core.invariants import check
from logqueue.core.job_ends import JobEnds
from logqueue.core.job_status import job_status
from logqueue.model.config import ResultOptions
from tests.core.world import World, fall_back, wish


def kept(world: World) -> dict[int, tuple[str, bytes]]:
    """What is kept, by seq."""
    topic = world.queue()
    found = {seq: job_status(topic, seq, world.now) for seq in range(1, topic.head + 1)}
    return {
        seq: (status.ended.outcome, status.ended.result)
        for seq, status in found.items()
        if status is not None and status.ended is not None
    }


def test_a_log_that_fails_takes_back_what_was_not_durable() -> None:
    world = World()
    world.put(durability="fsync", leases_durable=True, results={})
    world.fill(3)
    world.take(3)
    world.ack(1, results=[b"1"])
    world.step()
    world.execute(cmd.AckJobs("q", "w", [2], results=[b"2"]))
    assert kept(world) == {1: ("acked", b"1"), 2: ("acked", b"2")}
    fall_back(world.engine)
    check(world.state)
    assert kept(world) == {1: ("acked", b"1")}
    assert world.states() == {2: "in_flight", 3: "in_flight"}


def test_a_queue_that_is_never_logged_keeps_results_until_a_restart() -> None:
    world = World()
    world.put(durability="ephemeral", results={})
    world.fill(2)
    world.take(1)
    world.ack(1, results=[b"1"])
    fall_back(world.engine)
    assert kept(world) == {1: ("acked", b"1")}
    world.restart()
    assert kept(world) == {}


def test_a_holder_of_an_ended_job_does_not_make_it_done() -> None:
    world = World()
    world.put(durability="fsync", leases_durable=True, results={}, lease_ms=1000)
    world.write("q", wish("a", ttl_ms=50), "b")
    world.take(2)
    world.wait(60)
    world.ack(1, 2, results=[b"1", b"2"])
    wanted = {1: ("expired", b""), 2: ("acked", b"2")}
    assert kept(world) == wanted
    world.step()
    world.kill()
    assert kept(world) == wanted


def test_progress_ends_with_the_lease() -> None:
    world = World()
    world.put(durability="fsync", leases_durable=True, lease_ms=1000)
    world.fill(3)
    world.take(3)
    for seq in (1, 2, 3):
        world.run(cmd.ExtendLeases("q", "w", [seq], 1000, None, seq / 4, "n"))
    queue = world.queue().queue
    assert {seq: one.share for seq, one in queue.progress.items()} == {1: 0.25, 2: 0.5, 3: 0.75}
    world.step()
    world.kill()
    queue = world.queue().queue
    assert queue.progress[2] == (0.5, "n")
    world.ack(1)
    world.nack(2)
    assert [*queue.progress] == [3]
    world.wait(1001)
    world.topic("q")
    assert not queue.progress


@pytest.mark.parametrize("max_bytes", [1000, 10**6])
def test_forgetting_takes_bounded_steps(max_bytes: int) -> None:
    ended = EndedJobs(ResultOptions(1000, 10**9))
    for at in range(10):
        ended.jobs_ended(None, JobEnds(range(at * 1000, at * 1000 + 1000), "acked", at, segment=1))
    assert len(ended) == 10_000
    ended.change(ResultOptions(1000, max_bytes), 10)
    assert len(ended) == 10_000 - FORGOTTEN_PER_STEP
    while ended.forget(10):
        pass
    assert ended.bytes <= max_bytes
    assert ended.take_evicted() == 10_000 - len(ended) and ended.take_evicted() == 0
    assert ended.find(9999, 10) is not None and ended.find(0, 10) is None
    while ended.forget(2000):
        pass
    assert len(ended) == 0 and ended.bytes == 0
