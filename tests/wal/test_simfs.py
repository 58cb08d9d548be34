"""The simulated disk keeps its own promises, or the crash tests prove nothing."""

import errno
from collections.abc import Callable
from random import Random

import pytest

from wal.testing.simfs import BLOCK_BYTES, SimCrash, SimFileSystem


def crashes(fs: SimFileSystem, count: int = 200) -> list[dict[str, bytes]]:
    return [fs.crash_clone(Random(seed)).contents() for seed in range(count)]


def disk() -> SimFileSystem:
    fs = SimFileSystem(Random(1))
    fs.mkdir("d")
    return fs


def test_synced_data_always_survives_and_other_data_by_chance() -> None:
    fs = disk()
    file = fs.create("d/f")
    file.pwrite(b"a" * BLOCK_BYTES * 2, 0)
    file.sync()
    file.pwrite(b"b" * BLOCK_BYTES * 2, BLOCK_BYTES)
    seen = {after["d/f"] for after in crashes(fs)}
    assert all(data[:BLOCK_BYTES] == b"a" * BLOCK_BYTES for data in seen)
    middles = {data[BLOCK_BYTES : 2 * BLOCK_BYTES] for data in seen}
    assert middles == {b"a" * BLOCK_BYTES, b"b" * BLOCK_BYTES}
    assert {len(data) for data in seen} == {2 * BLOCK_BYTES, 3 * BLOCK_BYTES}
    ends = {data[2 * BLOCK_BYTES :] for data in seen}
    assert ends == {b"", bytes(BLOCK_BYTES), b"b" * BLOCK_BYTES}
    assert len(seen) == 6, "and in every combination"


def test_names_survive_only_when_the_directory_was_synced() -> None:
    fs = disk()
    fs.create("d/synced").sync()
    fs.create("d/unsynced")
    fs.rename("d/synced", "d/renamed")
    names = {tuple(after) for after in crashes(fs)}
    assert names == {
        ("d/synced",), ("d/renamed",), ("d/synced", "d/unsynced"), ("d/renamed", "d/unsynced"),
    }  # fmt: skip
    fs.sync_dir("d")
    assert {tuple(after) for after in crashes(fs)} == {("d/renamed", "d/unsynced")}
    fs.remove("d/renamed")
    assert len({tuple(after) for after in crashes(fs)}) == 2


def test_what_was_cut_off_may_come_back_until_synced() -> None:
    fs = disk()
    file = fs.create("d/f")
    file.pwrite(b"a" * 1000, 0)
    file.sync()
    file.truncate(10)
    file.allocate(10, 990)
    assert fs.contents()["d/f"] == b"a" * 10 + bytes(990)
    assert b"a" * 1000 in {after["d/f"] for after in crashes(fs)}
    file.sync()
    assert {after["d/f"] for after in crashes(fs)} == {b"a" * 10 + bytes(990)}


def test_a_kill_keeps_everything_and_stays_unsynced() -> None:
    fs = disk()
    fs.create("d/f").pwrite(b"abc", 0)
    clone = fs.kill_clone()
    assert clone.contents() == fs.contents()
    assert clone.boot_id() == fs.boot_id() != fs.crash_clone(Random(1)).boot_id()
    assert {} in crashes(clone)
    clone.open("d/f").pwrite(b"xyz", 0)
    assert fs.contents() == {"d/f": b"abc"}
    clone.sync_dir("d")
    clone.open("d/f").sync()
    assert {after["d/f"] for after in crashes(clone)} == {b"xyz"}


def test_the_world_stops_at_the_operation_asked_for() -> None:
    fs = disk()
    file = fs.create("d/f")
    fs.crash_after(1)
    file.pwrite(b"done", 0)
    operations: list[Callable[[], object]] = [
        lambda: file.pwrite(b"0123456789", 4),
        lambda: file.sync(),
        lambda: fs.listdir("d"),
    ]
    for operation in operations:
        with pytest.raises(SimCrash):
            operation()
    assert fs.crashed
    assert fs.ops == 3
    data = fs.kill_clone().contents()["d/f"]
    assert b"done0123456789".startswith(data)
    assert data.startswith(b"done")


