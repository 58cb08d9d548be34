"""Whatever makes a job claimable, or changes what a waiter is to be told, wakes who waits.

Each change is made under a claim that waits and under a work stream. Time passes only where a row
says so, so nothing here is rescued by a poll.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from logqueue.testing.core import Exchange
from tests.server.memory import Memory, claimed, pushed, seqs


@pytest.fixture
def server() -> Iterator[Memory]:
    server = Memory()
    yield server
    server.close()


class Change(NamedTuple):
    """A situation in which a waiter gets nothing, and what changes it.

    Attributes:
        before: Makes the situation; the queue `q` exists.
        act: Changes it.
        config: Of the queue.
    """

    before: Callable[[Memory], object]
    act: Callable[[Memory], object]
    config: Mapping[str, Any] = MappingProxyType({})


def in_flight(server: Memory) -> list[dict[str, Any]]:
    """A job that somebody else has."""
    server.append(1)
    return server.take("other")


def held(server: Memory) -> None:
    """A held job."""
    in_flight(server)
    server.settle("reject", 1, node="other")


def at_the_cap(server: Memory, **options: Any) -> None:
    """One job in flight, which is all that may be; another one is ready."""
    server.append(1, **options)
    server.take("other")
    server.append(2)


def dead_letter(server: Memory) -> None:
    """A dead letter of this queue."""
    in_flight(server)
    server.queue("letters")
    server.settle("reject", 1, node="other")


def patch(**config: object) -> Callable[[Memory], object]:
    """Change the queue's config."""
    return lambda s: s.call("PATCH", "topics/q", config)


def post(path: str, body: object = None) -> Callable[[Memory], object]:
    """Any call."""
    return lambda s: s.call("POST", path, body)


def routed(server: Memory) -> None:
    """A router into the queue."""
    server.call("PUT", "topics/source", {})
    server.call("PUT", "routers/r", {"source": "source", "dest": "q"})


def staged(server: Memory) -> None:
    """A chunk that is not committed."""
    records = [{"data": 1}]
    body = {"topic": "q", "partition": 0, "attempt": "a", "chunk": 0, "records": records}
    server.call("POST", "producers/p/epochs/1/stage", body)


def commit(server: Memory) -> None:
    """Commit it."""
    parts = [{"topic": "q", "partition": 0, "attempt": "a", "chunks": 1, "rows": 1}]
    server.call("POST", "producers/p/epochs/1/commit", {"parts": parts})


def overdue_with_nowhere_to_go(server: Memory) -> None:
    """A job past its TTL, whose dead-letter topic is full, and that a claim has passed over."""
    server.call("PUT", "topics/letters", {"cap_records": 1, "discard": "reject"})
    server.append("full", topic="letters")
    server.append(1)
    server.wait(2)
    assert server.take("other") == []


def nothing(server: Memory) -> None:
    """An empty queue."""


CAP = {"max_in_flight": 1}
EXPIRING = {"on_expire": "dead_letter", "dead_letter": "letters", "ttl_ms": 1000}
BACKOFF = {"retry_backoff": {"kind": "constant", "base_ms": 3000}, "lease_ms": 5000}

