"""Rules that follow from the files of a log alone: damage, missing files, seqs, epochs, routers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logqueue import events as ev
from logqueue.events.snapshots import TopicSnapshot
from logqueue.model.config import RouterOptions, TopicOptions
from logqueue.model.tag_predicate import Predicate
from logqueue.pipeline.audit import log as audit_log
from logqueue.pipeline.audit import producers as audit_producers
from logqueue.pipeline.audit.findings import Finding
from logqueue.pipeline.audit.history import AuditHistory
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.progress import silent
from tests.spark.crafted import CraftedLog, appended, segments

LOG = {"durability": "fsync"}
Place = tuple[str, str, str | None, int | None, int | None]


def look(directory: Path) -> tuple[AuditHistory, list[Finding]]:
    sources = audit_log.files_of([str(directory)])
    history = audit_log.read_history(sources, [str(directory)], map, silent)
    found = [
        *audit_log.findings(history, [str(directory)]),
        *audit_producers.findings(history),
        *audit_producers.seq_findings(history),
    ]
    return history, found


def places(found: list[Finding]) -> list[Place]:
    return [(f.rule, f.severity, f.topic, f.first_seq, f.last_seq) for f in found]


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def test_a_flipped_byte_is_one_finding_with_its_place_and_the_seqs_behind_it(
    tmp_path: Path,
) -> None:
    with CraftedLog(tmp_path) as log:
        log.topic(1, "orders", **LOG)
        log.append(1, 1, 10)
        log.append(1, 11, 10)
        log.append(1, 21, 10)
        log.roll()
        log.append(1, 31, 10)
    [first, _] = segments(tmp_path)
    assert places(look(tmp_path)[1]) == []
    data = first.read_bytes()
    offset = data.index(b"11121314151617181920")
    flip(first, offset)
    _, [finding] = look(tmp_path)
    assert places([finding]) == [("frame_crc", "error", "orders", 11, 20)]
    assert finding.evidence["file"] == "jobs/00000000000000000001.wal"
    assert finding.evidence["segment"] == "jobs-1"
    frame_starts = finding.evidence["offset"]
    assert frame_starts < offset < frame_starts + 200 and frame_starts % 8 == 0


def test_damage_in_the_last_frame_of_a_sealed_segment_is_told_from_a_torn_tail(
    tmp_path: Path,
) -> None:
    with CraftedLog(tmp_path) as log:
        log.topic(1, "orders", **LOG)
        log.append(1, 1, 10)
        log.roll()
        log.append(1, 11, 10)
    sealed, last = segments(tmp_path)
    data = last.read_bytes()
    last.write_bytes(data[: data.index(b"11121314")])
    history, [finding] = look(tmp_path)
    assert places([finding]) == [("frame_crc", "info", "orders", 11, None)]
    assert "the next start cuts it off" in finding.detail
    flip(sealed, sealed.read_bytes().index(b"12345678"))
    last.write_bytes(data)
    _, [finding] = look(tmp_path)
    assert places([finding]) == [("frame_crc", "error", "orders", 1, 10)]
    assert history.is_whole


def test_a_segment_without_its_header_and_one_that_is_missing(tmp_path: Path) -> None:
    with CraftedLog(tmp_path) as log:
        log.topic(1, "orders", **LOG)
        for first in (1, 11, 21):
            log.append(1, first, 10)
            log.roll()
        log.append(1, 31, 10)
    _, second, third, _ = segments(tmp_path)
    kept = second.read_bytes()
    flip(second, 3)
    _, [finding] = look(tmp_path)
    assert places([finding]) == [("frame_crc", "error", "orders", 11, 20)]
    assert finding.evidence["offset"] == 0
    second.write_bytes(kept)
    third.unlink()
    _, [finding] = look(tmp_path)
    assert places([finding]) == [("segments_joined", "error", "orders", 21, 30)]
    assert "segments 3 to 3 of the jobs log are missing" in finding.detail


def test_dropped_segments_are_no_fault_and_ones_that_had_to_stay_are(tmp_path: Path) -> None:
    kept = TopicSnapshot(
        1, "orders", TopicOptions(durability="fsync").resolved(), 10, 0, 0, 0, 0, 0
    )
    with CraftedLog(tmp_path) as log:
        log.topic(1, "orders", **LOG)
        log.append(1, 1, 10)
        log.roll()
        log.log(ev.Checkpointed(log.at, 0, [kept], 2, 1, oldest=1, first_segment=2))
        log.append(1, 11, 10)
        log.log(ev.SegmentsDropped(log.at, 0, 2))
    segments(tmp_path)[0].unlink()
    history, found = look(tmp_path)
    assert found == []
    assert history.is_partial and history.instances[1].known_from == 11
    segments(tmp_path)[0].unlink()
    with pytest.raises(PipelineError, match="no log in"):
        look(tmp_path)


def _gap(log: CraftedLog) -> None:
    log.append(1, 8, 3)


def _reserved(log: CraftedLog) -> None:
    log.log(appended(log.at, 1, 6, 1, reserved=6 + 4096))
    log.log(appended(log.at, 1, 6 + 4096 + 1, 1))


def _promise_forgotten_after_a_clean_end(log: CraftedLog) -> None:
    log.log(appended(log.at, 1, 6, 1, reserved=6 + 4096))
    log.log(ev.Checkpointed(log.at, 0, [], 2, 1, clean=True))
    log.log(appended(log.at, 1, 6 + 4096 + 1, 1))


def _skipped(log: CraftedLog) -> None:
    log.log(ev.SeqsSkipped(log.at, 1, 6, 4))
    log.append(1, 10, 1)


def _in_memory(log: CraftedLog) -> None:
    config = TopicOptions(durability="ephemeral").resolved()
    log.log(ev.TopicConfigured(log.at, 1, config))
    log.append(1, 900, 1)


def _twice(log: CraftedLog) -> None:
    log.append(1, 4, 3)


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (_gap, [("seq_contiguous", "error", "orders", 6, 7)]),
        (_reserved, []),
        (
            _promise_forgotten_after_a_clean_end,
            [("seq_contiguous", "error", "orders", 7, 6 + 4096)],
        ),
        (_skipped, []),
        (_in_memory, []),
        (_twice, [("seq_unique", "error", "orders", 4, 5)]),
    ],
)
def test_holes_that_the_log_tells_of_are_no_fault(
    tmp_path: Path, write: Callable[[CraftedLog], None], expected: list[Place]
) -> None:
    with CraftedLog(tmp_path) as log:
        log.topic(1, "orders", durability="disk")
        log.append(1, 1, 5)
        write(log)
    assert places(look(tmp_path)[1]) == expected


def _epoch(log: CraftedLog, epoch: int, first: int, said: tuple[str, int, int]) -> None:
    chunk = appended(log.at, 1, first, 2)
    log.log(ev.ChunkStaged(log.at, 1, "etl", epoch, 0, "a", 0, chunk.block, 2, chunk.size))
    log.log(
        ev.ChunksCommitted(log.at, 1, "etl", epoch, [(0, "a", 0)], [2], first),
        ev.EpochCommitted(log.at, 0, "etl", epoch, b"digest", [said]),
    )


def test_epochs_without_gaps_each_once_and_as_they_say(tmp_path: Path) -> None:
    with CraftedLog(tmp_path / "good") as log:
        log.topic(1, "orders", **LOG)
        _epoch(log, 7, 1, ("orders", 1, 2))
        _epoch(log, 8, 3, ("orders", 3, 4))
        log.log(ev.StagedDropped(log.at, 0, "etl", True))
        _epoch(log, 1, 5, ("orders", 5, 6))
    assert look(tmp_path / "good")[1] == []
    with CraftedLog(tmp_path / "bad") as log:
        log.topic(1, "orders", **LOG)
        _epoch(log, 1, 1, ("orders", 1, 2))
        _epoch(log, 4, 3, ("orders", 3, 4))
        _epoch(log, 4, 5, ("orders", 5, 6))
        _epoch(log, 5, 7, ("orders", 7, 9))
    _, found = look(tmp_path / "bad")
    assert [(f.rule, f.evidence.get("epoch"), f.evidence.get("first_epoch")) for f in found] == [
        ("epochs_contiguous", None, 2),
        ("epochs_once", 4, None),
        ("epoch_ranges", 5, None),
    ]
    assert found[0].evidence["last_epoch"] == 3


def _routed(log: CraftedLog, *copies: tuple[int, int, int], options: RouterOptions) -> None:
    log.topic(1, "orders", **LOG)
    log.topic(2, "copies", **LOG)
    log.log(ev.RouterCreated(log.at, 1, 3, "r", 2, 0, options))
    log.append(1, 1, 9)
    for first, source_first, count in copies:
        cursor = source_first + count - 1
        log.log(ev.RecordsForwarded(log.at, 2, 3, cursor, first, count, source_first, []))


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        ([(1, 1, 5), (6, 6, 4)], []),
        ([(1, 1, 5), (6, 4, 6)], [("router_copies", "error", "orders", 4, 5)]),
        ([(1, 1, 5), (6, 8, 2)], [("router_copies", "error", "orders", 6, 7)]),
        ([(1, 1, 12)], [("router_copies", "error", "orders", 10, 12)]),
    ],
)
def test_a_router_copies_each_record_once(
    tmp_path: Path, copies: list[tuple[int, int, int]], expected: list[Place]
) -> None:
    with CraftedLog(tmp_path) as log:
        _routed(log, *copies, options=RouterOptions())
    assert places(look(tmp_path)[1]) == expected


def test_a_router_with_a_filter_may_pass_records_over(tmp_path: Path) -> None:
    with CraftedLog(tmp_path) as log:
        _routed(log, (1, 1, 2), (3, 8, 2), options=RouterOptions(filter=Predicate("a", True)))
    assert look(tmp_path)[1] == []


def test_orders_are_given_once_and_missing_ones_are_told(tmp_path: Path) -> None:
    with CraftedLog(tmp_path) as log:
        log.topic(1, "orders", **LOG)
        log.log(appended(log.at, 1, 1, 1), order=5)
        log.log(appended(log.at, 1, 2, 1), order=5)
    _, found = look(tmp_path)
    assert [(f.rule, f.severity) for f in found] == [
        ("orders_lost", "info"),
        ("orders_once", "error"),
    ]
    assert found[0].evidence["orders"] == [(2, 4)]
