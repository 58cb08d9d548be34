"""Tidying and checkpoints in small steps, with anything happening in between."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from logqueue import events as ev
from logqueue.core.invariants import check
from logqueue.server.storage import checkpoint, compaction
from tests.core.world import World, job
from tests.effort import scaled
from tests.portrait import portrait

TOPICS = [f"t{n}" for n in range(7)]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and steps of one or two, so that there are many."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 1000)
    monkeypatch.setattr(compaction, "TOPICS_PER_STEP", 1)
    monkeypatch.setattr(compaction, "CHUNKS_PER_STEP", 1)
    monkeypatch.setattr(compaction, "MOVED_RECORDS_MAX", 3)
    monkeypatch.setattr(compaction, "KEYS_PER_EVENT", 2)
    monkeypatch.setattr(compaction, "FREED_PER_STEP", 3)
    monkeypatch.setattr(checkpoint, "TOPICS_PER_PART", 1)
    monkeypatch.setattr(checkpoint, "JOBS_PER_PART", 2)


def put(world: World, name: str, **config: Any) -> None:
    world.put(name, durability="fsync", leases_durable=True, lease_ms=100_000, **config)


def act(world: World, rng: Random, number: int) -> None:
    """One change of anything."""
    name = rng.choice(TOPICS)
    kind = rng.randrange(14)
    if kind < 5:
        records = [job("x" * rng.randrange(200), tag=rng.choice("ab")) for _ in range(3)]
        world.write(name, *records, key=f"k{number}" if kind == 0 else None)
    elif kind < 8:
        world.claim(rng.randrange(1, 5), topic=name)
    elif kind == 8:
        held = [seq for seq, one in world.queue(name).queue.jobs.items() if one.grant]
        world.ack(*held[:3], topic=name)
    elif kind == 9:
        held = [seq for seq, one in world.queue(name).queue.jobs.items() if one.grant]
        world.nack(*held[-2:], topic=name, delay_ms=rng.choice([0, 5000]))
    elif kind == 10:
        world.delete(name, match=rng.choice("ab"))
    elif kind == 11:
        world.drop(name)
        put(world, name)
    elif kind == 12:
        put(world, name, cap_records=rng.choice([4, 1000]))
    else:
        world.wait(rng.choice([1, 40_000]))


def settled(world: World) -> dict[str, Any]:
    """All that a restart must bring back."""
    for name in TOPICS:
        world.topic(name)
    picture = portrait(world.state, world.now)
    for topic in picture.values():
        topic["queue"].pop("orphans")
    return picture


@pytest.mark.parametrize("seed", range(scaled(5, 50)))
def test_anything_may_happen_between_two_steps(seed: int) -> None:
    rng = Random(seed)
    world = World()
    for name in TOPICS:
        put(world, name)
    steps: Iterator[None] = iter(())
    for number in range(500):
        act(world, rng, number)
        for _ in range(rng.randrange(8)):
            if next(steps, "ended") == "ended":
                steps = world.engine.tidy()
            world.step()
        check(world.state)
        if rng.random() < 0.01:
            expected = settled(world)
            world.step()
            world.kill()
            assert settled(world) == expected
            steps = iter(())
    jobs, leases = world.engine.journal.jobs, world.engine.journal.leases
    assert jobs.segments()[0].id > 9 and leases.segments()[0].id > 1, "segments were dropped"


def checkpoint_parts(world: World) -> list[ev.Checkpointed]:
    """Every checkpoint event in the log."""
    world.step()
    events = (e for f in world.engine.journal.jobs.read() for e in ev.decode(f.payload).events)
    return [event for event in events if isinstance(event, ev.Checkpointed)]


def test_a_large_checkpoint_comes_in_parts_and_counts_when_it_is_whole() -> None:
    world = World(segment_bytes=64 << 10)
    for name in TOPICS:
        put(world, name)
    journal = world.engine.journal
    journal.checkpoint(world.state, world.now)
    begun = journal.jobs.segment
    for left in range(len(TOPICS) - 1, 0, -1):
        assert journal.is_checkpointing and not journal.begins_with_checkpoint(begun), left
        world.write(TOPICS[0], "between")
        journal.go_on_with_checkpoint(world.state, world.now)
    assert not journal.is_checkpointing and journal.begins_with_checkpoint(begun)
    parts = checkpoint_parts(world)
    assert [kept.name for part in parts for kept in part.topics] == TOPICS
    assert [part.more for part in parts] == [True] * 6 + [False]
    assert {part.first_segment for part in parts} == {begun}
    world.kill()
    assert world.engine.journal.begins_with_checkpoint(begun)


def test_a_checkpoint_cut_short_does_not_count_and_another_one_does() -> None:
    world = World()
    for name in TOPICS:
        put(world, name)
        world.write(name, "x" * 300)
    world.engine.journal.checkpoint(world.state, world.now)
    begun = world.engine.journal.jobs.segment
    before = settled(world)
    world.step()
    world.kill()
    journal = world.engine.journal
    assert not journal.begins_with_checkpoint(begun) and not journal.is_checkpointing
    assert settled(world) == before
    for name in TOPICS:
        world.delete(name)
    world.tidy()
    assert journal.jobs.segments()[0].id > begun
    world.kill()
    assert [world.topic(name).head for name in TOPICS] == [1] * len(TOPICS)


def test_leases_older_than_a_part_that_makes_their_topic_known_are_kept() -> None:
    world = World()
    for name in TOPICS:
        put(world, name)
        world.write(name, "x")
        assert world.take(topic=name) == [1]
    journal = world.engine.journal
    journal.checkpoint(world.state, world.now)
    while journal.is_checkpointing:
        world.write(TOPICS[-1], "between")
        journal.go_on_with_checkpoint(world.state, world.now)
    before = settled(world)
    for _ in range(40):
        world.write(TOPICS[0], "x" * 1000)
        world.delete(TOPICS[0], before=world.topic(TOPICS[0]).head + 1)
    world.tidy()
    assert journal.jobs.segments()[0].id > 1
    world.kill()
    after = settled(world)
    assert all(after[name] == before[name] for name in TOPICS[1:])


def test_what_went_at_once_is_freed_in_steps() -> None:
    world = World()
    put(world, "t0")
    put(world, "t1", cap_records=50)
    for name in ("t0", "t1"):
        for number in range(50):
            world.write(name, job(number, tag=f"tag{number}"), key=f"k{number}")
    world.take(20, topic="t0")
    put(world, "t1", cap_records=1)
    world.drop("t0")
    assert world.topic("t1").live == 1
    steps = sum(1 for _ in compaction.free(world.state))
    assert steps > 30 and world.state.discarded == []
    check(world.state)


def test_a_short_history_of_leases_is_left_alone_whatever_the_number_of_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    for name in TOPICS:
        put(world, name)
    log = world.engine.journal.leases
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", log.bytes_total)
    assert len([*compaction.tidy_leases(world.engine.compaction())]) == 0
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", log.bytes_total - 1)
    steps = 0
    for _ in compaction.tidy_leases(world.engine.compaction()):
        world.step()  # it waits until the new beginning is durable
        steps += 1
    assert steps >= len(TOPICS)
