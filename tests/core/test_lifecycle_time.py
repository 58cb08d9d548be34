"""Delays, times to live, backoff, limits: what time does to jobs."""

from __future__ import annotations

from typing import Any

import pytest

from logqueue.core import commands as cmd
from logqueue.core.backoff import delay_ms
from logqueue.core.decide.claims import oldest_ready_ms
from logqueue.core.invariants import check
from logqueue.core.reading import read
from logqueue.model.config import BackoffOptions
from logqueue.server.storage import compaction
from tests.core.world import START_MS, World, wish
from tests.portrait import portrait


@pytest.fixture
def world() -> World:
    world = World()
    world.put(durability="fsync", leases_durable=True, lease_ms=1000)
    return world


def why(world: World, jobs_max: int = 1) -> tuple[str | None, int | None]:
    reply: cmd.ClaimResult = world.run(cmd.ClaimJobs("q", (cmd.Claimer("w", jobs_max),)))
    assert not reply.jobs[0]
    return reply.reason, reply.retry_after_ms


# -- delays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["none", "restart", "kill", "tidy"])
@pytest.mark.parametrize("durable", [True, False])
def test_delays_survive_exactly(
    world: World, end: str, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)
    world.patch(leases_durable=durable)
    world.write("q", wish("a", delay_ms=300), wish("b", not_before=START_MS + 200), "c")
    assert world.take(9) == [3] and world.counters() == (0, 1, 0)
    assert why(world) == ("delayed", 200)
    world.wait(100)
    if end == "restart":
        world.restart()
    elif end == "kill":
        world.step()
        world.kill()
    elif end == "tidy":
        world.put("noise", durability="fsync")
        for _ in range(40):
            world.write("noise", "x" * 200)
            world.delete("noise", before=10**9)
        world.step()
        world.tidy()
        world.kill()
    world.ack(3)
    world.wait(99)
    assert [s for s in world.take(9) if s != 3] == []
    world.wait(1)
    assert world.take(9) == [2]
    world.wait(99)
    assert world.take(9) == []
    world.wait(1)
    assert world.take(9) == [1]
    check(world.state)


def test_due_jobs_come_in_the_order_of_seqs(world: World) -> None:
    world.write("q", "a", wish("b", delay_ms=10), "c", wish("d", delay_ms=20), "e")
    assert world.take() == [1]
    world.wait(20)
    assert world.take(2) == [2, 3] and world.take(9) == [4, 5]


def test_a_long_run_of_delayed_jobs_is_passed_over(world: World) -> None:
    world.write("q", "a")
    for _ in range(50):
        world.write("q", wish("later", delay_ms=1000))
    world.write("q", "z")
    queue = world.queue("q").queue
    assert queue.timed_runs.behind(2) == 52
    assert world.take(9) == [1, 52] and not queue.jobs.keys() & range(2, 52)
    assert world.counters() == (0, 2, 0) and len(queue.delayed) == 50
    world.wait(1000)
    assert world.take(100) == [*range(2, 52)]


def test_delayed_jobs_can_be_removed(world: World) -> None:
    world.write("q", *[wish(i, delay_ms=100, tag="t") for i in range(4)])
    world.cancel(2)
    world.wait(100)
    world.topic("q")
    world.cancel(3)
    world.delete(match="t")
    check(world.state)
    assert world.counters() == (0, 0, 0) and world.finished() == {"cancelled": 4}


# -- time to live ----------------------------------------------------------------------------------


def test_the_shorter_time_to_live_wins(world: World) -> None:
    world.patch(ttl_ms=100)
    world.write("q", wish("short", ttl_ms=50), wish("long", ttl_ms=500), "plain")
    world.wait(50)
    assert len(world.states()) == 3
    world.wait(1)
    assert world.states() == {2: "ready", 3: "ready"}
    world.wait(50)
    assert world.states() == {} and world.finished() == {"expired": 3}
    check(world.state)


