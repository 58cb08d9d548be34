"""Handlers that run in a process of their own, and tell through files what they do.

Owns: functions that a child can import by name. Must not know: what is tested with them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from logqueue.worker import App, Retry, current_job, should_stop

app = App("http://127.0.0.1:9")


@app.task(queue="processes", run_in="process")
def hold_until_told(folder: str) -> None:
    """Note that it runs, and go on until a file named `go` is there."""
    here = Path(folder)
    job = current_job()
    with (here / "runs").open("a") as runs:
        runs.write(f"{job.seq} {job.deliveries} {os.getpid()}\n")
    while not (here / "go").exists():
        time.sleep(0.001)


@app.task(queue="processes", run_in="process")
def stop_when_asked(folder: str, is_done: bool) -> None:
    """Note that it runs, and go on until `should_stop()`."""
    here = Path(folder)
    (here / "runs").write_text(str(os.getpid()))
    while not should_stop():
        time.sleep(0.001)
    (here / "asked").touch()
    if is_done:
        current_job().done()


@app.task(queue="processes", run_in="process", retry=Retry.constant(1.0))
def die_once(folder: str) -> None:
    """End the process under its own feet, the first time."""
    if current_job().deliveries == 1:
        os._exit(7)
    (Path(folder) / "survived").touch()


@app.task(queue="processes", run_in="process", retry=Retry.constant(1.0))
def fail_oddly(folder: str) -> None:
    """Raise what cannot be pickled, the first time."""

    class Local(Exception):
        pass

    if current_job().deliveries == 1:
        raise Local("odd")
    (Path(folder) / "survived").touch()


@app.task(queue="processes", run_in="process", timeout=0.05)
def run_for(seconds: float) -> None:
    """Take some time, of which there is less than a process needs to start."""
    time.sleep(seconds)


@app.task(queue="landed")
def landed(n: int) -> None:
    """What `hand_on` hands on to."""


@app.task(queue="handed", run_in="process")
def hand_on(n: int) -> None:
    """A step that ends with the job of the next."""
    current_job().done(then=[landed.job(n)])


app.queue("results", results={})


@app.task(queue="results", run_in="process")
def doubled(n: int) -> int:
    """A result from a process."""
    return 2 * n
