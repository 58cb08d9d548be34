"""Logs that are as they should be, however odd they look: no finding is false."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from logqueue import events as ev
from logqueue.events.snapshots import TopicSnapshot
from logqueue.model.config import TopicOptions
from logqueue.pipeline.audit import job_rows
from logqueue.pipeline.audit import log as audit_log
from logqueue.pipeline.engines.duckdb.audit.job import run_audit
from logqueue.pipeline.reading.place import InputPlace
from tests.pipeline.archiving import archive as archive_log
from tests.pipeline.audit_faults import QUEUE, Place, write_faults
from tests.spark.crafted import CraftedLog, appended


def audited(place: InputPlace, to: Path, **more: Any) -> tuple[list[Place], dict[str, Any]]:
    summary = run_audit(place, str(to), **more)
    rows = [json.loads(line) for line in (to / "audit_findings.json").read_text().splitlines()]
    names = ("rule", "severity", "topic", "first_seq", "last_seq")
    return [tuple(row[name] for name in names) for row in rows], summary["account"]


def live(log: CraftedLog, topic: int, first: int, count: int) -> None:
    """Jobs of which every second one is acked and every third one waits."""
    log.append(topic, first, count)
    seqs = range(first, first + count)
    log.claim(topic, *[seq for seq in seqs if seq % 3])
    log.ack(topic, *[seq for seq in seqs if seq % 2 and seq % 3])


def test_a_topic_that_was_created_again_and_a_queue_without_workers(tmp_path: Path) -> None:
    with CraftedLog(tmp_path / "data") as log:
        log.topic(1, "jobs", **QUEUE)
        live(log, 1, 1, 30)
        log.log(ev.TopicRemoved(log.at, 1))
        log.topic(2, "jobs", **QUEUE)
        live(log, 2, 1, 12)
        log.topic(3, "idle", **QUEUE)
        log.append(3, 1, 500)
    found, account = audited(InputPlace(path=str(tmp_path / "data")), tmp_path / "out")
    assert found == []
    assert account["by_topic"]["jobs"]["appended"] == 42
    assert account["by_topic"]["idle"]["open"] == 500
    assert account["unaccounted"] == 0


def test_a_dirty_shutdown(tmp_path: Path) -> None:
    """Claims that were not synced are gone, with acks of theirs in the other log."""
    with CraftedLog(tmp_path / "data") as log:
        log.topic(1, "jobs", type="queue", durability="disk")
        log.log(appended(log.at, 1, 1, 9, reserved=9 + 4096))
        log.claim(1, 1, 2, 3)
        log.order += 1  # of the claim that is lost
        log.log(ev.RecordsFinished(log.at, 1, "rejected", "w1", [4, 5]))
        kept = TopicSnapshot(
            1, "jobs", TopicOptions(type="queue", durability="disk").resolved(), 9 + 4096, 0,
            0, 0, 0, 9 + 4096,
        )  # fmt: skip
        log.log(ev.Checkpointed(log.at, 0, [kept], 2, 1))
        log.log(appended(log.at, 1, 9 + 4096 + 1, 1))
    found, account = audited(InputPlace(path=str(tmp_path / "data")), tmp_path / "out")
    assert found == [
        ("orders_lost", "info", None, None, None),
        ("settle_with_lease", "info", "jobs", 4, 5),
    ]
    assert account["appended"] == 10 and account["unaccounted"] == 0


def test_an_archive_that_was_widened_and_one_that_is_behind(tmp_path: Path) -> None:
    data, root = tmp_path / "data", tmp_path / "archive"
    with CraftedLog(data) as log:
        log.topic(1, "a", **QUEUE)
        log.topic(2, "b", **QUEUE)
        for first in (1, 31):
            live(log, 1, first, 30)
            live(log, 2, first, 30)
    source = {"path": str(data)}
    archive_log(source, root, topics="a")
    assert audited(InputPlace(archive=str(root)), tmp_path / "out")[0] == []
    archive_log(source, root)
    found, account = audited(
        InputPlace(archive=str(root)), tmp_path / "out", against=InputPlace(path=str(data))
    )
    assert found == []
    assert account["by_topic"]["b"] == account["by_topic"]["a"]
    shutil.copytree(data, tmp_path / "later")
    with CraftedLog(tmp_path / "later") as log:
        log.order = 1000
        log.append(1, 61, 5)
    later = InputPlace(path=str(tmp_path / "later"))
    # What is behind the end of either place is not compared.
    found, _ = audited(InputPlace(archive=str(root)), tmp_path / "out", against=later)
    assert found == []
    found, _ = audited(
        later, tmp_path / "out", against=InputPlace(archive=str(root)), rules="same_records"
    )
    assert found == [("same_records", "info", "a", 61, 65)]


def test_records_that_the_other_place_has_dropped_are_no_difference(tmp_path: Path) -> None:
    with CraftedLog(tmp_path / "data") as log:
        log.topic(1, "orders", durability="fsync")
        log.append(1, 1, 10)
        log.roll()
        kept = TopicSnapshot(
            1, "orders", TopicOptions(durability="fsync").resolved(), 10, 0, 0, 0, 0, 0
        )
        log.log(ev.Checkpointed(log.at, 0, [kept], 2, 1, oldest=1, first_segment=2))
        log.append(1, 11, 10)
    shutil.copytree(tmp_path / "data", tmp_path / "short")
    sorted((tmp_path / "short" / "jobs").glob("*.wal"))[0].unlink()
    whole, short = (InputPlace(path=str(tmp_path / name)) for name in ("data", "short"))
    rules = "same_records"
    found, _ = audited(whole, tmp_path / "out", against=short, rules=rules)
    assert found == [("same_records", "info", "orders", 1, 10)]
    assert audited(short, tmp_path / "out", against=whole, rules=rules)[0] == []


def test_a_log_that_is_written_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Job events are at hand, and the lease events that came before them are not yet."""
    with CraftedLog(tmp_path / "data") as log:
        log.topic(1, "jobs", **QUEUE)
        live(log, 1, 1, 30)
        log.append(1, 31, 2)
        log.order += 2  # claims that have not reached the file
        log.log(ev.RecordsFinished(log.at, 1, "rejected", "w1", [31, 32]))
    place = InputPlace(path=str(tmp_path / "data"))
    found, account = audited(place, tmp_path / "out")
    assert {rule for rule, *_ in found} == {"orders_lost", "settle_with_lease"}
    monkeypatch.setattr(audit_log.WriteWatch, "is_written", lambda _: True)
    found, account = audited(place, tmp_path / "out")
    assert found == [] and account["rejected"] == 0


