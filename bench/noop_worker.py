"""A worker whose tasks do nothing, as a program: `python -m bench.noop_worker ADDRESS QUEUE JOBS`.

Owns: the tasks, and the end after so many jobs. Must not know: what its figures are for. It prints
them as one JSON object.
"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec

from logqueue.worker import App, Worker

NOOP_QUEUE = "bench.noop"
IDLE_QUEUE = "bench.idle"
CONCURRENCY = 100

app = App()


class Outcome(msgspec.Struct):
    """What a worker saw.

    Attributes:
        seconds: From its first job until all acks were answered.
        waits_s: From append to handler, in seconds, of jobs that say when they were written.
    """

    seconds: float
    waits_s: list[float]


class Tally:
    """Counts jobs, and stops the worker after the last."""

    def __init__(self) -> None:
        self.left = 0
        self.began = 0.0
        self.waits_s: list[float] = []
        self.worker: Worker | None = None

    def count(self) -> None:
        """One more job is done."""
        self.began = self.began or time.perf_counter()
        self.left -= 1
        if self.left == 0 and self.worker is not None:
            self.worker.stop()


tally = Tally()


@app.task(queue=NOOP_QUEUE)
async def noop() -> None:
    """Do nothing."""
    tally.count()


@app.task(queue=IDLE_QUEUE)
async def stamp(sent_ns: int) -> None:
    """Note how long the job was under way; the clock is the same in all processes of a machine."""
    tally.waits_s.append((time.perf_counter_ns() - sent_ns) / 1e9)
    tally.count()


def work(address: str, queue: str, jobs: int) -> Outcome:
    """Do so many jobs of a queue."""
    served = App(f"http://{address}")
    app.surroundings = served.surroundings
    tally.left = jobs
    tally.worker = Worker(app, queues=[queue], concurrency=CONCURRENCY)
    asyncio.run(tally.worker.run())
    return Outcome(time.perf_counter() - tally.began, tally.waits_s)


if __name__ == "__main__":
    # The module that tasks are registered in is the one that Python runs, so it is this one.
    outcome = work(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
