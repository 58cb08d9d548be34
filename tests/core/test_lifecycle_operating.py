"""Redrive, listings, purges in portions, and configs that change in part."""

from __future__ import annotations

from typing import Any

import pytest

from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.core.job_filter import JobFilter, JobFilterRun
from logqueue.core.job_views import JobListing, describe_job, list_jobs
from logqueue.errors import InvalidRequest, TopicExistsIncompatible, TopicNotFound
from logqueue.events.block import write_string
from logqueue.model import limits
from logqueue.model.config import TopicOptions
from logqueue.model.tag_predicate import Predicate
from tests.core.world import World, job, wish


@pytest.fixture
def world() -> World:
    world = World()
    world.put("letters", type="log", durability="fsync")
    world.put(durability="fsync", leases_durable=True, lease_ms=1000, dead_letter="letters")
    return world


def die(world: World, *records: object, error: str | None = None, topic: str = "q") -> None:
    """Write jobs and give them up."""
    seqs = world.write(topic, *records)
    world.take(len(records), topic=topic)
    world.reject(*range(seqs.first_seq, seqs.last_seq + 1), error=error, topic=topic)


# -- redrive ---------------------------------------------------------------------------------------


def test_a_dead_letter_comes_back_as_it_was(world: World) -> None:
    given = wish("x", key="k", max_deliveries=4, tag="t", node="n", meta={"a": 1})
    die(world, given, job("y", meta=[1, 2]), "z", error="bad")
    assert world.meta("letters")[0]["$dead_letter_key"] == "k"
    reply = world.redrive()
    assert reply == cmd.RedriveResult(3, 0, 0, ["q"])
    assert world.seqs("letters") == [] and world.counters() == (3, 0, 3)
    first, second, third = world.claim(3)
    assert (first.seq, first.deliveries, first.error) == (4, 1, None)
    assert (first.data, first.tag, first.meta, first.key) == (b'"x"', b'"t"', b'{"a":1}', b'"k"')
    assert (second.meta, third.meta) == (b"[1,2]", b"")
    assert world.topic("q").deliveries_max(4) == 4
    assert "cancelled" not in world.finished()
    check(world.state)


def test_redrive_moves_once_through_a_crash(world: World) -> None:
    die(world, *range(10))
    outcome = world.execute(cmd.Redrive("letters", limit=6))
    world.kill()
    assert world.seqs("letters") == [*range(1, 11)] and world.seqs() == [], "nothing was promised"
    outcome = world.execute(cmd.Redrive("letters", limit=6))
    world.hold(outcome)
    world.kill()
    assert world.seqs("letters") == [7, 8, 9, 10] and len(world.seqs()) == 6
    world.redrive()
    assert sorted(world.data().values()) == sorted(str(i).encode() for i in range(10))


@pytest.mark.parametrize(
    ("options", "moved", "remaining"),
    [
        ({"limit": 2}, [1, 2], 4),
        ({"seqs": [5, 3, 99, 3]}, [3, 5], 0),
        ({"match": Predicate("a", False)}, [1, 4], 0),
        ({"match": Predicate("a", True)}, [1, 2, 4], 0),
        ({"match": Predicate("a", False), "limit": 1}, [1], 1),
        ({"before_seq": 4}, [1, 2, 3], 0),
        ({"reason": "rejected", "before_seq": 3}, [1, 2], 0),
        ({"reason": "expired"}, [6], 0),
        ({"reason": "max_deliveries"}, [], 0),
        ({"seqs": [1, 2], "match": Predicate("ab", False)}, [2], 0),
    ],
)
def test_redrive_filters(
    world: World, options: dict[str, Any], moved: list[int], remaining: int
) -> None:
    tags = ["a", "ab", None, "a", "c"]
    die(world, *[job(i, tag=tag) for i, tag in enumerate(tags, 1)])
    world.patch(on_expire="dead_letter")
    world.write("q", wish(6, ttl_ms=1))
    world.wait(2)
    assert world.seqs("q") == []
    dry = world.redrive(**options, dry_run=True)
    assert (dry.redriven, dry.remaining) == (len(moved), remaining + len(moved))
    assert len(world.seqs("letters")) == 6
    reply = world.redrive(**options)
    assert (reply.redriven, reply.remaining) == (len(moved), remaining)
    assert sorted(int(data) for data in world.data().values()) == moved


def test_what_can_not_go_back_is_skipped(world: World) -> None:
    die(world, 1, 2, 3)
    world.write("letters", "unclaimed")
    world.patch(cap_records=2, discard="reject")
    reply = world.redrive()
    assert (reply.redriven, reply.skipped, reply.remaining) == (2, 2, 2)
    world.drop()
    assert world.redrive() == cmd.RedriveResult(0, 2, 2, [])
    world.put("other", type="log")
    assert world.redrive(to="other").redriven == 2
    with pytest.raises(TopicNotFound):
        world.redrive(to="absent")
    with pytest.raises(InvalidRequest):
        world.redrive(to="letters")


