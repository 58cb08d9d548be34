"""Segments as Arrow batches say what the server says, row by row. No Spark here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logqueue import events as ev
from logqueue.events import block as blocks
from logqueue.model.config import TopicOptions
from logqueue.pipeline.rows import arrow_columns, segment_batches
from logqueue.pipeline.rows.segment_batches import (
    EVENTS_SCHEMA,
    RECORDS_SCHEMA,
    NotText,
    event_batches,
    record_batches,
)
from logqueue.segments.index import SegmentDamaged, SegmentIndex
from logqueue.segments.plan import SegmentRead, plan_events, plan_records, topics_of
from tests.segments.histories import History, Row, indexes_of
from tests.segments.transitions import transitions
from wal import Log

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def row_as_told(row: Row) -> dict[str, Any]:
    """What the columns of a record must say."""
    ts, (data, tag, node, meta), key, due = row
    return {
        "ts": at(ts),
        "tag": blocks.read_string(tag) if tag else None,
        "key": key,
        "node": blocks.read_string(node) if node else None,
        "meta": meta.decode() or None,
        "data": data.decode(),
        "size": len(data) + len(meta),
        "not_before": at(due) if due else None,
        "priority": None,
        "group": None,
    }


@pytest.fixture(scope="module", params=[1, 2, 3])
def history(request: pytest.FixtureRequest) -> History:
    history = History(request.param)
    history.live(90)
    return history


@pytest.mark.parametrize("large_from", [1, 3, 64])
def test_records_are_as_they_came(
    history: History, large_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_columns, "LARGE_RECORDS_MIN", large_from)
    segments = history.segments["jobs"]
    indexes = indexes_of(segments)
    known = topics_of(indexes)
    found = {}
    for read in plan_records(indexes, dict.fromkeys(known.topics)):
        for batch in record_batches(segments[read.segment], read, segments.__getitem__):
            assert batch.schema == RECORDS_SCHEMA()
            batch.validate(full=True)
            for row in batch.to_pylist():
                topic = int(row.pop("log_id").removeprefix(f"{indexes[0].identity}-"))
                assert row.pop("topic") == known.name(topic)
                assert row.pop("segment") == f"jobs-{read.segment}"
                found[topic, row.pop("seq")] = row
    assert found == {place: row_as_told(row) for place, row in history.came.items()}


def test_events_are_as_they_were_read(history: History) -> None:
    jobs = indexes_of(history.segments["jobs"])
    leases = indexes_of(history.segments["leases"], "leases", jobs[0].log_id)
    reads = plan_events(jobs, leases, topics_of(jobs).topics)
    kinds = set()
    for read in reads:
        data = history.segments[read.log][read.segment]
        told = [*transitions(data, read)]
        batches = [*event_batches(data, read)]
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert len(rows) == len(told)
        for row, event in zip(rows, told, strict=True):
            kinds.add(event.event)
            assert (row["lseq"], row["ts"]) == (event.order, at(event.at))
            assert (row["event"], row["job_seq"]) == (event.event, event.seq)
            assert row["lease_id"] == (f"lease_{event.lease:x}" if event.lease else None)
            assert row["worker"] == (event.worker or None)
            assert row["deadline"] == (at(event.deadline) if event.deadline else None)
            assert row["ready_at"] == (at(event.ready_at) if event.ready_at else None)
            assert (row["reason"], row["detail"]) == (event.reason or None, event.detail)
            assert row["log_id"] == f"{jobs[0].identity}-{event.topic}"
        assert all(batch.schema == EVENTS_SCHEMA for batch in batches)
    assert {"claimed", "expired"} & kinds


# -- hand-made segments ----------------------------------------------------------------------------


def segment_of(directory: Path, *batches: bytes, counts: list[int] | None = None) -> bytes:
    """A segment with a topic and some blocks in it."""
    log = Log.open(str(directory), segment_bytes_max=1 << 30)
    created = ev.TopicCreated(1, 1, "t", TopicOptions().resolved())
    log.append(ev.encode(1, [created]), sync=True)
    seq = 1
    for order, block in enumerate(batches, 2):
        count = counts[order - 2] if counts else blocks.BlockView(block).count
        appended = ev.RecordsAppended(order, 1, seq, count, block, size=1)
        log.append(ev.encode(order, [appended]), sync=True)
        seq += count
    while log.step():
        pass
    log.close()
    [path] = directory.glob("*.wal")
    return path.read_bytes()


@pytest.mark.parametrize("large_from", [1, 64])
def test_priority_and_group_are_columns(
    tmp_path: Path, large_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_columns, "LARGE_RECORDS_MIN", large_from)
    groups = [blocks.write_string("a\u00e9"), b"", blocks.write_string('q"')]
    with_both = blocks.pack([[b"1"] * 3, *[None] * 4, groups], numbers={blocks.PRIORITY: [0, 9, 3]})
    data = segment_of(tmp_path, blocks.pack_bare([b"1"]), with_both)
    read, _ = reading(data)
    rows = [row for batch in record_batches(data, read) for row in batch.to_pylist()]
    assert [(row["seq"], row["priority"], row["group"]) for row in rows] == [
        (1, None, None), (2, None, "a\u00e9"), (3, 9, None), (4, 3, 'q"'),
    ]  # fmt: skip


def reading(data: bytes) -> tuple[SegmentRead, SegmentIndex]:
    [index] = indexes_of({1: data})
    [read] = plan_records([index], {1: None})
    return read, index


def test_one_record(tmp_path: Path) -> None:
    data = segment_of(tmp_path, blocks.pack([[b"1"], None, None, None]))
    [batch] = record_batches(data, reading(data)[0])
    [row] = batch.to_pylist()
    assert (row["seq"], row["data"], row["size"], row["tag"]) == (1, "1", 1, None)
    assert (row["ts"], row["topic"], row["not_before"]) == (at(2), "t", None)


def test_large_records_make_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = b'"' + b"x" * (17 << 20) + b'"'
    pack = blocks.pack
    data = segment_of(
        tmp_path,
        *(pack([[large], None, None, None]) for _ in range(2)),
        pack([[b"1", large, b"2"], None, None, None]),
    )
    monkeypatch.setattr(segment_batches, "BYTES_MAX", 8 << 20)
    batches = [*record_batches(data, reading(data)[0])]
    assert [batch.num_rows for batch in batches] == [1, 1, 1, 1, 1]
    sizes = [size for batch in batches for size in batch.column("size").to_pylist()]
    assert sizes == [len(large), len(large), 1, len(large), 1]
    assert batches[1].column("data")[0].as_py() == large.decode()


@pytest.mark.parametrize("count", [1, 100])
def test_bytes_that_are_no_text_are_refused_or_shown_as_bytes(tmp_path: Path, count: int) -> None:
    texts = [b'"fine"'] * (count - 1) + [b'"\xff"']
    data = segment_of(
        tmp_path, blocks.pack([[b"1"], None, None, None]), blocks.pack([texts, None, None, None])
    )
    read, _ = reading(data)
    problem = rf"`data` of record {count + 1} of topic 't' is not UTF-8; read with data=binary"
    with pytest.raises(NotText, match=problem):
        [*record_batches(data, read, path="file.wal")]
    [batch] = record_batches(data, read, data_as="binary")
    assert batch.schema == RECORDS_SCHEMA("binary")
    assert batch.column("data").to_pylist() == [b"1", *texts]
    [batch] = record_batches(data, read, data_as="none")
    assert batch.column("data").null_count == count + 1


@given(st.sets(st.sampled_from(RECORDS_SCHEMA().names)))
def test_only_the_columns_asked_for_are_made(columns: set[str]) -> None:
    history = _small()
    segments = history.segments["jobs"]
    indexes = indexes_of(segments)
    read = plan_records(indexes, dict.fromkeys(topics_of(indexes).topics))[-1]
    [whole] = record_batches(segments[read.segment], read, segments.__getitem__)
    [batch] = record_batches(
        segments[read.segment], read, segments.__getitem__, columns=sorted(columns)
    )
    assert batch.num_rows == whole.num_rows
    assert batch.schema.names == [name for name in whole.schema.names if name in columns]
    for name in columns:
        assert batch.column(name) == whole.column(name)


_kept: list[History] = []


def _small() -> History:
    if not _kept:
        _kept.append(History(4))
        _kept[0].live(30)
    return _kept[0]


def malformed() -> list[bytes]:
    """Blocks that say what is not so."""
    good = blocks.pack([[b"12", b"345"], None, None, None])
    many = blocks.pack([[b"12"] * 70, None, None, None])
    return [
        good[:4] + b"\xff\xff\x00\x00" + good[8:],
        good[:8] + b"\x04\x00\x00\x00\x03\x00\x00\x00" + good[16:],
        good[:-1],
        b"\x02" + good[1:],
        b"\x01\x80" + good[2:],
        many[:8] + b"\xff\xff\xff\x7f" + many[12:],
        many[:-1],
        many[:60],
    ]


@pytest.mark.parametrize("place", range(len(malformed())))
def test_a_malformed_block_is_refused_and_never_reaches_arrow(tmp_path: Path, place: int) -> None:
    block = malformed()[place]
    count = 70 if place > 4 else 2
    data = segment_of(tmp_path, block, counts=[count])
    read, _ = reading(data)
    with pytest.raises(SegmentDamaged, match="batch of records"):
        [*record_batches(data, read)]


def test_types_are_those_spark_compares_with() -> None:
    assert {field.type for field in RECORDS_SCHEMA()} == {
        pa.string(), pa.int64(), pa.int32(), pa.timestamp("us", tz="UTC"),
    }  # fmt: skip
    assert all(field.nullable for field in (*RECORDS_SCHEMA("binary"), *EVENTS_SCHEMA))
    assert RECORDS_SCHEMA("binary").field("data").type == pa.binary()
