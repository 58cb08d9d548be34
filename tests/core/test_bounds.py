"""What one step hands out, lists or moves has a bound, in records and in bytes."""

from __future__ import annotations

import pytest

from logqueue.core import commands as cmd
from logqueue.core import limits
from logqueue.core.invariants import check
from logqueue.core.looking import list_jobs
from tests.core.world import World, job

LARGE = "x" * 1000


@pytest.fixture
def world() -> World:
    world = World()
    world.put(durability="ephemeral", lease_ms=1000)
    return world


# -- claims ----------------------------------------------------------------------------------------


def test_a_claim_hands_out_no_more_bytes_than_its_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLAIM_BYTES_MAX", 2100)
    world.write("q", *[LARGE] * 5)
    assert world.take(9) == [1, 2]
    world.nack(1)
    assert world.take(9) == [1, 3], "reclaimed and fresh ones count alike"
    assert world.take(9) == [4, 5]
    assert world.take(9) == []
    world.wait(1001)
    assert world.take(9) == [1, 2], "the cursor has not passed over what was left for its size"
    check(world.state)


def test_one_job_is_always_handed_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLAIM_BYTES_MAX", 10)
    world.write("q", LARGE, "small", LARGE)
    assert [world.take(9) for _ in range(4)] == [[1], [2], [3], []]


def test_small_jobs_in_large_batches_are_weighed_one_by_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLAIM_BYTES_MAX", 2100)
    world.write("q", *[LARGE] * 3, *range(100))
    world.take(3)
    assert len(world.take(3)) == 3 and len(world.take(1000)) == 98


def test_a_pass_over_a_cohort_is_bounded_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLAIMED_PER_PASS_MAX", 4)
    world.fill(10)
    cohort = tuple(cmd.Claimer(f"w{i}", 3) for i in range(3))
    claimed: cmd.Claimed = world.run(cmd.Claim("q", cohort))
    assert [len(jobs) for jobs in claimed.jobs] == [2, 1, 1] and claimed.is_cut
    claimed = world.run(cmd.Claim("q", (cmd.Claimer("w", 4),)))
    assert len(claimed.jobs[0]) == 4 and not claimed.is_cut
    claimed = world.run(cmd.Claim("q", (cmd.Claimer("w", 9),)))
    assert len(claimed.jobs[0]) == 2 and not claimed.is_cut
    check(world.state)


# -- listings --------------------------------------------------------------------------------------


def test_a_page_of_jobs_ends_at_its_bytes(world: World) -> None:
    world.write("q", LARGE, LARGE, job("t", tag="a"), LARGE)
    topic = world.topic("q")
    seen = []
    after: int | None = 0
    while after is not None:
        page = list_jobs(topic, after=after, limit=100, bytes_max=2100)
        seen.append([shown.seq for shown in page.jobs])
        after = page.next_after
    assert seen == [[1, 2, 3], [4]]
    assert [len(list_jobs(topic, after=n, limit=9, bytes_max=1).jobs) for n in range(4)] == [1] * 4
    bare = list_jobs(topic, limit=9, bytes_max=1, with_data=False)
    assert [shown.seq for shown in bare.jobs] == [1, 2, 3, 4] and not bare.jobs[0].data
