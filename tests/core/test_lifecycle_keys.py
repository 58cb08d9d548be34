"""Keyed writes: who is replaced, who is kept, and who gives way."""

from __future__ import annotations

from typing import Any

import pytest

from logqueue.api.record_texts import RecordTexts, shown
from logqueue.core.invariants import check
from logqueue.core.reading import read
from logqueue.errors import KeyConflict, NotAQueue, TopicFull
from logqueue.server.storage import compaction
from tests.core.world import World, wish
from tests.portrait import portrait


@pytest.fixture
def world() -> World:
    world = World()
    world.put(durability="fsync", leases_durable=True, lease_ms=1000)
    return world


def put(world: World, data: str, key: str = "k", **options: Any) -> list[tuple[int, str]]:
    reply = world.write("q", wish(data, key=key, **options))
    assert reply.results is not None
    return [*reply.results]


def survives(world: World) -> None:
    """The same after a kill."""
    check(world.state)
    before = portrait(world.state)["q"]
    world.step()
    world.kill()
    assert portrait(world.state)["q"] == before


def test_replace_keeps_seq_place_and_deliveries(world: World) -> None:
    world.write("q", "first", wish("old", key="k", tag="t", meta={"a": 1}), "last")
    world.take(2)
    world.nack(1, 2, error="no")
    world.wait(5)
    assert put(world, "new") == [(2, "replaced")]
    survives(world)
    jobs = world.claim(3)
    assert [j.data for j in jobs] == [b'"first"', b'"new"', b'"last"']
    replaced = jobs[1]
    assert (replaced.seq, replaced.deliveries, replaced.error) == (2, 2, "no")
    assert (replaced.tag, replaced.meta, replaced.key) == (b"", b"", b'"k"')
    assert replaced.updated_at == world.now and replaced.ts == world.now - 5
    assert jobs[0].updated_at == 0 and jobs[0].key == b""


def test_a_fresh_job_keeps_its_place_when_replaced(world: World) -> None:
    world.write("q", "a", wish("b", key="k"), "c")
    put(world, "B")
    check(world.state)
    assert [world.take() for _ in range(3)] == [[1], [2], [3]]
    assert world.take() == []
    survives(world)


def test_delays_follow_the_content(world: World) -> None:
    put(world, "a")
    assert put(world, "b", delay_ms=100) == [(1, "replaced")]
    assert world.states() == {1: "delayed"} and world.take() == []
    survives(world)
    world.wait(60)
    put(world, "c", delay_ms=100)
    world.wait(60)
    assert world.take() == []
    put(world, "d")
    survives(world)
    assert [j.data for j in world.claim()] == [b'"d"']


def test_ttls_follow_the_content(world: World) -> None:
    put(world, "a", ttl_ms=100)
    world.wait(60)
    put(world, "b", ttl_ms=100)
    world.wait(100)
    assert world.states() == {1: "ready"}
    world.wait(1)
    assert world.states() == {} and world.finished() == {"expired": 1}


def test_keep_and_reject(world: World) -> None:
    put(world, "a")
    assert put(world, "b", on_conflict="keep") == [(1, "kept")]
    with pytest.raises(KeyConflict) as refused:
        world.write("q", "plain", wish("c", key="k", on_conflict="reject"))
    assert refused.value.detail == {"key": "k", "seq": 1}
    assert world.data() == {1: b'"a"'}
    assert put(world, "d", key="other", on_conflict="reject") == [(2, "created")]


def test_one_write_with_everything(world: World) -> None:
    world.write("q", wish("a", key="a"), wish("b", key="b"))
    reply = world.write(
        "q",
        wish("A", key="a"),
        "plain",
        wish("B", key="b", on_conflict="keep"),
        wish("c", key="c", tag="one"),
        wish("C", key="c"),
        wish("x", key="c", on_conflict="keep"),
        key="once",
    )
    results = [
        (1, "replaced"), (3, "created"), (2, "kept"),
        (4, "created"), (4, "replaced"), (4, "kept"),
    ]  # fmt: skip
    assert reply.results == results
    assert (reply.first_seq, reply.last_seq, reply.records, reply.created_count) == (1, 4, 6, 2)
    assert reply.head_seq == 4
    assert world.data() == {1: b'"A"', 2: b'"b"', 3: b'"plain"', 4: b'"C"'}
    survives(world)
    again = world.write("q", wish("A2", key="a"), key="once")
    assert again.deduped and again.results == results
    assert world.data()[1] == b'"A"'


def test_a_key_that_was_new_in_a_repeated_write(world: World) -> None:
    first = world.write("q", wish("a", key="a"), "b", key="once")
    again = world.write("q", wish("a", key="a"), "b", key="once")
    assert again.results == first.results == [(1, "created"), (2, "created")]


def test_a_job_in_flight_is_never_touched(world: World) -> None:
    put(world, "a")
    assert world.take() == [1]
    assert put(world, "b") == [(2, "created")]
    assert world.ack(1) == (1, [])
    assert world.data() == {2: b'"b"'} and world.finished() == {"acked": 1}


