"""Records by `diff`, page by page, as Arrow batches: what there is without the log's own segments.

Owns: asking for pages, what they do not say, gaps in them. Must not know: pyspark, segments,
offsets. Pages show live records only: jobs that were acked or deleted are not in them, nor are keys
(`key`), delays (`not_before`) and segments; these columns are null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from logqueue.client import Client
from logqueue.client.calls import Call, reading, request
from logqueue.client.endpoints import READ_RECORDS
from logqueue.shapes import Tombstone

if TYPE_CHECKING:
    import pyarrow as pa

PAGE_RECORDS = 1000
"""The most that the server gives."""
PAGE_BYTES = 8 << 20
BATCH_RECORDS = 10_000
BATCH_BYTES = 16 << 20


ABSENT = msgspec.Raw(b"")


class RawRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record, its JSON left as it is."""

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    data: msgspec.Raw
    node: str | None = msgspec.field(name="$node", default=None)
    tag: str | None = msgspec.field(name="$tag", default=None)
    meta: msgspec.Raw = ABSENT


class RawPage(msgspec.Struct, frozen=True, kw_only=True):
    """A reply to a diff; see `logqueue.shapes.Page`."""

    records: list[RawRecord]
    next_from_seq: int
    caught_up: bool
    tombstone: Tombstone | None = None


class PageGap(msgspec.Struct, frozen=True):
    """Seqs, inclusive, that went before they were read: by a cap, a TTL, or with their topic."""

    first: int
    last: int


def page(topic: str, from_seq: int) -> Call[RawPage]:
    """One page of a topic behind `from_seq`."""
    body = {
        "from_seq": from_seq,
        "limit": PAGE_RECORDS,
        "max_batch_bytes": PAGE_BYTES,
        "include_tags": True,
        "include_meta": True,
    }
    return reading(request(READ_RECORDS, topic, body=body), RawPage)


def read(
    client: Client,
    topic: str,
    first: int,
    end: int,
    *,
    log_id: str,
    schema: pa.Schema,
    with_data: bool,
) -> Iterator[pa.RecordBatch | PageGap]:
    """The live records of a range, in batches, and what is missing of it.

    Args:
        first, end: Seqs; `end` is not included.
        log_id: Of the topic.
        schema: Of the batches: that of records.
        with_data: False leaves the data column null.

    Raises:
        LogqueueError: The server refuses, or cannot be reached.
    """
    at, held, size = first - 1, list[RawRecord](), 0
    while at < end - 1:
        reply = client.perform(page(topic, at))
        gap = reply.tombstone
        if gap is not None and gap.reason == "recreated":
            # These are the records of another topic of the same name.
            yield PageGap(at + 1, end - 1)
            break
        if gap is not None and gap.gap_from < end:
            yield PageGap(max(gap.gap_from, first), min(gap.gap_to, end - 1))
        for record in reply.records:
            if record.seq >= end:
                break
            held.append(record)
            size += len(bytes(record.data))
        if len(held) >= BATCH_RECORDS or size >= BATCH_BYTES:
            yield batch(held, topic, log_id, schema, with_data)
            held, size = [], 0
        at = reply.next_from_seq
        if reply.caught_up:
            break
    if held:
        yield batch(held, topic, log_id, schema, with_data)


def batch(
    records: Sequence[RawRecord], topic: str, log_id: str, schema: pa.Schema, with_data: bool
) -> pa.RecordBatch:
    """Records as an Arrow batch in the columns of `schema`."""
    import pyarrow as pa

    times = pa.array([record.ts * 1000 for record in records], pa.int64())
    is_binary = schema.field("data").type == pa.binary()
    data: list[bytes | str | None] = [None] * len(records)
    if with_data:
        texts = [bytes(record.data) for record in records]
        data = list(texts) if is_binary else [text.decode() for text in texts]
    metas = [bytes(record.meta).decode() or None for record in records]
    columns = {
        "topic": [topic] * len(records),
        "seq": [record.seq for record in records],
        "ts": times.cast(pa.timestamp("us", tz="UTC")),
        "tag": [record.tag for record in records],
        "node": [record.node for record in records],
        "meta": metas,
        "data": data,
        "size": [len(bytes(record.data)) + len(bytes(record.meta)) for record in records],
        "log_id": [log_id] * len(records),
    }
    arrays = []
    for field in schema:
        values = columns.get(field.name, [None] * len(records))
        arrays.append(values if isinstance(values, pa.Array) else pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
