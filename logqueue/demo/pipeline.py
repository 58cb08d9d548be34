"""The end of the demo: the data pipeline over the demo's own log.

Owns: the jobs that are run, and the promises that their summaries must keep. Must not know: how a
job works, how the demo's own facts were gathered.
"""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logqueue.demo.checks import Check, DemoResults
from logqueue.demo.progress import Narrator
from logqueue.demo.workers import JOBS

EXTRA = "logqueue[spark]"


class Unfinished(Exception):
    """The pipeline did not come to its end; the message says why and what to do."""


@dataclass(frozen=True)
class Reckoning:
    """What the pipeline found in the log.

    Attributes:
        archived, jobs, audit: Summaries of the jobs archive, lifecycle and audit.
        page: The report.
        seconds: From the start of Spark to its end.
    """

    archived: dict[str, Any]
    jobs: dict[str, Any]
    audit: dict[str, Any]
    page: Path
    seconds: float

    @property
    def account(self) -> dict[str, Any]:
        """How the jobs ended, as the audit counts them."""
        accounts: dict[str, dict[str, Any]] = self.audit["account"]["by_topic"]
        return accounts[JOBS]

    @property
    def findings(self) -> int:
        """Rules that the audit saw broken."""
        counts: dict[str, int] = self.audit["findings"]
        return sum(count for severity, count in counts.items() if severity != "info")


def can_run() -> bool:
    """Whether Spark is installed."""
    return importlib.util.find_spec("pyspark") is not None


def reckon(data_dir: Path, to: Path, narrator: Narrator) -> Reckoning:
    """Archive the log of a stopped server, tell the lives of its jobs, draw the report, audit all.

    Args:
        data_dir: The server's.
        to: Directory for what is made.
        narrator: Called at each step.

    Raises:
        Unfinished: There is no Java, or a job could not be done.
    """
    from logqueue.pipeline.errors import PipelineError

    try:
        return _reckon(data_dir, to, narrator)
    except PipelineError as refusal:
        raise Unfinished(str(refusal)) from refusal


def _reckon(data_dir: Path, to: Path, narrator: Narrator) -> Reckoning:
    from logqueue.pipeline.engines.spark.session.session import for_small_input
    from logqueue.spark import Input, opened, run_archive, run_audit, run_lifecycle, run_report

    def note(text: str, share: float | None) -> None:
        narrator.step(text)

    began = time.monotonic()
    archive, tables, report = (str(to / name) for name in ("archive", "tables", "report"))
    narrator.event("Spark starts and reads the server's log")
    with opened(conf=for_small_input({})) as spark:
        archived = run_archive(spark, {"path": str(data_dir)}, archive, pattern=".*", note=note)
        kept = Input(archive=archive)
        jobs = run_lifecycle(spark, kept, tables, note=note)
        run_report(spark, tables, report, bucket="1s", formats=("html",), note=note)
        audit = run_audit(
            spark, Input(path=str(data_dir)), str(to / "audit"), against=kept, note=note
        )
    return Reckoning(archived, jobs, audit, Path(report) / "report.html", time.monotonic() - began)


def judge(facts: DemoResults, found: Reckoning) -> list[Check]:
    """What the log itself proves of the run."""
    account = found.account
    ended = {"acked": len(facts.results), "dead_lettered": len(facts.dead)}
    counted = {name: account.get(name, 0) for name in ended}
    records = found.archived["tables"]["records"]["rows"]
    stored = len(facts.appended) + len(facts.results) + len(facts.dead)
    return [
        Check(
            "the log contains every job",
            account["appended"] == len(facts.appended),
            f"{account['appended']} of {len(facts.appended)}",
        ),
        Check(
            "in the log, every job ended exactly once",
            counted == ended and not account["unaccounted"],
            ", ".join(f"{count} {name}" for name, count in counted.items()),
        ),
        Check(
            "the archive contains every record",
            records == stored,
            f"{records} of {stored}",
        ),
        Check(
            "the audit of log and archive has no findings",
            found.findings == 0,
            f"{found.findings} findings",
        ),
    ]
