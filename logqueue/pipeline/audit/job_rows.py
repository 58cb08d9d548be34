"""What happened to jobs as plain rows, each in the bucket of its job.

Owns: the columns that the rules about jobs read, how rows are made of records and lease events,
and in which bucket a job is. Must not know: how rules are checked, engines, files.

A bucket holds whole jobs with all that is known of them: their events, their delays, the ranges
of records that exist, and the copies that point back to them. Any task can judge any bucket by
itself. A topic is spread over the buckets in blocks of neighbouring seqs, so a hot topic is never
a single task.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logqueue.events import WAITING_REASONS
from logqueue.pipeline.audit.rules import ENDS
from logqueue.segments.ranges import Ranges

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

_OTHER_KINDS: Final = (
    "claimed", "delay", "extended", "held", "released", "replaced", "trimmed", "unheld",
)  # fmt: skip
KINDS: Final = tuple(sorted((*ENDS, *_OTHER_KINDS)))
"""Kinds of rows about a job; a kind is its place here. Rows of one order come in this order."""
KIND: Final = {name: place for place, name in enumerate(KINDS)}
PRESENT: Final = 100
"""A range of records that exist: from `seq` to `due`, within one block."""
COPY_DEAD, COPY_ARCHIVE = 101, 102
"""A copy in another topic: `topic` and `seq` are those of the job, `lseq` is the copy's seq."""
COPY_KINDS: Final = {"dead_letter": COPY_DEAD, "archive": COPY_ARCHIVE}

UNCOUNTED: Final = ("hand_back", "given_back")
"""Ways to return a job whose delivery does not count towards `max_deliveries`."""
OTHER, IS_UNCOUNTED, IS_WAITED = 0, 1, 2
_REASONS: Final = {
    **dict.fromkeys(UNCOUNTED, IS_UNCOUNTED),
    **dict.fromkeys(WAITING_REASONS, IS_WAITED),
}

NONE: Final = -1
"""In a column of numbers: there is none."""

BLOCK_BITS: Final = 16
JOBS_PER_BUCKET: Final = 1 << 18
BUCKETS_MAX: Final = 1 << 20

ROWS: Final = pa.schema(
    [
        ("bucket", pa.int32()),
        ("topic", pa.string()),
        ("log_id", pa.string()),
        ("seq", pa.int64()),
        ("lseq", pa.int64()),
        ("at", pa.int64()),
        ("kind", pa.int8()),
        ("worker", pa.string()),
        ("due", pa.int64()),
        ("lease_ms", pa.int64()),
        ("reason", pa.int8()),
    ]
)

EVENT_COLUMNS: Final = (
    "topic", "lseq", "ts", "event", "job_seq", "lease_id", "worker", "deadline", "ready_at",
    "reason", "log_id",
)  # fmt: skip
DELAY_COLUMNS: Final = ("topic", "seq", "not_before", "log_id")
COPY_COLUMNS: Final = ("topic", "seq", "meta")

Pair = tuple[str, str, str]
"""Kind of copy, name of the queue, name of the topic that gets its copies."""


