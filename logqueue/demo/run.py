"""The course of the demo: server up, jobs in, workers on, SIGKILL half-way, restart, reckoning.

Owns: the order of things and the gathering of the facts. Must not know: how a job is done, how the
facts are judged or shown.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from logqueue import Client, Record
from logqueue.demo.checks import DeadLetter, DemoResults, Kill, Standing
from logqueue.demo.crew import DemoWorkers
from logqueue.demo.directory import fresh
from logqueue.demo.jobs import JobFeed, sample, standard_library, truncated_copies
from logqueue.demo.progress import Narrator
from logqueue.demo.server import DemoServer
from logqueue.demo.workers import DEAD, JOBS, PATIENT, RESULTS, Result

DELIVERIES_MAX = 5
"""Above what the workers try: it is there for jobs that would kill a worker."""

SERVER = "server"
"""The server's data directory, in that of the demo."""

KILL_SHARE = 0.5
WATCH_EVERY_S = 0.05
STALL_S = 60.0
IDEMPOTENCY_WINDOW_MS = 86_400_000


class Stalled(Exception):
    """Jobs are left and nothing has been finished for a long time."""


@dataclass(frozen=True)
class Options:
    """What the caller may choose."""

    data_dir: Path
    files_max: int | None
    workers: int


def run(options: Options, narrator: Narrator) -> DemoResults:
    """Run the demo once."""
    directory = fresh(options.data_dir)
    everything = standard_library()
    sources = everything if options.files_max is None else sample(everything, options.files_max)
    sources = sources + truncated_copies(everything, directory / "truncated")
    server = DemoServer(directory / SERVER, directory)
    crew = DemoWorkers(options.workers, directory)
    try:
        narrator.event(f"server ready after {server.start():.2f} s on {server.url}")
        with Client(server.url, backoff=PATIENT) as client:
            return _course(client, server, crew, sources, options.workers, narrator)
    finally:
        crew.stop()
        server.stop()


def _course(
    client: Client,
    server: DemoServer,
    crew: DemoWorkers,
    sources: list[JobFeed],
    workers: int,
    narrator: Narrator,
) -> DemoResults:
    jobs = len(sources)
    _set_up(client)
    stored = client.append(JOBS, sources)
    appended = dict(zip(range(stored.first_seq, stored.last_seq + 1), sources, strict=True))
    narrator.event(f"{jobs} jobs appended, {workers} workers start")
    narrator.expect(jobs)
    began = time.monotonic()
    crew.start(server.url)
    _watch(client, crew, narrator, jobs, until=int(jobs * KILL_SHARE))
    kill = _kill_and_restart(server, client, narrator, jobs)
    _watch(client, crew, narrator, jobs, until=jobs)
    seconds = time.monotonic() - began
    return DemoResults(
        appended=appended,
        tallies=crew.stop(),
        results=[msgspec.convert(one.data, Result) for one in _records(client, RESULTS)],
        dead=[_dead_letter(one) for one in _records(client, DEAD)],
        workers=workers,
        kill=kill,
        final=_standing(client),
        seconds=seconds,
    )


def _set_up(client: Client) -> None:
    client.put_topic(RESULTS, durable=True, idempotency_window_ms=IDEMPOTENCY_WINDOW_MS)
    client.put_topic(DEAD, durable=True)
    client.put_topic(
        JOBS, type="queue", durable=True, max_deliveries=DELIVERIES_MAX, dead_letter=DEAD
    )


def _watch(client: Client, crew: DemoWorkers, narrator: Narrator, jobs: int, until: int) -> None:
    """Follow the queue until so many jobs are done."""
    progress_at, before = time.monotonic(), -1
    while True:
        done, in_flight = _done(client, jobs)
        narrator.done(done, in_flight)
        if done >= until:
            return
        if done > before:
            progress_at, before = time.monotonic(), done
        if time.monotonic() > progress_at + STALL_S:
            raise Stalled(f"{done} of {jobs} jobs done, and no more for {STALL_S:.0f} s")
        crew.check()
        time.sleep(WATCH_EVERY_S)


def _kill_and_restart(server: DemoServer, client: Client, narrator: Narrator, jobs: int) -> Kill:
    done, in_flight = _done(client, jobs)
    at_ms = time.time_ns() // 1_000_000
    server.kill()
    narrator.event(f"server killed (SIGKILL) after {done} jobs, {in_flight} in flight")
    restart_s = server.start()
    narrator.event(f"server ready again after {restart_s:.2f} s")
    return Kill(at_ms, done, in_flight, restart_s)


def _done(client: Client, jobs: int) -> tuple[int, int]:
    """How many jobs are done or dead-lettered, and how many are in flight."""
    now = _standing(client)
    return jobs - now.left, now.queue.in_flight


def _standing(client: Client) -> Standing:
    state = client.topic(JOBS)
    assert state.queue is not None, "it was created as a queue"
    return Standing(state.count, state.queue)


def _records(client: Client, topic: str) -> list[Record]:
    """Every record of a log that has lost none."""
    return [item for item in client.read(topic) if isinstance(item, Record)]


def _dead_letter(copy: Record) -> DeadLetter:
    assert isinstance(copy.meta, dict), "the server writes where a dead letter comes from"
    return DeadLetter(
        seq=int(copy.meta["$dead_letter_src_seq"]),
        name=msgspec.convert(copy.data, JobFeed).name,
        deliveries=int(copy.meta["$dead_letter_deliveries"]),
        reason=copy.meta.get("$dead_letter_error", ""),
    )