CHANGES = {
    "append": Change(nothing, lambda s: s.append(1)),
    "nack": Change(in_flight, lambda s: s.settle("nack", 1, node="other")),
    "nack with delay": Change(
        in_flight,
        lambda s: (s.settle("nack", 1, node="other", delay_ms=4000), s.wait(4.01)),
    ),
    "lease expiry": Change(in_flight, lambda s: s.wait(5.01), {"lease_ms": 5000}),
    "lease expiry with backoff": Change(in_flight, lambda s: s.wait(8.01), BACKOFF),
    "a shorter lease": Change(
        in_flight, lambda s: (s.settle("extend", 1, node="other", lease_ms=200), s.wait(0.21))
    ),
    "due delay": Change(lambda s: s.append(1, delay_ms=4000), lambda s: s.wait(4.01)),
    "replaced by one without delay": Change(
        lambda s: s.append(1, key="k", delay_ms=10**6), lambda s: s.append(2, key="k")
    ),
    "replaced by one with less delay": Change(
        lambda s: s.append(1, key="k", delay_ms=10**6),
        lambda s: (s.append(2, key="k", delay_ms=300), s.wait(0.31)),
    ),
    "resume": Change(
        lambda s: (s.append(1), s.call("POST", "topics/q/pause")), post("topics/q/resume")
    ),
    "rate refill": Change(
        lambda s: (s.append(1, 2), s.take("other", max=2)),
        lambda s: s.wait(2.01),
        {"claim_rate": {"per_s": 0.5, "burst": 1}},
    ),
    "a higher rate": Change(
        lambda s: (s.append(1, 2), s.take("other", max=2)),
        patch(claim_rate={"per_s": 1000, "burst": 1000}),
        {"claim_rate": {"per_s": 0.001, "burst": 1}},
    ),
    "no rate any longer": Change(
        lambda s: (s.append(1, 2), s.take("other", max=2)),
        patch(claim_rate=None),
        {"claim_rate": {"per_s": 0.001, "burst": 1}},
    ),
    "max_in_flight raised": Change(at_the_cap, patch(max_in_flight=2), CAP),
    "max_in_flight lifted": Change(at_the_cap, patch(max_in_flight=0), CAP),
    "ack at the cap": Change(at_the_cap, lambda s: s.settle("ack", 1, node="other"), CAP),
    "reject at the cap": Change(at_the_cap, lambda s: s.settle("reject", 1, node="other"), CAP),
    "hold at the cap": Change(
        at_the_cap,
        lambda s: s.settle("reject", 1, node="other"),
        {**CAP, "on_exhausted": "hold"},
    ),
    "lease expiry at the cap": Change(
        at_the_cap, lambda s: s.wait(5.01), {**CAP, "lease_ms": 5000}
    ),
    "own TTL at the cap": Change(
        lambda s: at_the_cap(s, ttl_ms=3000), lambda s: s.wait(3.01), CAP
    ),
    "TTL at the cap": Change(
        lambda s: (s.append(1), s.take("other"), s.wait(1), s.append(2)),
        lambda s: s.wait(2.01),
        {**CAP, "ttl_ms": 3000},
    ),
    "TTL at the cap, with a dead-letter topic": Change(
        lambda s: (s.append(1), s.take("other"), s.wait(0.5), s.append(2)),
        lambda s: s.wait(0.51),
        {**CAP, **EXPIRING},
    ),
    "a shorter TTL at the cap": Change(
        lambda s: (s.append(1), s.take("other"), s.wait(1), s.append(2)), patch(ttl_ms=500), CAP
    ),
    "a look that expires at the cap": Change(
        lambda s: at_the_cap(s, ttl_ms=3000), lambda s: (s.wait(3.002), s.state()), CAP
    ),
    "eviction at the cap": Change(at_the_cap, lambda s: s.append(3), {**CAP, "cap_records": 2}),
    "delete at the cap": Change(at_the_cap, post("topics/q/delete", {"before_seq": 2}), CAP),
    "purge at the cap": Change(at_the_cap, post("topics/q/purge", {"states": ["in_flight"]}), CAP),
    "forced cancel at the cap": Change(
        at_the_cap, lambda s: s.call("DELETE", "topics/q/jobs/1?force=true"), CAP
    ),
    "router": Change(routed, lambda s: s.append(1, topic="source")),
    "redrive": Change(dead_letter, post("topics/letters/redrive", {}), {"dead_letter": "letters"}),
    "release": Change(
        held, post("topics/q/release", {"seqs": [1]}), {"on_exhausted": "hold"}
    ),
    "commit of an epoch": Change(staged, commit),
    "a longer TTL": Change(overdue_with_nowhere_to_go, patch(ttl_ms=0), EXPIRING),
    "a dead letter of another queue": Change(
        lambda s: (
            s.queue("first", dead_letter="q"), s.append(1, topic="first"),
            s.take("other", topic="first"),
        ),
        lambda s: s.call("POST", "topics/first/reject", {"node": "other", "seqs": [1]}),
    ),
    "an expired job of another queue": Change(
        lambda s: (
            s.queue("first", dead_letter="q", on_expire="dead_letter", ttl_ms=1000),
            s.append(1, topic="first"),
        ),
        lambda s: (s.wait(1.01), s.state("first")),
    ),
    "what another queue archives": Change(
        lambda s: (
            s.queue("first", archive="q"), s.append(1, topic="first"),
            s.take("other", topic="first"),
        ),
        lambda s: s.call("POST", "topics/first/ack", {"node": "other", "seqs": [1]}),
    ),
    "a job that was delivered too often makes room": Change(
        lambda s: (in_flight(s), s.append(2)),
        lambda s: s.settle("nack", 1, node="other"),
        {**CAP, "max_deliveries": 1, "on_exhausted": "drop"},
    ),
}  # fmt: skip


