"""One worker process: measures the file of each job, stores the result, then acks.

Owns: the handler and the tally a worker leaves behind. Must not know: how many workers there are,
when the server is going to be killed. Getting jobs, keeping leases, retries and coming back after
an outage are the worker runtime's.

A worker runs until its standard input ends, then prints its tally as one line of JSON.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from logqueue import AckPolicy, App, Backoff, Client, Retry, run_worker
from logqueue.demo.jobs import JobFeed, measure
from logqueue.worker import Job

JOBS = "demo.jobs"
RESULTS = "demo.results"
DEAD = "demo.dead"

LEASE_S = 10.0
RETRY = Retry.constant(0.06, max_attempts=3)
PATIENT = Backoff(attempts=None, first_s=0.02, cap_s=0.5, total_s=60.0)
"""For calls that have to outlast the restart of the server."""

CONCURRENCY = 2
PREFETCH = 6
KINDS = {"poller": "poll", "streamer": "sse"}


class Result(msgspec.Struct, frozen=True):
    """A record of the results log."""

    seq: int
    name: str
    lines: int
    functions: int
    classes: int
    seconds: float
    worker: str


class Delivery(msgspec.Struct):
    """One job handed to this worker, and how it ended: acked, failed, lost, or open."""

    seq: int
    claimed_ms: int
    outcome: str = "open"
    ended_ms: int = 0

    def end(self, outcome: str) -> None:
        """Note the outcome, and when it was known."""
        self.outcome = outcome
        self.ended_ms = time.time_ns() // 1_000_000


class Tally(msgspec.Struct):
    """What a worker saw."""

    worker: str
    deliveries: list[Delivery] = msgspec.field(default_factory=list)
    deduped: int = 0


def measuring(url: str, tally: Tally) -> App:
    """The app: one handler, which notes every delivery in the tally."""

    @asynccontextmanager
    async def connected(_app: App) -> AsyncIterator[Mapping[str, Any]]:
        with Client(url, backoff=PATIENT) as client:
            yield {"client": client}

    app = App(url, lifespan=connected)

    # By hand, for the tally has to know whether the ack counted.
    @app.consumer(JOBS, ack_policy=AckPolicy.MANUAL, retry=RETRY)
    def measure_one(job: Job) -> None:
        delivery = Delivery(job.seq, job.deadline - round(LEASE_S * 1000))
        tally.deliveries.append(delivery)
        source = job.decode(JobFeed)
        try:
            found = measure(source.path)
        except Exception:  # whatever a file does to the parser is this job's failure
            delivery.end("failed")
            raise
        result = Result(
            job.seq,
            source.name,
            found.lines,
            found.functions,
            found.classes,
            found.seconds,
            tally.worker,
        )
        # The job may have been done before, by a worker whose ack the kill swallowed: the key
        # keeps the result single.
        client: Client = job.state["client"]
        tally.deduped += client.append(RESULTS, [result], key=f"result of {job.seq}").deduped
        delivery.end("acked" if job.ack().result() else "lost")

    return app


def _stop_at_end_of_input() -> None:
    """Send ourselves SIGTERM once the parent closes our input, or is gone."""

    def watch() -> None:
        # Not sys.stdin: a thread inside its buffer would hinder the exit of the process.
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """Run one worker until its input ends."""
    parser = argparse.ArgumentParser(prog="python -m logqueue.demo.workers")
    parser.add_argument("--url", required=True, help="of the server")
    parser.add_argument("--node", required=True, help="this worker's name")
    parser.add_argument("--kind", required=True, choices=KINDS)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    _stop_at_end_of_input()
    tally = Tally(options.node)
    status = run_worker(
        measuring(options.url, tally),
        signals=[signal.SIGTERM],
        node=options.node,
        source=KINDS[options.kind],
        lease=LEASE_S,
        concurrency=CONCURRENCY,
        prefetch=PREFETCH,
    )
    sys.stdout.write(msgspec.json.encode(tally).decode() + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
