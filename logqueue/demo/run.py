"""The course of the demo: server up, jobs in, workers on, SIGKILL half-way, restart, reckoning.

Owns: the order of things and the gathering of the facts. Must not know: how a job is done, how the
facts are judged or shown.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from logqueue import Client
from logqueue.demo import dashboard, queue
from logqueue.demo.checks import DemoResults, Kill
from logqueue.demo.crew import DemoWorkers
from logqueue.demo.directory import fresh
from logqueue.demo.jobs import JobFeed, sample, standard_library, truncated_copies
from logqueue.demo.progress import Narrator
from logqueue.demo.server import DemoServer
from logqueue.demo.workers import JOBS, PATIENT

SERVER = "server"
"""The server's data directory, in that of the demo."""

KILL_SHARE = 0.5


@dataclass(frozen=True)
class Options:
    """What the caller may choose."""

    data_dir: Path
    files_max: int | None
    workers: int
    ui: bool = False


def run(options: Options, narrator: Narrator) -> DemoResults:
    """Run the demo once."""
    directory = fresh(options.data_dir)
    sources = choose(options.files_max, directory)
    server = DemoServer(directory / SERVER, directory)
    crew = DemoWorkers(options.workers, directory)
    try:
        narrator.event(f"server ready after {server.start():.2f} s on {server.url}")
        if options.ui:
            narrator.event(f"watch it on the dashboard: {server.url}{dashboard.PATH}")
        with Client(server.url, backoff=PATIENT) as client:
            return _course(client, server, crew, sources, options.workers, narrator)
    finally:
        crew.stop()
        server.stop()


def choose(files_max: int | None, directory: Path) -> list[JobFeed]:
    """The jobs: files of the standard library, and the copies that cannot be parsed."""
    everything = standard_library()
    sources = everything if files_max is None else sample(everything, files_max)
    return sources + truncated_copies(everything, directory / "truncated")


def _course(
    client: Client,
    server: DemoServer,
    crew: DemoWorkers,
    sources: list[JobFeed],
    workers: int,
    narrator: Narrator,
) -> DemoResults:
    jobs = len(sources)
    queue.set_up(client)
    stored = client.append(JOBS, sources)
    appended = dict(zip(range(stored.first_seq, stored.last_seq + 1), sources, strict=True))
    narrator.event(f"{jobs} jobs appended, {workers} workers start")
    narrator.expect(jobs)
    began = time.monotonic()
    crew.start(server.url)
    queue.watch(client, crew, narrator, until=int(jobs * KILL_SHARE))
    kill = _kill_and_restart(server, client, narrator)
    queue.watch(client, crew, narrator, until=jobs)
    seconds = time.monotonic() - began
    return DemoResults(
        appended=appended,
        tallies=crew.stop(),
        results=queue.results(client),
        dead=queue.dead_letters(client),
        workers=workers,
        kill=kill,
        final=queue.standing(client),
        seconds=seconds,
        url=server.url,
    )


def _kill_and_restart(server: DemoServer, client: Client, narrator: Narrator) -> Kill:
    now = queue.standing(client)
    done, in_flight = now.done, now.queue.in_flight
    at_ms = time.time_ns() // 1_000_000
    server.kill()
    narrator.event(f"server killed (SIGKILL) after {done} jobs, {in_flight} in flight")
    restart_s = server.start()
    narrator.event(f"server ready again after {restart_s:.2f} s")
    return Kill(at_ms, done, in_flight, restart_s)
