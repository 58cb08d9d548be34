"""What the end of a work stream costs a job: a delivery if it was worked on, else nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from logqueue.model import limits
from logqueue.testing.core import Exchange
from tests.server.memory import Memory, pushed


@pytest.fixture
def server() -> Iterator[Memory]:
    server = Memory()
    server.queue(max_deliveries=3, dead_letter="letters", leases_durable=True)
    yield server
    server.close()


def work(
    server: Memory, starts: str = "", node: str = "w"
) -> tuple[Exchange, list[tuple[int, int]]]:
    """A stream that gets a job: deliveries, and how many of them do not count."""
    stream = server.begin("GET", f"topics/q/work?node={node}&max=1{starts}")
    jobs = pushed(stream)
    return stream, [(job["deliveries"], job.get("given_back", 0)) for job in jobs]


def dead(server: Memory) -> int:
    """How many jobs were dead-lettered; somebody wants one, so that it shows."""
    for job in server.take("looking"):
        server.settle("nack", job["$seq"], node="looking", count=False)
    found: int = server.state()["dead_lettered"]
    return found


def test_who_only_reads_spends_no_delivery(server: Memory) -> None:
    """Three times Ctrl-C on curl, and three more."""
    server.append(1)
    for turn in range(6):
        stream, got = work(server)
        assert got == [(turn + 1, turn)]
        server.core.hang_up(stream)
        assert server.state()["ready"] == 1, "claimable at once"
    assert dead(server) == 0
    [job] = server.take()
    assert (job["deliveries"], job["given_back"]) == (7, 6)


@pytest.mark.parametrize("kill", [True, False])
def test_what_was_given_back_stays_so_over_a_restart(server: Memory, kill: bool) -> None:
    server.append(1)
    for _ in range(3):
        server.core.hang_up(work(server)[0])
    for _ in range(2):
        server.core.restart(kill=kill)
        view = server.call("GET", "topics/q/jobs/1")["job"]
        assert (view["deliveries"], view["given_back"]) == (3, 3)
        assert dead(server) == 0


@pytest.mark.parametrize("given", ["&starts=true", "&starts=1"])
def test_a_worker_that_crashes_on_its_first_job_each_time(server: Memory, given: str) -> None:
    """It says that it starts what it gets, as the library does."""
    server.append(1)
    for turn in range(3):
        stream, got = work(server, given)
        assert got == [(turn + 1, 0)]
        server.core.hang_up(stream)
    assert dead(server) == 1


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend"])
@pytest.mark.parametrize("config", [{}, {"dead_letter": "letters"}, {"on_exhausted": "hold"}])
def test_a_worker_that_has_worked_since_it_opened_its_stream(
    server: Memory, config: dict[str, Any], verb: str
) -> None:
    """A job that crashes it has been delivered, though it never said that it works."""
    server.queue(**config)
    server.append("job", "poison")
    stream = server.work("w", 2)
    options: dict[str, Any] = {"lease_ms": 30_000} if verb == "extend" else {}
    server.settle(verb, 1, **options)
    server.core.hang_up(stream)
    [poison] = [job for job in server.take(max=9) if job["$seq"] == 2]
    assert poison["deliveries"] == 2 and "given_back" not in poison


def test_what_others_did_is_not_the_work_of_this_stream(server: Memory) -> None:
    """Nor what its node did before, nor a hand-back that does not count."""
    server.append(1, 2)
    server.take("w")
    server.settle("nack", 1, count=True, delay_ms=10**6)
    stream, got = work(server)
    assert got == [(1, 0)]
    server.append(3)
    server.take("other")
    server.settle("ack", 3, node="other")
    server.core.hang_up(stream)
    assert work(server)[1] == [(2, 1)]


def test_a_job_that_kills_readers_is_given_up_in_the_end(server: Memory) -> None:
    server.append("poison")
    turns = 0
    while dead(server) == 0:
        stream, got = work(server)
        if got:
            turns += 1
        server.core.hang_up(stream)
    assert turns == limits.GIVEN_BACK_MAX + 3


def test_a_job_that_was_never_written_was_not_handed_out(
    server: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream ends while the frame waits for the log."""
    server.queue(durability="fsync", leases_durable=True)
    stream = server.begin("GET", "topics/q/work?node=w&max=1&starts=true")
    server.append(1)
    assert len(pushed(stream)) == 1
    server.settle("ack", 1)
    barrier = server.dispatcher.barrier
    with monkeypatch.context() as patched:
        patched.setattr(barrier, "when", lambda *_: None)
        server.begin("POST", "topics/q", {"records": [{"data": 2}]})
    assert pushed(stream) == [] and server.state()["in_flight"] == 1
    server.core.hang_up(stream)
    [job] = server.take("next")
    assert (job["$seq"], job["deliveries"]) == (2, 1)


def test_release_of_a_held_job_forgets_what_was_given_back(server: Memory) -> None:
    server.queue(on_exhausted="hold")
    server.append(1)
    server.core.hang_up(work(server)[0])
    server.take()
    server.settle("reject", 1)
    server.call("POST", "topics/q/release", {"seqs": [1]})
    [job] = server.take()
    assert job["deliveries"] == 1 and "given_back" not in job
