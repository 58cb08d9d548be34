"""Transactional appends as transcripts: what may be staged, what a commit makes visible, and that
an epoch comes once and whole through any end."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from logqueue.core import commands as cmd
from logqueue.errors import EpochConflict, LogqueueError, RecordTooLarge, Throttled, TopicFull
from logqueue.model import limits
from logqueue.server.storage import compaction
from tests.core.world import World, job, pack
from tests.effort import swept
from tests.portrait import portrait
from wal.testing.simfs import SimCrash, SimFileSystem


class Writer:
    """A producer's side: stages whole partitions, commits epochs."""

    def __init__(self, world: World, producer: str = "p", topic: str = "t") -> None:
        self.world = world
        self.producer = producer
        self.topic = topic

    def stage(
        self,
        epoch: int,
        data: list[Any],
        *,
        partition: int = 0,
        attempt: str = "a",
        number: int = 0,
        topic: str | None = None,
    ) -> bool:
        """Stage one chunk; whether it is new."""
        block = pack([job(value) for value in data])
        command = cmd.StageChunk(
            self.producer,
            epoch,
            topic or self.topic,
            partition,
            attempt,
            number,
            block,
            len(data),
        )
        reply: cmd.StageResult = self.world.run(command)
        return reply.is_new

    def commit(self, epoch: int, *parts: tuple[int, str, int, int]) -> cmd.CommitResult:
        """Commit an epoch."""
        named = tuple(cmd.StagedAttempt(*part) for part in parts)
        reply: cmd.CommitResult = self.world.run(cmd.CommitEpoch(self.producer, epoch, named))
        return reply


@pytest.fixture
def world() -> World:
    world = World()
    world.put("t", type="log", durability="fsync")
    return world


@pytest.fixture
def writer(world: World) -> Writer:
    return Writer(world)


def refusal(reason: str) -> Any:
    """A conflict with this reason."""
    return pytest.raises(EpochConflict, check=lambda e: e.detail["reason"] == reason)


def test_an_epoch_becomes_visible_all_at_once(world: World, writer: Writer) -> None:
    world.write("t", 0)
    writer.stage(0, [3, 4], partition=1)
    writer.stage(0, [2], number=1)
    writer.stage(0, [1], number=0)
    assert world.values("t") == [0]
    reply = writer.commit(0, (1, "a", 1, 2), (0, "a", 2, 2))
    assert reply == cmd.CommitResult(True, (("t", 2, 5),))
    assert world.values("t") == [0, 1, 2, 3, 4] and world.seqs("t") == [1, 2, 3, 4, 5]


def test_a_repeat_is_answered_as_the_first_time(world: World, writer: Writer) -> None:
    writer.stage(0, [1, 2])
    first = writer.commit(0, (0, "a", 1, 2))
    assert not writer.stage(0, [1, 2], attempt="b"), "its epoch is done"
    for end in ("none", "restart", "kill"):
        if end != "none":
            getattr(world, end)()
        assert writer.commit(0, (0, "b", 1, 2)) == cmd.CommitResult(False, first.ranges)
    assert world.values("t") == [1, 2]
    writer.stage(1, [3])
    writer.commit(1, (0, "a", 1, 1))
    assert writer.commit(0, (0, "a", 1, 2)) == cmd.CommitResult(False, ())
    assert world.values("t") == [1, 2, 3]


def test_losing_tries_are_let_go(world: World, writer: Writer) -> None:
    writer.stage(0, [1], attempt="lost")
    writer.stage(0, [1], attempt="won")
    writer.commit(0, (0, "won", 1, 1))
    assert world.values("t") == [1]
    assert world.state.producers["p"].staged_bytes == 0