def test_a_log_loses_records_silently_and_its_front_with_notice(world: World) -> None:
    world.put("log", type="log", durability="fsync")
    world.write("log", "a", wish("b", ttl_ms=50), "c")
    world.wait(51)
    topic = world.topic("log")
    page = read(topic, 0, world.now, records_max=9, bytes_max=10**6)
    assert [batch.seq_at(i) for batch, a, b in page.runs for i in range(a, b)] == [
        1,
        3,
    ] and page.tombstone is None
    world.write("log", wish("d", ttl_ms=10))
    world.delete("log", before=4)
    world.wait(11)
    page = read(world.topic("log"), 0, world.now, records_max=9, bytes_max=10**6)
    assert not page.runs and page.tombstone is not None
    assert (page.tombstone.gap_to, page.tombstone.reason) == (4, "ttl")
    world.step()
    world.kill()
    assert world.seqs("log") == [] and world.topic("log").head == 4


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("leased", [True, False])
def test_expired_jobs_become_dead_letters(world: World, own: bool, leased: bool) -> None:
    world.patch(dead_letter="letters", on_expire="dead_letter", ttl_ms=0 if own else 50)
    world.write("q", wish("x", ttl_ms=50) if own else "x", wish("y", ttl_ms=90))
    if leased:
        world.take()
    world.wait(51)
    assert world.states() == {2: "ready"} if own else world.states() == {}
    world.step()
    world.kill()
    (meta, *_) = world.meta("letters")
    assert meta["$dead_letter_reason"] == "expired"
    assert meta["$dead_letter_deliveries"] == str(int(leased))
    if leased:
        assert world.ack(1) == (0, [1]), "a dead letter is in one place"


def test_evicted_jobs_are_archived(world: World) -> None:
    world.patch(archive="done", cap_records=2)
    world.write("q", 1, 2)
    world.write("q", 3, 4, 5)
    assert world.data() == {4: b"4", 5: b"5"}
    assert [m["$outcome"] for m in world.meta("done")] == ["dropped"] * 3
    assert [*world.data("done").values()] == [b"1", b"2", b"3"]
    world.patch(cap_records=1)
    assert [*world.data("done").values()] == [b"1", b"2", b"3", b"4"]
    assert world.finished() == {"dropped": 4}


# -- backoff ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "delays"),
    [
        ({"kind": "constant", "base_ms": 70}, [70, 70, 70]),
        ({"kind": "linear", "base_ms": 10, "step_ms": 5}, [10, 15, 20]),
        ({"kind": "exponential", "base_ms": 10, "factor": 3.0, "max_ms": 50}, [10, 30, 50]),
        ({"kind": "exponential", "base_ms": 10, "factor": 1000.0}, [10, 10_000, 300_000]),
    ],
)
def test_backoff_grows_with_deliveries(config: dict[str, Any], delays: list[int]) -> None:
    backoff = BackoffOptions(**config)
    assert [delay_ms(backoff, n, 1, 1) for n in (1, 2, 3)] == delays
    assert delay_ms(backoff, 10**6, 1, 1) <= backoff.max_ms


def test_jitter_only_shortens_and_is_drawn_from_the_job() -> None:
    backoff = BackoffOptions(kind="constant", base_ms=1000, jitter=0.5)
    drawn = [delay_ms(backoff, 1, seq, 7) for seq in range(200)]
    assert all(500 <= delay <= 1000 for delay in drawn) and len(set(drawn)) > 150
    assert drawn == [delay_ms(backoff, 1, seq, 7) for seq in range(200)]


def test_nack_and_expiry_back_off(world: World) -> None:
    world.patch(retry_backoff={"kind": "linear", "base_ms": 100, "step_ms": 50})
    world.write("q", "x")
    world.take()
    world.nack(1, delay_ms=None, error="why")
    assert why(world) == ("delayed", 100)
    world.wait(100)
    assert world.take() == [1]
    world.wait(1001)
    assert why(world) == ("delayed", 149), "counted from the deadline"
    world.step()
    world.kill()
    world.wait(149)
    (found,) = world.claim()
    assert (found.deliveries, found.error) == (3, "why")


@pytest.mark.parametrize("way", ["explicit", "uncounted", "disconnect"])
def test_no_backoff_without_a_failure(world: World, way: str) -> None:
    world.patch(retry_backoff={"kind": "constant"})
    world.write("q", "x")
    world.take(stream=3)
    if way == "disconnect":
        world.release(3)
    else:
        world.nack(1, delay_ms=0 if way == "explicit" else None, count=way == "explicit")
    (found,) = world.claim()
    assert found.deliveries == (1 if way == "uncounted" else 2)


def test_a_late_look_finds_what_an_early_one_does(world: World) -> None:
    world.patch(retry_backoff={"kind": "constant", "base_ms": 300, "jitter": 0.9})
    world.fill(20)
    world.take(20)
    world.step()
    other = World(world.fs.kill_clone(), clock=world.clock)
    for _ in range(15):
        world.wait(100)
        world.topic("q")
    other.topic("q")
    assert portrait(other.state) == portrait(world.state)


# -- limits ----------------------------------------------------------------------------------------


def test_paused_queues_hand_out_nothing(world: World) -> None:
    world.pause()
    assert why(world) == ("paused", None)
    world.fill(1)
    assert why(world) == ("paused", None)
    world.pause(False)
    assert world.take() == [1]


