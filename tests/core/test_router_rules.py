"""Routers as transcripts: which edges may be, and what is copied."""

from __future__ import annotations

import msgspec
import pytest

from logqueue.core import commands as cmd
from logqueue.core.reading import read
from logqueue.errors import (
    InvalidRequest,
    LogqueueError,
    RouterCycle,
    Throttled,
    TopicExistsIncompatible,
    TopicNotFound,
)
from logqueue.model.limits import Quotas
from tests.core.world import World, job


@pytest.fixture
def world() -> World:
    world = World()
    world.put("a", type="log", durability="fsync")
    return world


def logged(world: World) -> int:
    """Bytes that were given to the jobs log."""
    return world.engine.journal.jobs.stats.bytes_written


# -- which edges may be ----------------------------------------------------------------------------


def test_both_ends_are_created(world: World) -> None:
    assert world.put_router("r", "x", "y")
    assert {"x", "y"} <= {*world.state.topics}
    assert not world.put_router("r", "x", "y", preserve_tag=False)
    assert world.state.routers["r"].options.preserve_tag is False
    assert world.drop_router("r") and not world.drop_router("r")
    assert {"x", "y"} <= {*world.state.topics}


@pytest.mark.parametrize(
    ("router", "source", "dest", "refusal"),
    [
        ("-r", "a", "b", InvalidRequest),
        ("r/", "a", "b", InvalidRequest),
        ("a->b", "a", "b", None),
        ("r", "a", "a", InvalidRequest),
        ("r", "a", ".b", InvalidRequest),
        ("r", "a>b", "b", InvalidRequest),
    ],
)
def test_names(
    world: World, router: str, source: str, dest: str, refusal: type[LogqueueError] | None
) -> None:
    if refusal is None:
        assert world.put_router(router, source, dest)
    else:
        with pytest.raises(refusal):
            world.put_router(router, source, dest)
        assert [*world.state.topics] == ["a"]


def test_a_missing_destination_may_be_refused(world: World) -> None:
    with pytest.raises(TopicNotFound):
        world.put_router("r", "new", "b", create_dest=False)
    assert [*world.state.topics] == ["a"]
    assert world.put_router("r", "new", "a", create_dest=False)


def test_a_destination_has_one_source(world: World) -> None:
    world.put_router("r", "a", "b")
    with pytest.raises(TopicExistsIncompatible) as refused:
        world.put_router("s", "c", "b")
    assert refused.value.detail == {"topic": "b", "reason": "router_dest_fan_in"}
    assert "c" not in world.state.topics
    assert world.put_router("s", "a", "b"), "a second edge between the same two is fine"
    world.write("a", 1)
    world.forward()
    assert world.values("b") == [1, 1]


def test_an_edge_stays_where_it_is(world: World) -> None:
    world.put_router("r", "a", "b")
    with pytest.raises(TopicExistsIncompatible) as refused:
        world.put_router("r", "a", "c")
    assert refused.value.detail == {
        "router": "r",
        "reason": "router_repoint_forbidden",
        "existing_source": "a",
        "existing_dest": "b",
    }


def test_loops(world: World) -> None:
    world.put_router("ab", "a", "b")
    world.put_router("bc", "b", "c")
    with pytest.raises(RouterCycle) as refused:
        world.put_router("ca", "c", "a")
    assert refused.value.detail == {"cycle": ["c", "a", "b", "c"]}
    assert world.put_router("ca", "c", "a", allow_cycle=True)
    world.write("a", "x")
    world.forward()
    assert [len(world.values(name)) for name in "abc"] == [3, 3, 3], "a copy comes eight hops far"


def test_how_many_there_may_be() -> None:
    world = World(quotas=Quotas(topics_max=3, routers_max=1))
    with pytest.raises(Throttled):
        world.put("a"), world.put("b"), world.put_router("r", "c", "d")
    assert [*world.state.topics] == ["a", "b"]
    world.put_router("r", "a", "b")
    with pytest.raises(Throttled) as refused:
        world.put_router("s", "b", "c")
    assert refused.value.detail == {"limit": "max_routers", "max": 1}
    assert not world.put_router("r", "a", "b", allow_cycle=True)


def test_a_dropped_topic_takes_its_routers(world: World) -> None:
    world.put_router("ab", "a", "b")
    world.put_router("bc", "b", "c")
    reply = world.run(cmd.DropTopic("b"))
    assert reply.routers_removed == ("ab", "bc")
    assert not world.state.routers and not world.state.routers_in and not world.state.routers_out
    world.write("a", 1)
    world.forward()
    world.kill()
    assert not world.state.routers


# -- what is copied --------------------------------------------------------------------------------


def test_only_what_comes_after_the_router(world: World) -> None:
    world.write("a", 1)
    world.put_router("r", "a", "b")
    world.write("a", 2, 3)
    world.forward()
    assert world.values("b") == [2, 3] and world.seqs("b") == [1, 2]


def test_reads_of_the_destination_catch_up(world: World) -> None:
    world.put("c")
    world.put_router("ab", "a", "b")
    world.put_router("bc", "b", "c")
    world.write("a", 1)
    assert world.take(topic="c") == [1]
    world.write("a", 2)
    assert world.values("c") == [1, 2]


