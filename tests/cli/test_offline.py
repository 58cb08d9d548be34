"""`check`, `backup`, `restore`: data directories that no server has open."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logqueue.cli.overlay_fs import UnchangingFileSystem
from logqueue.client import Client, LostReply
from logqueue.core.invariants import Contradiction
from logqueue.testing.process import ServerProcess
from tests.cli.conftest import Cli


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server on a directory of this test's own, not started."""
    process = ServerProcess(tmp_path / "data")
    yield process
    process.kill()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with something in it, after an orderly stop; tests copy it."""
    directory = tmp_path_factory.mktemp("filled") / "data"
    server = ServerProcess(directory)
    try:
        fill(server)
        assert server.stop() == 0
    finally:
        server.kill()
    return directory


@pytest.fixture
def directory(filled: Path, tmp_path: Path) -> Path:
    """A directory of this test's own, as a server left it."""
    shutil.copytree(filled, tmp_path / "data")
    return tmp_path / "data"


def fill(server: ServerProcess) -> None:
    """Start a server, and write to it."""
    server.start()
    with Client(server.url) as client:
        client.put_topic("jobs", type="queue", durable=True)
        client.put_router("r", "log", "copy")
        client.append("jobs", range(10))
        client.append("log", ["x" * 1000] * 5)
        client.ack("jobs", client.claim("jobs", max=3).jobs)
        client.claim("jobs", max=2, lease_ms=60_000)


