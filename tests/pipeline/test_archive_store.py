"""An archive as readers see it: which files are asked for, and where its history ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logqueue.client import Client
from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.manifests import FileEntry
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.stores.archive_store import BUCKET_SEQS, ArchiveStore
from logqueue.pipeline.stores.log_history import LogHistory
from logqueue.testing import ServerProcess
from tests.pipeline.archiving import Crash, archive, events, rows


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.url, node="w") as connected:
        yield connected


def entry(first: int, last: int, ts: int, **more: int) -> FileEntry:
    return FileEntry(
        path=f"{ts}", topic="q", log_id="l-1", first=first, last=last, rows=1, bytes=1, sha256="",
        min_ts=ts, max_ts=ts, **more,
    )  # fmt: skip


def test_files_are_left_out_by_topic_time_and_job(tmp_path: Path) -> None:
    store = ArchiveStore(InputPlace(archive=str(tmp_path)))
    size = BUCKET_SEQS
    records = [entry(1, 10, 1), entry(11, size, 2), entry(3 * size, 5 * size, 3)]
    of_events = [
        entry(1, 9, 1, job_first=1, job_last=10, floors=0),
        entry(10, 19, 2, job_first=1, job_last=5 * size, floors=0),
        entry(20, 29, 3),
        entry(30, 39, 4, job_first=3 * size, job_last=3 * size, floors=1),
    ]
    store.__dict__["_entries"] = {"records": records, "lease_events": of_events}

    def asked(**filters: object) -> list[list[str]]:
        tables: tuple[manifests.Table, ...] = manifests.TABLES
        return [[e.path for e in store.entries(table, **filters)] for table in tables]  # type: ignore[arg-type]

    assert asked() == [["1", "2", "3"], ["1", "2", "3", "4"]]
    assert asked(from_ms=2) == [["2", "3"], ["2", "3", "4"]]
    assert asked(jobs={"l-1": [0]}) == [["1", "2"], ["1", "2", "3", "4"]]
    assert asked(jobs={"l-1": [4]}) == [["3"], ["2", "3"]]
    assert asked(jobs={"l-1": [2, 6]}) == [[], ["2", "3", "4"]]
    assert asked(jobs={}) == [[], []]


def test_the_span_of_an_archive_is_that_of_its_log(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """With queues that no worker has claimed from; and up to any time."""
    for queue in ("span-a", "span-idle"):
        client.put_topic(queue, type="queue")
        client.append(queue, [*range(5)])
    client.append("span-log", [1], create=True)
    client.ack("span-a", client.claim("span-a", max=3).jobs)
    source = {"url": server.url}
    archive(source, tmp_path, topicPattern="span-.*")
    client.append("span-idle", [1])
    archive(source, tmp_path, topicPattern="span-.*")
    place = InputPlace(archive=str(tmp_path))
    span = ArchiveStore(place).span()
    there = LogHistory(InputPlace(url=server.url, pattern="span-.*"))
    assert span == there.span(None)
    found = {queue.topic: (queue.records, queue.events) for queue in span.queues}
    assert found == {"span-a": (5, 6), "span-idle": (6, 0)} and span.others == 1
    for end in (span.start, span.end - 1, span.end + 1000):
        assert ArchiveStore(place).span(end) == there.span(end)
    only = ArchiveStore(InputPlace(archive=str(tmp_path), topics=["span-idle"])).span()
    assert [queue.topic for queue in only.queues] == ["span-idle"]


@pytest.mark.parametrize("crash_after", [1, 2])
def test_history_ends_at_the_last_whole_run(
    server: ServerProcess, client: Client, tmp_path: Path, crash_after: int
) -> None:
    """Jobs that were acked while the archive was written are ready in no table."""
    queue = f"whole-{crash_after}"
    client.put_topic(queue, type="queue")
    client.append(queue, [*range(4)])
    source, place = {"url": server.url}, InputPlace(archive=str(tmp_path))
    archive(source, tmp_path, topics=queue)
    before = ArchiveStore(place).span()
    client.ack(queue, client.claim(queue, max=4).jobs)
    client.append(queue, [*range(4)])
    with pytest.raises(Crash):
        archive(source, tmp_path, topics=queue, crash_after=crash_after, maxRecordsPerTrigger="1")
    assert ArchiveStore(place).span() == before
    kept = ArchiveStore(place, whole_runs=True)
    assert [sum(e.rows for e in kept.entries(table)) for table in manifests.TABLES] == [4, 0]
    assert events(tmp_path)[queue]
    archive(source, tmp_path, topics=queue)
    after = ArchiveStore(place).span()
    assert after.end == max(
        int(row["ts"].timestamp() * 1000 + 0.5)
        for table in manifests.TABLES
        for row in rows(tmp_path, table)
    )


def test_topics_that_a_run_left_out_are_known_up_to_where_they_were_read(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    for queue in ("left-a", "left-b"):
        client.put_topic(queue, type="queue")
        client.append(queue, [1])
    source = {"url": server.url}
    archive(source, tmp_path, topicPattern="left-.*")
    both = ArchiveStore(InputPlace(archive=str(tmp_path))).span().end
    client.append("left-a", [2])
    archive(source, tmp_path, topics="left-a")
    assert ArchiveStore(InputPlace(archive=str(tmp_path))).span().end == both
    assert ArchiveStore(InputPlace(archive=str(tmp_path), topics=["left-a"])).span().end > both
    client.drop_topic("left-b")
    archive(source, tmp_path, topicPattern="left-.*")
    assert ArchiveStore(InputPlace(archive=str(tmp_path))).span().end > both
