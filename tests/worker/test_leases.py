"""When leases are renewed, together with which, until when, and how a loss is found out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logqueue import shapes
from logqueue.client import LostReply, Unreachable
from logqueue.errors import LogqueueError, NotAQueue, TopicNotFound
from logqueue.worker.leases import Lease, LeaseKeeper

LEASE_S = 30.0


class World:
    """A clock, a server that answers as told, and a keeper between them."""

    def __init__(self, max_lease_s: float = 1e9) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, list[int], int]] = []
        self.foreign: set[int] = set()
        self.failure: LogqueueError | None = None
        self.while_asked: Callable[[], None] = lambda: None
        self.lost: list[tuple[int, str]] = []
        self.keeper = LeaseKeeper(self.extend, lambda: self.now, max_lease_s)

    def extend(self, queue: str, jobs: list[shapes.Job], lease_ms: int) -> shapes.Extended:
        """Answer one call."""
        seqs = [job.seq for job in jobs]
        self.calls.append((self.now, seqs, lease_ms))
        self.while_asked()
        if self.failure is not None:
            raise self.failure
        return shapes.Extended(
            topic=queue,
            extended=len(seqs),
            skipped=[seq for seq in seqs if seq in self.foreign],
            deadlines={seq: round(self.now * 1000) + lease_ms for seq in seqs},
        )

    def hold(self, seq: int, lease_s: float = LEASE_S, queue: str = "q") -> Lease:
        """A job that was claimed just now."""
        job = shapes.Job(seq=seq, lease_id=f"l{seq}", deadline=0, ts=0, deliveries=1, data=None)
        lease = Lease(queue, job, lease_s, self.now)
        lease.on_lost = lambda reason: self.lost.append((seq, reason))
        self.keeper.hold(lease)
        return lease

    def pass_time(self, until: float) -> None:
        """Do what is due, when it is."""
        while (due := self.keeper.next_due()) is not None and due <= until:
            self.now = max(due, self.now)
            self.keeper.renew_due()
        self.now = until


@pytest.fixture
def world() -> World:
    return World()


def test_a_lease_is_renewed_whenever_a_third_of_it_has_passed(world: World) -> None:
    world.hold(1)
    world.pass_time(35.0)
    assert world.calls == [(10.0, [1], 30_000), (20.0, [1], 30_000), (30.0, [1], 30_000)]


def test_leases_that_are_nearly_due_ride_along(world: World) -> None:
    world.hold(1)
    world.now = 2.0
    world.hold(2)
    world.now = 5.0
    world.hold(3)
    world.pass_time(15.0)
    assert [(at, sorted(seqs)) for at, seqs, _ in world.calls] == [(10.0, [1, 2]), (15.0, [3])]


def test_queues_and_lengths_have_calls_of_their_own(world: World) -> None:
    world.hold(1)
    world.hold(2, queue="other")
    world.hold(3, lease_s=31.0)
    world.pass_time(10.0)
    assert sorted(seqs for _, seqs, _ in world.calls) == [[1], [2], [3]]


def test_a_call_has_at_most_a_thousand(world: World) -> None:
    for seq in range(2500):
        world.hold(seq)
    world.pass_time(10.0)
    assert sorted(len(seqs) for _, seqs, _ in world.calls) == [500, 1000, 1000]


def test_the_last_renewal_ends_at_max_lease() -> None:
    world = World(max_lease_s=45.0)
    lease = world.hold(1)
    world.pass_time(44.0)
    assert [(at, ms) for at, _, ms in world.calls] == [(10.0, 30_000), (20.0, 25_000)]
    assert world.lost == []
    world.pass_time(45.0)
    assert lease.is_lost
    assert "max_lease" in world.lost[0][1]


def test_a_lease_that_is_skipped_is_lost(world: World) -> None:
    lost, kept = world.hold(1), world.hold(2)
    world.foreign = {1}
    world.pass_time(25.0)
    assert (lost.is_lost, kept.is_lost) == (True, False)
    assert world.calls[-1][1] == [2]
    assert [seq for seq, _ in world.lost] == [1]


@pytest.mark.parametrize("failure", [Unreachable("down"), LostReply("gone")])
def test_renewal_is_tried_again_until_the_lease_has_run_out(
    world: World, failure: LogqueueError
) -> None:
    lease = world.hold(1)
    world.failure = failure
    world.pass_time(29.9)
    assert len(world.calls) == 8, "every twelfth of the lease, from its third on"
    assert world.lost == []
    world.pass_time(33.0)
    assert lease.is_lost
    assert world.keeper.next_due() is None


def test_a_short_outage_costs_nothing(world: World) -> None:
    lease = world.hold(1)
    world.failure = Unreachable("down")
    world.pass_time(26.0)
    world.failure = None
    world.pass_time(300.0)
    assert not lease.is_lost


@pytest.mark.parametrize("failure", [TopicNotFound.named("q"), NotAQueue.named("q")])
def test_with_the_queue_go_its_leases(world: World, failure: LogqueueError) -> None:
    lease = world.hold(1)
    world.failure = failure
    world.pass_time(10.0)
    assert lease.is_lost


def test_a_skip_says_nothing_while_a_settle_is_on_its_way(world: World) -> None:
    lease = world.hold(1)
    lease.is_settling = True
    world.foreign = {1}
    world.pass_time(15.0)
    assert not lease.is_lost


def test_a_job_that_is_settled_during_the_call_is_not_lost(world: World) -> None:
    lease = world.hold(1)
    world.foreign = {1}
    world.while_asked = lambda: world.keeper.drop(lease)
    world.pass_time(15.0)
    assert not lease.is_lost


def test_what_is_dropped_is_not_renewed(world: World) -> None:
    world.keeper.drop(world.hold(1))
    world.pass_time(100.0)
    assert world.calls == []


def test_a_job_that_is_delivered_again_has_one_lease(world: World) -> None:
    first = world.hold(1)
    second = world.hold(1)
    assert first.is_lost and not second.is_lost
    assert world.lost == [(1, "the server delivered the job again")]
    world.keeper.drop(first)
    world.pass_time(10.0)
    assert world.calls == [(10.0, [1], 30_000)], "the second is kept"


def test_a_check_asks_at_once(world: World) -> None:
    lease = world.hold(1)
    world.now = 1.0
    world.keeper.check([lease])
    world.pass_time(1.0)
    assert world.calls == [(1.0, [1], 30_000)]


def test_the_deadline_follows_the_renewals(world: World) -> None:
    lease = world.hold(1)
    world.pass_time(10.0)
    assert lease.deadline_ms == 40_000
