"""Rules about records: seqs without holes and duplicates, times in order.

Owns: what the runs of all records say. Must not know: files, leases, engines, how records were
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from logqueue.pipeline.audit.findings import Finding
from logqueue.pipeline.audit.history import Instance
from logqueue.pipeline.audit.job_rows import Codes, Ints, codes_of, millis_of
from logqueue.pipeline.audit.record_runs import high_so_far
from logqueue.pipeline.audit.rules import SKEW_MS
from logqueue.segments import ranges as seq_ranges
from logqueue.segments.ranges import Ranges

PLACES_SHOWN = 10


@dataclass(slots=True)
class RecordRanges:
    """The records of one topic instance.

    Attributes:
        records: How many, duplicates included.
        timed: Jobs that were written with a delay.
        present: Seqs that have a record.
        doubled: (first, last, segments) of seqs that several records have.
        back: (first, last, highest time before) of runs in which time may go back too far.
    """

    topic: str
    records: int = 0
    timed: int = 0
    present: Ranges = field(default_factory=list)
    doubled: list[tuple[int, int, list[str]]] = field(default_factory=list)
    back: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def first(self) -> int:
        """The lowest seq."""
        return self.present[0][0]

    @property
    def last(self) -> int:
        """The highest seq."""
        return self.present[-1][1]


def gathered(runs: pa.Table) -> dict[str, RecordRanges]:
    """What runs say, by log_id.

    Args:
        runs: As `record_runs.RUNS`, of all tasks, in any order.
    """
    logs, ids = codes_of(runs.column("log_id"))
    columns = [runs.column(n).to_numpy() for n in ("first", "last", "low", "high", "timed")]
    back = runs.column("back").to_numpy()
    topics, names = codes_of(runs.column("topic"))
    segments, places = codes_of(runs.column("segment"))
    order = np.lexsort((columns[1], columns[0], logs))
    first, last, low, high, timed = (column[order] for column in columns)
    logs, topics, segments, back = logs[order], topics[order], segments[order], back[order]
    found: dict[str, RecordRanges] = {}
    bounds = np.searchsorted(logs, np.arange(len(ids) + 1))
    for code, log_id in enumerate(ids):
        part = slice(int(bounds[code]), int(bounds[code + 1]))
        if part.start == part.stop:
            continue
        ranges = found[log_id] = RecordRanges(names[topics[part.start]])
        ranges.records = int((last[part] - first[part] + 1).sum())
        ranges.timed = int(timed[part].sum())
        ranges.present = _union(first[part], last[part])
        if ranges.records > seq_ranges.count(ranges.present):
            ranges.doubled = _doubled(first[part], last[part], segments[part], places)
        before = np.full(part.stop - part.start, -1, np.int64)
        before[1:] = high_so_far(logs[part].astype(np.int64), high[part])[:-1]
        suspect = back[part] | (low[part] < before - SKEW_MS)
        ranges.back = [
            *zip(
                first[part][suspect].tolist(),
                last[part][suspect].tolist(),
                before[suspect].tolist(),
                strict=True,
            )
        ]
    return found


def _union(first: Ints, last: Ints) -> Ranges:
    """Runs, ascending by their first seq, as ranges."""
    reached = np.maximum.accumulate(last)
    starts = np.concatenate([[0], np.flatnonzero(first[1:] > reached[:-1] + 1) + 1])
    ends = reached[np.concatenate([starts[1:], [len(first)]]) - 1]
    return [*zip(first[starts].tolist(), ends.tolist(), strict=True)]


def _doubled(
    first: Ints, last: Ints, segments: Codes, places: list[str]
) -> list[tuple[int, int, list[str]]]:
    """Where runs overlap, and the segments that these are in."""
    reached = np.maximum.accumulate(last)
    over = np.flatnonzero(first[1:] <= reached[:-1]) + 1
    ranges = seq_ranges.union(
        zip(first[over].tolist(), np.minimum(last[over], reached[over - 1]).tolist(), strict=True)
    )
    found = []
    for low, high in ranges:
        meets = (first <= high) & (last >= low) & (segments >= 0)
        names = sorted({places[code] for code in segments[meets].tolist()})
        found.append((low, high, names[:PLACES_SHOWN]))
    return found


def holes(records: RecordRanges) -> Ranges:
    """Seqs from 1 up to the last one that have no record."""
    return seq_ranges.without([(1, records.last)], records.present)


def missing_findings(
    holes_by_log: Mapping[str, Ranges],
    heads: Mapping[str, tuple[str, int]],
    instances: Mapping[str, Instance],
) -> Iterator[Finding]:
    """What the holes mean.

    Args:
        holes_by_log: Seqs without a record.
        heads: By log_id, the topic and the highest seq that has a record.
        instances: What the log says of each instance; those it says nothing of are judged by
            their records alone.
    """
    for log_id, (topic, head) in sorted(heads.items()):
        inst = instances.get(log_id)
        absent = holes_by_log.get(log_id, [])
        if inst is not None and inst.head > head:
            absent = seq_ranges.union(absent, [(head + 1, inst.head)])
        if inst is not None:
            absent = seq_ranges.without(absent, inst.hole_ranges())
        known_from = inst.known_from if inst is not None else 1
        gone = seq_ranges.cut(absent, 0, known_from - 1)
        if gone:
            yield _compacted(topic, log_id, gone)
        for first, last in seq_ranges.cut(absent, known_from, 1 << 62):
            yield Finding(
                "seq_contiguous",
                "error",
                topic,
                first,
                last,
                f"{last - first + 1} seqs have no record, and the log does not say why",
                {"log_id": log_id},
            )


def _compacted(topic: str, log_id: str, gone: Ranges) -> Finding:
    return Finding(
        "seq_contiguous",
        "info",
        topic,
        gone[0][0],
        gone[-1][1],
        f"{seq_ranges.count(gone)} records were in segments that were dropped, so this range "
        "cannot be checked; keep a log archive to audit the whole history",
        {"log_id": log_id},
    )


def doubled_findings(records: Mapping[str, RecordRanges]) -> Iterator[Finding]:
    """Seqs that several records have."""
    for log_id, ranges in sorted(records.items()):
        for first, last, segments in ranges.doubled:
            yield Finding(
                "seq_unique",
                "error",
                ranges.topic,
                first,
                last,
                f"{last - first + 1} seqs were given to more than one record",
                {"log_id": log_id, "segments": segments},
            )


# -- times -----------------------------------------------------------------------------------------

BACK_COLUMNS = ("topic", "seq", "ts", "log_id")
BACK = pa.schema(
    [
        ("topic", pa.string()),
        ("log_id", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("back_ms", pa.int64()),
    ]
)


def times_back(
    batches: Iterable[pa.RecordBatch], suspects: Mapping[str, list[tuple[int, int, int]]]
) -> Iterator[pa.RecordBatch]:
    """The records that are older than one before them, by more than clocks may differ, as ranges.

    Args:
        batches: Records of the same task that made the runs, with `BACK_COLUMNS`.
        suspects: By log_id, `RecordRanges.back`.
    """
    kept: dict[tuple[str, str], list[tuple[Ints, Ints]]] = {}
    for batch in batches:
        codes, ids = codes_of(batch.column("log_id"))
        topics, names = codes_of(batch.column("topic"))
        seqs = batch.column("seq").to_numpy(zero_copy_only=False)
        times = millis_of(batch.column("ts"))
        for code, log_id in enumerate(ids):
            if log_id in suspects:
                rows = np.flatnonzero(codes == code)
                if len(rows):
                    key = (log_id, names[topics[rows[0]]])
                    kept.setdefault(key, []).append((seqs[rows], times[rows]))
    columns: list[list[object]] = [[], [], [], [], []]
    for (log_id, topic), parts in kept.items():
        seqs = np.concatenate([seq for seq, _ in parts])
        times = np.concatenate([time for _, time in parts])
        order = np.argsort(seqs, kind="stable")
        for first, last, back in _back(seqs[order], times[order], suspects[log_id]):
            for column, value in zip(columns, (topic, log_id, first, last, back), strict=True):
                column.append(value)
    yield pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, BACK, strict=True)], schema=BACK
    )


def _back(
    seqs: Ints, times: Ints, suspects: list[tuple[int, int, int]]
) -> Iterator[tuple[int, int, int]]:
    for first, last, high in suspects:
        low, end = np.searchsorted(seqs, (first, last + 1))
        if low == end:
            continue
        before = np.full(end - low, high, np.int64)
        before[1:] = np.maximum(high, np.maximum.accumulate(times[low:end])[:-1])
        back = before - times[low:end]
        rows = np.flatnonzero(back > SKEW_MS)
        if not len(rows):
            continue
        found = seqs[low:end][rows]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(found) > 1) + 1])
        ends = np.concatenate([starts[1:], [len(rows)]])
        for a, b in zip(starts.tolist(), ends.tolist(), strict=True):
            yield int(found[a]), int(found[b - 1]), int(back[rows[a:b]].max())


def time_findings(rows: pa.Table) -> Iterator[Finding]:
    """Findings from the ranges of all tasks.

    Args:
        rows: As `BACK`.
    """
    joined: list[tuple[str, str, int, int, int]] = []
    columns = (rows.column(name).to_pylist() for name in BACK.names)
    found = sorted(zip(*columns, strict=True), key=lambda row: (row[1], row[2]))
    for topic, log_id, first, last, back in found:
        if joined and joined[-1][1] == log_id and first <= joined[-1][3] + 1:
            _, _, start, end, most = joined[-1]
            joined[-1] = (topic, log_id, start, max(end, last), max(most, back))
        else:
            joined.append((topic, log_id, first, last, back))
    for topic, log_id, first, last, back in joined:
        detail = f"records are up to {back} ms older than one before them; the clock was set back"
        evidence = {"log_id": log_id, "back_ms": back}
        yield Finding("time_order", "error", topic, first, last, detail, evidence)
