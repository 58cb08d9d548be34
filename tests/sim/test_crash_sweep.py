"""Crash sweep: stop the simulated disk at every operation of a day, and hold what is left against
what clients were told."""

from __future__ import annotations

from random import Random

import pytest

from logqueue.core.invariants import check
from logqueue.server.storage import compaction
from tests.clock import ManualClock
from tests.core.world import START_MS, World
from tests.effort import EFFORT, swept
from tests.portrait import portrait
from tests.sim.ledger import Ledger
from tests.sim.workload import TOPICS, Workload
from wal.testing.simfs import SimCrash, SimFileSystem

TURNS = 36
SEEDS = range(1, 1 + 2 * EFFORT)


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 3000)


def day(fs: SimFileSystem, ledger: Ledger, seed: int, clock: ManualClock) -> None:
    """A whole life of a server."""
    workload = Workload(seed, ledger)
    workload.run(World(fs, clock=clock), TURNS)


def ops_of(seed: int) -> int:
    fs = SimFileSystem(Random(seed))
    day(fs, Ledger(), seed, ManualClock(START_MS))
    return fs.ops


def survive(disk: SimFileSystem, ledger: Ledger, clock: ManualClock, *, power_cut: bool) -> World:
    """Recover, and hold the state against the promises; recovering again finds the same."""
    again = disk.kill_clone()
    world = World(disk, clock=clock)
    check(world.state)
    ledger.check(world.state, power_cut=power_cut)
    first = portrait(world.state)
    second = World(disk.kill_clone() if power_cut else again, clock=clock)
    assert portrait(second.state) == first, "recovering twice gives two states"
    return world


def go_on(world: World, ledger: Ledger, seed: int) -> None:
    """The server works on after recovery, and survives the next kill too."""
    workload = Workload(seed + 1000, ledger)
    workload.numbers = iter(range(10_000 * (seed + 1), 10**9))  # type: ignore[assignment]
    ledger.settle(world)
    for _ in range(8):
        workload.turn(world)
        check(world.state)
    world.step()
    world.kill()
    ledger.check(world.state, power_cut=False)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("power_cut", [True, False], ids=["power-cut", "kill"])
def test_crash_at_every_operation(seed: int, power_cut: bool) -> None:
    total = ops_of(seed)
    for stop in swept(0, total, offset=2 * seed + power_cut):
        fs = SimFileSystem(Random(seed))
        fs.crash_after(stop)
        ledger, clock = Ledger(), ManualClock(START_MS)
        with pytest.raises(SimCrash):
            day(fs, ledger, seed, clock)
        disk = fs.crash_clone(Random(stop)) if power_cut else fs.kill_clone()
        try:
            world = survive(disk, ledger, clock, power_cut=power_cut)
            if len(ledger.topics) == len(TOPICS):
                go_on(world, ledger, seed + stop)
        except BaseException:
            print(f"seed {seed}, crash after operation {stop} of {total}, power cut {power_cut}")
            raise
