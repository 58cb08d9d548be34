"""Runs of an archive on a real server: what is read when topics come, go and are left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from logqueue.client import Client
from logqueue.pipeline.archive import loop, manifests
from logqueue.pipeline.archive.contents import contents
from logqueue.pipeline.archive.manifests import Table
from logqueue.pipeline.archive.progress import log_of
from logqueue.pipeline.reading.offsets import DataLossError
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.stores.archive_store import ArchiveStore
from logqueue.testing import ServerProcess
from tests.pipeline.archiving import Crash, archive, events, seqs


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.url, node="w") as connected:
        yield connected


def source(server: ServerProcess) -> dict[str, str]:
    return {"url": server.url}


def work(client: Client, queue: str, jobs: int) -> None:
    """Append jobs, claim and ack them."""
    client.put_topic(queue, type="queue")
    client.append(queue, [*range(jobs)])
    client.ack(queue, client.claim(queue, max=jobs).jobs)


def worked(first: int, last: int) -> list[tuple[str, int]]:
    jobs = range(first, last + 1)
    return [*(("claimed", seq) for seq in jobs), *(("acked", seq) for seq in jobs)]


def test_a_wider_selection_has_all_events(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """Of topics that come later in time or by name, each event once; also when they come again."""
    for queue in ("wide-a", "wide-b"):
        work(client, queue, 3)
    archive(source(server), tmp_path, topics="wide-a")
    assert events(tmp_path).keys() == {"wide-a"}
    archive(source(server), tmp_path, topicPattern="wide-.*")
    assert events(tmp_path) == {"wide-a": worked(1, 3), "wide-b": worked(1, 3)}
    for queue in ("wide-a", "wide-b", "wide-c"):
        work(client, queue, 2)
    archive(source(server), tmp_path, topics="wide-a")
    assert events(tmp_path) == {"wide-a": worked(1, 3) + worked(4, 5), "wide-b": worked(1, 3)}
    archive(source(server), tmp_path, topicPattern="wide-(b|c)")
    expected = {queue: worked(1, 3) + worked(4, 5) for queue in ("wide-a", "wide-b")} | {
        "wide-c": worked(1, 2)
    }
    assert events(tmp_path) == expected
    assert seqs(tmp_path) == {"wide-a": [*range(1, 6)], "wide-b": [*range(1, 6)], "wide-c": [1, 2]}
    added = archive(source(server), tmp_path, topicPattern="wide-.*")
    assert events(tmp_path) == expected
    assert [table["rows"] for table in added.values()] == [0, 0]


def test_topics_that_are_created_again(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """Each instance is read to its end, whichever the archive has seen; nothing is a loss."""
    work(client, "again-a", 3)
    archive(source(server), tmp_path, topicPattern="again-.*")
    client.append("again-a", [3])
    client.drop_topic("again-a")
    work(client, "again-a", 1)
    client.drop_topic("again-a")
    work(client, "again-a", 2)
    archive(source(server), tmp_path, topicPattern="again-.*")
    assert seqs(tmp_path) == {"again-a": [1, 1, 1, 2, 2, 3, 4]}
    assert events(tmp_path)["again-a"] == worked(1, 3) + worked(1, 1) + worked(1, 2)
    client.drop_topic("again-a")
    assert [
        table["rows"]
        for table in archive(source(server), tmp_path, topicPattern="again-.*").values()
    ] == [0, 0]
    work(client, "again-a", 1)
    assert [
        table["rows"]
        for table in archive(source(server), tmp_path, topicPattern="again-.*").values()
    ] == [2, 1]
    # A log, and a queue of the same name after it.
    client.append("again-x", [0], create=True)
    archive(source(server), tmp_path, topicPattern="again-.*")
    client.drop_topic("again-x")
    work(client, "again-x", 1)
    archive(source(server), tmp_path, topicPattern="again-.*")
    assert events(tmp_path)["again-x"] == worked(1, 1) and seqs(tmp_path)["again-x"] == [1, 1]


def test_narrower_selections_lose_nothing(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    for queue in ("narrow-a", "narrow-b"):
        work(client, queue, 2)
    archive(source(server), tmp_path, topics="narrow-a,narrow-b")
    client.drop_topic("narrow-b")
    work(client, "narrow-a", 1)
    archive(source(server), tmp_path, topics="narrow-a")
    assert seqs(tmp_path) == {"narrow-a": [1, 2, 3], "narrow-b": [1, 2]}


def test_queues_are_known_from_the_log(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    client.put_topic("known-idle", type="queue")
    client.append("known-idle", [1, 2])
    client.append("known-log", [1], create=True)
    archive(source(server), tmp_path, topicPattern="known-.*")
    topics = contents(open_tree(str(tmp_path)), "records").progress.topics.values()
    assert {topic.topic: topic.is_queue for topic in topics} == {
        "known-idle": True,
        "known-log": False,
    }


def test_another_log_is_a_loss_until_it_is_accepted_once(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    work(client, "other-a", 2)
    archive(source(server), tmp_path / "archive", topicPattern="other-.*")
    with ServerProcess(tmp_path / "data") as other, Client(other.url) as another:
        work(another, "other-a", 1)
        with pytest.raises(DataLossError, match=r"the log is another one now.*--fail-on-data-loss"):
            archive(source(other), tmp_path / "archive", topicPattern="other-.*")
        archive(
            source(other), tmp_path / "archive", topicPattern="other-.*", failOnDataLoss="false"
        )
        work(another, "other-a", 1)
        archive(source(other), tmp_path / "archive", topicPattern="other-.*")
    assert seqs(tmp_path / "archive") == {"other-a": [1, 1, 2, 2]}
    assert events(tmp_path / "archive")["other-a"].count(("acked", 1)) == 2


def test_epochs_are_bounded_and_the_watermark_comes_with_the_last_one(
    server: ServerProcess, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default, too: by bytes of log."""
    client.put_topic("bound-a", type="queue")
    for _ in range(8):
        client.append("bound-a", ["x" * 1000] * 5)
    client.ack("bound-a", client.claim("bound-a", max=40).jobs)
    monkeypatch.setattr(loop, "BATCH_BYTES", 10_000)
    added = archive(source(server), tmp_path, topics="bound-a")
    assert added["records"]["epochs"] >= 4 and added["records"]["rows"] == 40
    tree = open_tree(str(tmp_path))
    found = [*manifests.manifests(tree, "lease_events"), *manifests.manifests(tree, "records")]
    assert [m.watermark is not None for m in found] == [False] * (len(found) - 1) + [True]
    assert all(entry.rows <= 10 for m in found if m.table == "records" for entry in m.files)


