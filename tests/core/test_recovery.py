"""What a restart brings back, case by case: the corners where two logs and two lives meet."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest
from msgspec import structs

from logqueue import events as ev
from logqueue.core.invariants import check
from logqueue.core.queue_state import QueueState
from logqueue.errors import StorageReadOnly
from logqueue.server.storage import checkpoint, compaction
from tests.clock import ManualClock
from tests.core.world import START_MS, World, wish
from tests.portrait import portrait
from wal.testing.simfs import Op, SimFileSystem


class LosesAll(Random):
    """A power cut that takes everything that was not synced."""

    def choice(self, seq):  # type: ignore[no-untyped-def]
        return 0.0 if 0.0 in seq else super().choice(seq)


@pytest.fixture
def world() -> World:
    return World()


# -- leases ----------------------------------------------------------------------------------------


ENDS = pytest.mark.parametrize("end", ["restart", "kill"])


def outlive(world: World, writes: int) -> None:
    """Have the log take so many records of another topic that are deleted at once."""
    for _ in range(writes):
        world.write("noise", "x" * 200)
        world.delete("noise", before=10**9)
    world.step()


def test_no_lease_id_comes_twice_where_the_next_server_has_another_clock(world: World) -> None:
    """That clock is behind, and the last leases are not in the log that it has."""
    world.put(durability="fsync", leases_durable=True)
    world.fill(3)
    world.claim()
    world.step()
    world.engine.journal.leases.sync()
    world.step()
    lost = {job.seq: job.lease for _ in range(2) for job in world.claim()}
    fs = world.fs.crash_clone(LosesAll())
    successor = World(fs, clock=ManualClock(START_MS - 3_600_000))
    again = {job.seq: job.lease for job in successor.claim(2)}
    assert lost.keys() == again.keys() and not set(lost.values()) & set(again.values())
    for seq, lease in lost.items():
        assert successor.ack(seq, tokens=[lease]) == (0, [seq])


@ENDS
def test_leases_not_durable_end_and_their_deliveries_count(world: World, end: str) -> None:
    world.put(durability="fsync")
    world.fill(3)
    (old,) = world.claim()
    world.step()
    getattr(world, end)()
    assert world.counters() == (3, 0, 0)
    (new,) = world.claim()
    assert (new.seq, new.deliveries) == (1, 2)
    assert new.lease > old.lease
    assert world.ack(1, tokens=[old.lease]) == (0, [1])
    assert world.ack(1, tokens=[new.lease]) == (1, [])


@ENDS
@pytest.mark.parametrize("durable", [True, False])
def test_counts_delays_and_errors_survive_on_every_queue(
    world: World, end: str, durable: bool
) -> None:
    backoff = {"kind": "linear", "base_ms": 4000, "step_ms": 1000}
    world.put(
        durability="fsync", leases_durable=durable, lease_ms=1000, retry_backoff=backoff,
        max_deliveries=2, dead_letter="letters",
    )  # fmt: skip
    world.fill(6)
    world.take(5)
    world.nack(1, delay_ms=5000, error="a")
    world.nack(2, delay_ms=0, error="b")
    world.nack(3, count=False)
    world.extend(4, lease_ms=9000)
    world.wait(1001)
    world.topic("q")
    for _ in range(2):
        world.step()
        getattr(world, end)()
        found = portrait(world.state)["q"]["queue"]
        assert {s: j[:3] for s, j in found["jobs"].items() if s != 4} == {
            1: ("delayed", 1, START_MS + 5000),
            2: ("reclaimed", 1),
            3: ("reclaimed", 0),
            # Its lease ran out, so the delay of the backoff counts from the deadline.
            5: ("delayed", 1, START_MS + 1000 + 4000),
        }
        assert found["jobs"][4][:2] == (("leased", 1) if durable else ("reclaimed", 1))
        assert found["errors"] == {1: "a", 2: "b"}
    assert world.take(9) == ([2, 3, 6] if durable else [2, 3, 4, 6])
    delivered_twice = [2] if durable else [2, 4]
    world.nack(*delivered_twice, delay_ms=0)
    assert world.take(9) == []
    assert world.counters()[2] == len(delivered_twice)


@ENDS
def test_the_leases_log_begins_anew_with_the_counts_of_every_queue(
    world: World, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", -(10**6))
    world.put(durability="fsync")
    world.fill(40)
    world.take(40)
    world.nack(*range(1, 30), delay_ms=5000, error="a")
    before = portrait(world.state)["q"]["queue"]
    world.tidy()
    assert world.engine.journal.leases.segments()[0].id > 1
    getattr(world, end)()
    after = portrait(world.state)["q"]["queue"]
    assert after["errors"] == before["errors"]
    assert {s: j for s, j in after["jobs"].items() if s < 30} == {
        s: j for s, j in before["jobs"].items() if s < 30
    }
    in_flight = {s: j for s, j in after["jobs"].items() if s >= 30}
    assert in_flight == dict.fromkeys(range(30, 41), ("reclaimed", 1))


def test_a_job_in_flight_at_a_restart_has_no_backoff(world: World) -> None:
    world.put(durability="fsync", retry_backoff={"kind": "constant", "base_ms": 60_000})
    world.fill(1)
    world.take()
    world.restart()
    assert [(j.seq, j.deliveries) for j in world.claim()] == [(1, 2)]


@ENDS
def test_a_switch_to_durable_leases_brings_no_lease_of_an_earlier_life_back(
    world: World, end: str
) -> None:
    world.put(durability="fsync", lease_ms=10**7)
    world.fill(3)
    world.take(2)
    world.step()
    getattr(world, end)()
    world.take(1)
    world.patch(leases_durable=True)
    world.step()
    getattr(world, end)()
    jobs = portrait(world.state)["q"]["queue"]["jobs"]
    assert {s: j[:2] for s, j in jobs.items()} == {1: ("leased", 2), 2: ("reclaimed", 1)}
    world.patch(leases_durable=False)
    world.step()
    getattr(world, end)()
    world.patch(leases_durable=True)
    world.step()
    getattr(world, end)()
    assert world.counters() == (3, 0, 0)


def test_ends_that_only_the_leases_log_tells(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs log may begin behind them: acks, holds and their releases."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)
    world.put("noise", durability="fsync")
    world.put(durability="fsync", leases_durable=True, on_exhausted="hold", lease_ms=10**7)
    world.fill(5)
    world.take(5)
    world.ack(1)
    world.reject(2, 3, 4, error="bad")
    world.let_go(2)
    world.cancel(3)
    outlive(world, 40)
    world.tidy()
    known: list[int] = []
    finish = QueueState.restore

    def restore(queue: QueueState, cursor: int, kept: Any) -> None:
        known.extend(queue.jobs)
        finish(queue, cursor, kept)

    monkeypatch.setattr(QueueState, "restore", restore)
    before = portrait(world.state)
    world.kill()
    assert portrait(world.state) == before
    assert world.states() == {2: "ready", 4: "held", 5: "in_flight"}
    assert 1 not in known, "a job that was acked long ago takes memory until the end"
    assert [(j.seq, j.deliveries, j.error) for j in world.claim()] == [(2, 1, None)]


BACKOFF = {"kind": "exponential", "base_ms": 60_000, "jitter": 0.5}


def drop_history(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the jobs log begin behind all that has happened so far; the leases log does not."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)
    first = world.engine.journal.jobs.segments()[-1].id
    world.put("noise", durability="fsync")
    outlive(world, 40)
    world.tidy()
    assert world.engine.journal.jobs.segments()[0].id > first


@pytest.mark.parametrize("is_dropped", [True, False])
@pytest.mark.parametrize(("before", "after"), [(BACKOFF, None), (None, BACKOFF)])
def test_a_lease_that_ran_out_keeps_the_backoff_of_then(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    is_dropped: bool,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> None:
    """The change of the config may be in no log any more."""
    world.put(durability="fsync", leases_durable=True, lease_ms=1000, retry_backoff=before)
    world.fill(2)
    world.take(1)
    world.wait(1001)
    world.patch(retry_backoff=after)
    world.take(1, lease_ms=10**6)
    if is_dropped:
        drop_history(world, monkeypatch)
    found = portrait(world.state)
    for end in (world.kill, world.restart):
        end()
        assert portrait(world.state) == found
    assert world.states()[1] == ("delayed" if before else "in_flight")


@pytest.mark.parametrize("is_dropped", [True, False])
@pytest.mark.parametrize("delay_ms", [0, 90_000])
def test_a_job_that_was_replaced_between_two_deliveries_comes_by_its_new_time(
    world: World, monkeypatch: pytest.MonkeyPatch, is_dropped: bool, delay_ms: int
) -> None:
    """The write that replaced it may be in no log any more."""
    world.put(durability="fsync", leases_durable=True, lease_ms=1000)
    world.write("q", wish(1, key="a"), wish(2, key="b"), wish(3, key="c"))
    world.take(2)
    world.nack(1, delay_ms=50_000)
    world.wait(1001)
    world.write("q", *(wish(10, key=key, delay_ms=delay_ms) for key in "abc"))
    if is_dropped:
        drop_history(world, monkeypatch)
    found = portrait(world.state)
    for end in (world.kill, world.restart):
        end()
        assert portrait(world.state) == found
        check(world.state)
    assert {*world.states().values()} == {"delayed" if delay_ms else "ready"}
    world.wait(delay_ms)
    assert [(job.seq, job.deliveries) for job in world.claim(3)] == [(1, 2), (2, 2), (3, 1)]


@pytest.mark.parametrize("is_checkpointed", [True, False])
def test_a_job_that_was_held_and_let_go_was_never_delivered(
    world: World, monkeypatch: pytest.MonkeyPatch, is_checkpointed: bool
) -> None:
    """That it was held may be in no log any more, and that it was delivered before neither."""
    world.put(durability="fsync", leases_durable=True, on_exhausted="hold", lease_ms=10**7)
    world.write("q", wish(1), wish(2, delay_ms=10), wish(3, key="a"))
    world.write("q", wish(4, key="a"))
    world.wait(10)
    world.take(3)
    world.reject(1, 2, 3, error="bad")
    if is_checkpointed:
        with monkeypatch.context() as patch:
            patch.setattr(compaction, "LEASES_BYTES_MAX", -(10**6))
            world.tidy()
    world.let_go(1, 2, 3)
    drop_history(world, monkeypatch)
    found = portrait(world.state)
    for end in (world.kill, world.restart):
        end()
        assert portrait(world.state) == found
        check(world.state)
    assert [(job.seq, job.deliveries) for job in world.claim(3)] == [(1, 1), (2, 1), (3, 1)]


def test_a_leases_checkpoint_tells_of_leases_that_ran_out_by_the_backoff_of_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No access may have come since then."""
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", -(10**6))
    world.put(durability="fsync", leases_durable=True, lease_ms=1000, retry_backoff=BACKOFF)
    world.fill(3)
    world.take(3)
    world.wait(1001)
    topic = world.state.queue("q")
    queue = topic.queue
    monkeypatch.setattr(QueueState, "elapse", lambda *_: True)
    world.patch(retry_backoff=None)
    world.tidy()
    assert queue.leased == 3
    assert world.engine.journal.leases.segments()[0].id > 1
    monkeypatch.undo()
    world.kill()
    found = portrait(world.state)["q"]["queue"]["jobs"]
    assert {job[0] for job in found.values()} == {"delayed"}


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_durable_leases_keep_ids_deadlines_delays_and_counters(world: World, end: str) -> None:
    world.put(durability="fsync", leases_durable=True, lease_ms=1000)
    world.fill(4)
    world.take(4)
    world.nack(2, delay_ms=5000)
    world.nack(3)
    world.extend(4, lease_ms=9000)
    before = portrait(world.state)
    getattr(world, end)()
    assert portrait(world.state) == before
    world.wait(1000)
    assert world.counters() == (1, 2, 0)
    world.wait(1)
    assert world.counters() == (2, 1, 0)
    world.wait(3999)
    assert [(j.seq, j.deliveries) for j in world.claim(9)] == [(1, 2), (2, 2), (3, 2)]


