"""`python -m wal`: what it prints and how it exits."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wal import Log
from wal.__main__ import main
from wal.format import HEADER_BYTES, frame_bytes


@pytest.fixture
def directory(tmp_path: Path) -> str:
    log = Log.open(str(tmp_path))
    for payload in (b"one", "zwölf\n".encode(), b"\xff" * 100):
        log.append(payload, sync=True)
        log.step()
    log.roll()
    log.append(b"four", sync=True)
    log.close()
    return str(tmp_path)


def run(*arguments: str) -> tuple[int, list[str]]:
    out = io.StringIO()
    status = main(list(arguments), out)
    return status, out.getvalue().splitlines()


def flip(directory: str, segment: int, offset: int) -> None:
    with open(os.path.join(directory, f"{segment:020d}.wal"), "r+b") as file:
        file.seek(offset)
        file.write(b"!")


def test_dump(directory: str) -> None:
    status, lines = run("dump", directory)
    assert status == 0
    assert [line.split() for line in lines] == [
        ["frame", "segment", "offset", "bytes"],
        ["1", "1", "4096", "3"],
        ["2", "1", "4136", "7"],
        ["3", "1", "4176", "100"],
        ["4", "2", "4096", "4"],
    ]


def test_dump_with_payload(directory: str) -> None:
    _, lines = run("dump", directory, "--payload")
    assert [line.split(maxsplit=4)[4] for line in lines[1:]] == [
        "one", "zwölf\\n", "\\xff" * 60 + "...", "four",
    ]  # fmt: skip


def test_dump_as_json(directory: str) -> None:
    _, lines = run("dump", directory, "--json", "--payload")
    rows = [json.loads(line) for line in lines]
    assert rows[0] == {"frame": 1, "segment": 1, "offset": 4096, "bytes": 3, "payload": "one"}
    assert rows[1]["payload"] == "zwölf\n"
    _, lines = run("dump", directory, "--json")
    assert "payload" not in json.loads(lines[0])


def test_verify(directory: str) -> None:
    status, lines = run("verify", directory)
    assert status == 0
    assert lines[-1] == "good: 4 frames in 2 segments"
    assert "good, 3 frames" in lines[0]


def test_verify_finds_damage(directory: str, capsys: pytest.CaptureFixture[str]) -> None:
    flip(directory, 1, HEADER_BYTES + frame_bytes(3) + 33)
    status, lines = run("verify", directory)
    assert status == 1
    assert lines[-1].startswith("DAMAGED: 2 frames")
    assert f"{1:020d}.wal: damaged at byte 4136" in lines[0]
    status, lines = run("verify", directory, "--json")
    first, second = map(json.loads, lines)
    assert status == 1
    assert (first["outcome"], first["offset"], first["case"]) == (
        "refuse",
        4136,
        "D1 damaged inner",
    )
    assert (second["segment"], second["frames"]) == (2, 1)
    status, lines = run("dump", directory)
    assert status == 1
    assert len(lines) == 3, "what is good before the damage and in other segments is shown"
    assert "damaged at byte 4136" in capsys.readouterr().err


def test_a_torn_tail_is_no_damage(directory: str) -> None:
    flip(directory, 2, HEADER_BYTES + 33)
    status, lines = run("verify", directory)
    assert status == 1, "the note of the log says that this frame was synced"
    Path(directory, "HEAD").unlink()
    status, lines = run("verify", directory)
    assert status == 0
    assert "torn tail at byte 4096 that the next open will cut" in lines[1]


def test_nothing_is_changed_and_no_lock_is_taken(directory: str) -> None:
    log = Log.open(directory)
    log.append(b"x", sync=True)
    log.step()
    before = {name: Path(directory, name).read_bytes() for name in os.listdir(directory)}
    assert run("verify", directory)[0] == 0
    assert len(run("dump", directory)[1]) == 6
    assert {name: Path(directory, name).read_bytes() for name in os.listdir(directory)} == before
    log.close()


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_wrong_directories(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, str(tmp_path / "none")) == (2, [])
    assert "is not a directory" in capsys.readouterr().err
    assert run(command, str(tmp_path)) == (2, [])
    assert "holds no log" in capsys.readouterr().err


def test_as_a_command(directory: str) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "wal", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert command("verify", directory).returncode == 0
    assert command().returncode == 2
    assert "usage" in command("sing", directory).stderr
    assert "dump" in command("--help").stdout