def test_records_of_ephemeral_topics_come_by_pages(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """What was in one that is gone is not known, so that is a loss; once."""
    client.put_topic("page-a", durability="ephemeral")
    client.append("page-a", [1, 2])
    client.append("page-b", [1], create=True)
    archive(source(server), tmp_path, topicPattern="page-.*")
    client.append("page-a", [3])
    archive(source(server), tmp_path, topicPattern="page-.*")
    assert seqs(tmp_path) == {"page-a": [1, 2, 3], "page-b": [1]}
    client.drop_topic("page-a")
    client.put_topic("page-a", durability="ephemeral")
    client.append("page-a", [1])
    with pytest.raises(DataLossError, match="topic 'page-a' was deleted"):
        archive(source(server), tmp_path, topicPattern="page-.*")
    archive(source(server), tmp_path, topicPattern="page-.*", failOnDataLoss="false")
    client.append("page-a", [2])
    archive(source(server), tmp_path, topicPattern="page-.*")
    assert seqs(tmp_path) == {"page-a": [1, 1, 2, 2, 3], "page-b": [1]}


NEW_FIELDS = ("topics", "reached", "covered", "watermark")
NEW_FILE_FIELDS = ("floors", "job_first", "job_last")


def made_by_an_earlier_version(root: Path, offset: str = "") -> None:
    """Manifests as streams of Spark wrote them, and what is left of these.

    Args:
        offset: Of the stream of job events, after the first epoch.
    """
    for path in (root / "_manifest").glob("*-0*/*.json"):
        manifest = json.loads(path.read_text())
        for name in NEW_FIELDS:
            manifest.pop(name, None)
        for entry in manifest["files"]:
            for name in NEW_FILE_FIELDS:
                entry.pop(name, None)
        path.write_text(json.dumps(manifest))
        offsets = root / "_checkpoint" / path.parent.name / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / "0").write_text(f"v1\n{{}}\n{offset}")


