"""Records written one by one: neighbours become one batch, with no visible difference.

Costs are counted in objects and their sizes, so the bounds do not depend on the machine.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from logqueue.core import batches as batches_module
from logqueue.core.batch import JOINED_BYTES_MAX, JOINED_RECORDS_MAX, THINNED_FROM, Batch
from logqueue.core.batches import JOINED_AT_ONCE
from logqueue.core.invariants import check
from logqueue.core.topic import Topic
from logqueue.events import block as blocks
from tests.core.world import World, job, pack, wish
from tests.effort import scaled
from tests.portrait import portrait

BODY = "x" * 98


def _held_bytes(topic: Topic) -> int:
    """Bytes of everything that holds the records of a topic, each object once."""
    seen: set[int] = set()
    found = 0
    pending: list[Any] = [topic.batches]
    while pending:
        one = pending.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        found += sys.getsizeof(one)
        pending.extend(gc.get_referents(one))
        if isinstance(one, Batch):
            pending.extend((one.block, one.first_seq, one.last_seq, one.ts, one.newest))
    return found


@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_a_job_written_alone_costs_little_more_than_its_bytes(durability: str) -> None:
    """Live, and after a restart."""
    world = World(segment_bytes=4 << 20)
    world.put("q", durability=durability)
    jobs = 2000
    for n in range(jobs):
        world.write("q", BODY)
        world.wait(n % 3)
    data = len(job(BODY)[0])
    assert _held_bytes(world.topic("q")) / jobs < data + 20
    if durability == "disk":
        world.kill()
        assert world.topic("q").live == jobs
        assert _held_bytes(world.topic("q")) / jobs < data + 20


def test_what_is_joined_is_bounded() -> None:
    """In records, in bytes, and only small batches are."""
    world = World()
    for name, size, count in (
        ("small", 10, 1),
        ("large", 9000, 1),
        ("some", 10, 40),
        ("many", 10, 64),
    ):
        world.put(name, durability="ephemeral")
        for _ in range(6 * JOINED_AT_ONCE):
            world.write(name, *["x" * size] * count)
        check(world.state)
    for name in ("small", "large", "some"):
        found = [*world.topic(name).batches]
        assert max(batch.count for batch in found) <= JOINED_RECORDS_MAX
        assert max(len(batch.block) for batch in found) <= JOINED_BYTES_MAX
        assert len(found) < 4 * JOINED_AT_ONCE
    assert len(world.topic("many").batches) == 6 * JOINED_AT_ONCE


def test_each_record_is_copied_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of records."""
    copied = 0
    join = blocks.join

    def counted(parts: list[bytes]) -> bytes:
        nonlocal copied
        copied += sum(blocks.BlockView(part).count for part in parts)
        return join(parts)

    monkeypatch.setattr(blocks, "join", counted)
    world = World()
    world.put("q", durability="ephemeral")
    for n in range(3000):
        world.write("q", n)
    assert world.values() == [*range(3000)]
    assert copied <= 2 * 3000


