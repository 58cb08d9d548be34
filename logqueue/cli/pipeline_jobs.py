"""`logqueue pipeline archive`, `compact`, `lifecycle`, `report`, `audit`, `backfill`, `redrive`.

Owns: flags turned into arguments of the jobs, and the printed summary. Must not
know: how any job works.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from logqueue.cli import exits, output
from logqueue.cli.connection import url_of
from logqueue.cli.exits import UsageError
from logqueue.cli.pipeline_runs import (
    noted_sigterm,
    progress,
    refusals,
    run,
    run_on_engine,
    stopped_by_sigterm,
    to_people,
)
from logqueue.errors import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from logqueue.pipeline.progress import Note
    from logqueue.pipeline.reading.place import InputPlace
    from logqueue.pipeline.reports.page_options import PageOptions


def names_of(text: str | None, flag: str) -> list[str]:
    """Names from `a,b`.

    Raises:
        UsageError: One is empty.
    """
    if text is None:
        return []
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise UsageError(f"{flag} {quoted(text)} is not a list of names, a,b,c")
    return found


def key_of(arguments: argparse.Namespace) -> str | None:
    """The key to call a server with.

    Raises:
        UsageError: Both flags are given, or the file cannot be read.
    """
    if arguments.token and arguments.token_file:
        raise UsageError("give --token or --token-file, not both")
    if not arguments.token_file:
        given: str | None = arguments.token or os.environ.get("LOGQUEUE_TOKEN")
        return given
    try:
        with open(arguments.token_file, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {arguments.token_file}: {error}") from error


def input_of(arguments: argparse.Namespace) -> InputPlace:
    """What a job reads, from the flags.

    Raises:
        CommandError: They do not fit together.
    """
    from logqueue.pipeline.reading.place import InputPlace

    key = key_of(arguments)
    with refusals():
        return InputPlace(
            archive=getattr(arguments, "archive", None),
            path=arguments.path,
            url=arguments.url,
            token=key if arguments.url and not arguments.token_file else None,
            token_file=arguments.token_file if arguments.url else None,
            topics=names_of(arguments.topics, "--topics"),
            pattern=arguments.pattern,
        )


def directories(arguments: argparse.Namespace) -> tuple[str | None, ...]:
    """What is read, where that is a directory."""
    return (
        getattr(arguments, "lifecycle", None)
        or getattr(arguments, "archive", None)
        or arguments.path,
    )


# -- archive and compact -------------------------------------------------------------------------


def archive(arguments: argparse.Namespace) -> int:
    """Copy records and lease events into Parquet files."""

    def work(spark: SparkSession, note: Note) -> dict[str, Any]:
        from logqueue.pipeline.engines.spark.archive.job import run_archive

        with noted_sigterm() if arguments.every is not None else nullcontext(_never) as is_over:
            return run_archive(
                spark,
                _source(arguments),
                arguments.to,
                topics=names_of(arguments.topics, "--topics") or None,
                pattern=arguments.pattern,
                once=arguments.every is None,
                every_s=arguments.every,
                max_records=arguments.max_records,
                variant=arguments.variant,
                delta=arguments.delta,
                fail_on_data_loss=arguments.fail_on_data_loss == "true",
                note=note,
                is_over=is_over,
            )

    # A continuous run may read much.
    inputs = directories(arguments) if arguments.every is None else ()
    summary = run(arguments, work, *inputs)
    rows = {name: table["rows"] for name, table in summary["tables"].items()}
    to_people(arguments, {**rows, "archive": summary["to"]})
    return exits.OK


def _never() -> bool:
    return False


def _source(arguments: argparse.Namespace) -> dict[str, str]:
    """Where records come from, as options of one of our formats."""
    if arguments.path is not None:
        options = {"path": arguments.path}
    else:
        options = {"url": arguments.url}
        if arguments.token_file:
            options["tokenFile"] = arguments.token_file
        elif key := key_of(arguments):
            options["token"] = key
    return options


def compact(arguments: argparse.Namespace) -> int:
    """Merge small files of an archive; Spark takes part only where flags name one."""
    if arguments.master or arguments.remote or arguments.conf:

        def work(spark: SparkSession, note: Note) -> dict[str, Any]:
            from logqueue.pipeline.engines.spark.archive.compaction import run_compact

            return run_compact(arguments.archive, spark=spark, note=note)

        run(arguments, work, arguments.archive)
        return exits.OK
    began = time.monotonic()
    with stopped_by_sigterm(), progress(arguments) as note, refusals():
        from logqueue.pipeline.engines.spark.archive.compaction import run_compact

        summary = run_compact(arguments.archive, note=note)
    summary["seconds"] = round(time.monotonic() - began, 3)
    output.json_line(summary)
    return exits.OK


# -- lifecycle, report, audit --------------------------------------------------------------------


def lifecycle(arguments: argparse.Namespace) -> int:
    """Make the tables of attempts and jobs."""
    source = input_of(arguments)

    def on_duckdb(note: Note) -> dict[str, Any]:
        from logqueue.pipeline.engines.duckdb.input import LocalInput
        from logqueue.pipeline.engines.duckdb.lifecycle import run_lifecycle
        from logqueue.pipeline.engines.duckdb.workers import WorkerPool

        with WorkerPool() as pool:
            return run_lifecycle(
                LocalInput(source, pool),
                arguments.to,
                since=arguments.since,
                end=arguments.end,
                note=note,
                pool=pool,
            )

    def on_spark(spark: SparkSession, note: Note) -> dict[str, Any]:
        from logqueue.pipeline.engines.spark.formats.inputs import Input
        from logqueue.pipeline.engines.spark.lifecycle.job import run_lifecycle

        return run_lifecycle(
            spark,
            Input.at(source),
            arguments.to,
            since=arguments.since,
            end=arguments.end,
            note=note,
        )

    summary = run_on_engine(arguments, on_duckdb, on_spark, *directories(arguments))
    to_people(arguments, {**_rows(summary), "tables": arguments.to})
    return exits.OK


def report(arguments: argparse.Namespace) -> int:
    """Say how queues did."""
    tables: str | None = arguments.lifecycle
    place = None if tables else input_of(arguments)
    wanted: dict[str, Any] = {
        "names": names_of(arguments.name, "--name"),
        "bucket": arguments.bucket,
        "sla": arguments.sla,
        "formats": names_of(arguments.format, "--format"),
        "page": page_of(arguments, place),
    }

    def on_duckdb(note: Note) -> dict[str, Any]:
        from logqueue.pipeline.engines.duckdb.input import LocalInput
        from logqueue.pipeline.engines.duckdb.reports import run_report
        from logqueue.pipeline.engines.duckdb.workers import WorkerPool
        from logqueue.pipeline.reports.run import ReportRequest

        with WorkerPool() as pool:
            source = LocalInput(place, pool) if place is not None else tables or ""
            return run_report(source, arguments.to, ReportRequest(**wanted), note=note, pool=pool)

    def on_spark(spark: SparkSession, note: Note) -> dict[str, Any]:
        from logqueue.pipeline.engines.spark.formats.inputs import Input
        from logqueue.pipeline.engines.spark.reports.job import run_report

        source: str | Input = Input.at(place) if place is not None else tables or ""
        return run_report(spark, source, arguments.to, **wanted, note=note)

    summary = run_on_engine(arguments, on_duckdb, on_spark, *directories(arguments))
    to_people(arguments, {**_rows(summary), "reports": arguments.to})
    return exits.OK


def page_of(arguments: argparse.Namespace, place: InputPlace | None) -> PageOptions:
    """How the page of a report is shown, from the flags.

    Raises:
        CommandError: There is no such time zone, or the address is not one of HTTP.
    """
    # The server that is read, whose dashboard the page links to; the first of several.
    served = (place.url or "").partition(",")[0] if place is not None else ""
    with refusals():
        from logqueue.pipeline.reports.page_options import PageOptions

        return PageOptions.of(arguments.zone, arguments.dashboard or served)


def audit(arguments: argparse.Namespace) -> int:
    """Hold a log against the rules; status 3 says that there are findings."""
    source = input_of(arguments)
    against = _other(arguments) if arguments.against else None
    rules = names_of(arguments.rules, "--rules") or None

    def on_duckdb(note: Note) -> dict[str, Any]:
        from logqueue.pipeline.engines.duckdb.audit.job import run_audit

        return run_audit(source, arguments.to, against=against, rules=rules, note=note)

    def on_spark(spark: SparkSession, note: Note) -> dict[str, Any]:
        from logqueue.pipeline.engines.spark.audit.job import run_audit
        from logqueue.pipeline.engines.spark.formats.inputs import Input

        other = Input.at(against) if against else None
        return run_audit(
            spark, Input.at(source), arguments.to, against=other, rules=rules, note=note
        )

    summary = run_on_engine(arguments, on_duckdb, on_spark, *directories(arguments))
    # What cannot be checked ("info") is not a fault of the log.
    found = summary["findings"]["error"] + summary["findings"]["warning"]
    to_people(arguments, {"findings": found, **summary["rules"], "written to": arguments.to})
    return exits.NOTHING if found else exits.OK


def _other(arguments: argparse.Namespace) -> InputPlace:
    """What must say the same: a server, an archive, or a data directory."""
    from logqueue.pipeline.reading.place import InputPlace

    named: str = arguments.against
    topics = names_of(arguments.topics, "--topics")
    with refusals():
        if named.startswith(("http://", "https://")):
            key = {"token": key_of(arguments), "token_file": arguments.token_file}
            return InputPlace(url=named, **key, topics=topics, pattern=arguments.pattern)
        if _is_archive(named):
            return InputPlace(archive=named, topics=topics, pattern=arguments.pattern)
        return InputPlace(path=named, topics=topics, pattern=arguments.pattern)


def _is_archive(place: str) -> bool:
    """Whether there is an archive of the pipeline; elsewhere is a log, or its replica."""
    from logqueue.pipeline.archive.manifests import SCHEMA_FILE
    from logqueue.pipeline.storage.opening import open_tree

    return open_tree(place).info(SCHEMA_FILE) is not None


def _rows(summary: dict[str, Any]) -> dict[str, object]:
    """Rows of each table, or in all."""
    rows = summary.get("rows")
    return dict(rows) if isinstance(rows, dict) else {"rows": rows}


# -- backfill and redrive ------------------------------------------------------------------------


def backfill(arguments: argparse.Namespace) -> int:
    """Write files into a topic."""

    def work(spark: SparkSession, note: Note) -> dict[str, Any]:
        from logqueue.pipeline.engines.spark.copies.backfill import run_backfill

        return run_backfill(
            spark,
            arguments.source,
            arguments.format,
            url_of(arguments),
            arguments.to_topic,
            arguments.write_id,
            token=key_of(arguments),
            map_sql=arguments.map_sql,
            slices=arguments.slices,
            order_by=arguments.order_by,
            note=note,
        )

    run(arguments, work, arguments.source)
    return exits.OK


def redrive(arguments: argparse.Namespace) -> int:
    """Write chosen dead letters again."""

    def work(spark: SparkSession, note: Note) -> dict[str, Any]:
        from logqueue.pipeline.engines.spark.copies.redrive import run_redrive

        return run_redrive(
            spark,
            url_of(arguments),
            arguments.dead_topic,
            arguments.write_id,
            where=arguments.where,
            to_topic=arguments.to_topic,
            limit=arguments.limit,
            dry_run=arguments.dry_run,
            token=key_of(arguments),
            note=note,
        )

    run(arguments, work)
    return exits.OK