def wait_by_claim(server: Memory) -> tuple[Exchange, Callable[[], list[int]]]:
    """A claim that waits, and how to see what it got."""
    exchange = server.claim("w", wait_ms=30_000)
    return exchange, lambda: seqs(claimed(exchange)) if exchange.is_over else []


def wait_by_stream(server: Memory) -> tuple[Exchange, Callable[[], list[int]]]:
    """A work stream, and how to see what it got."""
    exchange = server.work("w")
    return exchange, lambda: seqs(pushed(exchange))


WAYS = {"claim": wait_by_claim, "stream": wait_by_stream}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_wakes_who_waits(server: Memory, name: str, way: str) -> None:
    change = CHANGES[name]
    server.queue(**change.config)
    change.before(server)
    _, got = WAYS[way](server)
    assert got() == []
    change.act(server)
    assert len(got()) == 1


@pytest.mark.parametrize("way", WAYS)
def test_the_end_of_a_stream_wakes_who_waits(server: Memory, way: str) -> None:
    server.queue()
    server.append(1)
    other = server.work("other")
    _, got = WAYS[way](server)
    server.core.hang_up(other)
    assert got() == [1]


@pytest.mark.parametrize("way", WAYS)
def test_a_claim_whose_client_has_gone_wakes_who_waits(server: Memory, way: str) -> None:
    server.queue(claim_jitter_ms=100)
    server.append(1)
    other = server.claim("other")
    _, got = WAYS[way](server)
    server.core.hang_up(other)
    server.wait(0.11)
    assert got() == [1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("again", [True, False])
def test_a_queue_that_goes_answers_who_waits(server: Memory, way: str, again: bool) -> None:
    server.queue()
    exchange, _ = WAYS[way](server)
    server.call("DELETE", "topics/q")
    if again:
        server.queue()
        server.append(1)
    assert exchange.is_over
    assert exchange.status == 404 if way == "claim" else b"event: error" in exchange.take()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("config", "act", "limit_s"),
    [
        ({}, lambda s: s.append(1, delay_ms=20_000), 20.0),
        ({"lease_ms": 20_000}, in_flight, 20.0),
        ({"claim_rate": {"per_s": 0.05, "burst": 1}}, lambda s: (s.append(1, 2), s.take("x")), 20),
    ],
    ids=["delay", "lease", "rate"],
)
def test_a_step_of_the_wall_clock_is_noticed(
    server: Memory,
    config: dict[str, Any],
    act: Callable[[Memory], object],
    limit_s: float,
    way: str,
) -> None:
    """The clock jumps ahead: what is due by it comes within a second, not when the loop's clock has
    got there as well. It is set back: what is due comes by it, and the server does not spin."""
    server.dispatcher._clock_check_ms = 1000
    server.queue(**config)
    act(server)
    _, got = WAYS[way](server)
    server.wait(3)
    server.clock_ahead_ms = 18_000
    assert got() == []
    server.wait(1.01)
    assert len(got()) == 1


def test_a_clock_that_is_set_back_delays_and_does_not_spin(server: Memory) -> None:
    server.dispatcher._clock_check_ms = 1000
    server.queue()
    server.append(1, delay_ms=5000)
    stream = server.work()
    server.clock_ahead_ms = -60_000
    turns = server.turns
    server.wait(60)
    assert pushed(stream) == [] and server.turns - turns < 80
    server.wait(6.01)
    assert seqs(pushed(stream)) == [1]
