"""Groups of jobs, and what happened to jobs, as columns of numbers.

Owns: what tasks make of records and lease events for the rules that look at several jobs at once,
and which bytes a group is known by. Must not know: the rules, engines, files.

Only the queues that need it are looked at: those that were `fifo` for a while, and those with jobs
of batches. Of these, 24 bytes per job that has a group and 46 per lease event come together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logqueue.pipeline.audit.job_rows import EVENT_COLUMNS, event_rows

NO_GROUP: Final = 0

GROUP_COLUMNS: Final = ("log_id", "seq", "group")
GROUPED: Final = pa.schema([("log", pa.int32()), ("seq", pa.int64()), ("hash", pa.int64())])
"""Jobs that have a group; `log` is the place of their log_id among those that were asked for."""

HAPPENED: Final = pa.schema(
    [
        ("log", pa.int32()),
        ("seq", pa.int64()),
        ("lseq", pa.int64()),
        ("at", pa.int64()),
        ("kind", pa.int8()),
        ("due", pa.int64()),
        ("lease_ms", pa.int64()),
        ("reason", pa.int8()),
    ]
)
"""Lease events; the columns are those of `job_rows.ROWS`."""

_strings = msgspec.json.Decoder(str)


def group_hash(fragment: bytes) -> int:
    """The number of a group.

    Args:
        fragment: As a block has it; b"" for no group.
    """
    return text_hash(_strings.decode(fragment)) if fragment else NO_GROUP


def text_hash(group: str) -> int:
    """The number of a group."""
    digest = blake2b(group.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1


@dataclass(frozen=True, slots=True)
class QueueRows:
    """Takes rows of some queues.

    Attributes:
        ids: Their log_ids.
        last_order: Later events are left out; None for none.
    """

    ids: Sequence[str]
    last_order: int | None = None

    def grouped(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As `GROUPED`, of records with `GROUP_COLUMNS`."""
        known: dict[str, int] = {}
        for batch in batches:
            if batch.column("group").null_count == batch.num_rows:
                continue
            batch, logs = self._of_queues(batch)
            has = pc.is_valid(batch.column("group"))
            batch, logs = batch.filter(has), logs.filter(has)
            coded = batch.column("group").dictionary_encode()
            names = coded.dictionary.to_pylist()
            for name in names:
                if name not in known:
                    known[name] = text_hash(name)
            hashes = np.array([known[name] for name in names] or [0], np.int64)
            codes = coded.indices.to_numpy(zero_copy_only=False)
            arrays = [logs, batch.column("seq"), pa.array(hashes[codes])]
            yield pa.RecordBatch.from_arrays(arrays, schema=GROUPED)

    def happened(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As `HAPPENED`, of lease events with `EVENT_COLUMNS`."""
        for batch in batches:
            batch, _ = self._of_queues(batch)
            if batch.num_rows:
                rows = event_rows(batch.select(EVENT_COLUMNS), 1, last_order=self.last_order)
                _, logs = self._of_queues(rows)
                arrays = [logs, *(rows.column(name) for name in HAPPENED.names[1:])]
                yield pa.RecordBatch.from_arrays(arrays, schema=HAPPENED)

    def _of_queues(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """The rows of these queues, and of each the place of its log_id."""
        logs = pc.index_in(batch.column("log_id"), pa.array([*self.ids], pa.string()))
        if logs.null_count:
            batch, logs = batch.filter(logs.is_valid()), logs.drop_null()
        return batch, logs
