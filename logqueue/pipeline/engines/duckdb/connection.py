"""A DuckDB database in memory, set up as every job needs it.

Owns: its settings. Must not know: any job.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


@contextmanager
def opened(folder: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory; what does not fit into memory goes to a temporary directory.

    Args:
        folder: Where that directory is made; by default, where the system has its own.
    """
    import duckdb

    spill = tempfile.mkdtemp(prefix=".logqueue-duckdb-", dir=folder)
    settings: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": spill,
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "preserve_insertion_order": "false",
        "threads": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1),
    }
    try:
        with duckdb.connect(config=settings) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection
    finally:
        shutil.rmtree(spill, ignore_errors=True)
