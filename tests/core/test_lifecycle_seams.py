"""Where features meet, as transcripts: copies, classes, archives, epochs and keys side by side."""

from __future__ import annotations

from typing import Any

import pytest

from logqueue.api.record_texts import RecordTexts, shown
from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.errors import RecordTooLarge
from tests.core.world import World, pack, wish
from tests.portrait import portrait


@pytest.fixture
def world() -> World:
    return World()


def stage(world: World, topic: str, *data: Any, partition: int = 0) -> cmd.StagedAttempt:
    """Stage a partition of the first epoch; what its commit is to name."""
    block = pack([wish(value) for value in data])
    world.run(cmd.StageChunk("p", 0, topic, partition, "a", 0, block, len(data)))
    return cmd.StagedAttempt(partition, "a", 1, len(data))


def commit(world: World, *parts: cmd.StagedAttempt) -> cmd.CommitResult:
    """Commit the first epoch."""
    reply: cmd.CommitResult = world.run(cmd.CommitEpoch("p", 0, parts))
    return reply


# -- copies of what is not in the log --------------------------------------------------------------


@pytest.mark.parametrize("end", ["acked", "rejected"])
def test_copies_of_an_ephemeral_archive_bring_their_payload(world: World, end: str) -> None:
    """A logged decision may write to a topic that is not logged; its records are in no segment."""
    world.put("kept", type="log", durability="ephemeral")
    world.put("copies", type="log", durability="fsync")
    world.put_router("r", "kept", "copies")
    world.put(durability="fsync", archive="kept", dead_letter="kept")
    world.fill(3)
    world.take(3)
    world.ack(1, 2, 3) if end == "acked" else world.reject(1, 2, 3)
    world.forward()
    world.step()
    assert world.values("copies") == [1, 2, 3]
    world.kill()
    assert world.values("kept") == [] and world.values("copies") == [1, 2, 3]


def test_what_was_staged_before_its_topic_was_logged(world: World) -> None:
    world.put("t", type="log", durability="ephemeral")
    part = stage(world, "t", 1, 2, 3)
    world.put("t", type="log", durability="fsync")
    commit(world, part)
    world.kill()
    assert world.values("t") == [1, 2, 3]


def test_what_was_staged_while_its_topic_was_logged(world: World) -> None:
    world.put("t", type="log", durability="fsync")
    world.put("copies", type="log", durability="fsync")
    world.put_router("r", "t", "copies")
    part = stage(world, "t", 1, 2, 3)
    world.put("t", type="log", durability="ephemeral")
    commit(world, part)
    world.forward()
    world.step()
    world.kill()
    assert world.values("t") == [] and world.values("copies") == [1, 2, 3]


# -- several parts of one decision -----------------------------------------------------------------


def test_an_epoch_evicts_from_two_queues_into_one_archive(world: World) -> None:
    for name in ("a", "b"):
        world.put(name, durability="fsync", cap_records=2, archive="done")
    world.write("a", 1, 2)
    world.write("b", 3, 4)
    commit(world, stage(world, "a", 5, 6), stage(world, "b", 7, 8, partition=1))
    check(world.state)
    assert world.values("a") + world.values("b") == [5, 6, 7, 8]
    assert sorted(world.values("done")) == [1, 2, 3, 4]
    world.kill()
    assert sorted(world.values("done")) == [1, 2, 3, 4]


def test_an_epoch_creates_two_archives(world: World) -> None:
    for name in ("a", "b"):
        world.put(name, durability="fsync", cap_records=1, archive=f"done.{name}")
        world.write(name, name)
    commit(world, stage(world, "a", 1), stage(world, "b", 2, partition=1))
    check(world.state)
    assert (world.values("done.a"), world.values("done.b")) == (["a"], ["b"])


def test_an_epoch_writes_to_the_archive_of_its_own_queue(world: World) -> None:
    """What was committed comes under the seqs that the reply names; copies come behind."""
    world.put("a", durability="fsync", cap_records=2, archive="done")
    world.put("done", type="log", cap_records=3, discard="old")
    world.write("a", 1, 2)
    reply = commit(world, stage(world, "a", 5, 6), stage(world, "done", 7, 8, partition=1))
    check(world.state)
    assert reply.ranges == (("a", 3, 4), ("done", 1, 2))
    assert world.values("done") == [8, 1, 2]


