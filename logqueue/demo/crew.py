"""The worker processes as a group: started together, stopped together, their tallies collected.

Owns: the processes. Must not know: what a worker does between start and end.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from logqueue.demo.workers import KINDS, Tally

STOP_TIMEOUT_S = 20.0


class WorkerFailed(Exception):
    """A worker process ended before it was stopped."""


class DemoWorkers:
    """Some pollers and some streamers, in turn, each a process of its own.

    Attributes:
        size: How many.
    """

    def __init__(self, workers: int, side_dir: Path) -> None:
        self.size = workers
        self._log_path = side_dir / "workers.log"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, url: str) -> None:
        """Start every worker against the server at this URL, or several with commas."""
        kinds = [*KINDS]
        with self._log_path.open("ab") as log:
            for index in range(self.size):
                kind = kinds[index % len(kinds)]
                node = f"{kind}-{index // len(kinds) + 1}"
                self._processes[node] = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "logqueue.demo.workers",
                        "--url",
                        url,
                        "--kind",
                        kind,
                        "--node",
                        node,
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                )

    def check(self) -> None:
        """Raise if a worker is gone."""
        for node, process in self._processes.items():
            status = process.poll()
            if status is not None:
                raise WorkerFailed(f"worker {node} ended with status {status}{self._tail()}")

    def stop(self) -> list[Tally]:
        """End the input of all workers; the tallies of those that came to a good end."""
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None  # or communicate() would try to flush it
        tallies = []
        for process in self._processes.values():
            try:
                output, _ = process.communicate(timeout=STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                continue
            if process.returncode == 0:
                tallies.append(msgspec.json.decode(output, type=Tally))
        self._processes.clear()
        return tallies

    def _tail(self) -> str:
        text = self._log_path.read_text(encoding="utf-8", errors="replace")
        return "".join(f"\n  {line}" for line in text.splitlines()[-10:])
