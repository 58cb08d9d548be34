"""Readers through deletes, caps, TTL, routers, tidying and crashes: what they are told is true.

A reader sees seqs that only rise; whatever is missing was deleted on request or is named by exactly
one tombstone; and no tombstone speaks of nothing but deleted records.
"""

from __future__ import annotations

from random import Random

import pytest

from logqueue.core.invariants import check
from logqueue.core.reading import ReadPage, read
from logqueue.server.storage import compaction
from tests.core.world import World, job
from tests.effort import scaled
from wal.testing.simfs import SimFileSystem

TOPICS: dict[str, dict[str, object]] = {
    "plain": {},
    "capped": {"cap_records": 9},
    "brief": {"ttl_ms": 300},
    "both": {"cap_records": 30, "ttl_ms": 500},
    "copies": {"cap_records": 6, "discard": "reject"},
}


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)


class Reader:
    """One cursor on one topic, and what it was told about every seq."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.cursor = 0
        self.seen: set[int] = set()
        self.lost: set[int] = set()

    def take(self, page: ReadPage, deleted: set[int]) -> None:
        """Hold one page against the rules."""
        where = f"{self.topic} behind {self.cursor}"
        at = self.cursor
        stone = page.tombstone
        if stone is not None:
            gap = set(range(stone.gap_from, stone.gap_to + 1))
            assert stone.gap_from > at, f"{where}: told twice of {stone}"
            assert gap - deleted, f"{where}: {stone} is about deleted records only"
            assert not gap & (self.seen | self.lost), f"{where}: {stone} was seen, or told before"
            assert stone.reason != "recreated", f"{where}: {stone}"
            self.lost |= gap
        seqs = [
            batch.seq_at(place) for batch, first, end in page.runs for place in range(first, end)
        ]
        assert seqs == sorted(set(seqs)) and (not seqs or seqs[0] > at), f"{where}: {seqs}"
        assert not self.lost & set(seqs), f"{where}: {seqs} were told lost"
        self.seen.update(seqs)
        assert page.next_from_seq >= at, f"{where}: went back to {page.next_from_seq}"
        silent = set(range(at + 1, page.next_from_seq + 1)) - self.seen - self.lost - deleted
        assert not silent, f"{where}: {sorted(silent)} are missing and no reader was told"
        self.cursor = page.next_from_seq


class Library:
    """Topics of every kind of loss, and several readers at each."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World(SimFileSystem(Random(seed)))
        self.deleted: dict[str, set[int]] = {name: set() for name in TOPICS}
        for name, config in TOPICS.items():
            self.world.put(name, durability="fsync", type="log", **config)
        self.world.put_router("r", "capped", "copies")
        self.readers = [Reader(name) for name in TOPICS for _ in range(3)]

    def turn(self) -> None:
        """One step of anything."""
        world, rng = self.world, self.rng
        world.wait(rng.choice((0, 5, 40)))
        name = rng.choice([*TOPICS])
        chance = rng.random()
        if chance < 0.3 and name != "copies":
            tag = f"t{rng.randrange(3)}"
            world.write(name, *[job("x" * rng.choice((1, 200)), tag=tag)] * rng.randrange(1, 6))
        elif chance < 0.4:
            world.engine.forward(rng.randrange(1, 3))
        elif chance < 0.5:
            self.delete(name)
        elif chance < 0.9:
            self.read(rng.choice(self.readers))
        elif chance < 0.95:
            world.tidy()
        else:
            rng.choice((world.kill, world.restart, lambda: world.cut(Random(rng.random()))))()

    def delete(self, name: str) -> None:
        """Delete a prefix, or a tag."""
        world, rng = self.world, self.rng
        before = set(world.seqs(name))
        if rng.random() < 0.5:
            world.delete(name, before=rng.randrange(world.topic(name).head + 2))
        else:
            world.delete(name, match=f"t{rng.randrange(3)}")
        self.deleted[name] |= before - set(world.seqs(name))

    def read(self, reader: Reader) -> ReadPage:
        """One page, whose promise holds."""
        world, rng = self.world, self.rng
        topic = world.topic(reader.topic)
        page = read(
            topic,
            reader.cursor,
            world.now,
            records_max=rng.choice((1, 2, 100)),
            bytes_max=rng.choice((1, 300, 10_000)),
        )
        log = world.engine.journal.jobs
        while log.durable < topic.mark_durable or log.written < topic.mark_written:
            assert log.step()
        reader.take(page, self.deleted[reader.topic])
        return page


@pytest.mark.parametrize("seed", range(scaled(5, 32)))
def test_readers_are_told_the_truth(seed: int) -> None:
    library = Library(seed)
    for _ in range(250):
        library.turn()
        check(library.world.state)
    for reader in library.readers:
        while library.read(reader).next_from_seq < library.world.topic(reader.topic).head:
            pass
        told = reader.seen | reader.lost | library.deleted[reader.topic]
        assert told == set(range(1, library.world.topic(reader.topic).head + 1)), reader.topic
    assert any(reader.lost for reader in library.readers), "nothing was ever lost"