def picture(directory: Path) -> dict[str, bytes]:
    """Every file with its content."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def segment(directory: Path, log: str = "jobs") -> Path:
    """The segment that holds what was written."""
    return min((directory / log).glob("*.wal"))


def spoil(path: Path, offset: int) -> None:
    """Change one byte."""
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 0xFF]))


def test_a_sound_directory_is_counted(directory: Path, cli: Cli) -> None:
    before = picture(directory)
    shown = cli("check", str(directory))
    assert shown.status == 0 and shown.out.endswith(f"{directory}: sound\n")
    found = cli("check", str(directory), "--json").json
    assert found["sound"] is True and found["problems"] == []
    state = found["state"]
    assert (state["topics"], state["queues"], state["routers"]) == (3, 1, 1)
    assert (state["jobs"], state["records"]) == (7, 17)
    assert picture(directory) == before


def test_the_variable_of_the_server_names_the_directory(
    directory: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGQUEUE_DATA_DIR", str(directory))
    assert cli("check").status == 0


def test_damage_is_found_and_named(directory: Path, cli: Cli) -> None:
    spoil(segment(directory), 4200)
    before = picture(directory)
    shown = cli("check", str(directory))
    assert shown.status == 1
    assert f"PROBLEM: {segment(directory)}" in shown.out and "NOT SOUND" in shown.out
    found = cli("check", str(directory), "--json").json
    assert found["sound"] is False and found["state"] is None
    assert picture(directory) == before


def test_a_missing_segment_is_damage(own: ServerProcess, directory: Path, cli: Cli) -> None:
    own.start()
    own.stop()
    segment(directory).unlink()
    found = cli("check", str(directory), "--json")
    assert found.status == 1 and "missing" in str(found.json["problems"])


def test_a_torn_tail_is_no_damage_and_stays(own: ServerProcess, tmp_path: Path, cli: Cli) -> None:
    fill(own)
    own.kill()
    directory = tmp_path / "data"
    found = cli("check", str(directory), "--json").json
    end = found["logs"]["jobs"]["bytes"]
    newest = max((directory / "jobs").glob("*.wal"))
    with newest.open("r+b") as file:
        file.seek(end)
        file.write(b"half a frame")
    (directory / "jobs" / "LOCK").write_text("1 another-boot\n")
    before = picture(directory)
    torn = cli("check", str(directory), "--json")
    assert torn.status == 0 and torn.json["logs"]["jobs"]["torn_bytes"] > 0
    assert "will be cut" in cli("check", str(directory)).out
    assert picture(directory) == before


def test_a_server_keeps_everybody_out(own: ServerProcess, tmp_path: Path, cli: Cli) -> None:
    own.start()
    data = str(tmp_path / "data")
    for arguments in (
        ("check", data),
        ("restore", data, str(tmp_path / "copy")),
    ):
        refused = cli(*arguments)
        assert refused.status == 1 and "stop it first" in refused.err
    assert not (tmp_path / "copy").exists()
    own.stop()


def test_a_backup_is_restored_and_served(directory: Path, tmp_path: Path, cli: Cli) -> None:
    copy, again = tmp_path / "copy", tmp_path / "again"
    copy.mkdir()
    backed_up = cli("backup", str(directory), str(copy))
    assert backed_up.status == 0 and f"copied to {copy}" in backed_up.err
    assert f"{copy}: sound" in backed_up.out
    assert picture(copy) == picture(directory)
    restored = cli("restore", str(copy), str(again), "--json")
    assert restored.status == 0 and restored.json["state"]["jobs"] == 7
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        "again",
        "copy",
        "data",
    ]
    with ServerProcess(again) as served, Client(served.url) as client:
        assert client.topic("jobs").count == 7 and client.topic("copy").count == 5


def test_nothing_is_ever_written_over(directory: Path, tmp_path: Path, cli: Cli) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    for command in ("backup", "restore"):
        for target in (full, full / "file", tmp_path / "no" / "such"):
            refused = cli(command, str(directory), str(target))
            assert refused.status == 2, refused.err
    assert picture(full) == {"file": b""}


def test_a_damaged_directory_is_backed_up_but_not_restored(
    directory: Path, tmp_path: Path, cli: Cli
) -> None:
    spoil(segment(directory), 4200)
    copy = tmp_path / "copy"
    kept = cli("backup", str(directory), str(copy))
    assert kept.status == 1 and "true copy of a damaged directory" in kept.err
    assert picture(copy) == picture(directory)
    refused = cli("restore", str(copy), str(tmp_path / "again"))
    assert refused.status == 1 and "nothing was restored" in refused.err
    assert not (tmp_path / "again").exists()


def test_an_interrupted_copy_leaves_nothing(
    directory: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    before = sorted(os.listdir(tmp_path))
    monkeypatch.setattr(Path, "rename", full)
    ended = cli("backup", str(directory), str(tmp_path / "copy"))
    assert ended.status == 1 and "No space left on device" in ended.err
    assert sorted(os.listdir(tmp_path)) == before


def test_no_data_directory_is_status_3(tmp_path: Path, cli: Cli) -> None:
    ended = cli("check", str(tmp_path))
    assert ended.status == 3 and "is not a data directory" in ended.err


def test_what_is_written_to_the_pretence_stays_in_memory(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    before = picture(tmp_path)
    files = UnchangingFileSystem()

    def path(name: str) -> str:
        return str(tmp_path / name)

    written = files.open(path("a"), writable=True)
    written.pwrite(b"XY", 5)
    written.allocate(7, 2)
    assert files.open(path("a")).pread(100, 0) == b"abc\0\0XY\0\0"
    written.truncate(1)
    assert files.open(path("a")).size() == 1
    files.create(path("b")).pwrite(b"b", 0)
    files.rename(path("b"), path("c"))
    assert files.listdir(str(tmp_path)) == ["a", "c"]
    files.remove(path("a"))
    assert files.listdir(str(tmp_path)) == ["c"]
    with pytest.raises(FileNotFoundError):
        files.open(path("a"))
    assert files.create(path("a")).size() == 0
    assert files.listdir(path("nowhere")) == []
    assert picture(tmp_path) == before


def test_a_log_that_no_server_could_read_is_not_sound(
    directory: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logqueue.cli import check

    def broken(state: object) -> None:
        raise Contradiction("jobs: 7 live, its batches hold 8")

    monkeypatch.setattr(check, "check", broken)
    found = cli("check", str(directory), "--json")
    assert found.status == 1
    assert found.json["problems"] == [
        "the log contradicts itself: jobs: 7 live, its batches hold 8"
    ]


def test_soundness_does_not_rest_on_assertions(directory: Path) -> None:
    """With assertions switched off damage and contradictions are found all the same."""

    def checked(*options: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, *options, "-m", "logqueue", "check", str(directory), "--json"]
        return subprocess.run(program, capture_output=True, text=True, check=False)

    assert checked("-O").returncode == 0
    unsound = (
        "from logqueue.core.invariants import check, Contradiction\n"
        "from logqueue.model.config import TopicOptions\n"
        "from logqueue.core.state import State\n"
        "from logqueue.core.topic import Topic\n"
        "state = State()\n"
        "state.topics['a'] = state.instances[1] = topic = Topic(1, 'a', TopicOptions())\n"
        "state.next_topic = 2\n"
        "check(state)\n"
        "topic.cap_floor = 5\n"
        "try:\n"
        "    check(state)\n"
        "except Contradiction:\n"
        "    print('found')\n"
    )
    run = subprocess.run([sys.executable, "-O", "-c", unsound], capture_output=True, text=True)
    assert run.stdout == "found\n", run.stderr
    spoil(segment(directory), 4200)
    assert checked("-O").returncode == 1
    assert json.loads(checked("-O").stdout)["problems"] == json.loads(checked().stdout)["problems"]


@pytest.mark.parametrize("lost", ["jobs", "leases", "newest", "LOGS", "HEAD"])
def test_what_is_missing_is_told_and_nothing_is_changed(
    own: ServerProcess, directory: Path, cli: Cli, lost: str
) -> None:
    newest = max((directory / "jobs").glob("*.wal"))
    path = {"newest": newest, "HEAD": directory / "jobs" / "HEAD"}.get(lost, directory / lost)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = picture(directory)
    found = cli("check", str(directory), "--json")
    if lost == "LOGS":
        assert found.status == 0, "it is made anew while both logs are there"
        return
    assert found.status == 1 and "missing" in str(found.json["problems"])
    with pytest.raises(RuntimeError):
        own.start()
    assert picture(directory) == before


class Load(threading.Thread):
    """Writes, claims and acks until told to stop; knows what was answered."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.ended = threading.Event()
        self.written: list[int] = []
        self.acking: list[int] = []
        self.acked: list[int] = []
        self.number = 0

    def run(self) -> None:
        """Go on."""
        with Client(self.url) as client:
            while not self.ended.is_set():
                batch = range(self.number, self.number + 20)
                client.append("load", [{"n": n, "pad": "x" * 400} for n in batch])
                self.number += 20
                self.written.extend(batch)
                jobs = client.claim("load", max=15).jobs
                self.acking.extend(job.data["n"] for job in jobs)
                client.ack("load", jobs)
                self.acked.extend(job.data["n"] for job in jobs)


