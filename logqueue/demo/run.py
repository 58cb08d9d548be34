"""The course of the demo: server up, jobs in, workers on, SIGKILL half-way, restart, reckoning.

Owns: the order of things and the gathering of the facts. Must not know: how a job is done, how the
facts are judged or shown.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from logqueue.demo.calls import Calls, Source
from logqueue.demo.checks import DeadLetter, Facts, Kill
from logqueue.demo.crew import Crew
from logqueue.demo.directory import fresh
from logqueue.demo.jobs import sample, standard_library, truncated_copies
from logqueue.demo.progress import Narrator
from logqueue.demo.server import ServerProcess
from logqueue.demo.workers import DEAD, ERRORS, JOBS, LEASE_MS, RESULTS, Failure, Result, Tally

DELIVERIES_MAX = 3
APPEND_RECORDS = 100
KILL_SHARE = 0.5
WATCH_EVERY_S = 0.01
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


def run(options: Options, narrator: Narrator) -> Facts:
    """Run the demo once."""
    directory = fresh(options.data_dir)
    everything = standard_library()
    sources = everything if options.files_max is None else sample(everything, options.files_max)
    sources = sources + truncated_copies(everything, directory / "truncated")
    server = ServerProcess(directory / "server", directory)
    crew = Crew(options.workers, directory)
    try:
        narrator.event(f"server ready after {server.start():.2f} s on {server.address}")
        calls = Calls(server.address)
        _configure(calls)
        appended = _append(calls, sources)
        narrator.event(f"{len(appended)} jobs appended, {options.workers} workers start")
        narrator.expect(len(appended))
        began = time.monotonic()
        crew.start(server.address)
        _watch(calls, crew, narrator, len(appended), until=int(len(appended) * KILL_SHARE))
        kill = _kill_and_restart(server, calls, narrator, len(appended))
        _watch(calls, crew, narrator, len(appended), until=len(appended))
        seconds = time.monotonic() - began
        tallies = crew.stop()
        return _gather(calls, appended, tallies, options.workers, kill, seconds)
    finally:
        crew.stop()
        server.stop()


def _configure(calls: Calls) -> None:
    log: dict[str, object] = {"durable": True, "idempotency_window_ms": IDEMPOTENCY_WINDOW_MS}
    for topic in (RESULTS, ERRORS, DEAD):
        calls.configure(topic, log)
    queue = {
        **log,
        "type": "queue",
        "lease_ms": LEASE_MS,
        "max_deliveries": DELIVERIES_MAX,
        "dead_letter": DEAD,
    }
    calls.configure(JOBS, queue)


def _append(calls: Calls, sources: list[Source]) -> dict[int, Source]:
    appended: dict[int, Source] = {}
    for start in range(0, len(sources), APPEND_RECORDS):
        batch = sources[start : start + APPEND_RECORDS]
        reply = calls.append(JOBS, batch, key=f"sources from {start}")
        appended.update(zip(range(reply.first_seq, reply.last_seq + 1), batch, strict=True))
    return appended


def _watch(calls: Calls, crew: Crew, narrator: Narrator, jobs: int, until: int) -> None:
    """Follow the queue until so many jobs are done."""
    progress_at, before = time.monotonic(), -1
    while True:
        done, in_flight = _done(calls, jobs)
        narrator.done(done, in_flight)
        if done >= until:
            return
        if done > before:
            progress_at, before = time.monotonic(), done
        if time.monotonic() > progress_at + STALL_S:
            raise Stalled(f"{done} of {jobs} jobs done, and no more for {STALL_S:.0f} s")
        crew.check()
        time.sleep(WATCH_EVERY_S)


def _kill_and_restart(server: ServerProcess, calls: Calls, narrator: Narrator, jobs: int) -> Kill:
    done, in_flight = _done(calls, jobs)
    at_ms = time.time_ns() // 1_000_000
    server.kill()
    narrator.event(f"server killed (SIGKILL) after {done} jobs, {in_flight} in flight")
    restart_s = server.start()
    narrator.event(f"server ready again after {restart_s:.2f} s")
    return Kill(at_ms, done, in_flight, restart_s)


def _done(calls: Calls, jobs: int) -> tuple[int, int]:
    """How many jobs are done or given up, and how many are in flight."""
    state = calls.state(JOBS)
    return jobs - state.count, state.queue.in_flight if state.queue else 0


def _gather(
    calls: Calls,
    appended: dict[int, Source],
    tallies: list[Tally],
    workers: int,
    kill: Kill,
    seconds: float,
) -> Facts:
    results = [msgspec.json.decode(one.data, type=Result) for one in calls.records(RESULTS)]
    failures = [msgspec.json.decode(one.data, type=Failure) for one in calls.records(ERRORS)]
    dead = []
    for record in calls.records(DEAD):
        source = msgspec.json.decode(record.data, type=Source)
        dead.append(
            DeadLetter(
                seq=int(str(record.meta["$dead_letter_src_seq"])),
                name=source.name,
                deliveries=int(str(record.meta["$dead_letter_deliveries"])),
            )
        )
    return Facts(
        appended=appended,
        results=results,
        failures=failures,
        dead=dead,
        tallies=tallies,
        workers=workers,
        kill=kill,
        final=calls.state(JOBS),
        seconds=seconds,
    )
