"""One worker process: takes jobs from the queue, measures files, stores results, acks.

Owns: the two ways to get jobs (a poller claims, a streamer listens to `/work`), the order "result
first, ack after", what happens to a job that fails, and the tally a worker leaves behind. Must not
know: how many workers there are, or when the server is going to be killed.

A worker runs until its standard input ends, then prints its tally as one line of JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import signal
import sys
import threading
import time

import msgspec

from logqueue.demo.calls import BACKOFF_FIRST_S, BACKOFF_MAX_S, Calls, Job, stream_jobs
from logqueue.demo.jobs import measure

JOBS = "demo.jobs"
RESULTS = "demo.results"
ERRORS = "demo.errors"
DEAD = "demo.dead"

LEASE_MS = 10_000
RETRY_DELAY_MS = 60
CLAIM_JOBS = 8
STREAM_IN_FLIGHT = 4
IDLE_PAUSE_S = 0.03
KINDS = ("poller", "streamer")


class Result(msgspec.Struct, frozen=True):
    """A record of the results log."""

    seq: int
    name: str
    lines: int
    functions: int
    classes: int
    seconds: float
    worker: str


class Failure(msgspec.Struct, frozen=True):
    """A record of the errors log."""

    seq: int
    name: str
    reason: str
    worker: str


class Delivery(msgspec.Struct):
    """One job handed to this worker, and how it ended: acked, nacked, lost, or open."""

    seq: int
    claimed_ms: int
    outcome: str = "open"
    ended_ms: int = 0


class Tally(msgspec.Struct):
    """What a worker saw."""

    worker: str
    deliveries: list[Delivery] = msgspec.field(default_factory=list)
    reconnects: int = 0
    retried_calls: int = 0
    deduped: int = 0


class Stopped(BaseException):
    """Standard input ended: leave whatever is going on."""


class Worker:
    """The part both kinds share: one job from delivery to ack or nack."""

    def __init__(self, address: str, node: str) -> None:
        self.tally = Tally(node)
        self._address = address
        self._node = node
        self._calls = Calls(address)

    def poll(self) -> None:
        """Claim a few jobs at a time, for ever; one ack for all that went well."""
        while True:
            jobs = self._calls.claim(JOBS, self._node, CLAIM_JOBS)
            if jobs:
                self._handle(jobs)
            else:
                time.sleep(IDLE_PAUSE_S)

    def listen(self) -> None:
        """Take jobs as a work stream brings them, for ever; connect again when it breaks."""
        pause = BACKOFF_FIRST_S
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                for job in stream_jobs(self._address, JOBS, self._node, STREAM_IN_FLIGHT):
                    pause = BACKOFF_FIRST_S
                    self._handle([job])
            self.tally.reconnects += 1
            time.sleep(pause)
            pause = min(pause * 2, BACKOFF_MAX_S)

    def finish(self) -> Tally:
        """The tally, complete."""
        self.tally.retried_calls = self._calls.retried
        return self.tally

    def _handle(self, jobs: list[Job]) -> None:
        deliveries = {job.seq: Delivery(job.seq, job.deadline - LEASE_MS) for job in jobs}
        self.tally.deliveries.extend(deliveries.values())
        done = [job for job in jobs if self._measure(job)]
        failed = [job for job in jobs if job not in done]
        if done:
            lost = self._calls.ack(JOBS, self._node, done)
            _end(deliveries, done, "acked", lost)
        if failed:
            lost = self._calls.nack(JOBS, self._node, failed, RETRY_DELAY_MS)
            _end(deliveries, failed, "nacked", lost)

    def _measure(self, job: Job) -> bool:
        """Measure one file and store the outcome; True when there is a result to ack for."""
        name = job.data.name
        try:
            found = measure(job.data.path)
        except Exception as failure:  # whatever a file does to the parser is this job's failure
            reason = f"{type(failure).__name__}: {failure}"
            error = Failure(job.seq, name, reason, self._node)
            self._calls.append(ERRORS, [error], key=f"{job.seq}/{job.lease_id}")
            return False
        result = Result(
            job.seq, name, found.lines, found.functions, found.classes, found.seconds, self._node
        )
        if self._calls.append(RESULTS, [result], key=f"result of {job.seq}").deduped:
            self.tally.deduped += 1
        return True


def _end(deliveries: dict[int, Delivery], jobs: list[Job], outcome: str, lost: set[int]) -> None:
    ended_ms = time.time_ns() // 1_000_000
    for job in jobs:
        delivery = deliveries[job.seq]
        delivery.outcome = "lost" if job.seq in lost else outcome
        delivery.ended_ms = ended_ms


def _stop_at_end_of_input() -> None:
    """Raise Stopped in the main thread once the parent closes our input, or is gone."""

    def on_signal(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Stopped

    def watch() -> None:
        # Not sys.stdin: a thread inside its buffer would hinder the exit of the process.
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """Run one worker until its input ends."""
    parser = argparse.ArgumentParser(prog="python -m logqueue.demo.workers")
    parser.add_argument("--address", required=True, help="host:port of the server")
    parser.add_argument("--node", required=True, help="this worker's name")
    parser.add_argument("--kind", required=True, choices=KINDS)
    options = parser.parse_args()
    worker = Worker(options.address, options.node)
    try:
        _stop_at_end_of_input()
        if options.kind == "poller":
            worker.poll()
        else:
            worker.listen()
    except Stopped:
        pass
    sys.stdout.write(msgspec.json.encode(worker.finish()).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
