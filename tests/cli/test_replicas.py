"""`replica status | verify | gc` and `restore URL`, on the replica of a server that runs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from logqueue.client import Client
from logqueue.replica.chunk import chunk_key
from logqueue.replica.opening import open_store
from logqueue.replica.reading import ReplicaReader
from logqueue.testing.process import ServerProcess
from tests.cli.conftest import Cli
from tests.replica.moments import ReplicatedHistory


class Replicated(NamedTuple):
    """A server with a replica, and the moment between two of its writes."""

    server: ServerProcess
    url: str
    directory: Path
    moment_ms: int


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    folder = tmp_path_factory.mktemp("replicated")
    url = f"file://{folder}/replica"
    process = ServerProcess(folder / "data", REPLICA=url, REPLICA_MODE="sync")
    try:
        process.start()
        with Client(process.url) as client:
            client.put_topic("jobs", type="queue", durable=True)
            client.append("jobs", range(10))
            moment = time.time_ns() // 1_000_000 + 1
            while time.time_ns() // 1_000_000 <= moment:
                pass
            client.append("jobs", range(5))
            client.claim("jobs", max=3, lease_ms=600_000)
        yield Replicated(process, url, folder / "replica", moment)
    finally:
        process.kill()


@pytest.fixture
def copy(replicated: Replicated, tmp_path: Path) -> tuple[str, Path]:
    """A replica of this test's own."""
    shutil.copytree(replicated.directory, tmp_path / "copy")
    return f"file://{tmp_path}/copy", tmp_path / "copy"


def test_status_says_who_writes_and_what_is_there(cli: Cli, replicated: Replicated) -> None:
    found = cli("replica", "status", replicated.url, "--json").json
    assert found["writer"]["address"] == replicated.server.url
    assert (found["epoch"], found["released"]) == (1, False)
    assert found["last_chunk"] >= 2
    shown = cli("replica", "status", replicated.url)
    assert shown.status == 0
    assert replicated.server.url in shown.out
    assert "the beginning" in shown.out


def test_verify_replays_and_compares_with_the_server(cli: Cli, replicated: Replicated) -> None:
    done = cli("replica", "verify", replicated.url, "--url", replicated.server.url, "--json")
    assert done.status == 0, done.err
    assert done.json["sound"] and done.json["problems"] == []
    assert done.json["state"]["jobs"] == 15
    assert done.json["state"]["jobs_in_flight"] == 3
    assert "of both logs and 1 topic with the server" in done.err
    shown = cli("replica", "verify", replicated.url)
    assert shown.status == 0 and f"{replicated.url}: sound" in shown.out


def test_verify_finds_what_differs(
    cli: Cli, replicated: Replicated, copy: tuple[str, Path]
) -> None:
    with Client(replicated.server.url) as client:
        client.put_topic("late", type="log", durable=True)
    try:
        done = cli("replica", "verify", copy[0], "--url", replicated.server.url)
        assert done.status == 1
        assert "PROBLEM: topic 'late' is not in the replica" in done.out
    finally:
        with Client(replicated.server.url) as client:
            client.drop_topic("late")


def test_verify_finds_other_bytes_of_the_same_size(
    cli: Cli, replicated: Replicated, copy: tuple[str, Path], tmp_path: Path
) -> None:
    """Topics that look the same, in two logs that have parted."""
    fork, _ = copy
    with ServerProcess(tmp_path / "data", REPLICA=fork, REPLICA_MODE="sync") as other:
        for url, value in ((other.url, "B"), (replicated.server.url, "A")):
            with Client(url) as client:
                client.put_topic("side", type="log", durable=True)
                client.append("side", [value])
    done = cli("replica", "verify", fork, "--url", replicated.server.url)
    with Client(replicated.server.url) as client:
        client.drop_topic("side")
    assert done.status == 1
    assert "PROBLEM: segment jobs-1 has other bytes on the server" in done.out
    assert "PROBLEM: topic" not in done.out


def test_verify_names_all_damage(cli: Cli, copy: tuple[str, Path]) -> None:
    url, directory = copy
    start = cli("replica", "status", url, "--json").json["start_chunk"]
    one, other = chunk_key(start), chunk_key(start + 1)
    first, second = directory / one, directory / other
    first.write_bytes(first.read_bytes()[:-1])
    second.unlink()
    done = cli("replica", "verify", url, "--json")
    assert done.status == 1
    problems = done.json["problems"]
    assert len(problems) == 2
    assert one in problems[0] and "cut short" in problems[0]
    assert other in problems[1] and "is missing" in problems[1]
    assert "not sound" in done.err
    refused = cli("restore", url, "--to", str(directory.parent / "never"))
    assert refused.status == 1 and one in refused.err
    assert [path.name for path in directory.parent.iterdir()] == ["copy"]