@dataclass(frozen=True, slots=True)
class RowsPlan:
    """Which rows to make, and into how many buckets they go.

    Attributes:
        buckets: How many there are.
        last_order: Later events are left out; None for none.
        heads: By log_id, the last job whose record is at hand: events of later jobs are left out,
            and so are those of instances that are not named. None leaves nothing out.
        timed: Log_ids with jobs that were written with a delay.
        pairs: Which topics get copies of which queues.
        present: By log_id of each queue: topic and seqs that have a record.
    """

    buckets: int = 1
    last_order: int | None = None
    heads: Mapping[str, int] | None = None
    timed: frozenset[str] = frozenset()
    pairs: Sequence[Pair] = ()
    present: Mapping[str, tuple[str, Ranges]] = field(default_factory=dict)

    def for_tasks(self) -> RowsPlan:
        """What tasks need to know of it, which is sent to each."""
        return dataclasses.replace(self, present={})

    def record_columns(self) -> tuple[str, ...]:
        """The columns of records that rows are made of; empty when none are."""
        columns = dict.fromkeys(DELAY_COLUMNS if self.timed else ())
        columns.update(dict.fromkeys(COPY_COLUMNS if self.pairs else ()))
        return tuple(columns)

    def of_events(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of lease events, which have `EVENT_COLUMNS`."""
        for batch in batches:
            yield event_rows(batch, self.buckets, last_order=self.last_order, heads=self.heads)

    def of_records(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of records, which have `record_columns`."""
        for batch in batches:
            if self.timed:
                yield delay_rows(batch, self.buckets, self.timed)
            if self.pairs:
                yield copy_rows(batch, self.buckets, self.pairs)


def buckets_for(jobs: int) -> int:
    """How many buckets hold so many jobs."""
    return min(max(-(-jobs // JOBS_PER_BUCKET), 1), BUCKETS_MAX)


def buckets_of(topics: Codes, names: Sequence[str], seqs: Ints, count: int) -> Codes:
    """The bucket of each job."""
    if count == 1:
        return np.zeros(len(seqs), np.int32)
    bases = np.array([crc32(name.encode()) for name in names] or [0], np.int64)
    found: Ints = (bases[topics] + (seqs >> BLOCK_BITS) * 40503) % count
    return found.astype(np.int32)


def codes_of(column: Any) -> tuple[Codes, list[str]]:
    """A text column as codes, -1 for null, and the text of each code."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return codes, column.dictionary.to_pylist()


def millis_of(column: Any) -> Ints:
    """A column of times as ms since the epoch, `NONE` for null."""
    micros = column.cast(pa.timestamp("us", tz="UTC")).view(pa.int64())
    found: Ints = micros.fill_null(-1000).to_numpy(zero_copy_only=False) // 1000
    return found


def _made(count: int, **columns: Any) -> pa.RecordBatch:
    arrays = []
    for column in ROWS:
        value = columns.get(column.name)
        if value is None:
            is_text = column.type == pa.string()
            value = pa.nulls(count, column.type) if is_text else np.zeros(count, np.int64)
        arrays.append(value if isinstance(value, pa.Array) else pa.array(value).cast(column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)


def event_rows(
    batch: pa.RecordBatch,
    buckets: int,
    *,
    last_order: int | None = None,
    heads: Mapping[str, int] | None = None,
) -> pa.RecordBatch:
    """Lease events as rows; see `RowsPlan`."""
    batch = _within(batch, last_order, heads)
    topics, names = codes_of(batch.column("topic"))
    seqs = batch.column("job_seq").to_numpy(zero_copy_only=False)
    kinds, kind_names = codes_of(batch.column("event"))
    of_kind = np.array([KIND[name] for name in kind_names] or [0], np.int8)
    reasons, reason_names = codes_of(batch.column("reason"))
    of_reason = np.array([*(_REASONS.get(name, OTHER) for name in reason_names), OTHER], np.int8)
    deadline, ready = millis_of(batch.column("deadline")), millis_of(batch.column("ready_at"))
    return _made(
        len(seqs),
        bucket=buckets_of(topics, names, seqs, buckets),
        topic=batch.column("topic"),
        log_id=batch.column("log_id"),
        seq=seqs,
        lseq=batch.column("lseq"),
        at=millis_of(batch.column("ts")),
        kind=of_kind[kinds],
        worker=batch.column("worker"),
        due=np.where(deadline != NONE, deadline, ready),
        lease_ms=_lease_times(batch.column("lease_id")),
        reason=of_reason[reasons],
    )


def _within(
    batch: pa.RecordBatch, last_order: int | None, heads: Mapping[str, int] | None
) -> pa.RecordBatch:
    if last_order is not None:
        orders = batch.column("lseq")
        if (pc.max(orders).as_py() or 0) > last_order:
            batch = batch.filter(pc.less_equal(orders, last_order))
    if heads is not None:
        codes, ids = codes_of(batch.column("log_id"))
        highest = np.array([heads.get(id, 0) for id in ids] or [0], np.int64)
        seqs = batch.column("job_seq").to_numpy(zero_copy_only=False)
        batch = batch.filter(pa.array(seqs <= highest[codes]))
    return batch


def _lease_times(leases: Any) -> Ints:
    """When the numbers of leases were begun to be counted, ms since the epoch: they start at the
    clock * 65 536 whenever a server starts."""
    if leases.null_count == len(leases):
        return np.full(len(leases), NONE, np.int64)
    digits = pc.utf8_lpad(pc.utf8_slice_codeunits(leases, 6, 22), 16, "0").fill_null("f" * 16)
    _, _, values = digits.buffers()
    offset = digits.offset * 16
    text = np.frombuffer(values, np.uint8, len(digits) * 16, offset).reshape(-1, 16)
    nibbles = (text & 15) + 9 * (text >> 6)
    found = np.zeros(len(digits), np.int64)
    for place in range(12):
        found = found << 4 | nibbles[:, place]
    return np.where(found == (1 << 48) - 1, NONE, found)


def delay_rows(batch: pa.RecordBatch, buckets: int, timed: frozenset[str]) -> pa.RecordBatch:
    """Jobs that were written with a delay, as rows before all events; see `RowsPlan`."""
    batch = batch.filter(pc.is_valid(batch.column("not_before")))
    known = pa.array(sorted(timed), pa.string())
    batch = batch.filter(pc.is_in(batch.column("log_id"), value_set=known))
    topics, names = codes_of(batch.column("topic"))
    seqs = batch.column("seq").to_numpy(zero_copy_only=False)
    return _made(
        len(seqs),
        bucket=buckets_of(topics, names, seqs, buckets),
        topic=batch.column("topic"),
        log_id=batch.column("log_id"),
        seq=seqs,
        at=np.full(len(seqs), NONE, np.int64),
        kind=np.full(len(seqs), KIND["delay"], np.int8),
        due=millis_of(batch.column("not_before")),
        lease_ms=np.full(len(seqs), NONE, np.int64),
    )


def present_rows(present: Mapping[str, tuple[str, Ranges]], buckets: int) -> pa.RecordBatch:
    """Ranges of records that exist, cut at the borders of blocks.

    Args:
        present: By log_id: topic and seqs.
        buckets: How many there are.
    """
    ids: list[str] = []
    topics: list[str] = []
    firsts: list[Ints] = []
    lasts: list[Ints] = []
    for log_id, (topic, ranges) in present.items():
        first, last = _cut(ranges)
        firsts.append(first)
        lasts.append(last)
        ids += [log_id] * len(first)
        topics += [topic] * len(first)
    seqs = np.concatenate(firsts) if firsts else np.zeros(0, np.int64)
    names = pa.array(topics, pa.string())
    codes, distinct = codes_of(names)
    return _made(
        len(seqs),
        bucket=buckets_of(codes, distinct, seqs, buckets),
        topic=names,
        log_id=pa.array(ids, pa.string()),
        seq=seqs,
        kind=np.full(len(seqs), PRESENT, np.int8),
        due=np.concatenate(lasts) if lasts else np.zeros(0, np.int64),
    )


def _cut(ranges: Ranges) -> tuple[Ints, Ints]:
    """Ranges in parts that do not cross the border of a block."""
    bounds = np.array(ranges, np.int64).reshape(-1, 2)
    low, high = bounds[:, 0] >> BLOCK_BITS, bounds[:, 1] >> BLOCK_BITS
    counts = high - low + 1
    of = np.repeat(np.arange(len(bounds)), counts)
    starts = np.cumsum(counts) - counts
    blocks = low[of] + np.arange(len(of)) - starts[of]
    first = np.maximum(bounds[of, 0], blocks << BLOCK_BITS)
    last = np.minimum(bounds[of, 1], ((blocks + 1) << BLOCK_BITS) - 1)
    return first, last


class _Stamps(msgspec.Struct):
    """What the meta of a copy says of the job it was made of."""

    dead_from: Any = msgspec.field(default=None, name="$dead_letter_from")
    dead_seq: Any = msgspec.field(default=None, name="$dead_letter_src_seq")
    kept_from: Any = msgspec.field(default=None, name="$archived_from")
    kept_seq: Any = msgspec.field(default=None, name="$archived_src_seq")


_stamps = msgspec.json.Decoder(_Stamps).decode


def copy_rows(batch: pa.RecordBatch, buckets: int, pairs: Iterable[Pair]) -> pa.RecordBatch:
    """The copies among records, as rows of the jobs that they were made of; see `RowsPlan`."""
    known = set(pairs)
    targets = pa.array(sorted({target for _, _, target in known}), pa.string())
    metas = batch.column("meta")
    batch = batch.filter(
        pc.and_(pc.is_valid(metas), pc.is_in(batch.column("topic"), value_set=targets))
    )
    sources: list[str] = []
    seqs: list[int] = []
    copies: list[int] = []
    kinds: list[int] = []
    columns = (batch.column(name).to_pylist() for name in COPY_COLUMNS)
    for topic, copy, meta in zip(*columns, strict=True):
        for kind, source, seq in _stamps_of(meta):
            if (kind, source, topic) in known:
                sources.append(source)
                seqs.append(seq)
                copies.append(copy)
                kinds.append(COPY_KINDS[kind])
    names = pa.array(sources, pa.string())
    codes, distinct = codes_of(names)
    found = np.array(seqs, np.int64)
    return _made(
        len(found),
        bucket=buckets_of(codes, distinct, found, buckets),
        topic=names,
        seq=found,
        lseq=np.array(copies, np.int64),
        kind=np.array(kinds, np.int8),
    )


def is_dead_letter(meta: str | None) -> bool:
    """Whether a record says of itself that it is a dead letter."""
    return any(kind == "dead_letter" for kind, _, _ in _stamps_of(meta, needs_seq=False))


def _stamps_of(meta: str | None, *, needs_seq: bool = True) -> Iterable[tuple[str, str, int]]:
    try:
        stamps = _stamps(meta or "{}")
    except msgspec.MsgspecError:
        return
    for kind, source, seq in (
        ("dead_letter", stamps.dead_from, stamps.dead_seq),
        ("archive", stamps.kept_from, stamps.kept_seq),
    ):
        if source is None:
            continue
        try:
            number = int(seq)
        except (TypeError, ValueError):
            number = NONE
        if not needs_seq or 0 <= number < 1 << 62:
            yield kind, str(source), number
