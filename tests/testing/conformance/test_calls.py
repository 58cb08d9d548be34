"""The life of a job, call by call: the same words, the same answers, in memory and for real."""

from __future__ import annotations

import pytest

from logqueue.client import NewRecord
from logqueue.errors import NotAQueue, TopicNotFound
from tests.testing.conformance.conftest import World


def test_append_claim_ack(world: World, queue: str) -> None:
    client = world.client
    stored = client.append(
        queue, [NewRecord({"a": 1}, tag="t", meta={"m": 1}), "b"], config={"type": "queue"}
    )
    claimed = client.claim(queue, max=5)
    assert stored.seqs == [1, 2]
    assert [(j.seq, j.data, j.tag, j.meta, j.deliveries) for j in claimed.jobs] == [
        (1, {"a": 1}, "t", {"m": 1}, 1),
        (2, "b", None, None, 1),
    ]
    settled = client.ack(queue, claimed.jobs)
    assert (settled.counted, settled.skipped, settled.in_flight) == ([1, 2], [], 0)
    assert client.topic(queue).count == 0


def test_a_nacked_job_comes_back_counted(world: World, queue: str) -> None:
    client = world.client
    client.append(queue, [1], config={"type": "queue"})
    first = client.claim(queue).jobs
    client.nack(queue, first)
    (again,) = client.claim(queue).jobs
    assert again.deliveries == 2
    assert client.ack(queue, first).skipped == [1], "the first lease is void"


def test_a_lease_that_runs_out_makes_room_for_the_next(world: World, queue: str) -> None:
    client = world.client
    client.append(queue, [1], config={"type": "queue"})
    (first,) = client.claim(queue, lease_ms=100).jobs
    world.until(lambda: client.topic(queue).queue.ready == 1)  # type: ignore[union-attr]
    (again,) = client.claim(queue).jobs
    assert (first.deliveries, again.deliveries) == (1, 2)
    assert client.extend(queue, first, 1000).skipped == [1]


def test_an_exhausted_job_goes_to_the_dead_letters(world: World, queue: str) -> None:
    client = world.client
    dead = f"{queue}.dead"
    client.append(queue, ["x"], config={"type": "queue", "max_deliveries": 1, "dead_letter": dead})
    client.nack(queue, client.claim(queue).jobs)
    assert client.claim(queue).jobs == []
    (letter,) = client.diff(dead).records
    assert letter.data == "x"
    assert letter.meta["$dead_letter_from"] == queue


def test_refusals_have_their_own_classes(world: World, queue: str) -> None:
    with pytest.raises(TopicNotFound):
        world.client.claim(queue)
    world.client.put_topic(queue, type="log")
    with pytest.raises(NotAQueue):
        world.client.claim(queue)


def test_a_stream_brings_jobs_as_they_come(world: World, queue: str) -> None:
    client = world.client
    client.append(queue, [1, 2], config={"type": "queue"})
    jobs = client.work(queue, max=1)
    first = next(jobs)
    client.ack(queue, first)  # type: ignore[arg-type]
    second = next(jobs)
    assert [first.data, second.data] == [1, 2]  # type: ignore[union-attr]
    jobs.close()
    world.until(lambda: client.topic(queue).queue.ready == 1)  # type: ignore[union-attr]


def test_an_idempotency_key_stores_once(world: World, queue: str) -> None:
    first = world.client.append(queue, [1], key="k", create=True)
    again = world.client.append(queue, [1], key="k", create=True)
    assert (first.deduped, again.deduped) == (False, True)
    assert world.client.topic(queue).count == 1
