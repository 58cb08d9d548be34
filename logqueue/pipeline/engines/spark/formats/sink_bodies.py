"""Rows as request bodies: Arrow columns to the JSON text of records.

Owns: how a row becomes a record's text, that `data` and `meta` are JSON, chunks, and the digest of
what was written. Must not know: pyspark, HTTP, who sends a chunk where.

No payload is decoded. Columns are joined inside Arrow; then all `data` of a batch is looked over at
once, as one JSON list whose members must be as long as the texts were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.writing.sink_options import NUMBERS, SinkOptions

_ESCAPED = ("tag", "node", "key", "group")
SHOWN_MAX = 80
"""Characters of a wrong value that a message shows."""

_read_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_read_one = msgspec.json.Decoder(msgspec.Raw).decode


@dataclass(slots=True)
class Sum:
    """What was written to one topic, the same in any order: a repeat has an equal one.

    Attributes:
        crc: Sum of the checksums of all records.
    """

    rows: int = 0
    bytes: int = 0
    crc: int = 0

    def add(self, other: Sum) -> None:
        """Take in what another partition wrote."""
        self.rows += other.rows
        self.bytes += other.bytes
        self.crc += other.crc


def digest_of(sums: Mapping[str, Sum]) -> str:
    """One text for what an epoch holds, whatever its partitions, chunks and order."""
    lines = [f"{topic} {s.rows} {s.bytes} {s.crc}" for topic, s in sums.items() if s.rows]
    return hashlib.blake2b("\n".join(sorted(lines)).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class BodyChunk:
    """Records for one call.

    Attributes:
        first_row: Place of the first of them among the rows of the partition, from 0.
        records: Their JSON texts.
    """

    topic: str
    first_row: int
    records: Sequence[bytes]


@dataclass(slots=True)
class _Waiting:
    """Records of a topic that do not make a chunk yet."""

    first_row: int
    records: list[bytes] = field(default_factory=list)
    bytes: int = 0


class Chunks:
    """Cuts the rows of one partition into chunks.

    Attributes:
        sums: What was cut so far, by topic.
        rows: How many rows came so far.
    """

    def __init__(self, options: SinkOptions, columns: Mapping[str, int], partition: int) -> None:
        """No row has come yet.

        Args:
            columns: Places of the columns by name.
            partition: Its number, for messages.
        """
        self._options = options
        self._columns = columns
        self._partition = partition
        self._waiting: dict[str, _Waiting] = {}
        self.sums: dict[str, Sum] = {}
        self.rows = 0

    def take(self, batch: pa.RecordBatch) -> Iterator[BodyChunk]:
        """Take in the next rows; gives the chunks that are full.

        Raises:
            PipelineError: A row is not a record; the message has its place.
        """
        texts = self._texts(batch)
        if "topic" not in self._columns:
            assert self._options.topic is not None
            yield from self._gather(self._options.topic, self.rows, texts)
        else:
            topics = self._column(batch, "topic").to_pylist()
            for first, last in _runs(topics):
                topic = topics[first] or self._options.topic
                if topic is None:
                    raise self._wrong(first, "its topic is null, and there is no option topic")
                yield from self._gather(topic, self.rows + first, texts[first:last])
        self.rows += batch.num_rows

    def rest(self) -> Iterator[BodyChunk]:
        """What is left when all rows have come."""
        for topic in [*self._waiting]:
            yield self._cut(topic)

    def _gather(self, topic: str, first_row: int, texts: list[bytes]) -> Iterator[BodyChunk]:
        total = self.sums.setdefault(topic, Sum())
        total.rows += len(texts)
        total.bytes += sum(map(len, texts))
        total.crc += sum(map(crc32, texts))
        place, size = 0, self._options.chunk_records
        while place < len(texts):
            waiting = self._waiting.setdefault(topic, _Waiting(first_row + place))
            part = texts[place : place + size - len(waiting.records)]
            room = self._options.chunk_bytes - waiting.bytes
            lengths = [*map(len, part)]
            if sum(lengths) >= room:
                part = part[: _fitting(lengths, room)]
            waiting.records += part
            waiting.bytes += sum(lengths[: len(part)])
            place += len(part)
            if len(waiting.records) >= size or waiting.bytes >= self._options.chunk_bytes:
                yield self._cut(topic)
        if len(self._waiting) > 1:
            yield from self._relieve()

    def _relieve(self) -> Iterator[BodyChunk]:
        """Many topics wait together for what several chunks may hold; then they all go."""
        if sum(waiting.bytes for waiting in self._waiting.values()) > 4 * self._options.chunk_bytes:
            yield from self.rest()

    def _cut(self, topic: str) -> BodyChunk:
        waiting = self._waiting.pop(topic)
        return BodyChunk(topic, waiting.first_row, waiting.records)

    # -- texts ------------------------------------------------------------------------------------

    def _texts(self, batch: pa.RecordBatch) -> list[bytes]:
        """The JSON text of each row's record."""
        data = self._bytes(batch, "data")
        self._require_values(data, "data", "write the text null for a JSON null")
        self._require_json(data, "data")
        parts: list[Any] = [b'{"data":', data]
        for name in _ESCAPED:
            if name in self._columns:
                parts.append(self._member(name, self._escaped(batch, name)))
        if "key" in self._columns:
            self._require_values(self._column(batch, "key"), "key", "mode=keyed tells rows by it")
            parts.append(b',"on_conflict":"%s"' % self._options.on_conflict.encode())
        if "meta" in self._columns:
            meta = self._bytes(batch, "meta")
            self._require_json(meta, "meta")
            parts.append(self._member("meta", meta))
        for name in NUMBERS:
            if name in self._columns:
                parts.append(self._member(name, self._numbers(batch, name)))
        parts += [b"}", b""]
        joined = pc.binary_join_element_wise(
            *[pa.scalar(part, data.type) if isinstance(part, bytes) else part for part in parts],
            null_handling="replace",
            null_replacement="",
        )
        texts: list[bytes] = joined.to_pylist()
        return texts

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        return batch.column(self._columns[name])

    def _bytes(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        # One type for all columns, whatever Spark sends: parts are joined with each other.
        return self._column(batch, name).cast(pa.binary())

    def _member(self, name: str, values: pa.Array) -> pa.Array:
        """`,"name":value` of each row, null where the value is."""
        start, end = pa.scalar(b',"%s":' % name.encode(), pa.binary()), pa.scalar(b"", pa.binary())
        return pc.binary_join_element_wise(start, values, end)

    def _escaped(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        coded = self._column(batch, name).dictionary_encode()
        texts = [msgspec.json.encode(value) for value in coded.dictionary.to_pylist()]
        return pa.array(texts, pa.binary()).take(coded.indices)

    def _numbers(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        values = self._column(batch, name)
        if pa.types.is_timestamp(values.type):
            values = pc.cast(values, pa.timestamp("ms", "UTC"), safe=False)
        values = values.cast(pa.int64())
        negative = pc.index(pc.less(values, 0), True).as_py()
        if negative >= 0:
            raise self._wrong(negative, f"its {name} is {values[negative].as_py()}, below 0")
        return values.cast(pa.string()).cast(pa.binary())

    # -- errors -----------------------------------------------------------------------------------

    def _wrong(self, row: int, what: str) -> PipelineError:
        return PipelineError(
            f"row {self.rows + row} of partition {self._partition} is not a record: {what}"
        )

    def _require_values(self, values: pa.Array, name: str, hint: str) -> None:
        if values.null_count:
            raise self._wrong(pc.index(values.is_null(), True).as_py(), f"{name} is null; {hint}")

    def _require_json(self, values: pa.Array, name: str) -> None:
        """Every text is exactly one JSON value: spliced together they must come apart again."""
        texts: list[bytes] = (values.drop_null() if values.null_count else values).to_pylist()
        listed = b"[%s]" % b",".join(texts)
        try:
            listed.decode()
            members = _read_list(listed)
            if [*map(len, members)] == [*map(len, texts)]:
                return
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        self._require_each(values, name)

    def _require_each(self, values: pa.Array, name: str) -> None:
        for row, text in enumerate(values.to_pylist()):
            if text is None:
                continue
            try:
                text.decode()
                _read_one(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                shown = text[:SHOWN_MAX].decode("utf-8", "replace")
                raise self._wrong(
                    row,
                    f"{name} is not valid JSON ({error}): {quoted(shown)}; for plain text write "
                    f"to_json of a struct, or a JSON string with its quotes",
                ) from None


def _fitting(lengths: Sequence[int], room: int) -> int:
    """How many go until the room is used up, the one that uses it up counted in."""
    for count, length in enumerate(lengths, 1):
        room -= length
        if room <= 0:
            return count
    return len(lengths)


def _runs(values: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Ranges of neighbours that are equal."""
    first = 0
    for place in range(1, len(values) + 1):
        if place == len(values) or values[place] != values[first]:
            yield first, place
            first = place