def test_a_backup_of_a_running_server(tmp_path: Path, cli: Cli) -> None:
    """Nothing that was answered before the copy began is missing from it."""
    server = ServerProcess(tmp_path / "data", SEGMENT_MAX_BYTES=str(1 << 20))
    server.start()
    load = Load(server.url)
    with Client(server.url) as client:
        client.put_topic("load", type="queue", durable=True)
    load.start()
    copies: list[tuple[Path, list[int], list[int]]] = []
    try:
        for round in range(3):
            while load.number < 3000 * (round + 1):
                load.ended.wait(0.01)
            copy = tmp_path / f"copy{round}"
            acked, written = [*load.acked], [*load.written]
            source = ["--url", server.url] if round == 1 else [str(tmp_path / "data")]
            done = cli("backup", *source, str(copy), "--json")
            assert done.status == 0 and done.json["sound"], done.err
            copies.append((copy, written, acked))
    finally:
        load.ended.set()
        load.join()
        server.kill()
    newest = max((copies[-1][0] / "jobs").glob("*.wal"))
    for copy, written, acked in copies:
        again = tmp_path / f"again-{copy.name}"
        assert cli("restore", str(copy), str(again)).status == 0
        with ServerProcess(again) as restored, Client(restored.url) as client:
            held: list[int] = []
            while jobs := client.claim("load", max=1000).jobs:
                held.extend(job.data["n"] for job in jobs)
                client.ack("load", jobs)
        assert len(held) == len(set(held))
        assert set(written) - set(load.acking) <= set(held), "what was answered is missing"
        assert not set(acked) & set(held), "an acked job is back"
        assert max(held) < load.number
    newest.unlink()
    assert cli("restore", str(copies[-1][0]), str(tmp_path / "no")).status == 1


