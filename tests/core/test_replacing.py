"""A write that replaces many jobs comes into its place bit by bit, and no reader can tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logqueue.core.apply import replacing
from logqueue.core.invariants import check
from logqueue.segments.index import IndexBuilder
from tests.core.world import World, wish
from tests.portrait import portrait

JOBS = 60


@pytest.fixture
def half_way(monkeypatch: pytest.MonkeyPatch) -> World:
    """Every second job has been replaced, and most of that is not in its place yet."""
    world = World()
    monkeypatch.setattr(replacing.go_on, "__defaults__", (2, 5))
    world.put(lease_ms=1000, durability="fsync", leases_durable=True)
    world.write("q", *[wish(n, key=f"k{n}") for n in range(JOBS)])
    assert world.take(8) == [*range(1, 9)]
    world.nack(*range(1, 9))
    world.write("q", *[wish(-n, key=f"k{n}", tag="new") for n in range(0, JOBS, 2)])
    assert len(world.state.replacing) == 1
    check(world.state)
    return world


def contents(world: World) -> list[int]:
    return [int(data) for data in world.data().values()]


NEW = [n if n % 2 else -n for n in range(JOBS)]


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_no_end_leaves_a_part(half_way: World, end: str) -> None:
    half_way.step()
    getattr(half_way, end)()
    assert contents(half_way) == NEW


def test_it_comes_to_the_same_bit_by_bit_and_at_replay(half_way: World) -> None:
    steps = 0
    while half_way.engine.lagging:
        half_way.engine.elapse_more()
        check(half_way.state)
        steps += 1
    assert steps > 10 and not half_way.state.replacing
    before = portrait(half_way.state)
    half_way.step()
    half_way.kill()
    assert portrait(half_way.state) == before


LOOKS: dict[str, Callable[[World], object]] = {
    "a read": lambda world: world.engine.topic_now("q"),
    "a claim": lambda world: world.take(1),
    "a delete": lambda world: world.delete(before=5),
    "another write": lambda world: world.write("q", wish(1000, key="k2")),
    "a retreat": lambda world: next(world.engine.rebuild_durable()),
    "tidying": lambda world: [*world.engine.tidy()],
}


@pytest.mark.parametrize("name", LOOKS)
def test_whoever_comes_finds_all_of_it(half_way: World, name: str) -> None:
    LOOKS[name](half_way)
    assert not half_way.state.replacing
    check(half_way.state)
    known = dict(enumerate(NEW, 1))
    if name == "another write":
        known[3] = 1000
    assert all(int(data) == known[seq] for seq, data in half_way.data().items())


def test_calls_wait_for_it(half_way: World) -> None:
    engine = half_way.engine
    turns = 0
    while engine.is_far_behind("q"):
        engine.catch_up("q")
        turns += 1
    assert turns > 10 and not half_way.state.replacing


def test_copies_of_a_router_are_of_the_new_content(half_way: World) -> None:
    half_way.put("copies", type="log", durability="fsync")
    half_way.put_router("r", "q", "copies")
    half_way.write("q", *[wish(n, key=f"r{n}") for n in range(JOBS)])
    half_way.write("q", *[wish(-n, key=f"r{n}") for n in range(0, JOBS, 2)])
    assert half_way.state.replacing and half_way.engine.behind
    half_way.engine.forward()
    while half_way.engine.lagging:
        half_way.engine.elapse_more()
    half_way.forward()
    copied = half_way.values("copies")
    assert copied == NEW
    half_way.step()
    half_way.kill()
    assert half_way.values("copies") == copied


def test_a_topic_that_is_deleted_leaves_nothing(half_way: World) -> None:
    half_way.drop()
    assert not half_way.state.replacing
    half_way.engine.elapse_more()
    check(half_way.state)


def test_the_index_of_a_segment_has_what_was_replaced_and_nothing_between(
    half_way: World,
) -> None:
    half_way.step()
    log = half_way.engine.journal.jobs
    spans = []
    for info in log.segments():
        file = half_way.fs.open(info.path)
        data = file.pread(info.bytes, 0)
        builder = IndexBuilder(data[:4096], "jobs")
        builder.feed(data[4096:])
        spans += [span for part in builder.index().topics for span in part.moved]
    assert spans == [(n + 1, n + 1) for n in range(0, JOBS, 2)]
