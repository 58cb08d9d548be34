"""What jobs on this machine read: both tables, the span and the rows of the fold."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from logqueue import events as ev
from logqueue.pipeline.archive import manifests
from logqueue.pipeline.engines.duckdb.input import LocalInput
from logqueue.pipeline.engines.duckdb.lifecycle import run_lifecycle
from logqueue.pipeline.engines.duckdb.workers import WorkerPool
from logqueue.pipeline.lifecycle.job_history import EVENTS
from logqueue.pipeline.lifecycle.span import QueueSpan, Span
from logqueue.pipeline.lifecycle.tables import ATTEMPTS, JOBS
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.rows.fold_rows import ROWS_SCHEMA
from logqueue.pipeline.rows.segment_batches import EVENTS_SCHEMA, RECORDS_SCHEMA
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.stores.archive_content import FilesPart
from logqueue.pipeline.stores.archive_store import BUCKET_SEQS
from logqueue.pipeline.stores.log_files import LogFiles
from logqueue.segments.catalog import Catalog
from tests.pipeline.archiving import archive as archived
from tests.pipeline.histories import table_rows
from tests.spark.crafted import CraftedLog, appended

Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def no_user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _rows(batches: Iterable[pa.RecordBatch]) -> Rows:
    return [row for batch in batches for row in batch.to_pylist()]


def _ms(row: dict[str, Any]) -> int:
    at: float = row["ts"].timestamp()
    return round(at * 1000)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two queues, one of them without a worker, and a log; some segments; floors that rise."""
    data = tmp_path_factory.mktemp("log") / "data"
    chance = random.Random(15)
    with CraftedLog(data, segment_bytes_max=8192) as log:
        log.topic(1, "mails", type="queue")
        log.topic(2, "waiting", type="queue")
        log.topic(3, "notes")
        seq = 1
        for _ in range(60):
            log.at += 40
            count = chance.randrange(1, 6)
            log.append(1, seq, count)
            log.append(3, seq, count)
            seqs = range(seq, seq + count)
            log.at += 7
            log.claim(1, *seqs)
            log.at += 5
            for each in seqs:
                fate = chance.random()
                if fate < 0.6:
                    log.ack(1, each)
                elif fate < 0.7:
                    due = log.at + 500
                    log.log(ev.JobsReleased(log.at, 1, "w1", "nack", due, [each], error="no"))
                elif fate < 0.8:
                    log.log(ev.JobsExtended(log.at, 1, "w1", log.at + 9000, [each]))
                elif fate < 0.9:
                    log.log(ev.RecordsFinished(log.at, 1, "rejected", "w1", [each]))
            seq += count
            if chance.random() < 0.1:
                log.log(ev.RecordsTrimmed(log.at, 1, 0, seq - 3, 0, 2))
        log.at += 1
        log.log(appended(log.at, 2, 1, 4, not_before=log.at + 60_000))
    return data


def _input(path: Path, **given: Any) -> LocalInput:
    return LocalInput(InputPlace(path=str(path), **given))


def _counted(records: Rows, events: Rows, queues: dict[str, str], end: int | None) -> Span:
    """The span by looking at every row."""
    bound = end if end is not None else 1 << 62
    records = [row for row in records if _ms(row) <= bound]
    events = [row for row in events if _ms(row) <= bound]
    found = []
    for topic in sorted(queues):
        its_records = [row for row in records if row["topic"] == topic]
        its_events = [row for row in events if row["topic"] == topic]
        if its_records or its_events:
            first = min((row["seq"] for row in its_records), default=0)
            floors = sum(row["event"] == "trimmed" for row in its_events)
            span = QueueSpan(queues[topic], topic, first, len(its_records), len(its_events), floors)
            found.append(span)
    times = [_ms(row) for row in (*records, *events)]
    others = {row["topic"] for row in records} - queues.keys()
    last = max(times, default=0) if end is None else end
    return Span(min(times, default=0), last, tuple(found), len(others))


