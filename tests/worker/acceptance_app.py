"""The app of the worker processes: handlers that do what the job says and report it.

Owns: handlers for one queue of the suite named in the environment. Must not know: what is tested.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import ExitStack

from logqueue.client import Client
from logqueue.worker import App, Retry, current_job

SUITE = os.environ.get("ACCEPTANCE_SUITE", "none")
QUEUE = f"{SUITE}.jobs"

app = App()


def report(what: str, **more: object) -> None:
    """Tell the test what happens."""
    job = current_job()
    said = {"what": what, "seq": job.seq, "deliveries": job.deliveries, "pid": os.getpid(), **more}
    with ExitStack() as stack:
        client = stack.enter_context(Client(os.environ["NEWS_URL"]))
        client.append(f"{SUITE}.news", [said])


@app.task(queue=QUEUE, concurrency=4)
async def sleep(seconds: float) -> None:
    """Sleep on the loop."""
    await asyncio.to_thread(report, "started")
    await asyncio.sleep(seconds)
    await asyncio.to_thread(report, "finished")


@app.task(queue=QUEUE)
def note() -> None:
    """Report."""
    report("noted")


@app.task(queue=QUEUE)
async def block_the_loop(seconds: float) -> None:
    """Sleep, and the loop with it."""
    report("started")
    time.sleep(seconds)
    report("finished")


@app.task(queue=QUEUE)
def block_a_thread(seconds: float) -> None:
    """Sleep in a thread."""
    report("started")
    time.sleep(seconds)
    report("finished")


@app.task(queue=QUEUE, run_in="process")
def hold_the_lock(seconds: float) -> None:
    """Keep a processor busy in a process."""
    report("started")
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        sum(range(10_000))
    report("finished")


@app.task(queue=QUEUE, retry=Retry.constant(3600.0), concurrency=50)
async def count(number: int, bad: int) -> None:
    """Do nothing, but for one."""
    if number == bad:
        raise ValueError("this one is bad")
