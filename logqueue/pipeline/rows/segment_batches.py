"""Segments of the logs as Arrow batches.

Owns: the schemas of records and of job events, and rows in them. Must not know: pyspark, where
segments come from, who reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logqueue.events.block import (
    DATA,
    DELAY,
    GROUP,
    KEY,
    META,
    NODE,
    NOT_BEFORE,
    PRIORITY,
    SEQ,
    TAG,
    TS,
    UPDATED_AT,
    BlockError,
)
from logqueue.pipeline.lifecycle.job_history import EVENTS
from logqueue.pipeline.rows.arrow_columns import (
    ColumnPiece,
    Ints,
    length_column,
    number_column,
    pieces,
    text_column,
)
from logqueue.pipeline.rows.event_columns import EventColumns, Words, event_columns
from logqueue.segments.fast_decode import RecordEvents
from logqueue.segments.index import SegmentDamaged
from logqueue.segments.plan import SegmentRead
from logqueue.segments.resolver import FetchSource
from logqueue.segments.walk import read_records

DataAs = Literal["string", "binary", "none"]

ROWS_MIN = 32_768
"""A batch has at least as many rows, if there are that many."""

BYTES_MAX = 64 << 20
"""A batch has about as many bytes at most, or one row."""

TIME = pa.timestamp("us", tz="UTC")

_STRING = pa.string()
_TEXT_COLUMNS = {
    "data": DATA, "tag": TAG, "node": NODE, "meta": META, "key": KEY, "group": GROUP,
}  # fmt: skip
_TIME_MS_MAX = (1 << 63) // 1000 - 1
_unquote = msgspec.json.Decoder(str)


class NotText(ValueError):
    """Bytes of a record that were to be text and are none."""


def RECORDS_SCHEMA(data: DataAs = "string") -> pa.Schema:
    """The schema of records; `data` says what type the column of that name has."""
    return _RECORDS[data]


def _records_schema(data: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            ("topic", _STRING),
            ("seq", pa.int64()),
            ("ts", TIME),
            ("tag", _STRING),
            ("key", _STRING),
            ("node", _STRING),
            ("meta", _STRING),
            ("data", data),
            ("size", pa.int32()),
            ("not_before", TIME),
            ("segment", _STRING),
            ("log_id", _STRING),
            ("priority", pa.int32()),
            ("group", _STRING),
        ]
    )


_RECORDS = {
    "string": _records_schema(_STRING),
    "binary": _records_schema(pa.binary()),
    "none": _records_schema(_STRING),
}

EVENTS_SCHEMA = pa.schema(
    [
        ("topic", _STRING),
        ("lseq", pa.int64()),
        ("ts", TIME),
        ("event", _STRING),
        ("job_seq", pa.int64()),
        ("lease_id", _STRING),
        ("worker", _STRING),
        ("deadline", TIME),
        ("ready_at", TIME),
        ("reason", _STRING),
        ("detail", _STRING),
        ("log_id", _STRING),
    ]
)
"""The schema of job events."""


def record_batches(
    data: bytes,
    read: SegmentRead,
    fetch_source: FetchSource | None = None,
    *,
    data_as: DataAs = "string",
    columns: Sequence[str] | None = None,
    path: str = "",
) -> Iterator[pa.RecordBatch]:
    """The records that a read takes of its segment.

    Args:
        data: The segment from its first byte.
        read: What to take; made by `segments.plan.plan_records`.
        fetch_source: Gives the bytes of `read.source_segments`.
        data_as: Type of the column "data"; with "none" it is null and costs nothing.
        columns: Those to make, in the order of the schema; None for all.
        path: How errors name the segment.

    Raises:
        SegmentDamaged: The bytes are not what they were.
        NotText: A record is not UTF-8 where it was to be text.
    """
    wanted = None if columns is None else frozenset(columns)
    maker = _RecordRows(read, data_as, wanted, path or f"segment {read.name}")
    pending: list[RecordEvents] = []
    size = rows = 0
    for records in read_records(data, read, fetch_source, path):
        length = len(records.block)
        if rows >= ROWS_MIN or (pending and size + length > BYTES_MAX):
            yield from maker.make(pending)
            pending, size, rows = [], 0, 0
        pending.append(records)
        size += length
        rows += records.count
    if pending:
        yield from maker.make(pending)


class _RecordRows:
    """Makes batches of records in one shape."""

    def __init__(
        self, read: SegmentRead, data_as: DataAs, wanted: frozenset[str] | None, path: str
    ) -> None:
        schema = RECORDS_SCHEMA(data_as)
        fields = [field for field in schema if wanted is None or field.name in wanted]
        self._schema = pa.schema(fields)
        self._names = {topic.topic: (topic.name, topic.log_id) for topic in read.topics}
        self._segment = read.name
        self._data_as = data_as
        self._path = path

    def make(self, records: Sequence[RecordEvents]) -> Iterator[pa.RecordBatch]:
        """Batches of some records, none of them much too large."""
        try:
            rows = _Rows(records)
        except BlockError as error:
            raise SegmentDamaged(self._path, 0, f"a batch of records: {error}") from error
        arrays = [self._column(field, rows) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if not arrays:
            # Nothing but the number of rows is asked for.
            empty = pa.StructArray.from_buffers(pa.struct([]), rows.count, [None])
            batch = pa.RecordBatch.from_struct_array(empty)
        yield from _split(batch)

    def _column(self, field: pa.Field, rows: _Rows) -> pa.Array:
        name = field.name
        if name in ("topic", "log_id"):
            return self._named(0 if name == "topic" else 1, rows)
        if name == "segment":
            return pa.repeat(pa.scalar(self._segment, _STRING), rows.count)
        if name == "seq":
            return pa.array(rows.seqs())
        if name == "ts":
            return _times(rows.times())
        if name == "not_before":
            due = rows.due()
            return pa.nulls(rows.count, TIME) if due is None else _times(due, zero_is_null=True)
        if name == "priority":
            own = number_column(rows.parts, PRIORITY)
            if own is None:
                return pa.nulls(rows.count, field.type)
            return pa.array(own.astype(np.int32), mask=own == 0)
        if name == "size":
            return pa.array(length_column(rows.parts, (DATA, META)).astype(np.int32))
        if name == "data" and self._data_as == "none":
            return pa.nulls(rows.count, field.type)
        return self._texts(field, rows)

    def _named(self, which: int, rows: _Rows) -> pa.Array:
        numbers = rows.topics
        if len(set(numbers)) == 1:
            return pa.repeat(pa.scalar(self._names[numbers[0]][which], _STRING), rows.count)
        places = {number: place for place, number in enumerate(self._names)}
        of_rows = np.repeat(np.array([places[n] for n in numbers], np.int32), rows.counts)
        names = pa.array([pair[which] for pair in self._names.values()], _STRING)
        return pa.DictionaryArray.from_arrays(pa.array(of_rows), names).cast(_STRING)

    def _texts(self, field: pa.Field, rows: _Rows) -> pa.Array:
        column = _TEXT_COLUMNS[field.name]
        found = text_column(rows.parts, column)
        if found is None:
            return pa.nulls(rows.count, field.type)
        if field.type == pa.binary():
            return found
        try:
            if column in (TAG, NODE, KEY, GROUP):
                return _unquoted(found)
            return found.cast(_STRING)
        except pa.ArrowInvalid:
            raise self._not_text(field.name, found, rows) from None

    def _not_text(self, name: str, found: pa.Array, rows: _Rows) -> NotText:
        place = next(place for place, value in enumerate(found) if not _is_text(value.as_py()))
        entry = int(np.searchsorted(np.cumsum(rows.counts), place, side="right"))
        topic = self._names[rows.topics[entry]][0]
        advice = "; read with data=binary" if name == "data" else ""
        return NotText(
            f"{self._path}: `{name}` of record {rows.seqs()[place]} of topic '{topic}' is not "
            f"UTF-8{advice}"
        )


class _Rows:
    """Records as rows, with what several columns need of them."""

    def __init__(self, records: Sequence[RecordEvents]) -> None:
        """Look at some records.

        Raises:
            BlockError: A block is not what this version can read.
        """
        self.topics = [entry.topic for entry in records]
        self._firsts: Ints = np.array([entry.first_seq for entry in records], np.int64)
        self._ats: Ints = np.array([entry.at for entry in records], np.int64)
        blocks = [entry.block for entry in records]
        self.parts: Sequence[ColumnPiece] = pieces(blocks, [entry.count for entry in records])
        self.counts: Ints = np.concatenate([part.counts for part in self.parts])
        self.count = int(self.counts.sum())

    def seqs(self) -> Ints:
        """The seq of each row."""
        if self.count == len(self.counts):
            found = self._firsts
        else:
            starts = np.cumsum(self.counts) - self.counts
            found = np.repeat(self._firsts - starts, self.counts) + np.arange(self.count)
        own = number_column(self.parts, SEQ)
        return found if own is None else np.where(own > 0, own, found)

    def times(self) -> Ints:
        """When each record was appended, ms since the epoch."""
        found = np.repeat(self._ats, self.counts)
        own = number_column(self.parts, TS)
        if own is None:
            return found
        # A block brings its own times with its own seqs, and a time may be 0.
        seqs = number_column(self.parts, SEQ)
        assert seqs is not None
        return np.where(seqs > 0, own, found)

    def due(self) -> Ints | None:
        """When each was first to be claimable, ms since the epoch; 0 at once; None for all so."""
        delay = number_column(self.parts, DELAY)
        not_before = number_column(self.parts, NOT_BEFORE)
        if delay is None:
            return not_before
        updated = number_column(self.parts, UPDATED_AT)
        written = self.times()
        if updated is not None:
            written = np.where(updated > 0, updated, written)
        other = 0 if not_before is None else not_before
        return np.where(delay > 0, written + np.minimum(delay, _TIME_MS_MAX), other)


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _times(ms: Ints, *, zero_is_null: bool = False) -> pa.Array:
    micros = np.minimum(ms, _TIME_MS_MAX) * 1000
    if not zero_is_null:
        return pa.array(micros).view(TIME)
    return pa.array(micros, mask=ms == 0).view(TIME)


def _unquoted(fragments: pa.Array) -> pa.Array:
    """JSON strings as what they say."""
    _, _, values = fragments.buffers()
    if b"\\" not in memoryview(values).tobytes():
        return pc.binary_slice(fragments, 1, -1).cast(_STRING)
    coded = fragments.dictionary_encode()
    texts = [_unquote.decode(text) for text in coded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(coded.indices, pa.array(texts, _STRING)).cast(_STRING)


def _split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in slices of a bearable size."""
    size = batch.nbytes
    if size <= 2 * BYTES_MAX or batch.num_rows == 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _split(batch.slice(0, half))
    yield from _split(batch.slice(half))


