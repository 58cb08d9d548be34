"""A place to read from as tables in parts, and as rows of the fold.

Owns: which content a place has, and parts of rows of the fold. Must not know: any job, any engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.stores.archive_store import SeqBuckets
from logqueue.pipeline.stores.parts import FoldPart

if TYPE_CHECKING:
    from logqueue.pipeline.stores.archive_content import ArchiveContent
    from logqueue.pipeline.stores.log_content import LogContent


def content_of(place: InputPlace, *, whole_runs: bool = False) -> LogContent | ArchiveContent:
    """What a place holds.

    Args:
        whole_runs: Of an archive, leave out what an interrupted run has written.

    Raises:
        PipelineError: There is nothing to read from, or it cannot be read.
    """
    # Either is imported when it is used: a small log is read in the time that takes.
    if place.archive is not None:
        from logqueue.pipeline.stores.archive_content import ArchiveContent

        return ArchiveContent(place, whole_runs=whole_runs)
    from logqueue.pipeline.stores.log_content import LogContent

    return LogContent(place)


def fold_parts_of(
    content: LogContent | ArchiveContent,
    span: Span,
    *,
    from_ms: int | None = None,
    jobs: SeqBuckets | None = None,
) -> Sequence[FoldPart]:
    """Records and events of a range as rows in the columns of `fold_rows.ROWS_SCHEMA`; in parts
    that can be pickled, in no order.

    Args:
        span: Of this content, or some queues of it.
        from_ms: Parts without a row of this time or later, ms since the epoch, are left out.
        jobs: Parts without a row of these jobs may be left out.
    """
    queues = frozenset(queue.log_id for queue in span.queues)
    tables = {
        "records": content.record_parts("none", from_ms=from_ms, jobs=jobs),
        "lease_events": content.event_parts(from_ms=from_ms, jobs=jobs),
    }
    return [
        FoldPart(table, part, queues, span.end)
        for table, parts in tables.items()
        for part in parts
        if from_ms is None or part.bounds is None or part.bounds.last_ms >= from_ms
    ]
