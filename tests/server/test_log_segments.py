"""What is found out about segments: only what is durable, piece by piece, as if read at once."""

from __future__ import annotations

import json

import msgspec
import pytest

from logqueue.segments.index import LogName, decode_index, encode_index
from logqueue.server.handlers.segment_listing import SegmentListing, SegmentQuery, list_segments
from logqueue.server.storage import checkpoint, compaction, segment_store
from logqueue.server.storage.segment_store import LOG_NAMES, SegmentPlace, SegmentStore
from tests.clock import ManualClock
from tests.core.world import START_MS, Bounds, World
from tests.segments.histories import indexes_of
from tests.sim.archived import segments
from wal.segment import segment_path
from wal.testing.simfs import SimFileSystem


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that end inside frames."""
    monkeypatch.setattr(segment_store, "STEP_BYTES", 100)
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)


def new_world(fs: SimFileSystem | None = None) -> World:
    """A server with a queue."""
    world = World(fs, clock=ManualClock(START_MS), archive=Bounds())
    if "q" not in world.state.topics:
        world.put(durability="disk")
    return world


def fresh_store(world: World) -> SegmentStore:
    """The same segments, with nothing found out about them."""
    journal = world.engine.journal
    return SegmentStore(journal.fs, journal.logs, world.engine.segments.archive)


def places(world: World, log: str = "jobs") -> list[SegmentPlace]:
    """The segments of a log."""
    return world.engine.segments.places("leases" if log == "leases" else "jobs")


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
        before, world.engine.segments = world.engine.segments, fresh_store(world)
        assert [world.look(other).index for other in places(world)][-1] == found.index
        world.engine.segments = before
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


def busy_world() -> World:
    """A server whose checkpoints go in parts, with router copies between them."""
    world = new_world()
    for name in ("a", "b"):
        world.put(name, type="log", durability="fsync")
    world.put_router("ab", "a", "b")
    for number in range(40):
        world.write("a", *["x" * 100] * 3)
        world.write("q", number, number)
        world.ack(*world.take(1))
        world.forward()
    world.step()
    return world


def test_a_segment_tells_the_same_whatever_was_looked_at_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its checkpoint may end in a later one: names, queues and routers stand in earlier ones."""
    monkeypatch.setattr(checkpoint, "TOPICS_PER_PART", 1)
    world = busy_world()
    data = segments(world.fs, "jobs", "data")
    expected = {index.segment: index for index in indexes_of(data)}
    assert any(part.events for index in expected.values() for part in index.topics)
    for order in (1, -1):
        world.engine.segments = fresh_store(world)
        for place in places(world)[:-1][::order]:
            assert world.look(place).index == expected[place.id]
    world.keep()
    world.kill()
    world.write("a", *["x" * 900] * 6)
    world.step()
    world.keep()
    for path, told in world.fs.contents().items():
        if path.startswith("archive/jobs") and path.endswith(".idx"):
            index = decode_index(told)
            assert index.segment not in expected or index == expected[index.segment]
            assert all(part.name for part in index.topics)


def test_an_index_of_another_segment_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    """It may be as long as the right one, when files were copied about."""
    world = new_world()
    for _ in range(12):
        world.write("q", *["x" * 100] * 4)
    world.step()
    world.keep()
    first, second = places(world)[:2]
    right = world.look(second).index
    wrong = msgspec.structs.replace(world.look(first).index, bytes=second.bytes)
    world.engine.segments = fresh_store(world)
    path = segment_path("archive/jobs", second.id) + ".idx"
    world.fs.create(path).pwrite(encode_index(wrong), 0)
    assert world.look(second).index == right
    assert "rebuilding the index" in caplog.text


@pytest.mark.parametrize(
    ("log", "topics", "expected"),
    [
        ("jobs", None, (1, 3)),
        ("leases", None, (3, 4)),
        ("jobs", frozenset({"q"}), (1, 3)),
        ("leases", frozenset({"q"}), (3, 4)),
    ],
)
def test_a_listing_goes_on_when_segments_are_dropped_meanwhile(
    log: LogName, topics: frozenset[str] | None, expected: tuple[int, int]
) -> None:
    world = World(clock=ManualClock(START_MS))
    world.put(durability="disk")
    for _ in range(80):
        world.write("q", *["x" * 100] * 4)
        world.ack(*world.take(4))
    world.engine.journal.jobs.sync()
    world.step()
    journal = world.engine.journal
    query = SegmentQuery(log, topics, 0, 0, 2)
    through = journal.logs[log].appended
    steps = list_segments(world.engine.segments, query, places(world, log), through)
    # The first segment of the jobs log is open now.
    next(steps)
    for name in LOG_NAMES:
        assert journal.logs[name].drop_before(places(world, name)[2].id)
    with pytest.raises(StopIteration) as end:
        while True:
            next(steps)
    page: SegmentListing = end.value.value
    named = [json.loads(entry)["id"] for entry in page.entries]
    assert named == [f"{log}-{id}" for id in expected]
    assert page.next_after == expected[-1]
