"""What single rules of priorities and groups come to: limits, rates, holds, other configs."""

from __future__ import annotations

from typing import Any

import pytest

from logqueue.core import commands as cmd
from logqueue.core.apply import ordering
from logqueue.core.group_orders import FairOrder, GroupOrder
from logqueue.core.invariants import check
from logqueue.events import JobSnapshot
from tests.core.world import World, wish


def filled(*groups: str | None, **config: Any) -> World:
    """A world whose queue has one job of each of some groups."""
    world = World()
    world.put(**{"durability": "fsync", **config})
    if groups:
        world.write("q", *(wish(n, group=group) for n, group in enumerate(groups, 1)))
    return world


def refusal(world: World) -> tuple[str | None, int | None]:
    """Why a claim gets nothing, and for how long."""
    reply: cmd.ClaimResult = world.run(cmd.ClaimJobs("q", (cmd.Claimer("w", 1),)))
    assert not reply.jobs[0].seqs
    return reply.reason, reply.retry_after_ms


def test_ageing_raises_what_waits() -> None:
    """One level per time since the write; never above the highest; the lower seq wins a tie."""
    world = World()
    world.put(priority_ageing_ms=1000)
    world.write("q", wish(1), wish(2, priority=2))
    world.wait(2000)
    world.write("q", wish(3, priority=3), wish(4, priority=4))
    # Two levels more each: 2, 4; and 3, 4 as they are.
    assert world.take(9) == [2, 4, 3, 1]
    world.write("q", wish(5))
    world.wait(10_000)
    world.write("q", wish(6, priority=9))
    assert world.take(9) == [5, 6]


def test_a_rate_of_each_group() -> None:
    """A burst at once, then one by one; the other groups go on, and time frees the next."""
    fair = {"mode": "fair", "rate_per_group": {"per_s": 10, "burst": 2}}
    world = filled("a", "a", "a", "b", None, None, groups=fair)
    assert world.take(9) == [5, 1, 4, 6, 2]
    assert refusal(world) == ("group_busy", 100)
    world.wait(99)
    assert refusal(world) == ("group_busy", 1)
    world.wait(1)
    assert world.take(9) == [3]
    check(world.state)


def test_in_flight_of_each_group() -> None:
    """An ack, a nack or the end of a lease makes room; an extension does not."""
    fair = {"mode": "fair", "max_in_flight_per_group": 1}
    world = filled("a", "a", "a", groups=fair, lease_ms=500)
    assert world.take(9) == [1]
    assert refusal(world) == ("group_busy", 501)
    world.extend(1, lease_ms=1000)
    assert refusal(world) == ("group_busy", 1001)
    world.ack(1)
    assert world.take(9) == [2]
    world.nack(2)
    assert world.take(9) == [2]
    world.wait(501)
    assert world.take(9) == [2]
    assert world.cancel(2, force=True).cancelled
    assert world.take(9) == [3]
    check(world.state)


def test_weights_are_jobs_in_a_turn() -> None:
    """A turn that a claim breaks off is continued by the next."""
    fair = {"mode": "fair", "weights": {"a": 3}}
    world = filled(*"aaaaaabbb", groups=fair)
    assert [world.take(1) for _ in range(9)] == [[n] for n in (1, 2, 3, 7, 4, 5, 6, 8, 9)]


def test_a_noisy_group_delays_others_by_one_turn() -> None:
    """However many jobs it has."""
    world = filled(*["noisy"] * 500, groups={"mode": "fair"})
    world.take(7)
    world.write("q", wish("x", group="quiet"), wish("y", group="quiet"))
    assert world.take(2) == [8, 501]
    assert world.take(2) == [9, 502]


@pytest.mark.parametrize("then", ["hold", "drop", "dead_letter"])
def test_what_frees_a_fifo_group(then: str) -> None:
    """A held job keeps its group back until it is released or cancelled."""
    config = {"on_exhausted": then, "max_deliveries": 1, "dead_letter": "dead"}
    world = filled("a", "a", groups={"mode": "fifo"}, **config)
    assert world.take(9) == [1]
    world.nack(1)
    first = world.take(9)
    if then == "hold":
        assert first == []
        assert refusal(world) == ("group_busy", None)
        assert world.cancel(1).cancelled
    assert first or world.take(9) == [2]
    check(world.state)


