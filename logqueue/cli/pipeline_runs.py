"""One run of a pipeline job: its session, its progress, its summary, and its end.

Owns: all of that. Must not know: any job. The summary is one line of JSON on stdout; everything
else goes to stderr.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logqueue.cli import output
from logqueue.cli.exits import CommandError, UsageError
from logqueue.cli.terminal import Bar
from logqueue.errors import (
    LogqueueError,
    quoted,
)

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

    from logqueue.pipeline.engines.choosing import Engine
    from logqueue.pipeline.progress import Note

SMALL_BYTES = 64 << 20
"""Up to so much input, compiling costs more than it saves."""


def settings(arguments: argparse.Namespace) -> dict[str, str]:
    """The settings given with `--conf`.

    Raises:
        UsageError: One is not NAME=VALUE.
    """
    found = {}
    for text in arguments.conf:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"--conf {quoted(text)} is not NAME=VALUE")
        found[name] = value
    return found


@contextmanager
def session(
    arguments: argparse.Namespace, note: Note, *inputs: str | None
) -> Iterator[SparkSession]:
    """A Spark session as the flags say, ended with the context.

    Args:
        note: Called when the session starts.
        inputs: Directories that are read; for small ones a local session starts quicker.

    Raises:
        CommandError: Spark cannot be had.
    """
    given = settings(arguments)
    with refusals():
        from logqueue.pipeline.engines.spark.session import session as sessions

        is_local = arguments.master is None and arguments.remote is None
        note("starting Spark", None)
        if is_local and is_small(inputs):
            given = sessions.for_small_input(given)
        with sessions.opened(arguments.master, arguments.remote, given) as spark:
            yield spark
        if is_local:
            sessions.quicken_later()


@contextmanager
def refusals() -> Iterator[None]:
    """Failures inside become one line on stderr.

    Raises:
        CommandError: In place of a refusal of the pipeline, or a failure of Spark.
    """
    try:
        yield
    except (CommandError, LogqueueError, OSError):
        raise
    except Exception as error:
        if not _is_foreseen(error):
            raise
        from logqueue.pipeline.errors import message_of

        raise CommandError(message_of(error)) from error


def _is_foreseen(error: Exception) -> bool:
    """Whether an error is a refusal of ours, or a failure of what runs the job."""
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    if packages & {"pyspark", "py4j", "pyarrow", "duckdb", "_duckdb", "grpc", "deltalake"}:
        return True
    from logqueue.pipeline.errors import PipelineError

    return isinstance(error, PipelineError)


def run(
    arguments: argparse.Namespace,
    work: Callable[[SparkSession, Note], dict[str, Any]],
    *inputs: str | None,
) -> dict[str, Any]:
    """Run a job in a session, and print its summary.

    Args:
        work: Gets the session and who to tell of progress; returns the summary.
        inputs: Directories that it reads.

    Returns:
        The summary, with `seconds`, from start to end.
    """
    began = time.monotonic()
    with stopped_by_sigterm(), progress(arguments) as note:
        with session(arguments, note, *inputs) as spark:
            summary = work(spark, note)
        summary["seconds"] = round(time.monotonic() - began, 3)
    output.json_line(summary)
    return summary


def run_on_engine(
    arguments: argparse.Namespace,
    on_duckdb: Callable[[Note], dict[str, Any]] | None,
    on_spark: Callable[[SparkSession, Note], dict[str, Any]],
    *inputs: str | None,
) -> dict[str, Any]:
    """Run a job on the engine that the flags and the size of its input choose; print its summary.

    Args:
        on_duckdb: The job on DuckDB; None where it runs on Spark only.
        on_spark: The job on Spark.
        inputs: Directories that it reads.

    Returns:
        The summary, with `engine` and `seconds`.
    """
    engine = chosen_engine(arguments, *inputs, is_wired=on_duckdb is not None)
    if engine == "spark" or on_duckdb is None:
        return run(arguments, lambda spark, note: _named("spark", on_spark(spark, note)), *inputs)
    return _run_here(arguments, on_duckdb)


def run_on_duckdb(
    arguments: argparse.Namespace, work: Callable[[Note], dict[str, Any]]
) -> dict[str, Any]:
    """Run a job that only DuckDB runs, and print its summary.

    Raises:
        CommandError: DuckDB is not installed.
    """
    from logqueue.pipeline.engines.choosing import DUCKDB, choose

    with refusals():
        choose(DUCKDB)
    return _run_here(arguments, work)


def _run_here(
    arguments: argparse.Namespace, work: Callable[[Note], dict[str, Any]]
) -> dict[str, Any]:
    began = time.monotonic()
    from logqueue.pipeline.engines.duckdb.pandas_free import import_arrow

    with stopped_by_sigterm(), progress(arguments) as note, refusals():
        import_arrow()
        summary = _named("duckdb", work(note))
    summary["seconds"] = round(time.monotonic() - began, 3)
    output.json_line(summary)
    return summary


def chosen_engine(
    arguments: argparse.Namespace, *inputs: str | None, is_wired: bool = True
) -> Engine:
    """The engine for an action, by its flags and the size of what it reads.

    Raises:
        CommandError: None can run it.
    """
    from logqueue.pipeline.engines.choosing import choose

    names_spark = bool(arguments.master or arguments.remote or arguments.conf)
    with refusals():
        return choose(arguments.engine, names_spark=names_spark, inputs=inputs, is_wired=is_wired)


def _named(engine: Engine, summary: dict[str, Any]) -> dict[str, Any]:
    """A summary that says which engine made it, next to the job."""
    return {"job": summary.get("job"), "engine": engine, **summary}


def is_small(inputs: tuple[str | None, ...]) -> bool:
    """Whether all input is in directories and small; a server may have much."""
    held = 0
    for name in inputs:
        if name is None or not Path(name).is_dir():
            return False
        for folder, _, files in os.walk(name):
            for file in files:
                try:
                    held += os.stat(os.path.join(folder, file)).st_size
                except OSError:
                    continue
                if held > SMALL_BYTES:
                    return False
    return bool(inputs)


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does: sessions are closed, temporary files removed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _on_sigterm(stop):
        yield


@contextmanager
def noted_sigterm() -> Iterator[Callable[[], bool]]:
    """SIGTERM is noted, for work that asks again and again whether to end; a second one ends the
    run as Ctrl-C does.

    An exception in the middle of a call to Java would leave the reply behind, for the next call to
    take for its own, or be lost where Python can only print it.
    """
    is_asked = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal is_asked
        if is_asked:
            raise KeyboardInterrupt
        is_asked = True

    with _on_sigterm(note):
        yield lambda: is_asked


@contextmanager
def _on_sigterm(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def progress(arguments: argparse.Namespace) -> Iterator[Note]:
    """A line on stderr that shows the present step, on a terminal only."""
    if not sys.stderr.isatty() or getattr(arguments, "json", False):
        yield lambda text, share: None
        return
    began = time.monotonic()
    bar = Bar(sys.stderr)

    def note(text: str, share: float | None) -> None:
        bar.show(output.printable(text), share, f"{time.monotonic() - began:.0f} s")

    try:
        yield note
    finally:
        bar.close()


def to_people(arguments: argparse.Namespace, lines: Mapping[str, object]) -> None:
    """Facts of a run for people, on stderr."""
    if arguments.json:
        return
    width = max((len(name) for name in lines), default=0)
    for name, value in lines.items():
        if value is not None:
            shown = f"{value:,}" if isinstance(value, int) else output.printable(str(value))
            output.say(f"{name:<{width}}  {shown}")