def test_the_claim_rate_is_a_token_bucket(world: World) -> None:
    world.patch(claim_rate={"per_s": 10, "burst": 3})
    world.fill(20)
    assert len(world.take(9)) == 3
    assert why(world) == ("rate_limited", 100)
    world.wait(99)
    assert why(world) == ("rate_limited", 1)
    world.wait(1)
    assert len(world.take(9)) == 1
    world.wait(10_000)
    assert len(world.take(9)) == 3


@pytest.mark.parametrize("back_ms", [1, 150, 300, 301, 10**6])
def test_a_clock_that_is_set_back_does_not_block_a_claim_rate(world: World, back_ms: int) -> None:
    """Nor does it let more go than a burst; a restart tells the same."""
    world.patch(claim_rate={"per_s": 10, "burst": 3}, leases_durable=True)
    world.fill(30)
    assert len(world.take(9)) == 3
    world.wait(-back_ms)
    world.step()
    world.kill()
    if back_ms > 300:
        # Longer than a burst takes to refill.
        assert len(world.take(9)) == 3
        assert why(world) == ("rate_limited", 100)
    else:
        assert why(world) == ("rate_limited", 100 + back_ms)
        world.patch(claim_rate={"per_s": 10, "burst": 3}, lease_ms=5000)
        assert why(world) == ("rate_limited", 100)
    world.step()
    world.kill()
    assert why(world) == ("rate_limited", 100)
    world.wait(100)
    assert len(world.take(9)) == 1


def test_another_claim_rate_counts_what_was_handed_out_by_the_jobs(world: World) -> None:
    world.patch(claim_rate={"per_s": 0.01, "burst": 3})
    world.fill(20)
    assert len(world.take(9)) == 3
    assert why(world) == ("rate_limited", 100_000)
    world.patch(claim_rate={"per_s": 10, "burst": 3})
    assert why(world) == ("rate_limited", 100)
    world.patch(claim_rate=None)
    world.patch(claim_rate={"per_s": 10, "burst": 3})
    assert len(world.take(9)) == 3


def test_max_in_flight(world: World) -> None:
    world.patch(max_in_flight=2)
    world.fill(5)
    assert world.share(2, 2) == [[1], [2]]
    assert why(world) == ("max_in_flight", 1001)
    world.ack(1, node="w0")
    assert world.take(5) == [3]


def test_an_empty_claim_says_why(world: World) -> None:
    assert why(world) == ("empty", None)
    world.fill(1)
    world.take()
    assert why(world) == ("in_flight", 1001)
    world.write("q", wish(1, delay_ms=400))
    assert why(world) == ("delayed", 400)
    world.purge("delayed", "in_flight")
    assert why(world) == ("empty", None)


def test_the_oldest_claimable_job(world: World) -> None:
    def age() -> int:
        return oldest_ready_ms(world.queue("q"), world.now)

    assert age() == 0
    world.write("q", wish("later", delay_ms=500))
    world.wait(100)
    assert age() == 0
    world.write("q", "now")
    world.wait(300)
    assert age() == 300
    world.take()
    assert age() == 0
    world.wait(150)
    assert age() == 50


@pytest.mark.parametrize("end", ["none", "restart", "kill"])
@pytest.mark.parametrize("ttl_ms", [0, 5000])
def test_jobs_that_were_too_old_and_had_nowhere_to_go_can_be_young_again(
    world: World, ttl_ms: int, end: str
) -> None:
    """A claim passes them over; a longer TTL must not leave them ready for ever."""
    world.put("full", type="log", durability="fsync", cap_records=1, discard="reject")
    world.write("full", "x")
    world.patch(dead_letter="full", on_expire="dead_letter", ttl_ms=100)
    world.write("q", "a", "b", wish("c", delay_ms=50), "d")
    assert world.take(1) == [1]
    world.wait(101)
    assert world.take(9) == [], "all are too old to be handed out"
    world.write("q", "e")
    assert world.take(9) == [5]
    check(world.state)
    if end != "none":
        world.step()
        getattr(world, end)()
    world.patch(ttl_ms=ttl_ms)
    check(world.state)
    world.step()
    jobs = portrait(world.state)["q"]["queue"]["jobs"]
    world.kill()
    assert portrait(world.state)["q"]["queue"]["jobs"] == jobs
    assert [(j.seq, j.deliveries) for j in world.claim(9) if j.seq not in (1, 5)] == [
        (2, 1), (3, 1), (4, 1)
    ]  # fmt: skip
