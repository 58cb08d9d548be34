"""The data pipeline on Spark, for users: sessions, data sources, archive, reports, audits, copies.

Owns: the public names. Must not know: how any of them works, see `logqueue.pipeline`. Importing
this package imports neither pyspark nor pyarrow; its names are imported when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logqueue.pipeline.archive.contents import archive_files
    from logqueue.pipeline.engines.spark.archive.compaction import run_compact
    from logqueue.pipeline.engines.spark.archive.job import read_archive, run_archive
    from logqueue.pipeline.engines.spark.audit.job import account, run_audit
    from logqueue.pipeline.engines.spark.copies.backfill import run_backfill
    from logqueue.pipeline.engines.spark.copies.redrive import run_redrive
    from logqueue.pipeline.engines.spark.formats.inputs import Input
    from logqueue.pipeline.engines.spark.formats.resolving import resolve
    from logqueue.pipeline.engines.spark.lifecycle.job import read_table, run_lifecycle
    from logqueue.pipeline.engines.spark.reports.job import run_report
    from logqueue.pipeline.engines.spark.session.session import open_session, opened
    from logqueue.pipeline.errors import PipelineError
    from logqueue.pipeline.lifecycle.publishing import table_files

_SPARK = "logqueue.pipeline.engines.spark"
_PLACES = {
    "Input": f"{_SPARK}.formats.inputs",
    "PipelineError": "logqueue.pipeline.errors",
    "account": f"{_SPARK}.audit.job",
    "archive_files": "logqueue.pipeline.archive.contents",
    "open_session": f"{_SPARK}.session.session",
    "opened": f"{_SPARK}.session.session",
    "read_archive": f"{_SPARK}.archive.job",
    "read_table": f"{_SPARK}.lifecycle.job",
    "resolve": f"{_SPARK}.formats.resolving",
    "run_archive": f"{_SPARK}.archive.job",
    "run_audit": f"{_SPARK}.audit.job",
    "run_backfill": f"{_SPARK}.copies.backfill",
    "run_compact": f"{_SPARK}.archive.compaction",
    "run_lifecycle": f"{_SPARK}.lifecycle.job",
    "run_redrive": f"{_SPARK}.copies.redrive",
    "run_report": f"{_SPARK}.reports.job",
    "table_files": "logqueue.pipeline.lifecycle.publishing",
}

__all__ = [
    "Input",
    "PipelineError",
    "account",
    "archive_files",
    "open_session",
    "opened",
    "read_archive",
    "read_table",
    "resolve",
    "run_archive",
    "run_audit",
    "run_backfill",
    "run_compact",
    "run_lifecycle",
    "run_redrive",
    "run_report",
    "table_files",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_PLACES[name]), name)