def test_processes_give_the_same_rows_as_this_one(history: Path) -> None:
    alone = _input(history)
    with WorkerPool(2, worthwhile=0) as pool:
        place = InputPlace(path=str(history))
        shared = LocalInput(place, pool)
        records, events = _rows(shared.records()), _rows(shared.events(["lseq", "event"]))
    assert records == _rows(alone.records())
    assert records[0].keys() == set(RECORDS_SCHEMA().names)
    assert events == [{"lseq": row["lseq"], "event": row["event"]} for row in _rows(alone.events())]
    assert {row["event"] for row in events} > {"claimed", "acked", "released", "trimmed"}
    only = _rows(alone.records(["seq", "topic"]))
    assert only == [{"topic": row["topic"], "seq": row["seq"]} for row in records]
    assert _rows(alone.events())[0].keys() == set(EVENTS_SCHEMA.names)


def test_the_span_comes_from_indexes(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = _input(history)
    records, events = _rows(full.records()), _rows(full.events())
    queues = {row["topic"]: row["log_id"] for row in records if row["topic"] != "notes"}
    local = _input(history)
    with monkeypatch.context() as patch:
        patch.setattr(LogFiles, "fetch", None)  # no row is read
        found = local.span()
    assert found == _counted(records, events, queues, None)
    assert [queue.topic for queue in found.queues] == ["mails", "waiting"]
    for share in (0.0, 0.3, 0.71, 1.2):
        end = found.start + int((found.end - found.start) * share)
        assert _input(history).span(end) == _counted(records, events, queues, end)
    assert _input(history, topics=["waiting"]).span().queues == found.queues[1:]


def test_indexes_of_early_versions_cost_a_look_at_the_events(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _input(history).span()
    catalog = LogFiles.catalog

    def early(files: LogFiles) -> Catalog:
        found = catalog(files)
        for file in (*found.jobs, *found.leases):
            file.index.topics = [
                msgspec.structs.replace(part, events_first_ts=0, events_last_ts=0, floors=0)
                for part in file.index.topics
            ]
        return found

    monkeypatch.setattr(LogFiles, "catalog", early)
    assert _input(history).span() == expected


def test_the_rows_of_the_fold(history: Path) -> None:
    local = _input(history)
    span = local.span()
    rows = _rows(_fold_rows(local, span))
    assert all(batch.schema == ROWS_SCHEMA for batch in _fold_rows(local, span))
    events = _rows(local.events())
    assert sorted((row["lseq"], row["seq"], EVENTS[row["kind"]]) for row in rows) == sorted(
        [(row["lseq"], row["job_seq"], row["event"]) for row in events]
        + [
            (-1, row["seq"], "appended")
            for row in _rows(local.records())
            if row["topic"] != "notes"
        ]
    )
    by_key = {(row["lseq"], row["seq"]): row for row in rows}
    for event in events:
        row = by_key[event["lseq"], event["job_seq"]]
        due = event["deadline"] or event["ready_at"]
        assert row["due"] == (round(due.timestamp() * 1000) if due else 0)
        assert (row["ts"], row["who"], row["lease"]) == (
            _ms(event), event["worker"], event["lease_id"],
        )  # fmt: skip
        assert (row["reason"], row["detail"]) == (event["reason"], event["detail"])
    waiting = [row for row in rows if row["log_id"] == span.queues[1].log_id]
    assert [row["due"] for row in waiting] == [span.end + 60_000] * 4


def _fold_rows(local: LocalInput, span: Span) -> Iterator[pa.RecordBatch]:
    return (batch for part in local.fold_parts(span) for batch in part.batches())


def test_little_work_starts_no_process(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerPool, "_started", None)
    with WorkerPool(2) as pool:
        local = LocalInput(InputPlace(path=str(history)), pool)
        assert _rows(local.records()) == _rows(_input(history).records())


def test_errors_of_a_process_are_raised_here(history: Path) -> None:
    with WorkerPool(2, worthwhile=0) as pool, pytest.raises(ZeroDivisionError):
        list(pool.map(_fail, [1, 0, 2], 1, 3))


def _fail(number: int) -> float:
    return 1 / number


def _archive(history: Path, root: Path) -> None:
    """An archive of all rows, as the archive job writes it: a file per topic."""
    tree = open_tree(str(root))
    manifests.begin(tree)
    local = _input(history)
    for table in manifests.TABLES:
        batches = local.records() if table == "records" else local.events()
        rows = pa.Table.from_batches(batches)
        files = []
        for log_id in sorted(set(rows.column("log_id").to_pylist())):
            part = rows.filter(pc.equal(rows.column("log_id"), log_id))
            places = part.column(manifests.PLACE_COLUMNS[table]).to_pylist()
            times = [_ms(row) for row in part.select(["ts"]).to_pylist()]
            topic, first, last = part.column("topic")[0].as_py(), min(places), max(places)
            path = manifests.file_path(table, topic, log_id, first, last, min(times))
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            kept = part.drop_columns(["segment"]) if table == "records" else part
            pq.write_table(kept, root / path)
            size = (root / path).stat().st_size
            files.append(
                manifests.FileEntry(
                    path=path, topic=topic, log_id=log_id, first=first, last=last,
                    rows=len(part), bytes=size, sha256="", min_ts=min(times), max_ts=max(times),
                )
            )  # fmt: skip
        manifest = manifests.Manifest(table=table, archive=f"{table}-1", epoch=0, files=files)
        manifests.create(tree, manifest)


def test_an_archive_gives_the_same_rows_and_the_same_span(history: Path, tmp_path: Path) -> None:
    _archive(history, tmp_path / "archive")
    archive = LocalInput(InputPlace(archive=str(tmp_path / "archive")))
    log = _input(history)
    by_seq = sorted(_rows(log.records()), key=lambda row: (row["log_id"], row["seq"]))
    assert _rows(archive.records()) == [{**row, "segment": None} for row in by_seq]
    assert _rows(archive.events(["job_seq", "event"])) == [
        {"event": row["event"], "job_seq": row["job_seq"]} for row in _rows(log.events())
    ]
    span = archive.span()
    middle = (span.start + span.end) // 2
    for end in (None, middle):
        found, expected = archive.span(end), log.span(end)
        assert (found.start, found.end) == (expected.start, expected.end)
        assert found.queues[0] == expected.queues[0]

    def ordered(local: LocalInput) -> Rows:
        rows = _rows(_fold_rows(local, span))
        return sorted(rows, key=lambda row: (row["seq"], row["lseq"], row["kind"]))

    assert ordered(archive) == ordered(log)
    only = LocalInput(InputPlace(archive=str(tmp_path / "archive"), pattern="wait.*"))
    assert {row["topic"] for row in _rows(only.records(["topic"]))} == {"waiting"}


def test_continuing_from_an_archive_reads_the_files_that_hold_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, data = tmp_path / "archive", tmp_path / "data"
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    read: list[str] = []
    batches = FilesPart.batches

    def noted(part: FilesPart, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        read.extend(part.names)
        return batches(part, columns)

    monkeypatch.setattr(FilesPart, "batches", noted)
    monkeypatch.setattr("logqueue.pipeline.stores.archive_content.PART_BYTES", 1)
    place = InputPlace(archive=str(root))
    with CraftedLog(data) as log:
        log.topic(1, "mails", type="queue")
        for stage in range(3):
            first = 1 + 2 * stage * BUCKET_SEQS
            log.append(1, first, 5)
            log.at += 10
            log.claim(1, first, first + 1)
            log.at += 10
            log.ack(1, *range(first, first + 5))
            if stage == 2:
                log.claim(1, 2 * BUCKET_SEQS + 1)
            log.at += 86_400_000
            archived({"path": str(data)}, root)
            read.clear()
            run_lifecycle(LocalInput(place), parts, since="last" if stage else None)
    of_stages = sorted(name for name in read if name.startswith("records/"))
    seqs = {int(name.rpartition("/")[2].split("-")[0]) for name in of_stages}
    assert seqs == {1 + 2 * BUCKET_SEQS, 1 + 4 * BUCKET_SEQS}
    run_lifecycle(LocalInput(place), whole)
    for kind in (JOBS, ATTEMPTS):
        rows = table_rows(whole, kind)
        assert rows and table_rows(parts, kind) == rows


def test_a_queue_that_no_worker_claimed_from_has_its_jobs(history: Path, tmp_path: Path) -> None:
    summary = run_lifecycle(_input(history, topics=["waiting", "notes"]), str(tmp_path))
    assert (summary["topics"], summary["rows"]) == (["waiting"], {"jobs": 4, "attempts": 0})
    rows = table_rows(str(tmp_path), JOBS)
    assert {(row["state"], row["variant"], row["attempts"]) for row in rows} == {
        ("delayed", "waiting", 0)
    }