@pytest.mark.parametrize("way", ["nack", "nack later", "expiry", "disconnect"])
@pytest.mark.parametrize("archive", [None, "done"])
def test_the_older_one_that_comes_back_gives_way(
    world: World, way: str, archive: str | None
) -> None:
    world.patch(archive=archive)
    put(world, "a")
    assert world.take(stream=7) == [1]
    put(world, "b")
    if way == "expiry":
        world.wait(1001)
        world.topic("q")
    elif way == "disconnect":
        assert world.release(7) == 1
    else:
        assert world.nack(1, delay_ms=0 if way == "nack" else 50) == (1, [])
    assert world.states() == {2: "ready"} and world.finished() == {"superseded": 1}
    if archive is not None:
        assert [m["$outcome"] for m in world.meta("done")] == ["superseded"]
    survives(world)


def test_of_two_that_come_back_the_newer_stays(world: World) -> None:
    for data in ("a", "b"):
        put(world, data)
        world.take()
    world.wait(1001)
    assert world.states() == {2: "ready"} and world.finished() == {"superseded": 1}


def test_giving_way_never_fails_though_the_archive_is_full(world: World) -> None:
    world.put("done", type="log", cap_records=1, discard="reject", durability="fsync")
    world.write("done", "full")
    world.patch(archive="done")
    put(world, "a")
    world.take()
    put(world, "b")
    assert world.nack(1) == (1, [])
    assert world.take(9) == [2]
    world.delete("done", before=9)
    world.wait(1000)
    world.topic("q")
    assert world.finished() == {"superseded": 1}


def test_an_older_one_gives_way_after_a_restart_too(world: World) -> None:
    world.patch(leases_durable=False)
    put(world, "a")
    world.take()
    put(world, "b")
    world.kill()
    assert world.take(9) == [2] and world.finished() == {"superseded": 1}


def test_keys_are_free_again(world: World) -> None:
    put(world, "a")
    world.cancel(1)
    assert put(world, "b") == [(2, "created")]
    assert world.run(_cancel_key("k")).seq == 2
    assert world.run(_cancel_key("k")) == (0, None, False)
    put(world, "c")
    world.take()
    world.patch(on_exhausted="hold")
    world.reject(3)
    assert put(world, "d") == [(4, "created")], "a held job does not wait"
    world.let_go(3)
    assert world.states() == {4: "ready"} and world.finished()["superseded"] == 1
    survives(world)


def _cancel_key(key: str) -> Any:
    from logqueue.core import commands as cmd
    from logqueue.events import block as blocks

    return cmd.CancelKey("q", blocks.write_string(key))


def test_replaced_out_of_the_middle_of_batches(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)
    world.put("noise", durability="fsync")
    world.write("q", *[wish(i, key=f"k{i}") for i in range(1, 11)])
    world.delete(match="none")
    world.cancel(5)
    for i in (4, 6, 1, 10, 4):
        put(world, f"new {i}", key=f"k{i}")
        check(world.state)
    before = world.data()
    assert before[4] == b'"new 4"' and len(before) == 9 and before[2] == b"2"
    for _ in range(3):
        for _ in range(30):
            world.write("noise", "x" * 200)
            world.delete("noise", before=10**9)
        world.step()
        world.tidy()
        survives(world)
        assert world.data() == before
        put(world, "again", key="k4")
        before = {**before, 4: b'"again"'}
    assert [world.take()[0] for _ in range(9)] == [1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_only_new_jobs_need_room(world: World) -> None:
    world.put(cap_records=1, discard="reject")
    put(world, "a")
    assert put(world, "b") == [(1, "replaced")]
    with pytest.raises(TopicFull):
        world.write("q", wish("c", key="k"), "new")
    assert world.data() == {1: b'"b"'}


def test_a_write_may_evict_what_it_replaces(world: World) -> None:
    world.put(cap_records=2, durability="fsync", archive="done")
    world.write("q", wish("a", key="a"), "b")
    reply = world.write("q", wish("A", key="a"), "c")
    assert reply.results == [(1, "replaced"), (3, "created")]
    assert world.data() == {2: b'"b"', 3: b'"c"'} and world.finished() == {"dropped": 1}
    assert world.data("done") == {1: b'"A"'}
    survives(world)


def test_logs_have_no_jobs(world: World) -> None:
    world.put("log", type="log")
    for record in (wish(1, key="k"), wish(1, delay_ms=5), wish(1, not_before=5)):
        with pytest.raises(NotAQueue):
            world.write("log", record)
    world.write("log", wish(1, ttl_ms=50))


def test_readers_see_the_new_content_of_a_seq_they_have_read(world: World) -> None:
    shared = RecordTexts()

    def seen() -> bytes:
        topic = world.topic("q")
        page = read(topic, 0, world.now, records_max=9, bytes_max=10**6)
        return shared.join(topic.number, page.runs, shown(tags=False, meta=False))

    world.write("q", wish("old", key="k"), "other")
    assert b'"old"' in seen()
    world.write("q", wish("new", key="k"))
    assert b'"new"' in seen() and b'"old"' not in seen()
    world.write("q", wish("newest", key="k"))
    assert b'"newest"' in seen() and b'"new"' not in seen()
