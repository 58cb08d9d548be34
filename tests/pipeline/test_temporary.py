"""Temporary directories: gone after the work, and after a process that was killed at it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from logqueue.pipeline.engines.duckdb.connection import opened
from logqueue.pipeline.storage.temporary import PREFIX, temporary_folder

PROGRAM = """
import os, signal
from logqueue.pipeline.storage.temporary import temporary_folder

with temporary_folder() as folder:
    open(os.path.join(folder, "rows"), "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_goes_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "other").mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "other")
    killed = subprocess.run([sys.executable, "-c", PROGRAM], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = (
        path for path in tmp_path.iterdir() if not path.is_symlink() and path.name != "other"
    )
    assert os.listdir(left) == ["rows"]
    with temporary_folder() as mine:
        assert not left.exists()
        with temporary_folder() as another:
            # What a live process holds stays.
            assert os.path.isdir(mine) and os.path.isdir(another)
    assert {path.name for path in tmp_path.iterdir()} == {"other", f"{PREFIX}link"}


def test_a_folder_that_another_process_swept_before_it_was_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    real = fcntl.flock
    taken: list[Path] = []

    def flock(fd: int, how: int) -> None:
        if not taken:
            taken.extend(tmp_path.iterdir())
            taken[0].rmdir()
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with temporary_folder() as made:
        assert os.path.isdir(made) and made != str(taken[0])


def test_what_a_database_spills_is_in_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with opened() as connection:
        (row,) = connection.execute("SELECT current_setting('temp_directory')").fetchall()
        assert Path(row[0]).parent == tmp_path and Path(row[0]).name.startswith(PREFIX)
    assert not any(tmp_path.iterdir())
