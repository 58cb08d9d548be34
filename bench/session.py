"""What every measurement needs: the scale, fresh servers, a place on the disk, a voice.

Owns: the directory of a run and the servers in it. Must not know: what is measured.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time

from bench.machine import cpu_s
from bench.rows import Scale
from logqueue.demo.server import ServerProcess


class Session:
    """One run of the benchmarks."""

    def __init__(self, scale: Scale, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        self.scale = scale
        self.directory = Path(tempfile.mkdtemp(prefix="run-", dir=parent)).resolve()
        self._numbers = itertools.count(1)

    @contextmanager
    def server(self) -> Iterator[ServerProcess]:
        """A server on a fresh data directory; gone, with its data, afterwards."""
        side = self.directory / f"server-{next(self._numbers)}"
        side.mkdir()
        server = ServerProcess(side / "data", side)
        try:
            server.start()
            yield server
        finally:
            server.kill()
            shutil.rmtree(side)

    def tell(self, text: str) -> None:
        """Progress, for people."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Remove what the run left on the disk."""
        shutil.rmtree(self.directory)


class CpuWatch:
    """How many cores the server and we ourselves kept busy since the watch was made."""

    def __init__(self, server: ServerProcess) -> None:
        self._pid = server.pid
        self._server_s = cpu_s(self._pid)
        self._load_s = process_time()
        self._began = perf_counter()

    def note(self) -> str:
        """The shares of one core, in words."""
        assert os.getpid() != self._pid
        took = perf_counter() - self._began
        server = (cpu_s(self._pid) - self._server_s) / took
        load = (process_time() - self._load_s) / took
        return f"server {server:.2f} cores, load {load:.2f}"
