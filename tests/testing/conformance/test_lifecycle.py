"""What jobs can go through beyond claim, ack and nack: the same in memory and for real."""

from __future__ import annotations

from typing import Any

import pytest

from logqueue.client import NewRecord
from logqueue.errors import KeyConflict
from tests.testing.conformance.conftest import World

SOON_MS = 1000
LATER_MS = 3_600_000
WAIT_MS = 30_000


def data(jobs: list[Any]) -> list[Any]:
    """What jobs or records are about."""
    return [job.data for job in jobs]


def test_a_delayed_job_comes_when_it_is_due(world: World, queue: str) -> None:
    client = world.client
    later, soon = NewRecord("later", delay_ms=LATER_MS), NewRecord("soon", delay_ms=SOON_MS)
    client.append(queue, [later, "now"], config={"type": "queue"})
    assert data(client.claim(queue, max=3).jobs) == ["now"]
    client.append(queue, [soon])
    (job,) = client.claim(queue, max=3, wait_ms=WAIT_MS, lease_ms=LATER_MS).jobs
    assert job.data == "soon" and job.deadline - LATER_MS >= job.ts + SOON_MS
    nothing = client.claim(queue)
    assert (nothing.jobs, nothing.reason) == ([], "delayed")
    assert [view.data for view in client.jobs(queue, state="delayed")] == ["later"]


def test_a_key_has_one_waiting_job(world: World, queue: str) -> None:
    client = world.client
    client.append(queue, [NewRecord("old", key="k"), "other"], config={"type": "queue"})
    replaced = client.append(queue, [NewRecord("new", key="k")])
    kept = client.append(queue, [NewRecord("newest", key="k", on_conflict="keep")])
    assert replaced.results is not None and kept.results is not None
    results = [(r.seq, r.result) for r in replaced.results + kept.results]
    assert results == [(1, "replaced"), (1, "kept")]
    with pytest.raises(KeyConflict):
        client.append(queue, [NewRecord("newest", key="k", on_conflict="reject")])
    assert data(client.claim(queue, max=3).jobs) == ["new", "other"]


def test_a_job_that_comes_back_to_a_taken_key_is_superseded(world: World, queue: str) -> None:
    client = world.client
    client.append(queue, [NewRecord("old", key="k")], config={"type": "queue"})
    old = client.claim(queue).jobs
    client.append(queue, [NewRecord("new", key="k")])
    client.nack(queue, old)
    assert data(client.claim(queue, max=2).jobs) == ["new"]
    counters = client.topic(queue).queue
    assert counters is not None and counters.superseded == 1


def test_a_rejected_job_is_dead_lettered_and_redriven(world: World, queue: str) -> None:
    client = world.client
    dead = f"{queue}.dead"
    client.append(queue, ["x"], config={"type": "queue", "dead_letter": dead})
    assert client.reject(queue, client.claim(queue).jobs, error="no good").counted == [1]
    (letter,) = client.diff(dead).records
    assert (letter.meta["$dead_letter_reason"], letter.meta["$dead_letter_error"]) == (
        "rejected",
        "no good",
    )
    assert client.redrive(dead, dry_run=True).redriven == 1
    redriven = client.redrive(dead)
    assert (redriven.redriven, redriven.remaining, redriven.targets) == (1, 0, [queue])
    (again,) = client.claim(queue).jobs
    assert (again.data, again.deliveries) == ("x", 1)
    assert client.topic(dead).count == 0


def test_a_rejected_job_is_held_until_it_is_released(world: World, queue: str) -> None:
    client = world.client
    client.append(queue, ["x"], config={"type": "queue", "on_exhausted": "hold"})
    client.reject(queue, client.claim(queue).jobs)
    assert client.claim(queue).jobs == []
    assert [view.state for view in client.jobs(queue)] == ["held"]
    released = client.release(queue, [1, 2])
    assert (released.released, released.skipped, released.held) == (1, [2], 0)
    assert [job.deliveries for job in client.claim(queue).jobs] == [1]


def test_a_finished_job_is_archived(world: World, queue: str) -> None:
    client = world.client
    done = f"{queue}.done"
    client.append(queue, ["good", "bad"], config={"type": "queue", "archive": done})
    good, bad = client.claim(queue, max=2).jobs
    client.ack(queue, good)
    client.reject(queue, bad)
    copies = [(copy.data, copy.meta["$outcome"]) for copy in client.diff(done).records]
    assert copies == [("good", "acked"), ("bad", "rejected")]


