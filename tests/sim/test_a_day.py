"""A day of virtual time: workers that come, fail and vanish, power cuts, kills, slow clocks. In the
evening every job that was promised is accounted for, once."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest

from logqueue.core.invariants import check
from logqueue.errors import TopicFull
from logqueue.server.storage import compaction
from tests.core.world import World, wish
from tests.effort import scaled
from wal.testing.simfs import SimFileSystem

DAY_MS = 86_400_000
KEYS = [f"customer-{i}" for i in range(12)]


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few kilobytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 20_000)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 30_000)


class Day:
    """One server from midnight to midnight.

    Attributes:
        promised: Contents of jobs that were written, those left out that gave way to a later
            write of the same job.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World(SimFileSystem(Random(seed)), segment_bytes=24_000)
        self.world.put("letters", type="log", durability="fsync")
        self.world.put("done", type="log", durability="fsync")
        self.world.put(
            durability="fsync",
            leases_durable=bool(seed % 2),
            lease_ms=120_000,
            max_deliveries=4,
            dead_letter="letters",
            archive="done",
            ttl_ms=6 * 3_600_000,
            claim_rate={"per_s": 1, "burst": 40},
            max_in_flight=60,
            retry_backoff={"kind": "exponential", "base_ms": 30_000, "jitter": 0.5},
        )
        self.promised: set[int] = set()
        self.number = 0
        self.held: dict[str, list[int]] = {f"w{i}": [] for i in range(10)}

    def write(self) -> None:
        """A batch of jobs, some with keys, some for later."""
        rng = self.rng
        wishes = []
        for _ in range(rng.randrange(1, 6)):
            self.number += 1
            wishes.append(
                wish(
                    self.number,
                    key=rng.choice(KEYS) if rng.random() < 0.4 else None,
                    on_conflict="replace" if rng.random() < 0.8 else "keep",
                    delay_ms=rng.choice((0, 0, 0, 60_000, 3_600_000)),
                    ttl_ms=rng.choice((0, 0, 0, 0, 1_800_000)),
                    max_deliveries=rng.choice((0, 0, 1)),
                )
            )
        content = {seq: int(data) for seq, data in self.world.data().items()}
        reply = self.world.write("q", *wishes, key=f"write {self.number}")
        fates = reply.results or [(reply.first_seq + i, "created") for i in range(len(wishes))]
        first = self.number - len(wishes) + 1
        for number, (seq, fate) in enumerate(fates, first):
            if fate == "replaced":
                self.promised.remove(content[seq])
            if fate != "kept":
                content[seq] = number
                self.promised.add(number)

    def work(self) -> None:
        """One worker's turn."""
        rng, world = self.rng, self.world
        node = rng.choice([*self.held])
        held = self.held[node]
        step = rng.random()
        if step < 0.45:
            held.extend(world.take(rng.randrange(1, 8), node=node, stream=rng.choice((0, 9))))
        elif step < 0.75:
            world.ack(*held, node=node)
            held.clear()
        elif step < 0.85:
            delay = rng.choice((None, 0, 5000))
            world.nack(*held, node=node, delay_ms=delay, error="oops", count=rng.random() < 0.8)
            held.clear()
        elif step < 0.9:
            world.reject(*held[:2], node=node, error="broken")
            del held[:2]
        elif step < 0.95:
            held.clear()
        else:
            world.extend(*held, node=node, lease_ms=600_000)

    def operate(self) -> None:
        """What an operator, or the machine room, does now and then."""
        rng, world = self.rng, self.world
        step = rng.random()
        seqs = world.seqs()
        if step < 0.2:
            world.redrive(limit=rng.randrange(1, 20))
        elif step < 0.3 and seqs:
            world.cancel(rng.choice(seqs), force=rng.random() < 0.5)
        elif step < 0.35:
            world.purge("delayed")
        elif step < 0.4:
            world.patch(on_exhausted=rng.choice((None, "hold", "drop")))
        elif step < 0.45:
            held = [seq for seq, state in world.states().items() if state == "held"]
            world.let_go(*held)
        elif step < 0.5:
            world.patch(cap_records=60)
            world.patch(cap_records=None)
        elif step < 0.55:
            world.pause()
            assert not world.take(9)
            world.pause(False)
        elif step < 0.65:
            world.release(9)
        elif step < 0.75:
            world.tidy()
        elif step < 0.83:
            world.cut(Random(rng.getrandbits(32)))
        elif step < 0.91:
            world.kill()
        else:
            world.restart()

    def evening(self) -> None:
        """All that is left is worked off."""
        world = self.world
        world.patch(max_in_flight=None, claim_rate=None, on_exhausted=None)
        for _ in range(200):
            world.let_go(*[seq for seq, state in world.states().items() if state == "held"])
            taken = world.take(100)
            if taken:
                world.ack(*taken)
            elif not world.seqs():
                return
            world.wait(600_000)
        raise AssertionError(f"jobs that no worker gets: {world.states()}")

    def account(self) -> None:
        """Every job ended once: in the archive, or as a dead letter that may have come back."""
        world = self.world
        ends = Counter(int(data) for data in world.data("done").values())
        dead = Counter(int(data) for data in world.data("letters").values())
        total = ends + dead
        twice = [number for number, times in total.items() if times > 1]
        assert not twice, f"jobs that ended twice: {twice[:9]}"
        assert total.keys() == self.promised, "a job is nowhere, or came from nowhere"
        outcomes = Counter(meta["$outcome"] for meta in world.meta("done"))
        assert outcomes == world.finished(), "the archive and the counters say the same"


def live(seed: int) -> Counter[str]:
    """A whole day; the outcomes at its end."""
    day = Day(seed)
    world, rng = day.world, day.rng
    end = world.now + DAY_MS
    while world.now < end:
        step = rng.random()
        try:
            if step < 0.15:
                day.write()
            elif step < 0.93:
                day.work()
            else:
                day.operate()
        except TopicFull as refusal:  # pragma: no cover - shows a broken setting
            raise AssertionError("nothing here rejects when full") from refusal
        world.wait(rng.choice((10, 1000, 30_000, 120_000)))
        if rng.random() < 0.05:
            check(world.state)
    day.evening()
    check(world.state)
    day.account()
    return Counter(world.finished())


@pytest.mark.parametrize("seed", range(scaled(2, 6)))
def test_every_job_of_a_day_is_accounted_for(seed: int) -> None:
    outcomes = live(seed)
    wanted = {"acked", "expired", "superseded", "cancelled"}
    assert wanted <= outcomes.keys() and outcomes["acked"] > 100, outcomes


def test_meta_is_json() -> None:
    """The archive's stamps are strings, whatever they count."""
    day = Day(1)
    day.world.write("q", "x")
    day.world.take()
    day.world.ack(1)
    ((_, _, texts),) = day.world.records("done")
    stamps = msgspec.json.decode(texts[3])
    assert all(isinstance(value, str) for value in stamps.values())
