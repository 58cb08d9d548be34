"""A DuckDB database in memory, set up as every job needs it.

Owns: its settings. Must not know: any job.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError

if TYPE_CHECKING:
    import duckdb

MEMORY_SETTING: Final = "LOGQUEUE_DUCKDB_MEMORY"
MEMORY_SHARE: Final = 8
"""A database may use this part of the machine's memory: worker processes need some, too."""
MEMORY_MIN_MB: Final = 1024
MEMORY_MAX_MB: Final = 8192


@contextmanager
def opened(folder: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory; what does not fit into memory goes to a temporary directory.

    Args:
        folder: Where that directory is made; by default, where the system has its own.

    Raises:
        PipelineError: `LOGQUEUE_DUCKDB_MEMORY` is not an amount, or too little for the job.
    """
    import duckdb

    memory = f"{memory_mb()}MiB"
    spill = tempfile.mkdtemp(prefix=".logqueue-duckdb-", dir=folder)
    settings: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": spill,
        "memory_limit": memory,
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "preserve_insertion_order": "false",
        "threads": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1),
    }
    try:
        with duckdb.connect(config=settings) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection
    except duckdb.OutOfMemoryException as error:
        raise PipelineError(
            f"DuckDB may use {memory} of memory, which is too little for this job; allow it more: "
            f"{MEMORY_SETTING} is a number of megabytes"
        ) from error
    finally:
        shutil.rmtree(spill, ignore_errors=True)


def memory_mb() -> int:
    """The memory that a database may use, in MB of 2^20 bytes; beyond it, it spills to disk.

    Raises:
        PipelineError: The setting is not a number of megabytes.
    """
    asked = os.environ.get(MEMORY_SETTING)
    if asked:
        if not (asked.isascii() and asked.isdigit() and 64 <= int(asked) < 1 << 32):
            raise PipelineError(
                f"{MEMORY_SETTING} {quoted(asked)} is not a number of megabytes from 64, "
                "such as 2048"
            )
        return int(asked)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return min(max(total // MEMORY_SHARE, MEMORY_MIN_MB), MEMORY_MAX_MB)
