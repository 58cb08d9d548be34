"""Giving space back on a disk that is full, fails or stops: at every step of compaction, of
checkpoints, the archive and the rotation of the leases log, nothing that was promised is lost.

By default every so-manieth operation is tried; all of them are slow.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from logqueue.core.invariants import check
from logqueue.errors import LogqueueError, StorageFull
from logqueue.server.storage import checkpoint, compaction, journal
from tests.clock import ManualClock
from tests.core.world import START_MS, Bounds, World, fall_back, job
from tests.sim.archived import require_no_gap
from tests.sim.ledger import Ledger
from tests.sim.test_archive_sweep import Archiving, require_history
from tests.sim.workload import TOPICS
from wal import WalError
from wal.testing.simfs import Op, SimCrash, SimFileSystem

EFFORT = int(os.environ.get("LOGQUEUE_TEST_EFFORT", "1"))
TURNS = 26
SEED = 4
WINDOW = 25
"""Operations for which a disk stays full before somebody makes room."""

GROWING = ("allocate", "pwrite", "create", "link")

Fault = Callable[[Op, int], OSError | None]


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite, and checkpoints have many parts."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 3000)
    monkeypatch.setattr(checkpoint, "TOPICS_PER_PART", 4)
    monkeypatch.setattr(journal, "SPARE_BYTES", 2000)


# -- the space that comes free --------------------------------------------------------------------


def grown(records: int) -> World:
    """A queue whose live jobs stand among churn that is deleted, on a disk that is then full."""
    world = World(segment_bytes=40_000)
    world.put(durability="fsync", lease_ms=10**7)
    world.put("churn", type="log", durability="fsync")
    for number in range(records):
        world.write("q", job({"n": number, "pad": "x" * 400}))
        world.write("churn", job("y" * 400))
    world.delete("churn", before=world.topic("churn").head + 1)
    return world


def fill_up(world: World) -> None:
    """No byte more than there is."""
    world.step()
    world.fs.capacity_bytes = sum(map(len, world.fs.contents().values()))


def test_a_move_that_finds_no_room_drops_nothing() -> None:
    world = grown(200)
    fill_up(world)
    before = world.records()
    oldest = world.engine.journal.jobs.segments()[0].id
    for _ in range(4):
        with pytest.raises((StorageFull, WalError)):
            world.tidy()
    assert world.engine.journal.jobs.segments()[0].id == oldest
    assert world.records() == before
    world.kill()
    assert world.records() == before, "acked records are lost"
    world.fs.capacity_bytes = None
    world.tidy()
    assert world.engine.journal.jobs.segments()[0].id > oldest
    world.kill()
    assert world.records() == before


def test_moving_leaves_the_space_that_is_for_acks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SPARE_BYTES", 20_000)
    world = grown(200)
    taken = world.take(200)
    fill_up(world)
    with pytest.raises(StorageFull):
        for _ in range(1000):
            world.write("churn", job("z" * 100))
    for _ in range(3):
        with suppress(StorageFull):
            world.tidy()
    for seq in taken[::2]:
        assert world.ack(seq) == (1, [])
    world.kill()
    assert world.seqs() == taken[1::2]


def test_a_little_to_move_may_take_that_space_and_frees_a_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal, "SPARE_BYTES", 12_000)
    world = World(segment_bytes=40_000)
    world.put(durability="fsync")
    world.put("churn", type="log", durability="fsync")
    world.write("q", "keep")
    world.fs.capacity_bytes = 300_000
    with pytest.raises(StorageFull):
        for _ in range(1000):
            world.write("churn", job("y" * 1000))
    world.delete("churn", before=world.topic("churn").head + 1)
    world.tidy()
    for _ in range(50):
        world.write("churn", job("y" * 1000))
    world.kill()
    assert world.values() == ["keep"]


def test_a_full_jobs_log_does_not_keep_the_leases_log_from_giving_space_back() -> None:
    world = grown(200)
    for _ in range(10):
        world.nack(*world.take(10))

    def jobs_log_is_full(op: Op) -> OSError | None:
        is_jobs = op.path.startswith("data/jobs/")
        return no_space_for_new_files(op, 0) if is_jobs else None

    world.fs.fail_when(jobs_log_is_full)
    with pytest.raises(StorageFull):
        world.tidy()
    assert world.engine.journal.leases.segments()[0].id > 1


def test_a_leases_checkpoint_without_room_for_all_of_it_is_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint, "JOBS_PER_PART", 10)
    world = World(segment_bytes=64 << 10)
    world.put(durability="fsync", leases_durable=True, lease_ms=10**7)
    for _ in range(40):
        world.fill(50)
        world.take(50)
    fill_up(world)
    assert world.fs.capacity_bytes is not None
    world.fs.capacity_bytes += 5000
    for _ in range(3):
        with suppress(StorageFull, WalError):
            world.tidy()
    appended = world.engine.journal.leases.appended
    with suppress(StorageFull, WalError):
        world.tidy()
    assert world.engine.journal.leases.appended == appended, "it grows with each try"


def test_what_is_kept_in_reserve_lets_a_full_disk_give_space_back() -> None:
    world = World(segment_bytes=40_000)
    world.put(durability="fsync")
    world.put("churn", type="log", durability="fsync")
    for number in range(150):
        world.write("q", job({"n": number, "pad": "x" * 400}))
    world.tidy()
    assert world.engine.journal.reserve.bytes >= 40_000
    world.kill()
    assert world.engine.journal.reserve.bytes >= 40_000, "it is found again"
    world.fs.capacity_bytes = sum(map(len, world.fs.contents().values())) + 300_000
    with pytest.raises(StorageFull):
        for _ in range(1000):
            world.write("churn", job("y" * 1000))
    for _ in range(3):
        with suppress(StorageFull, WalError):
            world.tidy()
    world.delete("churn", before=world.topic("churn").head + 1)
    before = world.records()
    world.tidy()
    assert world.records() == before
    assert world.engine.journal.jobs.bytes_total < 250_000, "the space did not come back"
    assert world.engine.journal.reserve.bytes >= 40_000, "nor the reserve"
    for _ in range(100):
        world.write("churn", job("y" * 1000))
    world.kill()
    assert world.records() == before


@pytest.mark.parametrize("at", range(0, 120, 1 if EFFORT > 1 else 29))
def test_an_end_while_the_reserve_is_lent_loses_nothing(at: int) -> None:
    world = World(segment_bytes=40_000)
    world.put(durability="fsync")
    world.put("churn", type="log", durability="fsync")
    for number in range(100):
        world.write("q", job({"n": number, "pad": "x" * 400}))
    world.tidy()
    # Not just so much that it ends with the head of a segment: that is larger than the spare here.
    world.fs.capacity_bytes = sum(map(len, world.fs.contents().values())) + 215_000
    with pytest.raises(StorageFull):
        for _ in range(1000):
            world.write("churn", job("y" * 1000))
    world.delete("churn", before=world.topic("churn").head + 1)
    before = world.records()
    world.fs.crash_after(at)
    with suppress(SimCrash, StorageFull, WalError):
        world.tidy()
    for disk in (world.fs.kill_clone(), world.fs.crash_clone(Random(at))):
        back = World(disk, segment_bytes=40_000)
        assert back.records() == before
        with suppress(StorageFull, WalError):
            back.tidy()
        assert back.records() == before


# -- a fault at every operation -------------------------------------------------------------------


def no_space(op: Op, since: int) -> OSError | None:
    """Nothing grows any more."""
    return OSError(errno.ENOSPC, "no space") if op.kind in GROWING else None


def no_space_for_a_while(op: Op, since: int) -> OSError | None:
    """Nothing grows, until somebody makes room."""
    return no_space(op, since) if since < WINDOW else None


def no_space_for_new_files(op: Op, since: int) -> OSError | None:
    """What the log has allocated can be used; it just gets no more."""
    return OSError(errno.ENOSPC, "no space") if op.kind in ("allocate", "create") else None


def one_error(op: Op, since: int) -> OSError | None:
    """One operation fails, the others do not."""
    return OSError(errno.EIO, "input/output error") if since == 0 else None


def errors_from_now_on(op: Op, since: int) -> OSError | None:
    """The disk is gone."""
    return OSError(errno.EIO, "input/output error")


FAULTS: dict[str, tuple[Fault, bool]] = {
    "full": (no_space_for_new_files, True),
    "full-for-a-while": (no_space_for_a_while, True),
    "full-copies": (no_space_for_a_while, False),
    "eio-once": (one_error, True),
    "eio-once-copies": (one_error, False),
    "eio-for-ever": (errors_from_now_on, True),
}


class Enduring(Archiving):
    """A day that goes on whatever is refused."""

    def turn(self, world: World) -> None:
        """As ever; refusals are what clients live with."""
        engine = world.engine
        try:
            super().turn(world)
        except (LogqueueError, WalError, OSError):
            if engine.journal.jobs.failure is not None and engine is world.engine:
                with suppress(WalError, OSError):
                    fall_back(engine)

    def restart(self, world: World) -> None:
        """An orderly end and a new start, which may end in a refusal: then it is a kill."""
        try:
            super().restart(world)
        except (LogqueueError, WalError, OSError):
            self.held = {name: {} for name in TOPICS}
            promises = self.ledger.topics["ephemeral"]
            promises.shown, promises.tried = [], []
            world.fs.fail_when(lambda op: None)
            world.kill()


def day(fs: SimFileSystem, ledger: Ledger, clock: ManualClock) -> SimFileSystem:
    """A life to its end, as long as there is a server at all; returns what it leaves."""
    try:
        world = World(fs, clock=clock, archive=Bounds())
    except (OSError, WalError):
        return fs
    workload = Enduring(SEED, ledger)
    with suppress(LogqueueError, WalError, OSError):
        workload.begin(world)
    if len(ledger.topics) == len(TOPICS):
        for _ in range(TURNS):
            workload.turn(world)
        with suppress(LogqueueError, WalError, OSError):
            world.step()
    world.fs.fail_when(lambda op: None)
    return world.fs


def disk(fault: Fault, at: int, *, links: bool) -> SimFileSystem:
    """An empty one that fails from some operation on."""
    fs = SimFileSystem(Random(SEED))

    def fail(op: Op) -> OSError | None:
        if op.number >= at and (error := fault(op, op.number - at)) is not None:
            return error
        if op.kind == "link" and not links:
            return OSError(errno.EXDEV, "another disk")
        return None

    fs.fail_when(fail)
    return fs


def require_promises(fs: SimFileSystem, ledger: Ledger, clock: ManualClock, cut: bool) -> None:
    """A life on what is left of a disk finds all, and can give space back itself."""
    if len(ledger.topics) < len(TOPICS):
        return
    world = World(fs, clock=clock, archive=Bounds())
    check(world.state)
    ledger.check(world.state, power_cut=cut)
    for _ in range(3):
        world.keep()
        world.tidy()
    require_history(world.fs, ledger, power_cut=cut)
    require_no_gap(world.fs, from_first=True)
    world.step()
    world.kill()
    ledger.check(world.state, power_cut=cut)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_at_every_operation(name: str) -> None:
    fault, links = FAULTS[name]
    sound = disk(lambda op, since: None, 1, links=links)
    day(sound, Ledger(), ManualClock(START_MS))
    kinds = {op.kind for op in sound.history}
    assert kinds >= {"remove", "sync_dir", "link", "truncate", "rename"}, "all there is happened"
    for at in range(1, sound.ops + 1) if EFFORT > 1 else range(3, sound.ops + 1, 53):
        fs = disk(fault, at, links=links)
        ledger, clock = Ledger(), ManualClock(START_MS)
        try:
            end = day(fs, ledger, clock)
            cut = end.crash_clone(Random(at))
            for left, power_cut in ((end.kill_clone(), False), (cut, True)):
                require_promises(left, ledger, clock, power_cut)
        except BaseException:
            print(f"{name}: fault from operation {at} of {sound.ops}: {fs.history[at - 1]}")
            raise
