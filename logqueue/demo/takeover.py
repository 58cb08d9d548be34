"""The course of a takeover: a writer, its standby, a replica, workers, and a SIGKILL half-way.

Owns: the order of things, the gathering of the facts, what a takeover promises beyond a restart.
Must not know: how a job is done, how the facts are shown, how a standby takes over.

The replica is in `sync` mode, so the promise is that of the demo with one server: nothing that was
answered is lost.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from logqueue import Client
from logqueue.demo import queue
from logqueue.demo.checks import Check, DemoResults, Kill
from logqueue.demo.crew import DemoWorkers
from logqueue.demo.directory import fresh
from logqueue.demo.gap import GapProbe, TakeoverGap
from logqueue.demo.jobs import JobFeed
from logqueue.demo.producing import JobProducer
from logqueue.demo.progress import Narrator
from logqueue.demo.run import KILL_SHARE, choose
from logqueue.demo.server import DemoServer
from logqueue.demo.workers import PATIENT

TAKEOVER_S_MAX = 60.0


class NotTakenOver(Exception):
    """The standby did not become the writer."""


@dataclass(frozen=True)
class FailoverOptions:
    """What the caller may choose."""

    data_dir: Path
    replica: str | None
    auto_promote: str
    files_max: int | None
    workers: int


def run(options: FailoverOptions, narrator: Narrator) -> tuple[DemoResults, TakeoverGap]:
    """Run it once.

    Raises:
        NotOurs: The directory is not one of the demo.
        ServerFailed, WorkerFailed, Stalled, NotTakenOver: It did not come to its end.
    """
    directory = fresh(options.data_dir)
    sources = choose(options.files_max, directory)
    replica = options.replica or (directory / "replica").as_uri()
    shared = ("--replica", replica, "--replica-mode", "sync")
    writer = DemoServer(directory / "writer", directory, options=shared)
    standby = DemoServer(
        directory / "standby",
        directory,
        options=(*shared, "--standby", "--auto-promote", options.auto_promote),
        is_ready=Client.topic_page,
    )
    crew = DemoWorkers(options.workers, directory)
    try:
        narrator.event(f"writer ready after {writer.start():.2f} s on {writer.url}")
        narrator.event(f"standby follows after {standby.start():.2f} s on {standby.url}")
        urls = (writer.url, standby.url)
        with Client(urls, backoff=PATIENT) as client:
            return _course(client, urls, writer, crew, sources, narrator)
    finally:
        crew.stop()
        standby.stop()
        writer.stop()


def _course(
    client: Client,
    urls: tuple[str, str],
    writer: DemoServer,
    crew: DemoWorkers,
    sources: list[JobFeed],
    narrator: Narrator,
) -> tuple[DemoResults, TakeoverGap]:
    jobs, workers = len(sources), crew.size
    queue.set_up(client)
    producer = JobProducer(urls, sources)
    narrator.event(f"{jobs} jobs come while {workers} workers work")
    narrator.expect(jobs)
    began = time.monotonic()
    try:
        with GapProbe(urls, urls[1]) as probe:
            producer.start()
            crew.start(",".join(urls))
            until = int(jobs * KILL_SHARE)
            queue.watch(client, crew, narrator, until, producer.check)
            kill, gap = _kill(client, writer, probe, narrator)
        queue.watch(client, crew, narrator, jobs, producer.check)
        seconds = time.monotonic() - began
        facts = DemoResults(
            appended=producer.result(),
            tallies=crew.stop(),
            results=queue.results(client),
            dead=queue.dead_letters(client),
            workers=workers,
            kill=kill,
            final=queue.standing(client),
            seconds=seconds,
        )
    finally:
        producer.close()
    return facts, gap


def _kill(
    client: Client, writer: DemoServer, probe: GapProbe, narrator: Narrator
) -> tuple[Kill, TakeoverGap]:
    """Kill the writer and wait until the standby writes: it is not asked to."""
    now = queue.standing(client)
    at_ms = time.time_ns() // 1_000_000
    writer.kill()
    probe.killed()
    narrator.event(
        f"writer killed (SIGKILL) after {now.done} jobs, {now.queue.in_flight} in flight"
    )
    gap = probe.wait(TAKEOVER_S_MAX)
    if gap is None:
        raise NotTakenOver(f"the standby did not take over within {TAKEOVER_S_MAX:.0f} s")
    narrator.event(f"the standby has taken over: no write was answered for {gap.seconds:.2f} s")
    return Kill(at_ms, now.done, now.queue.in_flight, gap.seconds), gap


def judge_takeover(facts: DemoResults) -> list[Check]:
    """What a takeover promises, beyond what a restart does."""
    appended, total = len(facts.appended), facts.final.appended
    return [
        Check(
            "each answered append is in the queue, once",
            appended == total,
            f"{appended} answered, {total} in the queue",
        ),
        Check(
            "the producer was at work before and after the takeover",
            facts.kill.done < appended,
            f"{facts.kill.done} done at the kill, {appended} appended",
        ),
    ]
