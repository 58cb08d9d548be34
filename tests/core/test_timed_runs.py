"""Runs of seqs that the cursor passes over: right, and no more than live records keep apart."""

from __future__ import annotations

from random import Random

import pytest

from logqueue.core.invariants import check
from logqueue.core.timed_runs import TimedRuns
from tests.core.world import World, wish


@pytest.mark.parametrize("seed", range(20))
def test_runs_against_a_set(seed: int) -> None:
    """Records come at the head, timed or not, and go anywhere."""
    rng = Random(seed)
    runs, timed, live = TimedRuns(), set[int](), set[int]()

    def is_bare(first: int, last: int) -> bool:
        return not any(seq in live for seq in range(first, last + 1))

    head = 0
    for _ in range(300):
        count = rng.randrange(1, 4)
        seqs = range(head + 1, head + count + 1)
        head += count
        live.update(seqs)
        if rng.random() < 0.5:
            timed.update(seqs)
            runs.add(seqs[0], seqs[-1], is_bare)
        elif rng.random() < 0.3 and (replaced := rng.choice([*live])) not in timed:
            timed.add(replaced)
            runs.add(replaced, replaced, is_bare)
        live -= {seq for seq in live if rng.random() < 0.2}
        for seq in live:
            behind = runs.behind(seq)
            assert (behind > seq) == (seq in timed), seq
            assert all(s in timed for s in range(seq, behind) if s in live)
        kept_apart = sum(seq not in timed for seq in live) + 1
        assert len(runs) <= 2 * kept_apart + 8


@pytest.mark.parametrize("front", [True, False])
def test_a_queue_without_claims_stays_small(front: bool) -> None:
    world = World()
    world.put(durability="fsync")
    if front:
        # What stays at the front keeps the floor from rising.
        world.write("q", wish("stays", delay_ms=10**8))
    for number in range(150):
        world.write("q", wish(number, delay_ms=10**6))
        world.write("q", "plain")
        seqs = [seq for seq in world.seqs() if not front or seq > 1]
        if len(seqs) > 6:
            for seq in seqs[:2]:
                world.cancel(seq)
    queue = world.queue("q").queue
    assert len(queue.timed_runs) < 20
    check(world.state)


def test_a_queue_that_is_worked_on_stays_small() -> None:
    world = World()
    world.put(durability="fsync")
    for number in range(150):
        world.write("q", wish(number, delay_ms=5), "plain")
        world.write("q", wish(number, delay_ms=5))
        world.write("q", "plain")
        world.wait(6)
        seqs = world.take(9)
        assert len(seqs) == 4
        world.ack(*seqs)
    queue = world.queue("q").queue
    assert len(queue.timed_runs) < 10
    check(world.state)
