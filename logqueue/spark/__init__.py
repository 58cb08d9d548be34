"""The data pipeline on Spark: archive, reports, audits, bulk copies.

Owns: everything that runs in or on a Spark session. Must not know: the server's inside, the command
line. Importing this package imports neither pyspark nor pyarrow; its names are looked up when they
are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logqueue.spark.archive.compaction import run_compact
    from logqueue.spark.archive.job import read_archive, run_archive
    from logqueue.spark.archive.manifests import archive_files
    from logqueue.spark.audit.job import account, run_audit
    from logqueue.spark.errors import PipelineError
    from logqueue.spark.lifecycle.job import run_lifecycle
    from logqueue.spark.reading.inputs import Input
    from logqueue.spark.reading.offsets import resolve
    from logqueue.spark.reports.job import run_report
    from logqueue.spark.running.session import open_session, opened
    from logqueue.spark.writing.backfill import run_backfill
    from logqueue.spark.writing.redrive import run_redrive

_PLACES = {
    "Input": "reading.inputs",
    "PipelineError": "errors",
    "account": "audit.job",
    "archive_files": "archive.manifests",
    "open_session": "running.session",
    "opened": "running.session",
    "read_archive": "archive.job",
    "resolve": "reading.offsets",
    "run_archive": "archive.job",
    "run_audit": "audit.job",
    "run_backfill": "writing.backfill",
    "run_compact": "archive.compaction",
    "run_lifecycle": "lifecycle.job",
    "run_redrive": "writing.redrive",
    "run_report": "reports.job",
}

__all__ = [
    "Input",
    "PipelineError",
    "account",
    "archive_files",
    "open_session",
    "opened",
    "read_archive",
    "resolve",
    "run_archive",
    "run_audit",
    "run_backfill",
    "run_compact",
    "run_lifecycle",
    "run_redrive",
    "run_report",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
