"""No decision of the server's own making is larger than a frame of the log may be; a call that is
says so, and has no effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.errors import PayloadTooLarge
from logqueue.model import limits
from logqueue.server.storage import checkpoint, compaction, journal
from tests.core.world import World, job, pack, wish
from tests.portrait import portrait
from wal import Log

FRAME_BYTES = 48 << 10
PASS_BYTES = 8 << 10
JOBS = 120
PAD = "x" * 900


@pytest.fixture(autouse=True)
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames and portions of some thousandth of what they are; the whole does not fit a frame."""

    class SmallFrames:
        open = staticmethod(partial(Log.open, frame_bytes_max=FRAME_BYTES))

    monkeypatch.setattr(journal, "Log", SmallFrames)
    monkeypatch.setattr(limits, "COPIED_BYTES_MAX", PASS_BYTES)
    monkeypatch.setattr(limits, "FINISHED_BYTES_MAX", PASS_BYTES)
    monkeypatch.setattr(limits, "RESTAGED_BYTES_MAX", PASS_BYTES)
    monkeypatch.setattr(compaction, "MOVED_BYTES_MAX", PASS_BYTES)
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)


def filled(**config: Any) -> World:
    """A queue with more in it than a frame may hold."""
    world = World(segment_bytes=256 << 10)
    world.put("letters", durability="fsync")
    world.put(durability="fsync", lease_ms=1000, archive="done", **config)
    for start in range(0, JOBS, 20):
        world.write("q", *(wish({"n": n, "pad": PAD}, tag="t") for n in range(start, start + 20)))
    return world


def settle(world: World) -> None:
    """Let what is done bit by bit come to its end."""
    world.topic("q")
    while world.engine.lagging:
        world.engine.elapse_more()
    world.step()


def delete(world: World) -> None:
    """All of it by one call."""
    assert world.delete(match="t") == JOBS


def purge(world: World) -> None:
    """All of it by its state."""
    assert world.purge("ready") == {"ready": JOBS}


def ack(world: World) -> None:
    """All of it by one ack."""
    seqs = world.take(JOBS)
    assert world.ack(*seqs) == (len(seqs), [])
    while seqs := world.take(JOBS):
        world.ack(*seqs)


def reject(world: World) -> None:
    """All of it to the dead letters."""
    world.patch(dead_letter="letters")
    while seqs := world.take(JOBS):
        world.reject(*seqs)


def exhaust(world: World) -> None:
    """All of it to the dead letters, by claims."""
    world.patch(dead_letter="letters", max_deliveries=1)
    while seqs := world.take(JOBS):
        world.nack(*seqs)
    # A pass moves a portion, and finds nothing else.
    for _ in range(JOBS):
        world.take(JOBS)


def expire(world: World) -> None:
    """All of it at once."""
    world.patch(ttl_ms=5000)
    world.wait(5001)


def tighten(world: World) -> None:
    """All but one by a cap."""
    world.patch(cap_records=1)
    settle(world)
    world.delete(match="t")


def overflow(world: World) -> None:
    """All of it by one small write."""
    world.patch(cap_bytes=JOBS * 1000)
    world.write("q", job("y" * 20_000))
    settle(world)
    world.patch(cap_records=1, archive="done")
    settle(world)
    world.ack(*world.take())


ENDS = [delete, purge, ack, reject, exhaust, expire, tighten, overflow]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_what_ends_jobs_ends_any_number_of_them(end: Callable[[World], None]) -> None:
    world = filled()
    end(world)
    settle(world)
    check(world.state)
    assert world.topic("q").live == 0
    kept = sum(world.topic(name).live for name in ("done", "letters") if name in world.state.topics)
    assert kept == JOBS + (1 if end is overflow else 0)
    if world.topic("letters").live:
        moved = 0
        while done := world.redrive("letters").redriven:
            moved += done
        assert moved == JOBS and world.topic("q").live == JOBS
    before = {name: topic.live for name, topic in world.state.topics.items()}
    world.step()
    world.kill()
    assert {name: topic.live for name, topic in world.state.topics.items()} == before


def test_a_call_that_makes_too_large_a_frame_is_refused_and_has_no_effect() -> None:
    world = filled()
    before = portrait(world.state)
    with pytest.raises(
        PayloadTooLarge, match="nothing was stored: send or ask for less"
    ) as refused:
        world.write("q", job("z" * FRAME_BYTES))
    assert refused.value.status == 413
    assert portrait(world.state) == before
    assert world.engine.journal.jobs.failure is None
    world.write("q", "fits")


def parts(world: World) -> Iterator[ev.Checkpointed]:
    """Checkpoint events in the log."""
    world.step()
    for frame in world.engine.journal.jobs.read():
        for event in ev.decode(frame.payload).events:
            if isinstance(event, ev.Checkpointed):
                yield event


def test_an_epoch_whose_chunks_must_be_logged_anew() -> None:
    world = World(segment_bytes=256 << 10)
    world.put("log", type="log", durability="ephemeral")
    for partition in range(JOBS):
        chunk = pack([job({"n": partition, "pad": PAD})])
        world.run(cmd.StageChunk("p", 1, "log", partition, "a", 0, chunk, 1))
    world.patch("log", durability="fsync")
    all_parts = tuple(cmd.StagedAttempt(partition, "a", 1, 1) for partition in range(JOBS))
    world.run(cmd.CommitEpoch("p", 1, all_parts))
    assert world.topic("log").live == JOBS
    world.kill()
    check(world.state)
    assert [value["n"] for value in world.values("log")] == [*range(JOBS)]


def test_checkpoints_tell_of_any_number_of_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "PRODUCERS_PER_PART", 50)
    monkeypatch.setattr(checkpoint, "RANGES_PER_PART", 60)
    world = World(segment_bytes=256 << 10)
    world.put("log", type="log", durability="fsync")
    for number in range(600):
        name = f"{number:03d}-" + "p" * 100
        world.run(cmd.StageChunk(name, 1, "log", 0, "a", 0, pack([job(number)]), 1))
        world.run(cmd.CommitEpoch(name, 1, (cmd.StagedAttempt(0, "a", 1, 1),)))
    before = portrait(world.state)
    known = {name: producer.committed for name, producer in world.state.producers.items()}
    world.restart()
    told = [len(part.producers) for part in parts(world)]
    assert sum(told) >= 600 and max(told) <= 50
    assert {name: p.committed for name, p in world.state.producers.items()} == known
    world.delete("log", before=601)
    world.tidy()
    world.kill()
    assert {name: p.committed for name, p in world.state.producers.items()} == known
    assert before.keys() == portrait(world.state).keys()
