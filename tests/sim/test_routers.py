"""Routers through crashes: a destination is always what its surviving source implies."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from logqueue.core.invariants import check
from logqueue.server.storage import compaction
from tests.core.world import World, job
from tests.effort import EFFORT, scaled, swept
from tests.portrait import portrait
from wal.testing.simfs import SimCrash, SimFileSystem

"""Of how many disk operations one is crashed at; all of them from an effort of 3 on."""

CLASSES = ("fsync", "disk", "memory", "ephemeral")
SWEPT = ("fsync", "ephemeral")
EDGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plain", {}),
    ("picky", {"filter": "t1"}),
    ("stamped", {"guarantee": "exactly_once"}),
)


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)


class Web:
    """Sources of every class, each with three copies, one of which is copied again.

    Attributes:
        acked: By destination, what was asked to be done; `done` where that is never undone.
        shown: By destination, what readers have seen and must see again until it is done.
    """

    def __init__(
        self,
        seed: int,
        fs: SimFileSystem | None = None,
        classes: tuple[str, ...] = CLASSES,
    ) -> None:
        self.classes = classes
        self.rng = Random(seed)
        self.number = 0
        self.acked: dict[str, set[int]] = {}
        self.done: dict[str, set[int]] = {}
        self.shown: dict[str, set[int]] = {}
        self.world = World(fs or SimFileSystem(Random(seed)))
        self.tidying: Iterator[object] = iter(())

    def begin(self) -> None:
        """Create all topics and edges."""
        world = self.world
        for source in self.classes:
            world.put(source, type="log", durability=source)
            for kind, options in EDGES:
                dest = f"{source}.{kind}"
                world.put(dest, durability=self.rng.choice(CLASSES[:3]))
                world.put_router(dest, source, dest, **options)
            world.put(f"{source}.far", durability="fsync")
            world.put_router(f"{source}.far", f"{source}.plain", f"{source}.far")

    def turn(self) -> None:
        """One step of anything."""
        world, rng = self.world, self.rng
        world.wait(rng.choice((0, 5)))
        chance = rng.random()
        if chance < 0.35:
            self.write()
        elif chance < 0.5:
            world.engine.forward(rng.randrange(1, 5))
        elif chance < 0.55:
            self.look()
        elif chance < 0.75:
            self.finish_some()
        elif chance < 0.8:
            world.step()
        elif chance < 0.9:
            self.tidy_on()
        else:
            self.clear_source()

    def tidy_on(self) -> None:
        """Some steps of tidying, others get their turn in between."""
        for _ in range(self.rng.choice((1, 3, 200))):
            self.world.step()
            if next(self.tidying, "over") == "over":
                self.tidying = self.world.engine.tidy()

    def write(self) -> None:
        """Append to one source, large batches and small."""
        count = self.rng.choice((1, 1, 3, 70))
        numbers = range(self.number + 1, self.number + count + 1)
        self.number += count
        self.world.write(self.rng.choice(self.classes), *[job(n, tag=f"t{n % 3}") for n in numbers])

    def look(self) -> None:
        """Read a destination, with the promise that a reply has."""
        world = self.world
        dest = self.rng.choice([*world.state.routers])
        data = set(world.values(dest))
        topic = world.state.topics[dest]
        log = world.engine.journal.jobs
        while log.durable < topic.mark_durable or log.written < topic.mark_written:
            assert log.step()
        if topic.config.durability == "fsync":
            self.shown.setdefault(dest, set()).update(data)

    def finish_some(self) -> None:
        """Jobs of one destination are done; none may come twice."""
        dest = self.rng.choice([*self.world.state.routers])
        for found in self.world.claim(self.rng.choice((3, 80)), topic=dest):
            done = self.done.setdefault(dest, set())
            assert int(found.data) not in done, f"{dest}: {found.data!r} came after its ack"
            self.acked.setdefault(dest, set()).add(int(found.data))
            self.world.ack(found.seq, topic=dest)
            if self.world.state.topics[dest].config.durability == "fsync":
                done.add(int(found.data))

    def clear_source(self) -> None:
        """What was copied may go from the source; what was not is to arrive first."""
        world = self.world
        source = self.rng.choice([*self.classes, *(f"{name}.plain" for name in self.classes)])
        routers = world.state.routers_out[world.state.topics[source].number]
        before = min(router.cursor for router in routers) + 1
        there = {int(texts[0]) for at, _, texts in world.records(source) if at < before}
        self.acked.setdefault(source, set()).update(there)
        world.delete(source, before=before)

    def check(self) -> None:
        """Hold every destination against its source and against what was told."""
        world = self.world
        check(world.state)
        for name in world.state.routers:
            there = set(world.values(name)) | self.acked.get(name, set())
            assert self.shown.get(name, set()) <= there, f"{name}: what was seen is gone"
        world.forward()
        for name, router in world.state.routers.items():
            source = world.state.instances[router.source]
            data = world.values(name)
            assert data == sorted(set(data)), f"{name}: not in the order of its source"
            assert not self.done.get(name, set()) & set(data), f"{name}: done jobs came back"
            assert router.cursor == source.head, name
            if not name.endswith("picky"):
                originals = {int(texts[0]) for b in source.batches for _, _, texts in b.records()}
                known = set(data) | self.acked.get(name, set())
                assert originals <= known, f"{name}: originals without a copy"


@pytest.mark.parametrize("seed", range(scaled(3, 24)))
def test_destinations_are_what_the_surviving_source_implies(seed: int) -> None:
    web = Web(seed)
    web.begin()
    for _ in range(6):
        for _ in range(25):
            web.turn()
        ending = web.rng.choice((web.world.kill, web.world.restart, None))
        if ending is None:
            web.world.cut(Random(web.rng.getrandbits(32)))
        else:
            ending()
        web.tidying = iter(())
        web.check()
    oldest = web.world.engine.journal.jobs.segments()[0].id
    assert oldest > 1, "no segment was ever dropped, so this has shown little"


def test_copies_made_in_the_middle_of_tidying() -> None:
    """Whenever a copy is made, what it refers to stays or is moved with it."""
    for pause in range(200):
        world = World(SimFileSystem(Random(1)))
        for name in ("copies", "between", "origin", "junk"):
            world.put(name, type="log", durability="fsync")
        world.put_router("r", "origin", "copies")
        world.write("between", "moved after the copies are, and before the originals")
        world.write("origin", *range(3))
        for _ in range(30):
            world.write("junk", "x" * 900)
        world.delete("junk", before=10**6)
        tidying = world.engine.tidy()
        steps = 0
        for _ in tidying:
            steps += 1
            if steps == pause:
                world.forward()
            world.step()
        world.forward()
        assert world.engine.journal.jobs.segments()[0].id > 1
        world.kill()
        assert world.values("copies") == [0, 1, 2], f"made after {pause} steps of {steps}"
        if pause > steps:
            return
    raise AssertionError("tidying never ended before the copy was made")


def day(web: Web) -> None:
    """A short life: everything is set up, and copied a little."""
    web.begin()
    for _ in range(12):
        web.turn()


@pytest.mark.parametrize("seed", range(1, 1 + EFFORT))
@pytest.mark.parametrize("power_cut", [True, False], ids=["power-cut", "kill"])
def test_crash_along_the_way(seed: int, power_cut: bool) -> None:
    fs = SimFileSystem(Random(seed))
    Web(seed, fs, SWEPT).begin()
    begun = fs.ops
    fs = SimFileSystem(Random(seed))
    day(Web(seed, fs, SWEPT))
    for stop in swept(begun - 20, fs.ops, offset=6 * power_cut, every=71):
        fs = SimFileSystem(Random(seed))
        fs.crash_after(stop)
        web = Web(seed, fs, SWEPT)
        with pytest.raises(SimCrash):
            day(web)
        disk = fs.crash_clone(Random(stop)) if power_cut else fs.kill_clone()
        again = disk.kill_clone()
        web.world = World(disk, clock=web.world.clock)
        picture = portrait(web.world.state)
        assert portrait(World(again, clock=web.world.clock).state) == picture, f"stop {stop}"
        web.check()
