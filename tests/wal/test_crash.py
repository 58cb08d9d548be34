"""Crash sweep: stop the simulated disk at every single operation, and open what is left."""

from collections.abc import Callable
from random import Random

import pytest

from tests.effort import scaled
from wal import Log, WalFull
from wal.testing.simfs import SimCrash, SimFileSystem

DIR = "d"
SEGMENT = 6000


def payload(number: int) -> bytes:
    """What frame `number` says; sizes from nothing to several blocks."""
    return (b"%d:" % number) * (1 + number * 37 % 250)


class Promises:
    """What a run was told, so that it can be held against what survived."""

    def __init__(self) -> None:
        self.written = 0
        self.durable = 0
        self.dropped_to = 1
        self.appended: dict[int, bytes] = {}
        self.log: Log | None = None

    def note(self, log: Log) -> None:
        assert self.durable <= log.durable <= log.written <= log.appended
        self.written, self.durable, self.log = log.written, log.durable, log

    def settle(self) -> None:
        """After the crash: a promise made in the last moment counts too."""
        if self.log is not None:
            self.written = max(self.written, self.log.written)
            self.durable = max(self.durable, self.log.durable)


def open_sim(fs: SimFileSystem) -> Log:
    return Log.open(DIR, fs=fs, segment_bytes_max=SEGMENT, random_bytes=Random(1).randbytes)


def workload(fs: SimFileSystem, promises: Promises, seed: int) -> None:
    """Appends of both kinds, rolls, drops, a clean restart, a repeated kill."""
    rng = Random(seed)
    log = open_sim(fs)
    promises.note(log)
    for turn in range(26):
        for _ in range(rng.randrange(5)):
            body = payload(log.appended + 1)
            number = log.append([body[:7], body[7:]], sync=rng.random() < 0.4)
            promises.appended[number] = body
        if rng.random() < 0.15:
            log.sync()
        if rng.random() < 0.1:
            log.roll()
        if rng.random() < 0.7:
            log.step()
            promises.note(log)
        if turn % 8 == 7:
            # The owner would write a checkpoint first; here the loss of old frames is the point.
            before = log.segments()[max(0, len(log.segments()) - 2)]
            promises.dropped_to = max(promises.dropped_to, before.first)
            log.drop_before(before.id)
        if turn == 13:
            log.close()
            log = open_sim(fs)
            promises.note(log)
    log.close()
    promises.note(log)


def check_survivors(fs: SimFileSystem, promises: Promises, floor: int) -> None:
    """Open the disk and hold the frames against the promises."""
    log = open_sim(fs)
    frames = list(log.read())
    numbers = [frame.number for frame in frames]
    last = log.appended
    assert log.written == log.durable == last
    assert last >= floor
    if frames:
        assert numbers == list(range(numbers[0], last + 1))
        assert numbers[0] <= promises.dropped_to
    else:
        assert last == 0 or floor <= last
    for frame in frames:
        assert frame.payload == promises.appended[frame.number]
    again = log.append(payload(last + 1), sync=True)
    assert again == last + 1
    while log.step():
        pass
    assert log.durable == last + 1
    log.close()


def ops_of(seed: int) -> int:
    fs = SimFileSystem(Random(seed))
    workload(fs, Promises(), seed)
    return fs.ops


def sweep(seed: int, survive: Callable[[SimFileSystem, Promises, int], None]) -> int:
    total = ops_of(seed)
    for stop in range(total):
        fs = SimFileSystem(Random(seed))
        fs.crash_after(stop)
        promises = Promises()
        with pytest.raises(SimCrash):
            workload(fs, promises, seed)
        promises.settle()
        survive(fs, promises, stop)
    return total


@pytest.mark.parametrize("seed", range(scaled(3, 6)))
def test_power_cut_at_every_operation(seed: int) -> None:
    def survive(fs: SimFileSystem, promises: Promises, stop: int) -> None:
        for cut in range(3):
            clone = fs.crash_clone(Random(f"{seed}/{stop}/{cut}"))
            check_survivors(clone, promises, promises.durable)

    assert sweep(seed, survive) > 150


