"""The file layer on real files: whole reads and writes, directory syncs, the lock."""

import errno
import os
from pathlib import Path

import pytest

from wal import OsFileSystem
from wal.files import CANNOT_LINK


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths that were synced, with the call that did it."""
    calls: list[str] = []

    def spy(name: str) -> None:
        def call(fd: int) -> None:
            calls.append(f"{name} {os.path.basename(os.readlink(f'/proc/self/fd/{fd}'))}")

        monkeypatch.setattr(os, name, call)

    spy("fsync")
    spy("fdatasync")
    return calls


def test_first_sync_of_a_new_file_syncs_its_directory(tmp_path: Path, synced: list[str]) -> None:
    fs = OsFileSystem()
    file = fs.create(str(tmp_path / "new"))
    file.pwrite(b"a", 0)
    file.sync()
    file.sync()
    file.close()
    old = fs.open(str(tmp_path / "new"), writable=True)
    old.sync()
    old.close()
    assert synced == ["fsync new", f"fsync {tmp_path.name}", "fdatasync new", "fdatasync new"]


def test_a_cut_is_synced_with_the_size(tmp_path: Path, synced: list[str]) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    file = OsFileSystem().open(str(tmp_path / "f"), writable=True)
    file.truncate(2)
    file.sync()
    file.sync()
    file.close()
    assert synced == ["fsync f", "fdatasync f"]


def test_new_directories_are_durable(tmp_path: Path, synced: list[str]) -> None:
    OsFileSystem().mkdir(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()
    assert synced == [f"fsync {tmp_path.name}", "fsync a"]
    OsFileSystem().mkdir(str(tmp_path / "a" / "b"))
    assert len(synced) == 2


def test_short_reads_and_writes_are_carried_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:3], at))
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(length, 2), at))
    file = OsFileSystem().create(str(tmp_path / "f"))
    file.pwrite(b"0123456789", 5)
    assert file.pread(10, 5) == b"0123456789"
    assert file.pread(100, 10) == b"56789"
    assert file.pread(10, 15) == b""
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="nothing was written"):
        file.pwrite(b"0123456789", 0)
    file.close()


def test_allocated_space_reads_as_zeros_and_keeps_what_is_there(tmp_path: Path) -> None:
    file = OsFileSystem().create(str(tmp_path / "f"))
    file.pwrite(b"abc", 0)
    file.allocate(0, 1000)
    assert file.size() == 1000
    assert file.pread(1000, 0) == b"abc" + bytes(997)
    file.close()
    file.close()


def test_a_system_without_allocation_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    file = OsFileSystem().create(str(tmp_path / "f"))
    with pytest.raises(OSError) as caught:
        file.allocate(0, 10)
    assert caught.value.errno == errno.EOPNOTSUPP
    file.close()


def test_lock_and_its_note(tmp_path: Path) -> None:
    fs = OsFileSystem()
    path = str(tmp_path / "LOCK")
    lock = fs.lock(path)
    assert lock.note() == ""
    lock.set_note("a longer note")
    lock.set_note("12 boot")
    with pytest.raises(BlockingIOError) as caught:
        fs.lock(path)
    assert caught.value.strerror == "12 boot"
    lock.release()
    lock.release()
    again = fs.lock(path)
    assert again.note() == "12 boot"
    again.release()


def test_names(tmp_path: Path) -> None:
    fs = OsFileSystem()
    for name in ("b", "a"):
        fs.create(str(tmp_path / name)).close()
    fs.rename(str(tmp_path / "b"), str(tmp_path / "c"))
    fs.remove(str(tmp_path / "a"))
    fs.sync_dir(str(tmp_path))
    assert fs.listdir(str(tmp_path)) == ["c"]
    assert fs.boot_id() == fs.boot_id()


def test_a_second_name(tmp_path: Path, synced: list[str]) -> None:
    fs = OsFileSystem()
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    (tmp_path / "old").write_bytes(b"abc")
    fs.link(old, new)
    assert os.path.samefile(old, new) and not synced, "durable only once the directory is synced"
    with pytest.raises(FileExistsError):
        fs.link(old, new)
    with pytest.raises(FileNotFoundError):
        fs.link(str(tmp_path / "none"), str(tmp_path / "other"))
    fs.remove(old)
    assert (tmp_path / "new").read_bytes() == b"abc"


def test_what_can_not_be_linked_is_told_apart() -> None:
    assert {errno.EXDEV, errno.EPERM, errno.ENOTSUP} <= CANNOT_LINK
    assert not CANNOT_LINK & {errno.ENOSPC, errno.EACCES, errno.EEXIST, errno.ENOENT, errno.EIO}
