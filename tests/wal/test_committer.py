"""Group commit, one round at a time; poison; and the thread."""

import errno
import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from wal import Log, WalClosed, WalFailed
from wal.committer import LARGE_BYTES, ROUND_BYTES_MAX
from wal.segment import LogSegment
from wal.testing.simfs import Op, SimFileSystem


def sim(segment_bytes_max: int = 1 << 20) -> tuple[SimFileSystem, Log]:
    fs = SimFileSystem(Random(1))
    log = Log.open(
        "d", fs=fs, segment_bytes_max=segment_bytes_max, random_bytes=Random(1).randbytes
    )
    fs.history.clear()
    return fs, log


def kinds(fs: SimFileSystem) -> list[str]:
    """What was done since last asked, allocation and the note of the log aside."""
    done = [op.kind for op in fs.history if op.kind != "allocate" and "HEAD" not in op.path]
    fs.history.clear()
    return done


def state(log: Log) -> tuple[int, int, int]:
    return log.appended, log.written, log.durable


def test_one_write_and_one_sync_carry_many_frames() -> None:
    fs, log = sim()
    for at in range(100):
        log.append(b"x" * at, sync=at % 7 == 0)
    assert state(log) == (100, 0, 0)
    assert log.step()
    assert kinds(fs) == ["pwrite", "sync"]
    assert state(log) == (100, 100, 100)
    assert not log.step()
    assert (log.stats.rounds, log.stats.syncs, log.stats.frames) == (1, 1, 100)


def test_the_note_of_the_log_is_written_before_those_who_wait_for_a_sync_are_woken() -> None:
    """Behind that the thread rests: it does not compete with those who go on."""
    fs, log = sim()
    heard: list[tuple[int, int, int]] = []

    def hear() -> None:
        heard.append((log.written, log.durable, len(fs.history)))

    log._committer._on_advance = hear
    log.append(b"x", sync=True)
    assert log.step()
    assert [(written, durable) for written, durable, _ in heard] == [(1, 0), (1, 1)]
    assert len(fs.history) == heard[-1][2]


def test_frames_are_synced_only_when_someone_asks() -> None:
    fs, log = sim()
    transcript: list[tuple[Callable[[], object], list[str], tuple[int, int, int]]] = [
        # what is done, operations of the round after it, appended, written, durable
        (lambda: log.append(b"a", sync=False), ["pwrite"], (1, 1, 0)),
        (lambda: log.append(b"b", sync=False), ["pwrite"], (2, 2, 0)),
        (lambda: None, [], (2, 2, 0)),
        (lambda: log.sync(), ["sync"], (2, 2, 2)),
        (lambda: log.sync(), [], (2, 2, 2)),
        (lambda: log.append(b"c", sync=True), ["pwrite", "sync"], (3, 3, 3)),
        (lambda: log.append(b"d", sync=False), ["pwrite"], (4, 4, 3)),
        (lambda: log.append(b"e", sync=True), ["pwrite", "sync"], (5, 5, 5)),
    ]
    for do, operations, expected in transcript:
        do()
        assert log.step() is bool(operations)
        assert (kinds(fs), state(log)) == (operations, expected)


def test_a_roll_seals_before_the_next_segment_is_begun() -> None:
    fs, log = sim()
    log.append(b"a", sync=False)
    log.roll()
    log.append(b"b", sync=False)
    kinds(fs)
    assert log.step()
    operations = [(op.kind, os.path.basename(op.path).lstrip("0").partition(".")[0])
                  for op in fs.history]  # fmt: skip
    assert operations == [
        ("pwrite", "1"), ("truncate", "1"), ("sync", "1"),
        ("pwrite", "2"), ("sync", "2"), ("sync_dir", "d"), ("pwrite", "HEAD"), ("sync", "HEAD"),
        ("pwrite", "2"), ("pwrite", "HEAD"),
    ], "the first sync of a file syncs its name, then the note knows of it"  # fmt: skip
    assert state(log) == (2, 2, 1)


def test_the_note_is_never_synced_for_a_write() -> None:
    fs, log = sim()
    for _ in range(3):
        log.append(b"a", sync=True)
        log.step()
    done = [op.kind for op in fs.history if "HEAD" in op.path]
    assert done == ["pwrite"] * 3


