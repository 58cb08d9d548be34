"""Crash sweep with a log archive: whatever was promised once is in the archive or in the log, at
every moment, and nothing is dropped before it is archived."""

from __future__ import annotations

import errno
from random import Random

import pytest

from logqueue.segments.index import decode_index
from logqueue.server.storage import compaction
from tests.clock import ManualClock
from tests.core.world import START_MS, Bounds, World
from tests.effort import EFFORT, swept
from tests.sim.archived import appended, require_no_gap, segments
from tests.sim.ledger import Batch, Ledger
from tests.sim.workload import Workload
from wal.testing.simfs import Op, SimCrash, SimFileSystem

TURNS = 20
SEEDS = range(4, 4 + EFFORT)
ALL = Bounds()
LITTLE = Bounds(max_bytes=30_000)


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 3000)


class Archiving(Workload):
    """A day on which now and then something is archived."""

    def turn(self, world: World) -> None:
        """As ever, and then the archive and the logs' tidying, in any order."""
        super().turn(world)
        chance = self.rng.random()
        if chance < 0.4:
            # A thread does this elsewhere: the log goes on between any two steps.
            world.keep(self.rng.choice((1, 2, 3, None)))
        if chance < 0.25 or chance > 0.95:
            world.tidy()


def cannot_link(op: Op) -> OSError | None:
    """An archive on another disk."""
    return OSError(errno.EXDEV, "another disk") if op.kind == "link" else None


def day(fs: SimFileSystem, ledger: Ledger, seed: int, bounds: Bounds) -> World:
    """A whole life of a server."""
    world = World(fs, clock=ManualClock(START_MS), archive=bounds)
    Archiving(seed, ledger).run(world, TURNS)
    return world


def disk(seed: int, *, links: bool) -> SimFileSystem:
    """An empty one."""
    fs = SimFileSystem(Random(seed))
    if not links:
        fs.fail_when(cannot_link)
    return fs


def promised(ledger: Ledger, *, power_cut: bool) -> dict[str, list[Batch]]:
    """Every append that was answered and cannot be lost, whatever became of its records."""
    return {
        name: promises.shown
        for name, promises in ledger.topics.items()
        if promises.durability == "fsync" or (not power_cut and promises.durability != "ephemeral")
    }


def require_history(fs: SimFileSystem, ledger: Ledger, *, power_cut: bool) -> None:
    """Archive and log together tell of every record that was promised."""
    found = appended(fs)
    for name, batches in promised(ledger, power_cut=power_cut).items():
        for batch in batches:
            missing = {*zip(batch.seqs, batch.data, strict=True)} - found.get(name, set())
            assert not missing, f"{name}: {missing} are neither archived nor in the log"


def require_sound(fs: SimFileSystem) -> None:
    """An index that is there is of the segment beside it, and nothing half-made is left."""
    contents = fs.contents()
    for path, data in contents.items():
        if path.startswith("archive/"):
            assert not path.endswith(".new"), path
            if path.endswith(".idx"):
                assert decode_index(data).bytes == len(contents[path.removesuffix(".idx")])


def survive(crashed: SimFileSystem, ledger: Ledger, bounds: Bounds, *, power_cut: bool) -> None:
    """Recover from a crash and archive on."""
    world = World(crashed, clock=ManualClock(START_MS + 10**6), archive=bounds)
    require_sound(world.fs)
    require_no_gap(world.fs, from_first=bounds is ALL)
    if bounds is ALL:
        require_history(world.fs, ledger, power_cut=power_cut)
    world.tidy()
    lost = World(
        world.fs.crash_clone(Random(0)), clock=ManualClock(START_MS + 10**6), archive=bounds
    )
    require_no_gap(lost.fs, from_first=bounds is ALL)
    if bounds is ALL:
        require_history(lost.fs, ledger, power_cut=True)
    world.keep()
    world.tidy()
    world.keep()
    require_no_gap(world.fs, from_first=bounds is ALL)
    if bounds is ALL:
        require_history(world.fs, ledger, power_cut=power_cut)
    for log in ("jobs", "leases"):
        kept = segments(world.fs, log, "archive")
        here = segments(world.fs, log, "data")
        assert [*here][:-1] == [id for id in kept if id in here], "all that is sealed is archived"
        assert all(f"archive/{log}/{id:020d}.wal.idx" in world.fs.contents() for id in kept)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("links", "bounds", "power_cut"),
    [
        pytest.param(True, ALL, True, id="links-power-cut"),
        pytest.param(True, ALL, False, id="links-kill"),
        pytest.param(False, ALL, True, id="copies-power-cut"),
        pytest.param(False, ALL, False, id="copies-kill"),
        pytest.param(True, LITTLE, True, id="bounded-power-cut"),
    ],
)
def test_crash_at_every_operation(seed: int, power_cut: bool, links: bool, bounds: Bounds) -> None:
    fs = disk(seed, links=links)
    world = day(fs, Ledger(), seed, bounds)
    total = fs.ops
    if seed == SEEDS[0]:
        logs = world.engine.journal.logs.values()
        assert all(log.segments()[0].id > 1 for log in logs), "nothing was dropped"
    if bounds is ALL:
        assert world.archive.failures == 0
    for stop in swept(0, total, offset=2 * links + power_cut):
        fs = disk(seed, links=links)
        fs.crash_after(stop)
        ledger = Ledger()
        with pytest.raises(SimCrash):
            day(fs, ledger, seed, bounds)
        crashed = fs.crash_clone(Random(stop)) if power_cut else fs.kill_clone()
        try:
            survive(crashed, ledger, bounds, power_cut=power_cut)
        except BaseException:
            print(f"seed {seed}, crash after operation {stop} of {total}, power cut {power_cut}")
            raise
