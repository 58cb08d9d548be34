"""What a worker process does for the lifecycle job: folds rows of neighbouring jobs into files.

Owns: rows of both tables from groups of jobs, written as they come. Must not know: where rows come
from, when files become a version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from logqueue.pipeline.lifecycle.publishing import Staging, TableFile
from logqueue.pipeline.lifecycle.tables import ATTEMPTS, JOBS
from logqueue.pipeline.rows.file_sizes import DayKey, by_day
from logqueue.pipeline.rows.history_batches import folder
from logqueue.pipeline.rows.job_batches import attempts_in, jobs_in
from logqueue.pipeline.rows.shuffle import Floors, Group, Shuffled, shuffle, sorted_rows
from logqueue.pipeline.rows.staged_files import stage_by_day
from logqueue.pipeline.stores.continuing import Keys, changed_in, rows_of


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
    return changed_in(task.part.batches(), task.since)


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
    rows = rows_of(task.part.batches(), task.jobs)
    return shuffle(rows, task.folder, f"run-{task.number:05}", spills_all=True)


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
