"""Loops of routers, archives and dead-letter topics: which are refused, and that none goes on for
ever."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.errors import LogqueueError, RouterCycle
from logqueue.model import limits
from logqueue.model.config import TopicOptions
from tests.core.world import World, job, pack
from tests.portrait import portrait


@pytest.fixture
def world() -> World:
    return World()


def refuse(call: Any, *args: Any, **options: Any) -> tuple[list[str], str]:
    """The loop that a refusal names, and its message."""
    with pytest.raises(RouterCycle) as refused:
        call(*args, **options)
    error: LogqueueError = refused.value
    assert error.detail is not None
    cycle = error.detail["cycle"]
    assert all(repr(name) in error.message for name in cycle)
    return cycle, error.message


def loop_of_three(world: World, **options: Any) -> None:
    """Router a -> b, and b is a queue; nothing leads back yet."""
    world.put("a", **options)
    world.put("b", **options)
    world.put_router("r", "a", "b")


COPIES = pytest.mark.parametrize("field", ["archive", "dead_letter"])


@COPIES
def test_a_router_that_closes_a_loop_of_copies_is_refused(world: World, field: str) -> None:
    world.put("q", **{field: "x"})
    for _ in range(2):
        cycle, message = refuse(world.put_router, "r", "x", "q")
        assert cycle == ["x", "q", "x"] and "allow_cycle" in message
        # The same with a topic that exists by now.
        world.put("x")
    world.put_router("r", "x", "q", allow_cycle=True)


@COPIES
def test_a_config_that_closes_a_loop_is_refused(world: World, field: str) -> None:
    loop_of_three(world)
    for call in (world.put, world.patch):
        cycle, message = refuse(call, "b", **{field: "a"})
        assert cycle == ["b", "a", "b"] and f"`{field}`" in message
    assert getattr(world.topic("b").config, field) is None
    world.put("b", **{field: "elsewhere"})


@COPIES
def test_longer_loops_and_such_through_topics_that_come_later(world: World, field: str) -> None:
    loop_of_three(world)
    world.put("b", archive="c")
    cycle, _ = refuse(world.put, "c", **{field: "a"})
    assert cycle == ["c", "a", "b", "c"]
    world.put("d", dead_letter="a")
    cycle, _ = refuse(world.put_router, "s", "c", "d")
    assert cycle == ["c", "d", "a", "b", "c"]


@COPIES
def test_a_write_creates_no_queue_that_closes_a_loop(world: World, field: str) -> None:
    loop_of_three(world)
    world.put("b", archive="c")
    config = msgspec.convert({"type": "queue", field: "a"}, TopicOptions).resolved()
    command = cmd.Append("c", pack([job(1)]), 1, config=config)
    assert refuse(world.run, command)[0] == ["c", "a", "b", "c"]
    assert "c" not in world.state.topics


def test_loops_without_a_router_are_allowed(world: World) -> None:
    """They only move jobs, as fast as somebody works on them."""
    world.put("q", archive="r", dead_letter="s")
    world.put("r", archive="q")
    world.put("s", dead_letter="q")
    world.put_router("out", "r", "elsewhere")


def test_a_log_with_a_dead_letter_topic_copies_nothing(world: World) -> None:
    world.put("a", type="log", dead_letter="b", archive="b")
    world.put("b")
    world.put_router("r", "b", "a")


def test_what_stays_as_it_is_is_not_refused(world: World) -> None:
    """A loop that was allowed must not stop other changes of the queue."""
    world.put("q", archive="x")
    world.put_router("r", "x", "q", allow_cycle=True)
    world.put_router("r", "x", "q", allow_cycle=True)
    world.put("q", archive="x", lease_ms=500)
    world.patch("q", lease_ms=600)


@COPIES
def test_a_loop_ends_by_the_hops_of_its_copies(world: World, field: str) -> None:
    """Evictions or expiries make copies, a router brings them back: each comes round so often."""
    options: dict[str, Any] = {field: "x"}
    if field == "archive":
        options["cap_records"] = 1
    else:
        options |= {"on_expire": "dead_letter", "ttl_ms": 5}
    world.put("x", type="log")
    world.put("q", **options)
    world.put_router("r", "x", "q", allow_cycle=True)
    world.write("q", "a", "b")
    turns = 0
    while turns < 300:
        head = world.topic("x").head
        world.wait(6)
        world.topic("q")
        world.forward()
        world.topic("q")
        turns += 1
        if world.topic("x").head == head and turns > 3:
            break
    copies = world.topic("x").head
    assert limits.ROUTER_HOPS_MAX <= copies <= 2 * (limits.ROUTER_HOPS_MAX + 1)
    check(world.state)
    before = portrait(world.state)
    world.step()
    world.restart()
    assert portrait(world.state) == before


def test_copies_of_records_that_came_different_ways_keep_their_own_hops(world: World) -> None:
    world.put("source", type="log")
    world.put("q", archive="new", cap_records=4)
    world.put_router("r", "source", "q")
    world.write("q", 1)
    world.write("source", 2, 3)
    world.forward()
    world.write("q", 4)
    world.take(4)
    world.ack(1, 2, 3, 4)
    found = [(b.first_seq, b.count, b.hops) for b in world.topic("new").batches]
    assert found == [(1, 1, 0), (2, 2, 1), (4, 1, 0)]
    world.write("q", 5)
    world.write("source", 6)
    world.forward()
    world.write("q", 7, 8, 9)
    assert world.values("new") == [1, 2, 3, 4, 5]
    world.write("q", 10, 11, 12, 13, 14)
    assert world.values("new") == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert [b.hops for b in world.topic("new").batches][3:] == [0, 1, 0]
    check(world.state)
    before = portrait(world.state)
    world.step()
    world.restart()
    assert portrait(world.state) == before


def test_copies_of_several_hops_into_a_capped_topic(world: World) -> None:
    """Each append counts what those before it have evicted."""
    world.put("done", type="log", cap_records=2)
    world.put("source", type="log")
    world.put("q", archive="done")
    world.put_router("r", "source", "q")
    world.write("done", 0)
    world.write("q", 1)
    world.write("source", 2)
    world.forward()
    world.write("q", 3)
    world.take(3)
    world.ack(1, 2, 3)
    check(world.state)
    assert world.values("done") == [2, 3]
