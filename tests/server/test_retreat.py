"""What is served once the log has failed: everything whose promise was kept, and nothing else."""

from __future__ import annotations

import errno

import pytest

from logqueue.core.invariants import check
from logqueue.errors import StorageReadOnly
from tests.core.world import World


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
    engine.stand_on(engine.retreat())

    check(world.state)
    assert world.seqs("safe") == [1]
    assert world.seqs("soft") == [1, 2]
    assert world.seqs("air") == [1, 2]


def test_reads_and_unlogged_topics_go_on_while_logged_writes_are_refused() -> None:
    world = world_with_failing_sync()
    with pytest.raises(StorageReadOnly):
        world.put("new", durability="fsync")
    world.engine.stand_on(world.engine.retreat())

    assert "new" not in world.state.topics
    assert world.write("air", "air 2").first_seq == 2
    assert world.take(topic="air") == [1]
    for topic in ("safe", "soft"):
        with pytest.raises(StorageReadOnly):
            world.write(topic, "more")
    look = world.engine.look("safe")
    log = world.engine.journal.jobs
    assert look.mark_durable <= log.durable and look.mark_written <= log.written
    assert world.counters("safe") == (1, 0, 0)


def test_a_restart_after_the_failure_keeps_what_was_promised() -> None:
    world = world_with_failing_sync()
    with pytest.raises(StorageReadOnly):
        world.write("safe", "safe 2")
    world.engine.stand_on(world.engine.retreat())
    world.fs.fail_when(lambda op: None)
    world.kill()
    assert world.seqs("safe")[:1] == [1]
    assert world.write("safe", "after").first_seq == world.topic("safe").head