def test_an_aborted_epoch_frees_its_room_at_once(world: World, writer: Writer) -> None:
    def abort(epoch: int) -> cmd.AbortResult:
        reply: cmd.AbortResult = world.run(cmd.AbortEpoch("p", epoch))
        return reply

    assert abort(3) == cmd.AbortResult(False, 0), "an unknown producer has nothing staged"
    assert "p" not in world.state.producers
    writer.stage(0, [1])
    writer.commit(0, (0, "a", 1, 1))
    for end in ("none", "restart", "kill"):
        writer.stage(1, [2, 3])
        writer.stage(1, [4], partition=1)
        assert world.state.staged_bytes and world.state.staged_chunks == 2
        assert abort(1) == cmd.AbortResult(False, 0)
        assert (world.state.staged_bytes, world.state.staged_chunks) == (0, 0)
        if end != "none":
            getattr(world, end)()
        # A process that dies may not have written that yet: it is done by asking again.
        if end == "kill":
            assert abort(1) == cmd.AbortResult(False, 0)
        assert (world.state.staged_bytes, world.state.staged_chunks) == (0, 0)
        with refusal("missing"):
            writer.commit(1, (0, "a", 1, 2), (1, "a", 1, 1))
        assert abort(1) == cmd.AbortResult(False, 0), "again is fine"
    assert abort(0) == cmd.AbortResult(True, 0), "what was committed stays"
    with refusal("gap"):
        abort(2)
    # The same names may come with other content afterwards, also for readers of the log.
    writer.stage(1, [5, 6])
    assert writer.commit(1, (0, "a", 1, 2)).ranges == (("t", 2, 3),)
    world.kill()
    assert world.values("t") == [1, 5, 6]


