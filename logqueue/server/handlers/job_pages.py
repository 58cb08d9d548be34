"""Pages of jobs, made in steps of the event loop.

Owns: how much one step finds, looks at and lists. Must not know: requests, filters.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from logqueue.api import replies
from logqueue.api.bodies.jobs import JobQuery
from logqueue.core.job_filter import JobFilterRun, indexed_parts, passing
from logqueue.core.job_views import JobListing, list_jobs
from logqueue.core.queue_topic import QueueTopic
from logqueue.errors import TopicNotFound
from logqueue.model import limits
from logqueue.server.engine.engine import Engine

LISTED_PER_STEP = 250
SCANNED_PER_STEP = 1000
"""Jobs that one step of the event loop lists, and looks at, for a page of jobs."""


class JobPageParts(NamedTuple):
    """A page of jobs.

    Attributes:
        topic: The queue.
        last: The jobs of the last step, and the counts of all.
        earlier: The jobs of the steps before it, encoded.
    """

    topic: QueueTopic
    last: JobListing
    earlier: list[bytes]


def page_in_steps(
    engine: Engine, name: str, query: JobQuery, now: int, *, data: bool
) -> Generator[None, None, JobPageParts]:
    """Make a page of jobs, in bounded steps. Between two of them anything may change.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue, or not any longer.
        StorageUnreadable: The disk does not give the data of one.
    """
    topic = engine.queue_now(name, now)
    search = JobFilterRun(topic, query.wanted, now)
    first = _FirstFound(query.after, query.limit)
    page = JobListing([], query.after, 0)
    indexed = indexed_parts(topic, query.wanted, topic.head + 1)
    if indexed is not None:
        for some, scanned in passing(search, indexed.parts):
            first.add(some)
            page = page._replace(scanned=page.scanned + scanned)
            if page.scanned % SCANNED_PER_STEP < scanned:
                yield
                _require_same(engine, topic)
    found = first.found() if indexed is not None else None
    earlier: list[bytes] = []
    count = 0
    while True:
        part = _list(topic, search, found, query.limit - count, page, data=data)
        page = JobListing(part.jobs, part.next_after, page.scanned + part.scanned, part.size)
        count += len(part.jobs)
        if found and first.is_cut and page.next_after is None:
            return JobPageParts(topic, page._replace(next_after=found[-1]), earlier)
        if not _goes_on(page, search, count, query.limit, is_found=found is not None):
            return JobPageParts(topic, page, earlier)
        if part.jobs:
            earlier.append(replies.job_views(part.jobs, now, data))
        yield
        _require_same(engine, topic)


class _FirstFound:
    """The first of the seqs behind one that an index finds in no order: as many as a page has, and
    the next one.

    Attributes:
        is_cut: There were more.
    """

    def __init__(self, after: int, limit: int) -> None:
        self._after = after
        self._most = limit + 1
        self._seqs: list[int] = []
        self.is_cut = False

    def add(self, seqs: Sequence[int]) -> None:
        """Some were found."""
        self._seqs += [seq for seq in seqs if seq > self._after]
        if len(self._seqs) > self._most + limits.SCANNED_PER_PASS_MAX:
            self._cut()

    def found(self) -> list[int]:
        """The first, ascending."""
        self._cut()
        return self._seqs

    def _cut(self) -> None:
        self._seqs.sort()
        self.is_cut = self.is_cut or len(self._seqs) > self._most
        del self._seqs[self._most :]


def _list(
    topic: QueueTopic,
    search: JobFilterRun,
    found: Sequence[int] | None,
    limit: int,
    page: JobListing,
    *,
    data: bool,
) -> JobListing:
    """What one step adds to a page."""
    assert page.next_after is not None
    return list_jobs(
        topic,
        search,
        found=found,
        after=page.next_after,
        limit=min(limit, LISTED_PER_STEP),
        scanned_max=min(max(limits.JOBS_SCANNED_MAX - page.scanned, 1), SCANNED_PER_STEP),
        size=page.size,
        with_data=data,
    )


def _goes_on(
    page: JobListing, search: JobFilterRun, count: int, limit: int, *, is_found: bool
) -> bool:
    """Whether there is more for a page that has so many jobs, and room for it. What an index has
    found is listed whatever was looked at for it."""
    has_looked = (
        page.scanned >= limits.JOBS_SCANNED_MAX or search.searched >= limits.JOBS_SEARCHED_BYTES_MAX
    )
    return (
        page.next_after is not None
        and count < limit
        and (is_found or not has_looked)
        and page.size <= limits.JOBS_LISTED_BYTES_MAX
    )


def _require_same(engine: Engine, topic: QueueTopic) -> None:
    """Bring the queue up to date between two steps.

    Raises:
        TopicNotFound: It was deleted meanwhile.
    """
    if engine.queue_now(topic.name) is not topic:
        raise TopicNotFound.named(topic.name)
