"""The memory of this process.

Owns: asking the operating system. Must not know: what it is used for.
"""

from __future__ import annotations

import os


def resident_bytes() -> int | None:
    """The memory of this process, as the system counts it; None where it does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