def test_a_download_that_is_not_whole_leaves_nothing(tmp_path: Path, cli: Cli) -> None:
    """A server that is killed while it sends, and archives that were cut or changed."""
    server = ServerProcess(tmp_path / "data")
    server.start()
    with Client(server.url) as client:
        client.append("t", ["x" * 1000] * 8000, create=True)
        archive = tmp_path / "backup.tar"
        archive.write_bytes(b"".join(client.backup()))
        parts = client.backup()
        next(parts)
        refused = cli("backup", "--url", server.url, str(tmp_path / "second"), "--retry-for", "0s")
        assert refused.status != 0 and "being downloaded already" in refused.err
        server.kill()
        with pytest.raises(LostReply):
            list(parts)
    whole = archive.read_bytes()
    assert cli("restore", str(archive), str(tmp_path / "again")).status == 0
    with ServerProcess(tmp_path / "again") as restored, Client(restored.url) as client:
        assert client.topic("t").count == 8000
    middle = len(whole) // 2
    for hurt, why in (
        (whole[:middle], "not a whole backup"),
        (whole[: -whole[::-1].index(b"SGOL") - 4][:-512] + bytes(1024), "not a whole backup"),
        (whole[:middle] + b"\1" + whole[middle + 1 :], "this backup is damaged"),
        (whole.replace(b"/LOGS", b"/LOGZ"), "not a whole backup"),
        (b"junk" * 1000, "not a whole backup"),
    ):
        archive.write_bytes(hurt)
        found = cli("restore", str(archive), str(tmp_path / "no"))
        assert found.status == 1 and why in found.err, (why, found.err)
        assert not (tmp_path / "no").exists()


def test_an_archive_with_foreign_names_is_refused(tmp_path: Path, cli: Cli) -> None:
    """Whatever it is called, nothing is written outside of the directory."""
    for name in ("b/../../evil", "/etc/evil", "b/jobs/../../../evil", "b/jobs/x.wal", "b/LOGS/x"):
        archive = tmp_path / "evil.tar"
        with tarfile.open(archive, "w") as files:
            files.addfile(tarfile.TarInfo(name))
        found = cli("restore", str(archive), str(tmp_path / "no"))
        assert found.status == 1 and "does not belong" in found.err, (name, found.err)
        assert [path.name for path in tmp_path.iterdir()] == ["evil.tar"]


def test_a_backup_of_a_running_server_misses_what_its_files_miss(tmp_path: Path, cli: Cli) -> None:
    """The server does not read what it has written: its notes tell what must be in the copy."""
    data = tmp_path / "data"
    with ServerProcess(data, SEGMENT_MAX_BYTES="50000") as server, Client(server.url) as client:
        for number in range(12):
            client.append("t", [{"n": number, "pad": "x" * 10_000}], create=True)
        segments = sorted((data / "jobs").glob("*.wal"))
        assert len(segments) >= 3
        for turn, (hurt, cut_to) in enumerate(
            [(0, None), (-1, None), (0, 0), (1, 0), (-1, 0), (1, 6000), (-1, 6000)]
        ):
            path = segments[hurt]
            whole, away = path.read_bytes(), tmp_path / "away"
            # The server goes on with the file it has open.
            path.rename(away)
            if cut_to is not None:
                path.write_bytes(whole[:cut_to].ljust(len(whole), b"\0"))
            found = cli("backup", str(data), str(tmp_path / f"hurt{turn}"))
            assert found.status == 1, (hurt, cut_to)
            assert "a true copy of a damaged directory" in found.err
            away.rename(path)
        whole_copy = cli("backup", str(data), str(tmp_path / "whole"), "--json")
    assert whole_copy.status == 0 and whole_copy.json["state"]["records"] == 12
