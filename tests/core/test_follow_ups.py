"""Acks that write: jobs end and their follow-ups exist, or neither. Short transcripts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.errors import (
    BatchTooLarge,
    KeyConflict,
    LogqueueError,
    NotAQueue,
    RecordTooLarge,
    StorageFull,
    Throttled,
    TopicFull,
    TopicNotFound,
)
from logqueue.model.limits import Quotas
from logqueue.server.storage import journal
from tests.core.world import World, job, keyed, pack, wish


@pytest.fixture
def world() -> World:
    """Two queues, `q` and `ship`; three jobs of `q` are leased to `w`."""
    world = World()
    return charged(world)


def charged(world: World, **config: Any) -> World:
    """The queues, with three jobs in flight."""
    world.put(lease_ms=1000, **config)
    world.put("ship")
    world.fill(3)
    world.take(3)
    return world


def writing(topic: str, *data: object, **options: Any) -> cmd.Append:
    """One write of an ack."""
    records = [d if isinstance(d, tuple) else job(d) for d in data]
    return cmd.Append(topic, pack(records), len(records), keyed=keyed(records), **options)


def ack(world: World, seqs: list[int], *append: cmd.Append, node: str = "w") -> cmd.SettleResult:
    """An ack that writes."""
    reply: cmd.SettleResult = world.run(cmd.AckJobs("q", node, seqs, append=append))
    return reply


def data_of(world: World, topic: str) -> list[bytes]:
    """What the live records of a topic say."""
    return [texts[0] for _, _, texts in world.records(topic)]


def unchanged(world: World) -> None:
    """All three jobs are still leased, and nothing was written."""
    assert world.counters() == (0, 3, 0)
    assert world.records("ship") == []
    check(world.state)


def test_jobs_end_and_follow_ups_exist(world: World) -> None:
    """Both, with the seqs of what was written; also after a kill."""
    result = ack(world, [1, 3], writing("ship", "a", "b"), writing("mail", "c"))
    assert result[:4] == (2, [], 0, 1)
    assert result.appended is not None
    assert [(r.first_seq, r.records, r.created) for r in result.appended] == [
        (1, 2, False),
        (1, 1, True),
    ]
    for _ in range(2):
        assert world.seqs() == [2]
        assert data_of(world, "ship") == [b'"a"', b'"b"']
        assert data_of(world, "mail") == [b'"c"']
        check(world.state)
        world.kill()


def test_it_is_one_frame(world: World) -> None:
    """A power cut at any place leaves both or neither."""
    before = world.engine.journal.jobs.written
    world.execute(cmd.AckJobs("q", "w", [1], append=(writing("ship", "a"), writing("new", "b"))))
    world.step()
    assert world.engine.journal.jobs.written == before + 1


@pytest.mark.parametrize("lost", ["expired", "other_node", "unknown", "twice"])
def test_who_does_not_hold_all_of_them_writes_nothing(world: World, lost: str) -> None:
    """The fence is for the whole transaction."""
    seqs, skipped = {"unknown": ([1, 9], [9]), "twice": ([1, 1], [1])}.get(lost, ([1, 2], [1, 2]))
    if lost == "expired":
        world.wait(1001)
    result = ack(world, seqs, writing("ship", "a"), node="x" if lost == "other_node" else "w")
    assert (result.settled, result.skipped, result.appended) == (0, skipped, ())
    assert world.records("ship") == []
    assert world.seqs() == [1, 2, 3]


def test_a_lost_lease_writes_nothing_although_its_node_has_a_new_one(world: World) -> None:
    """Lease numbers are compared as for any ack."""
    world.wait(1001)
    (again, *_) = world.claim(3)
    command = cmd.AckJobs("q", "w", [1], [again.lease - 3], append=(writing("ship", "a"),))
    assert world.run(command).settled == 0
    assert world.records("ship") == []


@pytest.mark.parametrize(
    ("refusal", "writes"),
    [
        (TopicFull, [writing("ship", 1), writing("full", 1)]),
        (RecordTooLarge, [writing("full", 1, 2, 3)]),
        (TopicNotFound, [writing("ship", 1), writing("absent", 1, create=False)]),
        (NotAQueue, [writing("log", wish(1, key="k"))]),
        (KeyConflict, [writing("keyed", wish(1, key="k", on_conflict="reject"))]),
    ],
)
def test_a_refused_write_leaves_the_jobs_leased(
    world: World, refusal: type[LogqueueError], writes: list[cmd.Append]
) -> None:
    """Whichever of the writes it is."""
    world.put("full", cap_records=1, discard="reject")
    world.put("log", type="log")
    world.put("keyed")
    world.write("full", 0)
    world.write("keyed", wish(0, key="k"))
    with pytest.raises(refusal):
        ack(world, [1], *writes)
    unchanged(world)


def test_the_server_has_no_room_for_all_together() -> None:
    """Each write would fit by itself; what the ack frees counts."""
    world = charged(World(quotas=Quotas(total_bytes_max=10, topics_max=3)))
    with pytest.raises(Throttled):
        ack(world, [1], writing("ship", 12345), writing("q", 12345))
    with pytest.raises(Throttled):
        ack(world, [1], writing("new", 1), writing("newer", 1))
    unchanged(world)
    assert ack(world, [1], writing("ship", 1234), writing("q", 1234)).settled == 1
    check(world.state)


def test_a_full_queue_takes_what_replaces_its_job() -> None:
    """A queue that rejects when full never locks up workers that go on in steps."""
    world = charged(World(), cap_records=3, discard="reject")
    with pytest.raises(TopicFull):
        ack(world, [1], writing("q", 4, 5))
    assert ack(world, [1], writing("q", 4)).settled == 1
    assert world.seqs() == [2, 3, 4]
    check(world.state)


@pytest.mark.parametrize("archive", [None, "done"])
def test_a_write_may_evict_the_job_it_follows(archive: str | None) -> None:
    """The write comes first, so the job counts as dropped; once."""
    world = charged(World(), cap_records=3, archive=archive)
    assert ack(world, [1, 2], writing("q", 4)).settled == 2
    assert world.seqs() == [3, 4]
    assert world.queue().queue.finished == {"dropped": 1, "acked": 1}
    if archive is not None:
        assert len(world.records(archive)) == 2
    check(world.state)


def test_archives_and_targets_may_be_the_same_topics() -> None:
    """Copies come behind what is written, each in its own seqs."""
    world = charged(World(), archive="done")
    world.put("ship", cap_records=1, archive="mail")
    world.write("ship", 0)
    result = ack(world, [1, 2], writing("ship", "a"), writing("done", "b"), writing("mail", "c"))
    assert result.appended is not None and [r.first_seq for r in result.appended] == [2, 1, 1]
    for _ in range(2):
        assert data_of(world, "ship") == [b'"a"']
        assert data_of(world, "done") == [b'"b"', b"1", b"2"]
        assert data_of(world, "mail") == [b'"c"', b"0"]
        check(world.state)
        world.kill()


def test_an_archive_bounds_the_transaction() -> None:
    """It cannot be split, so it is refused."""
    world = World()
    world.put(archive="done")
    world.fill(600)
    world.take(600)
    with pytest.raises(BatchTooLarge):
        ack(world, [*range(1, 502)], writing("ship", 1))
    assert world.counters()[1] == 600
    assert ack(world, [*range(1, 501)], writing("ship", 1)).settled == 500


def test_a_repeat_after_a_lost_reply_is_told_apart(world: World) -> None:
    """By the idempotency keys of all its writes, also after a restart; nothing is written twice."""
    writes = [writing("ship", "a", key="k"), writing("mail", "b", key="k")]
    first = ack(world, [1, 2], *writes)
    world.restart()
    again = ack(world, [1, 2], *writes)
    assert again.settled == 2 and again.skipped == []
    assert again.appended is not None and first.appended is not None
    assert [r.first_seq for r in again.appended] == [r.first_seq for r in first.appended]
    assert all(r.deduped for r in again.appended)
    assert data_of(world, "ship") == [b'"a"']


@pytest.mark.parametrize("key", [None, "other"])
def test_without_the_keys_a_repeat_is_a_lost_lease(world: World, key: str | None) -> None:
    """It says so, and writes nothing."""
    ack(world, [1], writing("ship", "a", key=None if key is None else "k"))
    again = ack(world, [1], writing("ship", "a", key=key))
    assert (again.settled, again.skipped, again.appended) == (0, [1], ())
    assert data_of(world, "ship") == [b'"a"']


def test_keyed_follow_ups_meet_waiting_jobs(world: World) -> None:
    """As in a write by itself."""
    world.write("ship", wish("old", key="k"))
    (result,) = ack(world, [1], writing("ship", wish("new", key="k"), "b")).appended or ()
    assert result.results == [(1, "replaced"), (2, "created")]
    assert data_of(world, "ship") == [b'"new"', b'"b"']
    check(world.state)


def test_promise_is_the_strictest() -> None:
    """The reply waits for the sync that any of its topics asks for."""
    world = World()
    world.put(durability="ephemeral")
    world.put("ship", durability="fsync")
    world.fill(1)
    world.take(1)
    outcome = world.execute(cmd.AckJobs("q", "w", [1], append=(writing("ship", "a"),)))
    assert outcome.durable == world.topic("ship").mark_durable > world.engine.journal.jobs.durable
    world.hold(outcome)
    world.cut(Random(1))
    assert data_of(world, "ship") == [b'"a"']


def test_a_full_disk_keeps_room_for_acks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an ack writes does not use the space that is left to acks."""
    monkeypatch.setattr(journal, "SPARE_BYTES", 20_000)
    world = charged(World(segment_bytes=1 << 20))
    world.fs.capacity_bytes = sum(map(len, world.fs.contents().values()))
    with pytest.raises(StorageFull):
        while True:
            world.write("log", "x" * 9000)
    with pytest.raises(StorageFull):
        ack(world, [1], writing("ship", "y" * 9000))
    unchanged(world)
    assert world.ack(1) == (1, [])
