"""The report job: tables of a lifecycle run, reports of them, their files and their page, in order.

Owns: the frame of a run, the same on every engine. Must not know: an engine, how a report is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from logqueue.pipeline.lifecycle.publishing import (
    Published,
    published_together,
    require_published,
)
from logqueue.pipeline.lifecycle.span import Span
from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.reports.page_options import PLAIN_PAGE, PageOptions
from logqueue.pipeline.reports.production import (
    LIFECYCLE_FOLDER,
    MadeTable,
    finish,
    part,
    scope_of,
    summary_of,
    table_formats,
)
from logqueue.pipeline.reports.queries.sources import ReportScope
from logqueue.pipeline.reports.selection import select_reports
from logqueue.pipeline.storage.tree import FileTree

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ReportRequest:
    """What a run is asked for.

    Attributes:
        names, bucket, sla: As `select_reports` takes them.
        formats: Of the files: parquet, csv, json, md and html.
        page: How the page is shown.
    """

    names: Sequence[str] = ("all",)
    bucket: str = "1m"
    sla: str | None = None
    formats: Iterable[str] = ("parquet",)
    page: PageOptions = PLAIN_PAGE


DEFAULT_REQUEST: Final = ReportRequest()


class OpenReports(Protocol):
    """Reports over the tables of one lifecycle run, in an engine."""

    def prepare(self, names: Iterable[str]) -> None:
        """Make the relations that some reports need known."""

    def begin(
        self, names: Sequence[str], tree: FileTree, formats: Sequence[str]
    ) -> Mapping[str, Callable[[], MadeTable]]:
        """Begin to make reports and write them.

        Returns:
            By name, what gives the table once it is written; to be called in this order.
        """

    def further(
        self, tree: FileTree, formats: Sequence[str], note: Note
    ) -> tuple[Mapping[str, MadeTable], Mapping[str, Any]]:
        """Write the tables besides reports; with what the summary of the run says of them."""

    def shorten(self, kind: TableKind, bucket: int, rows_max: int) -> pa.Table:
        """The first rows of a report that was made, in longer buckets; see `production`."""


class ReportEngine(Protocol):
    """What makes reports, on an input."""

    def make_lifecycle(self, to: str, note: Note) -> object:
        """Make the tables `jobs` and `attempts` of the input."""

    def opened(
        self, scope: ReportScope, tree: FileTree, version: Published, *, is_shown: bool
    ) -> AbstractContextManager[OpenReports]:
        """Reports over the tables of a lifecycle run, while the context lasts.

        Args:
            tree, version: Where these tables are.
            is_shown: There is a page or a document, so that `shorten` may be called.
        """


def make_reports(
    engine: ReportEngine,
    tables: str | None,
    to: str,
    request: ReportRequest,
    note: Note = silent,
) -> dict[str, Any]:
    """Make reports and write them, with a page that shows them.

    Args:
        engine: What makes them.
        tables: The directory of a finished lifecycle run; None to make `jobs` and `attempts`
            first, in `to/lifecycle`.
        to: Directory or URL for the reports and the page.
        request: Which, and how.
        note: Called at each step.

    Returns:
        The summary of the run.

    Raises:
        PipelineError: There is no such report or format, or nothing to report on.
    """
    what = select_reports(request.names, request.bucket, request.sla)
    formats = list(dict.fromkeys(request.formats))
    of_tables = table_formats(formats)
    if tables is None:
        tables = os.path.join(to, LIFECYCLE_FOLDER)
        engine.make_lifecycle(tables, lambda text, share: note(text, part(share, 0.0)))
    tree, version = require_published(tables)
    span = Span.of(version)
    scope = scope_of(span, what)
    is_shown = bool({"md", "html"} & set(formats))
    with (
        published_together(to) as space,
        engine.opened(scope, tree, version, is_shown=is_shown) as reports,
    ):
        note("preparing the reports", part(0.0, 0.5))
        reports.prepare(what.names)
        made: dict[str, MadeTable] = {}
        running = reports.begin(what.names, space.tree, of_tables)
        for done, (name, table) in enumerate(running.items()):
            note(f"making {name}", part(done / len(what.names), 0.5))
            made[name] = table()
        further, summary = reports.further(space.tree, of_tables, note)
        made |= further
        note("writing", 0.98)
        files = finish(made, scope, span, space.tree, formats, reports.shorten, request.page)
        files = [space.published_path(file) for file in files]
    note("done", 1.0)
    return {**summary_of(span, what, made, files), "output": to, **summary}