def test_a_lease_that_ran_out_meanwhile_is_reclaimable(world: World) -> None:
    world.put(durability="fsync", leases_durable=True, lease_ms=1000)
    world.fill(1)
    world.take()
    world.engine.shut_down()
    world.wait(1001)
    world.engine = world._open()
    assert [(j.seq, j.deliveries) for j in world.claim()] == [(1, 2)]


def test_no_longer_durable_leases_end(world: World) -> None:
    world.put(durability="fsync", leases_durable=True)
    world.fill(2)
    world.take(1)
    world.put(durability="fsync", leases_durable=False)
    world.take(1)
    world.step()
    world.kill()
    assert world.counters() == (2, 0, 0)
    assert [(j.seq, j.deliveries) for j in world.claim(2)] == [(1, 2), (2, 2)]


def test_leases_from_before_they_became_durable_do_not_hide_jobs(world: World) -> None:
    world.put(durability="fsync")
    world.fill(4)
    world.take(2)
    world.put(durability="fsync", leases_durable=True)
    world.take(1)
    world.kill()
    assert world.counters() == (1, 3, 0)
    assert world.take(9) == [4]
    world.wait(30_001)
    assert world.take(9) == [1, 2, 3, 4]


def test_a_claim_that_no_log_could_take_does_not_hide_jobs(world: World) -> None:
    world.put(durability="fsync", leases_durable=True)
    world.fill(4)
    full = [True]

    def fail(op: Op) -> OSError | None:
        refused = full[0] and op.kind == "allocate" and "leases" in op.path
        return OSError(errno.ENOSPC, "full") if refused else None

    world.fs.fail_when(fail)
    assert world.take(2) == [1, 2]
    assert world.engine.journal.leases_lost == 1
    full[0] = False
    assert world.take(1) == [3]
    world.kill()
    assert sorted([*world.take(9), 3]) == [1, 2, 3, 4]


