"""The rules of leases as short transcripts in virtual time: one rule, a few lines."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.errors import NotAQueue, TopicFull, TopicNotFound
from logqueue.model.limits import Quotas
from tests.core.world import START_MS, World, job


@pytest.fixture
def world() -> World:
    """A queue `q` with leases of one second."""
    world = World()
    world.put(lease_ms=1000)
    return world


# -- expiry: valid up to the deadline, not one ms longer -------------------------------------------


@pytest.mark.parametrize(("after_ms", "acked"), [(999, 1), (1000, 1), (1001, 0)])
def test_ack_up_to_the_deadline(world: World, after_ms: int, acked: int) -> None:
    world.fill(1)
    assert world.claim()[0].deadline == START_MS + 1000
    world.wait(after_ms)
    assert world.ack(1)[0] == acked
    assert world.counters() == (1 - acked, 0, 0)


@pytest.mark.parametrize("after_ms", [1000, 1001])
def test_nack_and_extend_up_to_the_deadline(world: World, after_ms: int) -> None:
    world.fill(2)
    world.take(2)
    world.wait(after_ms)
    late = after_ms > 1000
    assert world.nack(1) == ((0, [1]) if late else (1, []))
    assert world.extend(2, lease_ms=500)[:2] == (([], [2]) if late else ([2], []))
    assert world.counters() == ((2, 0, 0) if late else (1, 1, 0))


def test_extend_sets_and_may_shorten(world: World) -> None:
    world.fill(1)
    (before,) = world.claim()
    assert world.extend(1, lease_ms=100) == ([1], [], START_MS + 100)
    world.wait(101)
    (after,) = world.claim()
    assert after.deliveries == 2 and after.lease > before.lease


def test_extend_keeps_lease_and_deliveries(world: World) -> None:
    world.fill(1)
    (held,) = world.claim()
    world.wait(900)
    world.extend(1, lease_ms=1000, tokens=[held.lease])
    world.wait(1000)
    assert world.ack(1, tokens=[held.lease]) == (1, [])


# -- nack ------------------------------------------------------------------------------------------


def test_a_delayed_nack_is_in_neither_counter_until_it_is_due(world: World) -> None:
    world.fill(1)
    world.take()
    assert world.nack(1, delay_ms=500) == (1, [])
    assert world.counters() == (0, 0, 0) and world.seqs() == [1]
    assert world.ack(1) == world.nack(1) == (0, [1])
    assert world.extend(1, lease_ms=100)[1] == [1]
    world.wait(499)
    assert world.take() == []
    world.wait(1)
    assert world.counters() == (1, 0, 0)
    assert [(j.seq, j.deliveries) for j in world.claim()] == [(1, 2)]


def test_nack_then_claim_by_the_same_node(world: World) -> None:
    world.fill(2)
    (first,) = world.claim()
    world.nack(1)
    (second,) = world.claim()
    assert (second.seq, second.deliveries) == (1, 2) and second.lease != first.lease


# -- order -----------------------------------------------------------------------------------------


def test_reclaimed_jobs_before_fresh_ones_listed_ascending(world: World) -> None:
    world.fill(9)
    world.take(8)
    world.nack(5)
    world.nack(2)
    assert world.take(3) == [2, 5, 9]


def test_one_slot_goes_to_the_reclaimed(world: World) -> None:
    world.fill(3)
    world.take(2)
    world.nack(2)
    assert world.take() == [2]
    assert world.take() == [3]


def test_claims_are_not_idempotent(world: World) -> None:
    world.fill(4)
    assert [world.take(2), world.take(2), world.take(2)] == [[1, 2], [3, 4], []]


@pytest.mark.parametrize(
    ("jobs", "demands", "shares"),
    [
        (10, (10, 10, 10, 10), [3, 3, 2, 2]),
        (10, (10, 1, 10, 10), [3, 1, 3, 3]),
        (50, (10,) * 10, [5] * 10),
        (3, (5, 5, 5, 5), [1, 1, 1, 0]),
        (9, (1, 2), [1, 2]),
        (0, (3, 3), [0, 0]),
    ],
)
def test_a_cohort_is_served_evenly(
    world: World, jobs: int, demands: tuple[int, ...], shares: list[int]
) -> None:
    if jobs:
        world.fill(jobs)
    got = world.share(*demands)
    assert [len(share) for share in got] == shares
    seqs = [seq for share in got for seq in share]
    assert sorted(seqs) == list(range(1, sum(shares) + 1))


# -- who may settle --------------------------------------------------------------------------------


def test_only_the_holder_settles(world: World) -> None:
    world.fill(3)
    world.take(2, node="a")
    assert world.ack(1, 3, 0, 77, node="b") == (0, [1, 3, 0, 77])
    assert world.ack(1, 3, 0, 77, node="a") == (1, [3, 0, 77])
    assert world.ack(1, node="a") == (0, [1])
    assert world.ack() == (0, [])


def test_tokens_fence(world: World) -> None:
    world.fill(1)
    (old,) = world.claim()
    world.nack(1)
    (new,) = world.claim()
    assert world.ack(1, tokens=[old.lease]) == (0, [1])
    assert world.counters() == (0, 1, 0)
    assert world.ack(1, node="other", tokens=[new.lease]) == (0, [1])
    assert world.ack(1, tokens=[None]) == (1, [])


def test_repeats_in_one_call(world: World) -> None:
    world.fill(2)
    world.take(2)
    assert world.extend(2, 2, lease_ms=100) == ([2, 2], [], START_MS + 100)
    assert world.nack(2, 2) == (1, [2])
    assert world.ack(1, 1, 1) == (1, [1, 1])


def test_acking_the_ends_of_a_batch_leaves_its_middle(world: World) -> None:
    world.fill(5)
    world.take(5)
    assert world.ack(1, 5) == (2, [])
    assert world.seqs() == [2, 3, 4]
    assert world.delete(before=9) == 3


# -- the record goes while it is leased ------------------------------------------------------------


def _delete(world: World) -> None:
    world.delete(before=3)


def _evict(world: World) -> None:
    world.put(lease_ms=1000, cap_records=1)


def _expire(world: World) -> None:
    world.put(lease_ms=1000, ttl_ms=10)
    world.wait(11)


@pytest.mark.parametrize("go", [_delete, _evict, _expire])
def test_orphans(world: World, go: object) -> None:
    assert callable(go)
    world.fill(3)
    world.take(2)
    go(world)
    ready, in_flight, _ = world.counters()
    assert in_flight == 0 and ready == len(world.seqs()) and not {1, 2} & set(world.seqs())
    assert world.extend(1, lease_ms=1000)[0] == [1]
    assert world.nack(2) == (1, [])
    assert world.ack(1) == (1, [])
    assert world.ack(1) == (0, [1])
    assert not {1, 2} & set(world.take(9))
    check(world.state)


def test_an_orphans_lease_runs_out(world: World) -> None:
    world.fill(1)
    world.take()
    world.delete(before=9)
    world.wait(1001)
    assert world.ack(1) == (0, [1])


def test_delayed_and_reclaimed_jobs_go_with_their_records(world: World) -> None:
    world.fill(3)
    world.take(2)
    world.nack(1)
    world.nack(2, delay_ms=10)
    world.delete(before=9)
    world.wait(10)
    assert world.take(9) == [] and world.counters() == (0, 0, 0)


# -- work streams ----------------------------------------------------------------------------------


def test_a_stream_releases_its_own_leases_only(world: World) -> None:
    world.fill(4)
    world.take(2, stream=7)
    world.take(1, stream=8)
    world.take(1)
    world.nack(1)
    assert world.release(7) == 1 and world.release(7) == 0
    assert [(j.seq, j.deliveries) for j in world.claim(9)] == [(1, 2), (2, 2)]


def test_an_extended_lease_stays_with_its_stream(world: World) -> None:
    world.fill(1)
    world.take(stream=7)
    world.extend(1, lease_ms=5000)
    assert world.release(7) == 1


# -- dead letters ----------------------------------------------------------------------------------


def letters(world: World) -> list[tuple[bytes, ...]]:
    return [texts for _, _, texts in world.records("letters")]


def test_a_job_delivered_too_often_is_moved_with_its_provenance(world: World) -> None:
    world.put(max_deliveries=3, dead_letter="letters")
    world.write("q", job("x", tag="t", node="n", meta={"a": 1, "$dead_letter_from": 0}), "next")
    for _ in range(3):
        assert world.take() == [1]
        world.nack(1)
    assert world.take() == [2]
    ((data, tag, node, meta),) = letters(world)
    assert (data, tag, node) == (b'"x"', b'"t"', b'"n"')
    assert msgspec.json.decode(meta) == {
        "a": 1,
        "$dead_letter_from": "q",
        "$dead_letter_deliveries": "3",
        "$dead_letter_src_seq": "1",
        "$dead_letter_reason": "max_deliveries",
        "$dead_letter_at": str(world.now),
    }
    assert world.counters() == (0, 1, 1) and world.seqs() == [2]
    assert world.topic("letters").config.durability == "disk"


def test_a_claim_where_all_are_diverted(world: World) -> None:
    world.put(max_deliveries=1, dead_letter="letters", lease_ms=1000)
    world.fill(3)
    world.take(3)
    world.wait(1001)
    assert world.take(9) == []
    assert world.counters() == (0, 0, 3) and len(letters(world)) == 3


def test_meta_that_is_no_object_is_kept_aside(world: World) -> None:
    world.put(max_deliveries=1, dead_letter="letters")
    world.write("q", job(1, meta=[1, 2]))
    world.take()
    world.nack(1)
    world.take()
    assert letters(world)[0][3].startswith(b'{"$dead_letter_meta":[1,2],"$dead_letter_from":"q"')


@pytest.mark.parametrize("config", [{"max_deliveries": 1}, {"dead_letter": "letters"}])
def test_half_a_setting_never_diverts(world: World, config: dict[str, Any]) -> None:
    world.put(**config)
    world.fill(1)
    for deliveries in (1, 2, 3):
        assert [j.deliveries for j in world.claim()] == [deliveries]
        world.nack(1)


def test_a_lower_bound_acts_at_the_next_claim(world: World) -> None:
    world.fill(1)
    for _ in range(3):
        world.take()
        world.nack(1)
    world.put(max_deliveries=2, dead_letter="letters")
    assert world.take() == [] and world.counters() == (0, 0, 1)


def test_a_full_target_postpones_and_keeps_the_counter(world: World) -> None:
    world.put("letters", cap_records=1, discard="reject")
    world.put(max_deliveries=1, dead_letter="letters")
    world.fill(3)
    world.take(3)
    world.nack(1, 2, 3)
    assert world.take() == [] and len(letters(world)) == 1
    assert world.counters() == (0, 0, 1) and world.seqs() == [2, 3]
    world.take(topic="letters")
    world.ack(1, topic="letters")
    world.wait(999)
    assert world.take(9) == []
    world.wait(1)
    assert world.take(9) == [] and world.counters() == (0, 0, 2)


def test_a_target_that_can_not_be_created_leaves_the_job_ready() -> None:
    world = World(quotas=Quotas(topics_max=1))
    world.put(max_deliveries=1, dead_letter="letters")
    world.fill(2)
    world.take()
    world.nack(1)
    assert world.take() == [2]
    assert world.counters() == (1, 1, 0)


def test_chains_and_circles(world: World) -> None:
    world.put("a", max_deliveries=1, dead_letter="b")
    world.put("b", max_deliveries=1, dead_letter="a")
    world.write("a", "x")
    for topic, other in (("a", "b"), ("b", "a"), ("a", "b")):
        (held,) = world.claim(topic=topic)
        assert held.deliveries == 1
        world.nack(held.seq, topic=topic)
        assert world.take(topic=topic) == []
        assert len(world.seqs(other)) == 1
    assert world.counters("a")[2] == 2


def test_what_is_moved_is_moved_after_any_restart(world: World) -> None:
    world.put(max_deliveries=1, dead_letter="letters", durability="fsync")
    world.fill(1)
    world.take()
    world.nack(1)
    world.take()
    world.kill()
    assert world.seqs() == [] and world.seqs("letters") == [1] and world.counters() == (0, 0, 1)


# -- room ------------------------------------------------------------------------------------------


def test_a_queue_full_of_leased_jobs_rejects_until_an_ack(world: World) -> None:
    world.put(cap_records=2, discard="reject")
    world.fill(2)
    world.take(2)
    with pytest.raises(TopicFull):
        world.write("q", "no room")
    world.ack(2)
    assert world.write("q", "room").first_seq == 3
    assert world.seqs() == [1, 3]


# -- the queue goes --------------------------------------------------------------------------------


def test_a_recreated_queue_knows_no_old_lease(world: World) -> None:
    world.fill(1)
    (old,) = world.claim()
    assert world.drop() and not world.drop()
    with pytest.raises(TopicNotFound):
        world.ack(1)
    world.put()
    world.fill(1)
    (new,) = world.claim()
    assert (new.seq, new.deliveries) == (1, 1) and new.lease > old.lease
    assert world.ack(1, tokens=[old.lease]) == (0, [1])


@pytest.mark.parametrize("call", ["claim", "ack", "nack", "release"])
def test_a_log_is_no_queue(world: World, call: str) -> None:
    world.put("log", type="log")
    arguments: tuple[int, ...] = (1,)
    with pytest.raises(NotAQueue):
        getattr(world, call)(*arguments, topic="log")


def test_new_lease_times_are_for_new_claims(world: World) -> None:
    world.fill(2)
    assert world.claim()[0].deadline == START_MS + 1000
    world.put(lease_ms=100)
    assert world.claim()[0].deadline == START_MS + 100
    world.wait(101)
    assert world.counters() == (1, 1, 0)


def test_each_claimer_of_a_cohort_has_its_own_lease_time(world: World) -> None:
    world.fill(2)
    cohort = (cmd.Claimer("a", 1, 200), cmd.Claimer("b", 1, None))
    reply: cmd.ClaimResult = world.run(cmd.ClaimJobs("q", cohort))
    assert [jobs.deadline - START_MS for jobs in reply.jobs] == [200, 1000]
