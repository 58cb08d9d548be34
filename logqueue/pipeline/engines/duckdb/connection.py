"""A DuckDB database in memory, set up as every job needs it.

Owns: its settings. Must not know: any job.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from logqueue.errors import quoted
from logqueue.pipeline.engines.duckdb.workers import cores
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.temporary import temporary_folder

if TYPE_CHECKING:
    import duckdb

MEMORY_SETTING: Final = "LOGQUEUE_DUCKDB_MEMORY"
MEMORY_SHARE: Final = 8
"""A database may use this part of the machine's memory: worker processes need some, too."""
MEMORY_MIN_MB: Final = 1024
MEMORY_MAX_MB: Final = 8192
CONTAINER_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
"""Files that say how much memory this container has (cgroups, versions 2 and 1)."""


@contextmanager
def opened() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory; what does not fit into memory goes to a temporary directory.

    Raises:
        PipelineError: `LOGQUEUE_DUCKDB_MEMORY` is not an amount, or too little for the job.
    """
    import duckdb

    memory = f"{memory_mb()}MiB"
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory,
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "preserve_insertion_order": "false",
        "threads": str(cores()),
    }
    try:
        with (
            temporary_folder() as spill,
            duckdb.connect(config={**settings, "temp_directory": spill}) as connection,
        ):
            connection.execute("SET TimeZone = 'UTC'")
            yield connection
    except duckdb.OutOfMemoryException as error:
        what = str(error).partition("\n")[0]
        raise PipelineError(
            f"this job needs more memory than the {memory} that DuckDB may use, or more room to "
            f"spill to: {what}; allow it more with {MEMORY_SETTING}, a number of megabytes, or "
            "make room in the temporary directory"
        ) from error


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
    for file in CONTAINER_LIMITS:
        # There is none, or it says "max".
        with suppress(OSError, ValueError):
            total = min(total, int(Path(file).read_text(encoding="ascii")) >> 20)
    return min(max(total // MEMORY_SHARE, MEMORY_MIN_MB), MEMORY_MAX_MB, total // 2)