def test_leases_of_lost_records_do_not_hide_or_hold_new_ones() -> None:
    """The lease log may keep more than the jobs log: seqs can then be given anew."""
    world = World()
    world.put(durability="memory", leases_durable=True)
    world.step()
    world.fill(3)
    world.take(3)
    world.fs = _without_unsynced(world.fs, "jobs")
    world.engine = world._open()
    check(world.state)
    assert world.topic("q").head == 0
    world.fill(3)
    assert world.counters() == (3, 0, 0)
    world.kill()
    assert world.counters() == (3, 0, 0)
    assert [(j.seq, j.deliveries) for j in world.claim(9)] == [(1, 1), (2, 1), (3, 1)]


def _without_unsynced(fs: SimFileSystem, log: str) -> SimFileSystem:
    """A power cut that takes one log's unsynced tail and leaves the other alone."""
    clone = fs.kill_clone()
    for path, node in clone._names.items():
        if f"/{log}/" in path:
            node.data[:] = node.synced
            node.dirty.clear()
    clone._boot = "another"
    return clone


def test_the_leases_log_begins_anew_without_losing_anybody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", -(10**6))
    for name in ("a", "b", "c"):
        world.put(name, durability="fsync", leases_durable=True)
        world.fill(40, name)
        assert len(world.take(40, topic=name)) == 40
    before = portrait(world.state)
    world.tidy()
    world.kill()
    assert portrait(world.state) == before


