"""One failed operation, anywhere; and a disk that fills up and is emptied again."""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

import pytest

from logqueue.core.invariants import check
from logqueue.errors import StorageFull, StorageReadOnly, StorageUnreadable
from logqueue.server.storage import compaction, journal
from tests.clock import ManualClock
from tests.core.world import START_MS, World, job
from tests.effort import swept
from tests.portrait import portrait
from tests.sim.ledger import Ledger
from tests.sim.workload import TOPICS, Workload
from wal import WalError
from wal.testing.simfs import Op, SimFileSystem

TURNS = 30


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 3000)


def day(fs: SimFileSystem, workload: Workload, clock: ManualClock) -> World | None:
    """A life up to the first failure that anybody hears of; None when there is no server then."""
    try:
        world = World(fs, clock=clock)
    except (OSError, WalError):
        return None
    try:
        workload.begin(world)
        for _ in range(TURNS):
            # A record that could not be read was refused, and all goes on.
            with suppress(StorageUnreadable):
                workload.turn(world)
    except (StorageReadOnly, OSError, WalError):
        return world
    return world


def ops_of(seed: int) -> int:
    fs = SimFileSystem(Random(seed))
    day(fs, Workload(seed, Ledger()), ManualClock(START_MS))
    return fs.ops


def check_refusals(world: World) -> None:
    """Nothing lies: writes say no, reads go on, what needs no log goes on."""
    before = portrait(world.state)
    for name, topic in [*world.state.topics.items()]:
        assert world.topic(name) is topic
        if topic.config.durability == "ephemeral":
            # Its own creation may be what failed.
            if topic.mark_durable <= world.engine.journal.jobs.durable:
                world.write(name, -1)
        else:
            with pytest.raises(StorageReadOnly):
                world.write(name, -2)
    with pytest.raises(StorageReadOnly):
        world.put("another")
    after = portrait(world.state)
    for name, picture in before.items():
        if picture["config"]["durability"] != "ephemeral":
            assert after[name]["head"] == picture["head"]


@pytest.mark.parametrize("seed", [1, 2])
def test_one_failed_operation(seed: int) -> None:
    poisoned = 0
    failing = swept(1, ops_of(seed) + 1, offset=2 * seed, every=13)
    for bad in failing:
        fs = SimFileSystem(Random(seed))

        def fail(op: Op, bad: int = bad) -> OSError | None:
            return OSError(errno.EIO, "input/output error") if op.number == bad else None

        fs.fail_when(fail)
        ledger, clock = Ledger(), ManualClock(START_MS)
        workload = Workload(seed, ledger)
        try:
            world = day(fs, workload, clock)
            if world is not None:
                check(world.state)
                if world.engine.journal.jobs.failure is not None:
                    poisoned += 1
                    check_refusals(world)
            for power_cut in (False, True):
                disk = fs.crash_clone(Random(bad)) if power_cut else fs.kill_clone()
                if len(ledger.topics) == len(TOPICS):
                    back = World(disk, clock=clock)
                    check(back.state)
                    ledger.check(back.state, power_cut=power_cut)
                    back.write("fsync", 10**9)
        except BaseException:
            print(f"seed {seed}, failure of operation {bad}: {fs.history[bad - 1]}")
            raise
    assert poisoned > len(failing) / 6, "too few failures were heard of"


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SPARE_BYTES", 20_000)
    world = World(segment_bytes=1 << 20)
    for name, durability in (("a", "fsync"), ("b", "disk"), ("c", "memory")):
        world.put(name, durability=durability, lease_ms=60_000)
        world.fill(30, name)
        assert len(world.take(20, topic=name)) == 20
    used = sum(map(len, world.fs.contents().values()))
    world.fs.capacity_bytes = used
    for name in "abc":
        written = 0
        with pytest.raises(StorageFull):
            while True:
                world.write(name, job("x" * 9000))
                written += 1
        before = portrait(world.state)
        with pytest.raises(StorageFull):
            world.write(name, job("y" * 9000), key="failed")
        assert portrait(world.state) == before, "something of the failed batch shows"
        # Acks and deletes find room in the spare.
        for seq in range(1, 11):
            assert world.ack(seq, topic=name) == (1, [])
        assert world.delete(name, before=15) == 4
    world.fs.capacity_bytes = None
    for name in "abc":
        reply = world.write(name, "room", key="failed")
        assert not reply.deduped and reply.first_seq == reply.head_seq
    check(world.state)
    before = {name: world.records(name) for name in "abc"}
    world.step()
    world.kill()
    assert {name: world.records(name) for name in "abc"} == before


def test_tidying_frees_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SPARE_BYTES", 30_000)
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)
    world = World(segment_bytes=40_000)
    world.put(durability="fsync")
    world.fs.capacity_bytes = 400_000
    with pytest.raises(StorageFull):
        while True:
            world.write("q", job("x" * 3000))
    world.delete(before=world.topic("q").head - 3)
    for _ in range(3):
        world.tidy()
    assert world.write("q", job("x" * 3000)).records == 1
    before = world.records()
    world.kill()
    assert world.records() == before