@pytest.mark.parametrize("seed", range(6, 8))
def test_kill_at_every_operation(seed: int) -> None:
    def survive(fs: SimFileSystem, promises: Promises, stop: int) -> None:
        check_survivors(fs.kill_clone(), promises, promises.written)

    sweep(seed, survive)


@pytest.mark.parametrize("seed", range(8, 10))
def test_recovery_crashes_at_every_operation(seed: int) -> None:
    """An interrupted recovery, repeated, ends where an undisturbed one does."""
    rng = Random(seed)
    total = ops_of(seed)
    cuts = 0
    for stop in rng.sample(range(total), scaled(15, 25)):
        fs = SimFileSystem(Random(seed))
        fs.crash_after(stop)
        promises = Promises()
        with pytest.raises(SimCrash):
            workload(fs, promises, seed)
        disk = fs.crash_clone(Random(stop))
        wanted = kept_by(disk.kill_clone())
        opened = disk.kill_clone()
        open_sim(opened)
        cuts += any(op.kind == "truncate" for op in opened.history)
        for inner in range(opened.ops):
            again = disk.kill_clone()
            again.crash_after(inner)
            with pytest.raises(SimCrash):
                open_sim(again)
            assert kept_by(again.kill_clone()) == wanted
            assert kept_by(again.crash_clone(Random(inner))) == wanted
    assert cuts > 0


@pytest.mark.parametrize("seed", range(10, 14))
@pytest.mark.parametrize("death", ["kill", "power cut"])
def test_what_recovery_kept_is_durable(seed: int, death: str) -> None:
    """Power cuts right after an open, and again after a few more frames."""
    total = ops_of(seed)
    for stop in range(5, total, scaled(6, 3)):
        fs = SimFileSystem(Random(seed))
        fs.crash_after(stop)
        promises = Promises()
        with pytest.raises(SimCrash):
            workload(fs, promises, seed)
        rng = Random(stop)
        disk = fs.kill_clone() if death == "kill" else fs.crash_clone(rng)
        log = open_sim(disk)
        kept = [(frame.number, frame.payload) for frame in log.read()]
        assert kept_by(disk.crash_clone(rng)) == kept
        for sync in (True, False):
            number = log.append(payload(log.appended + 1), sync=sync)
            log.step()
            if sync:
                kept.append((number, payload(number)))
            survivors = kept_by(disk.crash_clone(rng))
            assert survivors[: len(kept)] == kept
            assert len(survivors) <= len(kept) + 1


def kept_by(fs: SimFileSystem) -> list[tuple[int, bytes]]:
    log = open_sim(fs)
    return [(frame.number, frame.payload) for frame in log.read()]


def test_same_seed_same_bytes() -> None:
    def run() -> tuple[dict[str, bytes], list[object]]:
        fs = SimFileSystem(Random(3))
        fs.crash_after(100)
        with pytest.raises(SimCrash):
            workload(fs, Promises(), 3)
        clone = fs.crash_clone(Random(4))
        return clone.contents(), list(fs.history)

    assert run() == run()


@pytest.mark.parametrize("seed", range(3))
def test_power_cut_on_a_full_disk(seed: int) -> None:
    """Refusals for want of space leave nothing behind that a crash could bring up."""
    for stop in range(20, 140, 3):
        fs = SimFileSystem(Random(seed), capacity_bytes=22_000)
        fs.crash_after(stop)
        promises = Promises()
        refused = 0
        try:
            log = open_sim(fs)
            for _ in range(60):
                body = payload(log.appended + 1)
                try:
                    promises.appended[log.append(body, sync=True)] = body
                except WalFull:
                    refused += 1
                log.step()
                promises.note(log)
                if refused % 5 == 4:
                    promises.dropped_to = log.segments()[-1].first
                    log.drop_before(log.segment)
        except SimCrash:
            pass
        clone = fs.crash_clone(Random(stop))
        clone.capacity_bytes = None
        check_survivors(clone, promises, promises.durable)