def test_a_round_is_bounded_in_bytes_and_a_sync_covers_all_that_was_asked() -> None:
    fs, log = sim(1 << 30)
    half = b"x" * (ROUND_BYTES_MAX // 2)
    for _ in range(5):
        log.append(half, sync=False)
    log.sync()
    rounds = []
    while log.step():
        rounds.append(state(log)[1:])
    assert rounds == [(2, 0), (4, 0), (5, 5)]
    assert kinds(fs) == 10 * ["pwrite"] + ["sync"], "large payloads are written as they are"


def test_a_large_payload_is_neither_copied_nor_summed_by_whoever_appends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs, log = sim(1 << 30)
    summed: list[int] = []
    written: list[bytes] = []

    def crc32(data: bytes, start: int = 0) -> int:
        summed.append(len(data))
        return zlib.crc32(data, start)

    write = LogSegment.write

    def watched(segment: LogSegment, data: bytes, offset: int) -> None:
        written.append(data)
        write(segment, data, offset)

    monkeypatch.setattr("wal.log.crc32", crc32)
    monkeypatch.setattr(LogSegment, "write", watched)
    large = Random(2).randbytes(LARGE_BYTES)
    payloads: list[list[bytes]] = [[b"a"], [b"bc", large, b"d"], [large], [b"e" * 9], [b"f", large]]
    for parts in payloads:
        log.append(parts, sync=True)
    assert sum(summed) < 1000
    while log.step():
        pass
    assert sum(any(data is part for part in (large,)) for data in written) == 3
    whole = [b"".join(parts) for parts in payloads]
    assert [frame.payload for frame in log.read()] == whole
    log.close()
    log = Log.open("d", fs=fs, segment_bytes_max=1 << 30)
    assert [frame.payload for frame in log.read()] == whole
    log.close()


def test_listener_hears_written_and_then_durable() -> None:
    _, log = sim()
    heard = []
    log._committer._on_advance = lambda: heard.append((log.written, log.durable))
    log.append(b"a", sync=True)
    log.step()
    log.append(b"b", sync=False)
    log.step()
    assert heard == [(1, 0), (1, 1), (2, 1)]


def test_sync_hook_gets_seconds() -> None:
    _, log = sim()
    seconds: list[float] = []
    log.stats.on_sync = seconds.append
    log.append(b"a", sync=True)
    log.step()
    assert len(seconds) == 1
    assert seconds[0] >= 0


@pytest.mark.parametrize("kind", ["pwrite", "sync", "truncate", "sync_dir"])
def test_every_operation_that_fails_in_a_round_poisons(kind: str) -> None:
    """And is never tried again; what was durable stays so."""
    fs, log = sim()
    log.append(b"durable", sync=True)
    log.step()
    heard = []
    log._committer._on_advance = lambda: heard.append(log.failure)
    fs.fail_when(lambda op: OSError(errno.EIO, "bad disk") if op.kind == kind else None)
    log.append(b"a", sync=True)
    log.roll()
    log.append(b"b", sync=True)
    assert log.step()
    assert isinstance(log.failure, OSError)
    assert heard[-1] is log.failure, "waiters learn"
    assert fs.failures == 1
    fs.fail_when(lambda op: None)
    before = fs.ops
    assert log.durable >= 1
    for refused in (lambda: log.append(b"c", sync=True), log.roll, lambda: log.drop_before(9)):
        with pytest.raises(WalFailed, match="bad disk") as caught:
            refused()
        assert caught.value.__cause__ is log.failure
    log.sync()
    assert not log.step()
    assert log.appended == 3
    log.close()
    assert fs.ops == before, "no operation after the failure"
    with pytest.raises(WalClosed):
        log.append(b"d", sync=True)
    kept = [frame.payload for frame in Log.open("d", fs=fs.crash_clone(Random(2))).read()]
    assert kept[0] == b"durable"


def test_every_single_operation_may_fail() -> None:
    """A sweep: whatever fails and wherever, durable frames survive the power cut after it."""

    def run(fs: SimFileSystem) -> int:
        durable = 0
        try:
            log = Log.open("d", fs=fs, segment_bytes_max=4500, random_bytes=Random(1).randbytes)
            for at in range(12):
                log.append(b"x" * 100, sync=at % 2 == 0)
                log.step()
                durable = log.durable
            log.drop_before(log.segment - 1)
            durable = log.durable
            log.close()
        except (OSError, WalFailed):
            pass
        return durable

    good = SimFileSystem(Random(1))
    assert run(good) == 11
    for at in range(1, good.ops + 1):
        fs = SimFileSystem(Random(1))

        def fails(op: Op, at: int = at) -> OSError | None:
            return OSError(errno.EIO, "bad disk") if op.number == at else None

        fs.fail_when(fails)
        durable = run(fs)
        assert fs.failures == 1
        for cut in range(4):
            log = Log.open("d", fs=fs.crash_clone(Random(f"{at}/{cut}")))
            assert log.appended >= durable


def test_a_failed_sync_is_not_made_good_by_a_later_one() -> None:
    """Why there is poison: the sim disk forgets the pages of a failed sync, as Linux does."""
    fs, log = sim()
    log.append(b"a" * 3000, sync=True)
    fs.fail_when(lambda op: OSError(errno.EIO, "bad disk") if op.kind == "sync" else None)
    log.step()
    fs.fail_when(lambda op: None)
    fs.open(log.segments()[0].path).sync()
    after = Log.open("d", fs=fs.crash_clone(Random(1)))
    assert after.appended == 0


def test_close_drains_and_reports_failure() -> None:
    fs, log = sim()
    log.append(b"a", sync=False)
    log.close()
    log.close()
    assert state(log) == (1, 1, 1)
    log = Log.open("d", fs=fs)
    log.append(b"b", sync=False)
    fs.fail_when(lambda op: OSError(errno.EIO, "bad disk") if op.kind == "truncate" else None)
    with pytest.raises(WalFailed):
        log.close()
    fs.fail_when(lambda op: None)
    Log.open("d", fs=fs).close()


def test_thread_with_many_appenders(tmp_path: Path) -> None:
    log = Log.open(str(tmp_path), segment_bytes_max=100_000)
    advanced = threading.Condition()

    def on_advance() -> None:
        with advanced:
            advanced.notify_all()

    log.start(on_advance)
    given: list[list[int]] = [[] for _ in range(4)]

    def appender(me: int) -> None:
        for at in range(1000):
            given[me].append(log.append(b"%d %d" % (me, at), sync=at % 10 == 0))
            if at % 100 == 0:
                with advanced:
                    assert advanced.wait_for(lambda: log.durable >= given[me][-1], 30)

    threads = [threading.Thread(target=appender, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert sorted(n for numbers in given for n in numbers) == list(range(1, 4001))
    assert log.stats.rounds <= log.stats.frames == 4000
    again = Log.open(str(tmp_path))
    frames = {frame.number: frame.payload for frame in again.read()}
    for me, numbers in enumerate(given):
        assert numbers == sorted(numbers)
        assert [frames[n] for n in numbers] == [b"%d %d" % (me, at) for at in range(1000)]
    again.close()


def test_thread_tells_of_failure() -> None:
    fs, log = sim()
    failed = threading.Event()
    log.start(lambda: failed.set() if log.failure else None)
    fs.fail_when(lambda op: OSError(errno.EIO, "bad disk") if op.kind == "sync" else None)
    log.append(b"a", sync=True)
    assert failed.wait(30)
    with pytest.raises(WalFailed):
        log.append(b"b", sync=True)
    log.close()


def test_appender_that_poisons_wakes_the_waiters() -> None:
    fs, log = sim()
    failed = threading.Event()
    log.start(lambda: failed.set() if log.failure else None)
    fs.fail_when(lambda op: OSError(errno.EIO, "bad disk") if op.kind == "allocate" else None)
    with pytest.raises(WalFailed):
        log.append(b"a", sync=True)
    assert failed.wait(30)
    log.close()


def test_listener_that_raises_is_heard_and_does_not_stop_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: heard.append(args.exc_value))
    fs, log = sim()

    def broken() -> None:
        raise RuntimeError("loop is closed")

    log.start(broken)
    log.append(b"a", sync=True)
    log.close()
    assert log.durable == 1
    assert [str(error) for error in heard] == ["loop is closed"] * 2
    assert Log.open("d", fs=fs).appended == 1
