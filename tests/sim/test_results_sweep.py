"""Crash sweep over results: stopped at every operation of the disk, what a reply has promised is
kept, and an ack without a reply has either ended its jobs with their results, or has not."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from logqueue.core.invariants import check
from logqueue.core.job_status import job_status
from logqueue.server.storage import compaction
from tests.clock import ManualClock
from tests.core.world import START_MS, World
from tests.effort import EFFORT, swept
from tests.portrait import portrait
from wal.testing.simfs import SimCrash, SimFileSystem

TURNS = 30
SEEDS = range(1, 1 + 2 * EFFORT)

Ends = dict[int, tuple[str, bytes, str | None]]


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 300)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 2000)


class Life:
    """Commands from a seed, and the ends they were promised, or may have brought."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.promised: Ends = {}
        self.unsure: Ends = {}

    def run(self, world: World) -> None:
        """All of it."""
        world.put(durability="fsync", leases_durable=True, results={"keep_ms": 10**9})
        for _ in range(TURNS):
            self.turn(world)

    def turn(self, world: World) -> None:
        """Write, claim, end some; perhaps tidy."""
        rng = self.rng
        world.wait(1)
        world.write("q", *("x" * rng.choice((1, 60)) for _ in range(rng.randrange(1, 4))))
        seqs = world.take(rng.randrange(1, 4))
        if rng.random() < 0.7:
            results = [b'{"n":%d,"pad":"%s"}' % (seq, b"r" * rng.randrange(80)) for seq in seqs]
            ends = zip(seqs, results, strict=True)
            self.unsure = {seq: ("acked", result, None) for seq, result in ends}
            world.ack(*seqs, results=results)
        else:
            self.unsure = {seq: ("rejected", b"", f"error {seq}") for seq in seqs[:1]}
            if seqs:
                world.reject(seqs[0], error=f"error {seqs[0]}")
        self.promised |= self.unsure
        self.unsure = {}
        if rng.random() < 0.3:
            world.tidy()

    def check(self, world: World) -> None:
        """What was promised is there."""
        if "q" not in world.state.topics:
            assert not self.promised
            return
        topic = world.queue()
        for seq, end in {**self.promised, **self.unsure}.items():
            status = job_status(topic, seq, world.now)
            assert status is not None
            if seq in self.unsure and status.live is not None:
                continue
            found = status.ended
            assert found is not None, seq
            assert (found.outcome, found.result, found.error) == end
            self.promised[seq] = end
        self.unsure = {}


def life(fs: SimFileSystem, seed: int, clock: ManualClock) -> Life:
    """A whole life of a server, which may end early."""
    story = Life(seed)
    with suppress(SimCrash):
        story.run(World(fs, clock=clock))
    return story


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("power_cut", [True, False], ids=["power-cut", "kill"])
def test_crash_at_every_operation(seed: int, power_cut: bool) -> None:
    whole = SimFileSystem(Random(seed))
    life(whole, seed, ManualClock(START_MS))
    for stop in swept(0, whole.ops, offset=2 * seed + power_cut):
        fs = SimFileSystem(Random(seed))
        fs.crash_after(stop)
        clock = ManualClock(START_MS)
        story = life(fs, seed, clock)
        disk = fs.crash_clone(Random(stop)) if power_cut else fs.kill_clone()
        try:
            world = World(disk, clock=clock)
            check(world.state)
            story.check(world)
            first = portrait(world.state, world.now)
            world.kill()
            assert portrait(world.state, world.now) == first
            story.check(world)
        except BaseException:
            print(f"seed {seed}, crash after operation {stop} of {whole.ops}, cut {power_cut}")
            raise