def test_dead_letters_in_flight_are_left_alone(world: World) -> None:
    world.put("letters2", durability="fsync")
    world.patch(dead_letter="letters2")
    die(world, 1, 2)
    assert world.take(topic="letters2") == [1]
    assert world.redrive("letters2") == cmd.RedriveResult(1, 1, 1, ["q"])
    assert world.ack(1, topic="letters2") == (1, [])
    assert world.finished("letters2") == {"acked": 1}
    check(world.state)


def test_a_key_that_waits_again_is_not_doubled(world: World) -> None:
    die(world, wish("old", key="k"), wish("one", key="l"))
    die(world, wish("two", key="l"))
    world.write("q", wish("new", key="k"))
    assert world.redrive().redriven == 3
    check(world.state)
    assert len(world.claim(9)) == 4 and not world.finished()


# -- listings --------------------------------------------------------------------------------------


def pages(world: World, limit: int, **filters: Any) -> list[JobListing]:
    found = []
    after: int | None = 0
    while after is not None:
        topic = world.queue("q")
        search = JobFilterRun(topic, JobFilter(**filters), world.now)
        page = list_jobs(topic, search, after=after, limit=limit)
        found.append(page)
        after = page.next_after
    return found


def test_jobs_are_listed_with_all_there_is_to_say(world: World) -> None:
    world.put(durability="fsync", ttl_ms=9000, on_exhausted="hold", lease_ms=1000)
    world.write("q", "held", job("leased", tag="t"), wish("late", delay_ms=70, ttl_ms=500))
    world.write("q", wish("keyed", key="k"), "nacked")
    world.take(5)
    world.reject(1, error="bad")
    world.nack(5, delay_ms=30, error="later")
    world.nack(4)
    world.wait(10)
    world.write("q", wish("newer", key="k"))
    (page,) = pages(world, 10)
    held, leased, late, keyed, nacked = page.jobs
    now = world.now
    assert (held.state, held.error, held.deliveries) == ("held", "bad", 1)
    assert (leased.state, leased.node, leased.deadline) == ("in_flight", "w", now + 990)
    assert leased.tag == b'"t"' and leased.expires_at == now - 10 + 9000
    assert (late.state, late.not_before, late.expires_at) == ("delayed", now + 60, now + 490)
    assert (keyed.state, keyed.key, keyed.updated_at, keyed.data) == (
        "ready",
        b'"k"',
        now,
        b'"newer"',
    )
    assert (nacked.state, nacked.not_before, nacked.error) == ("delayed", now + 20, "later")
    assert describe_job(world.queue("q"), 2) == leased
    assert describe_job(world.queue("q"), 9) is None


@pytest.mark.parametrize(
    ("filters", "seqs"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"states": frozenset(["ready"])}, [6]),
        ({"states": frozenset(["in_flight"])}, [1, 2]),
        ({"states": frozenset(["held"])}, [3]),
        ({"states": frozenset(["held", "in_flight"])}, [1, 2, 3]),
        ({"states": frozenset(["delayed", "held"])}, [3, 4, 5]),
        ({"match": Predicate("a", True)}, [2, 5]),
        ({"key": write_string("k5")}, [5]),
    ],
)
@pytest.mark.parametrize("limit", [1, 2, 10])
def test_listings_are_filtered_and_paged(
    world: World, filters: dict[str, Any], seqs: list[int], limit: int
) -> None:
    world.patch(dead_letter=None, on_exhausted="hold")
    world.write("q", 1, job(2, tag="a"), 3)
    world.take(3)
    world.reject(3)
    world.write("q", wish(4, delay_ms=9), wish(5, delay_ms=9, tag="ab", key="k5"), 6)
    found = pages(world, limit, **filters)
    assert [job.seq for page in found for job in page.jobs] == seqs
    assert all(len(page.jobs) <= limit for page in found)


def test_a_listing_looks_at_so_many_jobs_at_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "JOBS_SCANNED_MAX", 4)
    world.fill(10)
    found = pages(world, 10, match=Predicate("none", False))
    assert [page.scanned for page in found] == [4, 4, 2]


# -- purge -----------------------------------------------------------------------------------------


