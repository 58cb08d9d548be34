"""The audit job on Spark.

Owns: what Spark users call. Must not know: the rules, the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.audit import run
from logqueue.pipeline.engines.spark.audit.engine import SparkAuditEngine
from logqueue.pipeline.progress import Note, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from logqueue.pipeline.engines.spark.formats.inputs import Input


def run_audit(
    spark: SparkSession,
    input: Input,
    to: str,
    *,
    against: Input | None = None,
    rules: Sequence[str] | str | None = None,
    note: Note = silent,
) -> dict[str, Any]:
    """Check the history of a log and write what is wrong with it; see `audit.run.run_audit`.

    Args:
        spark: A session.
        input: The history.
        to: A directory for the table `audit_findings` (Parquet) and `audit_findings.json`.
        against: Another place that must hold the same records: an archive, a log, a server.
        rules: Names of rules, as a list or with commas; all when None.
        note: Called at each step.

    Raises:
        PipelineError: A rule is unknown, or there is nothing to audit.
    """
    engine = SparkAuditEngine(spark, input)
    return run.run_audit(engine, input, to, against=against, rules=rules, note=note)


def account(spark: SparkSession, input: Input, *, note: Note = silent) -> dict[str, Any]:
    """The proof that every job appended was finished once or is open, and no rule about it broken.

    Returns:
        appended, one count per way to end, trimmed, open, compacted, unaccounted, by_topic, and
        `findings` of the rules that it rests on.

    Raises:
        PipelineError: There is nothing to audit.
    """
    return run.account_of(SparkAuditEngine(spark, input), input, note=note)
