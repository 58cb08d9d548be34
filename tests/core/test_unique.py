"""How long a job has its key: while it waits, until it ends."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.errors import KeyConflict
from logqueue.server.storage import compaction
from tests.core.world import World, wish

RUNNING = 1


def write(world: World, data: object, on_conflict: Any = "replace", unique: int = RUNNING) -> Any:
    """Write one record with the key."""
    record = wish(data, key="k", on_conflict=on_conflict, unique=unique)
    return (world.write("q", record).results or [])[0]


def made(**config: Any) -> World:
    world = World()
    world.put(durability="fsync", leases_durable=True, **config)
    return world


def test_a_running_job_has_its_key_until_it_ends() -> None:
    world = made()
    assert write(world, 1) == (1, "created")
    assert write(world, 2) == (1, "replaced")
    assert world.take() == [1]
    assert write(world, 3) == (1, "kept")
    assert write(world, 4, "keep") == (1, "kept")
    with pytest.raises(KeyConflict, match="a running job, 1, has the key 'k'") as no:
        write(world, 5, "reject")
    assert no.value.detail == {"key": "k", "seq": 1}
    assert world.data() == {1: b"2"}
    world.nack(1)
    assert write(world, 6) == (1, "replaced")
    assert world.take() == [1]
    world.ack(1)
    assert write(world, 7) == (2, "created")
    check(world.state)


def test_a_waiting_job_has_it_while_it_waits_only() -> None:
    world = made()
    assert write(world, 1, unique=0) == (1, "created")
    assert world.take() == [1]
    assert write(world, 2, unique=RUNNING) == (2, "created")
    assert world.take() == [2]
    assert write(world, 3, unique=0) == (2, "kept")
    world.nack(1)
    # The other one has the key: the one that comes back ends.
    assert world.finished() == {"superseded": 1}
    assert world.states() == {2: "in_flight"}
    check(world.state)


def test_a_job_on_hold_has_its_key() -> None:
    world = made(on_exhausted="hold")
    write(world, 1)
    world.take()
    world.reject(1)
    assert world.states() == {1: "held"}
    assert write(world, 2) == (1, "kept")
    world.run(cmd.EditJob("q", 1, data=b"9", retry=True))
    assert write(world, 3) == (1, "replaced")
    check(world.state)


@pytest.mark.parametrize("end", ["ack", "reject", "cancel", "delete", "expire", "purge"])
def test_every_end_frees_the_key(end: str) -> None:
    world = made(dead_letter="letters")
    world.put("letters", type="log")
    world.write("q", wish(1, key="k", unique=RUNNING, ttl_ms=5000))
    world.take(lease_ms=60_000)
    if end == "ack":
        world.ack(1)
    elif end == "reject":
        world.reject(1)
    elif end == "cancel":
        world.cancel(1, force=True)
    elif end == "delete":
        world.delete(before=2)
    elif end == "purge":
        world.purge("in_flight")
    else:
        world.wait(6000)
    assert write(world, 2) == (2, "created")
    check(world.state)


@pytest.mark.parametrize("how", ["restart", "kill", "tidy"])
def test_a_restart_knows_whose_the_key_is(how: str) -> None:
    world = made()
    write(world, 1)
    world.take(lease_ms=3_600_000)
    world.step()
    if how == "tidy":
        for number in range(60):
            world.write("q", "x" * 100, number)
            world.delete(before=0)
        world.tidy()
        world.kill()
    else:
        getattr(world, how)()
    assert world.states()[1] == "in_flight"
    assert write(world, 2) == (1, "kept")
    world.wait(3_600_001)
    assert write(world, 3) == (1, "replaced")
    check(world.state)


def test_power_cuts_do_not_make_two() -> None:
    for seed in range(5):
        rng = Random(seed)
        world = made()
        write(world, 1)
        world.take(lease_ms=3_600_000)
        world.cut(rng)
        seq, result = write(world, 2)
        assert seq == 1 and result in ("kept", "replaced")
        check(world.state)


def test_a_dead_letter_that_comes_back_has_its_key_again() -> None:
    world = made(dead_letter="letters")
    world.put("letters", type="log")
    write(world, 1)
    world.take()
    world.reject(1)
    assert world.redrive().redriven == 1
    assert write(world, 2) == (2, "replaced")
    assert world.take() == [2]
    assert write(world, 3) == (2, "kept")


def test_a_cancel_by_key_is_for_waiting_jobs() -> None:
    world = made()
    write(world, 1)
    assert world.run(cmd.CancelKey("q", b'"k"')).cancelled
    write(world, 2)
    world.take()
    assert not world.run(cmd.CancelKey("q", b'"k"')).cancelled


KEPT = 2


def test_a_key_is_kept_as_long_as_the_result() -> None:
    world = made(results={"keep_ms": 5000, "max_bytes": 1 << 20})
    assert write(world, 1, unique=KEPT) == (1, "created")
    world.take()
    assert write(world, 2, "keep", unique=KEPT) == (1, "kept")
    world.ack(1)
    for restart in (world.step, world.restart, world.kill):
        restart()
        assert write(world, 3, "keep", unique=KEPT) == (1, "kept")
        with pytest.raises(KeyConflict, match="a finished job, 1, has the key"):
            write(world, 4, "reject")
    world.wait(5001)
    assert write(world, 5, "keep", unique=KEPT) == (2, "created")
    check(world.state)


def test_replace_does_it_again() -> None:
    world = made(results={"keep_ms": 5000, "max_bytes": 1 << 20})
    write(world, 1, unique=KEPT)
    world.take()
    world.ack(1)
    assert write(world, 2, "replace", unique=KEPT) == (2, "created")
    assert write(world, 3, "keep", unique=KEPT) == (2, "kept")
    world.take()
    world.ack(2)
    assert write(world, 4, "keep", unique=KEPT) == (2, "kept")


@pytest.mark.parametrize(
    ("end", "kept"), [("reject", True), ("dead", True), ("cancel", False), ("expire", False)]
)
def test_which_ends_keep_the_key(end: str, kept: bool) -> None:
    letters = "letters" if end == "dead" else None
    world = made(results={"keep_ms": 60_000, "max_bytes": 1 << 20}, dead_letter=letters,
                 on_exhausted=None if letters else "drop")  # fmt: skip
    world.put("letters", type="log")
    world.write("q", wish(1, key="k", unique=KEPT, ttl_ms=5000))
    world.take(lease_ms=30_000)
    if end in ("reject", "dead"):
        world.reject(1)
    elif end == "cancel":
        world.cancel(1, force=True)
    else:
        world.wait(6000)
    assert write(world, 2, "keep") == ((1, "kept") if kept else (2, "created"))


def test_kept_keys_survive_the_segments_they_were_said_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    world = made(results={"keep_ms": 3_600_000, "max_bytes": 1 << 20})
    write(world, 1, unique=KEPT)
    world.take()
    world.ack(1)
    first = world.engine.journal.jobs.segments()[0].id
    for number in range(100):
        world.write("q", "x" * 300)
        world.delete(before=number + 3)
        if number % 10 == 0:
            world.tidy()
    world.tidy()
    assert world.engine.journal.jobs.segments()[0].id > first
    world.kill()
    assert write(world, 2, "keep") == (1, "kept")


def test_a_schedule_does_not_fire_while_the_last_run_is_not_over() -> None:
    world = made()
    world.schedule(
        "s", every_ms=60_000, record=wish("run", key="s", on_conflict="keep", unique=RUNNING)
    )

    def minute() -> tuple[int, int]:
        world.wait(60_000)
        world.fire()
        schedule = world.state.schedules.named("s")
        return schedule.fired, schedule.skipped

    assert minute() == (1, 0)
    assert world.take(lease_ms=600_000) == [1]
    assert minute() == (1, 1)
    assert minute() == (1, 2)
    assert world.state.schedules.named("s").last_seq == 1
    world.ack(1)
    assert minute() == (2, 2)
    assert world.seqs() == [2]