def test_restore_makes_a_directory_that_opens(
    cli: Cli, replicated: Replicated, tmp_path: Path
) -> None:
    target = tmp_path / "data"
    done = cli("restore", replicated.url, "--to", str(target), "--json")
    assert done.status == 0, done.err
    assert done.json["sound"] and done.json["state"]["jobs"] == 15
    assert done.json["directory"] == str(target)
    with ServerProcess(target) as server, Client(server.url) as client:
        assert client.topic("jobs").count == 15
    again = cli("restore", replicated.url, "--to", str(target))
    assert again.status == 2 and "is not empty" in again.err


def test_restore_goes_back_to_a_moment(cli: Cli, replicated: Replicated, tmp_path: Path) -> None:
    at = str(replicated.moment_ms)
    done = cli("restore", replicated.url, "--at", at, "--dry-run", "--json")
    assert done.status == 0, done.err
    assert done.json["state"] | {"jobs": 10, "jobs_in_flight": 0} == done.json["state"]
    assert 0 < done.json["last_at"] <= replicated.moment_ms
    order = done.json["last_order"]
    target = tmp_path / "then"
    made = cli("restore", replicated.url, "--order", str(order), "--to", str(target), "--json")
    assert made.json["state"] == done.json["state"]
    shown = cli("restore", replicated.url, "--order", str(order), "--dry-run")
    assert "last transaction" in shown.out and "would be restored" in shown.err
    early = cli("restore", replicated.url, "--at", "2001-02-03T04:05:06Z", "--dry-run")
    assert early.status == 1 and "nothing from before that moment" in early.err


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("restore", "{url}"), 2, "--to DIR"),
        (("restore", "{url}", "a", "--to", "b"), 2, "once"),
        (("restore", "{url}", "--at", "yesterday", "--dry-run"), 2, "invalid time 'yesterday'"),
        (("restore", "/backup", "data", "--at", "10m"), 2, "are for replicas"),
        (("restore", "{url}/none", "--to", "{url}"), 2, "is not a directory"),
        (("restore", "{url}/none", "--dry-run"), 3, "is not a replica: it has no manifest.json"),
        (("replica", "status", "/mnt/nas"), 2, "file:///mnt/nas"),
        (("replica", "status", "s3://"), 2, "the bucket is missing"),
        (("replica", "verify", "{url}/none"), 3, "is not a replica"),
        (("replica", "gc", "{url}/none", "--force"), 3, "is not a replica"),
    ],
)
def test_refusals_say_what_to_do(
    cli: Cli, replicated: Replicated, arguments: tuple[str, ...], status: int, said: str
) -> None:
    done = cli(*(word.format(url=replicated.url) for word in arguments))
    assert done.status == status, done.err
    assert said in done.err


def test_gc_waits_for_the_writer_to_rest(
    cli: Cli, replicated: Replicated, copy: tuple[str, Path]
) -> None:
    alive = cli("replica", "gc", replicated.url, "--watch", "2.5s")
    assert alive.status == 1 and "a server writes this replica" in alive.err
    url, directory = copy
    # As if a collector had moved the boundary, and died before it removed anything.
    start = cli("replica", "status", url, "--json").json["start_chunk"]
    orphan = directory / chunk_key(start - 1)
    orphan.write_bytes(bytes(5000))
    counted = cli("replica", "gc", url, "--watch", "0s", "--dry-run", "--json")
    removed = cli("replica", "gc", url, "--watch", "0s", "--json")
    assert counted.json["objects"] == removed.json["objects"] == 1
    assert not orphan.exists()
    assert cli("replica", "verify", url).status == 0


def test_gc_shortens_the_retention_when_asked_to(cli: Cli) -> None:
    history = ReplicatedHistory(4, open_store("memory://gc-keep"), keep_ms=10**6)
    history.live(120)
    reader = ReplicaReader(history.store)
    before = reader.manifest().manifest
    assert not before.reaches_back_to and len(before.marks) > 2
    counted = cli("replica", "gc", "memory://gc-keep", "--watch=0s", "--keep=1s", "--dry-run")
    assert reader.manifest().manifest == before
    removed = cli("replica", "gc", "memory://gc-keep", "--watch=0s", "--keep=1s")
    assert removed.status == 0
    assert int(counted.out.split()[0]) == int(removed.out.split()[0]) > 10
    after = reader.manifest().manifest
    assert after.reaches_back_to == before.marks[-1].at
    assert len(after.segments) < len(before.segments)
    assert cli("replica", "verify", "memory://gc-keep").status == 0