def test_failures_are_chosen_and_counted() -> None:
    fs = disk()
    file = fs.create("d/f")
    fs.fail_when(lambda op: OSError(errno.EIO, "bad") if op.offset == 4 else None)
    file.pwrite(b"1234", 0)
    with pytest.raises(OSError, match="bad"):
        file.pwrite(b"5678", 4)
    assert fs.failures == 1
    assert fs.contents()["d/f"] == b"1234"
    assert [op.kind for op in fs.history] == ["mkdir", "create", "pwrite", "pwrite"]


def test_pages_of_a_failed_sync_are_forgotten() -> None:
    fs = disk()
    file = fs.create("d/f")
    file.sync()
    file.pwrite(b"a" * 10, 0)
    fs.fail_when(lambda op: OSError(errno.EIO, "bad") if op.kind == "sync" else None)
    with pytest.raises(OSError, match="bad"):
        file.sync()
    fs.fail_when(lambda op: None)
    file.sync()
    assert file.pread(10, 0) == b"a" * 10
    assert {after["d/f"] for after in crashes(fs)} == {bytes(10)}


def test_capacity() -> None:
    fs = disk()
    fs.capacity_bytes = 100
    file = fs.create("d/f")
    file.allocate(0, 60)
    other = fs.create("d/g")
    other.pwrite(b"x" * 40, 0)
    growths: list[Callable[[], object]] = [
        lambda: file.allocate(60, 1),
        lambda: other.pwrite(b"xx", 39),
    ]
    for grow in growths:
        with pytest.raises(OSError) as caught:
            grow()
        assert caught.value.errno == errno.ENOSPC
    file.pwrite(b"x" * 60, 0)
    fs.remove("d/g")
    file.allocate(60, 40)


def test_missing_files_and_held_locks() -> None:
    fs = disk()
    missing: list[Callable[[], object]] = [
        lambda: fs.open("d/x"),
        lambda: fs.remove("d/x"),
        lambda: fs.listdir("x"),
    ]
    for operation in missing:
        with pytest.raises(FileNotFoundError):
            operation()
    lock = fs.lock("d/LOCK")
    lock.set_note("me")
    with pytest.raises(BlockingIOError, match="me"):
        fs.lock("d/LOCK")
    fs.kill_clone().lock("d/LOCK")
    lock.release()
    assert fs.lock("d/LOCK").note() == "me"


def test_a_second_name_leads_to_the_same_file() -> None:
    fs = disk()
    fs.mkdir("e")
    file = fs.create("d/f")
    file.pwrite(b"a" * 700, 0)
    file.sync()
    fs.link("d/f", "e/g")
    assert fs.history[-1][1:3] == ("link", "e/g")
    with pytest.raises(FileExistsError):
        fs.link("d/f", "e/g")
    with pytest.raises(FileNotFoundError):
        fs.link("d/none", "e/h")
    assert {tuple(after) for after in crashes(fs)} == {("d/f",), ("d/f", "e/g")}
    fs.sync_dir("e")
    assert {tuple(after) for after in crashes(fs)} == {("d/f", "e/g")}
    # One file: what is written by one name is read, synced and lost by both.
    fs.open("e/g").pwrite(b"b" * 700, 0)
    assert fs.contents()["d/f"] == b"b" * 700
    for after in crashes(fs):
        assert after["d/f"] == after["e/g"]
    assert len({after["d/f"] for after in crashes(fs)}) == 4, "block by block"
    clone = fs.kill_clone()
    clone.open("d/f").pwrite(b"c", 0)
    assert clone.contents()["e/g"][:1] == b"c" and fs.contents()["e/g"][:1] == b"b"
    fs.open("e/g").sync()
    fs.remove("d/f")
    assert fs.contents() == {"e/g": b"b" * 700}
    fs.sync_dir("d")
    assert {(*after.items(),) for after in crashes(fs)} == {(("e/g", b"b" * 700),)}


def test_several_names_take_the_space_of_one_file() -> None:
    fs = SimFileSystem(Random(1), capacity_bytes=1000)
    fs.mkdir("d")
    fs.create("d/f").pwrite(b"a" * 600, 0)
    fs.link("d/f", "d/g")
    fs.create("d/h").pwrite(b"a" * 400, 0)
    with pytest.raises(OSError, match="No space"):
        fs.create("d/i").pwrite(b"a", 0)
    fs.remove("d/f")
    with pytest.raises(OSError, match="No space"):
        fs.create("d/i").pwrite(b"a", 0)
    fs.remove("d/g")
    fs.create("d/i").pwrite(b"a" * 600, 0)