def test_a_purge_takes_portions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FINISHED_PER_PASS_MAX", 3)
    world.fill(5)
    world.take(2)
    both: frozenset[cmd.JobState] = frozenset(("ready", "in_flight"))
    first: cmd.PurgeResult = world.run(cmd.PurgeJobs("q", range(1, 6), both))
    assert first.counts == {"in_flight": 2, "ready": 1} and [*first.rest] == [4, 5]
    world.fill(2)
    whole: cmd.PurgeResult = world.run(cmd.Purge("q", both))
    assert whole.counts == {"in_flight": 0, "ready": 4}


# -- configs ---------------------------------------------------------------------------------------


def test_patch_changes_only_what_it_names(world: World) -> None:
    before = world.topic("q").config
    after = world.patch(ttl_ms=7)
    assert after.ttl_ms == 7 and world.patch(ttl_ms=None) == before
    assert world.patch(nonsense=1) == before
    world.patch(retry_backoff={"kind": "linear", "base_ms": 5})
    backoff = world.patch(retry_backoff={"step_ms": 3, "base_ms": None}).retry_backoff
    assert backoff is not None
    assert (backoff.kind, backoff.base_ms, backoff.step_ms) == ("linear", 1000, 3)
    assert world.patch(retry_backoff=None).retry_backoff is None
    assert world.patch(durable=False).durability == "disk"
    assert world.patch(durability="memory").durable is False


@pytest.mark.parametrize(
    "changes",
    [
        {"ttl_ms": -1},
        {"ttl_ms": 2**64},
        {"ttl_ms": "1"},
        {"retry_backoff": {"base_ms": 5}},
        {"retry_backoff": {"kind": "square"}},
        {"retry_backoff": {"kind": "linear", "jitter": 1.5}},
        {"retry_backoff": {"kind": "exponential", "factor": 0.5}},
        {"retry_backoff": 5},
        {"claim_rate": {"per_s": 0}},
        {"claim_rate": {"per_s": 5, "burst": 0}},
        {"claim_rate": {}},
        {"on_exhausted": "explode"},
        {"dead_letter": None, "on_exhausted": "dead_letter"},
        {"dead_letter": None, "on_expire": "dead_letter"},
        {"archive": "q"},
        {"archive": "no/name"},
        {"paused": 1},
    ],
)
def test_broken_patches(world: World, changes: dict[str, Any]) -> None:
    before = world.topic("q").config
    with pytest.raises(InvalidRequest):
        world.patch(**changes)
    assert world.topic("q").config == before


def test_a_patch_can_not_turn_a_queue_into_a_log(world: World) -> None:
    with pytest.raises(TopicExistsIncompatible):
        world.patch(type="log")
    with pytest.raises(TopicNotFound):
        world.patch("absent", ttl_ms=1)


def test_configs_have_defaults_that_change_nothing() -> None:
    config = TopicOptions()
    assert config.on_expire == "drop" and not config.paused and config.when_exhausted is None


# -- changes of many -------------------------------------------------------------------------------


def test_jobs_with_another_time_keep_their_leases_where_the_cursor_has_not_come(
    world: World,
) -> None:
    """A claim takes them without moving the cursor behind them."""
    world.write("q", *range(5))
    assert world.change("delay", 2, 3, delay_ms=10) == [2, 3]
    assert world.states() == {1: "ready", 2: "delayed", 3: "delayed", 4: "ready", 5: "ready"}
    world.wait(11)
    assert world.take(3) == [1, 2, 3]
    assert world.queue().queue.cursor == 2
    check(world.state)
    world.step()
    world.restart()
    check(world.state)
    ready = dict.fromkeys((4, 5), "ready")
    assert world.states() == dict.fromkeys((1, 2, 3), "in_flight") | ready
    assert world.nack(3)[0] == 1
    world.step()
    world.restart()
    assert world.states()[3] == "ready" and world.take(9) == [3, 4, 5]
    assert world.ack(1, 2, 3, 4, 5) == (5, [])


def test_a_delayed_job_that_is_held_does_not_come_back_at_its_time(world: World) -> None:
    world.write("q", wish("a", delay_ms=50), wish("b", delay_ms=50))
    world.change("hold", 1)
    world.wait(60)
    check(world.state)
    assert world.take(9) == [2]
    assert world.change("release", 1, 2) == [1]
    assert world.take(9) == [1]


def test_many_changed_jobs_cost_a_claim_no_more_than_it_may_look_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were given another time are passed over, so many in each pass."""
    monkeypatch.setattr(limits, "FRESH_SCANNED_MAX", 1200)
    monkeypatch.setattr(limits, "CHANGED_PER_PASS_MAX", 3000)
    world.fill(3000)
    world.change("delay", *range(1, 2501), delay_ms=50_000)
    while world.states()[1] != "ready" and len(world.take(2)) < 2:
        pass
    assert world.queue().queue.leased == 2
    assert world.queue().queue.cursor == 2503
    check(world.state)