# -- seqs ------------------------------------------------------------------------------------------


def test_a_disk_topic_never_gives_a_seq_twice_after_an_orderly_restart(world: World) -> None:
    world.put(durability="disk")
    world.fill(3)
    world.restart()
    assert world.write("q", "shown, then lost").first_seq == 4
    world.cut(LosesAll(1))
    assert world.write("q", "another").first_seq > 4


def test_seqs_given_while_ephemeral_stay_given(world: World) -> None:
    world.put(durability="disk", ttl_ms=1000)
    world.fill(2)
    world.put(durability="ephemeral", ttl_ms=1000)
    world.fill(5)
    world.wait(1001)
    assert world.seqs() == []
    world.step()
    world.kill()
    world.put(durability="disk")
    assert world.write("q", "new").first_seq >= 8
    assert len(world.seqs()) == 1
    world.put(durability="disk", ttl_ms=1000)
    assert len(world.seqs()) == 1


def test_deletes_of_moved_records_last_though_the_topic_became_ephemeral(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)
    world.put("noise", durability="fsync")
    world.put(durability="disk")
    world.fill(3)
    world.put(durability="ephemeral")
    outlive(world, 30)
    world.tidy()
    world.kill()
    assert world.delete(before=3) == 2
    world.step()
    world.kill()
    assert world.seqs() == [3]