def test_a_write_that_is_read_in_part_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CraftedLog(tmp_path) as log:
        log.topic(1, "orders", durability="fsync")
        log.append(1, 1, 10)
        log.append(1, 11, 10)
    [source] = [s for s in audit_log.files_of([str(tmp_path)]) if s.file.log == "jobs"]
    whole = source.read()
    given = [whole[: whole.index(b"11121314")], whole]
    monkeypatch.setattr(audit_log, "_TAIL_WAIT_S", 0)
    monkeypatch.setattr(audit_log.SegmentOnDisk, "read", lambda _: given.pop(0))
    steps = audit_log.steps_in(audit_log.AuditedFile(source, is_last=True))
    assert steps.problems() == [] and given == []


def test_jobs_in_many_buckets_give_the_same_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CraftedLog(tmp_path / "data") as log:
        expected = write_faults(log)
        log.topic(60, "wide", **QUEUE)
        log.append(60, 1, 3000)
        for first in (1, 1001, 2001):
            log.claim(60, *range(first, first + 1000))
        log.claim(60, *range(900, 2100), node="w2")
        log.log(ev.RecordsTrimmed(log.at, 60, 0, 2500, 0, 100))
        log.log(ev.RecordsFinished(log.at, 60, "rejected", "w1", [2400]))
    expected += [
        ("one_lease", "error", "wide", 900, 2099),
        ("one_end", "error", "wide", 2400, 2400),
    ]
    place = InputPlace(path=str(tmp_path / "data"))
    one, account = audited(place, tmp_path / "out")
    assert sorted(one, key=str) == sorted(expected, key=str)
    assert account["by_topic"]["wide"]["trimmed"] == 2499
    monkeypatch.setattr(job_rows, "BLOCK_BITS", 3)
    monkeypatch.setattr(job_rows, "JOBS_PER_BUCKET", 40)
    assert audited(place, tmp_path / "out") == (one, account)