def test_an_expired_job_is_dead_lettered_without_being_asked_for(world: World, queue: str) -> None:
    client = world.client
    dead = f"{queue}.dead"
    client.put_topic(dead, type="queue")
    client.put_topic(queue, type="queue", dead_letter=dead, on_expire="dead_letter")
    client.append(queue, [NewRecord("x", ttl_ms=SOON_MS)])
    (letter,) = client.claim(dead, wait_ms=WAIT_MS).jobs
    assert letter.meta["$dead_letter_reason"] == "expired"


def test_a_claim_waits_for_a_job(world: World, queue: str) -> None:
    client = world.client
    client.append(queue, [1], config={"type": "queue"})
    client.nack(queue, client.claim(queue).jobs, delay_ms=SOON_MS)
    assert [job.deliveries for job in client.claim(queue, wait_ms=WAIT_MS).jobs] == [2]


def test_a_claim_waits_in_vain_as_long_as_it_says(world: World, queue: str) -> None:
    world.client.put_topic(queue, type="queue")
    assert world.client.claim(queue, wait_ms=SOON_MS).reason == "empty"


def test_an_uncounted_nack_takes_the_delivery_back(world: World, queue: str) -> None:
    client = world.client
    client.append(queue, [1], config={"type": "queue"})
    client.nack(queue, client.claim(queue).jobs, error="not begun", count=False)
    (job,) = client.claim(queue).jobs
    assert (job.deliveries, job.last_error) == (1, "not begun")


def test_the_rate_of_claims_is_limited(world: World, queue: str) -> None:
    client = world.client
    # Slow enough that the second claim, however late it comes, finds nothing refilled.
    slow = {"per_s": 0.01, "burst": 2}
    client.append(queue, [1, 2, 3], config={"type": "queue", "claim_rate": slow})
    assert data(client.claim(queue, max=3).jobs) == [1, 2]
    limited = client.claim(queue)
    assert (limited.jobs, limited.reason) == ([], "rate_limited")
    assert limited.retry_after_ms is not None and 0 < limited.retry_after_ms <= 100_000
    client.patch_topic(queue, claim_rate={"per_s": 20, "burst": 1})
    assert data(client.claim(queue, wait_ms=WAIT_MS).jobs) == [3]


def test_a_paused_queue_hands_out_nothing(world: World, queue: str) -> None:
    client = world.client
    client.append(queue, [1], config={"type": "queue"})
    assert client.pause(queue).paused
    assert client.claim(queue, wait_ms=SOON_MS).reason == "paused"
    assert not client.resume(queue).paused
    assert data(client.claim(queue).jobs) == [1]


def test_a_queue_has_no_more_in_flight_than_it_may(world: World, queue: str) -> None:
    client = world.client
    client.append(queue, [1, 2], config={"type": "queue", "max_in_flight": 1})
    (first,) = client.claim(queue, max=2).jobs
    assert client.claim(queue).reason == "max_in_flight"
    client.ack(queue, first)
    assert data(client.claim(queue).jobs) == [2]


def test_jobs_are_cancelled_and_purged(world: World, queue: str) -> None:
    client = world.client
    client.append(queue, [1, NewRecord(2, key="k"), 3, 4], config={"type": "queue"})
    (first,) = client.claim(queue).jobs
    assert client.cancel(queue, 1, force=True).cancelled
    assert client.ack(queue, first).skipped == [1]
    assert client.cancel_key(queue, "k").seq == 2
    assert client.purge(queue, ["ready"]).purged["ready"] == 2
    assert client.topic(queue).count == 0


def test_the_life_of_a_job_can_be_told(world: World, queue: str) -> None:
    client = world.client
    client.append(queue, [1], config={"type": "queue"})
    client.nack(queue, client.claim(queue).jobs, error="bad")
    told = client.job(queue, 1)
    assert [step.event for step in told.history] == ["claimed", "nack"]
    assert (told.job.state, told.job.last_error) == ("ready", "bad")
    assert [worker.node for worker in client.workers(queue)] == ["test"]