def test_an_abort_leaves_epochs_after_it(world: World, writer: Writer) -> None:
    for epoch in (4, 5, 6):
        writer.stage(epoch, [epoch])
    size = world.state.staged_bytes
    assert world.run(cmd.AbortEpoch("p", 5)) == cmd.AbortResult(False, size // 3)
    world.restart()
    assert (world.state.staged_bytes, world.state.staged_chunks) == (size // 3, 1)
    writer.commit(6, (0, "a", 1, 1))
    assert world.values("t") == [6]


def test_an_epoch_may_write_to_several_topics_or_none(world: World, writer: Writer) -> None:
    writer.stage(0, [1], topic="a")
    writer.stage(0, [2], topic="b", number=1)
    writer.stage(0, [3], topic="a", number=2)
    assert writer.commit(0, (0, "a", 3, 3)).ranges == (("a", 1, 2), ("b", 1, 1))
    assert writer.commit(1) == cmd.CommitResult(True, ())
    assert world.values("a") == [1, 3] and world.values("b") == [2]


def test_what_does_not_fit_together_is_a_conflict(world: World, writer: Writer) -> None:
    writer.stage(5, [1, 2])
    with refusal("missing"):
        writer.commit(5, (0, "a", 2, 2))
    with refusal("missing"):
        writer.commit(5, (0, "b", 1, 2))
    with refusal("rows"):
        writer.commit(5, (0, "a", 1, 3))
    with refusal("content"):
        writer.stage(5, [1, 3])
    assert not writer.stage(5, [1, 2]), "the very same again is fine"
    writer.commit(5, (0, "a", 1, 2))
    with refusal("gap"):
        writer.stage(7, [9])
    with refusal("gap"):
        writer.commit(7)
    with refusal("content"):
        writer.commit(5, (0, "a", 1, 3))
    assert world.values("t") == [1, 2]


@pytest.mark.parametrize(
    ("config", "rows", "refused"),
    [
        ({"cap_records": 3, "discard": "reject"}, 2, TopicFull),
        ({"cap_records": 3, "discard": "reject"}, 4, RecordTooLarge),
    ],
)
def test_a_full_topic_refuses_the_whole_epoch(
    world: World, writer: Writer, config: dict[str, Any], rows: int, refused: type[LogqueueError]
) -> None:
    world.put("full", type="log", **config)
    world.write("full", "x", "y")
    writer.stage(0, [0])
    writer.stage(0, [*range(rows)], number=1, topic="full")
    with pytest.raises(refused):
        writer.commit(0, (0, "a", 2, rows + 1))
    assert world.values("t") == [] and len(world.values("full")) == 2
    world.put("full", type="log")
    writer.commit(0, (0, "a", 2, rows + 1))
    assert world.values("t") == [0]


def test_caps_act_on_the_whole_epoch(world: World, writer: Writer) -> None:
    world.put("capped", type="log", cap_records=3)
    for number in range(3):
        writer.stage(0, [number * 2, number * 2 + 1], number=number, topic="capped")
    assert writer.commit(0, (0, "a", 3, 6)).ranges == (("capped", 1, 6),)
    assert world.values("capped") == [3, 4, 5] and world.topic("capped").cap_floor == 3


def test_staging_has_bounds(world: World, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STAGED_BYTES_MAX", 100)
    writer.stage(0, ["x" * 50])
    with pytest.raises(Throttled):
        writer.stage(0, ["x" * 50], number=1)
    world.wait(limits.STAGED_MS_MAX + 1)
    world.run(cmd.ExpireStaged())
    with refusal("missing"):
        writer.commit(0, (0, "a", 1, 1))
    assert writer.stage(0, ["x" * 50])
    world.wait(limits.PRODUCER_IDLE_MS_MAX + 1)
    world.run(cmd.ExpireStaged())
    assert not world.state.producers


def test_a_deleted_topic_takes_what_was_staged_for_it(world: World, writer: Writer) -> None:
    writer.stage(0, [1])
    world.drop("t")
    world.put("t", type="log")
    with refusal("missing"):
        writer.commit(0, (0, "a", 1, 1))
    assert writer.stage(0, [1])


def test_staged_chunks_of_a_queue_become_jobs(world: World, writer: Writer) -> None:
    world.put("q")
    writer.stage(0, [1, 2], topic="q")
    assert world.take(5) == []
    writer.commit(0, (0, "a", 1, 2))
    assert world.take(5) == [1, 2]


# -- through any end -------------------------------------------------------------------------------


def epochs(world: World, writer: Writer, rng: Random, numbers: range, attempt: str) -> None:
    """A producer at work, with repeats, other traffic and tidying in between."""
    for epoch in numbers:
        for partition in range(2):
            for number in range(2):
                data = [[epoch, partition, number, "x" * rng.choice((1, 300))]]
                writer.stage(epoch, data, partition=partition, number=number, attempt=attempt)
            if rng.random() < 0.5:
                world.write("other", "y" * 200)
                world.delete("other", before=10**6)
        if rng.random() < 0.5:
            world.tidy()
        writer.commit(epoch, *[(partition, attempt, 2, 2) for partition in range(2)])
        world.wait(5)


def expected(last: int) -> list[list[int]]:
    return [[e, p, n] for e in range(last + 1) for p in range(2) for n in range(2)]


@pytest.mark.parametrize("power_cut", [True, False], ids=["power-cut", "kill"])
def test_epochs_come_once_and_whole(power_cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)

    def day(fs: SimFileSystem) -> World:
        world = World(fs)
        world.put("t", type="log", durability="fsync")
        world.put("other", type="log", durability="fsync")
        epochs(world, Writer(world), Random(7), range(5), "a")
        return world

    whole = SimFileSystem(Random(1))
    day(whole)
    for stop in swept(20, whole.ops, offset=2 * power_cut):
        fs = SimFileSystem(Random(1))
        fs.crash_after(stop)
        with pytest.raises(SimCrash):
            day(fs)
        disk = fs.crash_clone(Random(stop)) if power_cut else fs.kill_clone()
        again = disk.kill_clone()
        world = World(disk)
        assert portrait(World(again).state) == portrait(world.state), stop
        if "other" not in world.state.topics:
            continue
        producer = world.state.producers.get("p")
        last = producer.committed.number if producer and producer.committed else -1
        assert [row[:3] for row in world.values("t")] == expected(last), stop
        epochs(world, Writer(world), Random(8), range(last + 1, 6), "b")
        world.kill()
        assert [row[:3] for row in world.values("t")] == expected(5), stop
