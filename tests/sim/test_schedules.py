"""Crash sweep over schedules: stopped at every operation of the disk, each time of a schedule has
exactly one job, or none yet."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import msgspec
import pytest

from logqueue.core.invariants import check
from logqueue.server.storage import compaction
from tests.clock import ManualClock
from tests.core.world import World, wish
from tests.effort import EFFORT, swept
from tests.portrait import portrait
from wal.testing.simfs import SimCrash, SimFileSystem

SECOND = 1000
TURNS = 40


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)


class Life:
    """Commands from a seed. Topics are never emptied, so each firing has its job.

    Attributes:
        first: The first time of each schedule.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.first: dict[str, int] = {}
        self.numbers = 0

    def begin(self, world: World) -> None:
        """Create the topics."""
        world.put("q", durability="fsync")
        world.put("r", durability="disk")

    def turn(self, world: World) -> None:
        """One command, and now and then firings, tidying, a restart."""
        rng = self.rng
        world.wait(rng.choice((0, 300, SECOND, 2 * SECOND)))
        if rng.random() < 0.3 and "r" in world.state.topics:
            self.numbers += 1
            name = f"s{self.numbers}"
            every_ms = rng.choice((SECOND, 3 * SECOND))
            self.first[name] = world.now + every_ms
            world.schedule(name, rng.choice("qr"), every_ms=every_ms, catch_up="all")
        elif rng.random() < 0.2 and world.state.schedules.by_name:
            name = rng.choice([*world.state.schedules.by_name])
            world.schedule(
                name, world.state.schedules.named(name).options.topic, catch_up="all",
                every_ms=world.state.schedules.named(name).options.every_ms,
                record=wish(self.numbers),
            )  # fmt: skip
        elif rng.random() < 0.2:
            world.write("q", "other")
        world.fire()
        if rng.random() < 0.5:
            world.step()
        if rng.random() < 0.2:
            world.tidy()

    def check(self, world: World) -> None:
        """All that is due fires; then each time from the first on has one job."""
        if not {"q", "r"} <= world.state.topics.keys():
            return
        world.fire()
        for name, schedule in world.state.schedules.by_name.items():
            topic = schedule.options.topic
            times = [
                meta["scheduled_for"]
                for _, _, texts in world.records(topic)
                if texts[3] and (meta := meta_of(texts[3]))["schedule"] == name
            ]
            every_ms = schedule.options.every_ms
            expected = range(self.first[name], schedule.next_at, every_ms)
            assert times == [*expected], name
            assert schedule.fired == len(times) and schedule.next_at > world.now


def meta_of(text: bytes) -> dict[str, object]:
    """A meta."""
    return dict(msgspec.json.decode(text))


def life(fs: SimFileSystem, seed: int, clock: ManualClock) -> Life:
    """A life from its first moment, until it ends or the disk stops it."""
    story = Life(seed)
    with suppress(SimCrash):
        world = World(fs, clock=clock)
        story.begin(world)
        for _ in range(TURNS):
            story.turn(world)
    return story


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("seed", range(1, 1 + EFFORT))
def test_each_time_has_one_job_wherever_it_stops(seed: int, power_cut: bool) -> None:
    whole = SimFileSystem(Random(seed))
    life(whole, seed, ManualClock())
    for stop in swept(0, whole.ops, offset=seed + 40 * power_cut, every=128):
        fs = SimFileSystem(Random(seed))
        fs.crash_after(stop)
        clock = ManualClock()
        story = life(fs, seed, clock)
        disk = fs.crash_clone(Random(stop)) if power_cut else fs.kill_clone()
        try:
            world = World(disk, clock=clock)
            check(world.state)
            first = portrait(world.state)
            second = World(disk.kill_clone(), clock=clock)
            assert portrait(second.state) == first, "recovering twice gives two states"
            story.check(second)
            for _ in range(4):
                story.turn(second)
            second.step()
            second.kill()
            story.check(second)
        except BaseException:
            print(f"seed {seed}, crash after operation {stop} of {whole.ops}, cut {power_cut}")
            raise
