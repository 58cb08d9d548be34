"""The rules about schedules and batches of jobs: logs of the real core, and doctored ones."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.events import block as blocks
from logqueue.model.job_batch import BatchCallback
from logqueue.model.schedule import ScheduleOptions
from tests.core.test_chains import write
from tests.core.test_job_batches import ack, callback, close, opened
from tests.core.world import World, wish
from tests.effort import scaled
from tests.pipeline.audit_faults import QUEUE
from tests.pipeline.worlds import audited, spill
from tests.spark.crafted import CraftedLog, appended


def live(world: World, rng: Random, steps: int) -> None:
    """Schedules that fire, are run by hand, changed, and live through steps of the clock; batches
    whose jobs end in all ways."""
    world.put("q", lease_ms=500, max_deliveries=2, on_exhausted="drop")
    for name in "ab":
        record = wish(name, key="k") if name == "b" else wish(name)
        catch_up = rng.choice(["none", "one", "all"])
        world.schedule(name, every_ms=1000, record=record, catch_up=catch_up)
    number = 0
    for _ in range(steps):
        does = rng.randrange(12)
        if does < 3:
            world.wait(rng.choice((200, 1000, 4500, -700)))
            world.fire()
        elif does == 3:
            world.run(cmd.RunSchedule("q", schedule=rng.choice("ab")))
        elif does == 4:
            world.schedule("a", every_ms=rng.choice((700, 1000)))
            if rng.random() < 0.3:
                world.run(cmd.DropSchedule("a"))
                world.schedule("a", every_ms=1000)
        elif does < 7:
            if number == 0 or rng.random() < 0.3:
                number += 1
                opened(world, f"b{number}", *rng.choice([("done", "problem"), ("done", "")]))
            jobs = [{"data": n, "batch": f"b{number}"} for n in range(rng.randrange(1, 4))]
            write(world, "q", *jobs)
        elif does < 9:
            taken = world.take(10)
            if taken and rng.random() < 0.3:
                world.nack(*taken)
            else:
                ack(world, *taken, topic="q")
        elif does == 9 and number:
            close(world, f"b{number}")
            number += 1
            opened(world, f"b{number}")
        elif does == 10:
            getattr(world, rng.choice(("restart", "kill", "tidy")))()
        elif does == 11:
            world.delete("q", before=world.topic("q").head)
        world.end_batches()


@pytest.mark.parametrize("seed", range(scaled(4, 60)))
def test_logs_of_the_core_are_clean(tmp_path: Path, seed: int) -> None:
    world = World()
    live(world, Random(seed), 200)
    assert any(batch.ended_at for batch in world.state.batches.by_name.values())
    found = [f for f in audited(spill(world, tmp_path)) if f["severity"] != "info"]
    assert [f for f in found if f["rule"] != "time_order"] == [], "the clock was set back"


def member(log: CraftedLog, topic: int, first: int, count: int, batch: str) -> None:
    data = [b"1"] * count
    follow = [f'{{"batch":"{batch}"}}'.encode()] * count
    block = blocks.pack([data, *[None] * 5, follow])
    log.log(ev.RecordsAppended(log.at, topic, first, count, block, size=1))


def fired(log: CraftedLog, name: str, at: int, next_at: int, seq: int, *made: int) -> None:
    events = [appended(log.at, 1, first, 1) for first in made]
    log.log(*events, ev.ScheduleFired(log.at, 1, name, at, next_at, seq))


def test_firings_that_are_not_one_job_each_are_found(tmp_path: Path) -> None:
    with CraftedLog(tmp_path) as log:
        log.topic(1, "jobs", **QUEUE)
        options = ScheduleOptions("jobs", b"1", blocks.pack_bare([b"1"]), every_ms=1000)
        start = log.at
        log.log(ev.ScheduleSet(log.at, 0, "s", options, False, start))
        fired(log, "s", start, start + 1000, 1, 1)
        log.at += 10
        fired(log, "s", log.at, start + 1000, 2, 2)  # run by hand
        fired(log, "s", start + 1000, start + 2000, 3, 3)
        fired(log, "s", start + 1000, start + 3000, 4, 4)  # again
        fired(log, "s", start + 3000, start + 4000, 5, 5, 6)  # two jobs
        fired(log, "s", start + 4000, start + 5000, 7)  # none
        log.log(ev.ScheduleRemoved(log.at, 0, "s"))
        log.log(ev.ScheduleSet(log.at, 0, "s", options, False, start + 1000))
        fired(log, "s", start + 1000, start + 2000, 7, 7)
    found = [(f["rule"], f["severity"], f["first_seq"]) for f in audited(tmp_path)]
    assert found == [
        ("schedule_job", "error", 5), ("schedule_job", "error", 7), ("schedule_once", "error", 4),
    ]  # fmt: skip


def test_batches_that_end_otherwise_than_once_and_last_are_found(tmp_path: Path) -> None:
    with CraftedLog(tmp_path) as log:
        log.topic(1, "jobs", **QUEUE)
        log.topic(2, "done", **QUEUE)
        on_done = BatchCallback("done", b"1", blocks.pack_bare([b"1"]))
        written = 0

        def end(name: str, callbacks: int = 1) -> None:
            nonlocal written
            events = [appended(log.at, 2, written + 1 + n, 1) for n in range(callbacks)]
            written += callbacks
            log.log(*events, ev.JobBatchEnded(log.at, 0, name, 1, 1))

        for place, name in enumerate(("fine", "open", "left", "mute", "loud", "twice"), 1):
            log.log(ev.JobBatchOpened(log.at, 0, name, on_done, None))
            member(log, 1, place, 1, name)
            if name != "open":
                log.log(ev.JobBatchClosed(log.at, 0, name))
            log.claim(1, place)
            if name != "left":
                log.ack(1, place)
            end(name, {"mute": 0, "loud": 2}.get(name, 1))
        end("twice")
        member(log, 1, 7, 1, "fine")
    found = [(f["rule"], f["first_seq"], f["detail"].partition(",")[0]) for f in audited(tmp_path)]
    assert found == [
        ("batch_callback", None, "batch 'loud' ended"),
        ("batch_callback", None, "batch 'mute' ended"),
        ("batch_callback", None, "batch 'twice' ended again"),
        ("batch_ended", None, "batch 'open' ended before it was closed"),
        ("batch_ended", 3, "batch 'left' ended while job 3 was left"),
        ("batch_ended", 7, "job 7 joined batch 'fine' after its end"),
    ]


def test_a_callback_is_an_ordinary_record(tmp_path: Path) -> None:
    world = World()
    world.put("q")
    world.run(cmd.OpenBatch("b", callback("q"), None))
    close(world, "b")
    assert audited(spill(world, tmp_path)) == []
