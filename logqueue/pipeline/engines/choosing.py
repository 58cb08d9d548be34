"""Which engine runs a job: DuckDB for what fits on this machine, Spark for all else.

Owns: the rule, and what is missing where neither can run. Must not know: any job, either engine.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, Literal

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.opening import is_hadoop, is_url, open_tree

Engine = Literal["duckdb", "spark"]

DUCKDB: Final = "duckdb"
SPARK: Final = "spark"

BYTES_MAX: Final = 8 << 30
"""Up to so much input, DuckDB is chosen by default."""

BYTES_MAX_SETTING: Final = "LOGQUEUE_DUCKDB_BYTES_MAX"

NEEDED: Final = {DUCKDB: ("duckdb", "pyarrow", "numpy"), SPARK: ("pyspark", "pyarrow", "numpy")}
"""Packages that an engine imports."""

INSTALL: Final = "the data pipeline needs more packages: pip install 'logqueue[reports]'"

SPARK_VARIABLES: Final = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
"""Set by spark-submit, and by users of Spark Connect: each asks for Spark."""


def choose(
    asked: str,
    *,
    names_spark: bool = False,
    inputs: Iterable[str | None] = (),
    is_wired: bool = True,
) -> Engine:
    """The engine of one run.

    Args:
        asked: "auto", "duckdb" or "spark".
        names_spark: Whether the user says where Spark runs, or how.
        inputs: Directories and URLs of object stores that are read; their size decides for
            "auto". A server does not count.
        is_wired: Whether the job runs on DuckDB at all.

    Raises:
        PipelineError: What is asked for cannot run here; the message says what to do.
    """
    if asked == SPARK:
        return SPARK
    inputs = [*inputs]
    only_spark = [place for place in inputs if place is not None and is_hadoop(place)]
    if asked == DUCKDB:
        if names_spark:
            raise PipelineError(
                "--master, --remote and --conf are for Spark: leave them out, or use --engine spark"
            )
        if only_spark:
            raise PipelineError(f"{only_spark[0]} is reached by Spark alone: use --engine spark")
        if not is_wired:
            raise PipelineError("this action does not run on DuckDB: use --engine spark")
        if not is_installed(DUCKDB):
            raise PipelineError(INSTALL)
        return DUCKDB
    if (
        names_spark
        or only_spark
        or not is_wired
        or any(os.environ.get(name) for name in SPARK_VARIABLES)
    ):
        return SPARK
    if not is_installed(DUCKDB):
        if not is_installed(SPARK):
            raise PipelineError(INSTALL)
        return SPARK
    is_large = exceeds(inputs, bytes_max())
    return SPARK if is_large and is_installed(SPARK) else DUCKDB


def is_installed(engine: Engine) -> bool:
    """Whether the packages of an engine are there; nothing is imported."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in NEEDED[engine])
    except ModuleNotFoundError:
        return False


def bytes_max() -> int:
    """The size of input up to which DuckDB is chosen.

    Raises:
        PipelineError: The environment names something else than a size.
    """
    text = os.environ.get(BYTES_MAX_SETTING)
    if not text:
        return BYTES_MAX
    if not text.isascii() or not text.isdigit():
        raise PipelineError(f"invalid {BYTES_MAX_SETTING} '{text}': use a number of bytes")
    return int(text)


def exceeds(inputs: Iterable[str | None], limit: int) -> bool:
    """Whether the files at some places together are larger than a limit, in bytes."""
    held = 0
    for name in inputs:
        for size in _sizes(name) if name is not None else ():
            held += size
            if held > limit:
                return True
    return False


def _sizes(place: str) -> Iterator[int]:
    """Bytes of the files at a place; none where that is not a directory or an object store."""
    if is_url(place):
        # A server, or a place that the job itself refuses.
        with suppress(PipelineError):
            yield from (file.bytes for file in open_tree(place).files())
        return
    for folder, _, files in os.walk(place):
        for file in files:
            with suppress(OSError):
                yield os.stat(os.path.join(folder, file)).st_size
