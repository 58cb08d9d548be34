"""What is served once the log has failed: everything whose promise was kept, and nothing else."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import pytest

from logqueue.core.invariants import check
from logqueue.core.queue_topic import QueueTopic
from logqueue.errors import NotAQueue, NotReady, StorageReadOnly
from tests.core.world import World, fall_back, wish
from tests.effort import scaled
from tests.portrait import portrait
from tests.server.memory import Memory, claimed, pushed
from tests.server.test_steps import Counter
from tests.sim.test_everything import Everything

BACKOFF = {"kind": "exponential", "base_ms": 1000, "max_ms": 1000, "jitter": 0}


def world_with_failing_sync() -> World:
    """Three topics with a record each, whose disk then refuses to sync."""
    world = World()
    world.put("safe", durability="fsync")
    world.put("soft", durability="disk")
    world.put("air", durability="ephemeral")
    for topic in ("safe", "soft", "air"):
        world.write(topic, f"{topic} 1")
    world.step()

    def refuse(op: object) -> OSError | None:
        kind = getattr(op, "kind", "")
        return OSError(errno.EIO, "the disk is gone") if kind == "sync" else None

    world.fs.fail_when(refuse)
    return world


def test_a_failed_write_is_not_seen_and_kept_ones_are() -> None:
    world = world_with_failing_sync()
    world.write("soft", "soft 2")
    with pytest.raises(StorageReadOnly):
        world.write("safe", "safe 2")
    world.write("air", "air 2")

    engine = world.engine
    fall_back(engine)

    check(world.state)
    assert world.seqs("safe") == [1]
    assert world.seqs("soft") == [1, 2]
    assert world.seqs("air") == [1, 2]


def test_reads_and_unlogged_topics_go_on_while_logged_writes_are_refused() -> None:
    world = world_with_failing_sync()
    with pytest.raises(StorageReadOnly):
        world.put("new", durability="fsync")
    fall_back(world.engine)

    assert "new" not in world.state.topics
    assert world.write("air", "air 2").first_seq == 2
    assert world.take(topic="air") == [1]
    for topic in ("safe", "soft"):
        with pytest.raises(StorageReadOnly):
            world.write(topic, "more")
    look = world.engine.topic_now("safe")
    log = world.engine.journal.jobs
    assert look.mark_durable <= log.durable and look.mark_written <= log.written
    assert world.counters("safe") == (1, 0, 0)


def test_a_restart_after_the_failure_keeps_what_was_promised() -> None:
    world = world_with_failing_sync()
    with pytest.raises(StorageReadOnly):
        world.write("safe", "safe 2")
    fall_back(world.engine)
    world.fs.fail_when(lambda op: None)
    world.kill()
    assert world.seqs("safe")[:1] == [1]
    assert world.write("safe", "after").first_seq == world.topic("safe").head


# -- what memory knows beyond the log -------------------------------------------------------------


def fail_syncs(world: World) -> None:
    """From now on the disk refuses to sync."""

    def refuse(op: object) -> OSError | None:
        kind = getattr(op, "kind", "")
        return OSError(errno.EIO, "the disk is gone") if kind == "sync" else None

    world.fs.fail_when(refuse)


def retreat(world: World) -> None:
    """What the server does once it has noticed."""
    with pytest.raises(StorageReadOnly):
        world.put("more", durability="fsync")
    world.engine.journal.flush_leases()
    fall_back(world.engine)
    check(world.state)


@pytest.mark.parametrize("durability", ["fsync", "disk", "memory"])
@pytest.mark.parametrize("leases_durable", [True, False])
def test_leases_counts_delays_and_errors_outlive_the_disk(
    durability: str, leases_durable: bool
) -> None:
    world = World()
    world.put(durability=durability, leases_durable=leases_durable, lease_ms=60_000)
    world.write("q", *range(8), wish(8, delay_ms=90_000), wish(9, key="k", delay_ms=70_000))
    assert world.take(3, stream=7) == [1, 2, 3]
    world.nack(2, delay_ms=30_000, error="no luck")
    assert world.take(2) == [4, 5]
    world.nack(4, delay_ms=0, error="once more")
    world.step()
    before = portrait(world.state)["q"]
    fail_syncs(world)
    retreat(world)
    assert portrait(world.state)["q"] == before
    assert world.take(9) == [4, 6, 7, 8], "what others hold is theirs"
    assert world.state.queue("q").queue.held_by(7) == 2
    assert world.release(7) == 2
    assert world.take(9) == [1, 3]
    world.wait(30_001)
    again = world.claim(9)
    assert [(job.seq, job.deliveries) for job in again] == [(2, 2)]
    world.wait(60_001)
    assert {job.seq: job.deliveries for job in world.claim(20)} == {
        1: 3, 2: 3, 3: 3, 4: 3, 5: 2, 6: 2, 7: 2, 8: 2, 9: 1, 10: 1,
    }  # fmt: skip


def test_a_lease_ends_when_it_would_have_ended() -> None:
    world = World()
    world.put(durability="fsync", lease_ms=10_000, retry_backoff=BACKOFF)
    world.fill(2)
    world.take(1)
    fail_syncs(world)
    world.wait(5000)
    retreat(world)
    world.wait(5000)
    assert world.take(9) == [2]
    world.wait(1)
    assert world.states()[1] == "delayed"
    world.wait(1000)
    assert world.take(9) == [1]


@pytest.mark.parametrize("leases_durable", [True, False])
def test_what_only_memory_thinks_done_is_not_for_others(leases_durable: bool) -> None:
    world = World()
    world.put(durability="fsync", leases_durable=leases_durable, lease_ms=10_000)
    world.fill(3)
    world.take(2)
    world.step()
    fail_syncs(world)
    with pytest.raises(StorageReadOnly):
        world.ack(1)
    world.engine.journal.flush_leases()
    fall_back(world.engine)
    check(world.state)
    assert world.states() == {1: "in_flight", 2: "in_flight", 3: "ready"}
    world.wait(10_001)
    assert world.take(9) == [1, 2, 3]


def test_held_jobs_stay_held_whether_the_log_knows_or_not() -> None:
    world = World()
    world.put(durability="fsync", on_exhausted="hold", max_deliveries=2, lease_ms=10_000)
    world.fill(4)
    world.take(2)
    world.reject(1, error="bad")
    world.step()
    fail_syncs(world)
    with pytest.raises(StorageReadOnly):
        world.reject(2, error="bad too")
    retreat(world)
    assert world.states() == {1: "held", 2: "held", 3: "ready", 4: "ready"}
    with pytest.raises(StorageReadOnly):
        world.let_go(1)
    assert world.take(9) == [3, 4]
    world.kill()
    assert world.states()[1] == "held", "that was promised"


def test_jobs_delivered_too_often_do_not_block_the_others() -> None:
    world = World()
    world.put("letters", type="log", durability="fsync")
    world.put(durability="fsync", max_deliveries=1, dead_letter="letters", lease_ms=10_000)
    world.fill(3)
    assert world.take(1) == [1]
    world.nack(1)
    fail_syncs(world)
    retreat(world)
    assert world.take(9) == [2, 3]
    assert world.state.topic("letters").live == 0


def test_the_claim_rate_stays_spent() -> None:
    world = World()
    world.put(durability="fsync", claim_rate={"per_s": 1, "burst": 2})
    world.fill(9)
    assert world.take(9) == [1, 2]
    fail_syncs(world)
    retreat(world)
    assert world.take(9) == []
    world.wait(1000)
    assert world.take(9) == [3]


def test_routers_between_topics_in_memory_copy_nothing_twice() -> None:
    world = World()
    world.put("air", type="log", durability="ephemeral")
    world.put("copy", type="log", durability="ephemeral")
    world.put("disk", type="log", durability="fsync")
    world.put("shadow", type="log", durability="ephemeral")
    for source, dest in (("air", "copy"), ("disk", "shadow")):
        world.put_router(f"{source}>{dest}", source, dest)
        world.write(source, 1, 2, 3)
    world.forward()
    fail_syncs(world)
    retreat(world)
    world.write("air", 4)
    world.forward()
    assert world.values("copy") == [1, 2, 3, 4]
    assert world.values("shadow") == [1, 2, 3]


def test_a_change_of_class_that_was_refused_has_not_happened() -> None:
    world = World()
    world.put("air", type="log", durability="ephemeral")
    world.put("safe", type="log", durability="fsync")
    for name in ("air", "safe"):
        world.write(name, 1, 2)
    world.step()
    fail_syncs(world)
    for name, durability in (("air", "fsync"), ("safe", "ephemeral")):
        with pytest.raises(StorageReadOnly):
            world.patch(name, durability=durability)
    fall_back(world.engine)
    check(world.state)
    assert {name: world.topic(name).config.durability for name in ("air", "safe")} == {
        "air": "ephemeral", "safe": "fsync",
    }  # fmt: skip
    assert world.values("air") == [1, 2] and world.values("safe") == [1, 2]
    assert world.write("air", 3).first_seq == 3
    with pytest.raises(StorageReadOnly):
        world.write("safe", 3)


def settling(world: World) -> Iterator[Callable[[], None]]:
    """The retreat, up to where leases go over."""
    with pytest.raises(StorageReadOnly):
        world.put("more", durability="fsync")
    world.engine.journal.flush_leases()
    steps = world.engine.rebuild_durable()
    next(steps)()
    return steps


def test_leases_stay_as_they_are_while_they_go_over() -> None:
    world = World()
    world.put(durability="fsync", lease_ms=10_000)
    world.put("air", durability="ephemeral")
    world.fill(4)
    world.write("air", 1)
    assert world.take(2, stream=7) == [1, 2]
    fail_syncs(world)
    steps = settling(world)
    assert world.take(1) == [3], "the log is read beside"

    carry = next(steps)
    before = portrait(world.state)["q"]
    with pytest.raises(StorageReadOnly):
        world.ack(3)
    world.wait(10_001)
    for attempt in (lambda: world.claim(9), lambda: world.release(7), lambda: world.nack(3)):
        with pytest.raises(NotReady, match="try again"):
            attempt()
    assert portrait(world.state)["q"] == before, "nor does time act"
    assert world.take(1, topic="air") == [1]

    carry()
    assert next(steps, None) is None
    check(world.state)
    assert world.take(9) == [1, 2, 3, 4]


def test_who_asks_while_leases_go_over_is_served_after_it() -> None:
    server = Memory()
    try:
        server.queue()
        server.append(1, 2, 3)
        stream = server.work(node="gone")
        assert len(pushed(stream)) == 1
        engine = server.dispatcher.engine
        log = engine.journal.jobs
        with log._lock:
            log._committer.poison(OSError(errno.EIO, "the disk is gone"))
        steps = engine.rebuild_durable()
        next(steps)()
        carry = next(steps)

        refused = server.claim("now")
        assert refused.status == 503 and b"not_ready" in refused.take()
        waiting = server.claim("later", max=5, wait_ms=60_000)
        other = server.work(node="other")
        server.core.hang_up(stream)
        assert not waiting.is_over and not pushed(other)
        carry()
        assert next(steps, None) is None
        server.core._run(server.dispatcher.adopt)

        served = [job["$seq"] for job in [*claimed(waiting), *pushed(other)]]
        assert sorted(served) == [1, 2, 3], "what the stream had came back, too"
        check(engine.state)
    finally:
        server.close()


def test_what_cannot_be_read_back_changes_nothing() -> None:
    world = World()
    world.put(durability="fsync")
    world.fill(2)
    fail_syncs(world)
    steps = settling(world)
    next(steps)
    assert world.engine.is_settling(world.topic("q"))
    steps.close()  # type: ignore[attr-defined]
    assert not world.engine.is_settling(world.topic("q"))
    assert world.take(1) == [1]


@pytest.mark.parametrize("keyed", [False, True])
def test_no_step_of_the_loop_grows_with_the_leases(keyed: bool) -> None:
    longest = {}
    for size in (500, 2000):
        world = World()
        world.put(durability="fsync", lease_ms=60_000)
        for start in range(0, size, 100):
            some = [wish(n, key=f"k{n}") if keyed else n for n in range(start, start + 100)]
            world.write("q", *some)
            world.take(50)
        world.step()
        fail_syncs(world)
        steps = settling(world)
        longest[size] = 0
        done = False
        while not done:
            with Counter() as counter:
                carry = next(steps, None)
            longest[size] = max(longest[size], counter.lines)
            done = carry is None
            if carry is not None:
                carry()
        assert len(world.queue("q").queue.jobs) == size // 2
    assert longest[2000] <= 1.3 * longest[500], longest


@pytest.mark.parametrize("seed", range(scaled(6, 60)))
def test_whatever_happened_leases_stay_with_those_who_have_them(seed: int) -> None:
    rng = Random(seed)
    everything = Everything(seed)
    world = everything.world
    world.forward()
    for _ in range(rng.randrange(20, 120)):
        everything.turn()
    world.step()
    fail_syncs(world)
    with suppress(StorageReadOnly):
        for _ in range(rng.randrange(4)):
            everything.turn()
    before = {
        name: {
            seq: (job.deliveries, job.error, job.grant.node, job.grant.deadline, job.lease)
            for seq, job in topic.queue.jobs.items()
            if job.live and job.grant is not None and job.grant.deadline >= world.now
        }
        for name, topic in world.state.topics.items()
        if isinstance(topic, QueueTopic)
    }
    retreat(world)
    for name, leases in before.items():
        topic = world.state.queue(name)
        for seq, known in leases.items():
            job = topic.queue.jobs.get(seq)
            if not topic.holds(seq) or seq in topic.queue.held:
                continue
            assert job is not None and job.grant is not None, f"{name}: {seq} is free"
            grant = job.grant
            assert (job.deliveries, job.error, grant.node, grant.deadline, job.lease) == known


def test_a_queue_that_the_log_knows_as_a_log_is_one_again() -> None:
    world = World()
    world.put("t", type="log", durability="ephemeral")
    world.step()
    fail_syncs(world)
    before = world.topic("t")
    with suppress(StorageReadOnly):
        world.put("t", durability="ephemeral")
    queue = world.queue("t")
    assert queue is before, "whoever refers to the topic sees its new type"
    with suppress(StorageReadOnly):
        world.write("t", wish("keyed", key="k", ttl_ms=60_000), "plain")
    fall_back(world.engine)
    check(world.state)
    topic = world.topic("t")
    assert not isinstance(topic, QueueTopic) and world.seqs("t") == [1, 2]
    assert not queue.queue.jobs, "who waits for jobs of the queue finds none"
    with pytest.raises(NotAQueue):
        world.take(1, topic="t")
    world.wait(60_001)
    assert world.seqs("t") == [2], "what single records ask for still holds"