def test_one_that_stays_does_not_keep_its_neighbours() -> None:
    """A block whose records are mostly gone is written anew, smaller."""
    world = World()
    world.put("q", durability="ephemeral")
    jobs = 64 * THINNED_FROM
    for _ in range(jobs // 2):
        world.write("q", BODY)
    world.write("q", *[BODY] * (jobs // 2))
    kept = 0
    for start in range(0, jobs, THINNED_FROM):
        taken = world.take(THINNED_FROM)
        world.ack(*taken[1:])
        world.nack(taken[0], delay_ms=10**6)
        kept += 1
        assert start + 1 == taken[0]
    check(world.state)
    topic = world.topic("q")
    assert topic.live == kept
    assert sum(len(batch.block) for batch in topic.batches) <= 4 * kept * (len(BODY) + 20)
    assert world.seqs() == [*range(1, jobs, THINNED_FROM)]


@pytest.mark.parametrize("durability", ["ephemeral", "disk"])
def test_what_was_made_smaller_can_be_cut_and_made_smaller_again(durability: str) -> None:
    """Its seqs have gaps, of which the block knows nothing. Live, and after a restart."""
    world = World()
    world.put("q", durability=durability)
    first, gaps = [*range(1, 5)], [*range(10, 10 + 2 * (THINNED_FROM - 4), 2)]
    world.write("q", *range(4 * THINNED_FROM))
    taken = world.take(4 * THINNED_FROM)
    world.ack(*[seq for seq in taken if seq not in {*first, *gaps}])
    (batch,) = world.topic("q").batches
    assert batch.count == THINNED_FROM
    rest = [seq for part in batch.behind(3) for seq, _, _ in part.records()]
    assert rest == [4, *gaps]
    around = [[seq for seq, _, _ in part.records()] for part in batch.around([2, gaps[1]])]
    assert around == [[1], [3, 4, gaps[0]], gaps[2:]]
    world.ack(*gaps)
    for _ in range(2):
        check(world.state)
        assert world.seqs() == first
        assert world.values() == [seq - 1 for seq in first]
        if durability == "disk":
            world.kill()


@pytest.fixture(params=[2, 3])
def _eager(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neighbours are joined as soon as there are two or three."""
    monkeypatch.setattr(batches_module, "JOINED_AT_ONCE", request.param)
    yield


def _random_block(rng: Random, has_ttl: bool) -> bytes:
    """One to four records with any text columns."""

    def record() -> Any:
        texts: dict[str, Any] = {}
        if rng.random() < 0.3:
            texts["tag"] = rng.choice(["a", "b"])
        if rng.random() < 0.2:
            texts["meta"] = {"m": rng.randrange(5)}
        if has_ttl:
            key = rng.choice([None, "k", "l"])
            return wish(rng.randrange(100), key=key, ttl_ms=rng.randint(1, 10**6), **texts)
        return job("x" * rng.randrange(40), **texts)

    return pack([record() for _ in range(rng.randint(1, 4))])


@pytest.mark.parametrize("seed", range(scaled(20, 400)))
def test_joined_blocks_hold_what_their_parts_hold(seed: int) -> None:
    """Whatever columns each of them has; `select` takes any of it out again."""
    rng = Random(seed)
    has_ttl = rng.random() < 0.3
    parts = [_random_block(rng, has_ttl) for _ in range(rng.randint(1, 6))]

    def rows(block: bytes) -> list[tuple[Any, ...]]:
        view = blocks.BlockView(block)
        numbers = range(len(blocks.NUMBER_COLUMNS))
        return [
            (
                *(view.text(column, place) for column in blocks.TEXTS),
                *(view.number(column, place) for column in numbers),
            )
            for place in range(view.count)
        ]

    together = blocks.join(parts)
    expected = [row for part in parts for row in rows(part)]
    assert rows(together) == expected
    assert blocks.size_total(together) == sum(map(blocks.size_total, parts))
    places = sorted(rng.sample(range(len(expected)), rng.randint(1, len(expected))))
    assert rows(blocks.select(blocks.BlockView(together), places)) == [expected[i] for i in places]


@pytest.mark.usefixtures("_eager")
@pytest.mark.parametrize("seed", range(scaled(8, 100)))
def test_random_lives(seed: int) -> None:
    """Writes, ends, moves to newer segments, caps and TTLs; live and replayed alike."""
    rng = Random(seed)
    world = World(segment_bytes=8 << 10)
    bounds: list[dict[str, Any]] = [{}, {"cap_records": 30}, {"ttl_ms": 400}]
    world.put("q", durability="fsync", leases_durable=True, **rng.choice(bounds))
    for _ in range(250):
        match rng.randrange(10):
            case 0 | 1 | 2 | 3:
                world.write("q", *[rng.randrange(1000)] * rng.choice([1, 1, 1, 2, 5]))
            case 4:
                world.write("q", wish(1, key=f"k{rng.randrange(4)}", delay_ms=rng.choice([0, 50])))
            case 5:
                world.take(rng.randint(1, 9))
            case 6:
                held = [seq for seq, state in world.states().items() if state == "in_flight"]
                world.ack(*rng.sample(held, rng.randint(0, len(held))))
            case 7:
                world.wait(rng.randrange(60))
            case 8:
                world.write("q", "x" * rng.randrange(900))
            case _:
                world.tidy()
        check(world.state)
    world.take(1)
    before = portrait(world.state)["q"]
    world.kill()
    after = portrait(world.state)["q"]
    # A restart ends leases of records that are gone.
    before["queue"]["orphans"] = after["queue"]["orphans"]
    assert after == before


@pytest.mark.parametrize("per_write", [1, 3])
def test_replay_takes_neighbours_in_together(
    per_write: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small appends are applied in runs of up to 256 records; whatever comes between ends a run."""
    world = World(segment_bytes=4 << 20)
    world.put("q", durability="fsync", leases_durable=True)
    world.put("other", durability="fsync")
    for n in range(600 // per_write):
        world.write("q", *[n] * per_write)
        world.wait(n % 2)
    world.write("q", "once", key="k")
    world.write("other", 1)
    world.write("q", 2)
    assert world.take(2) == [1, 2]
    world.write("q", 3)
    world.ack(1)
    world.write("q", *range(100))
    world.write("q", 4)
    before = portrait(world.state)
    counts: list[int] = []
    insert = Topic.insert

    def counted(self: Topic, batch: Batch, size: int, **options: Any) -> None:
        counts.append(batch.count)
        insert(self, batch, size, **options)

    monkeypatch.setattr(Topic, "insert", counted)
    world.kill()
    assert counts == [*([255, 255, 90] if per_write == 3 else [256, 256, 88]), 1, 1, 1, 1, 100, 1]
    assert portrait(world.state) == before
