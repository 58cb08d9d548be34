"""What a worker process does for the lifecycle job: folds rows of neighbouring jobs into files.

Owns: rows of both tables from groups of jobs, written as they come; which jobs a run that continues
another follows again. Must not know: where rows come from, when files become a version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logqueue.pipeline.lifecycle.job_history import APPENDED
from logqueue.pipeline.lifecycle.publishing import Staging, TableFile
from logqueue.pipeline.lifecycle.tables import ATTEMPTS, BY_NAME, JOBS
from logqueue.pipeline.rows.file_sizes import DayKey, by_day
from logqueue.pipeline.rows.history_batches import folder
from logqueue.pipeline.rows.job_batches import attempts_in, jobs_in
from logqueue.pipeline.rows.job_columns import Flags, Longs
from logqueue.pipeline.rows.shuffle import Floors, Group, Shuffled, shuffle, sorted_rows
from logqueue.pipeline.rows.staged_files import stage_by_day


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

    def have(self, log_ids: pa.Array, seqs: Longs) -> Flags:
        """Which of some rows are of these jobs."""
        found = np.zeros(len(seqs), np.bool_)
        for log_id, its in _by_log(log_ids):
            if log_id in self.seqs:
                found |= its & np.isin(seqs, self.seqs[log_id])
        return found


def _by_log(log_ids: pa.Array) -> Iterator[tuple[str, Flags]]:
    """Each log, and which rows are of it."""
    logs = log_ids if pa.types.is_dictionary(log_ids.type) else log_ids.dictionary_encode()
    codes = logs.indices.to_numpy()
    for code, log_id in enumerate(logs.dictionary.to_pylist()):
        yield log_id, codes == code


@dataclass(frozen=True)
class ChangedJobs:
    """Which jobs are followed again.

    Attributes:
        since: Those of which a row is as late, ms since the epoch.
        new_logs: Those of these logs that have a record.
        open: Those that time alone may have changed.
    """

    since: int
    new_logs: frozenset[str]
    open: Keys

    def touched(self, rows: pa.RecordBatch) -> Keys:
        """Those jobs among some rows that are touched by them."""
        logs, seqs = rows.column("log_id"), rows.column("seq").to_numpy()
        which = rows.column("ts").to_numpy() >= self.since
        is_record = rows.column("kind").to_numpy() == APPENDED
        for log_id, its in _by_log(logs):
            if log_id in self.new_logs:
                which |= its & is_record
        return Keys.of(logs.filter(pa.array(which)), seqs[which])


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


class ShuffleTask(NamedTuple):
    """A part to be put into runs in a directory."""

    number: int
    part: RowPart
    folder: str


def shuffle_part(task: ShuffleTask) -> Shuffled:
    """Write all of its rows into runs."""
    return shuffle(task.part.batches(), task.folder, f"run-{task.number:05}", spills_all=True)


@dataclass(frozen=True)
class FoldTask:
    """Rows of neighbouring jobs to be folded.

    Attributes:
        topics: Names by log id.
        changed: Which jobs are followed; None for all.
    """

    number: int
    groups: Sequence[Group]
    floors: Mapping[str, Floors]
    end: int
    topics: Mapping[str, str]
    staging: Staging
    changed: ChangedJobs | None = None


class FoldResult(NamedTuple):
    """What a task has written, and which jobs it found touched."""

    files: list[TableFile]
    touched: Keys


def fold_rows(task: FoldTask) -> FoldResult:
    """Fold the rows of a task, and stage both tables."""
    touched: list[Keys] = []
    rows = _folded(task, touched)
    files = [*stage_by_day(rows, task.staging, f"part-{task.number:05}")]
    return FoldResult(files, Keys.union(touched))


def _folded(task: FoldTask, touched: list[Keys]) -> Iterator[tuple[DayKey, pa.Table]]:
    fold = folder(task.end, task.topics)
    for group in task.groups:
        rows = group.read()
        if task.changed is not None:
            its = task.changed.touched(rows)
            touched.append(its)
            followed = Keys.union([its, task.changed.open])
            seqs = rows.column("seq").to_numpy()
            rows = rows.filter(pa.array(followed.have(rows.column("log_id"), seqs)))
        for folded in fold([sorted_rows(rows, task.floors)]):
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


def keep_rows(task: KeepTask) -> FoldResult:
    """Write the rows that stay."""
    files = [*stage_by_day(_kept(task), task.staging, f"kept-{task.number:05}")]
    return FoldResult(files, Keys())


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
