"""What is found out about segments: only what is durable, piece by piece, as if read at once."""

from __future__ import annotations

import pytest

from logqueue.clock import ManualClock
from logqueue.server import log_segments, tidying
from logqueue.server.log_segments import Place
from tests.core.world import START_MS, Bounds, World
from tests.sim.archived import segments
from wal.simfs import SimFileSystem


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that end inside frames."""
    monkeypatch.setattr(log_segments, "STEP_BYTES", 100)
    monkeypatch.setattr(tidying, "SLACK_BYTES", 500)


def new_world(fs: SimFileSystem | None = None) -> World:
    """A server with a queue."""
    world = World(fs, clock=ManualClock(START_MS), archive=Bounds())
    if "q" not in world.state.topics:
        world.put(durability="disk")
    return world


def places(world: World, log: str = "jobs") -> list[Place]:
    """The segments of a log."""
    return world.engine.journal.segments.places("leases" if log == "leases" else "jobs")


def test_a_segment_that_grows_is_read_on() -> None:
    """What is found each time is what a first look at the same segment finds."""
    world = new_world()
    for number in range(30):
        world.write("q", *["x" * (number * 13 % 90)] * (number % 4 + 1))
        world.engine.journal.jobs.sync()
        world.step()
        place = places(world)[-1]
        found = world.look(place)
        assert found.damage is None and found.index.bytes == place.bytes
        assert found.index.last_frame == world.engine.journal.jobs.appended
        fresh = log_segments.LogSegments(world.engine.journal)
        before, world.engine.journal.segments = world.engine.journal.segments, fresh
        assert [world.look(other).index for other in places(world)][-1] == found.index
        world.engine.journal.segments = before
    assert len(places(world)) > 2
    (rows,) = {sum(part.rows for place in places(world) for part in world.look(place).index.topics)}
    assert rows == world.topic("q").head


def test_only_durable_frames_are_told_of() -> None:
    world = new_world()
    world.write("q", 1)
    journal = world.engine.journal
    journal.jobs.sync()
    world.step()
    durable = journal.jobs.durable
    world.write("q", 2, 3)
    world.step()
    assert journal.jobs.written > journal.jobs.durable == durable
    place = places(world)[-1]
    assert world.look(place).index.last_frame == durable
    assert world.look(place).damage is None
    journal.jobs.sync()
    world.step()
    assert world.look(place).index.topics[0].rows == 3, "an older place of it will do"


def test_a_sealed_one_that_is_not_written_yet_still_grows() -> None:
    world = new_world()
    journal = world.engine.journal
    journal.jobs.roll()
    first, second = places(world)
    assert not first.is_sealed and not second.is_sealed
    world.step()
    first, second = places(world)
    assert first.is_sealed and not second.is_sealed


@pytest.mark.parametrize("offset", [5, 4096 + 3, 4096 + 40, 4500])
def test_damage(offset: int) -> None:
    """It is told, with what is before it; the other segments are as ever."""
    world = new_world()
    for _ in range(12):
        world.write("q", *["x" * 100] * 4)
    world.step()
    damaged, other = places(world)[1:3]
    world.fs.open(damaged.path).pwrite(b"damage", offset)
    for _ in range(2):
        found = world.look(damaged)
        assert found.damage and found.index.bytes <= offset
        assert found.index.segment == damaged.id
    assert world.look(other).damage is None
    for number in range(2):
        active = places(world)[-1]
        seen = world.look(active).index.bytes
        world.write("q", number)
        world.engine.journal.jobs.sync()
        world.step()
    assert active.id == places(world)[-1].id
    active = places(world)[-1]
    world.fs.open(active.path).pwrite(b"damage", seen + 9)
    for _ in range(2):
        found = world.look(active)
        assert found.damage and found.index.bytes == seen
    assert world.fs.contents()[damaged.path] == segments(world.fs, "jobs")[damaged.id]