def test_an_archive_of_an_earlier_version_goes_on(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """It is read as it was, continues, and learns what it did not know."""
    for queue in ("old-a", "old-b"):
        work(client, queue, 2)
    client.put_topic("old-idle", type="queue")
    client.append("old-idle", [1])
    archive(source(server), tmp_path, topicPattern="old-(a|idle)")
    whole = contents(open_tree(str(tmp_path)), "lease_events").progress
    (log, end), *_ = [(log_of(log_id), next) for log_id, next in whole.next.items()]
    made_by_an_earlier_version(tmp_path, f'{{"v":1,"log":"{log}","next":{end + 7}}}')
    known = contents(open_tree(str(tmp_path)), "lease_events").progress
    assert {known.next_of(log_id) for log_id in known.topics} == {end + 7}
    made_by_an_earlier_version(tmp_path, f'{{"v":1,"log":"{log}","next":{end}}}')
    store = ArchiveStore(InputPlace(archive=str(tmp_path)))
    assert store.watermark is None
    assert [queue.topic for queue in store.span().queues] == ["old-a"]
    work(client, "old-a", 1)
    added = archive(source(server), tmp_path, topicPattern="old-.*")
    assert added["records"]["first_epoch"] == "records-0002/0"
    assert events(tmp_path) == {"old-a": worked(1, 2) + worked(3, 3), "old-b": worked(1, 2)}
    assert seqs(tmp_path) == {"old-a": [1, 2, 3], "old-b": [1, 2], "old-idle": [1]}
    store = ArchiveStore(InputPlace(archive=str(tmp_path)))
    assert [queue.topic for queue in store.span().queues] == ["old-a", "old-b", "old-idle"]
    assert archive(source(server), tmp_path, topicPattern="old-.*")["records"]["rows"] == 0


@pytest.mark.parametrize("crash_after", [1, 2, 3])
def test_a_crash_between_two_epochs_loses_and_repeats_nothing(
    server: ServerProcess, client: Client, tmp_path: Path, crash_after: int
) -> None:
    """The watermark is that of the last whole run, whichever table was being written."""
    queue = f"crash-{crash_after}"
    client.put_topic(queue, type="queue")
    client.drop_topic(queue)
    work(client, queue, 4)
    archive(source(server), tmp_path, topics=queue)
    tree = open_tree(str(tmp_path))

    def marks() -> list[tuple[int, int]]:
        tables: tuple[Table, ...] = ("lease_events", "records")
        found = [contents(tree, table).progress.watermarks for table in tables]
        return sorted(mark for each in found for mark in each.values())

    before = marks()
    work(client, queue, 4)
    with pytest.raises(Crash):
        archive(
            source(server),
            tmp_path,
            topics=queue,
            crash_after=crash_after,
            maxRecordsPerTrigger="1",
        )
    assert marks() == before
    archive(source(server), tmp_path, topics=queue)
    assert marks()[-1] > before[-1]
    assert seqs(tmp_path) == {queue: [*range(1, 9)]}
    assert events(tmp_path) == {queue: worked(1, 4) + worked(5, 8)}
