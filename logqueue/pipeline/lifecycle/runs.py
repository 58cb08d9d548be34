"""A run of the lifecycle job, whichever engine it runs on: what it continues, what it reports.

Owns: the meaning of `since`, the summary. Must not know: engines, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle.span import Span, moment_text
from logqueue.pipeline.reading.options import parse_time

LAST = "last"
"""As `since`: what has come since the last run."""


def require_history(span: Span) -> None:
    """There is something to read.

    Raises:
        PipelineError: There is nothing.
    """
    if not span.end:
        raise PipelineError("there is neither a record nor an event to read; check the topics")


def continued(since: str, span: Span, before: Span | None, to: str) -> tuple[Span, int]:
    """What a run continues, and since when jobs must have changed to be followed again.

    Args:
        since: `LAST`, or a time.
        span: What there is to read.
        before: What the run before has read; None when there was none.
        to: Where it has written to.

    Returns:
        `before`, and a time in ms since the epoch.

    Raises:
        PipelineError: There was none, or what is between it and this one would be left out.
    """
    if before is None:
        raise PipelineError(f"{to} holds no finished run to go on from; run once without `since`")
    if span.end < before.end:
        raise PipelineError(
            f"the history ends at {moment_text(span.end)}, before the last run did "
            f"({moment_text(before.end)}); run once without `since`"
        )
    threshold = before.end if since == LAST else parse_time(since, "since")
    if threshold > before.end:
        raise PipelineError(
            f"since {moment_text(threshold)} leaves a hole behind the last run, which ended at "
            f"{moment_text(before.end)}; give that time, an earlier one, or `last`"
        )
    return before, threshold


def summary(span: Span, threshold: int | None, rows: Mapping[str, int], to: str) -> dict[str, Any]:
    """What a run reports.

    Args:
        threshold: See `continued`; None for all jobs.
        rows: Written, by table.
        to: Where both tables are.
    """
    return {
        "job": "lifecycle",
        "range": span.description(),
        "since": moment_text(threshold) if threshold is not None else None,
        "topics": sorted({queue.topic for queue in span.queues}),
        "read": {
            "records": sum(queue.records for queue in span.queues),
            "events": sum(queue.events for queue in span.queues),
        },
        "rows": dict(rows),
        "output": to,
    }
