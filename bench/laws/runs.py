"""One command of the pipeline in a process of its own: its time, and the memory of its driver.

Owns: commands by name, and how they are watched. Must not know: sizes, what is expected.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load import LoadFailed
from bench.machine import TICKS_PER_S

TIMEOUT_S: Final = 3600
WATCH_S: Final = 0.1
JOBS: Final = ("archive", "lifecycle", "report", "audit", "backlog")
ENGINES: Final = ("duckdb", "spark")


@dataclass(frozen=True)
class Run:
    """What one command took.

    Attributes:
        wall_s: From start to exit.
        cpu_s: Processor time of the driver and all that it started.
        driver_mb: The most memory that the driver's own process had.
    """

    wall_s: float
    cpu_s: float
    driver_mb: float


@dataclass(frozen=True)
class Places:
    """Where the commands of one log read and write."""

    log: Path
    work: Path

    def command(self, job: str, engine: str) -> list[str]:
        """The words of a command."""
        to = str(self.work / job)
        tables = ["--lifecycle", str(self.work / "lifecycle")]
        words = {
            "archive": ["archive", "--path", str(self.log), "--to", to],
            "lifecycle": ["lifecycle", "--path", str(self.log), "--to", to],
            "report": ["report", *tables, "--to", to, "--format", "parquet,html"],
            "backlog": [
                "report", *tables, "--to", to, "--name", "backlog", "--bucket", "1m",
                "--format", "parquet",
            ],
            "audit": ["audit", "--path", str(self.log), "--to", to],
        }[job]  # fmt: skip
        chosen = [] if job == "archive" else ["--engine", engine]
        return [sys.executable, "-m", "logqueue", "pipeline", *words, *chosen, "--json"]


def run(places: Places, job: str, engine: str) -> Run:
    """Run a command.

    Raises:
        LoadFailed: It failed, or did something else than it should.
    """
    shutil.rmtree(places.work / job, ignore_errors=True)
    places.work.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with open(places.work / f"{job}.err", "wb") as errors:
        process = subprocess.Popen(
            places.command(job, engine),
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        watch = _Watch(process.pid)
        watch.start()
        assert process.stdout is not None
        text = process.stdout.read()
        process.wait()
        watch.join()
    wall = time.monotonic() - began
    if process.returncode != 0:
        tail = (places.work / f"{job}.err").read_text(encoding="utf-8")[-400:]
        raise LoadFailed(f"{job} on {engine}: status {process.returncode}: {tail}")
    json.loads(text)
    return Run(wall, watch.cpu_s, watch.peak_mb)


class _Watch(threading.Thread):
    """Reads the memory of a process, and the processor time of all processes of its session, until
    it ends: workers, Java, and what Java starts."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._times: dict[str, float] = {}
        self.peak_mb = 0.0

    @property
    def cpu_s(self) -> float:
        """Of all of them."""
        return sum(self._times.values())

    def run(self) -> None:
        """Until there is nothing to read."""
        while True:
            try:
                text = Path(f"/proc/{self._pid}/status").read_text(encoding="ascii")
            except OSError:
                return
            found = [line for line in text.splitlines() if line.startswith("VmHWM:")]
            if not found:
                return
            self.peak_mb = max(self.peak_mb, int(found[0].split()[1]) / 1024)
            self._note_times()
            time.sleep(WATCH_S)

    def _note_times(self) -> None:
        for process in Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            try:
                text = (process / "stat").read_text(encoding="ascii", errors="replace")
            except OSError:
                continue
            fields = text.rpartition(")")[2].split()
            if int(fields[3]) == self._pid:
                self._times[process.name] = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
