"""Rows by table and day as staged files: what tasks of any engine write.

Owns: the way from rows to files that can be published. Must not know: engines, how large files are
(`file_sizes`), how they are published.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa

from logqueue.pipeline.lifecycle.publishing import Staging, TableFile
from logqueue.pipeline.rows.file_sizes import DayFile, DayKey, SizedFiles
from logqueue.pipeline.storage.checking import unwritable


def stage_by_day(
    rows: Iterable[tuple[DayKey, pa.Table]], staging: Staging, part: str
) -> Iterator[TableFile]:
    """Write rows into files of a good size by table and day.

    Args:
        rows: Without the column `date`.
        part: Begins the names of the files; must differ between the tasks of a run.

    Returns:
        The files, as they are finished.

    Raises:
        PipelineError: They cannot be written on this machine.
    """
    with staging.drafts() as folder:

        def path(key: DayKey, place: int) -> str:
            return os.path.join(folder, f"{key.name}-{key.day.isoformat()}-{place:03}.parquet")

        def taken(file: DayFile) -> TableFile:
            number = file.path.rpartition("-")[2].partition(".")[0]
            name = staging.file_name(file.key.name, file.key.day, f"{part}-{number}")
            return staging.take(file.path, name, file.rows)

        files = SizedFiles(path)
        try:
            for key, some in rows:
                yield from map(taken, files.add(key, some))
            yield from map(taken, files.rest())
        except OSError as error:
            raise unwritable(folder, error) from error
        finally:
            files.abandon()