def test_filter_and_what_is_kept(world: World) -> None:
    world.put_router("r", "a", "b", filter="x*", preserve_node=False)
    world.put_router("s", "a", "c", preserve_tag=False)
    records = [job(n, tag=tag, node="n", meta={"m": n}) for n, tag in enumerate(("x1", None, "y"))]
    world.write("a", *records)
    world.forward()
    assert [texts for _, _, texts in world.records("b")] == [(b"0", b'"x1"', b"", b'{"m":0}')]
    assert [texts[1:3] for _, _, texts in world.records("c")] == [(b"", b'"n"')] * 3
    assert world.state.routers["r"].forwarded == 1 and world.state.routers["s"].forwarded == 3


def test_deleted_and_expired_records_are_passed_over(world: World) -> None:
    world.put("a", type="log", durability="fsync", ttl_ms=100)
    world.put_router("r", "a", "b")
    world.write("a", 1, 2)
    world.delete("a", before=2)
    world.wait(60)
    world.write("a", 3)
    world.engine.behind.clear()
    world.wait(60)
    world.write("a", 4)
    world.forward()
    assert world.values("b") == [3, 4]


def test_an_exactly_once_copy_says_what_it_is_a_copy_of(world: World) -> None:
    world.put_router("r", "a", "b", guarantee="exactly_once")
    many = {f"k{i}": i for i in range(64)}
    world.write("a", job(1), job(2, meta={"own": 1}), job(3, meta=[1]), job(4, meta=many))
    world.forward()
    metas = [msgspec.json.decode(texts[3]) for _, _, texts in world.records("b")]
    router = world.state.routers["r"]
    assert metas[0]["$router"] == {
        "key": f"r/{router.number}/1/1",
        "router": "r",
        "source": "a",
        "source_instance": 1,
        "epoch": router.number,
        "source_seq": 1,
    }
    assert metas[1]["own"] == 1
    assert metas[2]["$router_meta"] == [1] and metas[3]["$router_meta"] == many
    world.restart()
    assert [msgspec.json.decode(texts[3]) for _, _, texts in world.records("b")] == metas


def test_a_copy_shares_the_bytes_and_is_not_logged_twice() -> None:
    world = World(segment_bytes=1 << 20)
    world.put("a", type="log", durability="fsync")
    world.put_router("r", "a", "b")
    world.step()
    before = logged(world)
    world.write("a", *["x" * 1000] * 100)
    once = logged(world) - before
    world.forward()
    world.step()
    assert logged(world) - before < once + 200
    (original,), (copy,) = world.topic("a").batches, world.topic("b").batches
    assert copy.block is original.block
    world.kill()
    (original,), (copy,) = world.topic("a").batches, world.topic("b").batches
    assert copy.block is original.block


# -- a destination without room --------------------------------------------------------------------


def test_a_full_destination_stalls_and_resumes_in_order(world: World) -> None:
    world.put("b", cap_records=3, discard="reject", durability="fsync")
    world.put_router("r", "a", "b")
    world.put_router("s", "a", "other")
    world.write("a", *range(8))
    world.forward()
    assert world.values("b") == [0, 1, 2] and world.values("other") == [*range(8)]
    assert world.engine.stalled
    got = []
    while jobs := world.claim(2, topic="b"):
        got += [int(j.data) for j in jobs]
        world.ack(*[j.seq for j in jobs], topic="b")
        world.forward()
    assert got == [*range(8)] and not world.engine.stalled


def test_a_record_that_never_fits_waits_for_ever(world: World) -> None:
    world.put("b", cap_bytes=10, discard="reject")
    world.put_router("r", "a", "b")
    world.write("a", 1, "x" * 20, 2)
    world.forward()
    world.forward()
    assert world.values("b") == [1] and world.engine.stalled
    world.put("b", cap_bytes=100, discard="reject")
    world.forward()
    assert world.values("b") == [1, "x" * 20, 2]


@pytest.mark.parametrize("noticed_on_the_way", [False, True])
def test_a_trimmed_source_leaves_a_hole(world: World, noticed_on_the_way: bool) -> None:
    """One hole, even when the router looks while the source is being trimmed."""
    world.put("a", type="log", durability="fsync", cap_records=3)
    world.put("b", cap_records=2, discard="reject", type="log", durability="fsync")
    world.put_router("r", "a", "b")
    world.write("a", 1, 2)
    world.forward()
    for number in range(3, 9):
        world.write("a", number)
        if noticed_on_the_way:
            world.forward()
    world.put("b", type="log", durability="fsync")
    for _ in range(2):
        world.forward()
        assert world.values("b") == [1, 2, 6, 7, 8] and world.seqs("b") == [1, 2, 6, 7, 8]
        assert world.topic("b").holes == [(3, 5)]
        world.kill()
    world.restart()
    assert world.topic("b").holes == [(3, 5)]
    topic = world.topic("b")
    first = read(topic, 0, world.now, records_max=10, bytes_max=1000)
    assert first.tombstone is None and first.next_from_seq == 2
    second = read(topic, 2, world.now, records_max=10, bytes_max=1000)
    assert second.tombstone is not None and second.next_from_seq == 8
    assert second.tombstone[:3] == (3, 5, "source_trim")
    world.delete("b", before=3)
    third = read(world.topic("b"), 0, world.now, records_max=10, bytes_max=1000)
    assert third.tombstone is not None
    assert third.tombstone[:3] == (1, 5, "source_trim"), "the gap begins behind the cursor"
