"""What the machine itself says: processor time, memory, the device's raw sync, a description.

Owns: reading /proc, and the bare write-and-fdatasync loop. Must not know: the server's HTTP side.
"""

from __future__ import annotations

import os
import platform
import statistics
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

FRAME_BYTES = 256
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Spread:
    """Median and 99th percentile of some latencies, in milliseconds."""

    p50_ms: float
    p99_ms: float

    @staticmethod
    def of(seconds: list[float]) -> Spread:
        """The spread of a list of durations."""
        ordered = sorted(seconds)
        p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        return Spread(statistics.median(ordered) * 1000, p99 * 1000)


class RawDevice:
    """A preallocated file, and single frames written into it and synced, one after another."""

    def __init__(self, path: Path, frames_max: int) -> None:
        self._path = path
        self._block = os.urandom(FRAME_BYTES)
        self._frames_max = frames_max
        self._next = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        # Written, not only reserved: a sync then has no file size and no extents to bring along.
        os.write(self._file, bytes(FRAME_BYTES * frames_max))
        os.fsync(self._file)

    def sync_frames(self, count: int) -> list[float]:
        """Seconds of pwrite plus fdatasync, count times."""
        seconds = []
        for _ in range(count):
            offset = self._next % self._frames_max * FRAME_BYTES
            self._next += 1
            began = perf_counter()
            os.pwrite(self._file, self._block, offset)
            os.fdatasync(self._file)
            seconds.append(perf_counter() - began)
        return seconds

    def close(self) -> None:
        """Remove the file."""
        os.close(self._file)
        self._path.unlink()


def cpu_s(pid: int) -> float:
    """Processor seconds that the threads of a process have used so far."""
    try:
        tasks = [*Path(f"/proc/{pid}/task").iterdir()]
        # To the nanosecond, where the other file counts ticks: many short-lived bits would be lost.
        return sum(int((task / "schedstat").read_bytes().split()[0]) for task in tasks) / 1e9
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def describe() -> dict[str, object]:
    """What a reader of figures wants to know about the machine."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
    }