# -- tidying ---------------------------------------------------------------------------------------


def test_tidying_while_records_run_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)
    world.put(durability="disk", ttl_ms=1000)
    world.put("noise", durability="fsync")
    for _ in range(3):
        world.fill(2)
        world.wait(300)
    outlive(world, 30)
    world.wait(500)
    world.tidy()
    check(world.state)
    world.kill()
    assert world.seqs() == [5, 6]


def test_space_comes_back_although_a_checkpoint_found_no_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)
    world.put(durability="fsync")
    world.fill(3)
    journal = world.engine.journal
    while not journal.jobs.will_roll(400):
        world.write("q", "x" * 100)
    # A segment that begins without a checkpoint, as after a full disk.
    journal.jobs.roll()
    world.write("q", "small")
    for _ in range(30):
        world.write("q", "y" * 300)
    world.delete("q", before=world.topic("q").head)
    world.step()
    for _ in range(4):
        world.tidy()
    assert journal.jobs.bytes_total < 20_000, [s.id for s in journal.jobs.segments()]
    before = portrait(world.state)
    world.kill()
    assert portrait(world.state) == before


# -- a log that takes no more ----------------------------------------------------------------------


def test_reads_go_on_when_the_log_is_poisoned_and_records_run_out(world: World) -> None:
    world.put(durability="fsync", ttl_ms=1000)
    world.fill(2)
    world.fs.fail_when(lambda op: OSError(errno.EIO, "bad") if op.kind == "pwrite" else None)
    with pytest.raises(StorageReadOnly):
        world.write("q", "lost")
    world.wait(1001)
    assert world.topic("q").head == 3


def test_dead_letters_find_the_room_that_time_has_made(world: World) -> None:
    world.put("letters", type="log", ttl_ms=1000, cap_records=1, discard="reject")
    world.write("letters", "old")
    world.put(max_deliveries=1, dead_letter="letters", lease_ms=2000)
    world.fill(1)
    world.take()
    world.wait(2001)
    assert world.take() == []
    assert world.counters() == (0, 0, 1)


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_what_an_unlogged_write_evicted_stays_gone_once_a_checkpoint_tells_its_floor(
    world: World, end: str
) -> None:
    world.put(durability="fsync", cap_records=3)
    world.fill(3)
    world.take(1)
    world.patch(durability="ephemeral")
    world.fill(2)
    world.step()
    assert world.seqs() == [3, 4, 5]
    if end == "kill":
        world.engine.journal.checkpoint(world.state, world.now)
        world.step()
    getattr(world, end)()
    check(world.state)
    assert world.seqs() == [3]
    assert (world.topic("q").floor, world.topic("q").head) == (2, 5)


@pytest.mark.parametrize("knows_source", [True, False])
def test_copies_of_a_topic_that_is_dropped_while_a_checkpoint_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch, knows_source: bool
) -> None:
    """The log may begin with that checkpoint. Earlier versions left the topic out of it."""
    monkeypatch.setattr(checkpoint, "TOPICS_PER_PART", 1)
    for name in ("other", "source", "copies"):
        world.put(name, type="log", durability="fsync")
    world.put_router("r", "source", "copies")
    if not knows_source:
        first_part = checkpoint.JobsCheckpoint.next_part

        def without(self: Any, *args: Any, **options: Any) -> ev.Checkpointed:
            part = first_part(self, *args, **options)
            return structs.replace(part, topics=[t for t in part.topics if t.name != "source"])

        monkeypatch.setattr(checkpoint.JobsCheckpoint, "next_part", without)
    journal = world.engine.journal
    journal.checkpoint(world.state, world.now)
    world.write("source", 1, 2)
    world.forward()
    world.drop("source")
    while journal.is_checkpointing:
        journal.go_on_with_checkpoint(world.state, world.now)
    begun = journal.jobs.segment
    world.engine.commit_housekeeping([ev.SegmentsDropped(world.now, 0, begun)])
    journal.jobs.sync()
    world.step()
    journal.jobs.drop_before(begun)
    world.kill()
    check(world.state)
    assert world.topic("copies").head == 2
    assert world.values("copies") == ([1, 2] if knows_source else [])
