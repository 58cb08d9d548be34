"""Claims and acks go by runs: what they cost is counted in calls of functions, not in time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

import pytest

from logqueue.api import replies
from logqueue.api.bodies import queues
from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from tests.core.world import World, job
from tests.effort import scaled


def _calls(work: Callable[[], Any], *events: str) -> int:
    """How many functions are called: those in Python, or what else these events of the profiler
    are."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in (events or ("call",))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def _cycle(world: World, jobs: int) -> tuple[int, int]:
    """Function calls of a claim with its reply, and of the ack of all that it got."""
    claim = cmd.ClaimJobs("q", (cmd.Claimer("w", jobs, 30_000),))
    found: list[cmd.ClaimResult] = []

    def claimed() -> None:
        result = world.engine.execute(claim).result
        replies.encode_claimed("q", result.jobs[0], result, b"{}")
        found.append(result)

    calls = _calls(claimed)
    seqs = [job.seq for job in found[0].jobs[0]]
    assert len(seqs) == jobs
    ack = cmd.AckJobs("q", "w", seqs)
    return calls, _calls(lambda: world.engine.execute(ack))


@pytest.mark.parametrize("per_write", [1, 100, 1000])
@pytest.mark.parametrize("has_tags", [False, True])
def test_a_job_more_costs_no_call_more(per_write: int, has_tags: bool) -> None:
    """Neither of a claim, nor of its reply, nor of the ack; however the jobs were written."""
    world = World(segment_bytes=16 << 20)
    world.put("q", durability="ephemeral")
    texts = {"tag": "t"} if has_tags else {}
    for _ in range(3000 // per_write):
        world.write("q", *[job("x", **texts)] * per_write)
    few_claimed, few_acked = _cycle(world, 100)
    many_claimed, many_acked = _cycle(world, 500)
    # A batch more costs some: those that were written alone have up to 256 jobs.
    assert many_claimed - few_claimed <= 80
    assert many_acked - few_acked <= 80
    check(world.state)


def _acks_of(world: World, grants: int, jobs: int) -> int:
    """Function calls of acks that come in one turn: whole claims, with all of their lease ids."""
    bodies = []
    for _ in range(grants):
        claimed = world.claim(jobs)
        lease_ids = [f"lease_{job.lease:x}" for job in claimed]
        bodies.append(queues.AckBody("w", [job.seq for job in claimed], lease_ids))

    def acked() -> None:
        acks = [cmd.AckJobs("q", "w", one.seqs, queues.settle_tokens(one)) for one in bodies]
        results = world.engine.execute(cmd.Cohort("q", (*acks,))).result
        assert [one.settled for one in results] == [jobs] * grants

    return _calls(acked, "call", "c_call")


def test_lease_ids_and_neighbours_cost_no_call_more() -> None:
    """Acks of whole claims go by claims, whether they name lease ids and come together or not."""
    world = World(segment_bytes=16 << 20)
    world.put("q", durability="ephemeral")
    for _ in range(6):
        world.write("q", *[job("x")] * 1000)
    for grants in (1, 4):
        few, many = _acks_of(world, grants, 100), _acks_of(world, grants, 500)
        assert many - few <= 80
    check(world.state)


@pytest.mark.parametrize("seed", range(scaled(15, 200)))
def test_any_selection_ends_as_one_by_one(seed: int) -> None:
    """Acks of runs, of gaps, across grants and batches, in any order, with streams and orphans,
    with lease numbers right, wrong or none: as if each job had been acked alone."""
    rng = Random(seed)
    alone, together = World(), World()
    for world in (alone, together):
        world.put("q", durability="fsync", leases_durable=True)
    for _ in range(rng.randint(5, 30)):
        many = rng.choice([1, 1, 1, 3, 40])
        for world in (alone, together):
            world.write("q", *range(many))
    held: list[int] = []
    for _ in range(rng.randint(1, 8)):
        many, stream = rng.randint(1, 30), rng.choice([0, 1, 2])
        taken = alone.take(many, stream=stream)
        assert together.take(many, stream=stream) == taken
        held += taken
    for seq in rng.sample(held, len(held) // 10):
        for world in (alone, together):
            world.cancel(seq, force=True)
    while held:
        start = rng.randrange(len(held))
        some = held[start : start + rng.randint(1, 60)]
        if rng.random() < 0.3:
            some = rng.sample(held, min(len(held), 9))
        del_some = set(some)
        held = [seq for seq in held if seq not in del_some]
        tokens: list[int | None] | None = None
        if rng.random() < 0.5:
            entries = together.queue().queue.jobs
            tokens = [entries[seq].lease if seq in entries else 1 for seq in some]
            if rng.random() < 0.3:
                tokens[rng.randrange(len(some))] = rng.choice([None, 0])
        settled, skipped = together.ack(*some, tokens=tokens)
        each = zip(some, tokens or [None] * len(some), strict=True)
        one_by_one = [alone.ack(seq, tokens=[token]) for seq, token in each]
        assert settled == sum(count for count, _ in one_by_one)
        assert skipped == [seq for _, its in one_by_one for seq in its]
        assert alone.counters() == together.counters()
        assert alone.queue().queue.streams == together.queue().queue.streams
        check(together.state)
    assert alone.records() == together.records()
