"""Work streams over a restart of the server: whose leases stay, and whose slots they fill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.memory import Memory, pushed, seqs


@pytest.fixture
def server() -> Iterator[Memory]:
    server = Memory()
    yield server
    server.close()


BOTH_ENDS = pytest.mark.parametrize("kill", [True, False], ids=["kill", "stop"])


@BOTH_ENDS
def test_durable_leases_of_streams_outlive_the_server(server: Memory, kill: bool) -> None:
    """The worker goes on: no delivery is burnt, and no other worker gets the job meanwhile."""
    server.queue(leases_durable=True, lease_ms=30_000)
    server.append(*range(6))
    [one, two] = pushed(server.work("w", 2))
    server.core.restart(kill=kill)
    stream = server.work("w", 2)
    assert pushed(stream) == [], "both slots are taken"
    assert seqs(server.take("other")) == [3]
    assert server.settle("extend", 1, 2, lease_ms=30_000)["skipped"] == []
    assert server.settle("ack", 1, lease_ids=[one["lease_id"]])["acked"] == 1
    assert seqs(pushed(stream)) == [4]
    server.wait(29.0)
    assert server.settle("nack", 2, lease_ids=[two["lease_id"]], count=False)["nacked"] == 1
    assert [(job["$seq"], job["deliveries"]) for job in pushed(stream)] == [(2, 1)]


@BOTH_ENDS
def test_leases_from_before_end_with_the_stream_that_took_them_over(
    server: Memory, kill: bool
) -> None:
    server.queue(leases_durable=True)
    server.append(1, 2)
    server.work("w", 2)
    server.core.restart(kill=kill)
    stream = server.work("w", 2)
    assert server.state()["in_flight"] == 2
    server.core.hang_up(stream)
    assert server.state()["ready"] == 2


@BOTH_ENDS
def test_leases_from_before_are_shared_among_the_streams_of_a_node(
    server: Memory, kill: bool
) -> None:
    server.queue(leases_durable=True)
    server.append(*range(8))
    server.work("w", 2), server.work("w", 2), server.work("x", 1)
    server.core.restart(kill=kill)
    one, two, three = server.work("w", 2), server.work("w", 2), server.work("w", 2)
    assert [pushed(one), pushed(two)] == [[], []]
    assert seqs(pushed(three)) == [6, 7]
    server.core.hang_up(two)
    assert server.state()["ready"] == 3


@BOTH_ENDS
def test_a_lease_from_before_that_runs_out_frees_its_slot(server: Memory, kill: bool) -> None:
    server.queue(leases_durable=True, lease_ms=5000)
    server.append(1, 2)
    server.work("w", 1)
    server.core.restart(kill=kill)
    stream = server.work("w", 1)
    server.wait(4.9)
    assert pushed(stream) == []
    server.wait(0.2)
    assert [(job["$seq"], job["deliveries"]) for job in pushed(stream)] == [(1, 2)]


@BOTH_ENDS
def test_other_leases_end_with_the_server(server: Memory, kill: bool) -> None:
    server.queue()
    server.append(1)
    [job] = pushed(server.work("w"))
    server.core.restart(kill=kill)
    assert server.settle("extend", 1, lease_ms=5000)["skipped"] == [1]
    assert server.settle("ack", 1, lease_ids=[job["lease_id"]])["skipped"] == [1]
    stream = server.work("w")
    assert [(job["$seq"], job["deliveries"]) for job in pushed(stream)] == [(1, 2)]
