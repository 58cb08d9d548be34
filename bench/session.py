"""What every measurement needs: the scale, fresh servers, a place on the disk, a voice.

Owns: the directory of a run and the servers in it. Must not know: what is measured.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import uvloop

from bench.machine import Spread, cpu_s
from bench.progress import Progress
from bench.rows import Row, Scale, Target
from logqueue.client import Client
from logqueue.demo.server import DemoServer


class Session:
    """One run of the benchmarks.

    Attributes:
        shared: What several measurements use and one of them made, by name.
        at_end: Closed when the run ends.
        code_dir: The checkout whose server is measured; None for the one that measures.
    """

    def __init__(self, scale: Scale, parent: Path, progress: Progress | None = None) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        self.scale = scale
        self.directory = Path(tempfile.mkdtemp(prefix="run-", dir=parent)).resolve()
        self.shared: dict[str, Any] = {}
        self.at_end = ExitStack()
        self.code_dir: Path | None = None
        self._keeps = False
        self._kept: defaultdict[Path | None, list[DemoServer]] = defaultdict(list)
        self._progress = progress or Progress(sys.stderr, 0)
        self._numbers = itertools.count(1)

    def place(self) -> Path:
        """A fresh directory for a server and its data."""
        side = self.directory / f"server-{next(self._numbers)}"
        side.mkdir()
        return side

    @contextmanager
    def server(self, options: Sequence[str] = ()) -> Iterator[DemoServer]:
        """A server without topics; gone, with its data, afterwards, unless servers are kept; those
        with options of their own never are."""
        kept = self._kept[self.code_dir] if not options else []
        server = kept.pop() if kept else self._started(options)
        try:
            yield server
            if self._keeps and not options:
                _drop_topics(server)
                self._kept[self.code_dir].append(server)
        finally:
            if server not in self._kept[self.code_dir]:
                _remove(server)

    def _started(self, options: Sequence[str]) -> DemoServer:
        side = self.place()
        server = DemoServer(side / "data", side, self.code_dir, options=options)
        try:
            server.start()
        except BaseException:
            _remove(server)
            raise
        return server

    @contextmanager
    def keeping_servers(self) -> Iterator[None]:
        """Within, servers are used again: no start lies between one measurement and the next."""
        self._keeps = True
        try:
            yield
        finally:
            self._keeps = False
            for server in chain.from_iterable(self._kept.values()):
                _remove(server)
            self._kept.clear()

    def tell(self, text: str) -> None:
        """A line of progress, for people."""
        self._progress.tell(text)

    def close(self) -> None:
        """Remove what the run left on the disk."""
        self.at_end.close()
        shutil.rmtree(self.directory)


def _remove(server: DemoServer) -> None:
    server.kill()
    shutil.rmtree(server.data_dir.parent)


def _drop_topics(server: DemoServer) -> None:
    with Client(server.url) as client:
        for router in client.routers():
            client.drop_router(router.router)
        for topic in client.topics():
            client.drop_topic(topic.topic)


class CpuWatch:
    """How many cores the server and we ourselves kept busy since the watch was made."""

    def __init__(self, server: DemoServer) -> None:
        self._pid = server.pid
        self._server_s = cpu_s(self._pid)
        self._load_s = process_time()
        self._began = perf_counter()

    def us_per(self, requests: int) -> float:
        """Microseconds of processor time that the server spent on each of so many requests."""
        return (cpu_s(self._pid) - self._server_s) * 1e6 / max(requests, 1)

    def note(self) -> str:
        """The shares of one core, in words."""
        assert os.getpid() != self._pid
        took = perf_counter() - self._began
        server = (cpu_s(self._pid) - self._server_s) / took
        load = (process_time() - self._load_s) / took
        return f"server {server:.2f} cores, load {load:.2f}"


def latency_rows(
    session: Session,
    name: str,
    what: str,
    p99_ms_max: float,
    measure: Callable[[DemoServer, Session], Coroutine[Any, Any, tuple[Spread, str]]],
) -> list[Row]:
    """Median and 99th percentile of a latency, each repetition on a server of its own."""
    rows = [
        Row(f"{name}-p50", f"{what}, p50", "ms"),
        Row(f"{name}-p99", f"{what}, p99", "ms", Target(p99_ms_max, at_most=True)),
    ]
    for _ in range(session.scale.repeats):
        with session.server() as server:
            spread, note = uvloop.run(measure(server, session))
        for row, value in zip(rows, (spread.p50_ms, spread.p99_ms), strict=True):
            row.values.append(value)
        rows[1].notes.append(note)
        session.tell(f"  {name}: p50 {spread.p50_ms:.2f}, p99 {spread.p99_ms:.2f} ms ({note})")
    return rows
