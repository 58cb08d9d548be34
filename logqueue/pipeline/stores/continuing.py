"""What a lifecycle run that continues another does in its tasks, on any engine.

Owns: sets of jobs, which rows are of them, which jobs changed, and rows of tables taken over. Must
not know: engines, when files become a version.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logqueue.pipeline.lifecycle.job_history import OPEN_STATES, TRIMMED
from logqueue.pipeline.lifecycle.publishing import Staging, TableFile
from logqueue.pipeline.lifecycle.tables import BY_NAME, JOBS
from logqueue.pipeline.rows.file_sizes import DayKey
from logqueue.pipeline.rows.job_columns import Flags, Longs
from logqueue.pipeline.rows.staged_files import stage_by_day
from logqueue.pipeline.storage.tree import FileTree
from logqueue.pipeline.stores.archive_store import BUCKET_SEQS, SeqBuckets


class Keys:
    """A set of jobs.

    Attributes:
        seqs: By log id, ascending.
    """

    def __init__(self, seqs: Mapping[str, Longs] | None = None) -> None:
        self.seqs = {log_id: np.unique(its) for log_id, its in (seqs or {}).items()}

    @classmethod
    def of(cls, log_ids: pa.Array, seqs: Longs) -> Keys:
        """The jobs of some rows."""
        return cls({log_id: seqs[its] for log_id, its in _by_log(log_ids)})

    @classmethod
    def union(cls, sets: Iterable[Keys]) -> Keys:
        """The jobs of some sets."""
        parts: dict[str, list[Longs]] = {}
        for keys in sets:
            for log_id, its in keys.seqs.items():
                parts.setdefault(log_id, []).append(its)
        return cls({log_id: np.concatenate(its) for log_id, its in parts.items()})

    def __len__(self) -> int:
        return sum(len(its) for its in self.seqs.values())

    def encoded(self) -> bytes:
        """As bytes, compressed."""
        return zlib.compress(pickle.dumps(self), 1)

    @classmethod
    def decoded(cls, data: bytes) -> Keys:
        """What `encoded` gave."""
        found: Keys = pickle.loads(zlib.decompress(data))
        return found

    def buckets(self) -> SeqBuckets:
        """Where these jobs are, coarsely: few numbers, however many jobs."""
        return {log_id: np.unique(its // BUCKET_SEQS).tolist() for log_id, its in self.seqs.items()}

    def have(self, log_ids: pa.Array, seqs: Longs) -> Flags:
        """Which of some rows are of these jobs."""
        found = np.zeros(len(seqs), np.bool_)
        for log_id, its in _by_log(log_ids):
            known = self.seqs.get(log_id)
            if known is not None and len(known):
                place = np.minimum(np.searchsorted(known, seqs), len(known) - 1)
                found |= its & (known[place] == seqs)
        return found


def _by_log(log_ids: pa.Array) -> Iterator[tuple[str, Flags]]:
    """Each log, and which rows are of it."""
    logs = log_ids if pa.types.is_dictionary(log_ids.type) else log_ids.dictionary_encode()
    codes = logs.indices.to_numpy()
    for code, log_id in enumerate(logs.dictionary.to_pylist()):
        yield log_id, codes == code


def changed_in(batches: Iterable[pa.RecordBatch], since: int) -> Keys:
    """The jobs that have a row of some time or later, ms since the epoch; floors do not count."""

    def found() -> Iterator[Keys]:
        for rows in batches:
            which = rows.column("ts").to_numpy() >= since
            which &= rows.column("kind").to_numpy() != TRIMMED
            logs = rows.column("log_id").filter(pa.array(which))
            yield Keys.of(logs, rows.column("seq").to_numpy()[which])

    return Keys.union(found())


def rows_of(batches: Iterable[pa.RecordBatch], jobs: Keys | None) -> Iterator[pa.RecordBatch]:
    """The rows that are of some jobs, and all floors; all rows where `jobs` is None."""
    for rows in batches:
        if jobs is None:
            yield rows
            continue
        counts = jobs.have(rows.column("log_id"), rows.column("seq").to_numpy())
        counts |= rows.column("kind").to_numpy() == TRIMMED
        yield rows.filter(pa.array(counts))


class StoredJobs(NamedTuple):
    """What a file of the version before says of jobs.

    Attributes:
        open: Those that time alone may have changed.
        touched: Whether any of them, or of those that changed, is in it.
    """

    open: Keys
    touched: bool


def look_at(tree: FileTree, name: str, table: str, changed: Keys) -> StoredJobs:
    """Look for open jobs and for those that changed in a file of `jobs` or `attempts`."""
    seq, column, values = "job_seq", "outcome", ["open"]
    if table == JOBS.name:
        seq, column, values = "seq", "state", [*OPEN_STATES]
    wanted = pa.array(values)
    found: list[Keys] = []
    touched = False
    with pq.ParquetFile(tree.source(name)) as file:
        for rows in file.iter_batches(columns=["log_id", seq, column]):
            log_ids, seqs = rows.column("log_id"), rows.column(seq).to_numpy()
            is_open = pc.is_in(rows.column(column), wanted)
            found.append(Keys.of(log_ids.filter(is_open), seqs[np.asarray(is_open)]))
            touched = touched or bool(changed.have(log_ids, seqs).any())
    opened = Keys.union(found)
    return StoredJobs(opened, touched or len(opened) > 0)


@dataclass(frozen=True)
class KeepTask:
    """Rows of a day of the version before that stay: all but those of some jobs."""

    number: int
    table: str
    day: date
    paths: Sequence[str]
    without: Keys
    staging: Staging


def keep_rows(task: KeepTask) -> list[TableFile]:
    """Write the rows that stay."""
    return [*stage_by_day(_kept(task), task.staging, f"kept-{task.number:05}")]


def _kept(task: KeepTask) -> Iterator[tuple[DayKey, pa.Table]]:
    seq = "seq" if task.table == JOBS.name else "job_seq"
    schema = BY_NAME[task.table].arrow()
    schema = schema.remove(schema.get_field_index("date"))
    for name in task.paths:
        with pq.ParquetFile(task.staging.tree.source(name)) as file:
            for batch in file.iter_batches():
                gone = task.without.have(batch.column("log_id"), batch.column(seq).to_numpy())
                rows = pa.Table.from_batches([batch.filter(pa.array(~gone))])
                yield DayKey(task.table, task.day), rows.select(schema.names).cast(schema)