def test_an_epoch_is_refused_when_the_archive_has_no_room_for_all(world: World) -> None:
    world.put("done", type="log", cap_records=3, discard="reject")
    for name in ("a", "b"):
        world.put(name, durability="fsync", cap_records=2, archive="done")
        world.write(name, 1, 2)
    parts = stage(world, "a", 5, 6), stage(world, "b", 7, 8, partition=1)
    with pytest.raises(RecordTooLarge):
        commit(world, *parts)
    assert world.values("a") == [1, 2] and world.values("done") == []


def test_a_redrive_evicts_from_two_queues_into_one_archive(world: World) -> None:
    for name in ("a", "b"):
        world.put(name, durability="fsync", cap_records=1, archive="done", dead_letter="letters")
        world.write(name, name)
        world.take(topic=name)
        world.reject(1, topic=name)
        world.write(name, f"{name}2")
    assert world.redrive().redriven == 2
    check(world.state)
    assert world.values("a") + world.values("b") == ["a", "b"]
    assert world.values("done") == ["a2", "b2"]


# -- keys and readers ------------------------------------------------------------------------------


def page(world: World, texts: RecordTexts) -> bytes:
    """All records of the queue as a reader gets them."""
    topic = world.topic("q")
    runs = [(b, *run) for b in topic.batches for run in b.stretches(0, b.count)]
    return texts.join(topic.number, runs, shown(tags=True, meta=True))


def test_readers_see_the_new_content_of_a_replaced_job(world: World) -> None:
    world.put(durability="fsync")
    texts = RecordTexts()
    world.write("q", *[wish(n, key=f"k{n}") for n in range(3)])
    assert b'"data":1' in page(world, texts)
    for number in (10, 11):
        world.write("q", wish(number, key="k1"))
        assert page(world, texts).split(b'"data":')[2].startswith(b"%d}" % number)
        # Tidying joins the batches again, under the seqs they had at first.
        compact = cmd.Compact("q", [batch.first_seq for batch in world.topic("q").batches])
        world.run(compact)
        assert page(world, texts).split(b'"data":')[2].startswith(b"%d}" % number)


def test_a_write_replaces_a_tagged_job_and_evicts_it(world: World) -> None:
    world.put(durability="fsync", cap_records=2, archive="done")
    world.write("q", wish(1, key="k", tag="t"), wish(2, tag="t"))
    world.write("q", wish(3, key="k", tag="t"), wish(4, tag="t"))
    check(world.state)
    assert (world.values(), world.values("done")) == ([2, 4], [3])
    assert world.delete(match="t") == 2
    world.kill()
    assert world.values() == []


@pytest.mark.parametrize("backoff", [None, {"kind": "constant", "base_ms": 9000}])
def test_a_job_that_came_back_by_itself_is_replaced(world: World, backoff: Any) -> None:
    """No event says that a lease has run out; a replay finds the job waiting all the same."""
    world.put(durability="fsync", leases_durable=True, lease_ms=100, retry_backoff=backoff)
    world.write("q", wish(1, key="k"))
    world.take()
    world.wait(110)
    world.write("q", wish(2, key="k", delay_ms=500))
    live = portrait(world.state)["q"]["queue"]
    assert live["jobs"] == {1: ("delayed", 1, world.now + 500)}
    world.kill()
    assert portrait(world.state)["q"]["queue"] == live


# -- leases that become durable --------------------------------------------------------------------


def test_leases_that_were_given_before_they_were_durable(world: World) -> None:
    world.put(durability="fsync", leases_durable=True, lease_ms=10**7)
    world.fill(4)
    world.take(1, node="a")
    world.patch(leases_durable=False)
    world.nack(1, node="a")
    world.take(2, node="b", stream=7)
    world.nack(2, node="b", delay_ms=500, error="no")
    world.patch(leases_durable=True)
    check(world.state)
    world.take(1, node="c")
    world.step()
    live = portrait(world.state)["q"]["queue"]
    assert live["jobs"][1][3:] == ("b", world.now + 10**7, 7)
    world.kill()
    assert portrait(world.state)["q"]["queue"] == live


def test_replaced_jobs_among_many_with_one_tag(world: World) -> None:
    """Same tag, another tag, and back; early and late ones."""
    world.put(durability="fsync")
    world.write("q", *[wish(n, key=f"k{n}", tag="t") for n in range(200)])
    for tag in ("t", "u", "t", None, "t"):
        for number in (0, 100, 199):
            world.write("q", wish(number, key=f"k{number}", tag=tag))
        check(world.state)
    for number in range(150):
        world.write("q", wish(number, key=f"k{number}", tag="u"))
    check(world.state)
    world.write("q", wish(3, key="k3", tag="t"))
    check(world.state)
    assert world.delete(match="t") == 51