def test_a_delayed_first_job_keeps_its_group_back() -> None:
    """In the order of seqs, whatever its priority or time."""
    world = World()
    world.put(groups={"mode": "fifo"})
    world.write("q", wish(1, group="a", delay_ms=100), wish(2, group="a", priority=9), wish(3))
    assert world.take(9) == [3]
    assert refusal(world) == ("group_busy", 100)
    world.wait(100)
    assert world.take(9) == [1]
    world.ack(1)
    assert world.take(9) == [2]


def test_another_mode_for_jobs_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bounded steps; claims get nothing before the last of them."""
    monkeypatch.setattr(ordering, "ORDERED_PER_PASS_MAX", 10)
    world = filled(*["a"] * 30, *["b"] * 30)
    assert world.take(2) == [1, 2]
    world.patch(groups={"mode": "fair"})
    topic = world.state.queue("q")

    def is_building() -> bool:
        order = topic.queue.order
        return order is not None and order.is_building

    steps = 0
    while is_building():
        assert world.engine.is_far_behind("q")
        world.engine.elapse_more()
        steps += 1
    assert 4 <= steps <= 8
    assert isinstance(topic.queue.order, FairOrder)
    check(world.state)
    assert world.take(4) == [3, 31, 4, 32]
    world.patch(groups={"mode": "fifo"})
    while is_building():
        world.engine.elapse_more()
    check(world.state)
    # Four of each group are in flight from before.
    assert world.take(9) == []
    world.ack(1, 2, 3, 4, 31, 32)
    assert world.take(9) == [5, 33]
    world.patch(groups=None)
    while is_building():
        world.engine.elapse_more()
    check(world.state)
    assert world.take(3) == [6, 7, 8]


def test_a_claim_does_not_look_at_groups_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at their jobs."""
    fair = {"mode": "fair", "max_in_flight_per_group": 1}
    world = filled(*(f"g{n}" for n in range(300)), *(f"g{n}" for n in range(300)), groups=fair)
    assert len(world.take(300)) == 300
    order = world.queue().queue.order
    assert isinstance(order, FairOrder)
    assert len(order._ring) == 1 and not order._gone
    assert refusal(world)[0] == "group_busy"
    world.ack(7)
    assert world.take(9) == [307]


def test_all_that_grows_with_groups_is_freed_bit_by_bit() -> None:
    """Also what is kept of groups that wait for their rate."""
    fair = {"mode": "fair", "rate_per_group": {"per_s": 1, "burst": 1}}
    groups = [f"g{n}" for n in range(50)]
    world = filled(*groups, *groups, groups=fair)
    assert len(world.take(100)) == 50
    order = world.queue().queue.order
    assert order is not None
    # In flight and how many, what was spent and when it is refilled (twice), until when each waits
    # (twice), and the jobs of each group.
    assert sum(map(len, order.release())) == 7 * 50


@pytest.mark.parametrize("mode", ["fair", "fifo"])
@pytest.mark.parametrize("is_seen", [True, False])
def test_a_checkpoint_of_leases_in_the_middle_of_a_log(mode: str, is_seen: bool) -> None:
    """A standby applies it to a queue in use; it may be the first to say that a job was claimed."""
    world = filled("a", "a", "b", None, groups={"mode": mode}, lease_ms=500)
    if is_seen:
        world.take(9)
    queue = world.queue().queue
    deadline = world.now + 500
    leased = [JobSnapshot(seq, 1, seq, deadline, 0, 0, "w") for seq in (1, 3)]
    queue.adopt(5, [*leased, JobSnapshot(2, 1, 0, 0, 0, 0, ""), JobSnapshot(4, 1, 0, 0, 0, 0, "")])
    order = queue.order
    assert isinstance(order, GroupOrder)
    assert order.in_flight == {b'"a"': 1, b'"b"': 1}
    world.state.next_lease = 9
    check(world.state)
    assert world.take(9) == ([4, 2] if mode == "fair" else [4])
