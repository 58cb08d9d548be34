"""A seeded world: many workers, virtual time, crashes; at the end everything is accounted for."""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any

import pytest

from logqueue.core.invariants import check
from logqueue.server.storage import compaction
from tests.core.world import World
from tests.effort import scaled
from wal.testing.simfs import SimFileSystem


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 2000)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 3000)


def live(seed: int) -> tuple[str, int]:
    """One world from its seed; what its disk held last, and how many jobs were done."""
    rng = Random(seed)
    world = World(SimFileSystem(Random(seed)))
    config: dict[str, Any] = {
        "durability": "fsync",
        "lease_ms": 300,
        "max_deliveries": 4,
        "dead_letter": "dead",
    }
    world.put("dead", type="log", durability="fsync")
    world.put(leases_durable=bool(seed % 2), **config)
    sent: set[bytes] = set()
    acked: set[bytes] = set()
    workers: dict[str, dict[int, bytes]] = {f"w{i}": {} for i in range(8)}
    for turn in range(250):
        node = rng.choice([*workers])
        held = workers[node]
        step = rng.random()
        if step < 0.3:
            data = [f"{turn}-{i}" for i in range(rng.randrange(1, 5))]
            world.write("q", *data, key=str(turn))
            sent.update(f'"{d}"'.encode() for d in data)
        elif step < 0.6:
            for found in world.claim(rng.randrange(1, 6), node=node):
                assert found.data in sent and found.data not in acked, found
                held[found.seq] = found.data
        elif step < 0.85:
            _, skipped = world.ack(*held, node=node)
            acked.update(data for seq, data in held.items() if seq not in skipped)
            held.clear()
        elif step < 0.9:
            world.nack(*held, node=node, delay_ms=rng.choice((0, 40)))
            held.clear()
        else:
            _disturb(world, rng)
        world.wait(rng.choice((1, 5, 40)))
        check(world.state)
    dead = {texts[0] for _, _, texts in world.records("dead")}
    left = {texts[0] for _, _, texts in world.records()}
    assert acked | dead | left == sent, f"seed {seed}"
    assert not acked & left and not acked & dead and not dead & left, f"seed {seed}"
    digest = hashlib.sha256()
    for path, content in world.fs.contents().items():
        digest.update(path.encode() + content)
    return digest.hexdigest(), len(acked)


def _disturb(world: World, rng: Random) -> None:
    chance = rng.random()
    world.wait(1)
    if chance < 0.3:
        world.tidy()
    elif chance < 0.5:
        world.cut(Random(rng.getrandbits(32)))
    elif chance < 0.7:
        world.kill()
    elif chance < 0.8:
        world.restart()
    else:
        world.wait(400)


@pytest.mark.parametrize("seed", range(scaled(4, 24)))
def test_everything_is_accounted_for(seed: int) -> None:
    assert live(seed)[1] > 30


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert live(5) == live(5)
    assert live(5) != live(6)
