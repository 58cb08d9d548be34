"""What one step hands out, lists or moves has a bound, in records and in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.apply.elapse import elapse
from logqueue.core.batch import Batch
from logqueue.core.invariants import check
from logqueue.core.job_views import list_jobs
from logqueue.core.queue_state import QueueState
from logqueue.core.topic import Topic
from logqueue.errors import RecordTooLarge
from logqueue.model import limits
from logqueue.model.tag_predicate import Predicate
from logqueue.server.engine import engine
from logqueue.server.engine.portions import portions
from logqueue.server.storage import compaction
from tests.core.world import World, job, wish

LARGE = "x" * 1000


@pytest.fixture
def world() -> World:
    world = World()
    world.put(durability="ephemeral", lease_ms=1000)
    return world


# -- claims ----------------------------------------------------------------------------------------


def test_a_claim_hands_out_no_more_bytes_than_its_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLAIM_BYTES_MAX", 2100)
    world.write("q", *[LARGE] * 5)
    assert world.take(9) == [1, 2]
    world.nack(1)
    assert world.take(9) == [1, 3], "reclaimed and fresh ones count alike"
    assert world.take(9) == [4, 5]
    assert world.take(9) == []
    world.wait(1001)
    assert world.take(9) == [1, 2], "the cursor has not passed over what was left for its size"
    check(world.state)


def test_one_job_is_always_handed_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLAIM_BYTES_MAX", 10)
    world.write("q", LARGE, "small", LARGE)
    assert [world.take(9) for _ in range(4)] == [[1], [2], [3], []]


def test_small_jobs_in_large_batches_are_weighed_one_by_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLAIM_BYTES_MAX", 2100)
    world.write("q", *[LARGE] * 3, *range(100))
    world.take(3)
    assert len(world.take(3)) == 3 and len(world.take(1000)) == 98


def test_a_pass_over_a_cohort_is_bounded_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLAIMED_PER_PASS_MAX", 4)
    world.fill(10)
    cohort = tuple(cmd.Claimer(f"w{i}", 3) for i in range(3))
    claimed: cmd.ClaimResult = world.run(cmd.ClaimJobs("q", cohort))
    assert [len(jobs) for jobs in claimed.jobs] == [2, 1, 1] and claimed.is_cut
    claimed = world.run(cmd.ClaimJobs("q", (cmd.Claimer("w", 4),)))
    assert len(claimed.jobs[0]) == 4 and not claimed.is_cut
    claimed = world.run(cmd.ClaimJobs("q", (cmd.Claimer("w", 9),)))
    assert len(claimed.jobs[0]) == 2 and not claimed.is_cut
    check(world.state)


# -- listings --------------------------------------------------------------------------------------


def test_a_page_of_jobs_ends_at_its_bytes(world: World) -> None:
    world.write("q", LARGE, LARGE, job("t", tag="a"), LARGE)
    topic = world.queue("q")
    seen = []
    after: int | None = 0
    while after is not None:
        page = list_jobs(topic, after=after, limit=100, bytes_max=2100)
        seen.append([shown.seq for shown in page.jobs])
        after = page.next_after
    assert seen == [[1, 2, 3], [4]]
    assert [len(list_jobs(topic, after=n, limit=9, bytes_max=1).jobs) for n in range(4)] == [1] * 4
    bare = list_jobs(topic, limit=9, bytes_max=1, with_data=False)
    assert [shown.seq for shown in bare.jobs] == [1, 2, 3, 4] and not bare.jobs[0].data


# -- commands in portions --------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCANNED_PER_PASS_MAX", 5)
    monkeypatch.setattr(limits, "FINISHED_PER_PASS_MAX", 4)
    monkeypatch.setattr(limits, "COPIED_PER_PASS_MAX", 3)
    monkeypatch.setattr(limits, "COPIED_BYTES_MAX", 2100)


def changes(world: World, command: cmd.Command[Any]) -> list[list[int]]:
    """The seqs that each decision of a command took out of a topic."""
    taken: list[list[int]] = []

    def note(topic: Topic | None, event: ev.Event, _: Sequence[ev.JobChange]) -> None:
        if isinstance(event, ev.RecordsRemoved | ev.RecordsFinished | ev.JobsAcked):
            taken.append([*event.seqs])

    world.engine.listen(note)
    world.run(command)
    check(world.state)
    return taken


@pytest.mark.usefixtures("small")
def test_a_delete_is_made_in_portions(world: World) -> None:
    world.fill(12)
    assert changes(world, cmd.DeleteRecords("q", 12)) == [
        [1, 2, 3, 4],
        [5],
        [6, 7, 8, 9],
        [10],
        [11],
    ]
    assert world.seqs() == [12]


@pytest.mark.usefixtures("small")
def test_an_archived_delete_is_bounded_in_bytes(world: World) -> None:
    world.patch(archive="done")
    world.write("q", *range(4), *[LARGE] * 4)
    reply = cmd.DeleteRecords("q", match=None)
    assert changes(world, reply) == [[1, 2, 3], [4, 5], [6, 7], [8]]
    assert len(world.seqs("done")) == 8


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("match", ["a*", "ab"])
def test_a_delete_by_tag_finds_all_that_were_there(world: World, match: str) -> None:
    world.write("q", *[job(n, tag="ab" if n % 2 else "c") for n in range(30)])
    world.write("q", *[job(n, tag=f"ab{n}") for n in range(7)])
    taken = changes(world, cmd.DeleteRecords("q", match=Predicate.parse(match)))
    assert max(map(len, taken)) <= 4
    assert len(world.seqs()) == (15 if match == "a*" else 22)


@pytest.mark.usefixtures("small")
def test_a_record_that_got_another_tag_meanwhile_stays(world: World) -> None:
    world.write("q", *[wish(n, key=f"k{n}", tag="a") for n in range(8)])
    steps = portions(world.engine, cmd.DeleteRecords("q", match=Predicate.parse("a")))
    next(steps)
    world.write("q", wish("new", key="k7", tag="b"))
    reply = [*steps]
    assert reply and world.seqs() == [8]
    check(world.state)


@pytest.mark.usefixtures("small")
def test_what_comes_between_two_portions_stays(world: World) -> None:
    world.fill(12)
    steps = portions(world.engine, cmd.DeleteRecords("q", None))
    next(steps)
    world.fill(3)
    assert [*steps] and world.seqs() == [13, 14, 15]
    purging = portions(world.engine, cmd.Purge("q", frozenset(("ready", "in_flight"))))
    world.take(1)
    next(purging)
    world.fill(2)
    for _ in purging:
        pass
    assert world.seqs() == [16, 17]


@pytest.mark.usefixtures("small")
def test_a_topic_that_goes_between_two_portions_ends_them(world: World) -> None:
    world.fill(12)
    for command in (
        cmd.DeleteRecords("q", None),
        cmd.Purge("q", frozenset(("ready",))),
        cmd.Redrive("q", "other"),
    ):
        world.put("other", durability="ephemeral")
        steps = portions(world.engine, command)
        next(steps)
        world.drop()
        world.put(durability="ephemeral")
        world.fill(12)
        with suppress(StopIteration):
            while True:
                next(steps)
        assert len(world.seqs()) == 12


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["ack", "reject"])
def test_settled_jobs_with_copies_go_in_portions(world: World, kind: str) -> None:
    world.patch(archive="done", dead_letter="dead")
    world.write("q", *range(4), *[LARGE] * 4)
    world.take(8)
    seqs = (1, 2, 3, 4, 99, 5, 6, 7, 8, 8)
    kinds: dict[str, cmd.Command[Any]] = {
        "ack": cmd.AckJobs("q", "w", seqs),
        "reject": cmd.RejectJobs("q", "w", seqs),
    }
    outcome: cmd.SettleResult = world.run(kinds[kind])
    assert (outcome.settled, outcome.skipped) == (8, [99, 8])
    assert len(world.seqs("done" if kind == "ack" else "dead")) == 8
    assert world.run(kinds[kind]).settled == 0


@pytest.mark.usefixtures("small")
def test_a_portion_that_is_lost_is_found_by_the_next_call(world: World) -> None:
    world.put("dead", durability="fsync", type="log")
    world.put("kept", durability="fsync", dead_letter="dead", leases_durable=True)
    world.write("kept", *range(8))
    world.take(8, topic="kept")
    world.reject(*range(1, 9), topic="kept")
    steps = portions(world.engine, cmd.Redrive("dead"))
    moved = 0
    while not moved:
        outcome = next(steps)
        if outcome is not None:
            moved += 1
            world.hold(outcome)
    world.kill()
    assert len(world.seqs("dead")) == 5 and len(world.seqs("kept")) == 3
    assert world.redrive("dead").redriven == 5
    assert sorted(world.values("kept")) == [*range(8)]


def test_a_redrive_by_reason_counts_all_and_moves_as_many_as_asked(world: World) -> None:
    world.patch(dead_letter="dead")
    world.fill(30)
    world.take(30)
    world.reject(*range(1, 31))
    assert world.redrive("dead", reason="rejected", limit=4) == cmd.RedriveResult(4, 0, 26, ["q"])
    assert world.redrive("dead", reason="expired") == cmd.RedriveResult(0, 0, 0, [])
    assert world.redrive("dead", dry_run=True) == cmd.RedriveResult(26, 0, 26, ["q"])


@pytest.mark.usefixtures("small")
def test_exhausted_jobs_are_diverted_a_few_bytes_at_a_time(world: World) -> None:
    world.patch(dead_letter="dead", max_deliveries=1)
    world.write("q", *[LARGE] * 5)
    world.take(5)
    world.nack(*range(1, 6))
    assert [(world.take(9), len(world.seqs("dead"))) for _ in range(3)] == [
        ([], 2),
        ([], 4),
        ([], 5),
    ]


# -- time ------------------------------------------------------------------------------------------


def settle(world: World) -> int:
    """Let time do all it has to do; how many steps that took."""
    steps = 0
    while world.engine.lagging:
        world.engine.elapse_more()
        check(world.state)
        steps += 1
    return steps


def test_leases_run_out_a_portion_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueState.elapse, "__defaults__", (None, 4))
    monkeypatch.setattr(elapse, "__defaults__", (4,))
    world.put("kept", durability="fsync", leases_durable=True, lease_ms=1000)
    world.patch("kept", retry_backoff={"kind": "constant", "base_ms": 500})
    world.fill(12, "kept")
    for _ in range(6):
        world.take(2, topic="kept")
    world.wait(1001)
    assert world.counters("kept") == (0, 8, 0), "two grants of two"
    assert world.ack(12, topic="kept") == (0, [12]), "it has run out, noticed or not"
    assert world.extend(11, 12, lease_ms=9, topic="kept")[:2] == ([], [11, 12])
    world.patch("kept", retry_backoff={"kind": "constant", "base_ms": 90_000})
    assert settle(world) > 0
    assert world.counters("kept") == (0, 0, 0)
    world.wait(500)
    assert world.topic("kept") and settle(world) > 0
    assert world.counters("kept") == (12, 0, 0), "by the rule that was in force when they ran out"
    world.restart()
    assert world.counters("kept") == (12, 0, 0)


def test_delays_end_a_portion_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elapse, "__defaults__", (4,))
    world.write("q", *[wish(n, delay_ms=10) for n in range(10)])
    world.wait(10)
    assert world.counters()[0] == 4
    assert settle(world) == 2 and world.counters()[0] == 10


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("archive", [None, "done"])
@pytest.mark.parametrize("own", [0, 100])
def test_records_expire_a_portion_at_a_time(world: World, archive: str | None, own: int) -> None:
    world.patch(archive=archive, ttl_ms=None if own else 100)
    world.write("q", *[wish(n, ttl_ms=own) for n in range(20)])
    world.take(9)
    world.wait(101)
    assert world.topic("q").live >= 16
    assert world.take(9) == []
    assert settle(world) > 0
    assert world.seqs() == [] and world.finished() == {"expired": 20}
    assert archive is None or len(world.seqs(archive)) == 20


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("archive", [None, "done"])
def test_a_tightened_cap_takes_a_portion_at_a_time(world: World, archive: str | None) -> None:
    world.patch(archive=archive)
    world.fill(30)
    world.take(20)
    world.patch(cap_records=5)
    assert world.topic("q").live > 15
    world.fill(2)
    settle(world)
    assert world.seqs() == [28, 29, 30, 31, 32] and world.finished() == {"dropped": 27}
    assert archive is None or len(world.seqs(archive)) == 27


@pytest.mark.usefixtures("small")
def test_a_write_over_the_cap_evicts_the_rest_behind_it(world: World) -> None:
    world.patch(archive="done", cap_records=10)
    world.fill(10)
    world.fill(9)
    assert settle(world) and world.seqs() == [*range(10, 20)]
    assert len(world.seqs("done")) == 9
    world.write("q", *range(25))
    settle(world)
    assert world.seqs() == [*range(35, 45)] and len(world.seqs("done")) == 34


def test_an_archive_without_room_keeps_what_is_over_the_cap(world: World) -> None:
    world.put("done", type="log", durability="ephemeral", cap_records=5, discard="reject")
    world.patch(archive="done")
    world.fill(8)
    with pytest.raises(RecordTooLarge):
        world.patch(cap_records=1)
    world.patch(cap_records=3)
    assert settle(world) == 0 and world.seqs() == [6, 7, 8]


def test_the_grants_of_a_queue_stand_in_the_order_of_their_deadlines(world: World) -> None:
    world.fill(400)
    for n in range(200):
        world.take(1, lease_ms=100 + 37 * n % 5000)
        check(world.state)
    world.ack(*range(1, 201, 3))
    world.extend(*range(2, 150, 3), lease_ms=200)
    check(world.state)
    while world.counters()[1]:
        world.wait(150)
        check(world.state)


# -- keyed writes ----------------------------------------------------------------------------------


def test_a_replaced_batch_stays_one_batch(world: World) -> None:
    world.put("kept", durability="fsync", leases_durable=True)
    world.write("kept", *[wish(n, key=f"k{n}", tag="a") for n in range(50)])
    replaced = world.write("kept", *[wish(-n, key=f"k{n}", tag=f"t{n % 3}") for n in range(50)])
    assert replaced.results is not None and len(world.topic("kept").batches) == 1
    world.write("kept", *[wish("even", key=f"k{n}") for n in range(0, 50, 2)])
    check(world.state)
    values = world.values("kept")
    world.tidy()
    world.restart()
    assert world.values("kept") == values == [-n if n % 2 else "even" for n in range(50)]


def test_a_replacement_costs_by_what_is_replaced(world: World) -> None:
    """The parts that a batch is cut into are cut once, however many of its records are replaced."""
    world.write("q", *[wish(n, key=f"k{n}") for n in range(400)])
    cuts: list[int] = []
    around = Batch.around

    def counted(self: Batch, seqs: Sequence[int]) -> list[Batch]:
        cuts.append(len(seqs))
        return around(self, seqs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batch, "around", counted)
        world.write("q", *[wish(-n, key=f"k{n}") for n in range(0, 400, 2)])
        world.engine.topic_now("q")
    assert sum(cuts) == 200
    check(world.state)


# -- routers ---------------------------------------------------------------------------------------


def test_routers_copy_a_little_in_each_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FORWARDED_PER_PASS_MAX", 10)
    monkeypatch.setattr(engine, "FORWARDED_PER_TURN_MAX", 20)
    monkeypatch.setattr(engine, "CATCH_UP_RECORDS_MAX", 30)
    world.put("source", type="log", durability="ephemeral")
    for n in range(6):
        world.put_router(f"r{n}", "source", f"d{n}")
    world.write("source", *range(50))
    world.engine.forward()
    copied = [world.state.topic(f"d{n}").live for n in range(6)]
    assert sum(copied) == 20
    assert world.engine.is_far_behind("d5") and not world.engine.is_far_behind("source")
    while world.engine.is_far_behind("d5"):
        world.engine.catch_up("d5")
    assert 20 <= world.state.topic("d5").live < 50
    assert world.seqs("d5") == [*range(1, 51)], "one look does the rest"
    world.forward()
    assert [world.state.topic(f"d{n}").live for n in range(6)] == [50] * 6


# -- garbage ---------------------------------------------------------------------------------------


def test_what_a_topic_held_is_freed_bit_by_bit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "FREED_PER_STEP", 10)
    world.write("q", *[wish(n, key=f"k{n}", tag=f"t{n}", ttl_ms=10**6) for n in range(40)])
    world.write("q", *[wish(n, delay_ms=5000) for n in range(40)])
    world.take(20)
    for n in range(5):
        world.write("q", LARGE * 1000, n)
    world.drop()
    steps = sum(1 for _ in compaction.free(world.state))
    assert steps > 20 and not world.state.discarded


def test_a_pass_looks_at_so_many_jobs_that_are_to_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They cannot end while their archive is full. Claims go on behind them, a pass after the
    other, and get what is fresh."""
    monkeypatch.setattr(limits, "FRESH_SCANNED_MAX", 1100)
    world.put("full", type="log", durability="ephemeral", cap_records=1, discard="reject")
    world.write("full", 1)
    world.put("q", archive="full")
    world.write("q", *[wish(k, ttl_ms=1000) for k in range(4000)])
    world.wait(2000)
    world.write("q", "fresh")
    looked: list[int] = []
    is_past = Topic.is_past_its_own

    def counted(topic: Topic, seq: int, now: int) -> bool:
        looked[-1] += 1
        return is_past(topic, seq, now)

    monkeypatch.setattr(Topic, "is_past_its_own", counted)
    got: list[int] = []
    while not got:
        looked.append(0)
        claimed = world.engine.execute(cmd.ClaimJobs("q", (cmd.Claimer("w", 1),))).result
        got = [*claimed.jobs[0].seqs]
        assert got or claimed.is_cut
    assert got == [4001] and len(looked) == 4 and max(looked) <= 1100
    looked.append(0)
    claimed = world.engine.execute(cmd.ClaimJobs("q", (cmd.Claimer("w", 1),))).result
    assert not claimed.jobs[0].seqs and not claimed.is_cut and looked[-1] == 0