def event_batches(
    data: bytes,
    read: SegmentRead,
    *,
    columns: Sequence[str] | None = None,
    path: str = "",
) -> Iterator[pa.RecordBatch]:
    """The job events that a read takes of its segment.

    Args:
        data: The segment from its first byte.
        read: What to take; made by `segments.plan.plan_events`.
        columns: Those to make, in the order of the schema; None for all.
        path: How errors name the segment.

    Raises:
        SegmentDamaged: The bytes are not what they were.
    """
    maker = _EventRows(read, columns)
    pending: list[pa.RecordBatch] = []
    rows = 0
    for found in event_columns(data, read, path):
        batch = maker.make(found)
        pending.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_MIN:
            yield _one_batch(pending)
            pending, rows = [], 0
    if pending:
        yield _one_batch(pending)


def _one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


class _EventRows:
    """Makes batches of job events in one shape."""

    def __init__(self, read: SegmentRead, wanted: Sequence[str] | None) -> None:
        self._fields = [field for field in EVENTS_SCHEMA if wanted is None or field.name in wanted]
        self._topics = np.array(sorted(topic.topic for topic in read.topics), np.int64)
        by_number = {topic.topic: topic for topic in read.topics}
        ordered = [by_number[number] for number in self._topics.tolist()]
        self._names = [topic.name for topic in ordered]
        self._log_ids = [topic.log_id for topic in ordered]

    def make(self, rows: EventColumns) -> pa.RecordBatch:
        """A batch of some events."""
        arrays = [self._column(field.name, rows) for field in self._fields]
        names = [field.name for field in self._fields]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _column(self, name: str, rows: EventColumns) -> pa.Array:
        numbers = {"lseq": rows.order, "job_seq": rows.seq}
        if name in numbers:
            return pa.array(numbers[name])
        if name == "ts":
            return _times(rows.at)
        if name in ("deadline", "ready_at"):
            return _times(getattr(rows, name), zero_is_null=True)
        if name == "lease_id":
            return lease_names(rows.lease)
        if name == "event":
            return self._words(rows.kind.astype(np.int32), EVENTS)
        if name in ("topic", "log_id"):
            codes = np.searchsorted(self._topics, rows.topic).astype(np.int32)
            return self._words(codes, self._names if name == "topic" else self._log_ids)
        words: Words = getattr(rows, name)
        return self._words(words.codes, words.words)

    def _words(self, codes: npt.NDArray[np.int32], words: Sequence[str | None]) -> pa.Array:
        texts = pa.array(words, _STRING)
        if texts.null_count:
            # A dictionary with a null in it is not what all readers take.
            mask = np.isin(codes, [code for code, word in enumerate(words) if word is None])
            texts = texts.fill_null("")
            found = pa.DictionaryArray.from_arrays(pa.array(codes, mask=mask), texts)
        else:
            found = pa.DictionaryArray.from_arrays(pa.array(codes), texts)
        return found.cast(_STRING)


_LEASE = np.frombuffer(b"lease_", np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def lease_names(numbers: Ints) -> pa.Array:
    """Names of leases by their numbers, `lease_2f`; null for 0."""
    rows = len(numbers)
    if not numbers.any():
        return pa.nulls(rows, _STRING)
    digits = max(1, -(-int(numbers.max()).bit_length() // 4))
    shifts = np.arange(digits - 1, -1, -1, dtype=np.int64) * 4
    figures = (numbers[:, None] >> shifts) & 15
    text = np.empty((rows, len(_LEASE) + digits), np.uint8)
    text[:, : len(_LEASE)] = _LEASE
    text[:, len(_LEASE) :] = _HEX[figures]
    shown = np.ones(text.shape, bool)
    shown[:, len(_LEASE) :] = np.maximum.accumulate(figures > 0, axis=1)
    has = numbers > 0
    shown[~has] = False
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(shown.sum(axis=1), out=offsets[1:])
    valid = None if has.all() else pa.py_buffer(np.packbits(has, bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(text[shown].tobytes())]
    return pa.Array.from_buffers(_STRING, rows, buffers)
