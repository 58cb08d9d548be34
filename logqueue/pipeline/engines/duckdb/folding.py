"""What a worker process does for the lifecycle job: folds rows of neighbouring jobs into files.

Owns: rows of both tables from groups of jobs, written as they come; sets of jobs, which a run that
continues another follows again. Must not know: where rows come from, when files become a version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logqueue.pipeline.lifecycle.job_history import TRIMMED
from logqueue.pipeline.lifecycle.publishing import Staging, TableFile
from logqueue.pipeline.lifecycle.tables import ATTEMPTS, BY_NAME, JOBS
from logqueue.pipeline.rows.file_sizes import DayKey, by_day
from logqueue.pipeline.rows.history_batches import folder
from logqueue.pipeline.rows.job_batches import attempts_in, jobs_in
from logqueue.pipeline.rows.job_columns import Flags, Longs
from logqueue.pipeline.rows.shuffle import Floors, Group, Shuffled, shuffle, sorted_rows
from logqueue.pipeline.rows.staged_files import stage_by_day
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


# -- tasks: they run in worker processes -----------------------------------------------------------


class RowPart(Protocol):
    """Some rows of records and events; can be pickled."""

    @property
    def size(self) -> int:
        """Bytes to read for it."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Rows as `shuffle` takes them."""
        ...


class ChangeTask(NamedTuple):
    """A part in which jobs are looked for that have a row of some time or later."""

    part: RowPart
    since: int


def changed_jobs(task: ChangeTask) -> Keys:
    """The jobs; floors do not count."""

    def found() -> Iterator[Keys]:
        for rows in task.part.batches():
            which = rows.column("ts").to_numpy() >= task.since
            which &= rows.column("kind").to_numpy() != TRIMMED
            logs = rows.column("log_id").filter(pa.array(which))
            yield Keys.of(logs, rows.column("seq").to_numpy()[which])

    return Keys.union(found())


class ShuffleTask(NamedTuple):
    """A part to be put into runs in a directory.

    Attributes:
        jobs: Whose rows; None for all.
    """

    number: int
    part: RowPart
    folder: str
    jobs: Keys | None = None


def shuffle_part(task: ShuffleTask) -> Shuffled:
    """Write its rows into runs."""
    rows = rows_of(task.part, task.jobs)
    return shuffle(rows, task.folder, f"run-{task.number:05}", spills_all=True)


def rows_of(part: RowPart, jobs: Keys | None) -> Iterator[pa.RecordBatch]:
    """The rows of a part that are of some jobs, and all floors."""
    for rows in part.batches():
        if jobs is None:
            yield rows
            continue
        counts = jobs.have(rows.column("log_id"), rows.column("seq").to_numpy())
        counts |= rows.column("kind").to_numpy() == TRIMMED
        yield rows.filter(pa.array(counts))


@dataclass(frozen=True)
class FoldTask:
    """Rows of neighbouring jobs to be folded.

    Attributes:
        topics: Names by log id.
    """

    number: int
    groups: Sequence[Group]
    floors: Mapping[str, Floors]
    end: int
    topics: Mapping[str, str]
    staging: Staging


def fold_rows(task: FoldTask) -> list[TableFile]:
    """Fold the rows of a task, and stage both tables."""
    return [*stage_by_day(_folded(task), task.staging, f"part-{task.number:05}")]


def _folded(task: FoldTask) -> Iterator[tuple[DayKey, pa.Table]]:
    fold = folder(task.end, task.topics)
    for group in task.groups:
        for folded in fold([sorted_rows(group.read(), task.floors)]):
            yield from by_day(JOBS.name, jobs_in(folded))
            yield from by_day(ATTEMPTS.name, attempts_in(folded))


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
