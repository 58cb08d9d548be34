"""The log as its owner sees it: numbers, rolling, space, dropping, the lock."""

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from wal import FrameTooLarge, Log, WalClosed, WalCorrupt, WalFull, WalLocked
from wal.format import HEADER_BYTES, frame_bytes
from wal.testing.simfs import SimFileSystem


def sim_log(fs: SimFileSystem, segment_bytes_max: int = 1 << 20) -> Log:
    return Log.open(
        "d", fs=fs, segment_bytes_max=segment_bytes_max, random_bytes=Random(1).randbytes
    )


def drain(log: Log) -> None:
    while log.step():
        pass


def test_a_new_log_is_empty(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    log = Log.open(str(directory))
    assert (log.appended, log.written, log.durable, log.segment) == (0, 0, 0, 1)
    assert list(log.read()) == []
    assert log.bytes_total == HEADER_BYTES
    assert log.failure is None
    assert len(log.identity) == 16
    identity = log.identity
    log.close()
    with Path(directory, f"{1:020d}.wal").open("rb") as file:
        assert len(file.read()) == HEADER_BYTES
    log = Log.open(str(directory))
    assert log.identity == identity
    log.close()


def test_what_was_appended_is_read_back_in_order(tmp_path: Path) -> None:
    payloads: list[bytes | list[bytes]] = [
        b"", b"a", b"12345678", [b"one", b"", b"two"], [], b"x" * 100_000,
    ]  # fmt: skip
    log = Log.open(str(tmp_path))
    numbers = [log.append(payload, sync=False) for payload in payloads]
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert list(log.read()) == [], "not written yet"
    drain(log)
    expected = [p if isinstance(p, bytes) else b"".join(p) for p in payloads]
    assert [frame.payload for frame in log.read()] == expected
    log.close()
    log = Log.open(str(tmp_path))
    assert [(f.number, f.segment) for f in log.read()] == [(n, 1) for n in numbers]
    assert log.append(b"on", sync=True) == 7
    log.close()
    log = Log.open(str(tmp_path))
    assert [f.payload for f in log.read()] == [*expected, b"on"]
    log.close()


def test_preallocation_is_given_back_at_close(tmp_path: Path) -> None:
    log = Log.open(str(tmp_path))
    log.append(b"a" * 100, sync=True)
    drain(log)
    path = log.segments()[0].path
    assert os.path.getsize(path) == HEADER_BYTES + (4 << 20)
    log.close()
    assert os.path.getsize(path) == HEADER_BYTES + frame_bytes(100) == log.bytes_total


def test_rolling() -> None:
    size = frame_bytes(1000)
    log = sim_log(SimFileSystem(Random(1)), HEADER_BYTES + 2 * size)
    where = []
    for _ in range(5):
        rolls = log.will_roll(1000)
        before = log.segment
        log.append(b"x" * 1000, sync=False)
        assert rolls is (log.segment != before)
        where.append(log.segment)
    assert where == [1, 1, 2, 2, 3]
    assert not log.will_roll(0)
    log.append(b"x" * 50_000, sync=False)
    assert log.segment == 4, "a frame over the size of a segment gets its own"
    assert log.will_roll(0)
    log.append(b"x", sync=False)
    assert log.segment == 5
    log.roll()
    assert log.segment == 6
    log.roll()
    assert log.segment == 6, "an empty segment is not sealed"
    drain(log)
    infos = log.segments()
    assert [info.id for info in infos] == [1, 2, 3, 4, 5, 6]
    assert [info.first for info in infos] == [1, 3, 5, 6, 7, 8]
    assert [info.sealed for info in infos] == [True] * 5 + [False]
    assert [info.last for info in infos] == [2, 4, 5, 6, 7, 7]
    assert all(info.header_durable for info in infos), "all was written"
    assert sum(info.bytes for info in infos) == log.bytes_total
    assert log.stats.rotations == 5
    assert [frame.segment for frame in log.read()] == [1, 1, 2, 2, 3, 4, 5]


def test_progress_counts_to_the_total() -> None:
    log = sim_log(SimFileSystem(Random(1)))
    for _ in range(3):
        log.append(b"x" * 100, sync=False)
        log.roll()
    drain(log)
    seen: list[tuple[int, int]] = []
    list(log.read(lambda done, total: seen.append((done, total))))
    each = HEADER_BYTES + frame_bytes(100)
    assert seen == [(each, 3 * each), (2 * each, 3 * each), (3 * each, 3 * each)]


def test_dropping_frees_whole_segments_and_numbers_go_on() -> None:
    fs = SimFileSystem(Random(1))
    log = sim_log(fs)
    for _ in range(4):
        log.append(b"x" * 100, sync=False)
        log.roll()
    each = HEADER_BYTES + frame_bytes(100)
    assert log.drop_before(99) == 0, "nothing is dropped whose successor is not begun"
    drain(log)
    assert log.drop_before(3) == 2 * each
    assert log.drop_before(3) == 0
    assert [frame.number for frame in log.read()] == [3, 4]
    assert log.drop_before(99) == 2 * each
    assert log.bytes_total == HEADER_BYTES
    log.close()
    log = sim_log(fs)
    assert (log.appended, log.segment) == (4, 5), "numbers outlive the frames"
    assert list(log.read()) == []
    assert log.append(b"on", sync=True) == 5


def test_a_removal_that_fails_leaves_the_log_in_order() -> None:
    fs = SimFileSystem(Random(1))
    log = sim_log(fs)
    for _ in range(3):
        log.append(b"x", sync=False)
        log.roll()
    drain(log)
    fs.fail_when(lambda op: OSError(errno.EACCES, "no") if op.kind == "remove" else None)
    with pytest.raises(OSError, match="no"):
        log.drop_before(99)
    assert log.failure is None
    assert [frame.number for frame in log.read()] == [1, 2, 3]
    fs.fail_when(lambda op: None)
    log.drop_before(99)
    assert list(log.read()) == []


def test_too_large_is_refused_before_anything(tmp_path: Path) -> None:
    log = Log.open(str(tmp_path), frame_bytes_max=100)
    for payload in (b"x" * 101, [b"x" * 50, b"x" * 51]):
        with pytest.raises(FrameTooLarge, match="101"):
            log.append(payload, sync=True)
    assert log.append(b"x" * 100, sync=True) == 1
    log.close()


def test_second_opener_is_refused(tmp_path: Path) -> None:
    log = Log.open(str(tmp_path))
    with pytest.raises(WalLocked, match=f"in use by process {os.getpid()}"):
        Log.open(str(tmp_path))
    log.close()
    Log.open(str(tmp_path)).close()


def test_the_lock_dies_with_the_process(tmp_path: Path) -> None:
    script = (
        "import os, sys; from wal import Log; log = Log.open(sys.argv[1]);"
        "log.append(b'kept', sync=False); log.append(b'too', sync=False);"
        "log.step(); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == 9
    log = Log.open(str(tmp_path))
    assert [frame.payload for frame in log.read()] == [b"kept", b"too"]
    log.close()


def test_closed() -> None:
    log = sim_log(SimFileSystem(Random(1)))
    log.close()
    for refused in (lambda: log.append(b"a", sync=True), log.roll, lambda: log.drop_before(1)):
        with pytest.raises(WalClosed):
            refused()


def test_reading_notices_what_changed_since_open(tmp_path: Path) -> None:
    log = Log.open(str(tmp_path))
    log.append(b"a" * 100, sync=True)
    log.append(b"b" * 100, sync=True)
    drain(log)
    with open(log.segments()[0].path, "r+b") as file:
        file.seek(HEADER_BYTES + frame_bytes(100) + 40)
        file.write(b"!")
    frames = log.read()
    assert next(frames).payload == b"a" * 100
    with pytest.raises(WalCorrupt) as caught:
        next(frames)
    assert caught.value.offset == HEADER_BYTES + frame_bytes(100)
    log.close()


def fill(log: Log, *, spare_bytes: int = 0) -> int:
    """Append until the disk is full; how many fitted."""
    count = 0
    while True:
        before = (log.appended, log.segment, log.bytes_total)
        try:
            log.append(b"x" * 1000, sync=True, spare_bytes=spare_bytes)
        except WalFull:
            assert (log.appended, log.segment, log.bytes_total) == before, "nothing changed"
            return count
        count += 1
        assert log.step()
        assert log.failure is None


@pytest.mark.parametrize("segment_bytes_max", [10_000, 1 << 20])
def test_full_disk_is_a_refusal_and_passes(segment_bytes_max: int) -> None:
    fs = SimFileSystem(Random(1), capacity_bytes=70_000)
    log = sim_log(fs, segment_bytes_max)
    fitted = fill(log)
    assert fitted >= 30
    assert fill(log) == 0
    assert log.stats.refused == 2
    fs.capacity_bytes = 130_000
    more = fill(log)
    assert more >= 30
    log.close()
    log = sim_log(fs, segment_bytes_max)
    assert log.appended == fitted + more


@pytest.mark.parametrize("segment_bytes_max", [10_000, 1 << 20])
def test_space_to_spare_is_there_for_those_who_ask_for_none(segment_bytes_max: int) -> None:
    """Deletes must get through on a full disk, or it would stay full."""
    fs = SimFileSystem(Random(1), capacity_bytes=68_192)
    log = sim_log(fs, segment_bytes_max)
    fill(log, spare_bytes=5 * frame_bytes(1000))
    assert fill(log) >= 5


def test_full_disk_when_rolling() -> None:
    fs = SimFileSystem(Random(1), capacity_bytes=HEADER_BYTES + 5000)
    log = sim_log(fs)
    log.append(b"x", sync=True)
    drain(log)
    fs.capacity_bytes = HEADER_BYTES + 4000
    with pytest.raises(WalFull):
        log.roll()
    assert log.segment == 1
    assert len(fs.listdir("d")) == 2, "no stray file stays"
    fs.capacity_bytes = None
    log.roll()
    assert log.segment == 2


def test_a_disk_that_cannot_allocate_poisons_when_full() -> None:
    fs = SimFileSystem(Random(1), capacity_bytes=20_000)
    fs.fail_when(lambda op: OSError(errno.EOPNOTSUPP, "cannot") if op.kind == "allocate" else None)
    log = sim_log(fs)
    for _ in range(20):
        log.append(b"x" * 1000, sync=True)
    log.step()
    assert isinstance(log.failure, OSError)
    assert log.failure.errno == errno.ENOSPC


def test_full_disk_on_a_real_file_system(tmp_path: Path) -> None:
    """A limit on file sizes stands in for a disk that is full."""
    log = Log.open(str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        fitted = fill(log)
        assert 80 < fitted < 100
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert log.append(b"space again", sync=True) == fitted + 1
    log.close()
    log = Log.open(str(tmp_path))
    assert log.appended == fitted + 1
    log.close()


def test_no_space_for_a_new_log() -> None:
    fs = SimFileSystem(Random(1), capacity_bytes=1000)
    with pytest.raises(WalFull):
        sim_log(fs)
    fs.capacity_bytes = None
    assert sim_log(fs).appended == 0


def test_watermark_tells_what_was_durable(tmp_path: Path) -> None:
    """Two frames in one round carry the watermark of before; the next one carries theirs."""
    log = Log.open(str(tmp_path))
    for _ in range(2):
        log.append(b"12345678", sync=True)
    drain(log)
    log.append(b"12345678", sync=True)
    log.close()
    data = Path(log.segments()[0].path).read_bytes()
    size = frame_bytes(8)
    marks = [HEADER_BYTES + at * size + 16 for at in range(3)]
    assert [int.from_bytes(data[at : at + 8], "little") for at in marks] == [0, 0, 2]


def test_a_full_disk_has_room_for_a_roll_where_frames_left_space() -> None:
    """What the active segment holds back is the very space its successor needs."""
    fs = SimFileSystem(Random(1), capacity_bytes=HEADER_BYTES + 50_000)
    log = sim_log(fs, 1 << 20)
    fill(log, spare_bytes=20_000)
    before = log.appended
    log.roll()
    assert log.append(b"x" * 1000, sync=True) == before + 1
    drain(log)
    assert log.segment == 2
    log.drop_before(2)
    assert fill(log) > 20
