"""Crash sweep over the life of jobs: whatever moves, replaces or ends one is stopped at every
operation of the disk; afterwards each content is in exactly one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from logqueue.core.invariants import check
from logqueue.server.storage import compaction
from tests.clock import ManualClock
from tests.core.world import START_MS, Wish, World, wish
from tests.effort import EFFORT, swept
from tests.portrait import portrait
from wal.testing.simfs import SimCrash, SimFileSystem

TURNS = 40
SEEDS = range(1, 1 + 2 * EFFORT)
KEYS = "abc"
PLACES = ("q", "letters", "done")


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 3000)


class Life:
    """Commands from a seed, and what is known of the contents they wrote.

    Attributes:
        promised: Contents that must be somewhere.
        unsure: Contents that a write without an answer may have brought, or replaced.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.durable = bool(seed % 2)
        self.number = 0
        self.promised: set[int] = set()
        self.unsure: set[int] = set()
        self.keyed: dict[int, str | None] = {}

    def begin(self, world: World) -> None:
        """Create all topics."""
        for name in ("letters", "done"):
            world.put(name, type="log", durability="fsync")
        world.put(
            durability="fsync", leases_durable=self.durable, lease_ms=400, max_deliveries=2,
            dead_letter="letters", archive="done",
        )  # fmt: skip

    def turn(self, world: World) -> None:
        """One command, and now and then time or tidying."""
        rng = self.rng
        world.wait(rng.choice((0, 1, 30, 200)))
        steps: list[tuple[int, Callable[[World], object]]] = [
            (9, self.write),
            (7, lambda w: w.take(rng.randrange(1, 4))),
            (4, lambda w: w.ack(*self.some(w, "in_flight"))),
            (3, lambda w: w.nack(*self.some(w, "in_flight"), delay_ms=rng.choice((0, 100)))),
            (2, lambda w: w.reject(*self.some(w, "in_flight"))),
            (2, lambda w: w.redrive(limit=3)),
            (1, lambda w: w.patch(on_exhausted=rng.choice((None, "hold")))),
            (1, lambda w: w.patch(dead_letter=rng.choice((None, "letters", "letters")))),
            (2, lambda w: w.let_go(*self.some(w, "held"))),
            (1, lambda w: w.change("delay", *self.some(w, "ready"), delay_ms=90)),
            (1, lambda w: w.change("hold", *self.some(w, "delayed"), *self.some(w, "ready"))),
            (1, lambda w: w.change("retry", *self.some(w, "delayed"), *self.some(w, "held"))),
            (1, lambda w: w.change("return", *self.some(w, "in_flight"))),
            (1, lambda w: w.purge("delayed")),
            (1, lambda w: w.cancel((self.some(w, "ready") or [1])[0])),
        ]
        step = rng.choices([s for _, s in steps], [w for w, _ in steps])[0]
        step(world)
        if rng.random() < 0.5:
            world.step()
        if rng.random() < 0.1:
            world.tidy()

    def some(self, world: World, state: str) -> list[int]:
        """Jobs in a state."""
        found = [seq for seq, is_state in world.states().items() if is_state == state]
        self.rng.shuffle(found)
        return found[:3]

    def write(self, world: World) -> None:
        """A batch with keys, delays and times to live."""
        rng = self.rng
        wishes: list[Wish] = []
        for _ in range(rng.randrange(1, 4)):
            self.number += 1
            key = rng.choice(KEYS) if rng.random() < 0.6 else None
            self.keyed[self.number] = key
            delay, ttl = rng.choice((0, 0, 300)), rng.choice((0, 0, 500))
            pad = {"pad": "x" * rng.choice((0, 100))}
            wishes.append(wish(self.number, key=key, delay_ms=delay, ttl_ms=ttl, meta=pad))
        first = self.number - len(wishes) + 1
        keys = {w.key for w in wishes} - {None}
        rivals = {n for n in self.promised if self.keyed[n] in keys}
        self.unsure = {*rivals, *range(first, self.number + 1)}
        content = {seq: int(data) for seq, data in world.data().items()}
        reply = world.write("q", *wishes)
        fates = reply.results or [(reply.first_seq + i, "created") for i in range(len(wishes))]
        for number, (seq, fate) in enumerate(fates, first):
            if fate == "replaced":
                self.promised.remove(content[seq])
            content[seq] = number
            self.promised.add(number)
        self.unsure = set()

    def run(self, world: World, turns: int) -> None:
        """All of it."""
        self.begin(world)
        for _ in range(turns):
            self.turn(world)

    def check(self, world: World) -> None:
        """Each content is in one place; none is lost, none came from nowhere."""
        topics = world.state.topics
        found = Counter(
            int(texts[0])
            for name in PLACES
            if name in topics
            for batch in topics[name].batches
            for _, _, texts in batch.records()
        )
        assert all(times == 1 for times in found.values()), found
        assert self.promised - self.unsure <= found.keys() <= self.promised | self.unsure
        self.promised, self.unsure = set(found), set()


def life(fs: SimFileSystem, seed: int, clock: ManualClock) -> Life:
    """A whole life of a server, which may end early."""
    story = Life(seed)
    with suppress(SimCrash):
        story.run(World(fs, clock=clock), TURNS)
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
            again = disk.kill_clone()
            world = World(disk, clock=clock)
            check(world.state)
            first = portrait(world.state)
            story.check(world)
            second = World(disk.kill_clone() if power_cut else again, clock=clock)
            assert portrait(second.state) == first, "recovering twice gives two states"
            if "q" in world.state.topics:
                for _ in range(6):
                    story.turn(world)
                    check(world.state)
                world.step()
                world.kill()
                story.check(world)
        except BaseException:
            print(f"seed {seed}, crash after operation {stop} of {whole.ops}, cut {power_cut}")
            raise
