"""Calls about batches of jobs.

Owns: their parameters and what they mean. Must not know: how a call is made.
"""

from __future__ import annotations

from logqueue.client.appending import NextStep
from logqueue.client.calls import Call, Listing, call, given
from logqueue.client.endpoints import (
    CLOSE_BATCH,
    DELETE_BATCH,
    GET_BATCH,
    LIST_BATCHES,
    OPEN_BATCH,
)
from logqueue.client.topic_calls import PAGE_SIZE
from logqueue.shapes import BatchDropped, BatchEntry, BatchPage, BatchState


def open_batch(
    batch: str, *, on_done: NextStep | None = None, on_problem: NextStep | None = None
) -> Call[BatchState]:
    """Open a batch: jobs join it by `batch` of their `NewRecord`.

    When it is closed and all its jobs have ended, a callback is written, once, with the counts in
    its meta as `$batch`. The same call again changes nothing.

    Args:
        batch: Its name.
        on_done: Written when all jobs were acked; without `on_problem`, always.
        on_problem: Written when some have failed.

    Raises:
        BatchExists: There is another one with that name, or it is closed.
        Throttled: The server has all the batches it may have, and none of them has ended.
    """
    body = {"name": batch, **given(on_done=on_done, on_problem=on_problem)}
    return call(OPEN_BATCH, body=body)


def close_batch(batch: str) -> Call[BatchState]:
    """Close a batch: it ends with its last job. While jobs are left, they may still add some.

    Raises:
        BatchNotFound: There is none.
    """
    return call(CLOSE_BATCH, batch)


def batch(batch: str, *, wait_ms: int = 0) -> Call[BatchState]:
    """The counts of a batch.

    Args:
        wait_ms: How long to wait until it has ended, 30 000 at most.

    Raises:
        BatchNotFound: There is none; it is forgotten a day after its end.
    """
    return call(GET_BATCH, batch, query={"wait_ms": wait_ms or None}, wait_ms=wait_ms)


def batch_page(
    *, prefix: str | None = None, cursor: str | None = None, page_size: int | None = None
) -> Call[BatchPage]:
    """One page of the list of batches, in the order of their names."""
    return call(LIST_BATCHES, query=given(prefix=prefix, cursor=cursor, page_size=page_size))


def batches(*, prefix: str | None = None) -> Listing[BatchEntry]:
    """All batches, in the order of their names."""

    def turn(page: BatchPage) -> tuple[list[BatchEntry], Call[BatchPage] | None]:
        if page.next_cursor is None:
            return page.batches, None
        return page.batches, batch_page(prefix=prefix, cursor=page.next_cursor, page_size=PAGE_SIZE)

    return Listing(batch_page(prefix=prefix, page_size=PAGE_SIZE), turn)


def drop_batch(batch: str) -> Call[BatchDropped]:
    """Delete a batch that has no jobs left.

    Raises:
        BatchNotEmpty: It has some.
    """
    return call(DELETE_BATCH, batch)
